"""Hostile ONNX files give an error of ours, soon, and without filling the memory."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from support.fuzzing import damaged, peak_of, survive
from support.onnx_operators import CASES

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx import FORMAT
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.network import network_of

_SEEDS = (
    *("conv", "if_with_a_constant_condition", "arithmetic_on_shapes", "resize_by_a_computed_size", "constant_sparse"),
    *("expand_by_where_and_equal", "quantised_weights", "split", "pad", "gemm", "range", "batchnormalization"),
)
_NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 2, 2**16, 2**31 - 1, 2**31, 2**62)


def _meddled(model: onnx.ModelProto, random: np.random.Generator) -> bytes:
    """A well-formed file that says something impossible."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph

    def pick(entries: object) -> object | None:
        return entries[int(random.integers(len(entries)))] if len(entries) else None  # type: ignore[arg-type,index]

    def number() -> int:
        return _NUMBERS[int(random.integers(len(_NUMBERS)))]

    for _ in range(int(random.integers(1, 4))):
        node, weight = pick(graph.node), pick(graph.initializer)
        value = pick(graph.input)
        match int(random.integers(9)):
            case 0 if node is not None and node.input:
                node.input[int(random.integers(len(node.input)))] = str(pick([o for n in graph.node for o in n.output]))
            case 1 if node is not None and node.output:
                node.output[0] = str(pick([o for n in graph.node for o in n.output] + ["", "data"]))
            case 2 if weight is not None and weight.dims:
                weight.dims[int(random.integers(len(weight.dims)))] = number()
            case 3 if weight is not None:
                weight.data_type = int(random.integers(0, 24))
            case 4 if node is not None and node.attribute:
                attribute = pick(node.attribute)
                if len(attribute.ints):
                    attribute.ints[int(random.integers(len(attribute.ints)))] = number()
                else:
                    attribute.i = number()
            case 5 if node is not None:
                node.op_type = random.choice(["Conv", "If", "Loop", "Reshape", "Shape", "Constant", "Gather", "Expand"])
            case 6 if node is not None:
                graph.node.remove(node)
            case 7 if value is not None and value.type.tensor_type.shape.dim:
                pick(value.type.tensor_type.shape.dim).dim_value = number()
            case 8 if weight is not None and weight.data_type == TensorProto.INT64:
                with suppress(ValueError):  # where it was changed before
                    array = numpy_helper.to_array(weight).copy()
                    array.flat[int(random.integers(max(array.size, 1))) :] = number()
                    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
            case _:
                pass
    return changed.SerializeToString()


def _convert(content: bytes, path: Path) -> None:
    """All that is done to a file before TVM sees it."""
    path.write_bytes(content)
    if FORMAT.recognises(content[:4096]):
        converted = FORMAT.convert([path], {})
        try:
            folded(converted.model)
        except ModelError:
            raise
        except Exception:  # which `network_of` turns into an error of ours, as it does with TVM's
            network_of(path, converted)


def _contents(count: int, seed: int) -> list[Callable[[], bytes]]:
    random = np.random.default_rng(seed)
    models = [case.model(min(case.opsets[-1], 17)) for case in CASES if case.name in _SEEDS]
    whole = [model.SerializeToString() for model in models]
    return [
        (lambda index=index: damaged(whole[index % len(whole)], random))
        if index % 2
        else (lambda index=index: _meddled(models[index // 2 % len(models)], random))
        for index in range(count)
    ]


pytestmark = pytest.mark.usefixtures("limited_memory")


@pytest.mark.parametrize(
    ("count", "seed"), [*((100, seed) for seed in range(4)), pytest.param(10_000, 99, marks=pytest.mark.slow)]
)
def test_damaged_files_end_in_errors_of_ours(tmp_path: Path, count: int, seed: int) -> None:
    for content in _contents(count, seed):
        survive(lambda content=content: _convert(content(), tmp_path / "net.onnx"))


@pytest.mark.slow
def test_a_thousand_damaged_files_are_imported_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for content in _contents(1_000, 7):
        path.write_bytes(content())
        survive(lambda: FORMAT.read([path], {}), seconds=20)


HUGE = [2**20, 2**18]


@pytest.mark.parametrize(
    "constant",
    ["ConstantOfShape(shape)", "Expand(one, shape)", "Range(a, b, c)", "Tile(one, shape)", "sparse", "weight", "input"],
)
def test_huge_counts_take_no_memory(tmp_path: Path, constant: str) -> None:
    given = f"float[{HUGE[0]}, {HUGE[1]}] made" if constant == "input" else ""
    node = f"made = {constant}" if "(" in constant else ""
    model = parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        graph ({given}) => (out) <
            int64[2] shape = {{{HUGE[0]}, {HUGE[1]}}}, float[1,1] one = {{1}},
            int64 a = {{0}}, int64 b = {{{2**38}}}, int64 c = {{1}}
        >
        {{ {node} out = Neg(made) }}
    """)
    if constant == "sparse":
        values = helper.make_tensor("made", TensorProto.FLOAT, [1], [1.0])
        places = helper.make_tensor("", TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, HUGE))
    elif constant == "weight":
        model.graph.initializer.add(name="made", dims=HUGE, data_type=TensorProto.FLOAT, raw_data=bytes(64))
    content = model.SerializeToString()
    assert peak_of(lambda: _convert(content, tmp_path / "net.onnx")) < 16 << 20
