"""`edgedeploy doctor` on this machine: each fault is made for real, and found with what to do."""

import ctypes.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from conftest import Command
from rich.console import Console
from support.commands import beside, executable, generous, json_of, need, printed
from support.opencl_devices import ALL_THREADS
from support.profiles import write_profile
from support.wheels import distribution

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.cli.doctor import _print, _table
from edgedeploy.cli.terminal import Terminal
from edgedeploy.doctor import host, opencl, packages, running
from edgedeploy.doctor.case import Case, case_of
from edgedeploy.doctor.check import Check, Finding, Result, State, check, failed, ok, warning
from edgedeploy.doctor.examination import CHECKS, examine
from edgedeploy.doctor.running import isolated
from edgedeploy.errors import InputError
from edgedeploy.rpc.tracker import tracker
from edgedeploy.target.opencl.device import DEVICE_VARIABLE
from edgedeploy.target.resolved import resolve

pytestmark = pytest.mark.compiles

NAMED = {each.name: each for each in CHECKS}


def look(name: str, board: str = "local") -> Finding:
    """What one check finds, without those that it needs."""
    with case_of(resolve(board)) as case:
        return looked(name, case)


def fault(name: str, board: str = "local") -> Finding:
    finding = look(name, board)
    assert finding.state is State.FAILED
    return finding


def looked(name: str, case: Case) -> Finding:
    [result] = examine(case, [NAMED[name]])
    return result.finding


@pytest.fixture
def local() -> Iterator[Case]:
    with case_of(resolve("local")) as case:
        yield case


# The command


def test_a_machine_on_which_everything_works_is_ready(command: Command) -> None:
    said = json_of(command, "doctor")
    assert said["ready"]
    states = {each["name"]: each["state"] for each in said["checks"]}
    assert {states[name] for name in ("system", "TVM", "toolchain", "program", "folders")} == {"ok"}
    assert "login" not in states, "this machine is not logged in to"


def test_faults_are_listed_with_what_to_do_and_set_the_exit_code(command: Command, tmp_path: Path) -> None:
    board = write_profile(tmp_path, "rpi4", cpu="cortex-a7777", ssh=None)
    code, out, err = command("doctor", "--board", board)
    assert code == 22
    assert "host: TVM: failed: LLVM knows no CPU 'cortex-a7777' of aarch64: did you mean cortex-a77" in out
    assert "host: system: ok: Linux" in out
    assert "is not ready: not in order: TVM" in err


def test_a_board_that_does_not_exist_is_an_error_of_its_own(command: Command) -> None:
    assert command("doctor", "--board", "rpi99")[0] == 4
    assert command("doctor", "--board", "rpi4", "--virtual", "--host", "pi@10.0.0.7")[0] == InputError.exit_code


def test_on_a_terminal_a_table_wraps_texts_and_keeps_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    finding = failed("word " * 30 + "end", "sudo apt install intel-opencl-icd")
    Console(width=100, force_terminal=True, color_system=None).print(_table([Result(NAMED["ICD files"], finding)]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if "OpenCL" in line and "ICD files" in line and "failed" in line]
    assert any(line.rstrip().endswith("→ sudo apt install intel-opencl-icd") for line in lines)


def test_what_a_board_says_of_itself_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(NAMED["SSH server"], ok("SSH-2.0-\x1b[2Jfine [bold]board[/bold]", "ssh \x07"))
    Terminal(width=100, force_terminal=True, color_system=None).print(_table([result]))
    as_table = capsys.readouterr().out
    _print([result])
    for shown in (as_table, capsys.readouterr().out):
        assert not {"\x1b", "\x07"} & set(shown)
        assert "SSH-2.0-\\x1b[2Jfine [bold]board[/bold]" in shown


# Packages


def requiring(folder: Path, *packages: str, extras: Iterable[str] = ()) -> None:
    """What pip leaves of edgedeploy, if it needed these packages."""
    distribution(folder, "edgedeploy", "0.1.0", *extras, *(f"Requires-Dist: {each}" for each in packages))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is looked through first for installed packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_packages_that_are_missing_or_of_the_wrong_version_are_named_with_the_command(installed: Path) -> None:
    requiring(installed, "no-such-package; sys_platform == 'win32'", "numpy")
    assert look("packages").state is State.OK
    distribution(installed, "numpy", "1.0.1")
    for required, found, shown in (
        (["numpy>=1.26", "pyyaml>=6"], "numpy is 1.0.1, >=1.26 is needed", "'numpy>=1.26'"),
        (["no-such-package==3.1"], "no-such-package is not installed", "no-such-package==3.1"),
    ):
        requiring(installed, *required)
        finding = fault("packages")
        assert (finding.found, finding.hints) == (found, (f"{sys.executable} -m pip install {shown}",))


def test_extras_are_told_apart_and_a_wrong_version_in_one_is_a_warning(installed: Path) -> None:
    extras = [f"Provides-Extra: {each}" for each in ("fine", "other", "dev")]
    wanted = ["numpy>=1; extra == 'fine'", "no-such-package; extra == 'other'", "no-such-either; extra == 'dev'"]
    requiring(installed, *wanted, extras=extras)
    finding = look("extras")
    assert (finding.state, finding.found) == (State.OK, "fine; not installed: other")
    assert "edgedeploy[other]" in finding.hints[0]
    distribution(installed, "no-such-package", "1")
    wanted[1] = "no-such-package>=2; extra == 'other'"
    requiring(installed, *wanted, extras=extras)
    finding = look("extras")
    assert (finding.state, finding.found) == (State.WARNING, "no-such-package is 1, >=2 is needed")


def test_a_checkout_that_was_not_installed_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "NAME", "edgedeploy-that-nobody-installed")
    assert look("packages").state is State.WARNING
    assert look("extras").state is State.NOT_APPLICABLE


def test_where_a_package_is_missing_that_the_doctor_itself_needs_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "paramiko.py").write_text("raise ModuleNotFoundError(\"No module named 'paramiko'\", name='paramiko')")
    requiring(tmp_path, "paramiko>=99")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{builtin_folder()}"}
    command = [sys.executable, "-m", "edgedeploy", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=generous(60), check=False)
    assert done.returncode == 22, done.stderr
    assert "host: packages: failed: paramiko is" in done.stdout


# Toolchains


@pytest.fixture
def gnu(tmp_path: Path) -> str:
    """A Raspberry Pi 4 whose code Debian's cross compiler links."""
    return write_profile(tmp_path, "rpi4", toolchain="gnu-aarch64", ssh=None)


def test_a_toolchain_outside_the_path_is_missing(gnu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = fault("toolchain", gnu)
    assert "no program aarch64-linux-gnu-gcc" in finding.found
    assert "apt install g++-aarch64-linux-gnu" in finding.hints
    assert "use --toolchain zig, which links for every board" in finding.hints


Compiler = Callable[[str], Path]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Puts a script in the place of Debian's cross compiler."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return lambda script: executable(tmp_path / "aarch64-linux-gnu-gcc", script)


def test_a_toolchain_for_another_machine_is_refused(gnu: str, compiler: Compiler) -> None:
    need("cc", "gcc")
    compiler('exec cc "$@"')
    assert "does not make code for aarch64" in fault("toolchain", gnu).found


@pytest.mark.slow
def test_a_hanging_compiler_is_ended_with_its_children(
    gnu: str, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(f"sleep 1000 & echo $! > {tmp_path}/pid; wait")
    monkeypatch.setattr(host, "_COMPILE_S", 10)
    monkeypatch.setattr(running, "busyness", lambda: 1.0)
    assert "no answer within 10 s" in fault("toolchain", gnu).found
    assert not Path("/proc", (tmp_path / "pid").read_text().strip(), "exe").exists()


def test_what_the_toolchain_made_runs_here_or_emulated(local: Case) -> None:
    assert looked("toolchain", local).state is State.OK
    assert looked("program", local).found == "this machine runs it"
    with case_of(resolve("rpi-armhf")) as case:
        case.address = None
        assert looked("toolchain", case).state is State.OK
        finding = looked("program", case)
    if finding.state is State.NOT_APPLICABLE:
        assert any("apt" in hint for hint in finding.hints)
        pytest.skip(finding.found)
    assert finding.found.startswith("qemu-arm")


def test_a_program_that_does_not_run_is_a_fault_of_the_toolchain(local: Case) -> None:
    executable(local.program, "echo no room >&2; exit 9")
    finding = looked("program", local)
    assert (finding.state, finding.found) == (State.FAILED, "the toolchain's program does not run: no room")


def test_toolchains_that_are_not_installed_come_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    finding = look("other toolchains")
    assert "not installed: gnu-aarch64, gnu-armhf" in finding.found
    assert "for gnu-armhf: apt install g++-arm-linux-gnueabihf" in finding.hints
    assert look("CMake").state is State.NOT_APPLICABLE
    assert look("virtual boards").state is State.NOT_APPLICABLE


# Folders


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, mounted with the options that are the fixture's parameter."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    (folder := tmp_path / "disk").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("disk", "variable", "state", "said"),
    [
        ("size=256k", "XDG_CACHE_HOME", State.FAILED, "{disk}/edgedeploy cannot be written: No space left on device"),
        ("size=64m", "XDG_CACHE_HOME", State.WARNING, r"^0\.1 GiB are free"),
        ("size=16m,ro", "XDG_DATA_HOME", State.FAILED, "Read-only file system"),
    ],
    indirect=["disk"],
    ids=["full, as writing to it shows", "little room", "read-only"],
)
def test_disks_that_will_not_do_are_found(
    disk: Path, variable: str, state: State, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(disk))
    finding = look("folders")
    assert finding.state is state
    assert re.search(said.format(disk=disk), finding.found)
    if "No space" in said:
        assert finding.hints[0] == f"make room on the file system of {disk}: df -h {disk}"
        assert not list(disk.iterdir()), "nothing of the test file is left"


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert f"remove the file {tmp_path / 'file'}, which is in the way" in fault("folders").hints


def test_folders_of_networks_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
    assert look("networks").state is State.NOT_APPLICABLE
    for folder, state in ((tmp_path, State.OK), (tmp_path / "gone", State.FAILED)):
        monkeypatch.setenv("EDGEDEPLOY_MODELS", str(folder))
        assert look("networks").state is state


def test_a_taken_port_is_told_from_a_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(host, "DEFAULT_PORT", listener.getsockname()[1])
        finding = look("tracker ports")
    assert finding.state is State.WARNING
    assert "taken by something else" in finding.found
    with tracker() as endpoint:
        monkeypatch.setattr(host, "DEFAULT_PORT", endpoint.port)
        assert look("tracker ports").found.startswith(f"a tracker runs at {endpoint}")


# The way to a board


def at(address: str, names: list[str]) -> dict[str, Finding]:
    """What some checks find of a board at an address."""
    with case_of(resolve("rpi4"), [address]) as case:
        return {each.check.name: each.finding for each in examine(case, [NAMED[name] for name in names])}


WAY = ["address", "SSH server", "host key", "login", "architecture"]


def test_a_name_that_nobody_has_ends_the_way_to_the_board() -> None:
    found = at("pi@no-such-board.invalid", WAY)
    assert found["address"].state is State.FAILED
    assert found["address"].found.startswith("unknown host no-such-board.invalid")
    assert {found[name].state for name in WAY[1:]} == {State.NOT_APPLICABLE}
    assert found["architecture"].found == "not looked at, because of address"


def test_a_board_without_an_ssh_server_is_there_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = at(f"pi@127.0.0.1:{port}", WAY)
    assert found["address"].state is State.OK
    assert "nothing listens on its port" in found["SSH server"].found
    assert "openssh-server" in found["SSH server"].hints[0]


def test_a_board_that_is_off_is_known_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.doctor.board._PORT_S", 1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        # A queue that is full swallows every further call, as a network does where nobody is.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        started = time.monotonic()
        found = at(f"pi@127.0.0.1:{port}", WAY)
        for each in waiting:
            each.close()
    assert "does not answer" in found["SSH server"].found
    assert "power" in found["SSH server"].hints[0]
    assert time.monotonic() - started < generous(8)


def test_something_else_at_the_port_is_not_taken_for_an_ssh_server() -> None:
    def greet(done: threading.Event) -> None:
        stream, _ = listener.accept()
        with stream:
            stream.sendall(b"220 mail at your service\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, beside(greet):
        found = at(f"pi@127.0.0.1:{listener.getsockname()[1]}", WAY)
    assert "is not for SSH" in found["SSH server"].found


# The mechanism


def test_what_crashes_or_hangs_in_a_process_of_its_own_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "busyness", lambda: 1.0)
    finding = isolated(os.abort, limit_s=60)
    assert (finding.state, finding.found) == (State.FAILED, f"it crashed ({signal.SIGABRT.name})")
    finding = isolated(time.sleep, 100, limit_s=1, if_stuck="look")
    assert (finding.state, finding.found, finding.hints) == (State.FAILED, "no answer within 1 s", ("look",))


def made(name: str, look: object, **options: object) -> Check:
    return check(name, "host", **options)(look)


def test_a_check_that_hangs_fails_in_its_time_and_the_others_go_on(local: Case) -> None:
    checks = [
        made("after", lambda case: ok("fine"), needs=("hangs",)),
        made("hangs", lambda case: time.sleep(60), limit_s=0.2, if_stuck="wake it up"),
        made("slow", lambda case: (time.sleep(0.5), ok("fine"))[1]),
    ]
    started = time.monotonic()
    after, hangs, slow = (each.finding for each in examine(local, checks))
    assert time.monotonic() - started < generous(5)
    assert (hangs.state, hangs.hints) == (State.FAILED, ("wake it up",))
    assert after.state is State.NOT_APPLICABLE
    assert slow.state is State.OK


def test_all_checks_together_have_a_limit(local: Case) -> None:
    checks = [made(f"hangs {number}", lambda case: time.sleep(60), limit_s=50) for number in range(3)]
    started = time.monotonic()
    found = examine(local, checks, limit_s=0.5)
    assert time.monotonic() - started < generous(5)
    assert {each.finding.state for each in found} == {State.FAILED}


def test_a_warning_does_not_keep_others_from_being_looked_at_and_what_does_not_apply_is_left_out(local: Case) -> None:
    checks = [
        made("elsewhere", lambda case: failed("bad"), applies=lambda case: False),
        made("warns", lambda case: warning("hm"), needs=("elsewhere",)),
        made("after", lambda case: ok("fine"), needs=("warns",)),
    ]
    assert [(each.check.name, each.finding.state) for each in examine(local, checks)] == [
        ("warns", State.WARNING),
        ("after", State.OK),
    ]


def test_every_check_is_known_by_its_own_name_and_needs_known_ones() -> None:
    assert len(NAMED) == len(CHECKS)
    assert {name for each in CHECKS for name in each.needs} <= set(NAMED)


# OpenCL: with drivers, without, and with broken ones.

OPENCL_CHECKS = [opencl.icd_files, opencl.gpu_nodes, opencl.devices]
POCL = Path("/etc/OpenCL/vendors/pocl.icd")


def found(board: str = "local") -> dict[str, Finding]:
    with case_of(resolve(board, ask_device=False)) as case:
        return {each.check.name: each.finding for each in examine(case, OPENCL_CHECKS)}


def wrong_devices(board: str) -> Finding:
    said = found(board)["devices"]
    assert said.state is State.FAILED
    return said


@pytest.fixture
def board(tmp_path: Path) -> str:
    """A profile of this machine whose networks are to run on an OpenCL device."""
    return profile(tmp_path, name=ALL_THREADS)


def profile(folder: Path, **device: str) -> str:
    return write_profile(folder, "local", devices=[{"backend": "opencl", **device}])


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of drivers, which is the one that counts."""
    if ctypes.util.find_library("OpenCL") is None:
        pytest.skip("there is no libOpenCL: apt install ocl-icd-libopencl1")
    folder = tmp_path / "vendors"
    folder.mkdir()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    return folder


@pytest.fixture
def pocl(vendors: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PoCL alone, with one device."""
    monkeypatch.setenv("POCL_DEVICES", "pthread")
    if not POCL.is_file():
        pytest.skip("PoCL is not installed: apt install pocl-opencl-icd")
    shutil.copy(POCL, vendors)
    return vendors


def driver(vendors: Path, statement: str) -> None:
    """A driver that does something as soon as it is loaded."""
    need("cc", "gcc")
    source, library = vendors.parent / "driver.c", vendors.parent / "driver.so"
    headers = "#include <stdlib.h>\n#include <unistd.h>\n"
    source.write_text(f"{headers}__attribute__((constructor)) static void load(void) {{ {statement} }}\n")
    printed("cc", "-shared", "-fPIC", "-o", library, source)
    (vendors / "broken.icd").write_text(f"{library}\n")


def test_a_board_that_runs_networks_on_opencl_needs_the_driver_of_its_device(
    board: str, tmp_path: Path, vendors: Path
) -> None:
    said = found(board)
    assert said["ICD files"].state is State.FAILED
    assert str(vendors) in said["ICD files"].found
    assert said["ICD files"].hints == ("sudo apt install pocl-opencl-icd",)
    assert said["devices"].found == "not looked at, because of ICD files"
    said = found(profile(tmp_path, name="UHD", kind="intel"))["ICD files"]
    assert said.hints == ("sudo apt install intel-opencl-icd",)
    # One that runs them on the CPU needs none.
    assert {each.state for each in found().values()} == {State.NOT_APPLICABLE}


def test_devices_are_listed_with_what_their_driver_says(board: str, pocl: Path) -> None:
    checks = found(board)
    assert checks["GPU nodes"].state in (State.OK, State.NOT_APPLICABLE)
    said = checks["devices"]
    assert said.state is State.OK, said
    [device] = said.details["devices"]
    assert device["kind"] == "CPU"
    assert device["compute_units"] == os.cpu_count()
    assert 0 < device["global_memory"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert device["work_group"] >= max(1, *device["work_items"][:1])
    assert f"driver {device['driver']}" in said.found


def test_devices_are_those_that_clinfo_lists(board: str, pocl: Path) -> None:
    need("clinfo", "clinfo")
    listed = printed("clinfo", "--raw", timeout=generous(60))
    values = {fields[1]: fields[2] for line in listed.splitlines() if len(fields := line.split(None, 2)) == 3}
    [device] = found(board)["devices"].details["devices"]
    assert device["name"] == values["CL_DEVICE_NAME"].strip()
    assert device["driver"] == values["CL_DRIVER_VERSION"].strip()
    numbers = {
        "compute_units": "CL_DEVICE_MAX_COMPUTE_UNITS",
        "global_memory": "CL_DEVICE_GLOBAL_MEM_SIZE",
        "local_memory": "CL_DEVICE_LOCAL_MEM_SIZE",
        "work_group": "CL_DEVICE_MAX_WORK_GROUP_SIZE",
    }
    assert {mine: device[mine] for mine in numbers} == {mine: int(values[name]) for mine, name in numbers.items()}
    assert " ".join(map(str, device["work_items"])) == values["CL_DEVICE_MAX_WORK_ITEM_SIZES"].strip()


def test_a_device_that_is_not_the_one_of_the_profile_does_not_do(tmp_path: Path, pocl: Path) -> None:
    said = wrong_devices(profile(tmp_path, name="GeForce"))
    assert said.found.startswith("no device has 'GeForce' in its name, as the profile says")
    assert said.hints[0] == "name another device in the profile: `devices` of mine"


def test_a_variable_with_an_unknown_device_is_to_correct(
    board: str, pocl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, "GeForce")
    said = wrong_devices(board)
    assert said.found.startswith(f"no device has 'GeForce' in its name, as {DEVICE_VARIABLE} says")
    assert said.hints[0].startswith(f"unset {DEVICE_VARIABLE}")


def test_drivers_may_know_no_device(board: str, pocl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_DEVICES", "")
    assert wrong_devices(board).found == "the drivers know no device"


def test_a_registered_driver_that_is_not_there_is_found_out(board: str, vendors: Path) -> None:
    (vendors / "gone.icd").write_text("libno-such-driver.so.1\n")
    said = found(board)
    assert said["ICD files"].found.endswith("gone.icd names libno-such-driver.so.1")
    assert said["devices"].state is State.FAILED
    assert said["devices"].found == "no driver can be loaded: clGetPlatformIDs says -1001"


def test_a_driver_that_crashes_takes_nobody_with_it(command: Command, board: str, vendors: Path) -> None:
    driver(vendors, "abort();")
    assert "a driver crashes or hangs: it was ended by SIGABRT" in wrong_devices(board).found
    # It is only a warning where networks run on the CPU.
    [said] = [each for each in json_of(command, "doctor")["checks"] if each["name"] == "devices"]
    assert said["state"] == "warning"


def test_a_driver_that_hangs_is_ended(board: str, vendors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.target.opencl.device.LIST_S", 1)
    driver(vendors, "for (;;) pause();")
    assert "a driver crashes or hangs: it was ended by SIGKILL" in wrong_devices(board).found
