"""What is set once, in files and environment variables, and what goes before it."""

import re
from pathlib import Path

import pytest
from conftest import ROOT, Command
from support.commands import Notebook, refusal

from edgedeploy.base import settings
from edgedeploy.base.cache import FolderCache
from edgedeploy.errors import ConfigurationError
from edgedeploy.remote.address import addresses
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.virtual.board import VirtualBoard


@pytest.fixture
def users(command: Command) -> Path:
    """The user's own file; the working folder is empty."""
    path = settings.user_folder() / settings.USERS
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_the_working_folder_overrides_the_user_and_variables_both(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings.default_board(), settings.default_threads(), settings.whereabouts("rpi4")) == (None, None, None)
    users.write_text('board = "rpi3"\nthreads = 1\n[hosts]\nrpi3 = "a@b"\nrpi4 = "c@d"\n')
    assert (settings.default_board(), settings.default_threads()) == ("rpi3", 1)
    Path(settings.HERE).write_text('board = "rpi4"\n[hosts]\nrpi4 = "e@f"\n')
    assert (settings.default_board(), settings.default_threads()) == ("rpi4", 1)
    assert [found.host for name in ("rpi3", "rpi4") if (found := settings.whereabouts(name))] == ["a@b", "e@f"]
    monkeypatch.setenv(settings.BOARD_VARIABLE, "rpi5")
    monkeypatch.setenv(settings.THREADS_VARIABLE, "3")
    assert (settings.default_board(), settings.default_threads()) == ("rpi5", 3)
    monkeypatch.setenv(settings.THREADS_VARIABLE, "many")
    with pytest.raises(ConfigurationError, match="EDGEDEPLOY_THREADS is 'many'"):
        settings.default_threads()


def test_a_command_takes_the_board_and_threads_that_are_set_unless_it_is_told_others(
    users: Path, command: Command
) -> None:
    users.write_text('board = "no-such-board"\n')
    for arguments in (["run", "digits"], ["push"], ["releases", "list"], ["demo", "digits"], ["predict", "digits"]):
        assert "unknown board 'no-such-board'" in command(*arguments)[2], arguments
    assert "unknown board 'another'" in command("run", "digits", "--board", "another")[2]
    assert command("version")[0] == 0
    users.write_text("threads = 4096\n")
    assert "4096 threads were asked for" in refusal(command, 7, "bench", "digits", "--against", "onnxruntime")


def test_a_board_is_where_the_file_says_and_that_is_said(users: Path) -> None:
    users.write_text('[hosts]\nrpi4 = "me@somewhere:23"\n')
    notes = Notebook()
    assert [*map(str, addresses(resolve("rpi4"), progress=notes))] == ["me@somewhere:23"]
    assert notes.lines == [f"rpi4 is at me@somewhere:23, as {users} says"]
    assert [*map(str, addresses(resolve("rpi4"), ["you@elsewhere"]))] == ["you@elsewhere"]


def test_boards_are_virtual_where_that_is_set(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line goes before the variable, that before the working folder's file, that before the user's own."""
    users.write_text('virtual = true\n[hosts]\nrpi4 = "a@b"\n')
    assert settings.whereabouts("rpi4") == settings.Whereabouts(None, str(users))
    assert settings.whereabouts("rpi4", virtual=False) == settings.Whereabouts("a@b", str(users))
    Path(settings.HERE).write_text("virtual = false\n")
    assert settings.whereabouts("rpi4") == settings.Whereabouts("a@b", str(users))
    assert settings.whereabouts("rpi5") is None
    monkeypatch.setenv(settings.VIRTUAL_VARIABLE, "1")
    assert settings.whereabouts("rpi4") == settings.Whereabouts(None, "EDGEDEPLOY_VIRTUAL")
    assert str(addresses(resolve("rpi4"), ["you@elsewhere"])[0]) == "you@elsewhere"
    assert str(addresses(resolve("rpi4"), virtual=False)[0]) == "a@b"
    assert Place(resolve("rpi4")).emulated("another")
    assert not Place(resolve("rpi4"), virtual=False).emulated("another")
    assert not Place(resolve("local")).remote
    monkeypatch.setenv(settings.VIRTUAL_VARIABLE, "perhaps")
    with pytest.raises(ConfigurationError, match="EDGEDEPLOY_VIRTUAL is 'perhaps'"):
        settings.whereabouts("rpi4")


def test_a_board_set_to_be_virtual_is_started_with_a_message(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = VirtualBoard.model_construct(name="rpi4", user="pi", port=2222, key=Path("k"), known_hosts=Path("h"))
    monkeypatch.setattr("edgedeploy.remote.address.up", lambda board, progress: started)
    users.write_text("virtual = true\n")
    notes = Notebook()
    assert str(addresses(resolve("rpi4"), progress=notes)[0]) == "virtual:rpi4"
    assert notes.lines == [f"rpi4 is a virtual board, as {users} says"]


def test_the_cache_is_where_it_is_set(users: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    users.write_text(f'cache = "{tmp_path / "big"}"\n')
    assert FolderCache("packages").folder == tmp_path / "big" / "packages"
    monkeypatch.setenv(settings.CACHE_VARIABLE, str(tmp_path / "bigger"))
    assert FolderCache("packages").folder == tmp_path / "bigger" / "packages"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("board = 1", "board: must be a text"),
        ("threads = 0", "threads: must be above 0"),
        ('bord = "rpi4"', "bord: there is no such field"),
        ('cache = "/anywhere"', "cache: there is no such field"),
        ("board =", "Invalid value"),
        ('board = "\x00"', "cannot read"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, why: str, users: Path, command: Command) -> None:
    Path(settings.HERE).write_text(text)
    with pytest.raises(ConfigurationError, match=why):
        settings.default_board()
    assert "edgedeploy.toml" in refusal(command, 3, "run", "digits")
    assert command("help", "run")[0] == 0


def test_a_changed_file_is_read_again(users: Path) -> None:
    for board in ("rpi3", "rpi-armhf"):
        users.write_text(f'board = "{board}"\n')
        assert settings.default_board() == board


def test_the_page_has_every_field_and_every_variable(users: Path) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    users.write_text(text.split("```toml\n")[1].split("```")[0])
    assert settings.default_board() == "rpi4"
    assert settings.whereabouts("rpi5") == settings.Whereabouts("pi@pi5.local", str(users))
    rows = set(re.findall(r"^\| `(\w+)(?:\.\w+)?` \|", text, re.MULTILINE))
    assert set(settings._schema(users=True).model_fields) <= rows
    code = [each for part in ("edgedeploy", "agent") for each in (ROOT / part).rglob("*")]
    files = [each for each in code if each.suffix in (".py", ".cc", ".sh")]
    used = set(re.findall(r'"(EDGEDEPLOY_[A-Z_]+)"', "\n".join(path.read_text(encoding="utf-8") for path in files)))
    assert {name for name in used if name != "EDGEDEPLOY_COMPLETE"} <= set(re.findall(r"`(EDGEDEPLOY_[A-Z_]+)`", text))
