"""A drawing of a network's layers, made by Graphviz."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from onnx import helper

from edgedeploy.base.files import replacing
from edgedeploy.errors import InputError, ModelError, ToolchainError, UnsupportedError, last_line
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.onnx.inputs import with_own_inputs
from edgedeploy.zoo.source import Source

# Operators with a box of their own, and those that join it if nothing else reads the value between them.
_LEADING = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_FOLLOWING = {
    *("BatchNormalization", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"),
    *("Elu", "Selu", "Celu", "Softplus", "Mish", "Gelu"),
}

_LONGEST_BLOCK = 12  # layers of a repeated block


@dataclass(frozen=True)
class DrawnNode:
    """One box: a node of a network, or several."""

    name: str
    operator: str  # ONNX's name; "" for an input or output of the network. Several are joined by ` + `.
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    shape: tuple[int, ...] | None  # of its first output; None if unknown
    parameters: int = 0
    details: str = ""  # such as `3x3, stride 2x2`
    block: tuple[str, ...] = ()  # the title of each layer of a repeated block
    times: int = 1  # how often the block is repeated

    @property
    def title(self) -> str:
        """Its operators and details."""
        return f"{self.operator} {self.details}".strip()


def grouped(layers: Sequence[DrawnNode]) -> list[DrawnNode]:
    """Layers in fewer boxes, in an order in which they run.

    A convolution or product shares a box with the normalisation and the activation after it. A chain of boxes that
    repeats itself, with any shapes, becomes one box.
    """
    boxes = _merged(list(layers))
    found, done = [], set[int]()
    readers = _readers(boxes)
    for start, box in enumerate(boxes):
        if start not in done:
            chain = _chain(boxes, start, readers)
            done.update(chain)
            found += _folded([boxes[place] for place in chain]) if box.operator else [box]
    return found


def _readers(boxes: Sequence[DrawnNode]) -> dict[str, list[int]]:
    """By name of a value, the indices of the boxes that read it."""
    found: dict[str, list[int]] = {}
    for place, box in enumerate(boxes):
        for value in dict.fromkeys(box.reads):
            found.setdefault(value, []).append(place)
    return found


def _merged(layers: list[DrawnNode]) -> list[DrawnNode]:
    """Layers with the operators that join them."""
    readers, gone = _readers(layers), set[int]()
    found = []
    for start, layer in enumerate(layers):
        if start in gone:
            continue
        box = layer
        while layer.operator in _LEADING and (followed := _follower(layers, box.writes, readers)):
            name, places = followed
            gone.update(places)
            parameters = box.parameters + sum(layers[place].parameters for place in places)
            last, operator = layers[places[-1]], f"{box.operator} + {name}"
            box = replace(box, operator=operator, writes=last.writes, shape=last.shape, parameters=parameters)
        found.append(box)
    return found


def _follower(
    layers: Sequence[DrawnNode], values: Sequence[str], readers: dict[str, list[int]]
) -> tuple[str, list[int]] | None:
    """The operator that joins the box with these outputs: its name and its indices, if any."""
    places = readers.get(values[0], []) if len(values) == 1 else []
    operators, reads = [layers[place].operator for place in places], [set(layers[place].reads) for place in places]
    if len(places) == 1 and operators[0] in _FOLLOWING and reads[0] == set(values):
        return operators[0], places
    if operators == ["Sigmoid", "Mul"] and reads[1] == {*values, *layers[places[0]].writes}:
        return ("SiLU", places) if readers[layers[places[0]].writes[0]] == places[1:] else None
    return None


def _chain(boxes: Sequence[DrawnNode], start: int, readers: dict[str, list[int]]) -> list[int]:
    """A box and those that follow it one by one, without the network's outputs: each alone reads the one before it."""
    chain = [start]
    while boxes[start].operator and len(writes := boxes[chain[-1]].writes) == 1:
        places = readers.get(writes[0], [])
        if len(places) != 1 or not boxes[places[0]].operator or set(boxes[places[0]].reads) != set(writes):
            break
        chain += places
    return chain


def _folded(chain: Sequence[DrawnNode]) -> list[DrawnNode]:
    """A chain with one box for each repeated block."""
    titles, found, place = [box.title for box in chain], list[DrawnNode](), 0
    while place < len(chain):
        length, times = _repetition(titles[place:])
        part = chain[place : place + length * times]
        found.append(_block(part, length, times) if times > 1 else part[0])
        place += length * times if times > 1 else 1
    return found


def _repetition(titles: Sequence[str]) -> tuple[int, int]:
    """The length of the block that begins here, and how often it is repeated, to cover the most layers."""
    best = 1, 1
    for length in range(1, min(_LONGEST_BLOCK, len(titles) // 2) + 1):
        times = 1
        while titles[times * length : (times + 1) * length] == titles[:length]:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best


def _block(part: Sequence[DrawnNode], length: int, times: int) -> DrawnNode:
    first, last = part[0], part[-1]
    name, operator = f"{first.name} to {last.name}", Counter(box.operator for box in part).most_common(1)[0][0]
    parameters, titles = sum(box.parameters for box in part), tuple(box.title for box in part[:length])
    return DrawnNode(name, operator, first.reads, last.writes, last.shape, parameters, block=titles, times=times)


# Kinds of files by suffix; DOT is Graphviz's own language, and needs no Graphviz.
_KINDS = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot"}

_SECONDS = 300  # Graphviz needs seconds for the largest networks of the zoo

# Attributes in details, and their prefixes.
_ATTRIBUTES = {"kernel_shape": "", "strides": "stride ", "dilations": "dilation ", "group": "groups ", "axis": "axis "}

# Operators whose constants are settings.
_WITHOUT_PARAMETERS = {"Clip", "Pad", "Resize", "Upsample"}

_PLAIN = {"stride 1x1", "dilation 1x1", "groups 1"}

_COLOURS = dict.fromkeys(_LEADING, "#cfe2ff") | {"": "#e8e8e8"}


def layers(source: Source) -> list[DrawnNode]:
    """The layers of a network in the order in which they run, its inputs first and its outputs last."""
    if not isinstance(source.format, ConvertedFormat):
        raise UnsupportedError(f"{source.format.name} networks cannot be drawn", why="they have no form as ONNX here")
    model = with_own_inputs(source.format.convert(source.files, source.shapes, source.options))
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception as error:
        raise ModelError(f"the shapes of {source.file} cannot be inferred", why=last_line(error)) from error
    shapes = {value.name: _shape(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    # Shapes, places and bounds are written as constants too.
    learned = {
        each.name: math.prod(each.dims) for each in graph.initializer if each.data_type != onnx.TensorProto.INT64
    }
    found = [DrawnNode(value.name, "", (), (value.name,), shapes[value.name]) for value in graph.input]
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        counted = () if node.op_type in _WITHOUT_PARAMETERS else node.input
        name, shape = node.name or node.output[0], shapes.get(node.output[0])
        reads = tuple(each for each in node.input if each and each not in weights)
        parameters = sum(learned.get(each, 0) for each in counted)
        details = _details(node, weights.get(node.input[1], ()) if len(node.input) > 1 else ())
        found.append(DrawnNode(name, node.op_type, reads, tuple(node.output), shape, parameters, details))
    found += [DrawnNode(value.name, "", (value.name,), (), shapes[value.name]) for value in graph.output]
    return found


def draw(source: Source, path: Path) -> tuple[int, int]:
    """Draw a network's layers, `grouped`, into a file of the kind of its suffix; the numbers of layers and of boxes."""
    kind = _KINDS.get(path.suffix)
    if kind is None:
        raise InputError(f"cannot draw {path}", why=f"its name ends with none of {', '.join(_KINDS)}")
    program = shutil.which("dot")
    if program is None and kind != "dot":
        raise ToolchainError(
            "the program 'dot' is not installed",
            why="Graphviz draws the network",
            hints=["install Graphviz (on Debian: apt install graphviz)", "write Graphviz's language: --graph net.dot"],
        )
    found = layers(source)
    boxes = grouped(found)
    text = "\n".join(_dot(source.name, boxes)) + "\n"
    with replacing(path) as temporary:
        if kind == "dot":
            temporary.write_text(text, encoding="utf-8")
            return len(found), len(boxes)
        command = [str(program), f"-T{kind}", "-o", str(temporary)]
        try:
            done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise ToolchainError(f"Graphviz did not draw {path} within {_SECONDS} seconds") from error
        if done.returncode:
            raise ToolchainError(f"Graphviz cannot draw {path}", why=done.stderr.strip() or f"exit {done.returncode}")
    return len(found), len(boxes)


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    kind = value.type.tensor_type
    return tuple(dimension.dim_value for dimension in kind.shape.dim) if kind.HasField("shape") else None


def _details(node: onnx.NodeProto, weights: tuple[int, ...]) -> str:
    """The details of a node; a convolution's kernel may be stated by its weights' shape alone."""
    details = []
    if node.op_type.startswith("Conv") and not any(attribute.name == "kernel_shape" for attribute in node.attribute):
        details.append("x".join(map(str, weights[2:])))
    for attribute in node.attribute:
        prefix = _ATTRIBUTES.get(attribute.name)
        if prefix is None:
            continue
        value = helper.get_attribute_value(attribute)
        if attribute.name == "group" and value > 1 and weights[1:2] == (1,):
            details.append("depthwise")
            continue
        text = prefix + ("x".join(map(str, value)) if isinstance(value, list) else str(value))
        if text not in _PLAIN:
            details.append(text)
    return ", ".join(filter(None, details))


def _dot(name: str, found: list[DrawnNode]) -> Iterator[str]:
    yield f"digraph {_quoted(name)} {{"
    # At most the size of A4 paper.
    yield '  graph [size="7.7,11.1", ranksep=0.22, nodesep=0.15]'
    yield '  node [shape=box, style="rounded,filled", margin="0.08,0.03", height=0.1, fillcolor="#ffffff"]'
    yield '  node [fontname="sans-serif", fontsize=10]'
    yield '  edge [fontname="sans-serif", fontsize=8, color="#606060"]'
    writers = {value: index for index, layer in enumerate(found) for value in layer.writes}
    for index, layer in enumerate(found):
        lines = [f"{layer.times} times:"] if layer.times > 1 else []
        lines += layer.block or [layer.title or layer.name]
        parameters = f"{layer.parameters:,} parameters" if layer.parameters else ""
        shape = "x".join(str(size or "?") for size in layer.shape or ())
        lines.append(", ".join(filter(None, [shape, parameters])))
        colour = _COLOURS.get(layer.operator.partition(" ")[0], "#ffffff")
        label, name = _quoted(*filter(None, lines)), _quoted(layer.name)
        yield f"  {index} [label={label}, tooltip={name}, fillcolor={_quoted(colour)}]"
        for value in dict.fromkeys(layer.reads):
            if value in writers:
                yield f"  {writers[value]} -> {index}"
    yield "}"


def _quoted(*lines: str) -> str:
    """Lines as a string of Graphviz: names of networks may contain any characters."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\0", "") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
