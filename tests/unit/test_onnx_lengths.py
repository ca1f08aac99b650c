"""A network that is told how much of an axis counts gives what the network for that length gives."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from support.tflite_networks import of_one

from edgedeploy.building import prepare
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.frontends.onnx import FORMAT
from edgedeploy.frontends.onnx.lengths import with_length
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

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


def runs(model: onnx.ModelProto, **tensors: np.ndarray) -> np.ndarray:
    session = cpu_session(model.SerializeToString())
    return session.run(None, {name.replace("_", "."): array for name, array in tensors.items()})[0]


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
    file = tmp_path / "net.tflite"
    file.write_bytes(of_one("TANH", [(1, 4)], [(1, 4)]))
    with pytest.raises(InputError, match="takes inputs of one length"):
        find_source(str(file), options=ImportOptions(lengths={"x": 3}))
