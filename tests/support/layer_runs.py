"""Single layers on this machine, and in float64 by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import te

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import is_floating
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.output.codegen import THREAD_POOL, link_shared
from edgedeploy.compile.passes.fusion import FusedFunction
from edgedeploy.target.board import load_board
from support.integer_runs import exact_sums

LOCAL = load_board("local")


def computed_and_exact(layer: AnyAnchorOp, chosen: Configuration, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """What a layer makes of random numbers in a configuration, and in float64."""
    data, weights = _random(layer.data, layer.types.data, 1), _random(layer.weights, layer.types.weights, 2)
    return _computed(layer, chosen, data, weights, folder), exact_sums(layer, data, weights, np.float64)


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.std(found.astype(np.float64) - wanted) / np.std(wanted))


def _random(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if is_floating(dtype):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _computed(
    layer: AnyAnchorOp, chosen: Configuration, data: np.ndarray, weights: np.ndarray, folder: Path
) -> np.ndarray:
    backend, tensors = backend_of(LOCAL), [te.placeholder(each.shape, str(each.dtype)) for each in (data, weights)]
    canonical = te.create_prim_func([*tensors, layer.canonical()(*tensors)])
    with tvm.target.Target(LOCAL.cpu_target()):
        packable = {1} if layer.constant else set[int]()
        scheduled = backend.configured(FusedFunction(layer, canonical, tvm.IRModule()), chosen, packable)
    backend.write_objects(tvm.IRModule({"layer": scheduled.function.with_attr("global_symbol", "layer")}), folder)
    link_shared([*folder.glob("*.o"), THREAD_POOL], folder / "layer.so", LOCAL)
    packed = scheduled.packing.pack(weights) if scheduled.packing else weights
    result = canonical.params[-1].ty
    output = tvm.runtime.empty([int(size) for size in result.shape], str(result.dtype))
    tvm.runtime.load_module(str(folder / "layer.so"))["layer"](
        tvm.runtime.tensor(data), tvm.runtime.tensor(packed), output
    )
    return np.asarray(output.numpy())
