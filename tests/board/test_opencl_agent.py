"""OpenCL devices of boards: by the agent here, with packages and TVM's RPC, and on a virtual NUC."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import Command
from support import kernels
from support.agents import answer, call, messages, request, unpacked
from support.commands import generous, json_of, output_of, put, started
from support.networks import two_sides
from support.opencl_devices import ONE_THREAD, make_faulty
from support.virtual_boards import Start

from edgedeploy.agent.build import agent_for
from edgedeploy.errors import KernelBuildError, NoOpenCLError, OpenCLDeviceLostError, OpenCLError
from edgedeploy.package.abi import read_abi
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import LIBRARY_NAME
from edgedeploy.remote.failures import failure
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.virtual.board import VirtualBoard, down

# Slow, but for the tests that say otherwise.
pytestmark = pytest.mark.quick()


@pytest.fixture(scope="module")
def agent() -> Path:
    return agent_for(load_board("local-opencl")).path


@pytest.fixture
def package(opencl: Any, tmp_path: Path) -> Path:
    return unpacked(two_sides(tmp_path / "net.onnx"), "local-opencl")


def test_it_is_not_linked_to_opencl(agent: Path) -> None:
    assert not [name for name in read_abi(agent, load_board("local")).libraries if "OpenCL" in name]


@pytest.mark.quick("*")
def test_the_recorded_inputs_give_the_recorded_outputs_on_the_device(agent: Path, package: Path) -> None:
    assert answer(agent, "selftest", package)["passed"]


def test_outputs_are_those_of_the_package_in_process(agent: Path, package: Path, tmp_path: Path) -> None:
    data = np.random.default_rng(3).standard_normal((1, 3, 32, 32)).astype(np.float32)
    (tmp_path / "in.bin").write_bytes(data.tobytes())
    arguments = ["--input", f"data={tmp_path / 'in.bin'}", "--output-dir", tmp_path / "out", "--repeat", 3]
    result = answer(agent, "run", package, *arguments)
    assert len(result["runs_ms"]) == 3
    found = np.fromfile(result["outputs"][0]["file"], "float32")
    wanted, _ = Session.open(tmp_path / "net.tar.gz").run({"data": data}).values()
    np.testing.assert_allclose(found, wanted.ravel(), atol=1e-4 * np.abs(wanted).max(), rtol=0)


def test_a_served_network_answers_from_the_device(agent: Path, opencl: Any, package: Path) -> None:
    data = np.ones((1, 3, 32, 32), np.float32).tobytes()
    requests = request("run", data) + request("measure", data, repeat=2) + request("profile", data, repeat=1)
    requests += request("measure-end-to-end", data, repeat=4, warmup=1)
    done = call(agent, "serve", package, stdin=requests)
    assert done.returncode == 0, done.stderr
    ready, *answered = (said for said, _ in messages(done.stdout))
    assert (ready["ready"], ready["device"]) == (True, opencl.device_name)
    assert all(each["ok"] for each in answered)
    _, measured, profiled, whole = answered
    assert len(measured["runs_ms"]) == 2
    assert profiled["functions"]
    assert len(whole["runs_ms"]) == len(whole["kernels_ms"]) == 4
    assert all(0 < kernels < run for kernels, run in zip(whole["kernels_ms"], whole["runs_ms"], strict=True))


def test_an_agent_without_opencl_says_that_it_has_none(package: Path) -> None:
    done = call(agent_for(load_board("local")).path, "run", package, "--fill", "zeros")
    assert done.returncode == 21
    assert b"this agent was built without OpenCL" in done.stderr


# What goes wrong: the agent says it and ends, or answers and goes on; nothing hangs.


def refused(agent: Path, package: Path) -> OpenCLError:
    """The error that a run of the agent is, which must end soon."""
    begin = time.monotonic()
    done = call(agent, "run", package, "--fill", "ones")
    assert time.monotonic() - begin < generous(20)
    assert done.returncode == 21, done.stderr
    assert done.stdout == b""
    return failure(done.returncode, "it", done.stderr.decode())


NO_SUCH = f"no OpenCL device here has 'GeForce' in its name: there is {ONE_THREAD}"


@pytest.mark.quick("an unknown device")
@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("EDGEDEPLOY_OPENCL_DEVICE", "GeForce", NO_SUCH),
        ("POCL_DEVICES", "", "OpenCL has no device here"),
        ("OCL_ICD_VENDORS", os.devnull, "no OpenCL driver is installed here"),
    ],
    ids=["an unknown device", "a driver without devices", "no driver"],
)
def test_a_missing_device_is_named(
    agent: Path, package: Path, variable: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    error = refused(agent, package)
    assert isinstance(error, NoOpenCLError)
    assert why in str(error.why)


@pytest.mark.quick("*")
def test_kernels_that_do_not_build_are_shown_with_the_compilers_log(agent: Path, package: Path) -> None:
    library = package / LIBRARY_NAME
    library.write_bytes(library.read_bytes().replace(b"get_group_id", b"no_such_name"))
    error = refused(agent, package)
    assert isinstance(error, KernelBuildError)
    assert f"the kernels do not compile for {ONE_THREAD}" in str(error.why)
    assert "no_such_name" in str(error.why)


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("narrow", "WorkGroupError", r"asks for work-groups of \d+ work-items, .* gives it 1"),
        (
            "full",
            "DeviceMemoryError",
            rf"cannot allocate \d+ bytes on {ONE_THREAD}.*CL_MEM_OBJECT_ALLOCATION_FAILURE \(-4\)",
        ),
        ("gone", "OpenCLDeviceLostError", r"it cannot launch the kernel .*: CL_DEVICE_NOT_AVAILABLE \(-2\)"),
        ("failed", "OpenCLDeviceLostError", r"it failed while it was working: CL_OUT_OF_RESOURCES \(-5\)"),
        ("stuck", "OpenCLDeviceLostError", "it did not answer for 2 s"),
    ],
)
def test_a_fault_of_the_device_ends_the_agent_with_its_code(
    agent: Path,
    package: Path,
    faulty: dict[str, str],
    fault: str,
    kind: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**faulty, "FAULT": fault, "EDGEDEPLOY_OPENCL_TIMEOUT_S": "2"}.items():
        monkeypatch.setenv(name, value)
    error = refused(agent, package)
    assert type(error).__name__ == kind
    assert re.search(says, str(error.why)), error.why


def test_an_agent_that_serves_answers_for_a_lost_device_again_and_again(
    agent: Path, package: Path, faulty: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**faulty, "FAULT": "gone", "FAULT_AFTER": "2"}.items():
        monkeypatch.setenv(name, value)
    data = bytes(1 * 3 * 32 * 32 * 4)
    done = call(agent, "serve", package, stdin=request("measure", data, repeat=5) * 2 + request("status"))
    assert done.returncode == 0, done.stderr
    ready, first, second, status = map(json.loads, done.stdout.splitlines())
    assert ready["ready"]
    for reply, says in ((first, "is lost"), (second, "was lost before")):
        assert (reply["ok"], reply["code"]) == (False, 21)
        error = failure(reply["code"], "it", reply["error"])
        assert isinstance(error, OpenCLDeviceLostError)
        assert says in str(error.why)
    assert status["ok"]


# A client: memory and kernels on the device of a server, times by its own clock.
CLIENT = """
import sys
import numpy as np, tvm, tvm.rpc
host, port, key, library = sys.argv[1:]
session = tvm.rpc.connect(host, int(port), key, session_timeout=60)
device = session.device("opencl", 0)
assert device.exist and device.device_name, "no device"
session.upload(library)
loaded = session.load_module(library.rpartition("/")[2])
values = np.arange(64, dtype="float32")
given = tvm.runtime.tensor(values, device=device)
output = tvm.runtime.tensor(np.zeros_like(values), device=device)
loaded["main"](given, output)
np.testing.assert_allclose(output.numpy(), values * 2)
assert min(loaded.time_evaluator("main", device, number=2, repeat=2)(given, output).results) > 0
"""


@pytest.fixture
def kernel(opencl: Any, tmp_path: Path) -> Path:
    """A library whose function doubles 64 values on the device, linked as the board's toolchain does."""
    import tvm

    path = tmp_path / "kernel.so"
    functions = tvm.IRModule({"main": kernels.doubling_on_device.with_attr("global_symbol", "main")})
    target = tvm.target.Target(load_board("local-opencl").target())
    tvm.compile(functions, target=target).export_library(str(path))
    return path


def served(kernel: Path, port: int, key: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, "127.0.0.1", str(port), key, str(kernel)]
    subprocess.run(command, check=True, timeout=generous(120))


def test_the_agent_serves_the_device_over_rpc(agent: Path, kernel: Path) -> None:
    command = (agent, "rpc", "--port", "0", "--key", "nuc")
    with started(*command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as server:
        served(kernel, json.loads(server.stdout.readline())["port"], "nuc")
        server.terminate()
        server.wait(generous(20))


# TVM's own server in Python. Each session is a process that imports TVM anew.
SERVER = """
import sys
from tvm import rpc
server = rpc.Server(host="127.0.0.1", port=19091, port_end=19190, key="nuc")
print(server.port, flush=True)
sys.stdin.read()
server.terminate()
"""


def test_tvms_own_server_serves_the_device_over_rpc(kernel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "edgedeploy_for_tests-1.dist-info"
    put(installed / "METADATA", "Metadata-Version: 2.1\nName: edgedeploy-for-tests\nVersion: 1\n")
    told_tvm = "[tvm.backends]\nedgedeploy_opencl = edgedeploy.runtime.opencl:autoload\n"
    (installed / "entry_points.txt").write_text(told_tvm)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", SERVER]
    with started(*command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=environment) as server:
        try:
            served(kernel, int(server.stdout.readline()), "nuc")
        finally:
            server.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                server.wait(generous(20))


BOARD = "nuc-opencl"


@pytest.fixture
def virtual(start: Start) -> VirtualBoard:
    return start(BOARD)


@pytest.mark.quick("*")
def test_a_network_runs_on_its_device(virtual: VirtualBoard, board_command: Command) -> None:
    out = output_of(board_command, "run", "digits", "--board", BOARD, "--virtual", "--print-time")
    assert "digits on nuc-opencl" in out
    assert "time of one inference in ms" in out


def test_the_package_is_the_one_of_the_real_board(virtual: VirtualBoard, board_command: Command) -> None:
    assert board_command("build", "digits", "--board", BOARD)[0] == 0
    assert read_manifest(Path("dist/nuc-opencl/digits.tar.gz")).device == "Intel"
    assert "digits" in output_of(board_command, "push", "digits", "--board", BOARD, "--virtual")


def test_a_demo_sees_there_what_it_sees_here_without_a_device(virtual: VirtualBoard, board_command: Command) -> None:
    def seen(*options: str) -> list[str]:
        out = output_of(board_command, "demo", "digits", *options)
        return [line for line in out.splitlines() if re.fullmatch(r"\d\.\d+, \d", line)]

    there, here = seen("--board", BOARD, "--virtual"), seen("--board", "local")
    assert len(here) == 5
    assert there == here


def test_doctor_finds_all_in_order(virtual: VirtualBoard, board_command: Command) -> None:
    code, out, err = board_command("doctor", "--board", BOARD, "--virtual", "--json")
    checks = {each["name"]: each for each in json.loads(out)["checks"]}
    assert code == 0, err
    assert checks["ICD files"]["state"] == checks["devices"]["state"] == "ok"
    assert checks["GPU nodes"]["state"] == "not applicable"


def test_probing_lists_its_own_devices_not_the_real_boards(virtual: VirtualBoard, board_command: Command) -> None:
    [device] = json_of(board_command, "boards", "probe", "--board", BOARD, "--virtual")["opencl"]
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


def refused_by_board(command: Command) -> str:
    """What `edgedeploy run` says when it ends with the code of OpenCL's errors."""
    code, out, err = command("run", "digits", "--board", BOARD, "--host", "virtual:faulty")
    assert code == 21, (out, err)
    assert "Traceback" not in err
    return " ".join(err.split())


def test_a_board_without_a_driver_or_without_opencl_says_so(inside: Path, board_command: Command) -> None:
    (inside / "etc/OpenCL/vendors/pocl.icd").unlink()
    said = refused_by_board(board_command)
    assert "the self-test of digits failed on virtual:faulty: no OpenCL driver is installed here" in said
    assert "apt install" in said
    [library] = inside.glob("usr/lib/*/libOpenCL.so.1")
    library.unlink()
    assert "there is no OpenCL here" in refused_by_board(board_command)


def test_a_fault_of_the_boards_device_is_reported_here(inside: Path, board_command: Command, tmp_path: Path) -> None:
    """In the self-test of what lies there; the agent alone has all faults tried above."""
    assert board_command("run", "digits", "--board", BOARD, "--host", "virtual:faulty")[0] == 0
    [library] = inside.glob("usr/lib/*/libOpenCL.so.1")
    for path in make_faulty(tmp_path, "gone"):
        (library.parent / path.name).unlink(missing_ok=True)
        (library.parent / path.name).write_bytes(path.read_bytes())
    assert "is lost: it cannot launch the kernel" in refused_by_board(board_command)
