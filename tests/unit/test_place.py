"""Scripts and programs on this machine, run as they are on a board."""

from pathlib import Path

import pytest
from support.patience import becomes

from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.place import Place


def test_a_script_gets_its_arguments_and_its_input_and_tells_how_it_ended() -> None:
    done = Place().run('cat; echo "$2 $1"; echo why >&2; exit 3', "a b", "$c", content=[b"x\n", b"y\n"])
    assert (done.code, done.output, done.messages) == (3, b"x\ny\n$c a b\n", "why")


def test_a_script_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >{tmp_path}/pid; wait"
    with pytest.raises(BoardConnectionError, match=r"a command did not end within 1 s"):
        Place().run(script, timeout_s=1)
    ended = Path("/proc", (tmp_path / "pid").read_text().strip(), "exe")
    assert becomes(lambda: not ended.exists())


def test_a_program_ends_when_its_input_does() -> None:
    program = Place().start('echo "$1"; cat >/dev/null; echo over', "ready")
    lines = program.lines()
    assert next(lines) == "ready"
    assert not program.ended
    program.send(b"\n")
    program.close()
    assert program.ended
    assert list(lines) == ["over"]
