"""ONNX graphs as exporters write them, tidy or not; and those that no program can run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.networks import Graph, tiny
from support.running import computed

from edgedeploy.compile.ir.expressions import parts_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.onnx import FORMAT, read_onnx

pytestmark = pytest.mark.compiles

VALUES = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)]

node = helper.make_node
Functions = Sequence[onnx.FunctionProto]


def save(path: Path, nodes: list[onnx.NodeProto], outputs: list[str], functions: Functions = (), **parts: Any) -> Path:
    """A model with one input `data` of shape (2, 3)."""
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "graph", [data], [onnx.ValueInfoProto(name=name) for name in outputs], **parts)
    onnx.save(helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=8), path)
    return path


def run(path: Path) -> list[np.ndarray]:
    return computed(read_onnx(path), {"data": VALUES})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Relu", ["data"], ["a"]), node("Neg", ["a"], ["9/c"])], -np.maximum(VALUES, 0)),
        (
            [node("Neg", ["b"], ["9/c"]), node("Tanh", ["a"], ["b"]), node("Relu", ["data"], ["a"])],
            -np.tanh(np.maximum(VALUES, 0)),
        ),
        (
            [node("Relu", ["data"], ["a.b"]), node("Neg", ["data"], ["a_b"]), node("Add", ["a.b", "a_b"], ["9/c"])],
            np.maximum(VALUES, 0) - VALUES,
        ),
    ],
    ids=["nodes without names", "nodes in any order", "names that differ in dots only"],
)
def test_untidy_graphs_are_imported(tmp_path: Path, nodes: list[onnx.NodeProto], expected: np.ndarray) -> None:
    path = save(tmp_path / "net.onnx", nodes, ["9/c"])
    assert [spec.name for spec in read_onnx(path).outputs] == ["9/c"]
    np.testing.assert_allclose(run(path)[0], expected, 1e-5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Add", ["data", "b"], ["a"]), node("Neg", ["a"], ["b"])], "depends on itself"),
        ([node("Neg", ["b"], ["b"])], "depends on itself"),
        ([node("Neg", ["data"], ["b"]), node("Relu", ["data"], ["b"])], "value 'b' has two sources"),
        ([node("Neg", ["data"], ["data"]), node("Neg", ["data"], ["b"])], "value 'data' has two sources"),
        ([node("Add", ["data", "lost"], ["b"])], "value 'lost' has no source"),
        ([node("Neg", ["data"], ["a"])], "output 'b' has no source"),
        ([node("Constant", [], ["b"])], "Constant cannot be imported"),
        (  # a node without a name is called by its output
            [node("Relu", ["data"], ["a"]), node("Unheard", ["a"], ["b"])],
            "operator Unheard is not supported: node 'b' needs it",
        ),
        (  # the first one that is not supported, and is needed
            [
                node("Unneeded", ["data"], ["x"]),
                node("First", ["data"], ["a"], name="one"),
                node("Second", ["a"], ["b"], name="two"),
            ],
            "operator First is not supported: node 'one'",
        ),
        ([node("Relu", ["data"], ["b"], domain="my.own")], r"operator my\.own::Relu is not supported"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(tmp_path: Path, nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        read_onnx(save(tmp_path / "net.onnx", nodes, ["b"]))
    assert "not supported" not in message or "cut the network before this node" in raised.value.hints[0]


def test_optional_outputs_that_are_empty_or_unread_are_left_out(tmp_path: Path) -> None:
    weights = [
        numpy_helper.from_array(np.full(3, value, np.float32), name)
        for name, value in zip("gbmv", (2, 1, 0, 1), strict=True)
    ]
    nodes = [
        node("Dropout", ["data"], ["a", "mask"]),
        node("Dropout", ["a"], ["b", ""]),
        node("BatchNormalization", ["b", "g", "b_", "m", "v"], ["c"], epsilon=0.0),
    ]
    weights[1].name = "b_"
    np.testing.assert_allclose(run(save(tmp_path / "net.onnx", nodes, ["c"], initializer=weights))[0], 2 * VALUES + 1)


WEIGHTS = {
    "image": np.arange(108, dtype=np.float32).reshape(1, 2, 6, 9) % 7,
    "ends": np.array([3]),
    "far": np.array([-100]),
    "zero": np.array([0]),
    "last": np.array([1]),
    "back": np.array([-1]),
}


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        pytest.param([node("Split", ["data"], ["a", "b", "c"], axis=1)], ["b"], id="a part that nobody reads"),
        pytest.param([node("Dropout", ["data"], ["a", "b"])], ["a", "b"], id="the mask of dropout"),
        pytest.param(
            [node("Dropout", ["data"], ["a", "b"]), node("Where", ["b", "data", "zeros"], ["c"])],
            ["c"],
            id="its values",
        ),
        pytest.param(
            [
                node("Reshape", ["data", "shape"], ["x"]),
                node("MaxPool", ["x"], ["a", "b"], kernel_shape=[2, 2], pads=[1, 0, 0, 1], strides=[1, 2]),
            ],
            ["a", "b"],
            id="where maxima lie",
        ),
        pytest.param(
            [
                node("Add", ["image", "nothing"], ["x"]),
                node("MaxPool", ["x"], ["a", "b"], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
            ],
            ["b"],
            id="where the first of equal maxima lies",
        ),
        pytest.param(
            [
                node("Slice", ["data", "zero", "ends", "last", "back"], ["x"]),
                node("Concat", ["x", "data"], ["a"], axis=1),
            ],
            ["a"],
            id="a slice backwards of which nothing is left",
        ),
        pytest.param([node("Slice", ["data", "ends", "far", "last", "back"], ["a"])], ["a"], id="a slice backwards"),
    ],
)
def test_several_outputs_and_empty_ones(tmp_path: Path, nodes: list[onnx.NodeProto], outputs: list[str]) -> None:
    arrays = {**WEIGHTS, "zeros": np.zeros((2, 3), np.float32), "shape": np.array([1, 1, 2, 3])}
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    nodes = [node("ReduceSum", ["data"], ["sum"], keepdims=0), node("Sub", ["sum", "sum"], ["nothing"]), *nodes]
    path = save(tmp_path / "net.onnx", nodes, outputs, initializer=weights)
    wanted = read_onnx(path).reference({"data": VALUES})
    for array, expected in zip(run(path), wanted.values(), strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_a_branch_whose_last_output_nobody_reads_is_inlined(tmp_path: Path) -> None:
    def branch(operator: str) -> onnx.GraphProto:
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("p", "q")]
        return helper.make_graph([node(operator, ["data"], ["p"]), node("Neg", ["p"], ["q"])], operator, [], values)

    taken = node("If", ["truth"], ["a", "b"], then_branch=branch("Relu"), else_branch=branch("Tanh"))
    truth = numpy_helper.from_array(np.array(True), "truth")
    [found] = run(save(tmp_path / "net.onnx", [taken], ["a"], initializer=[truth]))
    np.testing.assert_array_equal(found, np.maximum(VALUES, 0))


def test_sparse_weights_are_weights(tmp_path: Path) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [4.0, 5.0])
    for indices in (
        helper.make_tensor("", TensorProto.INT64, [2], [1, 5]),
        helper.make_tensor("", TensorProto.INT64, [2, 2], [0, 1, 1, 2]),
    ):
        sparse = helper.make_sparse_tensor(values, indices, [2, 3])
        path = save(tmp_path / "n.onnx", [node("Add", ["data", "w"], ["a"])], ["a"], sparse_initializer=[sparse])
        np.testing.assert_array_equal(run(path)[0], VALUES + np.float32([[0, 4, 0], [0, 0, 5]]))


def own(name: str, nodes: list[onnx.NodeProto], **attributes: float) -> onnx.FunctionProto:
    """A function from `x` to `y`, some of whose attributes have defaults."""
    defaults = [helper.make_attribute(key, value) for key, value in attributes.items()]
    return helper.make_function("my.own", name, ["x"], ["y"], nodes, OPSETS, attribute_protos=defaults)


def with_functions(path: Path, functions: Functions) -> Path:
    """A model that calls the first of some functions."""
    return save(path, [node(functions[0].name, ["data"], ["a"], domain="my.own")], ["a"], functions)


def test_functions_of_the_model_are_inlined(tmp_path: Path) -> None:
    twice = own("Twice", [node("Add", ["x", "x"], ["y"])])
    np.testing.assert_array_equal(run(with_functions(tmp_path / "net.onnx", [twice]))[0], 2 * VALUES)


def test_a_function_that_is_called_without_an_attribute_takes_its_default(tmp_path: Path) -> None:
    leaky = node("LeakyRelu", ["x"], ["y"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    path = with_functions(tmp_path / "net.onnx", [own("Leaky", [leaky], slope=0.25)])
    np.testing.assert_allclose(run(path)[0], np.where(VALUES < 0, VALUES / 4, VALUES), rtol=1e-6)


def test_functions_that_would_be_too_many_nodes_are_refused_before_they_are_written_out(tmp_path: Path) -> None:
    def calls(name: str) -> list[onnx.NodeProto]:
        return [node(name, ["x"], ["t"], domain="my.own"), node(name, ["t"], ["y"], domain="my.own")]

    chain = [own(f"F{number}", calls(f"F{number + 1}")) for number in range(40)]
    path = with_functions(tmp_path / "net.onnx", [*chain, own("F40", [node("Relu", ["x"], ["y"])])])
    with pytest.raises(ModelError, match="1,099,511,627,776 nodes when its functions and loops are written out"):
        read_onnx(path)


def test_a_function_that_calls_itself_is_refused_by_name(tmp_path: Path) -> None:
    endless = own("Endless", [node("Endless", ["x"], ["y"], domain="my.own")])
    with pytest.raises(ModelError, match="function 'Endless' calls itself"):
        read_onnx(with_functions(tmp_path / "net.onnx", [endless]))


def test_a_branch_that_reads_from_around_it_is_inlined(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [node("Neg", ["a"], ["x"]), node("Tanh", ["x"], ["y"])],
        "then",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Unheard", ["a"], ["z"])], "else", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    )
    truth = numpy_helper.from_array(np.array(True), "truth")
    nodes = [
        node("Relu", ["data"], ["a"]),
        node("If", ["truth"], ["b"], then_branch=inner, else_branch=other),
        node("Add", ["a", "b"], ["c"]),
    ]
    positive = np.maximum(VALUES, 0)
    found = run(save(tmp_path / "net.onnx", nodes, ["c"], initializer=[truth]))[0]
    np.testing.assert_allclose(found, positive - np.tanh(positive), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [2**15, 2**20, 2**31])
@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("ConstantOfShape", ["sizes"]),
        ("Expand", ["one", "sizes"]),
        ("OneHot", ["places", "size", "pair"]),
        ("Range", ["zero", "whole", "step"]),
        ("Tile", ["one", "sizes"]),
    ],
)
def test_constants_beyond_memory_are_refused(tmp_path: Path, operator: str, inputs: list[str], size: int) -> None:
    nodes = [
        node(operator, inputs, ["a"]),
        node("Cast", ["a"], ["f"], to=TensorProto.FLOAT),
        node("ReduceMax", ["f"], ["b"], keepdims=0),
        node("Add", ["data", "b"], ["c"]),
    ]
    values = {
        "sizes": np.array([size, size]),
        "size": np.array(size),
        "whole": np.array(size * size // 4),
        "zero": np.array(0),
        "step": np.array(1),
        "places": np.arange(2**15),
        "pair": np.float32([0, 1]),
        "one": np.ones((1, 1), np.float32),
    }
    weights = [numpy_helper.from_array(array, name) for name, array in values.items()]
    with pytest.raises(ModelError, match="fill the memory as of value 'a'"):
        read_onnx(save(tmp_path / "net.onnx", nodes, ["c"], initializer=weights))


def test_what_reads_a_large_constant_is_left_with_it(tmp_path: Path) -> None:
    nodes = [
        node("ConstantOfShape", ["sizes"], ["a"]),
        node("ReduceMax", ["a"], ["b"], keepdims=0),
        node("Add", ["data", "b"], ["c"]),
    ]
    sizes = numpy_helper.from_array(np.array([2**12, 2**13]), "sizes")
    assert read_onnx(save(tmp_path / "net.onnx", nodes, ["c"], initializer=[sizes])).outputs[0].shape == [2, 3]


def test_concatenations_and_splits_of_many_parts_are_compiled(tmp_path: Path) -> None:
    parts = [f"part{place}" for place in range(400)]
    nodes = [
        node("Neg", ["data"], ["less"]),
        node("Concat", ["data", "less"] * 200, ["whole"], axis=1),
        node("Split", ["whole"], parts, axis=1),
        node("Concat", parts[::-1], ["a"], axis=1),
    ]
    path = save(tmp_path / "net.onnx", nodes, ["a"])
    assert len(parts_of(read_onnx(path).module["main"])) < 10 * len(parts)
    np.testing.assert_array_equal(run(path)[0], np.concatenate([-VALUES, VALUES] * 200, axis=1))


def test_resize_with_both_scales_and_sizes_takes_the_sizes(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("data", [1, 1, 4, 4])
    scales = graph.weight(np.float32([1, 1, 2.2, 2.2]))
    resized = graph.node("Resize", data, graph.weight(np.float32([])), scales, graph.weight(np.array([1, 1, 8, 8])))
    assert read_onnx(graph.save(tmp_path / "net.onnx", resized)).outputs[0].shape == [1, 1, 8, 8]


@pytest.mark.parametrize("scales", [[], [1.0, 1.0, 2.0, 2.0], None], ids=["empty", "as sizes", "left out"])
@pytest.mark.parametrize("opset", [11, 13])
def test_resize_by_sizes_ignores_its_scales(tmp_path: Path, scales: list[float] | None, opset: int) -> None:
    graph = Graph(opset=opset)
    data = graph.input("data", [1, 1, 4, 4])
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
