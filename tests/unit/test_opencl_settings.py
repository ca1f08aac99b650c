"""What a profile does not say of its OpenCL device is asked of the device: this machine's, or a probed board's."""

import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import executable, generous, need, output_of, printed, refusal
from support.opencl_devices import ALL_THREADS
from support.profiles import write_profile

from edgedeploy.benchmarking.engines import openvino
from edgedeploy.errors import InputError, NoOpenCLError
from edgedeploy.target.facts import Facts, Probed, store
from edgedeploy.target.hosts import host_facts
from edgedeploy.target.opencl import device as drivers
from edgedeploy.target.opencl.device import Device, devices_here, named, parse
from edgedeploy.target.opencl.profile import OpenCL, opencl_of, settings_of
from edgedeploy.target.resolved import resolve

pytestmark = pytest.mark.compiles

POCL = {
    **{"platform": "Portable Computing Language", "name": "pthread-skylake", "version": "OpenCL 3.0", "driver": "3.1"},
    **{"kind": "CPU", "compute_units": 4, "global_memory": 8 << 30, "local_memory": 1 << 20, "available": True},
    **{"has_compiler": True, "float_width": 16, "work_group": 4096, "work_items": (4096, 4096, 4096)},
}
UHD = "Intel(R) UHD Graphics 630"
GRAPHICS = {"name": UHD, "kind": "GPU", "compute_units": 24, "float_width": 1, "work_group": 256}


def device(**fields: Any) -> Device:
    return Device(**{**POCL, **fields})


def graphics(**fields: Any) -> Device:
    return device(**{**GRAPHICS, **fields})


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        (device(), {"vector": 16, "sums": 28, "work_group": 64, "tile_group": 1, "units": 4, "items": 4}),
        (graphics(), {"work_group": 64, "units": 24}),
        (graphics(half=True), {"work_group": 64, "units": 24, "half": True}),
        (graphics(compute_units=0, work_group=0), {}),
    ],
    ids=["a CPU", "a graphics processor, which keeps the vectors that it reads at once", "half", "a silent driver"],
)
def test_settings_follow_from_what_a_device_says(asked: Device, settings: dict[str, int]) -> None:
    assert settings_of(asked, registers=32) == settings


@pytest.mark.parametrize(("most", "taken"), [(1, 1), (48, 32), (64, 64), (1000, 64)])
def test_a_work_group_is_a_power_of_two_that_the_device_takes(most: int, taken: int) -> None:
    assert settings_of(graphics(work_group=most), registers=16)["work_group"] == taken


@pytest.mark.parametrize(("width", "taken"), [(1, 1), (3, 2), (4, 4), (8, 8), (32, 16)])
def test_vectors_are_of_a_width_that_opencl_has(width: int, taken: int) -> None:
    assert settings_of(device(float_width=width), registers=16)["vector"] == taken


@pytest.mark.parametrize("registers", [1, 16, 32])
@pytest.mark.parametrize("odd", [0, 1, (1 << 64) - 1])
def test_odd_answers_of_a_driver_give_a_section_that_a_profile_could_have(odd: int, registers: int) -> None:
    for kind in ("CPU", "GPU", "accelerator"):
        asked = device(kind=kind, compute_units=odd, float_width=odd, work_group=odd)
        OpenCL.model_validate({"name": "", **settings_of(asked, registers)})


def test_the_device_is_the_one_that_the_runtime_takes() -> None:
    both = [device(name="pthread-Intel(R) Xeon(R)"), device(name="Intel FPGA", kind="accelerator"), graphics()]
    assert named("intel", both) == graphics()
    assert named("", both[:2]) == both[1]
    assert named("Mali", both) is None


def test_the_runtime_takes_the_same_device(opencl: Any) -> None:
    first = named("", devices_here())
    assert opencl.device_name == first.name
    assert opencl.max_threads_per_block == first.work_group
    assert opencl.multi_processor_count == first.compute_units


def test_a_line_that_a_crash_cut_off_is_left_out() -> None:
    whole = "device\tpthread\t3.0\t3.1\t2\t4\t100\t10\t1\t1\t16\t4096\t1\t4096\n"
    [found] = parse(f"platform\tPoCL\n{whole}{whole[:30]}")
    assert (found.name, found.half, found.work_items) == ("pthread", True, (4096,))
    assert found.line().endswith("work-groups of up to 4096 (4096), half precision")


# The profile of this machine's device.


def profile(folder: Path, **stated: object) -> str:
    return write_profile(folder, "local-opencl", devices=[{"backend": "opencl", **stated}])


def section(board: str, **overrides: object) -> OpenCL:
    found = opencl_of(resolve(board, {"device": overrides} if overrides else {}).profile)
    assert found is not None
    return found


@pytest.fixture
def clinfo(opencl: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What `clinfo` says of PoCL's one device, by OpenCL's names."""
    monkeypatch.setenv("POCL_DEVICES", "pthread")
    need("clinfo", "clinfo")
    listed = printed("clinfo", "--raw", timeout=generous(60))
    devices_here.cache_clear()
    yield {fields[1]: fields[2].strip() for line in listed.splitlines() if len(fields := line.split(None, 2)) == 3}
    devices_here.cache_clear()


def test_local_opencl_is_what_this_machines_device_is(clinfo: dict[str, str]) -> None:
    found = section("local-opencl", name=ALL_THREADS)
    assert found.vector == int(clinfo["CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT"])
    assert found.units == int(clinfo["CL_DEVICE_MAX_COMPUTE_UNITS"])
    assert found.half == ("cl_khr_fp16" in clinfo["CL_DEVICE_EXTENSIONS"])
    assert found.work_group <= int(clinfo["CL_DEVICE_MAX_WORK_GROUP_SIZE"])
    assert found.sums < host_facts()["vector"]["registers"]


def test_the_command_line_goes_before_the_profile_and_that_before_the_device(opencl: Any, tmp_path: Path) -> None:
    device_says = section("local-opencl")
    mine = profile(tmp_path, vector=2, items=7)
    assert section(mine) == device_says.model_copy(update={"vector": 2, "items": 7})
    assert section(mine, items=9) == device_says.model_copy(update={"vector": 2, "items": 9})


def test_a_device_that_is_not_here_leaves_the_defaults(tmp_path: Path) -> None:
    assert section(profile(tmp_path, name="GeForce")) == OpenCL(name="GeForce")


def test_the_environment_overrides_the_profiles_device(
    opencl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDEPLOY_OPENCL_DEVICE", ALL_THREADS)
    assert section(profile(tmp_path, name="GeForce")).vector == section("local-opencl").vector


@pytest.mark.parametrize(
    ("does", "limit_s"),
    [("printf 'platform\\tPoCL\\n'\nkill -ABRT $$", drivers.LIST_S), ("exec sleep 60", 0.2)],
    ids=["crashes", "hangs"],
)
def test_a_driver_that_crashes_or_hangs_leaves_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, limit_s: float
) -> None:
    program = executable(tmp_path / "program", does)
    monkeypatch.setattr(drivers, "_program", lambda: program)
    monkeypatch.setattr(drivers, "LIST_S", limit_s)
    assert devices_here.__wrapped__() == ()


# Profiles of boards elsewhere, whose devices they told when they were probed.


@pytest.fixture(autouse=True)
def _nothing_was_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def remember(host: str, hour: int, *found: Device) -> None:
    time = datetime(2026, 1, 2, hour, tzinfo=timezone.utc)
    store(Probed(board="nuc-opencl", host=host, time=time, facts=Facts(opencl=list(found))))


def test_a_board_that_was_not_probed_has_the_defaults() -> None:
    assert section("nuc-opencl") == OpenCL(name="Intel", kind="intel")


def test_a_probed_board_is_what_its_device_said() -> None:
    remember("user@a", 1, device(), graphics())
    assert section("nuc-opencl").units == 24
    remember("user@b", 2, graphics(compute_units=48, work_group=32, half=True))
    found = section("nuc-opencl")
    assert (found.units, found.work_group, found.half) == (48, 32, True)
    assert section("nuc-opencl", name="pthread").vector == 16


def test_a_virtual_boards_device_is_not_the_boards() -> None:
    remember("virtual:nuc-opencl", 1, graphics(compute_units=96))
    assert section("nuc-opencl").units == OpenCL(name="").units


# On the command line.


@pytest.mark.slow
def test_another_device_is_chosen_for_one_command(opencl: Any, command: Command) -> None:
    err = refusal(command, 21, "run", "digits", "--board", "local-opencl", "--device", "GeForce")
    assert "no OpenCL device here has 'GeForce' in its name" in err
    assert command("run", "digits", "--board", "local-opencl", "--device", ALL_THREADS)[0] == 0


def test_a_board_without_opencl_has_no_device_to_choose(command: Command) -> None:
    with pytest.raises(InputError):
        resolve("rpi4", {"device": {"name": ""}})
    assert "the board has no device to choose" in refusal(command, 7, "build", "digits", "--device", "Intel")


# `edgedeploy bench` on OpenCL boards: edgedeploy on the device, beside engines on the processor.

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
    devices = {row["engine"]: row["device"] for row in json.loads(out)["rows"]}
    assert devices == {"edgedeploy": opencl.device_name, "onnxruntime": "CPU"}


def test_this_machine_is_not_reached_over_ssh_by_that_name(command: Command) -> None:
    assert "this machine" in refusal(command, 7, "push", "digits", "--board", "rpi4", "--host", "local")


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
