"""Pushes a package and kills itself: push_and_die.py VIRTUAL_BOARD PACKAGE AGENT MOMENT, as Meddler takes that."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgedeploy.base.progress import Progress
from edgedeploy.release.layout import Release
from edgedeploy.release.push import push
from edgedeploy.remote.address import parse_address
from edgedeploy.remote.connection import Connection
from edgedeploy.target.board import load_board


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Meddler(Progress):
    """Does something `before STAGE`, `during STAGE` or `after STAGE` of a push, or `at N` bytes of the upload."""

    def __init__(self, moment: str, deed: Callable[[], object]) -> None:
        self._when, _, self._what = moment.partition(" ")
        self._deed = deed

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        meant = title.startswith(self._what)
        if meant and self._when == "before":
            self._deed()
        if meant and self._when == "during":
            threading.Timer(0.03, self._deed).start()
        yield
        if meant and self._when != "before":
            self._deed()

    @contextmanager
    def transfer(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        sent = 0

        def advance(count: int) -> None:
            nonlocal sent
            sent += count
            if self._when == "at" and sent >= int(self._what):
                self._deed()

        with self.stage(title):
            yield advance


def main() -> None:
    name, package, agent, moment = sys.argv[1:]
    release = Release.of(Path(package), Path(agent), load_board("local"))
    with Connection(parse_address(f"virtual:{name}")) as connection:
        push(connection, release, progress=Meddler(moment, die))


if __name__ == "__main__":
    main()
