"""What `edgedeploy doctor` says of OpenCL on this machine: with drivers, without, and with some that are broken."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Command
from support.patience import generous
from support.profiles import write_profile

from edgedeploy.doctor import opencl
from edgedeploy.doctor.case import case_of
from edgedeploy.doctor.check import Finding, State
from edgedeploy.doctor.examination import examine
from edgedeploy.target.opencl.device import DEVICE_VARIABLE
from edgedeploy.target.resolved import resolve

pytestmark = pytest.mark.compiles

CHECKS = [opencl.icd_files, opencl.gpu_nodes, opencl.devices]
POCL = Path("/etc/OpenCL/vendors/pocl.icd")


def found(board: str = "local") -> dict[str, Finding]:
    with case_of(resolve(board, ask_device=False)) as case:
        return {each.check.name: each.finding for each in examine(case, CHECKS)}


@pytest.fixture
def board(tmp_path: Path) -> str:
    """A profile of this machine whose networks are to run on an OpenCL device."""
    return profile(tmp_path, name="pthread")


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
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a driver with")
    source, library = vendors.parent / "driver.c", vendors.parent / "driver.so"
    headers = "#include <stdlib.h>\n#include <unistd.h>\n"
    source.write_text(f"{headers}__attribute__((constructor)) static void load(void) {{ {statement} }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    (vendors / "broken.icd").write_text(f"{library}\n")


def test_a_board_that_runs_networks_on_opencl_needs_a_driver(board: str, vendors: Path) -> None:
    said = found(board)
    assert said["ICD files"].state is State.FAILED
    assert str(vendors) in said["ICD files"].found
    assert said["ICD files"].hints == ("sudo apt install pocl-opencl-icd",)
    assert said["devices"].found == "not looked at, because of ICD files"


def test_the_driver_to_install_is_that_of_the_device(tmp_path: Path, vendors: Path) -> None:
    assert found(profile(tmp_path, name="UHD", kind="intel"))["ICD files"].hints == (
        "sudo apt install intel-opencl-icd",
    )


def test_a_board_that_runs_networks_on_the_cpu_needs_none(vendors: Path) -> None:
    assert {each.state for each in found().values()} == {State.NOT_APPLICABLE}


def test_devices_are_listed_with_what_their_driver_says(board: str, pocl: Path) -> None:
    said = found(board)["devices"]
    assert said.state is State.OK, said
    [device] = said.details["devices"]
    assert device["kind"] == "CPU"
    assert device["compute_units"] == os.cpu_count()
    assert 0 < device["global_memory"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert device["work_group"] >= max(1, *device["work_items"][:1])
    assert f"driver {device['driver']}" in said.found
    assert found(board)["GPU nodes"].state in (State.OK, State.NOT_APPLICABLE)


def test_devices_are_those_that_clinfo_lists(board: str, pocl: Path) -> None:
    if shutil.which("clinfo") is None:
        pytest.skip("clinfo is not installed: apt install clinfo")
    listed = subprocess.run(
        ["clinfo", "--raw"], capture_output=True, text=True, timeout=generous(60), check=True
    ).stdout
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
    said = found(profile(tmp_path, name="GeForce"))["devices"]
    assert said.state is State.FAILED
    assert said.found.startswith("no device has 'GeForce' in its name, as the profile says")
    assert said.hints[0] == "name another device in the profile: `devices` of mine"


def test_a_variable_with_an_unknown_device_is_to_correct(
    board: str, pocl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, "GeForce")
    said = found(board)["devices"]
    assert said.state is State.FAILED
    assert said.found.startswith(f"no device has 'GeForce' in its name, as {DEVICE_VARIABLE} says")
    assert said.hints[0].startswith(f"unset {DEVICE_VARIABLE}")


def test_drivers_may_know_no_device(board: str, pocl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_DEVICES", "")
    said = found(board)["devices"]
    assert (said.state, said.found) == (State.FAILED, "the drivers know no device")


def test_a_registered_driver_that_is_not_there_is_found_out(board: str, vendors: Path) -> None:
    (vendors / "gone.icd").write_text("libno-such-driver.so.1\n")
    said = found(board)
    assert said["ICD files"].found.endswith("gone.icd names libno-such-driver.so.1")
    assert said["devices"].state is State.FAILED
    assert said["devices"].found == "no driver can be loaded: clGetPlatformIDs says -1001"


def test_a_driver_that_crashes_takes_nobody_with_it(board: str, vendors: Path) -> None:
    driver(vendors, "abort();")
    said = found(board)["devices"]
    assert said.state is State.FAILED
    assert "a driver crashes or hangs: it was ended by SIGABRT" in said.found


def test_a_driver_that_hangs_is_ended(board: str, vendors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "LIST_S", 1)
    driver(vendors, "for (;;) pause();")
    said = found(board)["devices"]
    assert said.state is State.FAILED
    assert "a driver crashes or hangs: it was ended by SIGKILL" in said.found


def test_a_broken_driver_is_only_a_warning_where_networks_run_on_the_cpu(command: Command, vendors: Path) -> None:
    driver(vendors, "abort();")
    code, out, _ = command("doctor", "--json")
    [said] = [each for each in json.loads(out)["checks"] if each["name"] == "devices"]
    assert (code, said["state"]) == (0, "warning")
