"""The shells that boards have, on this machine."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(params=["dash", "bash --posix", "busybox sh"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """The command of a shell; the test is skipped where that is not installed."""
    words: list[str] = request.param.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return words
