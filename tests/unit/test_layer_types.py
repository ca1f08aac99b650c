"""Layers of any types through the templates: what they compute, and that tiles, padding and rounding follow from types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from edgedeploy.board import load_board
from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu.configuration import Direct
from edgedeploy.compile.codegen import write_object
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.groups import Group
from edgedeploy.compile.layers import AnyLayer, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.linking import THREAD_POOL, link_shared
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.tiles import WeightOrder
from edgedeploy.compile.types import FLOAT32, LayerTypes, is_floating

LOCAL = load_board("local")

HALF = LayerTypes("float16", "float16", "float32", "float32")
HALF_STORED = LayerTypes("float16", "float16", "float32", "float16")
DOUBLE = LayerTypes.uniform("float64")
INTEGER = LayerTypes("uint8", "int8", "int32", "int32")

ZERO_POINT = 131


def window(kernel: int, types: LayerTypes, stride: int = 1) -> Window:
    value = 0.0 if is_floating(types.data) else float(ZERO_POINT)
    return Window((kernel, kernel), (stride, stride), (1, 1), (kernel // 2,) * 4, value)


def layers(types: LayerTypes) -> dict[str, AnyLayer]:
    common: dict[str, Any] = {"types": types, "constant": True}
    return {
        "convolution": Convolution(data=(1, 11, 13, 24), weights=(3, 3, 24, 48), window=window(3, types), **common),
        "by channels": Convolution(data=(1, 7, 7, 64), weights=(3, 3, 64, 256), window=window(3, types), **common),
        "first": FirstConvolution(data=(1, 3, 20, 27), weights=(3, 3, 3, 32), window=window(3, types, 2), **common),
        "depthwise": DepthwiseConvolution(
            data=(1, 9, 14, 48), weights=(5, 5, 1, 48), window=window(5, types), **common
        ),
        "dense": Dense(data=(6, 80), weights=(80, 40), **common),
    }


def random(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if is_floating(dtype):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max + 1, shape).astype(dtype)


def exact(layer: AnyLayer, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The layer in float64, which holds all sums of products of bytes."""
    data, weights = data.astype(np.float64), weights.astype(np.float64)
    if isinstance(layer, Dense):
        return np.asarray(data @ weights)
    if isinstance(layer, FirstConvolution):
        data = np.moveaxis(data, 1, 3)
    top, left, bottom, right = layer.window.padding
    widths = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(data, widths, constant_values=layer.window.padding_value)
    views = np.lib.stride_tricks.sliding_window_view(padded, layer.window.kernel, axis=(1, 2))
    views = views[:, :: layer.window.strides[0], :: layer.window.strides[1]]
    indices = "nyxcij,ijoc->nyxc" if isinstance(layer, DepthwiseConvolution) else "nyxcij,ijco->nyxo"
    return np.einsum(indices, views, weights, optimize=True)


def computed(layer: AnyLayer, chosen: Configuration, data: np.ndarray, weights: np.ndarray, folder: Path) -> np.ndarray:
    """What this machine computes with the layer in a configuration."""
    tensors = [te.placeholder(shape.shape, str(shape.dtype)) for shape in (data, weights)]
    canonical = te.create_prim_func([*tensors, layer.plain()(*tensors)])
    group = Group(layer, canonical, tvm.IRModule())
    target = tvm.target.Target(LOCAL.cpu_target())
    with target:
        scheduled = backend_of(LOCAL).configured(group, chosen, {1})
    write_object(tvm.IRModule({"layer": scheduled.function.with_attr("global_symbol", "layer")}), target, folder / "o.o")
    link_shared([folder / "o.o", THREAD_POOL], folder / "layer.so", LOCAL)
    packed = scheduled.packing.relay(weights) if scheduled.packing else weights
    result = canonical.params[-1].ty
    output = tvm.runtime.empty([int(size) for size in result.shape], str(result.dtype))
    tvm.runtime.load_module(str(folder / "layer.so"))["layer"](tvm.runtime.tensor(data), tvm.runtime.tensor(packed), output)
    return np.asarray(output.numpy())


@pytest.mark.parametrize("types", [FLOAT32, HALF, HALF_STORED, DOUBLE, INTEGER], ids=str)
@pytest.mark.parametrize("name", layers(FLOAT32))
def test_what_is_computed_is_what_its_types_say(tmp_path: Path, name: str, types: LayerTypes) -> None:
    layer = layers(types)[name]
    data, weights = (random(shape, dtype, 1) for shape, dtype in ((layer.data, types.data), (layer.weights, types.weights)))
    strategy = backend_of(LOCAL).strategy(layer)
    chosen = strategy.default()
    found, wanted = computed(layer, chosen, data, weights, tmp_path), exact(layer, data, weights)
    assert (str(found.dtype), found.shape) == (types.result, wanted.shape)
    if not is_floating(types.accumulator):
        assert np.array_equal(found, wanted)
    else:
        error = np.std(found.astype(np.float64) - wanted) / np.std(wanted)
        print(name, error, math.sqrt(strategy.rounding(chosen)), chosen)
        assert error <= 1.5 * math.sqrt(strategy.rounding(chosen))
