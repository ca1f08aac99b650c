"""The shells that boards have, on this machine."""

import pytest

from support.commands import need


@pytest.fixture(params=["dash", "bash --posix", "busybox sh"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """The command of a shell; the test is skipped where that is not installed."""
    words: list[str] = request.param.split()
    need(words[0], words[0])
    return words
