"""Other engines' own wheels for ARM beside edgedeploy's code, on the same core, predicted from what they execute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import messages_of, output_of
from support.networks import Graph
from support.predictions import require_predictions

from edgedeploy.benchmarking.wheels import site
from edgedeploy.errors import DownloadError, InputError, UnsupportedError
from edgedeploy.predicting.peers import PeerResults
from edgedeploy.predicting.recording import machine
from edgedeploy.target.board import load_board

# Slow, as every test that needs an agent for another architecture.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_needs_virtual_boards")]

PIXELS, CHANNELS = 28 * 28, 64


@pytest.fixture(params=["rpi4", "rpi5"])
def board(request: pytest.FixtureRequest) -> str:
    return require_predictions(request.param)


def network(path: Path) -> Path:
    graph = Graph()
    data = graph.input("data", [1, CHANNELS, 28, 28])
    return graph.save(path, graph.node("Relu", graph.conv(data, CHANNELS, CHANNELS, 1)))


def test_the_machine_says_what_the_board_is(tmp_path: Path, board: str) -> None:
    profile = load_board(board)
    root = machine(profile, profile.core_model, tmp_path)
    part = {"rpi4": "0xd08", "rpi5": "0xd0b"}[board]
    assert (root / "proc/cpuinfo").read_text().count(part) == profile.cores
    caches = root / "sys/devices/system/cpu/cpu0/cache"
    sizes = [(caches / f"index{index}" / "size").read_text().strip() for index in range(len(list(caches.iterdir())))]
    assert sizes == {"rpi4": ["32K", "1024K"], "rpi5": ["64K", "512K", "2048K"]}[board]
    assert (root / "usr/bin/python3").exists()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "results" / "other-engines.jsonl"
    monkeypatch.setattr(PeerResults, "of_user", lambda: PeerResults(path))
    return path


def test_onnxruntime_agrees_and_is_predicted_once(command: Command, tmp_path: Path, board: str, results: Path) -> None:
    path = network(tmp_path / "net.onnx")
    options = ["--board", board, "--against", "onnxruntime", "--json"]
    said = json.loads(output_of(command, "predict", path, *options))
    peer: dict[str, Any]
    [peer] = said["against"]
    if "pip" in peer.get("left_out", ""):
        pytest.skip(peer["left_out"])
    assert peer["engine"] == "onnxruntime"
    assert len(peer["wheel_sha256"]) == 64
    assert peer["difference_of_outputs"] < 1e-4
    assert peer["ms"] == pytest.approx(peer["cycles"] / said["clock_mhz"] / 1e3)
    bound = PIXELS * CHANNELS * CHANNELS / {"rpi4": 4, "rpi5": 8}[board]
    assert bound < said["cycles"] < 2 * bound
    assert bound < peer["cycles"] < 4 * bound
    kept = results.read_text()
    assert json.loads(output_of(command, "predict", path, *options))["against"] == [peer]
    assert results.read_text() == kept


def test_engines_that_cannot_be_given_a_network_say_why(command: Command, tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx")
    out = output_of(command, "predict", path, "--board", "rpi4", "--against", "litert")
    assert "litert is left out: it reads .tflite files" in out


def test_engines_that_are_not_predicted_are_refused(command: Command, tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx")
    options = ("--board", "rpi4", "--against")
    err = messages_of(command, UnsupportedError.exit_code, "predict", path, *options, "openvino")
    assert "there are onnxruntime, ncnn, mnn, litert" in err
    err = messages_of(command, InputError.exit_code, "predict", "net.tar.gz", *options, "ncnn")
    assert "--against needs a network" in err


def test_a_wheel_that_there_is_not_is_told() -> None:
    with pytest.raises(DownloadError, match=r"no wheel of numpy 0\.0\.1 .* is known: those of"):
        site("numpy", "0.0.1", "aarch64", "3.11")
