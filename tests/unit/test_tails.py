"""Networks that end in what depends on data: the end is cut off, and computed after the compiled part."""

import base64
import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper, numpy_helper
from support.commands import refusal
from support.detection_networks import SIZE, detections, post_processed
from support.networks import Graph
from unit.test_tflite_frontend import imported

from edgedeploy.building import build
from edgedeploy.errors import InputError, ModelError, PackageError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.frontends.onnx.tail import _block
from edgedeploy.model.network import Network
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tail.program import MAXIMUM_TAIL, OPERATORS, Constant, Tail, parse_block
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.archive import describe, read_manifest, read_package, read_tails, tails_of, write_package
from edgedeploy.package.manifest import TAIL_NAME
from edgedeploy.runtime.session import Session
from edgedeploy.runtime.stateful import check_states
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source


def image(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return detections(tmp_path_factory.mktemp("net") / "detections.onnx")


@pytest.fixture(scope="module")
def package(network: Path) -> Path:
    return build(find_source(str(network)), resolve("local", {}), network.with_name("detections.tar.gz")).path


@pytest.mark.compiles
def test_outputs_are_those_of_onnxruntime_at_their_own_length_and_are_timed(network: Path, package: Path) -> None:
    session, reference = Session.open(package), cpu_session(network)
    names = [output.name for output in reference.get_outputs()]
    lengths = set()
    for seed in range(3):
        tensors = {"image": image(seed, 1, 3, SIZE, SIZE)}
        found = session.run(tensors)
        assert list(found) == names == [spec.name for spec in session.outputs]
        for array, wanted in zip(found.values(), reference.run(names, tensors), strict=True):
            assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)
        lengths.add(len(found[names[0]]))
    assert len(lengths) > 1
    assert 0 not in lengths
    assert session.measure(tensors, repeat=3).min_ms > 0


@pytest.mark.compiles
def test_a_package_says_which_sizes_depend_on_the_data(package: Path) -> None:
    manifest = read_manifest(package)
    assert [spec.shape for spec in manifest.results] == [[-1, 4], [-1], [-1], [1, 8, SIZE, SIZE]]
    assert all(size >= 0 for spec in manifest.outputs for size in spec.shape)


@pytest.mark.compiles
def test_a_damaged_tail_is_refused(package: Path, tmp_path: Path, command: Command) -> None:
    manifest, contents = read_package(package)
    contents[TAIL_NAME] = contents[TAIL_NAME].replace(b"NonMaxSuppression", b"__import__('os')!")
    with pytest.raises(PackageError, match=r"tail.json: nodes.*no operator \"__import__"):
        tails_of(manifest, contents, "x")
    write_package(tmp_path / "net.tar.gz", manifest, contents)
    with pytest.raises(PackageError, match="has another content than its manifest says"):
        read_tails(tmp_path / "net.tar.gz")
    write_package(tmp_path / "whole.tar.gz", manifest.model_copy(update={"files": describe(contents)}), contents)
    assert "is not a sound package" in refusal(command, 8, "package", "verify", tmp_path / "whole.tar.gz")
    assert command("package", "verify", str(package))[0] == 0


def test_only_jumps_and_moves_are_left_to_the_tail(network: Path) -> None:
    """What the compiled part gives is continuous: it can be compared with a reference."""
    found = read_onnx(network)
    assert [spec.dtype for spec in found.outputs] == ["float32"] * len(found.outputs)
    assert {node.operator for node in found.cut_off.tail.block.nodes} <= {
        "NonMaxSuppression", "Gather", "GatherND", "Squeeze", "Slice", "Transpose", "Reshape",
    }  # fmt: skip


def test_a_tail_that_no_tail_computes_is_named(tmp_path: Path) -> None:
    graph = Graph()
    relu = graph.node("Relu", graph.conv(graph.input("data", [1, 3, 8, 8]), 3, 3, 3))
    found = graph.node("NonZero", relu)
    count = graph.node("Shape", found)
    resized = graph.node("Cast", graph.node("Unsqueeze", found, graph.weight(np.array([0, 1]))), to=TensorProto.FLOAT)
    convolved = graph.node("Conv", resized, graph.normal(1, 1, 1, 1))
    network = graph.save(tmp_path / "net.onnx", convolved, count)
    with pytest.raises(ModelError, match=f"what follows node '{found}', NonZero, cannot be cut off") as raised:
        read_onnx(network)
    assert f"node '{convolved}' after it is Conv, which is computed by compiled code only" in str(raised.value.why)


def test_a_network_of_which_nothing_would_be_compiled_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    found = graph.node("NonZero", graph.input("data", [4, 4]))
    with pytest.raises(ModelError, match=f"nothing is left to compile before node '{found}', NonZero"):
        read_onnx(graph.save(tmp_path / "net.onnx", found))


def test_inferences_with_a_state_do_not_go_with_open_sizes() -> None:
    tensor = TensorSpec(name="x", shape=[1], dtype="float32")
    with pytest.raises(InputError, match="cannot follow one another"):
        check_states({"x": "x"}, [tensor], [tensor, TensorSpec(name="y", shape=[-1], dtype="float32")])


def assert_gives_litert_boxes(network: Network, seed: int) -> None:
    tensors = {"image": image(seed, 1, SIZE, SIZE, 3)}
    found = network.cut_off.tail.run({**tensors, **network.reference(tensors)})
    wanted = network.cut_off.reference(tensors)
    assert [*found] == [*wanted]
    for name, array in wanted.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6)
    assert wanted["count"][0] > 0


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize(("classes_each", "threshold"), [(1, 0.5), (2, 0.5), (1, 0.96), (2, 0.97)])
def test_boxes_are_those_of_litert(regular: bool, classes_each: int, threshold: float, tmp_path: Path) -> None:
    network = imported(tmp_path, post_processed(regular=regular, classes_each=classes_each, threshold=threshold))
    for seed in range(3):
        assert_gives_litert_boxes(network, seed)


def test_quantised_heads_are_dequantised_before_the_boxes_are_chosen(tmp_path: Path) -> None:
    network = imported(tmp_path, post_processed(quantised=True))
    assert network.quantised
    assert [spec.dtype for spec in network.outputs] == ["float32"] * 2
    assert_gives_litert_boxes(network, 1)


@pytest.mark.compiles
def test_a_tflite_detector_runs_whole(tmp_path: Path) -> None:
    network = imported(tmp_path, post_processed())
    source = find_source(str(tmp_path / "net.tflite"))
    session = Session.open(build(source, resolve("local", {}), tmp_path / "net.tar.gz").path)
    tensors = {"image": image(7, 1, SIZE, SIZE, 3)}
    for name, wanted in network.cut_off.reference(tensors).items():
        np.testing.assert_allclose(session.run(tensors)[name], wanted, rtol=1e-4, atol=1e-5)


def test_damaged_files_end_in_errors_of_ours(tmp_path: Path) -> None:
    from edgedeploy.frontends.tflite import _divided

    sound, random = post_processed(), np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(sound)
        for place in random.integers(0, len(content), 3):
            content[place] = random.integers(256)
        with suppress(ModelError):
            _divided(bytes(content))


def node(operator: str, *inputs: str, to: str = "y", **attributes: Any) -> dict[str, Any]:
    return {"operator": operator, "inputs": list(inputs), "outputs": [to], "attributes": attributes}


def block(**fields: Any) -> bytes:
    sound: dict[str, Any] = {
        "constants": {"one": {"dtype": "float32", "shape": [1], "data": base64.b64encode(b"\0\0\x80\x3f").decode()}},
        "nodes": [{"name": "n", "operator": "Add", "inputs": ["x", "one"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    return json.dumps({**sound, **fields}).encode()


def constant(dtype: str, shape: list[int], data: str) -> bytes:
    return block(constants={"one": {"dtype": dtype, "shape": shape, "data": data}})


def _nested(depth: int) -> dict[str, Any]:
    inner = _nested(depth - 1) if depth else {"constants": {}, "nodes": [], "outputs": ["x"]}
    node = {"name": "n", "operator": "If", "inputs": ["x"], "outputs": [f"y{depth}"], "branches": [inner, inner]}
    return {"constants": {}, "nodes": [node], "outputs": [f"y{depth}"]}


UNSOUND = {
    "an operator that is none": (block(nodes=[{"name": "n", **node("eval", "x")}]), "no operator 'eval'"),
    "a value that nothing makes": (block(outputs=["z"]), "no node or constant gives 'z'"),
    "a name that is made twice": (block(nodes=json.loads(block())["nodes"] * 2), "written twice"),
    "a constant of another size": (constant("float32", [2], "AAAA"), "with 3 bytes"),
    "a constant longer than numpy counts": (constant("float32", [0, 1 << 70], ""), "constants.one.shape"),
    "a constant of objects": (constant("object", [1], ""), "of object"),
    "a constant that is no base64": (constant("bool", [1], "!"), "base64"),
    "an unknown field": (block(code="print()"), "code: there is no such field"),
    "If without branches": (block(nodes=[{"name": "n", **node("If", "x")}]), "If with 0 branches"),
    "branches in branches": (json.dumps(_nested(9)).encode(), "nested too deeply"),
    "no JSON": (b"{", "JSON"),
    "too much": (b" " * (MAXIMUM_TAIL + 1), "bytes, more than"),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_an_unsound_tail_is_refused(case: str) -> None:
    content, said = UNSOUND[case]
    with pytest.raises(ValueError, match=said):
        parse_block(content, {"x"})


def test_a_sound_tail_is_not() -> None:
    assert parse_block(block(), {"x"}).free() == {"x"}


def evaluated(nodes: list[dict[str, Any]], x: np.ndarray, **constants: np.ndarray) -> np.ndarray:
    """What nodes make of `x`, the last one the output."""
    records = {name: Constant.of(array).model_dump() for name, array in constants.items()}
    named = [{"name": f"n{place}", **node} for place, node in enumerate(nodes)]
    program = parse_block(block(nodes=named, constants=records, outputs=nodes[-1]["outputs"]), {"x"})
    return Tail(program, [TensorSpec(name="y", shape=[-1], dtype="float32")]).run({"x": x})["y"]


ONE, MANY, PLACE = np.zeros((1, 1), np.float32), np.array([1, 1 << 27]), np.zeros((1, 1), np.int64)
ROW, COLUMN = node("Expand", "one", "many", to="row"), node("Transpose", "row", to="column", perm=[1, 0])
TOO_LARGE = {
    "a shape": ([node("ConstantOfShape", "x")], np.array([1 << 40, 1 << 20])),
    "shapes that broadcast": ([ROW, COLUMN, node("Add", "row", "column")], ONE),
    "a product": ([ROW, COLUMN, node("MatMul", "column", "row")], ONE),
    "copies side by side": ([ROW, node("Concat", "row", "row", "row", axis=1)], ONE),
    "rows that are taken again and again": (
        [node("Expand", "x", "many", to="places"), node("Gather", "three", "places")],
        PLACE,
    ),
    "rows that are found again and again": (
        [node("Expand", "x", "many", to="row"), COLUMN, node("GatherND", "three", "column")],
        PLACE,
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_sizes_that_no_memory_has_are_refused(case: str) -> None:
    nodes, x = TOO_LARGE[case]
    with pytest.raises(PackageError, match=rf"{nodes[-1]['operator']}: no array of shape"):
        evaluated(nodes, x, one=ONE, many=MANY, three=np.zeros((2, 3)))


def test_values_that_together_need_too_much_memory_are_refused() -> None:
    """Views take none, and count all the same."""
    views = [node("Expand", "one", "many", to=f"v{place}") for place in range(9)]
    last = node("Max", *(f"v{place}" for place in range(9)), to="z")
    with pytest.raises(PackageError, match="after node 'n7', Expand, its values take more than"):
        evaluated([*views, last, node("Shape", "x")], ONE, one=ONE, many=MANY)


def test_values_that_nothing_reads_any_more_are_let_go() -> None:
    views = [node("Expand", "one", "many", to=f"v{place}") for place in range(40)]
    sizes = [node("Shape", f"v{place}", to=f"s{place}") for place in range(40)]
    in_turn = [each for pair in zip(views, sizes, strict=True) for each in pair]
    assert evaluated([*in_turn, node("Relu", "x")], np.float32([-1, 1]), one=ONE, many=MANY).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([{"operator": "Abs", "inputs": ["x"], "outputs": ["a", "y"]}], "it gives 1 outputs, 2 are named"),
        ([{**node("Cast", "x"), "attributes": {"to": "object"}}], "no network has values of object"),
    ],
)
def test_nodes_that_are_no_networks_are_refused(nodes: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(PackageError, match=said):
        evaluated(nodes, np.zeros(2, np.float32))


@pytest.mark.parametrize("apart", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("most", [7, 5000])
def test_boxes_of_classes_that_lie_apart_are_suppressed_as_onnxruntime_does_it(apart: float, most: int) -> None:
    """torchvision's exports move the boxes of each class to a place of its own and suppress them all at once."""
    random = np.random.default_rng(3)
    centres = random.random((3000, 2)) * 4 + apart * random.integers(0, 20, (3000, 1))
    halves = random.random((3000, 2)) / 2
    boxes = np.concatenate([centres - halves, centres + halves], axis=1)[None].astype(np.float32)
    scores = np.round(random.random((1, 1, 3000)), 3).astype(np.float32)  # many are equal
    assert_gives_onnxruntimes_values(
        "NonMaxSuppression", [boxes, scores, np.array([most]), *np.array([[0.3], [0.1]], np.float32)]
    )


def assert_gives_onnxruntimes_values(operator: str, inputs: list[np.ndarray], **attributes: Any) -> None:
    graph, given = Graph(opset=17), {f"x{place}": each for place, each in enumerate(inputs)}
    for name, each in given.items():
        graph.input(name, each.shape, helper.np_dtype_to_tensor_dtype(each.dtype))
    model = graph.model(graph.node(operator, *given, **attributes))
    [wanted] = cpu_session(model.SerializeToString()).run(None, given)
    np.testing.assert_array_equal(OPERATORS[operator](*inputs, **attributes), wanted, strict=True)


# The operators of tails, on the ONNX project's own cases of them.

# Types of numbers that numpy has.
_TYPES = {
    TensorProto.DataType.Value(name)
    for name in ["FLOAT", "DOUBLE", "FLOAT16", "BOOL", *(f"{u}INT{n}" for u in ("", "U") for n in (8, 16, 32, 64))]
}

_READ = 21  # the version that is stated instead

Cases = dict[str, list[tuple[str, onnx.ModelProto, list[np.ndarray]]]]


def _evaluated_here(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    outputs = [
        TensorSpec(
            name=value.name,
            shape=[-1] * len(value.type.tensor_type.shape.dim),
            dtype=helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
        )
        for value in model.graph.output
    ]
    block = _block(model.graph.node, [spec.name for spec in outputs], model.graph.initializer)
    return list(Tail(block, outputs).run(inputs).values())


@pytest.fixture(scope="module")
def cases() -> Cases:
    from onnx.backend.test.loader import load_model_tests

    found: Cases = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        everything = load_model_tests(kind="node")
    for case in everything:
        graph, nodes = case.model.graph, list(case.model.graph.node)
        types = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        if len(nodes) == 1 and nodes[0].op_type in OPERATORS and types <= _TYPES and case.data_sets:
            found.setdefault(nodes[0].op_type, []).append((case.name, case.model, list(case.data_sets[0][0])))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - {"TFLite_Detection_PostProcess"}))
def test_operators_give_onnxruntimes_values(operator: str, cases: Cases) -> None:
    compared = 0
    for name, model, given in cases[operator]:
        arrays = [numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in given]
        inputs = {value.name: np.asarray(array) for value, array in zip(model.graph.input, arrays, strict=False)}
        # onnx states versions of operator sets that onnxruntime does not read yet.
        if onnx.defs.get_schema(operator).since_version > _READ:
            model.opset_import[0].version = _READ
        model.ir_version = min(model.ir_version, 10)
        try:
            wanted = cpu_session(model.SerializeToString()).run(None, inputs)
        except Exception:  # a newer opset than onnxruntime's, or a type that it lacks
            continue
        for array, expected in zip(_evaluated_here(model, inputs), wanted, strict=True):
            assert (array.shape, array.dtype) == (expected.shape, expected.dtype), name
            np.testing.assert_allclose(array, expected, rtol=2e-3 if array.dtype == np.float16 else 1e-6, err_msg=name)
        compared += 1
    assert compared, "no case of it was compared"


# What onnx's own cases leave out.
FURTHER = {
    "a slice backwards from before the beginning": ("Slice", [np.eye(5), *np.array([[-9], [-100], [0], [-1]])], {}),
    "a slice backwards of nothing": ("Slice", [np.zeros((0, 4)), *np.array([[-1], [-9], [0], [-1]])], {}),
    "fewer places than rows": ("GatherElements", [np.eye(3, 4), np.array([[0, -1], [1, 2]])], {"axis": 1}),
    "places in one row": ("GatherElements", [np.eye(3, 4), np.array([[0, -1]])], {"axis": -1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FURTHER)
def test_further_cases_give_onnxruntimes_values(case: str) -> None:
    operator, inputs, attributes = FURTHER[case]
    assert_gives_onnxruntimes_values(operator, inputs, **attributes)
