"""A drawing of a network's layers, made by Graphviz."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx import helper

from edgedeploy.errors import InputError, ModelError, ToolchainError, UnsupportedError, last_line
from edgedeploy.files import replacing
from edgedeploy.frontends.format import ConvertedFormat
from edgedeploy.frontends.onnx_inputs import with_own_inputs
from edgedeploy.zoo.grouping import DrawnNode, grouped
from edgedeploy.zoo.source import Source

# What files of these names hold; DOT is Graphviz's own language, and needs no Graphviz.
_KINDS = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot"}

# Graphviz needs seconds for the largest networks of the zoo.
_SECONDS = 300

# Attributes of operators that say more than their name, and how they are written.
_ATTRIBUTES = {"kernel_shape": "", "strides": "stride ", "dilations": "dilation ", "group": "groups ", "axis": "axis "}

# Whose constants say how it is done.
_WITHOUT_PARAMETERS = {"Clip", "Pad", "Resize", "Upsample"}

_PLAIN = {"stride 1x1", "dilation 1x1", "groups 1"}

_COLOURS = {"Conv": "#cfe2ff", "ConvTranspose": "#cfe2ff", "Gemm": "#cfe2ff", "MatMul": "#cfe2ff", "": "#e8e8e8"}


class Drawn(NamedTuple):
    """What was drawn: how many layers, and in how many boxes."""

    layers: int
    boxes: int


def layers(source: Source) -> list[DrawnNode]:
    """The layers of a network in the order in which they run, its inputs first and its outputs last.

    Raises:
        UnsupportedError: the network's format has no form that can be drawn.
        ModelError: its files cannot be read.
    """
    if not isinstance(source.format, ConvertedFormat):
        raise UnsupportedError(f"{source.format.name} networks cannot be drawn", why="they have no form as ONNX here")
    model = with_own_inputs(source.format.convert(source.files, source.shapes, source.options))
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception as error:
        raise ModelError(f"the shapes of {source.file} cannot be told", why=last_line(error)) from error
    shapes = {value.name: _shape(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    # Shapes, places and bounds are written as constants too.
    numbers = {weight.name for weight in graph.initializer if weight.data_type == onnx.TensorProto.INT64}
    found = [DrawnNode(value.name, "", (), (value.name,), shapes[value.name]) for value in graph.input]
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        found.append(
            DrawnNode(
                node.name or node.output[0],
                node.op_type,
                tuple(name for name in node.input if name and name not in weights),
                tuple(node.output),
                shapes.get(node.output[0]),
                sum(
                    math.prod(weights[name])
                    for name in node.input
                    if name in weights and name not in numbers and node.op_type not in _WITHOUT_PARAMETERS
                ),
                _details(node, weights.get(node.input[1], ()) if len(node.input) > 1 else ()),
            )
        )
    found += [DrawnNode(value.name, "", (value.name,), (), shapes[value.name]) for value in graph.output]
    return found


def draw(source: Source, path: Path) -> Drawn:
    """Draw a network's layers, `grouped`, into a file, of the kind that its name ends with.

    Raises:
        InputError: there is no such kind.
        ToolchainError: Graphviz is not installed, or fails.
        OutputError: the file cannot be written.
        UnsupportedError, ModelError: as `layers`.
    """
    kind = _KINDS.get(path.suffix)
    if kind is None:
        raise InputError(f"cannot draw {path}", why=f"its name ends with none of {', '.join(_KINDS)}")
    program = shutil.which("dot")
    if program is None and kind != "dot":
        raise ToolchainError(
            "there is no program 'dot'",
            why="Graphviz draws the network",
            hints=["install Graphviz (on Debian: apt install graphviz)", "write Graphviz's language: --graph net.dot"],
        )
    found = layers(source)
    boxes = grouped(found)
    drawn = Drawn(len(found), len(boxes))
    text = "\n".join(_dot(source.name, boxes)) + "\n"
    with replacing(path) as temporary:
        if kind == "dot":
            temporary.write_text(text, encoding="utf-8")
            return drawn
        command = [str(program), f"-T{kind}", "-o", str(temporary)]
        try:
            done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise ToolchainError(f"Graphviz did not draw {path} within {_SECONDS} seconds") from error
        if done.returncode:
            raise ToolchainError(f"Graphviz cannot draw {path}", why=done.stderr.strip() or f"exit {done.returncode}")
    return drawn


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    kind = value.type.tensor_type
    return tuple(dimension.dim_value for dimension in kind.shape.dim) if kind.HasField("shape") else None


def _details(node: onnx.NodeProto, weights: tuple[int, ...]) -> str:
    """What sets a node apart; a convolution's kernel may be stated by its weights' shape alone."""
    said = []
    if node.op_type.startswith("Conv") and not any(attribute.name == "kernel_shape" for attribute in node.attribute):
        said.append("x".join(map(str, weights[2:])))
    for attribute in node.attribute:
        prefix = _ATTRIBUTES.get(attribute.name)
        if prefix is None:
            continue
        value = helper.get_attribute_value(attribute)
        if attribute.name == "group" and value > 1 and weights[1:2] == (1,):
            said.append("depthwise")
            continue
        text = prefix + ("x".join(map(str, value)) if isinstance(value, list) else str(value))
        if text not in _PLAIN:
            said.append(text)
    return ", ".join(filter(None, said))


def _dot(name: str, found: list[DrawnNode]) -> Iterator[str]:
    """The drawing in Graphviz's language."""
    yield f"digraph {_quoted(name)} {{"
    # As large as paper of A4, at most.
    yield '  graph [size="7.7,11.1", ranksep=0.22, nodesep=0.15]'
    yield '  node [shape=box, style="rounded,filled", margin="0.08,0.03", height=0.1, fillcolor="#ffffff"]'
    yield '  node [fontname="sans-serif", fontsize=10]'
    yield '  edge [fontname="sans-serif", fontsize=8, color="#606060"]'
    writers = {value: index for index, layer in enumerate(found) for value in layer.writes}
    for index, layer in enumerate(found):
        lines = [f"{layer.times} times:"] if layer.times > 1 else []
        lines += layer.block or [layer.title or layer.name]
        parameters = f"{layer.parameters:,} parameters" if layer.parameters else ""
        lines.append(", ".join(filter(None, [_shape_text(layer.shape), parameters])))
        colour = _COLOURS.get(layer.operator.partition(" ")[0], "#ffffff")
        label, name = _quoted(*filter(None, lines)), _quoted(layer.name)
        yield f"  {index} [label={label}, tooltip={name}, fillcolor={_quoted(colour)}]"
        for value in dict.fromkeys(layer.reads):
            if value in writers:
                yield f"  {writers[value]} -> {index}"
    yield "}"


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "x".join(str(size or "?") for size in shape) if shape is not None else ""


def _quoted(*lines: str) -> str:
    """Lines as one of Graphviz's strings: a network's names may hold anything."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\0", "") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
