"""ONNX graphs as exporters write them, tidy or not; and those that no program can run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from support.agreement import assert_matches_reference, computed
from support.networks import begun, tiny

from edgedeploy.compile.ir.expressions import parts_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.onnx import FORMAT, read_onnx

pytestmark = pytest.mark.compiles

VALUES = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def save(path: Path, nodes: str, outputs: str, functions: str = "", **weights: Any) -> Path:
    """A model with one input `data` of shape (2, 3); nodes and functions as `onnx.parser` reads them."""
    head = '<ir_version: 8, opset_import: ["": 17, "my.own": 1]>'
    model = parse_model(f"{head} graph (float[2,3] data) => ({outputs}) {{ {nodes} }} {functions}")
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    onnx.save(model, path)
    return path


def run(path: Path) -> list[np.ndarray]:
    return computed(read_onnx(path), {"data": VALUES})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ('a = Relu(data) "9/c" = Neg(a)', -np.maximum(VALUES, 0)),
        ('"9/c" = Neg(b) b = Tanh(a) a = Relu(data)', -np.tanh(np.maximum(VALUES, 0))),
        ('"a.b" = Relu(data) a_b = Neg(data) "9/c" = Add("a.b", a_b)', np.maximum(VALUES, 0) - VALUES),
    ],
    ids=["nodes without names", "nodes in any order", "names that differ in dots only"],
)
def test_untidy_graphs_are_imported(tmp_path: Path, nodes: str, expected: np.ndarray) -> None:
    path = save(tmp_path / "net.onnx", nodes, '"9/c"')
    assert [spec.name for spec in read_onnx(path).outputs] == ["9/c"]
    np.testing.assert_allclose(run(path)[0], expected, 1e-5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("a = Add(data, b) b = Neg(a)", "depends on itself"),
        ("b = Neg(b)", "depends on itself"),
        ("b = Neg(data) b = Relu(data)", "value 'b' has two sources"),
        ("data = Neg(data) b = Neg(data)", "value 'data' has two sources"),
        ("b = Add(data, lost)", "value 'lost' has no source"),
        ("a = Neg(data)", "output 'b' has no source"),
        ("b = Constant()", "Constant cannot be imported"),
        # A node without a name is called by its output.
        ("a = Relu(data) b = Unheard(a)", "operator Unheard is not supported: node 'b' needs it"),
        # The first one that is not supported, and is needed.
        ("x = Unneeded(data) [one] a = First(data) [two] b = Second(a)", "operator First is not supported: node 'one'"),
        ("b = my.own.Relu(data)", r"operator my\.own::Relu is not supported"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(tmp_path: Path, nodes: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        read_onnx(save(tmp_path / "net.onnx", nodes, "b"))
    assert "not supported" not in message or "cut the network before this node" in raised.value.hints[0]


def test_optional_outputs_that_are_empty_or_unread_are_left_out(tmp_path: Path) -> None:
    nodes = """
        a, mask = Dropout(data)
        b, "" = Dropout(a)
        c = BatchNormalization<epsilon = 0.0>(b, gamma, beta, mean, variance)
    """
    weights = {name: np.full(3, value, np.float32) for name, value in {"gamma": 2, "beta": 1, "mean": 0}.items()}
    path = save(tmp_path / "net.onnx", nodes, "c", **weights, variance=np.ones(3, np.float32))
    np.testing.assert_allclose(run(path)[0], 2 * VALUES + 1)


WEIGHTS: dict[str, Any] = {
    "image": np.arange(108, dtype=np.float32).reshape(1, 2, 6, 9) % 7,
    "zeros": np.zeros((2, 3), np.float32),
    "shape": [1, 1, 2, 3],
    "ends": [3],
    "far": [-100],
    "zero": [0],
    "last": [1],
    "back": [-1],
}
CORNER = "MaxPool<kernel_shape = [2, 2], pads = [1, 0, 0, 1], strides = [1, 2]>"
LOWER = 'MaxPool<kernel_shape = [3, 2], strides = [2, 2], auto_pad = "SAME_LOWER">'


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("a, b, c = Split<axis = 1>(data)", "b"),
        ("a, b = Dropout(data)", "a, b"),
        ("a, b = Dropout(data) c = Where(b, data, zeros)", "c"),
        (f"x = Reshape(data, shape) a, b = {CORNER}(x)", "a, b"),
        (f"x = Add(image, nothing) a, b = {LOWER}(x)", "b"),
        ("x = Slice(data, zero, ends, last, back) a = Concat<axis = 1>(x, data)", "a"),
        ("a = Slice(data, ends, far, last, back)", "a"),
    ],
    ids=[
        *("a part that nobody reads", "the mask of dropout", "its values", "where maxima lie"),
        *("where the first of equal maxima lies", "a slice backwards of which nothing is left", "a slice backwards"),
    ],
)
def test_several_outputs_and_empty_ones(tmp_path: Path, nodes: str, outputs: str) -> None:
    nodes = f"sum = ReduceSum<keepdims = 0>(data) nothing = Sub(sum, sum) {nodes}"
    path = save(tmp_path / "net.onnx", nodes, outputs, **WEIGHTS)
    assert_matches_reference(read_onnx(path), {"data": VALUES})


def test_a_branch_whose_last_output_nobody_reads_is_inlined(tmp_path: Path) -> None:
    branch = "() => (float[] p, float[] q) {{ p = {}(data) q = Neg(p) }}"
    then, otherwise = branch.format("Relu"), branch.format("Tanh")
    nodes = f"a, b = If(truth)<then_branch = then {then}, else_branch = otherwise {otherwise}>"
    [found] = run(save(tmp_path / "net.onnx", nodes, "a", truth=True))
    np.testing.assert_array_equal(found, np.maximum(VALUES, 0))


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["flat", "by axis"])
def test_sparse_weights_are_weights(tmp_path: Path, indices: list[Any]) -> None:
    model = onnx.load(save(tmp_path / "net.onnx", "a = Add(data, w)", "a"))
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [4.0, 5.0])
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices)), [2, 3])
    model.graph.sparse_initializer.append(sparse)
    onnx.save(model, tmp_path / "net.onnx")
    np.testing.assert_array_equal(run(tmp_path / "net.onnx")[0], VALUES + np.float32([[0, 4, 0], [0, 0, 5]]))


def with_functions(path: Path, **functions: str) -> Path:
    """A model that calls the first of some functions, given without their names: from `x` to `y`."""
    head = '<domain: "my.own", opset_import: ["": 17, "my.own": 1]>'
    texts = [f"{head} {name} {text}" for name, text in functions.items()]
    return save(path, f"a = my.own.{next(iter(functions))}(data)", "a", "\n".join(texts))


def test_functions_of_the_model_are_inlined_with_defaults_of_their_attributes(tmp_path: Path) -> None:
    path = with_functions(tmp_path / "net.onnx", Twice="(x) => (y) { y = Add(x, x) }")
    np.testing.assert_array_equal(run(path)[0], 2 * VALUES)
    leaky = "<slope: float = 0.25> (x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }"
    path = with_functions(tmp_path / "net.onnx", Leaky=leaky)
    np.testing.assert_allclose(run(path)[0], np.where(VALUES < 0, VALUES / 4, VALUES), rtol=1e-6)


def test_functions_that_would_be_too_many_nodes_are_refused_before_they_are_written_out(tmp_path: Path) -> None:
    chain = {
        f"F{place}": f"(x) => (y) {{ t = my.own.F{place + 1}(x) y = my.own.F{place + 1}(t) }}" for place in range(40)
    }
    path = with_functions(tmp_path / "net.onnx", **chain, F40="(x) => (y) { y = Relu(x) }")
    with pytest.raises(ModelError, match="1,099,511,627,776 nodes when its functions and loops are written out"):
        read_onnx(path)


def test_a_function_that_calls_itself_is_refused_by_name(tmp_path: Path) -> None:
    path = with_functions(tmp_path / "net.onnx", Endless="(x) => (y) { y = my.own.Endless(x) }")
    with pytest.raises(ModelError, match="function 'Endless' calls itself"):
        read_onnx(path)


def test_a_branch_that_reads_from_around_it_is_inlined(tmp_path: Path) -> None:
    nodes = """
        a = Relu(data)
        b = If(truth)<
            then_branch = then () => (float[] y) { x = Neg(a) y = Tanh(x) },
            else_branch = otherwise () => (float[] z) { z = Unheard(a) }
        >
        c = Add(a, b)
    """
    positive = np.maximum(VALUES, 0)
    [found] = run(save(tmp_path / "net.onnx", nodes, "c", truth=True))
    np.testing.assert_allclose(found, positive - np.tanh(positive), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [2**15, 2**20, 2**31])
@pytest.mark.parametrize(
    "constant",
    [
        "ConstantOfShape(sizes)",
        "Expand(one, sizes)",
        "OneHot(places, size, pair)",
        "Range(zero, whole, step)",
        "Tile(one, sizes)",
    ],
)
def test_constants_beyond_memory_are_refused(tmp_path: Path, constant: str, size: int) -> None:
    nodes = f"a = {constant} f = Cast<to = 1>(a) b = ReduceMax<keepdims = 0>(f) c = Add(data, b)"
    numbers = {"sizes": [size, size], "size": size, "whole": size * size // 4, "zero": 0, "step": 1}
    arrays = {"places": np.arange(2**15), "pair": np.float32([0, 1]), "one": np.ones((1, 1), np.float32)}
    with pytest.raises(ModelError, match="fill the memory as of value 'a'"):
        read_onnx(save(tmp_path / "net.onnx", nodes, "c", **numbers, **arrays))


def test_what_reads_a_large_constant_is_left_with_it(tmp_path: Path) -> None:
    nodes = "a = ConstantOfShape(sizes) b = ReduceMax<keepdims = 0>(a) c = Add(data, b)"
    assert read_onnx(save(tmp_path / "net.onnx", nodes, "c", sizes=[2**12, 2**13])).outputs[0].shape == [2, 3]


def test_concatenations_and_splits_of_many_parts_are_compiled(tmp_path: Path) -> None:
    parts = [f"part{place}" for place in range(400)]
    nodes = f"""
        less = Neg(data)
        whole = Concat<axis = 1>({", ".join(["data", "less"] * 200)})
        {", ".join(parts)} = Split<axis = 1>(whole)
        a = Concat<axis = 1>({", ".join(parts[::-1])})
    """
    path = save(tmp_path / "net.onnx", nodes, "a")
    assert len(parts_of(read_onnx(path).module["main"])) < 10 * len(parts)
    np.testing.assert_array_equal(run(path)[0], np.concatenate([-VALUES, VALUES] * 200, axis=1))


@pytest.mark.parametrize(
    "scales", [[], [1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.2, 2.2], None], ids=["empty", "as sizes", "others", "left out"]
)
@pytest.mark.parametrize("opset", [11, 13])
def test_resize_by_sizes_ignores_its_scales(tmp_path: Path, scales: list[float] | None, opset: int) -> None:
    graph, data = begun(1, 1, 4, 4, opset=opset)
    given = "" if scales is None else graph.weight(np.array(scales, np.float32))
    sizes = graph.weight(np.array([1, 1, 8, 8]))
    resized = graph.node("Resize", data, "" if scales is None else graph.weight(np.float32([])), given, sizes)
    network = read_onnx(graph.save(tmp_path / "net.onnx", resized))
    assert network.outputs[0].shape == [1, 1, 8, 8]
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    [made] = network.reference({"data": image}).values()
    np.testing.assert_array_equal(made[..., ::2, ::2], image)


def _with(change: Callable[[onnx.ModelProto], None]) -> Callable[[Path], bytes]:
    def content(folder: Path) -> bytes:
        model = onnx.load(tiny(folder / "net.onnx"))
        change(model)
        return model.SerializeToString()

    return content


def _reordered(folder: Path) -> bytes:
    """The fields of a model with the graph last, as some writers order them."""
    model = onnx.load(tiny(folder / "net.onnx"))
    graph = onnx.ModelProto(graph=model.graph)
    model.ClearField("graph")
    return b"".join(
        [onnx.ModelProto(opset_import=model.opset_import).SerializeToString(), b"\x08\x08", graph.SerializeToString()]
    )


@pytest.mark.parametrize(
    "content",
    [
        _with(lambda model: None),
        _with(lambda model: model.ClearField("ir_version")),
        _with(lambda model: setattr(model, "producer_version", "1.2.3")),
        _with(lambda model: setattr(model, "doc_string", "licence " * 2000)),
        _with(lambda model: (model.ClearField("ir_version"), setattr(model, "domain", "org"))),
        _with(lambda model: model.metadata_props.add(key="a", value="b")),
        _reordered,
    ],
)
def test_onnx_is_recognised_whatever_field_comes_first(tmp_path: Path, content: Callable[[Path], bytes]) -> None:
    path = tmp_path / "without a suffix"
    path.write_bytes(content(tmp_path))
    assert describing(path)[0] is FORMAT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08",
        b"\x08\x08",
        b"\x08\x08\x12\x03abc",
        b"\x12Text that begins with a control character\n" * 200,
        b":colon first\n" * 500,
        b"\x08\x01\x12\x00 and then something else" * 300,
        bytes(5000),
        bytes(range(256)) * 20,
        b"\x89PNG\r\n\x1a\n" + bytes(5000),
        b"7767517\n3 3\nInput data 0 1 data\n",
        b"[net]\nbatch=1\n",
    ],
)
def test_what_is_not_onnx_is_not_recognised(content: bytes) -> None:
    assert not FORMAT.recognises(content[:4096])
