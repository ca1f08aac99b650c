"""YAML documents checked by pydantic models, with errors that name file, line and field."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgedeploy.errors import ConfigurationError

Document = TypeVar("Document", bound=BaseModel)
Item = TypeVar("Item")

# A list that is refused at its first fault: an error for each of a million items would take gigabytes.
Listed = Annotated[list[Item], Field(fail_fast=True)]


class Record(BaseModel):
    """Base of everything that is read from YAML or JSON: unknown fields are errors, values never change.

    Attributes:
        earlier_names: of fields that were renamed: from the old name, which is still read, to the new one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    earlier_names: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _by_present_names(cls, content: Any) -> Any:
        if not cls.earlier_names or not isinstance(content, dict):
            return content
        for old in cls.earlier_names.keys() & content.keys():
            _note_renamed(old, cls.earlier_names[old])
        return {cls.earlier_names.get(name, name): value for name, value in content.items()}


@cache
def _note_renamed(old: str, new: str) -> None:
    logging.getLogger(__name__).warning("the field `%s` is called `%s` now; the old name will go", old, new)


def read_document(path: Path, model: type[Document]) -> Document:
    """Read one YAML file as `model`.

    Raises:
        ConfigurationError: the file is unreadable, is not YAML, or breaks the schema. The message has
            one line for each fault: `file:line: field: fault`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}", why=str(error)) from error
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        _refuse_duplicate_keys(path, root, set())
        content = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: 2026-02-30 looks like a date
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{where}: not valid YAML", why=problem) from error
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = []
        for fault in error.errors(include_url=False):
            keys = [key for key in fault["loc"] if not _is_union_tag(key)]
            field = ".".join(str(key) for key in keys) or "(document)"
            faults.append(f"{path}:{_line_of(root, keys)}: {field}: {fault['msg']}")
        hints = ["the fields are described in docs/data-files.md"]
        raise ConfigurationError("\n".join(faults), hints=hints) from error


def _is_union_tag(key: Any) -> bool:
    """Pydantic puts names of union members, such as `list[float]`, into an error's location."""
    return isinstance(key, str) and (key in {"float", "int", "str"} or "[" in key)


def _refuse_duplicate_keys(path: Path, node: yaml.Node | None, visited: set[yaml.Node]) -> None:
    """Look through a node once, however often aliases lead to it."""
    if node in visited:
        return
    if node is not None:
        visited.add(node)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the loader refuses it
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigurationError(f"{path}:{line}: {key.value}: the field is given twice")
            seen.add(key.value)
            _refuse_duplicate_keys(path, value, visited)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_duplicate_keys(path, value, visited)


def _line_of(root: yaml.Node | None, keys: list[Any]) -> int:
    """The 1-based line of the node at `keys`, or of its nearest ancestor that is in the file."""
    node, line = root, 1
    for key in keys:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if name.value == str(key):
                    child, line = value, name.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            child = node.value[key]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
