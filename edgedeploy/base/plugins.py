"""What other packages add to edgedeploy: entry points, in a group for each kind of extension.

| group | object of an entry point |
|---|---|
| `edgedeploy.passes` | a `compile.passes.Pass` of the same name |
| `edgedeploy.decoders` | a subclass of `vision.decoder.Decoder`, whose `kind` is the name |
| `edgedeploy.formats` | a `frontends.format.Format` of the same name |
| `edgedeploy.engines` | a `benchmarking.engines.engine.Engine` of the same name |
| `edgedeploy.data` | a package with folders of data files: `demos`, `models`, `boards`, `toolchains`, `triples` |
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Generic, TypeVar

from edgedeploy.base.files import digest_of
from edgedeploy.errors import ConfigurationError, last_line

Thing = TypeVar("Thing")

DATA = "edgedeploy.data"


def entries(group: str) -> list[EntryPoint]:
    """The entry points of a group in all installed packages, by name."""
    return list(_entries(group, tuple(sys.path)))


@cache
def _entries(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    found = importlib.metadata.entry_points(group=group)
    return tuple(sorted(found, key=lambda entry: (entry.name, entry.value)))


def package_of(entry: EntryPoint) -> str:
    """The package of an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


@dataclass(frozen=True)
class Group(Generic[Thing]):
    """A kind of extension."""

    name: str  # the entry points' group
    noun: str  # what one extension is called, in messages
    kind: str  # the expected type of an entry point's object, in messages
    name_of: Callable[[Any], str | None]  # the name of an object, or None if it has the wrong type
    leave_out: str | None = None  # how users leave out the extension of a `{name}`, as a hint

    def entries(self) -> list[EntryPoint]:
        """The entry points, by name; nothing is imported."""
        return entries(self.name)

    def load(self, disabled: Collection[str] = ()) -> list[Thing]:
        """The extensions, by name, without the `disabled` ones, which are not imported."""
        found: dict[str, tuple[Thing, EntryPoint]] = {}
        for entry in self.entries():
            if entry.name in disabled:
                continue
            if entry.name in found:
                why = f"{package_of(found[entry.name][1])} has one of the same name"
                raise self._unusable(entry, why)
            found[entry.name] = self._loaded(entry), entry
        return [thing for thing, _ in found.values()]

    def sound(self, taken: Collection[str] = ()) -> list[Thing]:
        """The usable extensions; unusable ones, and those whose name is `taken`, cause a warning."""
        found: dict[str, Thing] = {}
        for entry in self.entries():
            try:
                if entry.name in taken or entry.name in found:
                    raise self._unusable(entry, "there is one of the same name")
                found[entry.name] = self._loaded(entry)
            except ConfigurationError as error:
                logging.getLogger(__name__).warning("%s", error)
        return list(found.values())

    def _loaded(self, entry: EntryPoint) -> Thing:
        try:
            given: Thing = entry.load()
        except Exception as error:  # it is other people's code
            raise self._unusable(entry, f"{type(error).__name__}: {last_line(error)}") from error
        name = self.name_of(given)
        if name is None:
            raise self._unusable(entry, f"{entry.value} is {type(given).__name__}, not {self.kind}")
        if name != entry.name:
            raise self._unusable(entry, f"the entry point {entry.value} gives one of the name {name!r}")
        return given

    def _unusable(self, entry: EntryPoint, why: str) -> ConfigurationError:
        leave_out = [self.leave_out.format(name=entry.name)] if self.leave_out else []
        return ConfigurationError(
            f"the {self.noun} {entry.name!r} of {package_of(entry)} cannot be used",
            why=why,
            hints=[*leave_out, "update or uninstall the package that it comes from"],
        )


def data_folders() -> list[Path]:
    """The folders of packages with data files; nothing is imported."""
    return [folder for entry in entries(DATA) if (folder := _folder(entry.value))]


def code_of(module: str) -> str:
    """The hash of a top-level module's files; empty for a missing module, which loading reports."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return ""
    if spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations)))
        return digest_of(sorted(folder.rglob("*.py")), folder)
    path = Path(spec.origin or "")
    return digest_of([path], path.parent) if path.is_file() else ""


def _folder(module: str) -> Path | None:
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)), *module.split(".")[1:])
