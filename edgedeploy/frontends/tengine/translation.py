"""A tmfile's network in ONNX's terms: its nodes in an order in which they can run, one after another."""

from __future__ import annotations

import graphlib
from collections.abc import Sequence

import numpy as np
import onnx

from edgedeploy.errors import ModelError, OpenShapeError
from edgedeploy.frontends.format import Shapes, check_given_shapes, unfit_shape
from edgedeploy.frontends.graph import Value
from edgedeploy.frontends.tengine import operators, windows
from edgedeploy.frontends.tengine.graph import Converter, TengineGraph
from edgedeploy.frontends.tengine.structure import MOST_DIMENSIONS, Node, Quantisation, Structure

CONVERTERS: dict[str, Converter] = {**operators.CONVERTERS, **windows.CONVERTERS}

# Operators that move values.
_MOVES = {
    *("Concat", "Crop", "Dropout", "Flatten", "Noop", "Permute", "Reshape", "ShuffleChannel", "Slice", "Split"),
    *("Squeeze", "StridedSlice", "SwapAxis", "Transpose", "Unsqueeze", "Upsample"),
}
# Operators that choose among values if a parameter is zero: no slope, or the largest of a window.
_CHOOSES = {"ReLu": "slope", "Pooling": "kind"}


def translated(structure: Structure, given: Shapes) -> onnx.ModelProto:
    """The network, whose values have the names of the file's tensors; `given` is as for `Format.read`."""
    path = structure.path
    order = _order(structure, _producers(structure))
    for number in order:
        node = structure.nodes[number]
        if node.operator not in CONVERTERS.keys() | {"InputOp", "Const"}:
            raise ModelError(
                f"{path}: operator {node.operator} is not supported",
                why=f"node {node.name!r} needs it",
                hints=["build from the network that it was converted from, or cut the network before this node"],
            )
    graph = TengineGraph(structure)
    for index, value in _inputs(structure, graph, given).items():
        graph.values[index] = graph.rounded(value, structure.tensors[index])
    for number in order:
        node = structure.nodes[number]
        if node.operator in ("InputOp", "Const"):
            continue
        names = graph.begin_node(node)
        try:
            written = CONVERTERS[node.operator](graph)
        except ModelError as error:
            raise ModelError(f"{path}: {node.operator} {node.name!r} cannot be imported", why=error.cause) from error
        written = [written] if isinstance(written, Value) else list(written)
        if len(written) != node.outputs.size:
            raise _unsound(structure, f"node {node.name!r} has {node.outputs.size} outputs, not {len(written)}")
        for index, value in zip(node.outputs.tolist(), graph.finish(written, names), strict=True):
            tensor = structure.tensors[index]
            exact = tensor.quantisation is not None and _has_steps(structure, node, tensor.quantisation)
            graph.values[index] = value if exact else graph.rounded(value, tensor)
    return graph.model(_outputs(structure, graph))


def _has_steps(structure: Structure, node: Node, steps: Quantisation) -> bool:
    """Whether a node moves values or chooses among them, and its inputs are integers of these steps."""
    sources = [structure.tensors[index].quantisation for index in node.inputs.tolist()]
    moves = node.operator in _MOVES or node.parameters.get(_CHOOSES.get(node.operator, ""), 1) == 0
    return moves and all(
        each is not None and each.scale == steps.scale and each.zero_point == steps.zero_point for each in sources
    )


def _outputs(structure: Structure, graph: TengineGraph) -> list[Value]:
    """The network's outputs, in the file's order, by the names of their tensors."""
    inputs = set(_written_by(structure, structure.inputs))
    indices = dict.fromkeys(_written_by(structure, structure.outputs))
    for index in indices:
        if index not in graph.values or index in inputs:
            raise _unsound(structure, f"its output {structure.tensors[index].name!r} is not computed")
    # Operators without effect, such as Dropout, have left their input's name.
    return [graph.named(graph.values[index], structure.tensors[index].name) for index in indices]


def _written_by(structure: Structure, nodes: np.ndarray) -> list[int]:
    return [index for number in nodes.tolist() for index in structure.nodes[number].outputs.tolist()]


def _producers(structure: Structure) -> dict[int, int]:
    """The number of the node that outputs each tensor."""
    producers: dict[int, int] = {}
    for number, node in enumerate(structure.nodes):
        for index in node.outputs.tolist():
            if producers.setdefault(index, number) != number:
                raise _unsound(structure, f"tensor {structure.tensors[index].name!r} comes from two nodes")
    return producers


def _order(structure: Structure, producers: dict[int, int]) -> list[int]:
    """The numbers of the nodes that the outputs need, each after those whose outputs it reads."""
    if not structure.outputs.size:
        raise _unsound(structure, "it has no outputs")
    needs: dict[int, list[int]] = {}
    waiting = structure.outputs.tolist()
    while waiting:
        number = waiting.pop()
        if number in needs:
            continue
        needs[number] = []
        node = structure.nodes[number]
        if not node.outputs.size:
            raise _unsound(structure, f"node {node.name!r} has no outputs")
        for index in node.inputs.tolist():
            if structure.tensors[index].values is not None:
                continue
            if index not in producers or structure.nodes[producers[index]].operator == "Const":
                raise _unsound(structure, f"tensor {structure.tensors[index].name!r} comes from nowhere")
            needs[number].append(producers[index])
        waiting += needs[number]
    try:
        return list(graphlib.TopologicalSorter(dict(sorted(needs.items()))).static_order())
    except graphlib.CycleError as error:
        name = structure.nodes[error.args[1][0]].name
        raise _unsound(structure, f"node {name!r} needs its own output") from error


def _inputs(structure: Structure, graph: TengineGraph, given: Shapes) -> dict[int, Value]:
    stated = set(structure.inputs.tolist())
    if {number for number, node in enumerate(structure.nodes) if node.operator == "InputOp"} != stated or not stated:
        raise _unsound(structure, "its inputs are not those that it lists")
    indices = list(dict.fromkeys(_written_by(structure, structure.inputs)))
    names = [structure.tensors[index].name for index in indices]
    if len(set(names)) < len(names):
        raise _unsound(structure, "two inputs have the same name")
    check_given_shapes(structure.path, given, names)
    return {
        index: graph.input(name, _shape(structure, name, structure.tensors[index].shape, given.get(name)))
        for index, name in zip(indices, names, strict=True)
    }


def _shape(
    structure: Structure, name: str, stated: tuple[int, ...] | None, given: Sequence[int] | None
) -> tuple[int, ...]:
    """The shape of an input: as given, or as stated.

    Darknet's cfg files state the batch of the training; a network from there takes one image.
    """
    path = structure.path
    if stated is not None and structure.from_darknet:
        stated = (1, *stated[1:])
    if given is None:
        if stated is None:
            raise OpenShapeError(
                f"{path} does not state the shape of its input {name!r}",
                input=name,
                hints=[f"give it a shape: --input-shape {name}:1,3,224,224"],
            )
        return stated
    fits = stated is None or len(stated) == len(given)
    if not fits or len(given) > MOST_DIMENSIONS:
        says = f", the network states {','.join(map(str, stated))}" if stated else ""
        raise unfit_shape(path, name, given, says)
    return tuple(given)


def _unsound(structure: Structure, why: str) -> ModelError:
    return ModelError(f"{structure.path} is damaged", why=why, hints=["convert the network again"])
