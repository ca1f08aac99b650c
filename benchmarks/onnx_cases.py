"""The ONNX project's own tests of operators, and what is right for each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

# What float32's rounding leaves of a zero beside large values, as a fraction of these.
_NOISE = 1e-6

# Inputs that networks keep as constants, by operator and position.
CONSTANTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Clip": (1, 2),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


@dataclass(frozen=True)
class Test:
    """One case: a model, its inputs and what they give.

    Attributes:
        name: the case's.
        operator: what it tests.
        opset: of the model.
        expanded: whether it is another case's operator, written out as the function that ONNX says it is.
    """

    name: str
    operator: str
    opset: int
    expanded: bool
    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    relative: float
    absolute: float


def cases() -> list[Test]:
    """All of them, in the order of their names."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of values that cases overflow on purpose
        loaded = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    operators: dict[str, str] = {}
    found = []
    for case in sorted(loaded, key=lambda case: (len(case.name), case.name)):
        model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
        base, _, expansion = case.name.partition("_expanded")
        operator = operators.get(base) if expansion or "_expanded" in case.name else None
        nodes = sorted(model.graph.node, key=lambda node: node.op_type == "Constant")
        operator = operator or nodes[0].op_type
        operators[case.name] = operator
        inputs, outputs = case.data_sets[0] if case.data_sets else _stored(Path(case.model_dir), model)
        inputs = [np.asarray(array) if isinstance(array, np.generic) else array for array in inputs]
        opset = max(entry.version for entry in model.opset_import if entry.domain == model.opset_import[0].domain)
        expanded = "_expanded" in case.name
        found.append(Test(case.name, operator, opset, expanded, model, inputs, outputs, case.rtol, case.atol))
    return sorted(found, key=lambda test: test.name)


def _stored(folder: Path, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    """The inputs and outputs of a case that is kept in files."""
    return tuple(  # type: ignore[return-value]
        [_read(folder / "test_data_set_0" / f"{kind}_{index}.pb", value) for index, value in enumerate(values)]
        for kind, values in (("input", inputs_of(model)), ("output", model.graph.output))
    )


def inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are no weights, which old exporters list too."""
    weights = {weight.name for weight in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _read(path: Path, value: onnx.ValueInfoProto) -> Any:
    if value.type.WhichOneof("value") == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(path.read_bytes())
        return numpy_helper.to_list(sequence)
    return numpy_helper.to_array(onnx.load_tensor(path))


def with_constants(test: Test) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The case's model with such inputs as constants that networks keep so, and the other inputs by name."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    positions = CONSTANTS.get(test.operator, ())
    node = next((node for node in model.graph.node if node.op_type == test.operator), None)
    names = [value.name for value in inputs_of(model)]
    fixed = {names[index] for index in positions if index < len(names)} if test.expanded or node is None else set()
    if node is not None and not test.expanded:
        fixed = {node.input[index] for index in positions if index < len(node.input)}
    given: dict[str, np.ndarray] = {}
    kept = []
    for value, array in zip(inputs_of(model), test.inputs, strict=True):
        if value.name in fixed and isinstance(array, np.ndarray):
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            given[value.name] = array
            kept.append(value)
    kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model, given


def difference(test: Test, found: Sequence[Any]) -> str | None:
    """What is wrong with the outputs of a case, by the rules of ONNX's own runner.

    Its absolute tolerance of 1e-7 is below the rounding of float32 where values near zero stand beside large ones: a
    millionth of the largest is allowed too.
    """
    from onnx.backend.test.runner import Runner

    absolute = max([test.absolute, *(_NOISE * _largest(array) for array in test.outputs)])
    try:
        Runner.assert_similar_outputs(test.outputs, found, test.relative, absolute)
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _largest(array: Any) -> float:
    """The largest finite value of an array of floats; 0 for anything else."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return 0.0
    return float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0))
