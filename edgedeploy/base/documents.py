"""YAML and JSON documents checked by pydantic models, with errors that name the field, and for YAML file and line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from edgedeploy.errors import ConfigurationError

# libyaml is ten times as quick as PyYAML's own parser, and part of nearly every PyYAML.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Document = TypeVar("Document", bound=BaseModel)
Item = TypeVar("Item")

# A list that fails at its first fault: an error for each of a million items would take gigabytes.
Listed = Annotated[list[Item], Field(fail_fast=True)]

# Pydantic's words and plain ones, replaced in this order.
_PLAIN = [
    (re.compile(words), plain)
    for words, plain in (
        ("^Value error, ", ""),
        ("^Field required$", "must be given"),
        ("^Extra inputs are not permitted$", "there is no such field"),
        ("^[A-Z][a-z]+ should ", "must "),
        ("a valid integer.*", "a whole number"),
        ("a valid number.*", "a number"),
        ("a valid string.*", "a text"),
        ("a valid boolean.*", "true or false"),
        ("a valid (list|tuple|array).*", "a list"),
        ("a valid (dictionary|object).*", "fields with values"),
        ("greater than or equal to", "at least"),
        ("less than or equal to", "at most"),
        ("greater than", "above"),
        ("less than", "below"),
        (" after validation", ""),
    )
]


class Record(BaseModel):
    """Base of all records in YAML or JSON: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_document(path: Path, model: type[Document]) -> Document:
    """Read one YAML file as `model`; the error has a line for each fault: `file:line: field: fault`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}", why=str(error)) from error
    root, content = _parsed(path, text)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        lines = [f"{path}:{_line_of(root, keys)}: {field}: {message}" for keys, field, message in faults(error)]
        hints = ["the fields are described in docs/data-files.md"]
        raise ConfigurationError("\n".join(lines), hints=hints) from error


@lru_cache(maxsize=1024)  # a command searches whole catalogs, some of them once for each network
def _parsed(path: Path, text: str) -> tuple[yaml.Node | None, Any]:
    """A YAML document as nodes with their lines, and as values."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        _refuse_duplicate_keys(path, root, set())
        content = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: 2026-02-30 looks like a date
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{where}: not valid YAML", why=problem) from error
    return root, content


def parse_json(text: bytes, kind: TypeAdapter[Item]) -> Item:
    """Read untrusted JSON that all readers understand in the same way, or raise a ValueError with the first fault.

    Nothing is converted: text is not a number, and neither 1.0 nor true is an integer. No field may appear twice, and
    no number may exceed a double's range.
    """
    try:
        # pydantic would take the last of two fields of one name, and numbers that JSON does not have.
        json.loads(text, object_pairs_hook=_distinct, parse_constant=_finite, parse_float=_finite, parse_int=_finite)
        return kind.validate_json(text, strict=True)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValidationError as error:
        raise ValueError(first_fault(error)) from error


def whole(value: Any) -> Any:
    """A validator to run before `Literal`, which takes 4.0 for 4 even in strict mode."""
    if type(value) is not int:
        raise ValueError("must be a whole number")
    return value


def first_fault(error: ValidationError) -> str:
    """The first of a document's faults, as `field: fault`."""
    _, field, message = next(faults(error))
    return f"{field}: {message}"


def faults(error: ValidationError) -> Iterator[tuple[list[Any], str, str]]:
    """A document's faults: the place of each as keys and as one name, and plain words."""
    for fault in error.errors(include_url=False, include_input=False):
        keys = [key for key in fault["loc"] if not _is_union_tag(key)]
        yield keys, ".".join(map(str, keys)) or "(document)", _plain(fault["msg"])


def _plain(message: str) -> str:
    for words, plain in _PLAIN:
        message = words.sub(plain, message)
    return message


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a field is given twice")
    return content


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:20]} is not a number")
    return value


def _is_union_tag(key: Any) -> bool:
    """Pydantic puts names of union members, such as `list[float]`, into an error's location."""
    return isinstance(key, str) and (key in {"float", "int", "str"} or "[" in key)


def _refuse_duplicate_keys(path: Path, node: yaml.Node | None, visited: set[yaml.Node]) -> None:
    """Look through a node once, however many aliases lead to it."""
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
    """The 1-based line of the node at `keys`, or of its nearest ancestor in the file."""
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
