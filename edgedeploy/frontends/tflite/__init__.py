"""TensorFlow Lite's files (LiteRT's), in float or quantised: read by TVM's own importer, compared with LiteRT."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Format, ImportOptions, Shapes, check_shapes
from edgedeploy.frontends.importing import importing, read_bytes, require_packages, specifications
from edgedeploy.frontends.tflite.reference import name_of, reference
from edgedeploy.frontends.tflite.tail import cut
from edgedeploy.model.network import CutOff, Network
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import TensorSpec

if TYPE_CHECKING:
    from edgedeploy.frontends.tflite.quantised import Quantisation

# FlatBuffers' file identifier, behind the offset of the root table.
_IDENTIFIER = b"TFL3"

_LARGEST = 2**31 - 1  # elements of a tensor

_HINTS = ["convert the network again with a recent TensorFlow", "or export it to ONNX, with tf2onnx"]


class TfLite(Format):
    """One file, a FlatBuffer of TensorFlow's schema (tensorflow/compiler/mlir/lite/schema/schema.fbs)."""

    name = "TensorFlow Lite"
    suffixes = (".tflite",)
    packages = ("tflite", "ai-edge-litert")

    def recognises(self, head: bytes) -> bool:
        """Whether it has FlatBuffers' identifier."""
        return head[4:8] == _IDENTIFIER

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`. The file fixes its shapes."""
        path = files[0]
        require_packages(path, self.packages, "build")
        from edgedeploy.compile.passes.constants import bounded
        from edgedeploy.frontends.tflite.importer import import_model, in_nchw

        content = read_bytes(path)
        with importing(path, _HINTS):
            content, cut_off = _divided(content)
            with _reading():
                model, inputs, outputs = _checked(content)
            module = in_nchw(bounded(import_model(model)))
            quantisations = _quantisations(content)
        specs = specifications(path, module["main"], inputs, outputs)
        given, returned = (_with_steps(each, quantisations) for each in specs)
        check_shapes(path, given, shapes)
        name = f"LiteRT {version('ai-edge-litert')}"
        others = reference(content, inputs, outputs, delegates=False)
        return Network(
            path,
            module,
            given,
            returned,
            bool(quantisations),
            reference(content, inputs, outputs),
            name,
            other_kernels=others,
            other_kernels_name="LiteRT without XNNPACK",
            cut_off=cut_off,
        )


FORMAT = TfLite()


def _quantisations(content: bytes) -> dict[str, Quantisation]:
    """The quantisation of each quantised tensor."""
    import tflite

    from edgedeploy.frontends.tflite.quantised import Quantisation

    graph = tflite.Model.GetRootAs(content, 0).Subgraphs(0)
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    return {name_of(tensor): found for tensor in tensors if (found := Quantisation.of(tensor)) is not None}


def _with_steps(specs: Sequence[TensorSpec], quantisations: Mapping[str, Quantisation]) -> list[TensorSpec]:
    """Inputs or outputs, with the steps of quantised ones."""
    found = [(spec, quantisations.get(spec.name)) for spec in specs]
    return [
        spec.model_copy(update={"steps": own.steps}) if own and own.dtype == spec.dtype else spec for spec, own in found
    ]


def _divided(content: bytes) -> tuple[bytes, CutOff | None]:
    """The part of a file that is compiled, and its tail if it has one."""
    with _reading():
        _, inputs, outputs = _checked(content)
        parts = cut(content)
    if parts is None:
        return content, None
    whole = reference(content, inputs, outputs)
    return parts.head, CutOff(Tail(parts.tail, parts.outputs), lambda tensors: parts.cleared(whole(tensors)))


@contextmanager
def _reading() -> Iterator[None]:
    """Turns the errors of readers of a damaged file into ours."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        raise ModelError("it is not complete", why=last_line(error)) from error


def _checked(content: bytes) -> tuple[Any, list[str], list[str]]:
    """The model, and the names of its inputs and outputs; all that it claims is checked against its size."""
    import tflite

    most = len(content) // 4  # entries of a vector, each of which takes four bytes at least
    model = tflite.Model.GetRootAs(content, 0)
    if not 0 < model.SubgraphsLength() <= most or not 0 < model.OperatorCodesLength() <= most:
        raise ModelError("it holds no network")
    graph = model.Subgraphs(0)
    for what, count in (("tensors", graph.TensorsLength()), ("operators", graph.OperatorsLength())):
        if count > most:
            raise ModelError("it is not complete", why=f"it claims {count:,} {what}")
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    for tensor in tensors:
        if tensor.ShapeLength() > most:
            raise ModelError("it is not complete", why=f"a tensor claims {tensor.ShapeLength():,} dimensions")
        shape = [int(tensor.Shape(axis)) for axis in range(tensor.ShapeLength())]
        if min(shape, default=1) < 1 or np.prod(shape, dtype=np.float64) > _LARGEST:
            raise ModelError(f"tensor {name_of(tensor)!r} has an impossible shape", why=",".join(map(str, shape)))
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        places = [*np.atleast_1d(operator.InputsAsNumpy()), *np.atleast_1d(operator.OutputsAsNumpy())]
        if any(not -1 <= place < len(tensors) for place in places):
            raise ModelError(f"operator {index} is malformed", why="it names a tensor that is not there")
        if operator.OpcodeIndex() >= model.OperatorCodesLength():
            raise ModelError(f"operator {index} is malformed", why="it names a kind that is not there")
    ends = graph.InputsAsNumpy(), graph.OutputsAsNumpy()
    if any(not isinstance(end, np.ndarray) or not all(0 <= index < len(tensors) for index in end) for end in ends):
        raise ModelError("it is malformed", why="its inputs or outputs are not there")
    inputs, outputs = ([name_of(tensors[index]) for index in end] for end in ends)
    return model, inputs, outputs
