"""Reading ONNX files: shapes, old habits of exporters, what cannot be imported, and hostile files."""

import ast
import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from support.fuzzing import damaged, peak_of, survive
from support.networks import Graph, tiny
from support.onnx_operators import CASES

from edgedeploy.compile.ir.expressions import constant
from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.frontends.onnx import FORMAT, read_onnx
from edgedeploy.frontends.onnx import importer as onnx_importer
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.network import network_of


def test_inputs_and_outputs_keep_the_networks_own_names(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("an image", [1, 3, 8, 8])
    network = read_onnx(graph.save(tmp_path / "net.onnx", graph.conv(data, 3, 4, 3), graph.node("Relu", data)))
    assert [spec.name for spec in network.inputs] == ["an image"]
    assert [(spec.name, spec.shape) for spec in network.outputs] == [("conv0", [1, 4, 6, 6]), ("relu1", [1, 3, 8, 8])]


def test_weights_that_are_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    model = onnx.load(tiny(tmp_path / "net.onnx"))
    for weight in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, weight.dims))
    onnx.save(model, tmp_path / "old.onnx")
    assert [spec.name for spec in read_onnx(tmp_path / "old.onnx").inputs] == ["data"]


def test_a_failed_import_prints_nothing_of_tvms(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="Conv cannot be imported"):
        read_onnx(tiny(tmp_path / "net.onnx"), {"data": [1, 5, 8, 8]})
    gc.collect()
    assert capfd.readouterr().err == ""


def free(tmp_path: Path, shape: list[object]) -> Path:
    graph = Graph()
    return graph.save(tmp_path / "free.onnx", graph.node("Relu", graph.conv(graph.input("data", shape), 3, 4, 3)))


def test_a_free_batch_is_one_and_free_dimensions_take_the_shape_that_is_given(tmp_path: Path) -> None:
    assert read_onnx(free(tmp_path, ["n", 3, 8, 8])).inputs[0].shape == [1, 3, 8, 8]
    network = read_onnx(free(tmp_path, ["n", 3, "h", "w"]), {"data": [1, 3, 10, 12]})
    assert network.outputs[0].shape == [1, 4, 8, 10]


def test_a_free_dimension_without_a_shape_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="free dimensions") as raised:
        read_onnx(free(tmp_path, [1, 3, "h", "w"]))
    assert raised.value.hints == ("give it a shape: --input-shape data:1,3,224,224",)


@pytest.mark.parametrize("shape", [[1, 3, 8], [1, 3, 0, 8], [1, 3, -1, 8], [1, 3, 8, 10**20]])
def test_a_shape_that_does_not_fit_and_one_for_no_input_are_refused(tmp_path: Path, shape: list[int]) -> None:
    path = free(tmp_path, [1, 3, "h", "w"])
    with pytest.raises(InputError, match="does not fit"):
        read_onnx(path, {"data": shape})
    with pytest.raises(InputError, match="its inputs: data"):
        read_onnx(path, {"date": [1, 3, 8, 8]})


def test_an_input_of_unknown_rank_says_how_to_give_its_shape(tmp_path: Path) -> None:
    model = onnx.load(tiny(tmp_path / "net.onnx"))
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "open.onnx")
    with pytest.raises(OpenShapeError, match="how many dimensions input 'data' has") as raised:
        read_onnx(tmp_path / "open.onnx")
    assert "--input-shape data:1,3,224,224" in raised.value.hints[0]
    assert read_onnx(tmp_path / "open.onnx", {"data": shape}).inputs[0].shape == shape


@pytest.mark.parametrize("stated", [[1, 3, 8, 8], [1, 3, "h", "w"], [1, "channels", "h", "w"]])
def test_a_wrong_number_of_channels_names_the_node_and_the_networks_own(tmp_path: Path, stated: list[object]) -> None:
    with pytest.raises(ModelError, match="conv0") as raised:
        read_onnx(free(tmp_path, stated), {"data": [1, 4, 8, 8]})
    assert raised.value.hints[0] == (
        "dimension 1 of input 'data' is 3 in the network, and 4 was given: --input-shape data:1,3,8,8"
    )


@pytest.mark.parametrize("content", [0.1, 0.5, 0.9, 0.99, b"", b"not a network at all\n" * 50, bytes(range(256)) * 4])
def test_a_part_of_a_file_and_one_that_is_no_network_are_errors_of_ours(tmp_path: Path, content: float | bytes) -> None:
    whole = tiny(tmp_path / "net.onnx").read_bytes()
    path = tmp_path / "other.onnx"
    path.write_bytes(content if isinstance(content, bytes) else whole[: int(len(whole) * content)])
    with pytest.raises(ModelError):
        read_onnx(path)


def test_weights_before_the_begin_of_their_file_are_an_error_of_ours(tmp_path: Path) -> None:
    path = tiny(tmp_path / "net.onnx")
    model = onnx.load(path)
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "net.onnx", -5, 12)
    model.graph.initializer[0].ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    assert FORMAT.files(path) == [path]
    with pytest.raises(ModelError, match="offset must be non-negative"):
        FORMAT.read([path], {})


def test_weights_that_were_left_behind_are_named_by_their_file(tmp_path: Path) -> None:
    model = onnx.load(tiny(tmp_path / "net.onnx"))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    assert FORMAT.files(tmp_path / "net.onnx") == [tmp_path / "net.onnx", tmp_path / "net.onnx.data"]
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"wrote them into net\.onnx\.data next to it, which is missing"):
        read_onnx(tmp_path / "net.onnx")


def test_the_reference_is_another_program(tmp_path: Path) -> None:
    graph = Graph()
    network = read_onnx(graph.save(tmp_path / "net.onnx", graph.node("Neg", graph.input("data", [1, 2]))))
    assert network.reference({"data": np.float32([[1, -2]])})["neg0"].tolist() == [[-1, 2]]


def test_an_operator_of_an_unknown_opset_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(opset=22)
    path = graph.save(tmp_path / "net.onnx", graph.node("Sin", graph.input("data", [1, 2])))
    assert read_onnx(path).outputs[0].shape == [1, 2]
    monkeypatch.setitem(onnx_importer._NEWEST, "Sin", 7)
    with pytest.raises(ModelError, match=r"operator Sin of opset 22 is not supported[\s\S]*known as of opset 7"):
        read_onnx(path)


@pytest.mark.parametrize(
    ("inputs", "node", "message"),
    [
        ("string[1] words", "Identity(words)", r"'words'.*not a tensor of numbers"),
        ("float[1,3,1] data, int64[1] axes", "Squeeze(data, axes)", "axes depend on the network's input"),
        ("float[1,3,1] data, int64[1] axes", "Unsqueeze(data, axes)", "axes depend on the network's input"),
        ("float[1,6,4] a, float[1,1,6] b", "NonMaxSuppression(a, b)", "nothing is left to compile before node 'made'"),
    ],
)
def test_what_inputs_cannot_decide_is_refused(tmp_path: Path, inputs: str, node: str, message: str) -> None:
    head = '<ir_version: 8, opset_import: ["": 13]>'
    onnx.save(parse_model(f"{head} net ({inputs}) => (made) {{ made = {node} }}"), tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=message):
        read_onnx(tmp_path / "net.onnx")


def test_constants_keep_their_dtype() -> None:
    for array in (np.array([2**40]), np.array(1e300), np.array([[True]]), np.zeros((0, 2), np.int64)):
        kept = constant(array).value.numpy()
        assert (kept.dtype, kept.shape) == (array.dtype, array.shape)
        assert (kept == array).all()


def test_no_constant_of_a_frontend_loses_its_dtype() -> None:
    """`relax.const` without a dtype takes int64 for int32: frontends say it, or call `constant`."""
    folder = Path(onnx_importer.__file__).parent
    calls = [
        call
        for path in folder.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "relax.const"
    ]
    assert [ast.unparse(call) for call in calls if len(call.args) < 2] == []


# Hostile files give an error of ours, soon, and without filling the memory.

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


@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize(
    ("count", "seed"), [*((100, seed) for seed in range(4)), pytest.param(10_000, 99, marks=pytest.mark.slow)]
)
def test_damaged_files_end_in_errors_of_ours(tmp_path: Path, count: int, seed: int) -> None:
    for content in _contents(count, seed):
        survive(lambda content=content: _convert(content(), tmp_path / "net.onnx"))


@pytest.mark.slow
@pytest.mark.usefixtures("limited_memory")
def test_a_thousand_damaged_files_are_imported_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for content in _contents(1_000, 7):
        path.write_bytes(content())
        survive(lambda: FORMAT.read([path], {}), seconds=20)


HUGE = [2**20, 2**18]


@pytest.mark.usefixtures("limited_memory")
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
