"""A board with nothing on it, and packages to push to it, as fixtures."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper

from edgedeploy.base.closing import Closing
from edgedeploy.building import build
from edgedeploy.package.archive import read_package, write_package
from edgedeploy.release.layout import Release
from edgedeploy.release.lock import locked
from edgedeploy.release.push import Pushed, Trial, bring, push
from edgedeploy.release.steps import Inventory, inventory
from edgedeploy.remote.address import address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import BASE as BASE
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.virtual.board import VirtualBoard
from edgedeploy.zoo.source import Source, find_source
from support.virtual_boards import Start


def with_manifest(package: Path, name: str, **fields: object) -> Path:
    """A package beside another one, with other fields in its manifest."""
    manifest, contents = read_package(package)
    path = package.with_name(name)
    write_package(path, manifest.model_copy(update=fields), contents)
    return path


def two_packages(board: str, folder: Path) -> tuple[Path, Path]:
    source, target = find_source("digits"), resolve(board)
    network = onnx.load(source.file)
    weights = network.graph.initializer[0]
    changed = numpy_helper.to_array(weights).copy()
    changed.flat[0] += 1
    weights.CopyFrom(numpy_helper.from_array(changed, weights.name))
    onnx.save(network, folder / "digits.onnx")
    first = build(source, target, folder / "first.tar.gz").path
    return first, build(Source.of(folder / "digits.onnx", source.shapes), target, folder / "second.tar.gz").path


@dataclass(frozen=True)
class Bench(Closing):
    """A virtual board, and packages for a profile of two networks of one name that differ in a weight."""

    virtual: VirtualBoard
    agent: Path
    first: Path
    second: Path
    start: Start
    board: str = "local"

    def close(self) -> None:
        self._line.close()

    @property
    def host(self) -> str:
        return f"virtual:{self.virtual.name}"

    @property
    def at(self) -> tuple[str, ...]:
        return ("--board", self.board, "--host", self.host)

    @cached_property
    def _line(self) -> Connection:
        """A connection for looking: logging in takes longer than most of what is looked for."""
        return self.connected()

    def connected(self) -> Connection:
        return Connection(address_of(self.virtual))

    def release(self, package: Path) -> Release:
        return Release.of(package, self.agent, load_board(self.board))

    def push(self, package: Path, **options: Any) -> Pushed:
        with self.connected() as connection:
            return push(connection, self.release(package), **options)

    def variant(self, number: int) -> Path:
        return with_manifest(self.first, f"variant-{number}.tar.gz", build_key=f"{number:064x}")

    def other(self) -> VirtualBoard:
        return self.start("local", name="second")

    def say(self, script: str) -> str:
        return self._line.run(script).text

    def releases(self, model: str = "digits") -> list[str]:
        return list(self.stock(model).releases)

    def trials(self, model: str = "digits") -> list[str]:
        return list(self.stock(model).trials)

    def stock(self, model: str = "digits") -> Inventory:
        return inventory(self._line, model)

    def events(self, model: str = "digits") -> list[tuple[str, str]]:
        """The board's record of a model: what happened to which release."""
        return [(entry.event.value, entry.id) for entry in self.stock(model).record.entries]

    def bring(self, package: Path, *, temporarily: bool = False) -> Trial:
        with self.connected() as connection, locked(connection):
            return bring(connection, self.release(package), temporarily=temporarily)

    def current(self, model: str = "digits") -> str:
        return self.say(f"readlink {BASE}/releases/{model}/current")

    def current_works(self, model: str = "digits") -> bool:
        """Whether the release in use passes its self-test, run as a program on the board would run it."""
        script = f"cd {BASE}/releases/{model}/current/ && ./agent verify . && ./agent selftest ."
        return self._line.run(script).code == 0


@pytest.fixture(scope="session")
def _packages(_own_user_folders: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_packages("local", tmp_path_factory.mktemp("packages"))


@pytest.fixture
def bench(start: Start, agent: Path, _packages: tuple[Path, Path]) -> Iterator[Bench]:
    with Bench(start("local", name="bench"), agent, *_packages, start) as made:
        made.say(f"rm -rf {BASE}")
        yield made
        made.say(f"rm -rf {BASE}")
