"""Other engines are brought to a board, take turns there with edgedeploy, and leave nothing behind."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import json_of, output_of, put
from support.networks import tiny
from support.virtual_boards import Bench, Start, root_of, vcgencmd

from edgedeploy.benchmarking import board_engines
from edgedeploy.benchmarking.board import measure_on_board
from edgedeploy.benchmarking.board_engines import _reason
from edgedeploy.benchmarking.engines import find_peers
from edgedeploy.benchmarking.measure import Measurement
from edgedeploy.benchmarking.networks import candidates
from edgedeploy.benchmarking.wheels import Site
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.virtual.board import VirtualBoard


@pytest.fixture(scope="module")
def board(start: Start) -> VirtualBoard:
    """A Raspberry Pi 4 with Python, as the system that they come with has it."""
    return start("rpi4", name="rpi4-with-python", packages=["python3", "libgomp1", "libstdc++6"])


@pytest.fixture
def measured(board: VirtualBoard, board_command: Command, tmp_path: Path) -> Callable[..., Any]:
    """What `edgedeploy bench` says of a network there, of one thread."""
    words = ("bench", tiny(tmp_path / "net.onnx"), "--board", "rpi4", "--host", f"virtual:{board.name}", "--threads", 1)
    return lambda *options: json_of(board_command, *words, *options)


def left_behind(board: VirtualBoard) -> list[Path]:
    return list((root_of(board) / "home" / board.user).glob(".edgedeploy-bench-*"))


@pytest.mark.slow
def test_engines_take_turns_on_the_board(board: VirtualBoard, measured: Callable[..., Any]) -> None:
    vcgencmd(root_of(board) / "usr/local/bin")
    options = ("--against", "ncnn,onnxruntime,openvino", "--rounds", 3, "--runs", 6, "--profile", "--energy")
    said = measured(*options)
    assert said["machine"]["emulated"] is True
    assert said["rows"][0]["max_rel_diff"] < 1e-4
    left_out = {each["engine"]: each["reason"] for each in said["skipped"]}
    if any("pip" in reason and "wheel" in reason for reason in left_out.values()):
        pytest.skip(f"no wheels can be had: {left_out}")
    rows = {each["engine"]: each for each in said["rows"]}
    assert list(rows) == ["edgedeploy", *(["ncnn"] if importlib.util.find_spec("pnnx") else []), "onnxruntime"]
    assert "not measured on boards" in left_out["openvino"]
    for each in rows.values():
        assert (each["runs"], len(each["turns_ms"]), each["threads"]) == (6, 3, 1)
        assert each["max_rel_diff"] < 1e-4
        assert (each["energy"]["source"], each["energy"]["watts"]) == ("rails", pytest.approx(0.33 + 1.2))
        assert each["energy"]["joules"] > 0
        assert each["energy"]["estimated"] is True
    assert {name: "functions" in each for name, each in rows.items()} == {name: name != "ncnn" for name in rows}
    assert "Conv" in {each["type"].removeprefix("Fused") for each in rows["onnxruntime"]["functions"]}
    assert all(each["share"] > 0 for each in rows["edgedeploy"]["functions"])
    for name in set(rows) - {"edgedeploy"}:
        assert rows[name]["load_s"] > 0
        assert rows[name]["first_s"] > 0
        assert rows[name]["peak_bytes"] > 10e6
        assert rows[name]["ratio"] == pytest.approx(rows["edgedeploy"]["median_ms"] / rows[name]["median_ms"])
    assert left_behind(board) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import signal; signal.raise_signal(signal.SIGILL)", "lacks an instruction that its wheel is compiled for"),
        ("import signal; signal.raise_signal(signal.SIGSEGV)", "it crashed on the board (SIGSEGV)"),
        ("raise ImportError('libgomp.so.1: cannot open shared object file')", "ImportError: libgomp.so.1: cannot open"),
        ("print('hello'); print('{\"typical_s\": 0}'); print('[1'); raise SystemExit", "how long it took"),
        ("raise SystemExit(3)", "ended on the board with code 3"),
    ],
    ids=["SIGILL", "SIGSEGV", "a missing library", "wrong answers", "an end"],
)
def test_an_engine_that_the_board_cannot_load_is_named_with_the_reason(
    board: VirtualBoard,
    measured: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    reason: str,
) -> None:
    put(tmp_path / "wheel" / "numpy" / "__init__.py", module)
    monkeypatch.setattr(board_engines, "site", lambda *_, **__: Site(tmp_path / "wheel", "numpy", "1.0", "0" * 64))
    said = measured("--against", "onnxruntime", "--rounds", 1, "--runs", 1)
    assert [each["engine"] for each in said["rows"]] == ["edgedeploy"]
    [skipped] = said["skipped"]
    assert skipped["engine"] == "onnxruntime"
    assert reason in skipped["reason"]
    assert left_behind(board) == []


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        ("132", "", "SIGILL"),
        ("139", "ignored", "SIGSEGV"),
        ("1", "ImportError: no", "on the board: ImportError: no"),
        ("1", "", "ended on the board with code 1"),
        ("255", "", "with code 255"),
        ("rubbish", "", "with code 1"),
    ],
)
def test_how_a_process_ended_is_told(code: str, said: str, reason: str) -> None:
    assert reason in _reason(code, said)


def test_the_board_measures_and_outputs_are_compared_here(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    options = ["--host", bench.host, "--against", "onnxruntime,ncnn", "--rounds", 2, "--threads", 1]
    said = json_of(board_command, "bench", "digits", net, *options)
    assert "virtual board" in said["machine"]["os"]
    assert said["machine"]["cores"] >= 1
    assert [row["model"] for row in said["rows"]] == ["digits", "net"]
    for row in said["rows"]:
        assert (row["engine"], row["threads"], row["ratio"]) == ("edgedeploy", 1, 1.0)
        assert row["median_ms"] > 0
        assert 0 < row["max_rel_diff"] < 1e-4
    assert [(each["engine"], each["models"]) for each in said["skipped"]] == [
        ("onnxruntime", ["digits", "net"]),
        ("ncnn", ["digits", "net"]),
    ]
    assert all("the board has no Python" in each["reason"] for each in said["skipped"])


def test_runs_are_counted_in_the_boards_memory_and_the_release_in_use_stays(bench: Bench) -> None:
    used = bench.push(bench.second)
    place, networks = Place(resolve("local"), bench.host), candidates(["digits"], resolve("local"))
    [row] = measure_on_board(networks, find_peers("mnn"), place, 1, Measurement(rounds=3, runs=8)).rows
    assert len(row.times.total.runs_ms) == 8
    assert (row.device, row.times.kernels) == ("CPU", None)
    assert bench.current() == used.id


def test_the_tables_name_the_board(bench: Bench, board_command: Command) -> None:
    out = output_of(board_command, "bench", "digits", "--host", bench.host, "--rounds", 1, "--markdown")
    assert "virtual board, Linux" in out
    assert "onnxruntime, openvino, ncnn, mnn, litert, torch were not measured on digits: engines are brought" in out
