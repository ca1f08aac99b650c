"""Darknet's cfg files: sections, each with options, as text.

As Darknet reads them: blanks do not count, lines that begin with # or ; are comments, and of an option that is stated
twice the first statement holds. An option that no layer asks for is ignored, since most belong to training.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import read_bytes

# Darknet's own are below 50 kB.
_LARGEST_FILE = 2**18
_LARGEST_INTEGER = 2**31 - 1
_LARGEST_NUMBER = 2.0**127  # of a float32, nearly

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True)
class Option:
    """An option's value, and its line."""

    value: str
    line: int


@dataclass(frozen=True)
class Section:
    """One section of a cfg file: the text between the brackets, the line where it begins, from 1, and its options."""

    path: Path
    kind: str
    line: int
    options: dict[str, Option] = field(default_factory=dict)

    def text(self, name: str, default: str) -> str:
        """An option's value as it is written."""
        return self.options[name].value if name in self.options else default

    def integer(self, name: str, default: int, *, lowest: int | None = None) -> int:
        """An option that is an integer, at least `lowest`."""
        if name not in self.options:
            return default
        [value] = self._integers(name, [self.options[name].value])
        if lowest is not None and value < lowest:
            raise self.error(f"{name}={value} is too small", option=name, why=f"it must be {lowest} at least")
        return value

    def integers(self, name: str) -> list[int]:
        """An option that is a list of integers; empty by default."""
        return self._integers(name, self._parts(name))

    def number(self, name: str, default: float) -> float:
        """An option that is a number."""
        return self._numbers(name, [self.options[name].value])[0] if name in self.options else default

    def numbers(self, name: str) -> list[float]:
        """An option that is a list of numbers; empty by default."""
        return self._numbers(name, self._parts(name))

    def refuse(self, *names: str, unless: str = "0") -> None:
        """Refuse options that would change what the layer computes, in a way that is not supported."""
        for name in names:
            if self.text(name, unless) != unless:
                raise self.error(
                    f"{name}={self.options[name].value} is not supported",
                    option=name,
                    hints=[f"train the network without {name}, or give an ONNX file that another tool converted it to"],
                )

    def error(
        self, what: str, *, option: str | None = None, why: str | None = None, hints: list[str] | None = None
    ) -> ModelError:
        """An error that names the section and its line, or an option's."""
        line = self.options[option].line if option in self.options else self.line
        return ModelError(f"{self.path}, line {line}, [{self.kind}]: {what}", why=why, hints=hints or [])

    def _parts(self, name: str) -> list[str]:
        return [part for part in self.text(name, "").split(",") if part]

    def _integers(self, name: str, parts: list[str]) -> list[int]:
        for part in parts:
            if not _INTEGER.fullmatch(part) or abs(int(part)) > _LARGEST_INTEGER:
                raise self.error(f"{name}={part[:40]} is not an integer", option=name)
        return [int(part) for part in parts]

    def _numbers(self, name: str, parts: list[str]) -> list[float]:
        try:
            values = [float(part) for part in parts]
        except ValueError:
            values = [math.nan]
        if not all(abs(value) <= _LARGEST_NUMBER for value in values):
            raise self.error(f"{name}={self.options[name].value[:40]} is not a number", option=name)
        return values


def read_sections(path: Path) -> list[Section]:
    """The sections of a cfg file, in order."""
    content = read_bytes(path, _LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ModelError(f"{path} is not a cfg file of Darknet", why=f"it has more than {_LARGEST_FILE:,} bytes")
    sections: list[Section] = []
    for number, line in enumerate(content.decode("utf-8-sig", errors="replace").split("\n"), 1):
        words = "".join(re.split("[#;]", line, maxsplit=1)[0].split())
        if words.startswith("["):
            sections.append(Section(path, words.strip("[]"), number))
        elif words:
            name, equals, value = words.partition("=")
            if not equals or not sections:
                raise ModelError(
                    f"{path}, line {number} is neither a section nor an option",
                    why=f"its text is {words[:40]!r}",
                    hints=["check that the file is complete; a comment begins with #"],
                )
            if value:
                sections[-1].options.setdefault(name, Option(value, number))
    return sections
