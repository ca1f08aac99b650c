"""The whole tutorial, with its part on a virtual Raspberry Pi 4."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, Command
from support.consoles import follow
from support.virtual_boards import Start


@pytest.mark.slow
def test_the_tutorial_can_be_followed_to_its_end(board_command: Command, start: Start) -> None:
    start("rpi4")
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert follow(page, Path.cwd(), {"DIGITS": str(ROOT / "models"), "PYTHONPATH": str(ROOT)}) == []
