"""Run a built network, and measure how long it takes.

`edgedeploy.runtime.Network("retinaface")(image)` is one inference, here as in the Python package of boards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgedeploy.api.local_runtime import Network

__all__ = ["Network"]


def __getattr__(name: str) -> Any:
    """Import `Network` on first use."""
    if name != "Network":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from edgedeploy.api.local_runtime import Network

    return Network
