"""A model in ONNX's terms as a network: imported through TVM's own importer, with onnxruntime for reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from edgedeploy.compile.backends import host_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.format import Converted
from edgedeploy.frontends.importing import importing, specifications
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.importer import import_model
from edgedeploy.frontends.onnx.inputs import with_values
from edgedeploy.frontends.onnx.nodes import readers_of
from edgedeploy.frontends.onnx.tail import cut
from edgedeploy.model.network import CutOff, Network, Reference
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.target.board import load_board

# A folded quantised network has at least one of these operators.
_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger"}

# Operators whose results are sums over a filter or a row.
_SUMS = {"Conv", "ConvTranspose", "ConvInteger", "MatMul", "MatMulInteger", "Gemm"}

# Operators of onnxruntime's optimised graphs that compute integers as edgedeploy does, or move values.
_EXACT = """
Clip Concat DequantizeLinear Expand Flatten Gather Identity LeakyRelu MaxPool NhwcMaxPool Pad QGemm QLinearAdd
QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMatMul QuantizeLinear Relu Reshape Slice
Split Squeeze Transpose Unsqueeze
""".split()  # noqa: SIM905

_NUDGED = "onnxruntime in float with some weights one bit larger or smaller"


def network_of(path: Path, converted: Converted) -> Network:
    """Import a model of a file; its inputs have fixed shapes."""
    values, stated = converted.values, converted.stated or converted.model
    serialised = stated.SerializeToString()
    reference = _reference(serialised, values)
    model = with_values(converted.model, values)
    inputs = [value.name for value in model.graph.input]
    with importing(path, ["check the file with onnx.checker.check_model, and simplify it with its exporter's options"]):
        model, cut_off = folded(model), None
        if parts := cut(model):
            head, tail = parts
            cut_off = CutOff(Tail(tail, _open_specifications(model, serialised)), reference)
            model = head
        module = import_model(model)
        quantised = any(node.op_type in _QUANTISED for node in model.graph.node)
    if cut_off:
        stated, serialised, values = model, model.SerializeToString(), {}
        reference = _reference(serialised, values)
    others = [serialised]
    if quantised:
        others = [with_nudged_weights(stated, towards).SerializeToString() for towards in (np.inf, 0)]
    given, returned = specifications(path, module["main"], inputs, [value.name for value in model.graph.output])
    return Network(
        path,
        module,
        given,
        returned,
        quantised,
        reference,
        f"onnxruntime {version('onnxruntime')}",
        converted.heads,
        [_reference(each, values, optimised=quantised, floats=quantised) for each in others],
        _NUDGED if quantised else "onnxruntime without graph optimisation",
        second_opinion=lambda tensors: _by_definition(onnx.load_model_from_string(serialised), {**tensors, **values}),
        second_opinion_name=f"the reference evaluator of onnx {version('onnx')}",
        by_operator=partial(_by_operator, serialised, values),
        metadata=converted.metadata,
        cut_off=cut_off,
        is_reference_exact=cache(lambda: _is_exact(serialised)),
    )


def _open_specifications(model: onnx.ModelProto, serialised: bytes) -> list[TensorSpec]:
    """The outputs of a network with a tail, with onnxruntime's shapes; -1 for sizes that depend on data."""
    stated = {output.name: output.shape for output in cpu_session(serialised).get_outputs()}
    specs = []
    for value in model.graph.output:
        tensor = value.type.tensor_type
        if not stated[value.name] and not (tensor.HasField("shape") and not tensor.shape.dim):
            raise ModelError(
                f"the number of dimensions of output {value.name!r} is not known",
                why="it depends on the input's values, and the file does not state it",
                hints=["export it with shapes of its outputs"],
            )
        sizes = [size if isinstance(size, int) and size >= 0 else -1 for size in stated[value.name]]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        specs.append(TensorSpec(name=value.name, shape=sizes, dtype=dtype))
    return specs


def _is_exact(model: bytes) -> bool:
    """Whether onnxruntime computes a quantised model in integers alone, by kernels that edgedeploy agrees with.

    Its optimiser leaves some operators in float, between DequantizeLinear and QuantizeLinear. It adds integers by fused
    multiply-adds on x86 with AVX2; elsewhere no agreement was measured.
    """
    with TemporaryDirectory(prefix="edgedeploy-") as folder:
        optimised = Path(folder) / "optimised.onnx"
        try:
            cpu_session(model, optimised_to=optimised)
            operators = {node.op_type for node in onnx.load(optimised).graph.node}
        except Exception:  # of any kind: onnxruntime cannot write all graphs that it runs
            return False
    here = load_board("local")
    return operators.issubset(_EXACT) and ("QLinearAdd" not in operators or (here.is_x86 and host_of(here).fuses))


def _reference(model: bytes, values: Mapping[str, np.ndarray], **kernels: Any) -> Reference:
    """One inference by onnxruntime, in a session that the first one opens; `values` are its fixed inputs.

    `kernels` are `cpu_session`'s: those of optimised graphs work on blocks of channels, for layers in float.
    """
    opened = cache(lambda: cpu_session(model, **kernels))

    def run(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = opened()
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, {**tensors, **values}), strict=True))

    return run


def _by_definition(model: onnx.ModelProto, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One inference by ONNX's own evaluator, which follows the operators' definitions, slowly."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        computed = evaluator.run(None, tensors)
    return dict(zip(evaluator.output_names, map(np.asarray, computed), strict=True))


def _by_operator(
    model: bytes, values: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray], most_gflop: float
) -> Iterator[tuple[str, list[np.ndarray], list[np.ndarray]]]:
    """Outputs of single nodes by `_reference` and by definition, except nodes with graphs inside."""
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
            found = _by_definition(alone, {name: known[name] for name in inputs})
        except Exception:  # of any kind, for operators that it does not know
            continue
        title = f"operator {node.op_type} of node {node.name or outputs[0]!r}"
        yield title, [known[name] for name in outputs], list(found.values())


def _gflop(node: onnx.NodeProto, known: Mapping[str, np.ndarray]) -> float:
    sums = 1
    if node.op_type in _SUMS and len(node.input) > 1:
        sums = math.prod(known[node.input[1]].shape[1:]) if "Conv" in node.op_type else known[node.input[0]].shape[-1]
    return 2e-9 * (sums * known[node.output[0]].size + sum(known[name].size for name in node.input if name))


# Operators of two tensors whose results the reference rounds by one of several kernels, or in float.
_OF_TWO = frozenset({"Add", "Sub", "Mul", "Sum"})

_BOUNDS = frozenset({"Relu", "Clip"})  # operators that the reference's kernels for integers include


def with_nudged_weights(model: onnx.ModelProto, towards: float) -> onnx.ModelProto:
    """A copy of a quantised model, some weights larger or smaller by a bit: it shows the effect of rounding on outputs.

    A value at a half goes to one side or the other by the last bit of a sum in float. The reference's kernels for
    integers and for floats show that where it has both. It computes layers in float anyway if an activation or a sum
    stands between them and their rounding: those are nudged, as are tensors that are added or multiplied. The scale of
    a tensor that DequantizeLinear reads becomes the next float `towards` infinity or 0, there and nowhere else.
    Constants of one axis, which are biases, stay.
    """
    nudged = deepcopy(model)
    constants = {each.name: each for each in nudged.graph.initializer}
    readers = readers_of(nudged)

    def is_rounded(tensor: str) -> bool:
        [reader, *others] = readers.get(tensor, [None])
        if reader is None or others:
            return False
        return reader.op_type == "QuantizeLinear" or (reader.op_type in _BOUNDS and is_rounded(reader.output[0]))

    for node in nudged.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[1] not in constants:
            continue
        scale, layers = constants[node.input[1]], readers.get(node.output[0], [])
        if scale.data_type != onnx.TensorProto.FLOAT:
            continue
        if node.input[0] not in constants:
            if not any(each.op_type in _OF_TWO for each in layers):
                continue
        elif len(constants[node.input[0]].dims) < 2 or all(is_rounded(layer.output[0]) for layer in layers):
            continue
        name = f"{scale.name}.nudged"
        if name not in constants:
            near = np.nextafter(numpy_helper.to_array(scale), np.float32(towards))
            constants[name] = numpy_helper.from_array(near, name)
            nudged.graph.initializer.append(constants[name])
        node.input[1] = name
    return nudged
