"""Passes of other packages: their entry points of the group `edgedeploy.passes`, each a `Pass` of the same name."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Collection
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

from edgedeploy.compile.passes import Pass
from edgedeploy.errors import ConfigurationError, last_line
from edgedeploy.files import digest_of

GROUP = "edgedeploy.passes"


def entries() -> list[EntryPoint]:
    """The entry points of all installed packages, by name."""
    return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def provider_versions() -> dict[str, str]:
    """The packages that passes come from, with their versions."""
    return {entry.dist.name: entry.dist.version for entry in entries() if entry.dist}


def provider_code() -> dict[str, str]:
    """A hash of each module or package that passes come from: its code may change while its version stays."""
    return {name: _digest(name) for name in sorted({entry.module.partition(".")[0] for entry in entries()})}


def load_installed(disabled: Collection[str] = ()) -> list[Pass]:
    """The passes of other packages, by name; those that are disabled are not even imported.

    Raises:
        ConfigurationError: an entry point cannot be loaded, or is no pass of its name; or two have one name.
    """
    found: dict[str, Pass] = {}
    for entry in entries():
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        if entry.name in disabled:
            continue
        try:
            given = entry.load()
        except Exception as error:  # it is other people's code
            raise _unusable(entry, package, f"{type(error).__name__}: {last_line(error)}") from error
        if not isinstance(given, Pass):
            raise _unusable(entry, package, f"{entry.value} is {type(given).__name__}, not Pass")
        if given.name != entry.name:
            raise _unusable(entry, package, f"the entry point {entry.value} gives one of the name {given.name!r}")
        if entry.name in found:
            raise _unusable(entry, package, f"{found[entry.name].package} has one of the same name")
        found[entry.name] = replace(given, package=package)
    return list(found.values())


def _unusable(entry: EntryPoint, package: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the pass {entry.name!r} of {package} cannot be used",
        why=why,
        hints=[f"leave it out: --disable-pass {entry.name}", "update or uninstall the package that it comes from"],
    )


def _digest(module: str) -> str:
    """The hash of a top-level module's files; empty if there is none, which loading will say."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return ""
    if spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations)))
        return digest_of(sorted(folder.rglob("*.py")), folder)
    path = Path(spec.origin or "")
    return digest_of([path], path.parent) if path.is_file() else ""
