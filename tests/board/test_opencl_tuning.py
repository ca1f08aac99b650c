"""`edgedeploy tune` for OpenCL devices: PoCL over RPC, real measurements, and candidates that a device refuses."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support import kernels
from support.commands import notes_of, output_of, put, refused
from support.networks import begun
from support.opencl_devices import ALL_THREADS

from edgedeploy.errors import InputError, NoOpenCLError
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, tracker
from edgedeploy.target.board import load_board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.measuring import Measurer, Outcome
from edgedeploy.tuning.remote import Evaluation

pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")

PROFILE = (Path(__file__).parents[2] / "boards" / "local-opencl.yaml").read_text()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PoCL's device with threads: not the first one, and threads do not lock each other out there."""
    return put(tmp_path_factory.mktemp("boards") / "pocl.yaml", PROFILE.replace('name: ""', f"name: {ALL_THREADS}"))


@pytest.fixture
def network(opencl: Any, tmp_path: Path) -> Path:
    """Four tasks: a first convolution, a 3x3, a depthwise one and a dense layer; and a function that is none."""
    graph, value = begun(1, 3, 16, 16)
    value = graph.node("Relu", graph.conv(value, 3, 16, 3, pads=[1, 1, 1, 1]))
    value = graph.node("Relu", graph.conv(value, 16, 32, 3, pads=[1, 1, 1, 1]))
    value = graph.node("Relu", graph.conv(value, 32, 32, 3, group=32, pads=[1, 1, 1, 1]))
    value = graph.node("Flatten", graph.node("GlobalAveragePool", value))
    return graph.save(tmp_path / "four.onnx", graph.node("MatMul", value, graph.normal(32, 24)))


def events(output: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, output.splitlines()) if event["event"] == kind]


@pytest.mark.slow
def test_a_build_uses_what_tuning_found(network: Path, board: Path, board_command: Command, tmp_path: Path) -> None:
    tune = ("tune", network, "--board", board, "--tasks", "0", "--trials", 3, "--no-compare", "--json")
    trials = [event["trial"] for event in events(output_of(board_command, *tune), "measured")]
    assert [trial["number"] for trial in trials] == [0, 1, 2]
    assert [trial["failure"] for trial in trials] == [None] * 3
    assert {trial["configuration"]["form"] for trial in trials} == {"work-item"}
    # Which compares it with the reference, on the device.
    messages = notes_of(board_command, "build", network, "--board", board, "-o", tmp_path / "out")
    assert "1 of 5 functions are as tuned" in messages


@pytest.mark.slow
def test_two_tasks_of_eight_trials_are_compared_alone_and_in_the_network(
    network: Path, board: Path, board_command: Command, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    tune = ("tune", network, "--board", board, "--tasks", "0-1", "-o", records, "--json")
    output = output_of(board_command, *tune, "--trials", 8)
    trials = [event["trial"] for event in events(output, "measured")]
    assert [trial["number"] for trial in trials] == [*range(8), *range(8)]
    assert [trial["failure"] for trial in trials] == [None] * 16
    [ended] = events(output, "run ended")
    assert len(ended["results"]) == 2
    assert all(0 < result["best_ms"] <= result["default_ms"] for result in ended["results"])
    assert ended["before_ms"] > 0
    assert ended["after_ms"] > 0
    output = output_of(board_command, *tune, "--trials", 10, "--no-compare")
    assert [event["trial"]["number"] for event in events(output, "measured")] == [8, 9, 8, 9]
    build = ("build", network, "--board", board, "-o", tmp_path / "out", "--tuning-records", records)
    assert re.search("2 of [0-9]+ functions are as tuned", notes_of(board_command, *build))
    output_of(board_command, "tune", "report", records, "-o", tmp_path / "report.html")
    assert "peak is not known: networks run on a device other than the CPU" in (tmp_path / "report.html").read_text()


@pytest.fixture(scope="module")
def farm(board: Path) -> Iterator[Endpoint]:
    with tracker() as endpoint, BoardServer(None, load_board(str(board)), endpoint, "pocl"):
        yield endpoint


@pytest.fixture(scope="module")
def builder(board: Path) -> Iterator[Builder]:
    with Builder(load_board(str(board)), workers=2) as builder:
        yield builder


def measured(farm: Endpoint, builder: Builder, functions: list[Any], evaluation: Evaluation) -> list[Outcome]:
    with Measurer(farm, "pocl", evaluation) as measurer:
        return measurer.measure(builder.build(functions))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "failure", "why"),
    [
        (kernels.in_a_group_too_large, "error", "asks for work-groups of 65536 work-items"),
        (kernels.refused_by_the_driver, "error", "the kernels do not compile for .*no_such_function"),
        (kernels.endless_on_device, "timeout", "it took longer than 6 s"),
    ],
    ids=["in_a_group_too_large", "refused_by_the_driver", "endless"],
)
@pytest.mark.usefixtures("opencl")
def test_what_a_device_does_not_do_fails_with_its_reason_and_the_others_are_measured(
    farm: Endpoint, builder: Builder, function: Any, failure: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenCL, "compiling_s", 4)
    evaluation = Evaluation(timeout_s=2, device=OpenCL(name=ALL_THREADS))
    outcomes = measured(farm, builder, [kernels.doubling_on_device, function, kernels.doubling_on_device], evaluation)
    assert [outcome.failure for outcome in outcomes] == [None, failure, None]
    assert re.search(why, str(outcomes[1].error))
    assert min(outcomes[2].seconds) > 0


@pytest.mark.slow
def test_a_server_without_the_profiles_device_is_an_error(opencl: Any, farm: Endpoint, builder: Builder) -> None:
    with pytest.raises(NoOpenCLError, match=r"no OpenCL device here has 'Mali' in its name: there is"):
        measured(farm, builder, [kernels.doubling_on_device], Evaluation(device=OpenCL(name="Mali")))


def test_a_missing_device_ends_tuning(opencl: Any, network: Path, board_command: Command, tmp_path: Path) -> None:
    tune = ("tune", network, "--board", "local-opencl", "--device", "Mali", "--trials", 1, "-o", tmp_path / "records")
    assert "no OpenCL device here has 'Mali' in its name" in refused(board_command, NoOpenCLError.exit_code, *tune)


def test_a_network_whose_layers_the_cpu_does_has_nothing_to_tune(board_command: Command, tmp_path: Path) -> None:
    graph, data = begun(1, 16)
    value = graph.node("MatMul", data, graph.normal(16, 8))
    path = graph.save(tmp_path / "small.onnx", graph.node("Softmax", value, axis=1))
    tune = ("tune", path, "--board", "local-opencl", "-o", tmp_path / "records")
    why = "nothing to tune: the board's device runs no convolution and no dense layer of it"
    assert why in refused(board_command, InputError.exit_code, *tune)
