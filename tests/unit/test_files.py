"""Files, and what is made once and kept, appear whole or not at all."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.commands import Notebook, put

from edgedeploy.base import cache as folder_cache
from edgedeploy.base.cache import FolderCache
from edgedeploy.base.files import exchange, folder_lock, replacing
from edgedeploy.errors import OutputError, ToolchainError


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


def test_what_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    fail_writing(tmp_path / "a" / "b" / "file.txt")
    assert not list(tmp_path.iterdir())
    old = put(tmp_path / "a" / "file.txt", "old")
    fail_writing(old)
    fail_writing(tmp_path / "a" / "other" / "file.txt")
    assert [path.name for path in old.parent.iterdir()] == ["file.txt"]
    assert old.read_text() == "old"
    old.unlink()
    fail_writing(tmp_path / "a" / "b" / "file.txt", others=tmp_path / "a" / "theirs")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["theirs"]


@pytest.mark.parametrize("name", ["", "folder", "folder/.."])
def test_a_folder_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / name, Path()):
        with pytest.raises(OutputError, match="Is a directory"), replacing(path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_cannot_be_made_and_a_full_disk_are_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write /proc/a/file"), replacing(Path("/proc/a/file")):
        pass
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


# What is made once and kept: whole or not at all, once for all processes, and made again where it cannot be used.

THINGS = FolderCache("things")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "edgedeploy" / "things"


def fill(folder: Path) -> None:
    put(folder / "inner" / "file", "whole")


def holds(folder: Path) -> bool:
    return (folder / "inner" / "file").is_file()


def test_is_made_once_and_whole_and_says_so(cache: Path) -> None:
    def make(folder: Path) -> None:
        fill(folder)
        assert not THINGS.path("a").exists()

    listener = Notebook()
    for _ in range(2):
        assert THINGS.get("a", make, "making a thing", listener) == cache / "a" == THINGS.path("a")
    assert listener.lines == ["making a thing (cached for later runs)"]
    assert [path.name for path in cache.iterdir()] == ["a"]
    assert holds(cache / "a")


@pytest.mark.parametrize("error", [ToolchainError("it failed"), KeyboardInterrupt()])
def test_what_fails_leaves_nothing(cache: Path, error: BaseException) -> None:
    def make(folder: Path) -> None:
        fill(folder)
        raise error

    with pytest.raises(type(error)):
        THINGS.get("a", make, "")
    assert not list(cache.iterdir())


@pytest.mark.parametrize("broken", ["folder", "file", "link"])
def test_what_cannot_be_used_is_replaced(cache: Path, broken: str) -> None:
    cache.mkdir(parents=True)
    {
        "folder": lambda: (cache / "a" / "other").mkdir(parents=True),
        "file": lambda: (cache / "a").write_text("of an older version"),
        "link": lambda: (cache / "a").symlink_to("nowhere"),
    }[broken]()
    THINGS.get("a", fill, "", sound=holds)
    assert [path.name for path in cache.iterdir()] == ["a"]
    assert [path.name for path in (cache / "a").iterdir()] == ["inner"]


def test_where_nothing_can_be_written_what_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    THINGS.get("a", fill, "")
    with monkeypatch.context() as patch:
        patch.delattr(folder_cache, "folder_lock")
        assert holds(THINGS.get("a", fill, ""))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match=r"cannot write .*things/a: Not a directory"):
        THINGS.get("a", fill, "")


SLOW = """
import sys, time
from pathlib import Path
from edgedeploy.base.cache import FolderCache
from edgedeploy.base.progress import Progress

class Printing(Progress):
    def note(self, text):
        print(text, flush=True)

def make(folder):
    (folder / "half").touch()
    sys.stdin.readline()
    (folder / "whole").touch()

FolderCache("things").get("a", make, "making", Printing())
"""


def slow() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SLOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_of_two_processes_one_waits_for_the_other_and_says_so(cache: Path) -> None:
    with slow() as first:
        assert "cached for later runs" in first.stdout.readline()
        with slow() as second:
            assert "waiting for another process" in second.stdout.readline()
            first.communicate("go\n", timeout=60)
            assert second.communicate(timeout=60)[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert [path.name for path in cache.iterdir()] == ["a"]


def test_what_a_killed_process_left_is_cleared_away(cache: Path) -> None:
    with slow() as process:
        process.stdout.readline()
        process.kill()
    assert not THINGS.path("a").exists()
    assert any(cache.iterdir())
    THINGS.get("a", fill, "")
    assert [path.name for path in cache.rglob("*")] == ["a", "inner", "file"]


def test_threads_make_it_once() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that they meet at every place
    try:
        with ThreadPoolExecutor(8) as pool:
            for key in map(str, range(200)):
                made: list[Path] = []
                list(pool.map(THINGS.get, [key] * 8, [made.append] * 8, [""] * 8, timeout=60))
                assert len(made) == 1
    finally:
        sys.setswitchinterval(interval)
