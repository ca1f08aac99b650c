"""ONNX graphs that compute their shapes; inputs that are fixed, and those of which the user says how much counts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from support.commands import output_of, put, refusal
from support.tflite_networks import of_one

from edgedeploy.build_key import build_key
from edgedeploy.building import prepare
from edgedeploy.errors import InputError, ModelError, UnsupportedError
from edgedeploy.frontends.format import Converted, ImportOptions
from edgedeploy.frontends.onnx import FORMAT
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.inputs import with_own_inputs
from edgedeploy.frontends.onnx.lengths import with_length
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
