"""The entry of a profile's `devices` that names an OpenCL device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from edgedeploy.board import Board, Positive, filled
from edgedeploy.devices import Device
from edgedeploy.opencl.device import DEVICE_VARIABLE, meant, named
from edgedeploy.opencl.listing import devices_here
from edgedeploy.opencl.settings import settings_of


class OpenCL(Device):
    """An OpenCL device. All but its name and kind are taken from the device unless stated.

    Attributes:
        kind: TVM's tag of its kind.
        vector: float32 values that a work-item reads, multiplies and adds at a time.
        sums: vectors of sums that a work-item's registers hold.
        work_group: the most work-items of a group.
        tile_group: the most of a group that compute tiles of a convolution or a product.
        units: compute units.
        items: work-items that a unit needs to be busy.
        little_work: arithmetic operations of a function that the CPU does before a kernel would begin.
    """

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
    # The driver that makes a processor an OpenCL device, which stands in for whatever device the profile names.
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
            told = (named(self.name, facts.opencl) for facts in probed)
            device = next((each for each in told if each), None)
        if device is None:
            return self
        return filled(self, settings_of(device, registers))


def opencl_of(board: Board) -> OpenCL | None:
    """The OpenCL device that a board's networks run on, if they do."""
    return board.device if isinstance(board.device, OpenCL) else None
