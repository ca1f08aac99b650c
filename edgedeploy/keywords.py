"""Options of the command line as the Python API's keywords: errors are written once, for both readers.

Messages name options, as `--host pi@10.0.0.7`. The command line prints them unchanged; `str(error)`, which tracebacks
show, has `host="pi@10.0.0.7"` instead. Command lines within a message stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable


def _text(value: str) -> str:
    return f'"{value}"'


def _entry(value: str) -> str:
    """`NAME=VALUE` as an entry of a mapping."""
    name, _, number = value.partition("=")
    return f'"{name}": {f"[{number}]" if "," in number else number}'


def _shape(value: str) -> str:
    """`NAME:1,3,224,224` as an entry of a mapping."""
    name, _, sizes = value.rpartition(":")
    return f'"{name}": [{sizes.replace(",", ", ")}]'


_TEXTS = "board calibrate camera demo evaluate health-check host method output quantize tasks tuned tuning-records"
_NUMBERS = "health-check-timeout images max-loss min-accuracy rounds runs threads"
_FLAGS = "all-pairs dry-run force own-scales strict-host-key virtual"
_FIELDS = {"cross-compiler": "cross_compiler", "mcpu": "cpu", "mtriple": "triple", "sysroot": "sysroot"}
_FIELDS |= {"precision": "precision", "toolchain": "toolchain"}

# By option, the keyword with `{}` for the value, and how to write the value; None of flags.
_WRITTEN: dict[str, tuple[str, Callable[[str], str] | None]] = {
    **{each: (each.replace("-", "_") + "={}", _text) for each in _TEXTS.split()},
    **{each: (each.replace("-", "_") + "={}", str) for each in _NUMBERS.split()},
    **{each: (each.replace("-", "_") + "=True", None) for each in _FLAGS.split()},
    **{each: (f'overrides={{{{"{field}": {{}}}}}}', _text) for each, field in _FIELDS.items()},
    "against": ("against={}", lambda value: f"[{', '.join(map(_text, value.split(',')))}]"),
    "batch": ("batches=[{}]", str),
    "device": ('overrides={{"device": {{"name": {}}}}}', _text),
    "disable-pass": ("disabled_passes=[{}]", _text),
    "epsilon": ("options=edgedeploy.ImportOptions(epsilon={})", str),
    "input-shape": ("shapes={{{}}}", _shape),
    "keep": ("keep=[{}]", _text),
    "no-check": ("check=False", None),
    "report": ("page={}", _text),
    "set": ("options=edgedeploy.ImportOptions(values={{{}}})", _entry),
    "weights": ("options=edgedeploy.ImportOptions(weights={})", _text),
}
_KEYWORDS = {f"--{option}": written for option, written in _WRITTEN.items()}

# A command line, or text between backquotes; else an option, with its value if the next word ends the message, or has
# a comma, a semicolon or a bracket behind it. In "--against needs a network", `needs` is not a value.
_WORDS = re.compile(
    r"(?P<command>`[^`\n]*`|\bedgedeploy [a-z][^;`\n]*)"
    r"|(?<!\S)(?P<option>--[a-z][a-z-]*)(?![\w=-])(?: (?P<value>(?!-)[^\s;`)]*[^\s;,`)])(?=[,;)](?:\s|$)|$))?",
    re.MULTILINE,
)


def in_python(text: str) -> str:
    """A message for a caller of the Python API; options without a keyword in the API stay."""
    return _WORDS.sub(_word, text)


def _word(found: re.Match[str]) -> str:
    option, value = found["option"], found["value"]
    if option not in _KEYWORDS:
        return found[0]
    keyword, written = _KEYWORDS[option]
    if written is None:
        return keyword + (f" {value}" if value else "")
    return keyword.format(written(value) if value else "...")
