"""How long tests wait for what an idle machine does in some seconds: that something ends is tested, not when."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgedeploy.target.hosts import busyness


def generous(seconds: float) -> float:
    """Four times as long, and longer while more processes want to run than there are processors."""
    return 4 * seconds * busyness()


def becomes(state: Callable[[], object], limit_s: float = 20) -> bool:
    """Whether something becomes true in the time of an idle machine, or what a busy one makes of it."""
    deadline = time.monotonic() + generous(limit_s)
    while not state():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def until(state: Callable[[], object], limit_s: float = 30) -> None:
    assert becomes(state, limit_s)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Something that another thread does, until the block ends and sets the event that it is given."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
