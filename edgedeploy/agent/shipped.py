"""Agents that were built before: a wheel carries them, so that nobody needs a compiler to push a package.

They lie in one folder, with a list of what each was built from. One is used only where that is what would be built now.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgedeploy.catalog import builtin_folder
from edgedeploy.documents import Record, read_document
from edgedeploy.files import replacing

_LIST_NAME = "agents.yaml"


class Shipped(Record):
    """One agent of a wheel.

    Attributes:
        file: its name in the folder.
        target: what it runs on, as zig writes it.
        sources: a hash of the agent's own sources and of how they are compiled.
        versions: of the Python packages that the rest of its sources came from.
        key: what `agent --version` states as `build`.
    """

    file: str
    target: str
    sources: str
    versions: dict[str, str]
    key: str

    def fits(self, target: str, sources: str, versions: Mapping[str, str]) -> bool:
        """Whether it is what would be built for a target now; packages that are not here do not count."""
        return (
            self.target == target
            and self.sources == sources
            and all(self.versions.get(name) == version for name, version in versions.items())
        )


class ShippedList(Record):
    """All agents of a wheel."""

    agents: list[Shipped]


def folder() -> Path:
    """Where the agents lie that came with edgedeploy; a checkout has none."""
    return builtin_folder() / "agents"


def there_are() -> bool:
    """Whether any agents came with edgedeploy."""
    return (folder() / _LIST_NAME).is_file()


def find(target: str, sources: str, versions: Mapping[str, str]) -> tuple[Path, str] | None:
    """The agent that came with edgedeploy for a target, and its key, where `there_are` some; None if none fits.

    Raises:
        ConfigurationError: the list of agents is damaged.
    """
    for agent in read_document(folder() / _LIST_NAME, ShippedList).agents:
        if agent.fits(target, sources, versions) and (folder() / agent.file).is_file():
            return folder() / agent.file, agent.key
    return None


def write(target: Path, agents: Iterable[tuple[Shipped, Path]]) -> None:
    """Make a folder of agents, in the place of the one that was there.

    Args:
        target: the folder.
        agents: what is said of each, and its executable.

    Raises:
        OSError: it cannot be written.
    """
    import yaml

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    listed = []
    for agent, executable in agents:
        shutil.copy(executable, target / agent.file)
        listed.append(agent)
    with replacing(target / _LIST_NAME) as temporary:
        content = ShippedList(agents=listed).model_dump(mode="json")
        temporary.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
