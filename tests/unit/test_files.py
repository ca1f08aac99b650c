"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedeploy.base.files import exchange, folder_lock, replacing
from edgedeploy.errors import OutputError


def fail_writing(path: Path, others: Path | None = None) -> None:
    """Write half a file and fail, while somebody else writes another one."""
    with pytest.raises(RuntimeError), replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        if others:
            others.touch()
        raise RuntimeError


def test_a_file_appears_with_its_folders_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    with replacing(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    fail_writing(tmp_path / "a" / "b" / "file.txt")
    assert not list(tmp_path.iterdir())


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    old = tmp_path / "a" / "file.txt"
    old.parent.mkdir()
    old.write_text("old")
    fail_writing(old)
    fail_writing(tmp_path / "a" / "other" / "file.txt")
    assert [path.name for path in old.parent.iterdir()] == ["file.txt"]
    assert old.read_text() == "old"


@pytest.mark.parametrize("name", ["", "folder", "folder/.."])
def test_a_folder_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="Is a directory"), replacing(tmp_path / name):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_working_folder_is_not_replaced() -> None:
    with pytest.raises(OutputError, match="Is a directory"), replacing(Path()):
        pass


def test_a_folder_that_others_use_meanwhile_stays(tmp_path: Path) -> None:
    fail_writing(tmp_path / "a" / "b" / "file.txt", others=tmp_path / "a" / "theirs")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["theirs"]


def test_a_folder_that_cannot_be_made_is_an_output_error() -> None:
    with pytest.raises(OutputError, match="cannot write /proc/a/file"), replacing(Path("/proc/a/file")):
        pass


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left") as raised, replacing(tmp_path / "file"):
        Path("/dev/full").write_text("x")
    assert raised.value.hints == ("make room there, or choose another folder",)


def test_two_folders_swap_their_names(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "none")


def test_who_does_not_wait_for_a_folder_is_told_that_it_is_held(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(BlockingIOError), folder_lock(tmp_path, wait=False):
        pass
    with folder_lock(tmp_path, wait=False):
        pass
