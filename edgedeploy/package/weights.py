"""Weights in packages that the library transforms when it is loaded: one member for each, its values as they lie."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from edgedeploy.package.manifest import Manifest
from edgedeploy.tensors import TensorSpec


def weight_members(weights: Sequence[np.ndarray], contents: MutableMapping[str, bytes]) -> list[TensorSpec]:
    """What a manifest says of weights; the members go into `contents`."""
    specs = []
    for place, array in enumerate(weights):
        spec = TensorSpec(name=f"weights/{place}.bin", shape=list(array.shape), dtype=str(array.dtype))
        contents[spec.name] = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        specs.append(spec)
    return specs


def weights_of(manifest: Manifest, contents: Mapping[str, bytes]) -> list[np.ndarray]:
    """The arrays that a package's library transforms, in order; `contents` has at least these members."""
    return [
        np.frombuffer(contents[spec.name], np.dtype(spec.dtype).newbyteorder("<")).reshape(spec.shape)
        for spec in manifest.transformed
    ]
