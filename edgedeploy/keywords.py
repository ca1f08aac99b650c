"""Options of the command line as the Python API's keywords: errors are written once, and speak to both readers.

Messages name options, as `--host pi@10.0.0.7`. The command line prints them as they are; `str(error)`, which tracebacks
show, has `host="pi@10.0.0.7"` in their place. Command lines within a message stay what they are.
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


def _field(name: str) -> tuple[str, Callable[[str], str]]:
    """A field of a board's profile that an option replaces."""
    return f'overrides={{{{"{name}": {{}}}}}}', _text


# By option, the keyword with `{}` for the value, and how that is written; None of flags.
_KEYWORDS: dict[str, tuple[str, Callable[[str], str] | None]] = {
    "--against": ("against={}", lambda value: f"[{', '.join(map(_text, value.split(',')))}]"),
    "--all-pairs": ("all_pairs=True", None),
    "--batch": ("batches=[{}]", str),
    "--board": ("board={}", _text),
    "--calibrate": ("calibrate={}", _text),
    "--camera": ("camera={}", _text),
    "--cross-compiler": _field("cross_compiler"),
    "--demo": ("demo={}", _text),
    "--device": ('overrides={{"device": {{"name": {}}}}}', _text),
    "--disable-pass": ("disabled_passes=[{}]", _text),
    "--dry-run": ("dry_run=True", None),
    "--epsilon": ("options=edgedeploy.ImportOptions(epsilon={})", str),
    "--evaluate": ("evaluate={}", _text),
    "--force": ("force=True", None),
    "--health-check": ("health_check={}", _text),
    "--health-check-timeout": ("health_check_timeout={}", str),
    "--host": ("host={}", _text),
    "--images": ("images={}", str),
    "--input-shape": ("shapes={{{}}}", _shape),
    "--keep": ("keep=[{}]", _text),
    "--max-loss": ("max_loss={}", str),
    "--mcpu": _field("cpu"),
    "--method": ("method={}", _text),
    "--min-accuracy": ("min_accuracy={}", str),
    "--mtriple": _field("triple"),
    "--no-check": ("check=False", None),
    "--output": ("output={}", _text),
    "--report": ("page={}", _text),
    "--rounds": ("rounds={}", str),
    "--runs": ("runs={}", str),
    "--set": ("options=edgedeploy.ImportOptions(values={{{}}})", _entry),
    "--strict-host-key": ("strict_host_key=True", None),
    "--sysroot": _field("sysroot"),
    "--tasks": ("tasks={}", _text),
    "--threads": ("threads={}", str),
    "--toolchain": _field("toolchain"),
    "--tuned": ("tuned={}", _text),
    "--tuning-records": ("tuning_records={}", _text),
    "--virtual": ("virtual=True", None),
    "--weights": ("options=edgedeploy.ImportOptions(weights={})", _text),
}

# A command line, or what stands between backquotes; else an option, with its value where a word follows that ends the
# message, or has a comma, a semicolon or a bracket behind it. In "--against needs a network", `needs` is none.
_WORDS = re.compile(
    r"(?P<command>`[^`\n]*`|\bedgedeploy [a-z][^;`\n]*)"
    r"|(?<!\S)(?P<option>--[a-z][a-z-]*)(?![\w=-])(?: (?P<value>(?!-)[^\s;`)]*[^\s;,`)])(?=[,;)](?:\s|$)|$))?",
    re.MULTILINE,
)


def in_python(text: str) -> str:
    """A message as a caller of the Python API reads it; options that the API has no keyword for stay as they are."""
    return _WORDS.sub(_word, text)


def _word(found: re.Match[str]) -> str:
    option, value = found["option"], found["value"]
    if option not in _KEYWORDS:
        return found[0]
    keyword, written = _KEYWORDS[option]
    if written is None:
        return keyword + (f" {value}" if value else "")
    return keyword.format(written(value) if value else "...")
