"""The Python API with a board over SSH; and pages that are followed on one: the tutorial, and those for programs."""

from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Command
from support.commands import json_of, need
from support.networks import tiny
from support.pages import BOARD, follow, lay_out, run, snippets
from support.virtual_boards import Bench, Start, emptied, rpicam

import edgedeploy as ed
from edgedeploy.errors import InputError, UnhealthyReleaseError
from edgedeploy.tuning.run import Options
from edgedeploy.vision.image import read_image

DIGIT = ROOT / "models" / "digit.png"


def test_pushes_opens_and_switches_over_one_connection(bench: Bench) -> None:
    with ed.connect(bench.board, host=bench.host) as board:
        assert board.facts.cores
        assert board.releases() == []
        first, second = (board.push(ed.Package(each)) for each in (bench.first, bench.second))
        assert second.to_dict()["current"]
        assert [(each.id, each.current) for each in board.releases("digits")] == [(first.id, False), (second.id, True)]
        assert board.rollback("digits") == first.id
        assert board.activate("digits", str(second.id)) == second.id
        assert [event.event.value for _, event in board.history()][-1] == "confirmed"
        with pytest.raises(UnhealthyReleaseError):
            board.activate("digits", str(first.id), health_check="false")
        assert board.test(ed.Package(bench.first)) <= 1
        assert board.remove_old(keep=1)
    assert bench.current() == second.id


def test_a_network_there_gives_what_it_gives_here(bench: Bench) -> None:
    data = np.random.default_rng(0).random((1, 1, 16, 16), np.float32)
    with ed.connect(bench.board, host=bench.host) as board, ed.open(bench.first) as here:
        there = board.open(bench.first)
        np.testing.assert_allclose(there(data)["prob"], here(data)["prob"], atol=1e-5)
        assert there.machine == board.facts.line()
        assert len(there.time(repeat=3).runs_ms) == 3
        assert there.memory()
        assert board.open("digits").detect(DIGIT)[0].label == "3"
    with pytest.raises(InputError, match="digits was closed"):
        there(data)


@pytest.mark.slow
def test_tunes_there(bench: Bench, tmp_path: Path) -> None:
    network = tiny(tmp_path / "net.onnx")
    with ed.connect(bench.board, host=bench.host) as board:
        few = Options(tuner="random", trials=3)
        tuned = ed.tune(network, connection=board, tasks="0", options=few, records=tmp_path / "records", compare=False)
        with pytest.raises(InputError, match="a connection does not go with a board"):
            ed.tune(network, connection=board, virtual=True)
    [result] = tuned.ended.results
    assert result.trials == 3
    assert tuned.before_ms is None
    assert tuned.to_dict()["results"][0]["best_ms"] > 0
    assert ed.build(network, tuning_records=str(tmp_path / "records"), check=False).manifest.tuning_records


def test_commands_say_in_json_what_they_switched(bench: Bench, board_command: Command) -> None:
    first, second = (bench.push(each).id for each in (bench.first, bench.second))
    rollback = json_of(board_command, "releases", "rollback", "digits", *bench.at)
    assert rollback == {"host": bench.host, "model": "digits", "release": first}
    assert json_of(board_command, "releases", "activate", "digits", second, *bench.at)["release"] == second
    removed = json_of(board_command, "releases", "gc", "--keep", 1, *bench.at)
    assert [each.rpartition("/")[2] for each in removed["removed"]] == [first]


def test_without_a_profile_nothing_is_built_for_a_board(bench: Bench) -> None:
    with ed.connect(host=bench.host) as board:
        assert board.releases() == []
        assert board.to_dict()["board"] is None
        with pytest.raises(InputError, match="kind of board at"):
            board.push("digits")


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
