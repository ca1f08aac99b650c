"""Quantised networks as Tengine's kernels of int8 compute them, in numpy: its `source/device/cpu/op/*/*_ref.c`.

Each gives integers of the steps that the file states of its output, in float32 arithmetic in the order of the C code.
"""

from collections.abc import Callable, Mapping
from graphlib import TopologicalSorter

import numpy as np

from edgedeploy.frontends.tengine.structure import Node, Structure, Tensor
from support.agreement import convolved


def away(values: np.ndarray) -> np.ndarray:
    """C's `round`: halves away from zero."""
    return np.copysign(np.floor(np.abs(values.astype(np.float64)) + 0.5), values)


def bounded(steps: np.ndarray) -> np.ndarray:
    return np.clip(away(steps), -127, 127).astype(np.int32)


def narrowed(real: np.ndarray, scale: np.float32) -> np.ndarray:
    """float32 values as integers of a scale."""
    assert real.dtype == np.float32
    return bounded(real / scale)


def integers_of(structure: Structure, data: np.ndarray) -> dict[int, np.ndarray]:
    """The integers of every tensor of a network of int8 with one input, by number."""
    found: dict[int, np.ndarray] = {}
    for node in _ordered(structure):
        [output] = node.outputs.tolist()
        scale = _scale(structure.tensors[output])
        if node.operator == "InputOp":
            found[output] = narrowed(data, scale)
        else:
            found[output] = _KERNELS[node.operator](node, structure.tensors, found, scale)
    return found


def _ordered(structure: Structure) -> list[Node]:
    """Nodes after those that they read; the file may have them in any order."""
    nodes = structure.nodes
    makers = {index: number for number, node in enumerate(nodes) for index in node.outputs.tolist()}
    needs = {number: [makers[index] for index in node.inputs.tolist()] for number, node in enumerate(nodes)}
    ordered = (nodes[number] for number in TopologicalSorter(needs).static_order())
    return [node for node in ordered if node.operator != "Const"]


def _scale(tensor: Tensor) -> np.float32:
    quantisation = tensor.quantisation
    assert not quantisation.zero_point.any()
    return np.float32(quantisation.scale)


Found = dict[int, np.ndarray]


def _weights(node: Node, tensors: list[Tensor]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    held = tensors[node.inputs[1]]
    bias = tensors[node.inputs[2]].values if node.inputs.size > 2 else np.zeros(1, np.int32)
    return held.values.astype(np.int32), held.quantisation.scale, bias


def _windows(data: np.ndarray, p: Mapping[str, int]) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(data, (p["kernel_h"], p["kernel_w"]), axis=(2, 3))
    return windows[:, :, :: p["stride_h"], :: p["stride_w"]]


def _convolution(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    p, (weights, scales, bias) = node.parameters, _weights(node, tensors)
    data = found[node.inputs[0]]
    pads = (p["pad_top"], p["pad_left"], p["pad_bottom"], p["pad_right"])
    sums = convolved(data, weights, pads=pads, stride=(p["stride_h"], p["stride_w"])) + bias.reshape(1, -1, 1, 1)
    real = sums.astype(np.float32) * (_scale(tensors[node.inputs[0]]) * scales).reshape(1, -1, 1, 1)
    if p["activation"] == 0:
        real = np.maximum(real, np.float32(0))
    elif p["activation"] > 0:
        real = np.clip(real, np.float32(0 if p["activation"] == 6 else -1), np.float32(p["activation"]))
    return narrowed(real, scale)


def _fully_connected(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    weights, scales, bias = _weights(node, tensors)
    data = found[node.inputs[0]]
    sums = data.reshape(len(data), -1) @ weights.T + bias
    factors = _scale(tensors[node.inputs[0]]) * scales / scale
    integers = bounded(sums.astype(np.float32) * factors)
    return integers.reshape(*integers.shape, *[1] * (data.ndim - 2))


def _real(index: int, tensors: list[Tensor], found: Found) -> np.ndarray:
    return np.asarray(found[index].astype(np.float32) * _scale(tensors[index]))


def _relu(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    real, slope = _real(node.inputs[0], tensors, found), np.float32(node.parameters["slope"])
    return narrowed(np.where(real < 0, real * slope, real), scale)


def _sum(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    assert node.parameters["kind"] == 2
    one, other = (_real(index, tensors, found) for index in node.inputs.tolist())
    return narrowed(one + other, scale)


def _pooling(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    p, data = node.parameters, found[node.inputs[0]]
    before = _scale(tensors[node.inputs[0]])
    if p["whole"]:
        windows = data.reshape(*data.shape[:2], 1, 1, 1, -1)
    else:
        assert not any(p[f"pad_{side}"] for side in ("top", "left", "bottom", "right"))
        windows = _windows(data, p)
    windows = windows.reshape(*windows.shape[:4], -1)
    if p["kind"] == 0:
        return bounded(windows.max(-1).astype(np.float32) * (before / scale))
    return narrowed(windows.sum(-1).astype(np.float32) * before / np.float32(windows.shape[-1]), scale)


def _concatenation(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    parts = [
        bounded(found[index].astype(np.float32) * (_scale(tensors[index]) / scale)) for index in node.inputs.tolist()
    ]
    return np.concatenate(parts, axis=node.parameters["axis"])


_KERNELS: dict[str, Callable[[Node, list[Tensor], Found, np.float32], np.ndarray]] = {
    "Concat": _concatenation,
    "Convolution": _convolution,
    "Eltwise": _sum,
    "FullyConnected": _fully_connected,
    "Pooling": _pooling,
    "ReLu": _relu,
}
