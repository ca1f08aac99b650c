"""How numbers and foreign text are written for people."""

from __future__ import annotations

import math


def significant(value: float) -> str:
    """A number with three significant digits and no exponent, as tables of times show it: 0.0123, 1.23, 123, 1234."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def printable(text: str) -> str:
    """Text on one line that moves no cursor, rings no bell and turns no direction of writing.

    What cannot be printed stands there as its escape: names from networks' files go to terminals and pages.
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
