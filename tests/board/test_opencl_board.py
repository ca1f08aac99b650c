"""A virtual NUC: the processor stands in for its graphics, and packages are those of the real board."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import Command
from support.commands import output_of
from support.opencl_devices import make_faulty
from support.virtual_boards import Start

from edgedeploy.package.archive import read_manifest
from edgedeploy.target.board import load_board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.virtual.board import VirtualBoard, down

BOARD = "nuc-opencl"


@pytest.fixture
def virtual(start: Start) -> VirtualBoard:
    return start(BOARD)


def test_a_network_runs_on_its_device(virtual: VirtualBoard, board_command: Command) -> None:
    out = output_of(board_command, "run", "digits", "--board", BOARD, "--virtual", "--print-time")
    assert "digits on nuc-opencl" in out
    assert "time of one inference in ms" in out


@pytest.mark.slow
def test_the_package_is_the_one_of_the_real_board(virtual: VirtualBoard, board_command: Command) -> None:
    assert board_command("build", "digits", "--board", BOARD)[0] == 0
    assert read_manifest(Path("dist/nuc-opencl/digits.tar.gz")).device == "Intel"
    assert "digits" in output_of(board_command, "push", "digits", "--board", BOARD, "--virtual")


@pytest.mark.slow
def test_a_demo_sees_there_what_it_sees_here_without_a_device(virtual: VirtualBoard, board_command: Command) -> None:
    def seen(*options: str) -> list[str]:
        out = output_of(board_command, "demo", "digits", *options)
        return [line for line in out.splitlines() if re.fullmatch(r"\d\.\d+, \d", line)]

    there, here = seen("--board", BOARD, "--virtual"), seen("--board", "local")
    assert len(here) == 5
    assert there == here


@pytest.mark.slow
def test_doctor_finds_all_in_order(virtual: VirtualBoard, board_command: Command) -> None:
    code, out, err = board_command("doctor", "--board", BOARD, "--virtual", "--json")
    checks = {each["name"]: each for each in json.loads(out)["checks"]}
    assert code == 0, err
    assert checks["ICD files"]["state"] == checks["devices"]["state"] == "ok"
    assert checks["GPU nodes"]["state"] == "not applicable"


@pytest.mark.slow
def test_probing_lists_its_own_devices_not_the_real_boards(virtual: VirtualBoard, board_command: Command) -> None:
    out = output_of(board_command, "boards", "probe", "--board", BOARD, "--virtual", "--json")
    [device] = json.loads(out)["opencl"]
    assert (device["kind"], device["platform"]) == ("CPU", "Portable Computing Language")
    assert load_board(BOARD).device == OpenCL(name="Intel", kind="intel")
    assert f"opencl         {device['name']}" in board_command("boards", "show", BOARD)[1]


# Faults on the board itself, whose files root changes from outside.


@pytest.fixture
def inside(start: Start) -> Iterator[Path]:
    """The root of a virtual board of its own, which nobody else uses."""
    virtual = start(BOARD, name="faulty")
    programs = psutil.Process(virtual.process.pid).children(recursive=True)
    sshd = next(each.pid for each in programs if each.name() == "sshd")
    yield Path(f"/proc/{sshd}/root")
    down(virtual)


def refused(command: Command) -> str:
    """What `edgedeploy run` says when it ends with the code of OpenCL's errors."""
    code, out, err = command("run", "digits", "--board", BOARD, "--host", "virtual:faulty")
    assert code == 21, (out, err)
    assert "Traceback" not in err
    return " ".join(err.split())


@pytest.mark.slow
def test_without_a_driver_on_the_board_that_is_said(inside: Path, board_command: Command) -> None:
    (inside / "etc/OpenCL/vendors/pocl.icd").unlink()
    said = refused(board_command)
    assert "the self-test of digits failed on virtual:faulty: no OpenCL driver is installed here" in said
    assert "apt install" in said


@pytest.mark.slow
def test_without_opencl_on_the_board_that_is_said(inside: Path, board_command: Command) -> None:
    [library] = inside.glob("usr/lib/*/libOpenCL.so.1")
    library.unlink()
    assert "there is no OpenCL here" in refused(board_command)


@pytest.mark.slow
def test_a_fault_of_the_boards_device_is_said_here(inside: Path, board_command: Command, tmp_path: Path) -> None:
    """In the self-test of what lies there; test_opencl_agent.py tries all faults on the agent alone."""
    assert board_command("run", "digits", "--board", BOARD, "--host", "virtual:faulty")[0] == 0
    [library] = inside.glob("usr/lib/*/libOpenCL.so.1")
    for path in make_faulty(tmp_path, "gone"):
        (library.parent / path.name).unlink(missing_ok=True)
        (library.parent / path.name).write_bytes(path.read_bytes())
    assert "is lost: it cannot launch the kernel" in refused(board_command)
