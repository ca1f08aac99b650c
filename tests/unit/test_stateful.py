"""`edgedeploy run --state`: networks whose state is an output and the next input."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from support.commands import output_of, refusal
from support.networks import FEATURES, HIDDEN, streamed_lstm

from edgedeploy.errors import InputError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.runtime.stateful import check_states, inferences, parse_states

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
    ],
)
def test_malformed_states_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_states(options)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"x": "out"}, "there is no input 'x'"),
        ({"h": "x"}, "there is no output 'x'"),
        ({"h": "out"}, "output 'out' cannot be input 'h': 2 of float32 is not 3 of float32"),
        ({"n": "out"}, "output 'out' cannot be input 'n': 2 of float32 is not 2 of int32"),
    ],
)
def test_states_that_a_network_does_not_have_are_refused(states: dict[str, str], message: str) -> None:
    inputs = [spec("h", 3), spec("n", 2, dtype="int32")]
    with pytest.raises(InputError, match=message):
        check_states(states, inputs, [spec("out", 2)])


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
