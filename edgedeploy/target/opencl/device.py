"""OpenCL devices, as their drivers describe them; the one that a profile names; and this machine's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import resources
from pathlib import Path

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.documents import Record
from edgedeploy.base.files import sha256_of
from edgedeploy.base.programs import capture
from edgedeploy.errors import EdgedeployError
from edgedeploy.target.board import load_board
from edgedeploy.target.toolchain import c_compiler, link_program

# The environment variable that names a device instead of packages and profiles.
DEVICE_VARIABLE = "EDGEDEPLOY_OPENCL_DEVICE"

# CL_DEVICE_TYPE_* of CL/cl.h.
_KINDS = {2: "CPU", 4: "GPU", 8: "accelerator", 16: "custom device"}


class Device(Record):
    """An OpenCL device, as its driver describes it; memory in bytes, work-groups in work-items."""

    platform: str
    name: str
    version: str
    driver: str
    kind: str
    compute_units: int
    global_memory: int
    local_memory: int
    available: bool
    has_compiler: bool
    float_width: int  # of its vector instructions, in float32 (CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT)
    work_group: int
    half: bool = False  # arithmetic in half precision (cl_khr_fp16)
    work_items: tuple[int, ...]

    def line(self) -> str:
        """The device in one line."""
        sizes = " x ".join(map(str, self.work_items))
        return (
            f"{self.name} ({self.kind}, {self.platform}): driver {self.driver}, {self.version.strip()}, "
            f"{self.compute_units} compute units, {self.global_memory / (1 << 30):.1f} GiB, "
            f"{self.local_memory >> 10} KiB local, work-groups of up to {self.work_group} ({sizes})"
            + (", half precision" if self.half else "")
        )


def meant(stated: str) -> str:
    """The part of its name by which a device is found; `stated` by a package or a profile."""
    return os.environ.get(DEVICE_VARIABLE, stated)


def named(part: str, devices: Iterable[Device]) -> Device | None:
    """The device that the runtime chooses by a `part` of its name.

    Graphics processors go before others, and CPUs last (`agent/opencl/device.cc`).
    """
    ranks = {"GPU": 0, "CPU": 2}
    fitting = [each for each in devices if part.lower() in each.name.lower()]
    return min(fitting, key=lambda each: ranks.get(each.kind, 1), default=None)


def parse(text: str) -> list[Device]:
    """The devices in the output of `listing.c`, without a line that a crash cut off."""
    found, driver_name = [], ""
    for kind, *fields in (line.split("\t") for line in text.splitlines()):
        if kind == "platform":
            driver_name = fields[0]
        elif kind == "device" and len(fields) >= 12 and all(each.isdecimal() for each in fields[3:]):
            found.append(_device(driver_name, fields))
    return found


def _device(driver_name: str, fields: Sequence[str]) -> Device:
    name, version, driver, *numbers = fields
    bits, units, memory, local, available, compiler, width, group, half, *sizes = map(int, numbers)
    kind = next((word for bit, word in _KINDS.items() if bits & bit), "device")
    texts, flags = (driver_name, name.strip(), version, driver, kind), (bool(available), bool(compiler))
    stated = (*texts, units, memory, local, *flags, width, group, bool(half), tuple(sizes))
    return Device.model_validate(dict(zip(Device.model_fields, stated, strict=True)))


# The exit codes of `listing.c`, which lists devices in a separate process: drivers may crash or hang.
NO_LIBRARY, NO_PLATFORMS = 3, 4

LIST_S = 12

_PROGRAMS, _NAME = FolderCache("opencl-devices"), "devices"


def listing_source() -> AbstractContextManager[Path]:
    """The path of `listing.c`."""
    return resources.as_file(resources.files("edgedeploy.target.opencl") / "listing.c")


@cache
def devices_here() -> tuple[Device, ...]:
    """This machine's devices; none if they cannot be listed: opening one reports the reason.

    The program is compiled once, and cached in the user's cache folder.
    """
    try:
        done = capture([str(_program())], timeout_s=LIST_S)
    except (EdgedeployError, OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(parse(done.stdout)) if done.returncode == 0 else ()


def _program() -> Path:
    board = load_board("local")
    with listing_source() as source:
        key = key_of([sha256_of(source), c_compiler(board).identity])[:16]
        what = "building the program that lists OpenCL devices"
        return _PROGRAMS.get_file(key, _NAME, lambda program: link_program(source, program, board), what)
