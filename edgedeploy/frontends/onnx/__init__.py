"""The ONNX frontend: reads a file, fixes its shapes, and imports it through TVM's own importer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, numpy_helper

from edgedeploy.base.files import is_file
from edgedeploy.errors import ModelError
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, HEAD_BYTES, Converted, ImportOptions, Shapes
from edgedeploy.frontends.onnx.inputs import fix_shapes, fixed_values, own_sizes, with_values
from edgedeploy.frontends.onnx.nodes import NodeBuilder, Writer, opset_of, part_of, rewrite
from edgedeploy.model.heads import loaded
from edgedeploy.model.metadata import kept
from edgedeploy.model.network import Network

# Fields of ModelProto (onnx.proto) by number, with the wire type of each: 0 is a number, 2 is bytes of a length.
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_VERSION, _GRAPH = 1, 7
_GRAPH_FIELDS = {1, 2, 5, 10, 11, 12, 13, 14, 15, 16}  # fields of GraphProto, all of them bytes of a length


class Onnx(ConvertedFormat):
    """ONNX itself: one file, perhaps with others for large weights."""

    name = "ONNX"
    suffixes = (".onnx",)
    sets_inputs = True

    def recognises(self, head: bytes) -> bool:
        """Whether the fields are those of ModelProto up to the first of the graph's own, as far as `head` goes."""
        place, versioned = 0, False
        while place < len(head):
            tag, place = _number(head, place)
            field, wire = tag >> 3, tag & 7
            if _FIELDS.get(field) != wire:
                return False
            value, place = _number(head, place)
            if field == _GRAPH:
                inner, _ = _number(head, place)
                return value > 0 and inner & 7 == 2 and inner >> 3 in _GRAPH_FIELDS
            versioned |= field == _VERSION
            place += value if wire else 0
        # A field before the graph, such as a licence in doc_string, may be longer than the head.
        return versioned and place > len(head) == HEAD_BYTES

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """The file, and those with external weights that exist; `convert` reports missing ones."""
        return [path, *(file for file in _external(path) if is_file(file))]

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The model with fixed shapes and without habits of old exporters."""
        path, model = files[0], _load(files[0])
        values, metadata = fixed_values(path, model.graph, options.values, shapes), _metadata(model)
        shapes = {**shapes, **{name: array.shape for name, array in values.items()}}
        if options.lengths:
            from edgedeploy.frontends.onnx.lengths import with_lengths

            model = with_values(fixed(path, model, shapes), values)
            return Converted(with_lengths(path, model, options.lengths), metadata=metadata)
        # onnxruntime infers the shapes of both branches of an `If`, one of which may not suit the shapes of inputs.
        stated = _runnable(deepcopy(model)) if values else None
        return Converted(fixed(path, model, shapes), () if values else loaded(metadata), values, stated, metadata)

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`. Errors name the network's own sizes if others were given."""
        try:
            return super().read(files, shapes, options)
        except ModelError as error:
            for name, axis, size in own_sizes(files[0], shapes):
                given = shapes[name]
                fitting = ",".join(map(str, [*given[:axis], size, *given[axis + 1 :]]))
                hint = f"dimension {axis} of input {name!r} is {size} in the network, and {given[axis]} was given: "
                hints = [f"{hint}--input-shape {name}:{fitting}", *error.hints]
                raise ModelError(error.what, why=error.why, hints=hints) from error
            raise

    def metadata(self, files: Sequence[Path]) -> Mapping[str, str]:
        """Its `metadata_props`."""
        return _metadata(_load(files[0]))


FORMAT = Onnx()


def read_onnx(path: Path, shapes: Shapes | None = None) -> Network:
    """Import the network of an ONNX file; see `Format.read`."""
    return FORMAT.read([path], shapes or {})


def fixed(path: Path, model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    """The model of a file with fixed shapes of inputs, in a form that all programs read; it is changed in place."""
    fix_shapes(path, model.graph, shapes)
    return _runnable(model)


def _runnable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without anything that some programs cannot read; it is changed in place."""
    _keep_one_of_scales_and_sizes(model)
    rewrite(model.graph, lambda node, number: part_of(node, number, {}, _RECURRENT))
    return model


def _number(head: bytes, place: int) -> tuple[int, int]:
    """A protobuf varint, and the place behind it."""
    value = 0
    for shift, byte in enumerate(head[place : place + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + shift + 1
    return value, len(head) + 1


def _external(path: Path) -> list[Path]:
    """The files next to an ONNX file that hold its weights according to it."""
    if b"location" not in path.read_bytes():
        return []
    try:
        model = onnx.load(path, load_external_data=False)
        outside = filter(onnx.external_data_helper.uses_external_data, model.graph.initializer)
        locations = {onnx.external_data_helper.ExternalDataInfo(tensor).location for tensor in outside}
    except (OSError, ValueError, DecodeError):
        return []  # `convert` reports it
    return [path.parent / location for location in sorted(locations)]


def _incomplete(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{path} is not a complete ONNX file",
        why=str(error) or type(error).__name__,
        hints=["check the file's size and checksum; it may be truncated or of another format"],
    )


def _load(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(path)
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}") from error
    except onnx.checker.ValidationError as error:
        missing = [file for file in _external(path) if not is_file(file)]
        if not missing:
            raise _incomplete(path, error) from error
        names = ", ".join(file.name for file in missing)
        raise ModelError(
            f"{path} has no weights",
            why=f"its exporter wrote them into {names} next to it, which is missing",
            hints=[f"put {names} next to it", "export it into one file: torch.onnx.export(..., external_data=False)"],
        ) from error
    except (OSError, ValueError, DecodeError) as error:
        raise _incomplete(path, error) from error
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{path} is not a complete ONNX file", why="it has no nodes or no outputs")
    _widen(model)
    weights = {weight.name for weight in model.graph.initializer}  # old exporters list weights among the inputs
    inputs = [value for value in model.graph.input if value.name not in weights]
    for value in inputs:
        numbers = value.type.WhichOneof("value") == "tensor_type"
        if not numbers or value.type.tensor_type.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            raise ModelError(f"{path}: input {value.name!r} cannot be imported", why="it is not a tensor of numbers")
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def _metadata(model: onnx.ModelProto) -> dict[str, str]:
    return kept((entry.key, entry.value) for entry in model.metadata_props)


def _keep_one_of_scales_and_sizes(model: onnx.ModelProto) -> None:
    """Drop the scales of each Resize that also has sizes, which are exact; TVM refuses both.

    Before opset 13 unused scales are empty and may not be left out, though some exporters do so.
    """
    graph, empty = model.graph, ""
    for node in graph.node:
        if node.op_type != "Resize" or len(node.input) != 4 or not node.input[3]:
            continue
        if opset_of(model) < 13 and not empty:
            empty = "edgedeploy/no scales"
            graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), empty))
        node.input[2] = empty
        node.input[1] = node.input[1] or empty


def _time_first(build: NodeBuilder) -> Sequence[str] | None:
    """A recurrent node of `layout` 1, which onnxruntime 1.31 refuses, with `layout` 0 between transposes."""
    if not build.attributes.pop("layout", 0):
        return None
    inputs = [
        build.add("Transpose", name, perm=[1, 0, 2]) if name and place in (0, 5, 6) else name
        for place, name in enumerate(build.inputs)
    ]  # the data and the initial states
    settings = {name: value for name, value in build.attributes.items() if value != []}
    made = build.several(len(build.outputs), build.operator, *inputs, **settings)
    return [build.add("Transpose", each, perm=[1, 0, 2] if place else [2, 0, 1, 3]) for place, each in enumerate(made)]


_RECURRENT: dict[str, Writer] = dict.fromkeys(("LSTM", "GRU", "RNN"), _time_first)


# Attributes that name a type: of Cast, of EyeLike and random numbers, of DequantizeLinear, of Attention, of norms.
_TYPES = {"to", "dtype", "output_dtype", "softmax_precision", "stash_type"}


def _widen(message: Message) -> None:
    """Replace bfloat16 by float32 in all weights, types and casts of a message of ONNX, which is changed in place.

    bfloat16 is the upper half of float32, so weights keep their values, and results are more exact. numpy has no such
    type, and onnxruntime has few kernels for it on CPUs.
    """
    if isinstance(message, TensorProto):
        if message.data_type == TensorProto.BFLOAT16:
            with suppress(Exception):  # later readers report what is wrong with it
                values = numpy_helper.to_array(message).astype(np.float32)
                message.CopyFrom(numpy_helper.from_array(values, message.name))
        return
    if isinstance(message, onnx.AttributeProto) and message.name in _TYPES and message.i == TensorProto.BFLOAT16:
        message.i = TensorProto.FLOAT
    for field, value in message.ListFields():
        if field.name == "elem_type" and value == TensorProto.BFLOAT16:
            message.elem_type = TensorProto.FLOAT
        if field.message_type:
            for part in [value] if isinstance(value, Message) else value:
                _widen(part)
