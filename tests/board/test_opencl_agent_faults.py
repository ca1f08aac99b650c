"""What goes wrong with OpenCL on a board: the agent says it and ends, or answers and goes on; nothing hangs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from agents import call, unpack
from networks import two_sides

from edgedeploy.agent.build import agent_for
from edgedeploy.board import load_board
from edgedeploy.build import build
from edgedeploy.errors import (
    DeviceMemoryError,
    KernelBuildError,
    NoOpenCLError,
    OpenCLDeviceLostError,
    OpenCLError,
    WorkGroupError,
)
from edgedeploy.package.manifest import LIBRARY_NAME
from edgedeploy.remote.failures import failure
from edgedeploy.source import find_source

LIMIT_S = 20


@pytest.fixture(scope="module")
def agent() -> Path:
    return agent_for(load_board("local-opencl")).path


@pytest.fixture
def package(opencl: Any, tmp_path: Path) -> Path:
    built = build(find_source(str(two_sides(tmp_path / "net.onnx"))), "local-opencl", tmp_path / "net.tar.gz")
    return unpack(built.path, tmp_path / "package")


def refused(agent: Path, package: Path) -> OpenCLError:
    """The error that a run of the agent is, which must end soon."""
    begin = time.monotonic()
    done = call(agent, "run", package, "--fill", "ones")
    assert time.monotonic() - begin < LIMIT_S
    assert done.returncode == 21, done.stderr
    assert done.stdout == b""
    error = failure(done.returncode, "it", done.stderr.decode())
    assert isinstance(error, OpenCLError)
    return error


def test_a_device_of_another_name_is_said_with_those_that_are_there(
    agent: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDEPLOY_OPENCL_DEVICE", "GeForce")
    error = refused(agent, package)
    assert isinstance(error, NoOpenCLError)
    assert "no OpenCL device here has 'GeForce' in its name: there is basic" in str(error.why)


@pytest.mark.slow
def test_a_driver_without_devices_is_said(agent: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_DEVICES", "")
    error = refused(agent, package)
    assert isinstance(error, NoOpenCLError)
    assert "OpenCL has no device here" in str(error.why)


def test_kernels_that_do_not_build_are_shown_with_the_compilers_log(agent: Path, package: Path) -> None:
    library = package / LIBRARY_NAME
    library.write_bytes(library.read_bytes().replace(b"get_group_id", b"no_such_name"))
    error = refused(agent, package)
    assert isinstance(error, KernelBuildError)
    assert "the kernels do not compile for basic" in str(error.why)
    assert "no_such_name" in str(error.why)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("narrow", WorkGroupError, r"asks for work-groups of \d+ work-items, .* gives it 1"),
        ("full", DeviceMemoryError, r"cannot allocate \d+ bytes on basic.*CL_MEM_OBJECT_ALLOCATION_FAILURE \(-4\)"),
        ("gone", OpenCLDeviceLostError, r"it cannot launch the kernel .*: CL_DEVICE_NOT_AVAILABLE \(-2\)"),
        ("failed", OpenCLDeviceLostError, r"it failed while it was working: CL_OUT_OF_RESOURCES \(-5\)"),
        ("stuck", OpenCLDeviceLostError, "it did not answer for 2 s"),
    ],
)
def test_a_fault_of_the_device_ends_the_agent_with_its_code(
    agent: Path,
    package: Path,
    faulty: dict[str, str],
    fault: str,
    kind: type[OpenCLError],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**faulty, "FAULT": fault, "EDGEDEPLOY_OPENCL_TIMEOUT_S": "2"}.items():
        monkeypatch.setenv(name, value)
    error = refused(agent, package)
    assert type(error) is kind
    assert re.search(says, str(error.why)), error.why


@pytest.mark.slow
def test_an_agent_that_serves_answers_for_a_lost_device_again_and_again(
    agent: Path, package: Path, faulty: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**faulty, "FAULT": "gone", "FAULT_AFTER": "2"}.items():
        monkeypatch.setenv(name, value)
    data = bytes(1 * 3 * 32 * 32 * 4)
    request = json.dumps({"command": "measure", "repeat": 5, "bytes": len(data)}).encode() + b"\n" + data
    done = call(agent, "serve", package, stdin=request + request + b'{"command": "status"}\n')
    assert done.returncode == 0, done.stderr
    ready, first, second, status = map(json.loads, done.stdout.splitlines())
    assert ready["ready"]
    for answer, says in ((first, "is lost"), (second, "was lost before")):
        assert (answer["ok"], answer["code"]) == (False, 21)
        error = failure(answer["code"], "it", answer["error"])
        assert isinstance(error, OpenCLDeviceLostError)
        assert says in str(error.why)
    assert status["ok"]
