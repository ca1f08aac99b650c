"""The user's settings, in files and environment variables: the board, hosts, threads, the cache.

A setting is taken from the first source that has it: the command line, an environment variable, `edgedeploy.toml` in
the working folder, `config.toml` in the user's configuration folder. Users read docs/configuration.md.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgedeploy.base.files import is_file
from edgedeploy.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

# In the working folder, and in the user's configuration folder.
HERE, USERS = "edgedeploy.toml", "config.toml"

BOARD_VARIABLE = "EDGEDEPLOY_BOARD"
THREADS_VARIABLE = "EDGEDEPLOY_THREADS"
CACHE_VARIABLE = "EDGEDEPLOY_CACHE"
VIRTUAL_VARIABLE = "EDGEDEPLOY_VIRTUAL"

_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


@dataclass(frozen=True)
class Whereabouts:
    """Where a board is."""

    host: str | None  # its address; None for its profile's virtual board
    said_by: str  # the file or the variable with the setting


def user_folder(kind: Literal["cache", "config", "data", "state"] = "config") -> Path:
    """The user's folder for configuration or another kind of file, which may not exist."""
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_dir")("edgedeploy"))


def cache_folder() -> Path:
    """The folder for data that is slow to create and can be created again, which may not exist yet."""
    stated = os.environ.get(CACHE_VARIABLE) or _read(user_folder() / USERS).get("cache")
    return Path(stated).expanduser().absolute() if stated else user_folder("cache")


def default_board() -> str | None:
    """The default board; None if it is not set."""
    return os.environ.get(BOARD_VARIABLE) or _first("board")


def default_threads() -> int | None:
    """The default number of threads; None if it is not set."""
    if (stated := os.environ.get(THREADS_VARIABLE)) is None:
        return _first("threads")
    if not stated.isdecimal() or not int(stated):
        raise ConfigurationError(f"{THREADS_VARIABLE} is {stated!r}", why="the number of threads must be at least 1")
    return int(stated)


def networks_to_build() -> list[str] | None:
    """The default networks of `edgedeploy build`; None if they are not set."""
    return next((models for path in _files() if (models := _read(path).get("build", {}).get("models"))), None)


def whereabouts(board: str, *, virtual: bool | None = None) -> Whereabouts | None:
    """The first setting of where a board is, None without any; whether it is `virtual` is as configured if None."""
    if virtual is None and (virtual := _virtual_by_variable()):
        return Whereabouts(None, VIRTUAL_VARIABLE)
    for path in _files():
        stated = _read(path)
        if virtual is None and (virtual := stated.get("virtual")):
            return Whereabouts(None, str(path))
        if (host := stated.get("hosts", {}).get(board)) is not None:
            return Whereabouts(host, str(path))
    return None


def _virtual_by_variable() -> bool | None:
    stated = os.environ.get(VIRTUAL_VARIABLE)
    if not stated:
        return None
    if stated.lower() not in _YES + _NO:
        raise ConfigurationError(f"{VIRTUAL_VARIABLE} is {stated!r}", why=f"it can be {_YES[0]} or {_NO[0]}")
    return stated.lower() in _YES


def _files() -> list[Path]:
    return [Path(HERE), user_folder() / USERS]


def _first(name: str) -> Any:
    return next((value for path in _files() if (value := _read(path).get(name)) is not None), None)


def _read(path: Path) -> Mapping[str, Any]:
    if not is_file(path):
        return {}
    status = path.stat()
    return _parsed(path.absolute(), status.st_mtime_ns, status.st_size, users=path.name == USERS)


@cache
def _parsed(path: Path, _changed: int, _size: int, *, users: bool) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    from pydantic import ValidationError

    from edgedeploy.base.documents import faults

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return _schema(users=users).model_validate(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        where = "; ".join(f"{field}: {message}" for _, field, message in faults(error))
        hint = "the settings are described in docs/configuration.md"
        raise ConfigurationError(f"{path} is invalid", why=where, hints=[hint]) from error
    except (OSError, ValueError) as error:  # tomllib's error is a ValueError
        raise ConfigurationError(f"cannot read {path}", why=str(error)) from error


@cache
def _schema(*, users: bool) -> type[BaseModel]:
    """The schema of a file. A working folder may be anybody's, so its file cannot set where files are written."""
    from typing import Annotated

    from pydantic import Field

    from edgedeploy.base.documents import Record

    class Build(Record):
        models: Annotated[list[str], Field(min_length=1)]

    class Here(Record):
        board: str | None = None
        threads: Annotated[int, Field(gt=0)] | None = None
        virtual: bool | None = None
        hosts: dict[str, str] = {}
        build: Build | None = None

    class Users(Here):
        cache: str | None = None

    return Users if users else Here
