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
from edgedeploy.frontends.binary import read_bytes
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Format, ImportOptions, Shapes
from edgedeploy.frontends.importing import check_shapes, importing, require_packages, specifications
from edgedeploy.frontends.tflite_reference import reference
from edgedeploy.frontends.tflite_tail import cut, with_real_heads
from edgedeploy.network import CutOff, Network
from edgedeploy.tail.evaluation import Tail
from edgedeploy.tensors import TensorSpec

if TYPE_CHECKING:
    from edgedeploy.frontends.tflite_quantised import Quantisation

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
        """Whether its identifier is there."""
        return head[4:8] == _IDENTIFIER

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`. Shapes are those of the file: none can be replaced."""
        path = files[0]
        require_packages(path, self.packages, "build")
        content = read_bytes(path)
        with importing(path, _HINTS):
            content, cut_off = _divided(content)
            module, inputs, outputs = _imported(content)
            ways = _quantisations(content)
        given, returned = (_with_steps(specs, ways) for specs in specifications(path, module["main"], inputs, outputs))
        check_shapes(path, given, shapes)
        name = f"LiteRT {version('ai-edge-litert')}"
        others = reference(content, inputs, outputs, delegates=False)
        return Network(
            path,
            module,
            given,
            returned,
            bool(ways),
            reference(content, inputs, outputs),
            name,
            other_kernels=others,
            other_kernels_name="LiteRT without XNNPACK",
            cut_off=cut_off,
        )


FORMAT = TfLite()


def _imported(content: bytes) -> tuple[Any, list[str], list[str]]:
    """The network as a Relax module on NCHW feature maps, and the names of its inputs and outputs."""
    from edgedeploy.compile.passes.constants import bounded
    from edgedeploy.frontends.nchw import in_nchw
    from edgedeploy.frontends.tflite_importer import import_model

    with _reading():
        model, inputs, outputs = _checked(content)
    return in_nchw(bounded(import_model(model))), inputs, outputs


def _quantisations(content: bytes) -> dict[str, Quantisation]:
    """By tensor, how quantised ones are."""
    import tflite

    from edgedeploy.frontends.tflite_quantised import Quantisation

    graph = tflite.Model.GetRootAs(content, 0).Subgraphs(0)
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    return {_name(tensor): way for tensor in tensors if (way := Quantisation.of(tensor)) is not None}


def _with_steps(specs: Sequence[TensorSpec], ways: Mapping[str, Quantisation]) -> list[TensorSpec]:
    """Inputs or outputs, quantised ones with what their integers stand for."""
    return [
        spec.model_copy(update={"steps": way.steps})
        if (way := ways.get(spec.name)) and way.dtype == spec.dtype
        else spec
        for spec in specs
    ]


def _divided(content: bytes) -> tuple[bytes, CutOff | None]:
    """What is compiled of a file, and its tail if it has one."""
    with _reading():
        _, inputs, outputs = _checked(content)
        parts = cut(with_real_heads(content))
    if parts is None:
        return content, None
    whole = reference(content, inputs, outputs)
    return parts.head, CutOff(Tail(parts.tail, parts.outputs), lambda tensors: parts.cleared(whole(tensors)))


@contextmanager
def _reading() -> Iterator[None]:
    """What a damaged file makes of its reader becomes an error of ours."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        raise ModelError("it is not complete", why=last_line(error)) from error


def _checked(content: bytes) -> tuple[Any, list[str], list[str]]:
    """The model, and the names of its inputs and outputs, after all that it claims was held against its size."""
    import tflite

    model = tflite.Model.GetRootAs(content, 0)
    if not 0 < model.SubgraphsLength() <= _most(content) or not 0 < model.OperatorCodesLength() <= _most(content):
        raise ModelError("it holds no network")
    graph = model.Subgraphs(0)
    tensors = _tensors(content, graph)
    _check_operators(content, model, graph, len(tensors))
    inputs, outputs = (_names(tensors, indices) for indices in (graph.InputsAsNumpy(), graph.OutputsAsNumpy()))
    return model, inputs, outputs


def _most(content: bytes) -> int:
    """How many entries a vector of the file can have: each takes four bytes at least."""
    return len(content) // 4


def _tensors(content: bytes, graph: Any) -> list[Any]:
    """The tensors of a graph, whose shapes make sense."""
    if graph.TensorsLength() > _most(content):
        raise ModelError("it is not complete", why=f"it claims {graph.TensorsLength():,} tensors")
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    for tensor in tensors:
        if tensor.ShapeLength() > _most(content):
            raise ModelError("it is not complete", why=f"a tensor claims {tensor.ShapeLength():,} dimensions")
        shape = [int(tensor.Shape(axis)) for axis in range(tensor.ShapeLength())]
        if min(shape, default=1) < 1 or np.prod(shape, dtype=np.float64) > _LARGEST:
            raise ModelError(f"tensor {_name(tensor)!r} has an impossible shape", why=",".join(map(str, shape)))
    return tensors


def _check_operators(content: bytes, model: Any, graph: Any, tensors: int) -> None:
    """Refuse operators that read or write what is not there, or read what no operator before them wrote."""
    if graph.OperatorsLength() > _most(content):
        raise ModelError("it is not complete", why=f"it claims {graph.OperatorsLength():,} operators")
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        places = [*np.atleast_1d(operator.InputsAsNumpy()), *np.atleast_1d(operator.OutputsAsNumpy())]
        if any(not -1 <= place < tensors for place in places):
            raise ModelError(f"operator {index} is malformed", why="it names a tensor that is not there")
        if operator.OpcodeIndex() >= model.OperatorCodesLength():
            raise ModelError(f"operator {index} is malformed", why="it names a kind that is not there")


def _names(tensors: Sequence[Any], indices: Any) -> list[str]:
    if not isinstance(indices, np.ndarray) or not all(0 <= index < len(tensors) for index in indices):
        raise ModelError("it is malformed", why="its inputs or outputs are not there")
    return [_name(tensors[index]) for index in indices]


def _name(tensor: Any) -> str:
    name = tensor.Name()
    return name.decode(errors="replace") if name else ""
