"""Named data files (boards, toolchains, demos, models) and how a name finds one.

The first match wins: a path given on the command line, the folder of that kind in the working folder, in the user's
configuration folder, in edgedeploy itself, and in other packages with data files.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic

from edgedeploy.base.documents import Document, read_document
from edgedeploy.base.files import is_file
from edgedeploy.base.plugins import data_folders
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import UnknownNameError

# With more names than this, messages refer to the command that lists them.
MOST_LISTED = 12


@cache
def builtin_folder() -> Path:
    """edgedeploy's own data: inside an installed wheel, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent


def did_you_mean(name: str, names: Sequence[str]) -> str | None:
    """A question that lists similar names; None without any."""
    near = difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.5)
    near += [known for known in names if name and name in known and known not in near]
    if not near or len(near) > MOST_LISTED:
        return None
    *others, last = near
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


def unknown_name(
    noun: str, name: str, names: Sequence[str], listing: str | None = None, *, hints: Sequence[str] = ()
) -> UnknownNameError:
    """The error for an unknown name, which suggests similar ones; `listing` is the command that lists them, if any."""
    known = f"known {noun}s: {', '.join(names)}" if len(names) <= MOST_LISTED or not listing else None
    return UnknownNameError(
        f"unknown {noun} {name!r}",
        why=did_you_mean(name, names) or known,
        hints=[*([f"list them all with `{listing}`"] if listing else []), *hints],
    )


def named_file(noun: str, name: str, folders: Iterable[Path], suffix: str, *others: str) -> Path | None:
    """The file that a path with one of the suffixes, or a name in one of the folders, means; None for another name."""
    if name.endswith((suffix, *others)):
        if is_file(Path(name)):
            return Path(name)
        raise UnknownNameError(f"there is no {noun} file {name!r}")
    paths = (folder / f"{name}{suffix}" for folder in folders if "/" not in name)
    return next(filter(is_file, paths), None)


def search_path(folder: str) -> list[Path]:
    """The folders with documents of one kind, in search order."""
    # Relative, so that a deleted working folder counts as an empty one.
    places = [user_folder(), builtin_folder(), *data_folders()]
    return [Path(folder), *(place / folder for place in places)]


def names_in(folder: str) -> list[str]:
    """The names of all documents of one kind, sorted and unique."""
    return sorted({path.stem for each in search_path(folder) for path in each.glob("*.yaml")})


@dataclass(frozen=True)
class Catalog(Generic[Document]):
    """All the documents of one kind."""

    noun: str  # what one of them is called, in messages ("board")
    folder: str  # the name of their folder ("boards")
    schema: type[Document]  # the pydantic model of one
    listing: str | None = None  # the command that lists them, if any

    def folders(self) -> list[Path]:
        """The folders to search, in order."""
        return search_path(self.folder)

    def names(self) -> list[str]:
        """The known names, sorted and unique."""
        return names_in(self.folder)

    def find(self, name: str) -> Path:
        """The file of `name`, which is a name or a path to a YAML file."""
        if path := named_file(self.noun, name, self.folders(), ".yaml", ".yml"):
            return path
        raise unknown_name(self.noun, name, self.names(), self.listing)

    def load(self, name: str) -> Document:
        """Read the document of `name`."""
        return read_document(self.find(name), self.schema)
