"""How long tests wait for what an idle machine does in some seconds: that something ends is tested, not when."""

from __future__ import annotations

import os


def generous(seconds: float) -> float:
    """Four times as long, and longer while more processes want to run than there are processors."""
    waiting = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return 4 * seconds * max(1.0, waiting)
