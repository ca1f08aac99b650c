"""LSTM, GRU and RNN of ONNX give onnxruntime's values; states that are an output and the next input."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper
from support.agreement import computed, network_of, random_inputs, results_of
from support.commands import output_of, refusal
from support.networks import FEATURES, HIDDEN, Graph, streamed_lstm, unrolled_lstm

from edgedeploy.compile.operators.recurrence import Activation, Recurrence
from edgedeploy.compile.operators.recurrent_loop import LoopTile, pack, vectors
from edgedeploy.compile.output.explain import functions
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import InputError, ModelError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.runtime.stateful import check_states, inferences, parse_states
from edgedeploy.target.board import load_board

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SETTINGS = {"LSTM": 3, "GRU": 2, "RNN": 1}  # activations of one direction


@dataclass(frozen=True)
class Layer:
    """A node with seeded weights; what it is given beyond them, and its attributes."""

    operator: str
    hidden: int = 20
    steps: int = 7
    batch: int = 1
    features: int = 5
    bias: bool = True
    states: bool = True
    peepholes: bool = False
    lengths: tuple[int, ...] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def add(self, graph: Graph, name: str) -> list[str]:
        directions, rows = self.directions, GATES[self.operator] * self.hidden
        lstm, first = self.operator == "LSTM", 0 if self.attributes.get("layout") else 1
        state = [self.batch, directions, self.hidden] if not first else [directions, self.batch, self.hidden]
        order = [self.steps, self.batch] if first else [self.batch, self.steps]
        scale = 1 / np.sqrt(self.hidden)
        inputs = [
            graph.input(f"{name}/data", [*order, self.features]),
            graph.normal(directions, rows, self.features),
            graph.normal(directions, rows, self.hidden, scale=scale),
            graph.normal(directions, 2 * rows) if self.bias else "",
            graph.weight(np.array(self.lengths, np.int32)) if self.lengths else "",
            *(graph.input(f"{name}/{each}", state) if self.states else "" for each in ("hidden", "cell")[: 1 + lstm]),
            *([graph.normal(directions, 3 * self.hidden)] if self.peepholes else []),
        ]
        node = graph.node(self.operator, *inputs, outputs=2 + lstm, hidden_size=self.hidden, **self.attributes)
        return [node, *(f"{node}_{index}" for index in range(1, 2 + lstm))]

    @property
    def directions(self) -> int:
        return 2 if self.attributes.get("direction") == "bidirectional" else 1


def network(*layers: Layer) -> onnx.ModelProto:
    graph = Graph(opset=14)
    names = [name for index, layer in enumerate(layers) for name in layer.add(graph, str(index))]
    return graph.model(*names)


def expected(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Seeded inputs, weights among them being small, and what onnxruntime makes of them."""
    session = cpu_session(model.SerializeToString())
    random = np.random.default_rng(0)
    inputs = {
        each.name: (random.standard_normal(each.shape) * (0.2 if each.name.startswith("w") else 1)).astype(np.float32)
        for each in session.get_inputs()
    }
    return inputs, session.run(None, inputs)


def compiled(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    found = network_of(model)
    return computed(found, {spec.name: inputs[spec.name] for spec in found.inputs})


def assert_equal(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted]
    for array, reference in zip(found, wanted, strict=True):
        np.testing.assert_allclose(array, reference, rtol=0, atol=2e-6 * max(1, np.abs(reference).max()))


def assert_agrees(model: onnx.ModelProto) -> None:
    inputs, wanted = expected(model)
    assert_equal(compiled(model, inputs), wanted)


BOTH, BACK = {"direction": "bidirectional"}, {"direction": "reverse"}

LAYERS = {
    "LSTM": [
        Layer("LSTM", hidden=37, attributes=BACK),  # whole tiles, and vectors of 4 and of 1
        Layer("LSTM", batch=3, peepholes=True, attributes=BOTH),
        Layer("LSTM", batch=3, lengths=(7, 2, 5), bias=False, states=False, attributes=BOTH),
        Layer("LSTM", peepholes=True, attributes={"clip": 0.3, "input_forget": 1}),
        Layer("LSTM", hidden=64, attributes={"activations": ["HardSigmoid", "Softsign", "Tanh"]}),
        Layer("LSTM", attributes={**BOTH, "activations": ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Tanh", "Tanh"]}),
    ],
    "GRU": [
        Layer("GRU", hidden=37, attributes=BACK),
        Layer("GRU", batch=3, attributes={**BOTH, "linear_before_reset": 1}),
        Layer("GRU", batch=2, lengths=(3, 6), attributes={**BOTH, "linear_before_reset": 1, "clip": 0.3}),
        Layer("GRU", bias=False, states=False, lengths=(4,)),
        Layer("GRU", bias=False, hidden=64, attributes={"linear_before_reset": 1}),
    ],
    "RNN": [
        Layer("RNN", hidden=37, attributes=BACK),
        Layer("RNN", batch=4, hidden=150, attributes=BOTH),
        Layer("RNN", batch=2, lengths=(7, 1), attributes={**BOTH, "activations": ["Relu", "Tanh"], "clip": 2.0}),
        Layer("RNN", bias=False, states=False, attributes={"activations": ["Elu"], "activation_alpha": [0.5]}),
    ],
}


@pytest.mark.compiles
@pytest.mark.parametrize("operator", LAYERS)
def test_values_shapes_and_dtypes_are_onnxruntimes(operator: str) -> None:
    assert_agrees(network(*LAYERS[operator]))


WITH_NUMBERS = {"Affine": (0.4, 0.2), "LeakyRelu": (0.1, 0.0), "ThresholdedRelu": (0.3, 0.0)}
WITH_NUMBERS |= {"ScaledTanh": (0.8, 1.2), "HardSigmoid": (0.3, 0.4), "Elu": (0.7, 0.0)}


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("operator", LAYERS)
@pytest.mark.parametrize("numbers", [True, False], ids=["with numbers", "defaults"])
def test_every_activation_is_onnxruntimes(operator: str, numbers: bool) -> None:
    layers = []
    for name in ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *WITH_NUMBERS):
        given = WITH_NUMBERS.get(name) if numbers else None
        settings: dict[str, Any] = {"activations": [name, *["Tanh", "Tanh"][: SETTINGS[operator] - 1]]}
        if given:
            settings |= {"activation_alpha": [given[0]], "activation_beta": [given[1]]}
        layers.append(Layer(operator, steps=3, attributes=settings))
    assert_agrees(network(*layers))


@pytest.mark.compiles
def test_weights_may_be_computed() -> None:
    model = network(Layer("GRU"))
    weights = {weight.name: onnx.numpy_helper.to_array(weight) for weight in model.graph.initializer}
    state = next(name for name, array in weights.items() if array.shape == (1, 60, 20))
    model.graph.input.append(helper.make_tensor_value_info(state, TensorProto.FLOAT, [1, 60, 20]))
    del model.graph.initializer[[*weights].index(state)]
    assert_agrees(model)


@pytest.mark.compiles
def test_sequences_may_begin_with_the_batch_though_onnxruntime_refuses_that() -> None:
    by_time, by_batch = (
        network(*(Layer(operator, batch=3, attributes={**BOTH, "layout": layout}) for operator in ("LSTM", "GRU")))
        for layout in (0, 1)
    )
    inputs, wanted = expected(by_time)
    turned = {name: array.swapaxes(0, 1).copy() for name, array in inputs.items()}
    found = compiled(by_batch, turned)
    first_axes = [(2, 0, 1, 3) if array.ndim == 4 else (1, 0, 2) for array in wanted]
    assert_equal(found, [array.transpose(axes) for array, axes in zip(wanted, first_axes, strict=True)])


def test_code_does_not_grow_with_the_length_of_sequences() -> None:
    texts = []
    for steps in (50, 5000):
        lowered = lower_network(network_of(network(Layer("LSTM", steps=steps, states=False))), load_board("rpi4"))
        [function] = [entry.function for entry in lowered.functions.values() if entry.template == "recurrence"]
        texts.append(re.sub(r"\d+", "", function.script()))
    assert texts[0] == texts[1]


def test_products_with_the_inputs_of_all_steps_are_one() -> None:
    lowered = lower_network(network_of(network(Layer("LSTM", steps=30, attributes=BOTH))), load_board("rpi4"))
    [product] = [entry for entry in lowered.functions.values() if entry.template == "matmul"]
    [loop] = [entry for entry in lowered.functions.values() if entry.template == "recurrence"]
    assert loop.packing is not None
    assert loop.operations == 2 * 30 * 2 * 4 * 20 * 20
    assert product.packing is not None


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "sideways"}, "its direction is 'sideways'"),
        ({"activations": ["Sigmoid", "Tanh", "Cosine"]}, "its activations are sigmoid, tanh, cosine"),
        ({"activations": ["Sigmoid"]}, "3 are needed for each direction"),
        (BOTH, "do not fit"),
    ],
)
def test_a_malformed_node_is_refused(attributes: dict[str, Any], message: str) -> None:
    model = network(Layer("LSTM"))
    [node] = model.graph.node
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    del model.graph.value_info[:]
    with pytest.raises(ModelError, match=message):
        network_of(model)


@pytest.mark.parametrize(("place", "shape"), [(5, (1, 1, 19)), (4, (2,)), (3, (1, 100)), (7, (1, 50))])
def test_tensors_of_other_shapes_are_refused(place: int, shape: tuple[int, ...]) -> None:
    model = network(Layer("LSTM", states=False, lengths=(3,), peepholes=True))
    [node] = model.graph.node
    node.input[place] = "other"
    other = np.ones(shape, np.int32 if place == 4 else np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(other, "other"))
    del model.graph.value_info[:]
    with pytest.raises(ModelError, match=r"cannot be imported: node .*lstm"):
        network_of(model)


@pytest.mark.parametrize("lengths", [(8,), (-1,)])
def test_lengths_beyond_a_sequence_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="its sequences claim"):
        network_of(network(Layer("RNN", lengths=lengths)))


def test_lengths_that_are_computed_are_refused() -> None:
    model = network(Layer("RNN", lengths=(3,)))
    [lengths] = [weight for weight in model.graph.initializer if weight.data_type == TensorProto.INT32]
    model.graph.input.append(helper.make_tensor_value_info(lengths.name, TensorProto.INT32, [1]))
    model.graph.initializer.remove(lengths)
    with pytest.raises(ModelError, match="the lengths of its sequences depend on the network's input"):
        network_of(model)


def test_packed_weights_lie_in_the_order_in_which_tiles_read_them() -> None:
    activations = ((Activation(name="sigmoid"), Activation(name="tanh")),)
    layer = Recurrence(cell="gru", steps=1, batch=1, hidden=5, backwards=(False,), activations=activations)
    weights = np.arange(5 * 3 * 5).reshape(1, 5, 3, 5)
    packed = pack(layer, LoopTile(units=4, lanes=4), weights)[0]
    # The gates before the reset first: for each term, four units of each, then the unit that is left over.
    np.testing.assert_array_equal(packed[:8], [*weights[0, 0, 0, :4], *weights[0, 0, 1, :4]])
    np.testing.assert_array_equal(packed[40:44], [*weights[0, 0, :2, 4], *weights[0, 1, :2, 4]])
    np.testing.assert_array_equal(packed[50:54], weights[0, 0, 2, :4])
    assert sorted(packed) == sorted(weights.ravel())


@pytest.mark.parametrize(
    ("width", "found"), [(16, [(0, 8), (8, 8)]), (13, [(0, 8), (8, 4), (12, 1)]), (3, [(0, 2), (2, 1)])]
)
def test_what_whole_vectors_leave_over_is_done_by_shorter_ones(width: int, found: list[tuple[int, int]]) -> None:
    assert vectors(width, 8) == found


# LSTMs that a file has step by step run as loops.

STEPS, UNITS = 5, 8


def unrolled_in(graph: Graph, batch: int, **others: int) -> tuple[list[str], list[str]]:
    shape = STEPS, batch, FEATURES
    return unrolled_lstm(graph, graph.input("data", [*shape]), shape, UNITS, **others)


def templates(graph: Graph, *outputs: str) -> list[str | None]:
    """Of all functions, once their results were compared with onnxruntime's."""
    network = network_of(graph, *outputs)
    compiled = compile_network(network, load_board("local"))
    for found, wanted in results_of(compiled, network, random_inputs(network, seed=2)):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    return [record["template"] for record in functions(compiled)]


@pytest.mark.compiles
@pytest.mark.parametrize("batch", [1, 3])
def test_an_unrolled_lstm_is_one_loop(batch: int) -> None:
    graph = Graph()
    states, cells = unrolled_in(graph, batch)
    every = graph.node("Concat", *states, axis=0)
    found = templates(graph, every, states[-1], cells[-1], states[2])
    assert found.count("recurrence") == found.count("matmul") == 1


@pytest.mark.compiles
def test_states_behind_a_constant_are_concatenated_with_it() -> None:
    graph = Graph()
    states, _ = unrolled_in(graph, 1)
    every = graph.node("Concat", graph.normal(1, 1, UNITS), *states, axis=0)
    assert "recurrence" in templates(graph, every)


@pytest.mark.compiles
def test_cells_in_between_are_computed_beside_the_loop() -> None:
    graph = Graph()
    states, cells = unrolled_in(graph, 2)
    assert "recurrence" in templates(graph, states[-1], cells[1])


@pytest.mark.compiles
@pytest.mark.parametrize("case", [{"odd_step": 3}, {"count": STEPS - 1}], ids=["other weights", "a part of the steps"])
def test_what_is_no_lstm_over_all_steps_stays_as_it_was(case: dict[str, int]) -> None:
    graph = Graph()
    states, _ = unrolled_in(graph, 1, **case)
    assert "recurrence" not in templates(graph, states[-1])


# `edgedeploy run --state`: networks whose state is an output and the next input.

STATES = ("--state", "hn=h", "--state", "cn=c")


def by_hand(path: Path, frames: np.ndarray, h: np.ndarray | None = None) -> dict[str, np.ndarray]:
    session = cpu_session(path)
    zeros = np.zeros((1, 1, HIDDEN), np.float32)
    states, found = {"h": zeros if h is None else h, "c": zeros}, []
    for frame in frames:
        found.append(dict(zip(("score", "hn", "cn"), session.run(None, {"frame": frame, **states}), strict=True)))
        states = {"h": found[-1]["hn"], "c": found[-1]["cn"]}
    return {name: np.stack([each[name] for each in found]) for name in found[0]}


@pytest.mark.compiles
def test_a_streamed_lstm_gives_what_onnxruntime_gives_step_by_step(command: Command, tmp_path: Path) -> None:
    streamed = streamed_lstm(tmp_path / "vad.onnx")
    random = np.random.default_rng(0)
    frames = random.standard_normal((5, 1, 1, FEATURES)).astype(np.float32)
    begun = random.standard_normal((1, 1, HIDDEN)).astype(np.float32)
    np.savez("frames.npz", frame=frames)
    out = output_of(command, "run", streamed, "-i", "frames.npz", "-o", "out.npz", *STATES)
    assert "5 inferences, each with the states of the one before" in out
    with np.load("out.npz") as written:
        for name, wanted in by_hand(streamed, frames).items():
            assert (written[name].shape, written[name].dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(written[name], wanted, atol=1e-6)
        assert np.ptp(written["score"]) > 1e-3
    # The same frame again and again, from a state that is given.
    np.savez("frame.npz", frame=frames[0], h=begun)
    options = ("-o", "out.npz", *STATES, "--steps", "3", "--json", "--repeat", "1")
    out = output_of(command, "run", streamed, "-i", "frame.npz", *options)
    assert json.loads(out)["inferences"] == 3
    with np.load("out.npz") as written:
        for name, wanted in by_hand(streamed, np.stack([frames[0]] * 3), begun).items():
            np.testing.assert_allclose(written[name], wanted, atol=1e-6)
    for options, message in (
        (("--state", "hn"), "'hn' is not a state"),
        (("--state", "hx=h"), "there is no output 'hx'"),
        (("--state", "score=h"), "output 'score' cannot be input 'h'"),
        (("--steps", "3"), "--steps goes with --state"),
        ((*STATES, "--steps", "4", "-i", "frames.npz"), "the number of inferences is not clear"),
    ):
        assert message in refusal(command, 7, "run", streamed, *options)


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=list(shape), dtype=dtype)


def test_states_are_written_as_output_and_input() -> None:
    assert parse_states(["hn=h", "a=b=c"]) == {"h": "hn", "b=c": "a"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["h"], "'h' is not a state"),
        (["=h"], "'=h' is not a state"),
        (["a=h", "b=h"], "input 'h' is the state of two outputs"),
        (["out=x"], "there is no input 'x'"),
        (["x=h"], "there is no output 'x'"),
        (["out=h"], "output 'out' cannot be input 'h': 2 of float32 is not 3 of float32"),
        (["out=n"], "output 'out' cannot be input 'n': 2 of float32 is not 2 of int32"),
    ],
)
def test_states_that_are_malformed_or_not_the_networks_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_states(parse_states(options), [spec("h", 3), spec("n", 2, dtype="int32")], [spec("out", 2)])


INPUTS = [spec("frame", 2), spec("rate"), spec("h", 3)]


def test_inputs_with_a_further_axis_have_a_value_for_each_inference() -> None:
    frames = np.arange(6, dtype=np.float32).reshape(3, 2)
    given = inferences({"frame": frames, "rate": np.float32(8)}, INPUTS, {"h": "hn"})
    assert [each["frame"].tolist() for each in given] == frames.tolist()
    assert [each["rate"] for each in given] == [8, 8, 8]
    np.testing.assert_array_equal(given[0]["h"], np.zeros(3, np.float32))
    assert all("h" not in each for each in given[1:])


def test_a_state_that_is_given_comes_first() -> None:
    begun = np.ones(3, np.float32)
    one, two = inferences({"frame": np.zeros(2), "rate": np.zeros(()), "h": begun}, INPUTS, {"h": "hn"}, steps=2)
    np.testing.assert_array_equal(one["h"], begun)
    assert "h" not in two


@pytest.mark.parametrize("steps", [None, 2])
def test_inputs_of_different_numbers_of_values_are_refused(steps: int | None) -> None:
    tensors = {"frame": np.zeros((3, 2)), "rate": np.zeros(4 if steps is None else ())}
    with pytest.raises(InputError, match="the number of inferences is not clear"):
        inferences(tensors, INPUTS, {"h": "hn"}, steps)
