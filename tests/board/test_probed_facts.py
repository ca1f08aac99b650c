"""What a board said when it was probed is kept, shown, and a default for what its profile leaves open."""

from datetime import datetime, timezone
from pathlib import Path

import pytest
from conftest import Command
from support.commands import json_of, output_of
from support.profiles import write_profile

from edgedeploy.target.facts import Facts, Probed, store, stored
from edgedeploy.target.resolved import resolve

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def _nothing_was_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def open_profile(tmp_path: Path) -> str:
    """A profile that states neither cores nor glibc."""
    return write_profile(tmp_path, "rpi4", cores=None, glibc=None)


def remember(host: str, hour: int = 0, board: str = "mine", **facts: object) -> None:
    store(Probed(board=board, host=host, time=NOON.replace(hour=hour), facts=Facts(**facts)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("probed", "known"),
    [
        pytest.param([], (1, None), id="nothing known means one thread and no floor"),
        pytest.param([("mine", "pi@a", 4, "2.36"), ("another", "pi@b", 64, "2.17")], (4, "2.36"), id="its own board"),
        pytest.param([("mine", "pi@a", 2, "2.36"), ("mine", "pi@b", 4, "2.9.1")], (2, "2.9"), id="the least of all"),
        pytest.param([("mine", "virtual:mine", 96, "2.99")], (1, None), id="a virtual board is none"),
    ],
)
def test_what_a_profile_leaves_open_is_what_its_boards_said(
    open_profile: str, probed: list[tuple[str, str, int, str]], known: tuple[int, str | None]
) -> None:
    for board, host, cores, glibc in probed:
        remember(host, board=board, cores=cores, glibc=glibc)
    profile = resolve(open_profile).profile
    assert (profile.cores, profile.glibc) == known


def test_the_profile_goes_before_what_was_probed_and_the_command_line_before_both(open_profile: str) -> None:
    remember("pi@a", board="rpi4", cores=2, glibc="2.41")
    stated = resolve("rpi4").profile
    assert (stated.cores, stated.glibc) == (4, "2.28")
    remember("pi@a", cores=2)
    assert resolve(open_profile, {"cores": 3}).profile.cores == 3


def test_the_latest_answer_of_a_host_is_kept_and_the_latest_host_comes_first() -> None:
    remember("pi@a", hour=1, cores=1)
    remember("pi@a", hour=2, cores=2)
    remember("pi@b", hour=3, cores=3)
    assert [(each.host, each.facts.cores) for each in stored("mine")] == [("pi@b", 3), ("pi@a", 2)]


def test_a_damaged_file_is_left_out(open_profile: str) -> None:
    remember("pi@a", cores=4)
    store(Probed(board="mine", host="pi@b", time=NOON, facts=Facts(cores=2))).write_text("{")
    assert resolve(open_profile).profile.cores == 4


def test_a_probed_board_is_shown_with_host_time_and_facts(board_command: Command) -> None:
    assert json_of(board_command, "boards", "show", "local")["probed"] == []
    output_of(board_command, "boards", "probe", "--board", "local", "--virtual")
    out = output_of(board_command, "boards", "show", "local")
    assert "UTC, virtual:local: " in out
    assert "glibc          2.36" in out
    [probed] = json_of(board_command, "boards", "show", "local")["probed"]
    assert (probed["host"], probed["facts"]["glibc"]) == ("virtual:local", "2.36")
    assert abs(datetime.now(timezone.utc) - datetime.fromisoformat(probed["time"].replace("Z", "+00:00"))).seconds < 600
