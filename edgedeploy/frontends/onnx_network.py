"""A model in ONNX's terms as a network: imported through TVM's own importer, with onnxruntime for reference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgedeploy.errors import ModelError
from edgedeploy.frontends.format import Converted
from edgedeploy.frontends.importing import importing, specifications
from edgedeploy.frontends.onnx_settings import with_values
from edgedeploy.network import CutOff, Network, Reference
from edgedeploy.onnxruntime_session import cpu_session
from edgedeploy.tail.evaluation import Tail
from edgedeploy.tensors import TensorSpec

# Whatever a network is quantised by, what is left of it when it is folded.
_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger"}

# The other kernels of a quantised network.
_NUDGED = "onnxruntime in float with some weights one bit larger"


def network_of(path: Path, converted: Converted) -> Network:
    """Import a model whose inputs have fixed shapes.

    Args:
        path: the file that it comes from.
        converted: the model.

    Raises:
        ModelError: it holds something that cannot be imported.
    """
    model = converted.model
    from edgedeploy.frontends.onnx_folding import folded
    from edgedeploy.frontends.onnx_importer import import_model
    from edgedeploy.frontends.onnx_nudged import with_nudged_weights

    values = converted.values
    stated = converted.stated or model
    serialised = stated.SerializeToString()
    reference = _reference(serialised, values)
    model = with_values(model, values)
    inputs = [value.name for value in model.graph.input]
    with importing(path, ["check the file with onnx.checker.check_model, and simplify it with its exporter's options"]):
        model, cut_off = _divided(path, folded(model), serialised, reference)
        module = import_model(model)
        quantised = any(node.op_type in _QUANTISED for node in model.graph.node)
    if cut_off:
        stated, serialised, values = model, model.SerializeToString(), {}
        reference = _reference(serialised, values)
    others = with_nudged_weights(stated).SerializeToString() if quantised else serialised
    given, returned = specifications(path, module["main"], inputs, [value.name for value in model.graph.output])
    name = f"onnxruntime {version('onnxruntime')}"
    return Network(
        path,
        module,
        given,
        returned,
        quantised,
        reference,
        name,
        converted.heads,
        _reference(others, values, optimised=quantised, floats=quantised),
        _NUDGED if quantised else "onnxruntime without graph optimisation",
        second_opinion=_by_definition(serialised, values),
        second_opinion_name=f"the reference evaluator of onnx {version('onnx')}",
        metadata=converted.metadata,
        cut_off=cut_off,
    )


def _divided(
    path: Path, model: onnx.ModelProto, serialised: bytes, reference: Reference
) -> tuple[onnx.ModelProto, CutOff | None]:
    """What is compiled of a folded model, and its tail if it has one."""
    from edgedeploy.frontends.onnx_tail import cut

    parts = cut(model)
    if parts is None:
        return model, None
    outputs = _open_specifications(path, model, serialised)
    return parts.head, CutOff(Tail(parts.tail, outputs), reference)


def _open_specifications(path: Path, model: onnx.ModelProto, serialised: bytes) -> list[TensorSpec]:
    """The outputs of a network with a tail, as far as onnxruntime says their shapes; -1 is what the data decide."""
    said = {output.name: output.shape for output in cpu_session(serialised).get_outputs()}
    specs = []
    for value in model.graph.output:
        tensor = value.type.tensor_type
        if not said[value.name] and not (tensor.HasField("shape") and not tensor.shape.dim):
            raise ModelError(
                f"the number of dimensions of output {value.name!r} is not known",
                why="it depends on the input's values, and the file does not state it",
                hints=["export it with shapes of its outputs"],
            )
        sizes = [size if isinstance(size, int) and size >= 0 else -1 for size in said[value.name]]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        specs.append(TensorSpec(name=value.name, shape=sizes, dtype=dtype))
    return specs


def _reference(model: bytes, values: Mapping[str, np.ndarray], **kernels: Any) -> Reference:
    """One inference by onnxruntime, whose session is made for the first one; inputs that are fixed are given each time.

    Which kernels compute is `cpu_session`'s to choose: those of optimised graphs work on blocks of channels, for layers
    in float. A quantised network's layers are in float there if they are to be.
    """

    @cache
    def opened() -> Any:
        return cpu_session(model, **kernels)

    def run(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = opened()
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, {**tensors, **values}), strict=True))

    return run


def _by_definition(model: bytes, values: Mapping[str, np.ndarray]) -> Reference:
    """As `_reference`, by ONNX's own evaluator, which computes what the operators' definitions say, slowly."""

    def run(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(onnx.load_model_from_string(model))
        with np.errstate(all="ignore"):
            computed = evaluator.run(None, {**tensors, **values})
        return dict(zip(evaluator.output_names, map(np.asarray, computed), strict=True))

    return run
