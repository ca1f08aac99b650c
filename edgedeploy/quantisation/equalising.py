"""Equalises channels before a network is quantised: factors move from weights to those of the layers that follow.

A tensor has one scale, and a channel whose values are small beside another's would use few of the 256 levels. Positive
factors pass through ReLU, sums and pools: what a layer's channel is multiplied by, the weights of its readers are
divided by (Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.1;
here with the ranges of activations in samples).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.frontends.onnx.nodes import attributes_of, reads
from edgedeploy.quantisation.agreement import Runs, showing
from edgedeploy.quantisation.samples import Samples

# Operators of each channel by itself that positive factors pass through.
_PASSING = frozenset({"Add", "AveragePool", "Identity", "LeakyRelu", "MaxPool", "PRelu", "Relu", "Resize"})

# Channels are never assumed to be smaller than this part of the largest: samples may not show all that they can be.
_SMALLEST = 1 / 16


@dataclass
class _Group:
    """Tensors whose channels have the same factors, and the convolutions that compute and read them."""

    tensors: list[str]  # those that convolutions read: others are inside of the compiled code's loops
    makers: list[onnx.NodeProto] = field(default_factory=list)
    readers: list[onnx.NodeProto] = field(default_factory=list)


def equalised(model: onnx.ModelProto, samples: Samples, progress: Progress = SILENT) -> onnx.ModelProto:
    """A prepared network whose channels use their tensors' ranges better; its outputs differ by rounding only."""
    groups = _groups(model)
    if not groups:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    weights = {each.name: each for each in changed.graph.initializer}
    ranges = _ranges(model, [name for group in groups for name in group.tensors], samples, progress)
    for group in groups:
        if len({ranges[name].shape for name in group.tensors}) > 1:
            continue  # a sum or a resize that is not of each channel by itself
        factors = _factors(group, ranges, weights)
        for node in group.makers:
            for name in filter(None, node.input[1:]):
                _multiply(weights[name], factors, 0)
        for node in group.readers:
            _multiply(weights[node.input[1]], 1 / factors, 0 if _is_depthwise(node, weights) else 1)
    return changed


def _groups(model: onnx.ModelProto) -> list[_Group]:
    """The groups whose tensors are all made and read by convolutions with weights of their own."""
    graph = model.graph
    weights = {each.name: each for each in graph.initializer}
    uses = Counter(name for node in graph.node for name in reads(node))
    own = {name for name, each in weights.items() if uses[name] == 1 and each.data_type == onnx.TensorProto.FLOAT}
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            parents[name] = name = parents[parent]
        return name

    blocked = {value.name for value in (*graph.input, *graph.output)}
    makers, readers = defaultdict(list), defaultdict(list)
    for node in graph.node:
        data = [name for name in node.input if name and name not in weights]
        if node.op_type == "Conv" and own.issuperset(filter(None, node.input[1:])):
            makers[node.output[0]].append(node)
            if _is_depthwise(node, weights) or attributes_of(node).get("group", 1) == 1:
                readers[node.input[0]].append(node)
            else:
                blocked.add(node.input[0])
        elif _passes(node, data):
            for name in data:
                parents[root(name)] = root(node.output[0])
        else:
            blocked.update([*reads(node), *node.output])
    found: dict[str, _Group] = {}
    for name in dict.fromkeys([*makers, *readers, *parents]):
        group = found.setdefault(root(name), _Group([]))
        group.tensors += [name] if name in readers else []
        group.makers += makers.get(name, [])
        group.readers += readers.get(name, [])
    stopped = {root(name) for name in blocked}
    return [group for name, group in found.items() if name not in stopped and group.makers and group.readers]


def _passes(node: onnx.NodeProto, data: Sequence[str]) -> bool:
    """Whether positive factors of the channels of an operator's data become those of its result."""
    cuts = attributes_of(node).get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    return node.op_type in _PASSING and not cuts and len(node.output) == 1 and len(data) == (node.op_type == "Add") + 1


def _is_depthwise(node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]) -> bool:
    shape = weights[node.input[1]].dims
    return bool(attributes_of(node).get("group", 1) == shape[0] and shape[1] == 1 and shape[0] > 1)


def _ranges(
    model: onnx.ModelProto, names: Sequence[str], samples: Samples, progress: Progress
) -> dict[str, np.ndarray]:
    """By tensor, the largest magnitude of each channel in all samples."""
    run = Runs(showing(model, names), optimised=False)
    largest: dict[str, np.ndarray] = {}
    with progress.steps("equalise", len(samples)) as advance:
        for sample in samples:
            found = run(sample.tensors)
            for name in names:
                peaks = np.abs(found[name]).max(axis=(0, *range(2, found[name].ndim)), keepdims=True)
                largest[name] = np.maximum(largest.get(name, 0), peaks)
            advance()
    return largest


def _factors(group: _Group, ranges: Mapping[str, np.ndarray], weights: Mapping[str, onnx.TensorProto]) -> np.ndarray:
    """The factor of each channel.

    Depthwise readers have a scale for each of these channels: it fills the tensor's range. Others have one for all of
    them: there it is the geometric mean of what fills the range, and of what divides the weights of no channel by more
    than those of others, each by its largest part of an output's weights.
    """
    peaks = np.stack([ranges[name].ravel() for name in group.tensors])
    used = _share(_parts(peaks))
    others = [node.input[1] for node in group.readers if not _is_depthwise(node, weights)]
    if not others:
        return np.asarray(1 / used)
    kernels = [np.abs(numpy_helper.to_array(weights[name])) for name in others]
    rows = [each.reshape(*each.shape[:2], -1).max(axis=2) for each in kernels]
    heavy = _share(_parts(np.concatenate(rows)))
    return np.asarray(np.sqrt(heavy / used))


def _parts(rows: np.ndarray) -> np.ndarray:
    """Each value, of [n, channels], as a part of its row's largest."""
    return rows / np.maximum(rows.max(axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _share(parts: np.ndarray) -> np.ndarray:
    """The largest part of each channel, [n, channels], from `_SMALLEST` to 1."""
    return np.maximum(parts.max(axis=0), _SMALLEST)


def _multiply(tensor: onnx.TensorProto, factors: np.ndarray, axis: int) -> None:
    array = numpy_helper.to_array(tensor)
    shape = [1] * array.ndim
    shape[axis] = -1
    tensor.CopyFrom(numpy_helper.from_array((array * factors.reshape(shape)).astype(array.dtype), tensor.name))
