"""Python packages: the requirements of edgedeploy's metadata, and the installed versions."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from edgedeploy.doctor.check import Finding, check, failed, not_applicable, ok, warning

if TYPE_CHECKING:
    from edgedeploy.doctor.case import Case

NAME = "edgedeploy"

# Only edgedeploy's developers need these.
_DEVELOPMENT = ("dev", "train")


@check("packages", "host")
def packages(case: Case) -> Finding:
    """Whether all required packages are installed, in versions that fit."""
    try:
        wanted = list(_requirements(None))
    except importlib.metadata.PackageNotFoundError:
        return warning(
            "edgedeploy itself is not installed, so the packages that it needs are unknown",
            f"{_pip()} -e . in the checkout",
        )
    faults = {fault: each for each in wanted if (fault := _fault(each))}
    if faults:
        return failed("; ".join(faults), f"{_pip()} {shlex.join(map(_plain, faults.values()))}")
    versions = {each.name: importlib.metadata.version(each.name) for each in wanted}
    named = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "paramiko") if name in versions)
    found = f"{len(versions)} packages, in versions that fit: {named}, ..."
    return ok(found, versions=versions)


@check("extras", "host", needs=("packages",))
def extras(case: Case) -> Finding:
    """Which optional packages are installed; a wrong version is worse than none."""
    try:
        metadata = importlib.metadata.metadata(NAME)
    except importlib.metadata.PackageNotFoundError:
        return not_applicable("edgedeploy itself is not installed")
    names = [name for name in metadata.get_all("Provides-Extra") or [] if name not in _DEVELOPMENT]
    complete, absent = list[str](), list[str]()
    wrong = dict[str, Requirement]()
    for name in names:
        faults = {each: fault for each in _requirements(name) if (fault := _fault(each))}
        wrong |= {fault: each for each, fault in faults.items() if _version(each)}
        (absent if faults else complete).append(name)
    if wrong:
        return warning("; ".join(wrong), f"{_pip()} {shlex.join(map(_plain, wrong.values()))}")
    hints = [f"for more: {_pip()} 'edgedeploy[{','.join(absent)}]'"] if absent else []
    have = ", ".join(complete) or "none"
    return ok(f"{have}; not installed: {', '.join(absent)}" if absent else have, *hints)


def _requirements(extra: str | None) -> Iterator[Requirement]:
    """The requirements on this machine: always, or for an extra."""
    for text in importlib.metadata.requires(NAME) or []:
        requirement = Requirement(text)
        always = _applies(requirement, "")
        if requirement.name == NAME:
            if extra and not always and _applies(requirement, extra):
                yield from (each for part in sorted(requirement.extras) for each in _requirements(part))
            continue
        if always == (extra is None) and _applies(requirement, extra or ""):
            yield requirement


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _version(requirement: Requirement) -> str | None:
    try:
        return importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _fault(requirement: Requirement) -> str | None:
    version = _version(requirement)
    if version is None:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} is {version}, {requirement.specifier} is needed"


def _plain(requirement: Requirement) -> str:
    """A requirement for pip, without its condition."""
    return f"{requirement.name}{requirement.specifier}"


def _pip() -> str:
    return f"{sys.executable} -m pip install"
