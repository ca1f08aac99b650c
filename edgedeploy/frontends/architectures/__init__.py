"""Architectures: networks with a published form, whose weights are not available, with seeded random weights.

They serve to build, to time and to try decoders on the true layers; their results mean nothing. The file that
describes such a network is its entry in the zoo, which states an architecture instead of files, or besides them.
"""

from __future__ import annotations

from edgedeploy.frontends.format import Converted


def build(name: str) -> Converted:
    """An architecture as an ONNX model; the same at every call."""
    from edgedeploy.frontends.architectures import classifiers, detectors  # they import onnx, which takes a while

    return (classifiers.BUILDERS | detectors.BUILDERS)[name]()
