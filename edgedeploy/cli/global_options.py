"""Options that every command takes, before its name or after it: verbosity, progress, JSON and colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Colour = Literal["auto", "always", "never"]
COLOURS: tuple[Colour, ...] = ("auto", "always", "never")


@dataclass(frozen=True)
class GlobalOptions:
    """The global options of a command line."""

    verbosity: int = 0  # 1 also logs calls and findings, 2 prints tracebacks too; below 0 only results and errors
    progress: bool = True  # whether steps and bars are shown
    json: bool = False  # whether results and errors are JSON
    colour: Colour = "auto"  # whether to print colours even into pipes, or never


_current = GlobalOptions()


def global_options() -> GlobalOptions:
    """The options of the running command line."""
    return _current


def set_global_options(options: GlobalOptions) -> None:
    """Set the options of the running command line."""
    global _current
    _current = options


class InvalidColourError(ValueError):
    """`--color` has an invalid value."""


def split_global_options(words: Sequence[str], command: Any) -> tuple[GlobalOptions, list[str]]:
    """The global options in a command line, and its other words; `command` is the group of all commands.

    Words after `--`, values of other options, and words that the command's own parser leaves alone stay. `--json`
    also goes to the named command, if it has that option.
    """
    chosen, path, others, waiting = GlobalOptions(), list[str](), list[str](), list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        own = _option(command, name) if path else None
        if word == "--" or (others and not _mixes(command)):
            others += [word, *waiting]
            break
        if name == "--color" and own is None:
            value = value if equals else (waiting.pop(0) if waiting else "")
            if value not in COLOURS:
                raise InvalidColourError(f"--color takes {', '.join(COLOURS)}, not {value!r}")
            chosen = replace(chosen, colour=value)
        elif (changed := _with(chosen, word)) and (word == "--json" or own is None):
            chosen = changed
        elif word.startswith("-") and word != "-":
            others.append(word)
            if own is not None and not equals and waiting and not (own.is_flag or own.count):
                others.append(waiting.pop(0))
        elif not others and word in (known := getattr(command, "commands", {})):
            path.append(word)
            command = known[word]
        else:
            command = getattr(command, "commands", {}).get(getattr(command, "usual", ""), command)
            others.append(word)
    asked = ["--json"] if chosen.json and path and _option(command, "--json") is not None else []
    return chosen, [*path, *asked, *others]


def _with(chosen: GlobalOptions, word: str) -> GlobalOptions | None:
    """The options changed by one word; None if it is not a global option."""
    if word.startswith("-v") and set(word[1:]) == {"v"}:
        return replace(chosen, verbosity=chosen.verbosity + len(word) - 1)
    changes: dict[str, dict[str, Any]] = {
        "--verbose": {"verbosity": chosen.verbosity + 1},
        "-q": {"verbosity": -1},
        "--quiet": {"verbosity": -1},
        "--no-progress": {"progress": False},
        "--json": {"json": True},
    }
    return replace(chosen, **changes[word]) if word in changes else None


def _mixes(command: Any) -> bool:
    """Whether a command takes options after its arguments; for others, the rest belongs to another program."""
    settings = command.context_settings or {}
    return bool(getattr(command, "commands", None) or settings.get("allow_interspersed_args", True))


def _option(command: Any, name: str) -> Any | None:
    return next((each for each in command.params if name in (*each.opts, *each.secondary_opts)), None)
