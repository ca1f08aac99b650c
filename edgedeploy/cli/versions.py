"""What `edgedeploy version` says."""

from __future__ import annotations

import importlib.metadata
import platform

from edgedeploy.version import __version__

# What packages are made and checked with; those that are not installed are left out.
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "ziglang", "numpy", "paramiko")


def versions() -> dict[str, str]:
    """edgedeploy's version, Python's, and those of the packages that matter to what is built."""
    found = {"edgedeploy": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
