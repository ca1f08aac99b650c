"""How long tests wait for what an idle machine does in some seconds: that something ends is tested, not when."""

from __future__ import annotations

from edgedeploy.hosts import busyness


def generous(seconds: float) -> float:
    """Four times as long, and longer while more processes want to run than there are processors."""
    return 4 * seconds * busyness()
