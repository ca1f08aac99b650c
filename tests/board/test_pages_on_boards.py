"""Pages that are followed on a virtual Raspberry Pi 4: the tutorial, the API's, and programs of the reader's own."""

from pathlib import Path

import pytest
from conftest import ROOT, Command
from support.commands import need
from support.pages import BOARD, follow, lay_out, run, snippets
from support.virtual_boards import Start, emptied, rpicam

from edgedeploy.vision.image import read_image

TORCH = ROOT / "examples" / "torch"


@pytest.mark.slow
def test_the_tutorial_can_be_followed_to_its_end(board_command: Command, start: Start) -> None:
    board = emptied(start("rpi4"))
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    with rpicam(board, read_image(TORCH / "desk.jpg"), (640, 480)):
        assert follow(page, Path.cwd(), {"TORCH": str(TORCH), "PYTHONPATH": str(ROOT)}) == []


@pytest.mark.slow
def test_programs_can_be_made_from_an_empty_folder(board_command: Command, start: Start) -> None:
    need("cmake", "cmake")
    start("rpi4")
    page = (ROOT / "docs" / "your-program.md").read_text(encoding="utf-8")
    section = page.split("\n## From an empty folder to results, without a board\n")[1].split("\n## ")[0]
    in_cxx = "\n$ edgedeploy new app --language cpp"
    assert section.count(in_cxx) == 1
    # Each language's block brings all that it needs, whether or not the one before was followed.
    removed = "\n$ edgedeploy virtual ssh rpi4 'rm detect digit.pgm libedgedeploy.so.1'"
    section = section.replace(in_cxx, removed + in_cxx)
    assert follow(section, Path.cwd(), {"DIGITS": str(ROOT / "models"), "PYTHONPATH": str(ROOT)}) == []


API = ROOT / "docs" / "api.md"


@pytest.mark.slow
def test_the_api_page_runs_on_a_board(board_command: Command, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    emptied(start("rpi4"))
    names = lay_out(Path.cwd(), ROOT / "models")
    exec("import edgedeploy as ed", names)
    run(API, [part for part in snippets(API) if BOARD in part[1]], names)
    assert "pushed" in capsys.readouterr().out
