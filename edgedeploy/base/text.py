"""Numbers and foreign text for people."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Any

# Parts of a URL, or of the rest of one in a line of a log.
_USER, _QUERY = re.compile(r"(?<=://)[^\s/'\"]*@"), re.compile(r"(/[^\s?'\"<>]*)\?[^\s'\"<>)\]]*")


def significant(value: float) -> str:
    """A number with three significant digits and no exponent, as in tables of times: 0.0123, 1.23, 123, 1234."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def milliseconds(value: float | None) -> str:
    """A time in milliseconds, or a dash."""
    return "-" if value is None else significant(value)


def times(ratio: float | None) -> str:
    """A speed-up, or a dash."""
    return "-" if ratio is None else f"{significant(ratio)}x"


def duration(seconds: float) -> str:
    """A time in its two largest units, such as `3 min 20 s`."""
    whole = round(seconds)
    for name, below, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // part} {below}"
    return f"{whole} s"


def count(number: int, noun: str) -> str:
    """A number with its noun in singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def without_secrets(text: str) -> str:
    """Text whose URLs lack user, password and query, which may hold tokens."""
    return _QUERY.sub(r"\1", _USER.sub("", text))


def json_text(content: Any, *, indent: int | None = None, ascii_only: bool = True) -> str:
    """JSON by RFC 8259, with null for NaN and infinities, which it does not have."""
    try:
        return json.dumps(content, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json.dumps(_with_null(content), indent=indent, ensure_ascii=ascii_only, allow_nan=False)


def _with_null(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _with_null(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_with_null(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def fill_template(package: str, template: str, /, **values: object) -> str:
    """A text file of a package, which is a Jinja2 template, with values filled in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package, "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(template).render(**values)


def printable(text: str) -> str:
    """Text on one line that moves no cursor, rings no bell and does not change the writing direction.

    Unprintable characters are escaped: names from networks' files go to terminals and pages. Bytes of file names that
    Python could not decode, as in the locale C, are decoded as UTF-8.
    """
    if any("\udc80" <= each <= "\udcff" for each in text):
        with suppress(UnicodeEncodeError):
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
