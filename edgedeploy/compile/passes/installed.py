"""Passes of other packages: their entry points of the group `edgedeploy.passes`, each a `Pass` of the same name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from importlib.metadata import EntryPoint

from edgedeploy.compile.passes import Pass
from edgedeploy.plugins import Group, code_of, package_of

GROUP: Group[Pass] = Group(
    "edgedeploy.passes", "pass", "Pass", lambda given: given.name if isinstance(given, Pass) else None
)


def entries() -> list[EntryPoint]:
    """The entry points of all installed packages, by name."""
    return GROUP.entries()


def provider_versions() -> dict[str, str]:
    """The packages that passes come from, with their versions."""
    return {entry.dist.name: entry.dist.version for entry in entries() if entry.dist}


def provider_code() -> dict[str, str]:
    """A hash of each module or package that passes come from: its code may change while its version stays."""
    return {name: code_of(name) for name in sorted({entry.module.partition(".")[0] for entry in entries()})}


def load_installed(disabled: Collection[str] = ()) -> list[Pass]:
    """The passes of other packages, by name; those that are disabled are not even imported."""
    found = GROUP.load(disabled, hints=lambda name: [f"leave it out: --disable-pass {name}"])
    packages = {entry.name: package_of(entry) for entry in entries()}
    return [replace(each, package=packages[each.name]) for each in found]
