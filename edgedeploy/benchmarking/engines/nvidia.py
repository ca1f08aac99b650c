"""What engines for NVIDIA's graphics processors share."""

from __future__ import annotations

from pathlib import Path

# What the driver makes: on Linux, and inside Windows.
_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")
EXTRA = "bench-gpu"


def missing() -> str | None:
    """Why no engine for them can run here; None if there is a driver."""
    if any(Path(device).exists() for device in _DEVICES):
        return None
    return "there is no NVIDIA graphics processor here, or no driver for it"
