"""The Python of the API's page that needs a board, on a virtual one."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, Command
from support.snippets import BOARD, lay_out, run, snippets
from support.virtual_boards import Start, emptied

API = ROOT / "docs" / "api.md"


@pytest.mark.slow
def test_the_boards_part_of_the_page_runs(
    board_command: Command, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    emptied(start("rpi4"))
    names = lay_out(Path.cwd(), ROOT / "models")
    exec("import edgedeploy as ed", names)
    run(API, [part for part in snippets(API) if BOARD in part[1]], names)
    assert "pushed" in capsys.readouterr().out
