"""Logs of demos, to be compared."""

from __future__ import annotations

import re


def masked(log: str) -> str:
    """A log without what differs from run to run, and from place to place: times, threads and where files lie."""
    return re.sub(r"\d+\.\d+ ms|thread \d+|(?<=model file : ).*|(?<=image file : ).*", "#", log)
