"""Ctrl-C, remembered: libraries turn its KeyboardInterrupt into their own errors, or drop it."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from edgedeploy.base import supervision

# A shell's exit code for a program that Ctrl-C ended.
INTERRUPTED = 130

_came = False


def listen() -> None:
    """Remember Ctrl-C from now on, which raises KeyboardInterrupt as before.

    A process that ignores it, as background jobs of scripts do, still ignores it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)
        sys.unraisablehook = _report_others


def came() -> bool:
    """Whether Ctrl-C came since `listen`."""
    return _came


def check() -> None:
    """Raise the KeyboardInterrupt that a library caught or dropped; for calls between steps of long work."""
    if _came:
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    global _came
    _came = True
    supervision.note_interruption()
    signal.default_int_handler(number, frame)


def _report_others(dropped: sys.UnraisableHookArgs) -> None:
    """Report an exception that a library dropped, unless it is Ctrl-C's, which `check` raises again."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
