"""Networks are measured on a board: timed there, compared here, with the board's facts beside the times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Command
from support.board_releases import Bench
from support.commands import output_of
from support.networks import tiny

from edgedeploy.benchmarking.board import measure_on_board
from edgedeploy.benchmarking.engines import find_peers
from edgedeploy.benchmarking.networks import candidates
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve


def test_the_board_measures_and_outputs_are_compared_here(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    options = ["--host", bench.host, "--against", "onnxruntime,ncnn", "--rounds", 2, "--threads", 1, "--json"]
    said = json.loads(output_of(board_command, "bench", "digits", net, *options))
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


def test_runs_are_counted_and_begin_and_end_in_the_boards_memory(bench: Bench) -> None:
    place = Place(resolve("local"), bench.host)
    networks = candidates(["digits"], resolve("local"))
    [row] = measure_on_board(networks, find_peers("mnn"), place, threads=1, rounds=3, runs=8).rows
    assert len(row.times.total.runs_ms) == 8
    assert (row.device, row.times.kernels) == ("CPU", None)


def test_the_release_in_use_stays_the_one_it_was(bench: Bench) -> None:
    used = bench.push(bench.second)
    place = Place(resolve("local"), bench.host)
    report = measure_on_board(
        candidates(["digits"], resolve("local")), find_peers("mnn"), place, threads=None, rounds=1
    )
    assert report.rows
    assert bench.current() == used.id


def test_the_tables_name_the_board(bench: Bench, board_command: Command) -> None:
    out = output_of(board_command, "bench", "digits", "--host", bench.host, "--rounds", 1, "--markdown")
    assert "virtual board, Linux" in out
    assert "onnxruntime, openvino, ncnn, mnn, litert, torch were not measured on digits: engines are brought" in out


@pytest.mark.slow
def test_an_emulated_boards_times_are_not_passed_off_as_a_boards(board_command: Command) -> None:
    out = output_of(board_command, "bench", "digits", "--board", "rpi4", "--virtual", "--rounds", 1, "--json")
    said = json.loads(out)
    assert said["machine"]["emulated"]
    assert said["rows"][0]["max_rel_diff"] < 1e-4
