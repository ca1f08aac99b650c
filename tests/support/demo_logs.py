"""Logs of demos, to be compared."""

from __future__ import annotations

import re

import pytest


def masked(log: str) -> str:
    """A log without what differs from run to run, and from place to place: times, threads and where files lie."""
    return re.sub(r"\d+\.\d+ ms|thread \d+|(?<=model file : ).*|(?<=image file : ).*", "#", log)


def assert_alike(found: str, wanted: str) -> None:
    """Two logs have the same lines; numbers that are printed with six digits may differ in the last one."""
    number = r"-?\d+\.\d{2,}"
    assert re.sub(number, "#", found) == re.sub(number, "#", wanted)
    for one, other in zip(re.findall(number, found), re.findall(number, wanted), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-5, abs=2e-5), (one, other)
