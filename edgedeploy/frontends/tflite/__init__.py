"""TensorFlow Lite's files (LiteRT's), in float or quantised: read by TVM's own importer, compared with LiteRT."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, MOST_ELEMENTS, Format, ImportOptions, Shapes, check_shapes
from edgedeploy.frontends.importing import importing, read_bytes, require_packages, specifications
from edgedeploy.frontends.tflite.reference import inferred, name_of
from edgedeploy.frontends.tflite.tail import cut
from edgedeploy.model.network import CutOff, Network
from edgedeploy.model.tail.program import Tail

_HINTS = ["convert the network again with a recent TensorFlow", "or export it to ONNX, with tf2onnx"]


class TfLite(Format):
    """One file, a FlatBuffer of TensorFlow's schema (tensorflow/compiler/mlir/lite/schema/schema.fbs)."""

    name = "TensorFlow Lite"
    suffixes = (".tflite",)
    packages = ("tflite", "ai-edge-litert")

    def recognises(self, head: bytes) -> bool:
        """Whether it has FlatBuffers' identifier, behind the offset of the root table."""
        return head[4:8] == b"TFL3"

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`. The file fixes its shapes."""
        path = files[0]
        require_packages(path, self.packages, "build")
        from edgedeploy.compile.passes.constants import bounded
        from edgedeploy.frontends.tflite.importer import import_model, in_nchw
        from edgedeploy.frontends.tflite.quantised import quantisations_of, with_steps

        content = read_bytes(path)
        with importing(path, _HINTS):
            content, cut_off = _divided(content)
            model, inputs, outputs = _checked(content)
            module = in_nchw(bounded(import_model(model)))
            quantisations = quantisations_of(content)
        specs = specifications(path, module["main"], inputs, outputs)
        given, returned = (with_steps(each, quantisations) for each in specs)
        check_shapes(path, given, shapes)
        reference = partial(inferred, content, inputs, outputs)
        return Network(
            path,
            module,
            given,
            returned,
            bool(quantisations),
            reference,
            f"LiteRT {version('ai-edge-litert')}",
            other_kernels=[partial(reference, delegates=False)],
            other_kernels_name="LiteRT without XNNPACK",
            cut_off=cut_off,
        )


FORMAT = TfLite()


@contextmanager
def _reading() -> Iterator[None]:
    """Turns the errors of readers of a damaged file into ours."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        raise ModelError("it is not complete", why=last_line(error)) from error


@_reading()
def _divided(content: bytes) -> tuple[bytes, CutOff | None]:
    """The part of a file that is compiled, and its tail if it has one."""
    _, inputs, outputs = _checked(content)
    parts = cut(content)
    if parts is None:
        return content, None
    whole = partial(inferred, content, inputs, outputs)
    return parts.head, CutOff(Tail(parts.tail, parts.outputs), lambda tensors: parts.cleared(whole(tensors)))


@_reading()
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
        if min(shape, default=1) < 1 or np.prod(shape, dtype=np.float64) > MOST_ELEMENTS:
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
