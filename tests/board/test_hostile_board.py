"""A board that would rather write to the terminal than be read: whatever it says is printed as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from conftest import Command
from support.foreign import HOSTILE, SHOWN, assert_is_text
from support.virtual_boards import Start, root_of

from edgedeploy.target.facts import stored
from edgedeploy.virtual.board import VirtualBoard, down

HOST = "virtual:hostile"

# As `. /etc/os-release` reads it, and the agent, which takes what stands between the quotes.
OS_RELEASE = 'PRETTY_NAME="{}"\n'


@pytest.fixture(scope="module")
def board(start: Start) -> Iterator[VirtualBoard]:
    virtual = start("local", name="hostile")
    (root_of(virtual) / "etc/os-release").write_text(OS_RELEASE.format(HOSTILE))
    yield virtual
    down(virtual)


def test_what_a_board_says_it_is_is_text(board: VirtualBoard, board_command: Command) -> None:
    code, out, err = board_command("boards", "probe", "--board", "local", "--host", HOST)
    assert code == 0, err
    assert_is_text(out, err)
    assert SHOWN.partition(r"\n")[0] in out
    code, out, err = board_command("boards", "show", "local")
    assert code == 0
    assert_is_text(out, err)
    assert SHOWN.partition(r"\n")[0] in out
    code, out, err = board_command("boards", "show", "local", "--json")
    [said] = [each["facts"]["system"] for each in json.loads(out)["probed"] if each["host"] == HOST]
    assert said == HOSTILE.replace("\n", " ")
    assert_is_text(out)


@pytest.mark.slow
def test_what_is_printed_while_a_board_is_used_is_text(board: VirtualBoard, board_command: Command) -> None:
    assert_is_text(*board_command("doctor", "--board", "local", "--host", HOST)[1:])
    for words in (["push", "digits"], ["run", "digits"], ["releases", "list"], ["boards", "probe"]):
        code, out, err = board_command(*words, "--board", "local", "--host", HOST)
        assert code == 0, err
        assert_is_text(out, err)
    # Now by its agent, which reads the file itself.
    assert "\x1b[2J" in str(next(each.facts.system for each in stored("local") if each.host == HOST))


def test_what_a_boards_programs_say_is_text_in_errors(board: VirtualBoard, board_command: Command) -> None:
    agent = root_of(board) / "home" / board.user / ".local/share/edgedeploy/agent"
    agent.parent.mkdir(parents=True, exist_ok=True)
    agent.unlink(missing_ok=True)
    agent.write_text(f"#!/bin/sh\necho what\ncat >&2 <<'.'\n{HOSTILE}\n.\n")
    agent.chmod(0o755)
    code, out, err = board_command("boards", "probe", "--board", "local", "--host", HOST)
    assert code == 13, err
    assert r"\x1b[2J" in err
    assert_is_text(out, err)
