"""Reading ONNX files: computed shapes, fixed inputs, used lengths, old habits of exporters, and hostile files."""

import ast
import gc
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from support.commands import output_of, put, refusal
from support.fuzzing import damaged, peak_of, survive
from support.networks import Graph, tiny
from support.onnx_operators import CASES
from support.tflite_networks import of_one

from edgedeploy.build_key import build_key
from edgedeploy.building import prepare
from edgedeploy.compile.ir.expressions import constant
from edgedeploy.errors import InputError, ModelError, OpenShapeError, UnsupportedError
from edgedeploy.frontends.format import Converted, ImportOptions
from edgedeploy.frontends.onnx import FORMAT, read_onnx
from edgedeploy.frontends.onnx import importer as onnx_importer
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.inputs import with_own_inputs
from edgedeploy.frontends.onnx.lengths import with_length
from edgedeploy.frontends.onnx.network import network_of
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

DATA = np.linspace(-2, 2, 2 * 3 * 5, dtype=np.float32).reshape(1, 2, 3, 5)


def model(nodes: str, inputs: str = "", **weights: Any) -> onnx.ModelProto:
    """A model with the input `data`, others, and the output `y`; nodes and inputs as `onnx.parser` reads them."""
    given = ", ".join(["float[1,2,3,5] data", *([inputs] if inputs else [])])
    made = parse_model(f'<ir_version: 8, opset_import: ["": 17]> graph ({given}) => (float[] y) {{ {nodes} }}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return made


WINDOW = """
    shape# = Shape(before)
    size# = Gather<axis = 0>(shape#, axis)
    minus# = Sub(four, size#)
    missing# = Mod(minus#, four)
    column# = Unsqueeze(missing#, axes)
    widths# = Concat<axis = 0>(three, zero, three, column#)
    padded# = Pad(before, widths#)
    end# = Unsqueeze(size#, axes)
    slice# = Slice(padded#, zero, end#, along)
    again# = Reshape(slice#, shape#)
    after = Tanh(again#)
"""


def windows(count: int) -> onnx.ModelProto:
    """As Swin pads to whole windows, `count` times: Shape, Gather, Mod, Unsqueeze, Pad, then a slice."""
    names = ["data", *(f"tanh{step}" for step in range(1, count)), "y"]
    nodes = [
        WINDOW.replace("#", str(step)).replace("before", names[step]).replace("after", names[step + 1])
        for step in range(count)
    ]
    return model("".join(nodes), axes=[0], zero=[0], three=[0, 0, 0], axis=3, four=4, along=[3])


def runs(network: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    """What onnxruntime gives; an input `x.length` is written as `x_length`."""
    named = {name.replace("_", "."): array for name, array in feeds.items()}
    return cpu_session(network.SerializeToString()).run(None, named)[0]


@pytest.mark.parametrize("count", [1, 60])
def test_shapes_that_hang_on_one_another_are_all_folded(count: int) -> None:
    expected = runs(windows(count), data=DATA)
    found = folded(windows(count))
    assert {each.op_type for each in found.graph.node} == {"Pad", "Slice", "Reshape", "Tanh"}
    np.testing.assert_array_equal(runs(found, data=DATA), expected)


def test_a_large_constant_behind_a_shape_is_kept_as_it_is() -> None:
    nodes = "shape = Shape(data) rows = Gather(table, shape) sum = ReduceSum<keepdims = 0>(rows) y = Add(data, sum)"
    built = model(nodes, table=np.arange(400_000, dtype=np.float32).reshape(-1, 5))
    expected = runs(built, data=DATA)
    found = folded(built)
    assert [each.op_type for each in found.graph.node] == ["Add"]
    assert [weight.name for weight in found.graph.initializer] == ["sum"]
    np.testing.assert_array_equal(runs(found, data=DATA), expected)


def test_parts_of_one_constant_are_computed_when_they_are_needed() -> None:
    nodes = """
        whole = Abs(table)
        shape, large = Split(whole, sizes)
        turned = Reshape(data, shape)
        rows = Gather(large, shape)
        factors = Cast<to = 1>(rows)
        shaped = Reshape(factors, column)
        y = Mul(turned, shaped)
    """
    built = model(nodes, table=[3, 5, 2, *range(5000)], sizes=[3, 5000], column=[3, 1, 1])
    expected = runs(built, data=DATA)
    found = folded(built)
    assert [each.op_type for each in found.graph.node] == ["Reshape", "Mul"]
    np.testing.assert_array_equal(runs(found, data=DATA), expected)


def test_places_of_constants_that_are_not_zero_are_constants() -> None:
    nodes = "places = NonZero(mask) row = Squeeze(places, first) y = Gather<axis = 3>(data, row)"
    found = folded(model(nodes, mask=np.float32([0, 1, 0, 1, 1]), first=[0]))
    assert [each.op_type for each in found.graph.node] == ["Gather"]
    np.testing.assert_array_equal(runs(found, data=DATA), DATA[..., [1, 3, 4]])


def decided(slow: str = "Exp") -> onnx.ModelProto:
    """A network whose branch `rate` decides, and whose padding `widths` does."""
    nodes = f"""
        is_fast = Equal(rate, fast)
        padded = Pad(data, widths)
        y = If(is_fast)<
            then_branch = quick () => (float[] negative) {{ negative = Neg(padded) }},
            else_branch = slow () => (float[] other) {{ ["else_branch/node"] other = {slow}(padded) }}
        >
    """
    return model(nodes, "int64 rate, int64[count] widths", fast=16000)


WIDTHS = [0, 0, 0, 1, 0, 0, 0, 2]


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "decided.onnx"
    onnx.save(decided(), path)
    return path


@pytest.mark.compiles
@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_branch_and_a_padding_follow_what_inputs_are_set_to(network: Path, rate: int) -> None:
    options = ImportOptions(values={"rate": rate, "widths": np.array(WIDTHS)})
    prepared = prepare(str(network), resolve("local"), options=options)
    assert [spec.name for spec in prepared.manifest.inputs] == ["data"]
    assert prepared.manifest.set_inputs == {"rate": rate, "widths": WIDTHS}
    session = prepared.open(1)
    expected = runs(decided(), data=DATA, rate=np.array(rate), widths=np.array(WIDTHS))
    np.testing.assert_allclose(session.run({"data": DATA})["y"], expected, rtol=1e-5)


def test_other_engines_are_given_the_network_without_the_inputs(network: Path) -> None:
    converted: Converted = FORMAT.convert([network], {}, ImportOptions(values={"rate": 8000, "widths": WIDTHS}))
    expected = np.exp(np.pad(DATA, ((0, 0), (0, 0), (0, 0), (1, 2))))
    np.testing.assert_allclose(runs(with_own_inputs(converted), data=DATA), expected, rtol=1e-5)


def test_builds_differ_in_what_inputs_are_set_to(network: Path) -> None:
    board = resolve("local").profile
    keys = {
        build_key(find_source(str(network), options=ImportOptions(values={"rate": rate, "widths": WIDTHS})), board)
        for rate in (8000, 16000)
    }
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"speed": 1}, "has no input 'speed' to set: its inputs: data, rate, widths"),
        ({"rate": 0.5}, "input 'rate' cannot be set to 0.5: it is of int64"),
        ({"rate": True}, "input 'rate' cannot be set to True: it is of int64"),
        ({"rate": "fast"}, "input 'rate' cannot be set to 'fast': it is of int64"),
        ({"rate": 2**63 + 5}, "input 'rate' cannot be set to 9223372036854775813: it is of int64"),
        ({"rate": [1, 2]}, "input 'rate' cannot be set to 2 values: its shape is that of one number"),
        ({"data": 1.0}, "input 'data' cannot be set to 1 values: its shape is 1,2,3,5"),
        ({"data": 1.0, "rate": 1, "widths": 1}, "would have no input left"),
    ],
)
def test_what_an_input_cannot_be_set_to_is_refused(network: Path, values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        find_source(str(network), options=ImportOptions(values=values)).read()
    assert message in str(caught.value)


@pytest.mark.parametrize("sizes", [[0], [-1, 0]])
def test_a_shape_of_no_values_holds_none(network: Path, sizes: list[int]) -> None:
    options = ImportOptions(values={"widths": WIDTHS})
    with pytest.raises(InputError, match="input 'widths' cannot be set to"):
        find_source(str(network), shapes={"widths": sizes}, options=options).read()


def test_a_branch_that_cannot_be_imported_names_the_input_that_decides_it(tmp_path: Path) -> None:
    onnx.save(decided("NonZero"), tmp_path / "net.onnx")
    with pytest.raises(ModelError, match="operator NonZero") as caught:
        find_source(str(tmp_path / "net.onnx"), options=ImportOptions(values={"widths": WIDTHS})).read()
    assert "if rate always has the same value, fix it: --set rate=VALUE" in caught.value.hints
    chosen = ImportOptions(values={"widths": WIDTHS, "rate": 16000})
    assert find_source(str(tmp_path / "net.onnx"), options=chosen).read().outputs[0].shape == [1, 2, 3, 8]


def test_widths_that_an_input_decides_name_the_input(network: Path) -> None:
    options = ImportOptions(values={"rate": 8000})
    with pytest.raises(ModelError, match="operator Pad") as caught:
        find_source(str(network), {"widths": [8]}, options=options).read()
    assert "if widths always has the same value, fix it: --set widths=VALUE" in caught.value.hints


def test_inputs_of_other_formats_cannot_be_set(tmp_path: Path) -> None:
    (tmp_path / "net.cfg").write_text("[net]\nwidth=4\nheight=4\nchannels=3\n[softmax]\n")
    options = ImportOptions(weights="random", values={"data": 1})
    with pytest.raises(InputError, match="that is possible in ONNX files, and its format is Darknet"):
        find_source(str(tmp_path / "net.cfg"), options=options)


@pytest.mark.compiles
def test_the_command_line_sets_inputs(command: Command, network: Path, tmp_path: Path) -> None:
    widths = ",".join(map(str, WIDTHS))
    setting = ("--set", "rate=16000", "--set", f"widths={widths}")
    built = json.loads(output_of(command, "build", network, *setting, "--output", tmp_path, "--json"))
    package = (built if isinstance(built, dict) else built[0])["package"]
    shown = json.loads(output_of(command, "package", "show", package, "--json"))
    assert shown["set_inputs"] == {"rate": 16000, "widths": WIDTHS}
    assert [spec["name"] for spec in shown["inputs"]] == ["data"]
    assert "rate = 16000" in output_of(command, "package", "show", package)


@pytest.mark.parametrize("option", ["rate", "rate=fast", "=3"])
def test_a_value_in_another_form_is_refused(command: Command, network: Path, option: str) -> None:
    assert f"'{option}' sets no input" in refusal(command, InputError.exit_code, "build", network, "--set", option)


# A network that is told how much of an axis counts gives what the network for that length gives.

LONGEST = 40
CHANNELS = 8

# What a recogniser of text does along its width: strided and padded convolutions, means of each channel, pooling,
# attention, softmax of each step.
RECOGNISER = """
<ir_version: 9, opset_import: ["": 17]>
recogniser (float[1,3,8,width] x) => (float[] y) <int64[3] flat = {0, 0, -1}> {
    c0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w0, bias)
    h0 = HardSwish(c0)
    c1 = Conv<group = 8, pads = [2, 2, 2, 2]>(h0, w1, bias)
    mean = GlobalAveragePool(c1)
    factors = Conv(mean, squeeze, bias)
    gate = Sigmoid(factors)
    gated = Mul(c1, gate)
    pooled = AveragePool<kernel_shape = [4, 2], strides = [4, 2]>(gated)
    c2 = Conv<pads = [0, 1, 0, 1]>(pooled, w2, bias)
    flattened = Reshape(c2, flat)
    tokens = Transpose<perm = [0, 2, 1]>(flattened)
    q = MatMul(tokens, query)
    k = MatMul(tokens, key)
    kt = Transpose<perm = [0, 2, 1]>(k)
    scores = MatMul(q, kt)
    shares = Softmax<axis = 2>(scores)
    attended = MatMul(shares, tokens)
    both = Concat<axis = 0>(tokens, attended)
    sum = ReduceMean<axes = [0], keepdims = 1>(both)
    logits = MatMul(sum, classes)
    y = Softmax<axis = 2>(logits)
}
"""


def recogniser() -> onnx.ModelProto:
    model, values = parse_model(RECOGNISER), np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "w0": values.normal(0, 0.4, (CHANNELS, 3, 3, 3)),
        "w1": values.normal(0, 0.4, (CHANNELS, 1, 5, 5)),
        "squeeze": values.normal(0, 0.5, (CHANNELS, CHANNELS, 1, 1)),
        "w2": values.normal(0, 0.3, (CHANNELS, CHANNELS, 1, 3)),
        "bias": values.normal(0, 1, CHANNELS),
        "query": values.normal(0, 0.5, (CHANNELS, CHANNELS)),
        "key": values.normal(0, 0.5, (CHANNELS, CHANNELS)),
        "classes": values.normal(0, 1, (CHANNELS, 11)),
    }
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def of_longest(model: onnx.ModelProto) -> onnx.ModelProto:
    fixed = onnx.ModelProto.FromString(model.SerializeToString())
    fixed.graph.input[0].type.tensor_type.shape.dim[3].dim_value = LONGEST
    return fixed


def image(width: int) -> np.ndarray:
    return np.random.default_rng(width).normal(0, 1, (1, 3, 8, width)).astype(np.float32)


@pytest.mark.parametrize("length", [4, 17, 18, 19, 20, 39, 40])
def test_outputs_are_those_of_the_network_for_that_length_and_then_zeros(length: int) -> None:
    model = recogniser()
    told = with_length(of_longest(model), "x", 3)
    given = image(LONGEST)  # whatever is beyond the end
    wanted = runs(model, x=given[..., :length])
    found = runs(told, x=given, x_length=np.array([length]))
    steps = wanted.shape[1]
    assert found.shape == (1, LONGEST // 4, 11)
    assert found[:, :steps] == pytest.approx(wanted, abs=1e-6)
    assert not found[:, steps:].any()
    if length < LONGEST - 8:
        assert abs(runs(model, x=given)[:, :steps] - wanted).max() > 1e-2, "the length decides"


def test_an_output_may_be_the_input_of_a_layer_that_pads() -> None:
    model, given = recogniser(), image(LONGEST)
    model.graph.output.append(helper.make_tensor_value_info("h0", TensorProto.FLOAT, None))
    wanted = runs(model, x=given[..., :19])
    found = runs(with_length(of_longest(model), "x", 3), x=given, x_length=np.array([19]))
    assert found[:, : wanted.shape[1]] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.compiles
def test_one_package_runs_with_all_lengths(tmp_path: Path) -> None:
    model, file = recogniser(), tmp_path / "recogniser.onnx"
    onnx.save(model, file)
    options = ImportOptions(lengths={"x": 3})
    prepared = prepare(str(file), resolve("local"), input_shapes={"x": [1, 3, 8, LONGEST]}, options=options)
    assert [(each.name, each.dtype, each.shape, each.below) for each in prepared.manifest.inputs] == [
        ("x", "float32", [1, 3, 8, LONGEST], None),
        ("x.length", "int64", [1], LONGEST + 1),
    ]
    session = prepared.open(1)
    for length in (6, 23, LONGEST):
        given = image(LONGEST)
        wanted = runs(model, x=given[..., :length])
        [found] = session.run({"x": given, "x.length": np.array([length])}).values()
        assert found[:, : wanted.shape[1]] == pytest.approx(wanted, abs=1e-4)
        assert not found[:, wanted.shape[1] :].any()
    for no_length in (-1, LONGEST + 1, 1 << 40):
        [found] = session.run({"x": image(LONGEST), "x.length": np.array([no_length])}).values()
        assert not found.any()


def changed(name: str, **attributes: object) -> onnx.ModelProto:
    model = of_longest(recogniser())
    [node] = [each for each in model.graph.node if each.output[0] == name]
    for key, value in attributes.items():
        for old in [each for each in node.attribute if each.name == key]:
            node.attribute.remove(old)
        node.attribute.append(helper.make_attribute(key, value))
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (changed("c0", auto_pad="SAME_UPPER", pads=[0, 0, 0, 0]), r"'c0' \(Conv\)"),
        (changed("pooled", pads=[0, 1, 0, 1]), r"'pooled' \(AveragePool\)"),
        (changed("shares", axis=1), r"'shares' \(Softmax\)"),
        (changed("both", axis=1), r"'both' \(Concat\)"),
    ],
    ids=["padding depends on the length", "means of padding", "softmax along another axis", "joined along it"],
)
def test_what_no_length_can_be_given_for_names_the_node(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        with_length(model, "x", 3)


def test_a_weight_for_each_place_has_no_length() -> None:
    model = of_longest(recogniser())
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, LONGEST // 4, 1), np.float32), "places"))
    model.graph.node[-2].input[0] = "placed"
    model.graph.node.append(helper.make_node("Add", ["sum", "places"], ["placed"]))
    with pytest.raises(UnsupportedError, match=r"'placed' \(Add\)"):
        with_length(model, "x", 3)


def test_graphs_inside_of_a_node_have_no_length() -> None:
    model = of_longest(recogniser())
    outputs = [helper.make_tensor_value_info("read", TensorProto.FLOAT, None)]
    branch = helper.make_graph([helper.make_node("Identity", ["sum"], ["read"])], "branch", [], outputs)
    model.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    model.graph.node.insert(-2, helper.make_node("If", ["which"], ["chosen"], then_branch=branch, else_branch=branch))
    model.graph.node[-2].input[0] = "chosen"
    with pytest.raises(UnsupportedError, match=r"'chosen' \(If\)"):
        with_length(model, "x", 3)


@pytest.mark.parametrize(("lengths", "why"), [({"z": 3}, "there is no such input"), ({"x": 4}, "it has 4 axes")])
def test_a_length_of_what_is_not_there_names_the_inputs(lengths: dict[str, int], why: str, tmp_path: Path) -> None:
    onnx.save(of_longest(recogniser()), tmp_path / "recogniser.onnx")
    with pytest.raises(InputError, match="cannot have a length") as raised:
        FORMAT.read([tmp_path / "recogniser.onnx"], {}, ImportOptions(lengths=lengths))
    assert raised.value.why == why
    assert list(raised.value.hints) == ["inputs: x"]


def test_formats_that_fix_their_shapes_take_no_lengths(tmp_path: Path) -> None:
    file = put(tmp_path / "net.tflite", of_one("TANH", [(1, 4)], [(1, 4)]))
    with pytest.raises(InputError, match="takes inputs of one length"):
        find_source(str(file), options=ImportOptions(lengths={"x": 3}))


# Names, free dimensions, old habits of exporters, what cannot be imported, and hostile files.


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
