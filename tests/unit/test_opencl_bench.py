"""`edgedeploy bench` on OpenCL boards: edgedeploy on the device, beside engines on the processor."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import output_of, refused
from support.profiles import write_profile

from edgedeploy.benchmarking.engines import openvino
from edgedeploy.errors import NoOpenCLError

pytestmark = pytest.mark.compiles

BOARD = "local-opencl"
QUICK = ("--against", "onnxruntime", "--json")


@pytest.mark.slow
def test_kernels_and_the_whole_are_measured_beside_another_engine(opencl: Any, command: Command) -> None:
    ours, theirs = json.loads(output_of(command, "bench", "digits", "--board", BOARD, *QUICK))["rows"]
    assert (ours["runs"], theirs["runs"]) == (600, 600)
    assert (ours["device"], theirs["device"]) == (opencl.device_name, "CPU")
    assert 0 < ours["kernels"]["mean_ms"] < ours["mean_ms"]
    assert 0 < ours["kernels"]["median_ms"] < ours["median_ms"]
    assert ours["kernels"]["std_ms"] > 0
    assert "kernels" not in theirs
    assert 0 < ours["max_rel_diff"] < 1e-3


@pytest.mark.slow
def test_the_tables_show_both_and_name_the_device(opencl: Any, command: Command) -> None:
    out = output_of(command, "bench", "digits", "--board", BOARD, "--runs", 12, "--against", "onnxruntime")
    assert f"on {opencl.device_name}" in out
    assert "12 runs of each in 10 rounds" in out
    [titles] = [line for line in out.splitlines() if "edgedeploy kernels" in line]
    assert titles.split() == ["model", "edgedeploy", "kernels", "edgedeploy", "onnxruntime"]
    [line] = [line for line in out.splitlines() if line.startswith("digits") and "±" in line]
    assert line.count("±") == 3


@pytest.mark.slow
def test_a_package_for_another_board_is_measured_here_on_request(opencl: Any, command: Command, tmp_path: Path) -> None:
    elsewhere = write_profile(tmp_path, BOARD, ssh={"host": "board.invalid", "user": "nobody"})
    out = output_of(command, "bench", "digits", "--board", elsewhere, "--host", "local", "--runs", 5, *QUICK)
    rows = json.loads(out)["rows"]
    assert [(row["engine"], row["device"]) for row in rows] == [
        ("edgedeploy", opencl.device_name),
        ("onnxruntime", "CPU"),
    ]


def test_this_machine_is_not_reached_over_ssh_by_that_name(command: Command) -> None:
    assert "this machine" in refused(command, 7, "push", "digits", "--board", "rpi4", "--host", "local")


@pytest.mark.skipif(not openvino.ENGINE.installed(), reason="OpenVINO is not installed")
@pytest.mark.slow
def test_openvino_takes_the_processor_where_it_knows_no_graphics_processor(opencl: Any, command: Command) -> None:
    import openvino as library

    if any(name.startswith("GPU") for name in library.Core().available_devices):
        pytest.skip("OpenVINO has a graphics processor here")
    arguments = ("--board", BOARD, "--runs", 5, "--against", "openvino", "--json")
    out = output_of(command, "bench", "digits", *arguments)
    assert [row["device"] for row in json.loads(out)["rows"]] == [opencl.device_name, "CPU"]


@pytest.mark.quick("no device")
@pytest.mark.parametrize(
    ("variables", "message"),
    [({"OCL_ICD_VENDORS": os.devnull}, "OpenCL"), ({"POCL_DEVICES": ""}, "device")],
    ids=["no driver", "no device"],
)
def test_a_device_that_went_away_after_the_build_is_named(
    opencl: Any, command: Command, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    assert command("build", "digits", "--board", BOARD)[0] == 0
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, out, err = command("bench", "digits", "--board", BOARD, "--runs", 5, "--against", "onnxruntime")
    assert (code, message in err) == (NoOpenCLError.exit_code, True), err
    assert not out
