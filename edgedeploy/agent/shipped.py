"""Agents that edgedeploy's wheel carries, so that pushing a package needs no compiler.

A list says what each was built from. One is used only if a build now would be the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.documents import Record, read_document
from edgedeploy.base.files import write_text

_LIST_NAME = "agents.yaml"


class Shipped(Record):
    """One agent of a wheel."""

    file: str
    target: str
    sources: str  # a hash of the agent's own sources and of how they are compiled
    versions: dict[str, str]  # of the Python packages that the other sources came from
    key: str  # printed by `agent --version` as `build`


class ShippedList(Record):
    """All agents of a wheel."""

    agents: list[Shipped]


def folder() -> Path:
    """The folder of shipped agents; a checkout has none."""
    return builtin_folder() / "agents"


def there_are() -> bool:
    """Whether edgedeploy was installed with agents."""
    return (folder() / _LIST_NAME).is_file()


def find(target: str, sources: str, versions: Mapping[str, str]) -> tuple[Path, str] | None:
    """The shipped agent for a target and its key, if a build now would give the same; only if `there_are` some.

    Packages that are not installed, so not in `versions`, do not count.
    """
    for agent in read_document(folder() / _LIST_NAME, ShippedList).agents:
        same = (agent.target, agent.sources) == (target, sources) and versions.items() <= agent.versions.items()
        if same and (folder() / agent.file).is_file():
            return folder() / agent.file, agent.key
    return None


def write(target: Path, agents: Iterable[tuple[Shipped, Path]]) -> None:
    """Write a folder of agents, each with its entry for the list; an existing folder is replaced."""
    import yaml

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    listed = []
    for agent, executable in agents:
        shutil.copy(executable, target / agent.file)
        listed.append(agent)
    content = ShippedList(agents=listed).model_dump(mode="json")
    write_text(target / _LIST_NAME, yaml.safe_dump(content, sort_keys=False))
