"""A model in ONNX's terms as a network: imported through TVM's own importer, with onnxruntime for reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
from edgedeploy.network import CutOff, Network, OperatorWise, Reference
from edgedeploy.onnxruntime_session import cpu_session
from edgedeploy.tail.program import Tail
from edgedeploy.tensors import TensorSpec

# Whatever a network is quantised by, what is left of it when it is folded.
_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger"}

# Each value of their results is a sum over a filter or a row.
_SUMS = {"Conv", "ConvTranspose", "ConvInteger", "MatMul", "MatMulInteger", "Gemm"}

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
        by_operator=_by_operator(serialised, values),
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


def _by_operator(model: bytes, values: Mapping[str, np.ndarray]) -> OperatorWise:
    """`_reference` and `_by_definition`, of each node by itself but for those that hold graphs of their own."""

    def run(
        tensors: Mapping[str, np.ndarray], most_gflop: float
    ) -> Iterator[tuple[str, list[np.ndarray], list[np.ndarray]]]:
        from onnx.reference import ReferenceEvaluator

        whole = onnx.load_model_from_string(model)
        known = {weight.name: onnx.numpy_helper.to_array(weight) for weight in whole.graph.initializer}
        nodes = [node for node in whole.graph.node if not any(each.HasField("g") for each in node.attribute)]
        names = list(dict.fromkeys(name for node in nodes for name in node.output if name))
        del whole.graph.output[:]
        whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        known |= {**tensors, **values}
        known |= _reference(whole.SerializeToString(), values)(tensors)
        for node in nodes:
            inputs, outputs = list(dict.fromkeys(filter(None, node.input))), list(filter(None, node.output))
            if not known.keys() >= {*inputs, *outputs} or _gflop(node, known) > most_gflop:
                continue
            taken, made = ([onnx.ValueInfoProto(name=name) for name in each] for each in (inputs, outputs))
            alone = onnx.helper.make_model(
                onnx.helper.make_graph([node], "alone", taken, made),
                opset_imports=whole.opset_import,
                functions=whole.functions,
            )
            try:
                with np.errstate(all="ignore"):
                    found = ReferenceEvaluator(alone).run(None, {name: known[name] for name in inputs})
            except Exception:  # whatever it raises for what it does not know
                continue
            title = f"operator {node.op_type} of node {node.name or outputs[0]!r}"
            yield title, [known[name] for name in outputs], list(map(np.asarray, found))

    return run


def _gflop(node: onnx.NodeProto, known: Mapping[str, np.ndarray]) -> float:
    """The arithmetic of a node, about."""
    sums = 1
    if node.op_type in _SUMS and len(node.input) > 1:
        sums = math.prod(known[node.input[1]].shape[1:]) if "Conv" in node.op_type else known[node.input[0]].shape[-1]
    return 2e-9 * (sums * known[node.output[0]].size + sum(known[name].size for name in node.input if name))
