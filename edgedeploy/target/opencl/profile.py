"""The entry of a profile's `devices` that names an OpenCL device; the device's driver fills in the missing fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from edgedeploy.target.board import Board, Positive, filled
from edgedeploy.target.devices import Device
from edgedeploy.target.opencl import device as drivers
from edgedeploy.target.opencl.device import DEVICE_VARIABLE, devices_here, meant, named

# The lengths of OpenCL C's vectors.
WIDTHS = (1, 2, 4, 8, 16)

# Work-groups have at most this size; a device may take only smaller ones.
WORK_GROUP = 64

# A CPU runs the work-items of a group one after another. Large groups make up for the time to start each, but items
# that compute tiles are long enough without them; a few items for each core keep all cores busy. Measured on PoCL;
# docs/opencl.md has the times.
CPU_TILE_GROUP, CPU_ITEMS = 1, 4

# Registers of a CPU without sums: two vectors of weights, an input, and one that the driver's compiler keeps.
OTHER_REGISTERS = 4

# Larger numbers of compute units are invalid: no device has a tenth of that.
_MOST_UNITS = 1 << 16


class OpenCL(Device):
    """An OpenCL device; docs/opencl.md describes its fields. The device states those that its profile leaves out."""

    backend: Literal["opencl"] = "opencl"
    kind: Literal["intel", "mali", "adreno", "generic"] = "generic"
    vector: Literal[1, 2, 4, 8, 16] = 4
    sums: Positive = 8
    work_group: Positive = 64
    tile_group: Positive = 64
    units: Positive = 16
    items: Positive = 64
    little_work: Annotated[int, Field(ge=0)] = 30_000

    compiler = "edgedeploy.compile.backends.opencl:OpenCLBackend"
    runtime = "edgedeploy.runtime.opencl"
    # Devices may compute functions less exactly than CPUs do: "The OpenCL C Specification", 7.4, relative error.
    tolerance = (1e-3, 1e-6)
    agent_sources = "opencl"
    # PoCL, on one busy core, takes some seconds.
    compiling_s = 30.0
    # The driver that turns a processor into an OpenCL device, which stands in for the profile's on virtual boards.
    packages = ("ocl-icd-libopencl1", "pocl-opencl-icd")
    environment = {DEVICE_VARIABLE: ""}

    @override
    def target(self, host: dict[str, Any]) -> dict[str, Any]:
        target: dict[str, Any] = {"kind": "opencl", "host": host}
        if self.kind != "generic":
            target["device"] = self.kind
        return target

    @override
    def found(self, probed: Sequence[Any] | None, registers: int) -> OpenCL:
        if probed is None:
            device = named(meant(self.name), devices_here())
        else:
            device = next(filter(None, (named(self.name, facts.opencl) for facts in probed)), None)
        return filled(self, settings_of(device, registers)) if device else self


def opencl_of(board: Board) -> OpenCL | None:
    """The OpenCL device that a board's networks run on, if they do."""
    return board.device if isinstance(board.device, OpenCL) else None


def settings_of(device: drivers.Device, registers: int) -> dict[str, int]:
    """Fields of a profile's `opencl` section that a device's driver reports.

    `registers` are the vector registers of the board's CPU, which matter if it is the device.
    """
    settings: dict[str, int] = {}
    if 0 < device.compute_units < _MOST_UNITS:
        settings["units"] = device.compute_units
    if device.work_group > 0:
        settings["work_group"] = min(WORK_GROUP, 1 << device.work_group.bit_length() - 1)  # a power of two
    if device.half:
        settings["half"] = True
    # Drivers of graphics processors state the width 1 even if they read vectors at once, so theirs is ignored.
    if device.kind == "CPU" and device.float_width > 0:
        settings["vector"] = max(width for width in WIDTHS if width <= device.float_width)
        settings["sums"] = max(1, registers - OTHER_REGISTERS)
        settings["tile_group"] = CPU_TILE_GROUP
        settings["items"] = CPU_ITEMS
    return settings
