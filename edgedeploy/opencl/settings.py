"""What kernels go by where a board's profile does not say: values that follow from what a device's driver says."""

from __future__ import annotations

from edgedeploy.opencl.device import Device

# What OpenCL C has types for.
WIDTHS = (1, 2, 4, 8, 16)

# A device is asked for work-groups of this size at most; it may take only smaller ones.
WORK_GROUP = 64

# A CPU runs the work-items of a group one after another. Groups of many are there because each takes its time to begin,
# which those that compute tiles are long enough to outweigh; a few items for each core keep all of them at work.
# Measured on PoCL; docs/opencl.md has the times.
CPU_TILE_GROUP, CPU_ITEMS = 1, 4

# Registers of a CPU that hold no sums: two vectors of weights, an input, and one that the driver's compiler keeps.
OTHER_REGISTERS = 4

# Numbers beyond it are no count of compute units: no device has a tenth of that.
_MOST_UNITS = 1 << 16


def settings_of(device: Device, registers: int) -> dict[str, int]:
    """Fields of a profile's `opencl` section as a device has them; those that it does not tell are left out.

    Args:
        device: the device.
        registers: how many vector registers the board's CPU has, which count where that is the device.
    """
    settings: dict[str, int] = {}
    if 0 < device.compute_units < _MOST_UNITS:
        settings["units"] = device.compute_units
    if device.work_group > 0:
        settings["work_group"] = min(WORK_GROUP, _power_of_two(device.work_group))
    # Drivers of graphics processors state the width 1 even where vectors are read at once, so theirs is not honoured.
    if device.kind == "CPU" and device.float_width > 0:
        settings["vector"] = max(width for width in WIDTHS if width <= device.float_width)
        settings["sums"] = max(1, registers - OTHER_REGISTERS)
        settings["tile_group"] = CPU_TILE_GROUP
        settings["items"] = CPU_ITEMS
    return settings


def _power_of_two(number: int) -> int:
    """The largest one that is not above a number."""
    return 1 << (number.bit_length() - 1)
