"""Cycles on Cortex-A72 and Cortex-A76, predicted from what the boards' own code, and other engines' wheels, execute."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import json_of, output_of, refused
from support.cpus import require_predictions
from support.networks import begun
from support.quantised_networks import FORMS, quantise, random_samples

from edgedeploy.benchmarking.wheels import Target, site
from edgedeploy.errors import DownloadError, InputError, UnsupportedError
from edgedeploy.predicting.peers import PeerResults
from edgedeploy.predicting.recording import machine
from edgedeploy.target.board import load_board

# Slow, as every test that needs an agent for another architecture.
pytestmark = pytest.mark.slow

SIZE, CHANNELS = 24, 64
# Of a 1x1 convolution and a 3x3 one, both of CHANNELS to CHANNELS.
PRODUCTS = SIZE * SIZE * CHANNELS * CHANNELS * (1 + 9)


@pytest.fixture(params=["rpi4", "rpi5"])
def board(request: pytest.FixtureRequest) -> str:
    return require_predictions(request.param)


def network(path: Path) -> Path:
    graph, data = begun(1, CHANNELS, SIZE, SIZE)
    first = graph.node("Relu", graph.conv(data, CHANNELS, CHANNELS, 1))
    last = graph.node("Relu", graph.conv(first, CHANNELS, CHANNELS, 3, pads=[1, 1, 1, 1]))
    return graph.save(path, graph.node("Sigmoid", last))


def of_bytes(path: Path) -> Path:
    plain = network(path.with_name("float.onnx"))
    return quantise(plain, path, FORMS["pairs-s8s8-channels"], random_samples(plain), op_types_to_quantize=["Conv"])


def prediction(command: Command, path: Path, board: str, *options: object) -> dict[str, Any]:
    return dict(json_of(command, "predict", path, "--board", board, *options))


def test_the_same_network_gives_the_same_counts_and_cycles(command: Command, tmp_path: Path, board: str) -> None:
    path = network(tmp_path / "net.onnx")
    first, second = (prediction(command, path, board) for _ in range(2))
    assert first["build_key"] == second["build_key"]
    assert first["instructions"] == pytest.approx(second["instructions"], rel=1e-4)
    assert first["cycles"] == pytest.approx(second["cycles"], rel=1e-3)
    for name, count in first["missed_lines"].items():
        assert count == pytest.approx(second["missed_lines"][name], rel=1e-2, abs=20), name


def test_a_prediction_adds_up_and_has_the_networks_products(command: Command, tmp_path: Path, board: str) -> None:
    said = prediction(command, network(tmp_path / "net.onnx"), board)
    functions = said["functions"]
    assert said["note"] == "predicted, not measured"
    assert said["cycles"] == pytest.approx(sum(said["cycles_by_kind"].values()))
    assert said["cycles"] == pytest.approx(sum(each["cycles"] for each in functions))
    assert said["instructions"] == sum(each["instructions"] for each in functions)
    assert said["ms"] == pytest.approx(said["cycles"] / said["clock_mhz"] / 1e3)
    assert [each["cycles"] for each in functions] == sorted((each["cycles"] for each in functions), reverse=True)
    assert all(each["calls"] >= 1 for each in functions if each["function"] != "runtime")
    assert {"runtime"} < {each["function"] for each in functions}
    assert said["sampling_error_cycles"] < 0.02 * said["cycles"]
    # Winograd's convolution has fewer; where a sum begins, a product is no multiply-add. No core exceeds its peak.
    assert PRODUCTS / 10 < sum(each["float_products"] for each in functions) <= 1.02 * PRODUCTS
    pointwise = next(each for each in functions if 0.9 < each["float_products"] / (PRODUCTS / 10) <= 1.02)
    peak = {"rpi4": 4, "rpi5": 8}[board]
    assert 0.5 * peak < pointwise["products_per_cycle"] <= peak
    assert 0 < said["of_peak"] < 1


def test_products_of_bytes_are_counted(command: Command, tmp_path: Path, board: str) -> None:
    said = prediction(command, of_bytes(tmp_path / "net.onnx"), board)
    assert said["error"] == 0.2
    assert sum(each["integer_products"] for each in said["functions"]) == pytest.approx(PRODUCTS, rel=0.02)
    best = max(each["products_per_cycle"] for each in said["functions"])
    peak = {"rpi4": 8, "rpi5": 32}[board]
    assert 0.5 * peak < best <= peak


def test_four_threads_share_the_work_but_not_the_memory(command: Command, tmp_path: Path, board: str) -> None:
    path = network(tmp_path / "net.onnx")
    one, four = (prediction(command, path, board, "--threads", threads) for threads in (1, 4))
    assert (one["threads"], four["threads"]) == (1, 4)
    assert one["cycles"] / 4 < four["cycles"] < one["cycles"] / 2
    assert four["error"] == 0.25
    assert four["instructions"] == pytest.approx(one["instructions"], rel=1e-4)
    runtime = [next(each for each in said["functions"] if each["function"] == "runtime") for said in (one, four)]
    assert runtime[0]["cycles"] == pytest.approx(runtime[1]["cycles"], rel=0.02)
    assert 0 < four["of_peak"] < 1


def test_packages_are_taken_as_archives_and_as_folders(command: Command, tmp_path: Path) -> None:
    board = require_predictions("rpi4")
    path = network(tmp_path / "net.onnx")
    output_of(command, "build", path, "--board", board, "--no-check")
    archive, folder = Path("dist/rpi4/net.tar.gz"), tmp_path / "folder"
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    cycles = [prediction(command, each, board)["cycles"] for each in (path, archive, folder)]
    assert cycles[0] == pytest.approx(cycles[1], rel=1e-3)
    assert cycles[0] == pytest.approx(cycles[2], rel=1e-3)
    err = refused(command, InputError.exit_code, "predict", archive, "--board", "rpi5")
    assert "is for cortex-a72" in err
    assert "--board rpi4" in err


def test_people_are_told_what_takes_the_time(command: Command, tmp_path: Path, board: str) -> None:
    page = tmp_path / "net.html"
    out = output_of(command, "predict", network(tmp_path / "net.onnx"), "--board", board, "--report", page)
    for words in ("predicted, not measured", "+-12%", "runtime"):
        assert words in out
    for words in ("predicted, not measured", "<svg", "million cycles"):
        assert words in page.read_text(encoding="utf-8")


# Other engines run in a root file system of the board.
needs_root = pytest.mark.usefixtures("_needs_virtual_boards")


def pointwise(path: Path) -> Path:
    graph, data = begun(1, CHANNELS, 28, 28)
    return graph.save(path, graph.node("Relu", graph.conv(data, CHANNELS, CHANNELS, 1)))


@needs_root
def test_the_machine_says_what_the_board_is(tmp_path: Path, board: str) -> None:
    profile = load_board(board)
    root = machine(profile, profile.core_model, tmp_path)
    assert (root / "proc/cpuinfo").read_text().count({"rpi4": "0xd08", "rpi5": "0xd0b"}[board]) == profile.cores
    caches = root / "sys/devices/system/cpu/cpu0/cache"
    sizes = [(caches / f"index{index}" / "size").read_text().strip() for index in range(len(list(caches.iterdir())))]
    assert sizes == {"rpi4": ["32K", "1024K"], "rpi5": ["64K", "512K", "2048K"]}[board]
    assert (root / "usr/bin/python3").exists()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "results" / "other-engines.jsonl"
    monkeypatch.setattr(PeerResults, "of_user", lambda: PeerResults(path))
    return path


@needs_root
def test_onnxruntime_agrees_and_is_predicted_once(command: Command, tmp_path: Path, board: str, results: Path) -> None:
    path = pointwise(tmp_path / "net.onnx")
    options = ["--board", board, "--against", "onnxruntime"]
    said = json_of(command, "predict", path, *options)
    peer: dict[str, Any]
    [peer] = said["against"]
    if "pip" in peer.get("left_out", ""):
        pytest.skip(peer["left_out"])
    assert (peer["engine"], len(peer["wheel_sha256"])) == ("onnxruntime", 64)
    assert peer["difference_of_outputs"] < 1e-4
    assert peer["ms"] == pytest.approx(peer["cycles"] / said["clock_mhz"] / 1e3)
    bound = 28 * 28 * CHANNELS * CHANNELS / {"rpi4": 4, "rpi5": 8}[board]
    assert bound < said["cycles"] < 2 * bound
    assert bound < peer["cycles"] < 4 * bound
    kept = results.read_text()
    assert json_of(command, "predict", path, *options)["against"] == [peer]
    assert results.read_text() == kept


@needs_root
def test_engines_that_are_left_out_or_refused_say_why(command: Command, tmp_path: Path) -> None:
    path, options = pointwise(tmp_path / "net.onnx"), ("--board", "rpi4", "--against")
    out = output_of(command, "predict", path, *options, "litert")
    assert "litert is left out: it reads .tflite files" in out
    err = refused(command, UnsupportedError.exit_code, "predict", path, *options, "openvino")
    assert "there are onnxruntime, ncnn, mnn, litert" in err
    err = refused(command, InputError.exit_code, "predict", "net.tar.gz", *options, "ncnn")
    assert "--against needs a network" in err


@needs_root
def test_a_wheel_that_does_not_exist_is_reported() -> None:
    with pytest.raises(DownloadError, match=r"no wheel of numpy 0\.0\.1 .* is known: those of"):
        site("numpy", "0.0.1", Target("aarch64", "3.11"))
