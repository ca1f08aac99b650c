"""Options that every command takes, before its name or after it: how much is said, in which form, and in colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Colour = Literal["auto", "always", "never"]
COLOURS: tuple[Colour, ...] = ("auto", "always", "never")


@dataclass(frozen=True)
class Manners:
    """How a command speaks.

    Attributes:
        verbosity: 1 also says what is called and found, 2 shows tracebacks too; below 0 only results and errors.
        progress: whether steps and bars are shown.
        json: whether results and errors are JSON.
        colour: whether there are colours where standard output is no terminal, or none anywhere.
    """

    verbosity: int = 0
    progress: bool = True
    json: bool = False
    colour: Colour = "auto"


_current = Manners()


def manners() -> Manners:
    """How this call of the command line speaks."""
    return _current


def speak(chosen: Manners) -> None:
    """Have this call of the command line speak so."""
    global _current
    _current = chosen


class WrongColourError(ValueError):
    """`--color` has another value than those there are."""


def taken(words: Sequence[str], command: Any) -> tuple[Manners, list[str]]:
    """What a command line says of how to speak, and the line without it.

    Words after `--`, values of other options, and what the command's own parser leaves alone stay as they are. `--json`
    goes to the command that is named, if it has such an option.

    Args:
        words: of the command line.
        command: the group of all commands.
    """
    chosen, path, others, waiting = Manners(), list[str](), list[str](), list(words)
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
                raise WrongColourError(f"--color takes {', '.join(COLOURS)}, not {value!r}")
            chosen = replace(chosen, colour=value)
        elif (changed := _spoken(chosen, word)) and (word == "--json" or own is None):
            chosen = changed
        elif word.startswith("-") and word != "-":
            others.append(word)
            if own is not None and not equals and waiting and _takes_value(own):
                others.append(waiting.pop(0))
        elif not others and word in (known := getattr(command, "commands", {})):
            path.append(word)
            command = known[word]
        else:
            command = getattr(command, "commands", {}).get(getattr(command, "usual", ""), command)
            others.append(word)
    asked = ["--json"] if chosen.json and path and _option(command, "--json") is not None else []
    return chosen, [*path, *asked, *others]


def _spoken(chosen: Manners, word: str) -> Manners | None:
    """The manners with what one word asks for; None if it asks for nothing of the kind."""
    if word == "--verbose":
        return replace(chosen, verbosity=chosen.verbosity + 1)
    if word.startswith("-v") and set(word[1:]) == {"v"}:
        return replace(chosen, verbosity=chosen.verbosity + len(word) - 1)
    return {
        "-q": replace(chosen, verbosity=-1),
        "--quiet": replace(chosen, verbosity=-1),
        "--no-progress": replace(chosen, progress=False),
        "--json": replace(chosen, json=True),
    }.get(word)


def _mixes(command: Any) -> bool:
    """Whether a command takes options after its arguments; what follows those of the others is not edgedeploy's."""
    return bool(
        getattr(command, "commands", None) or (command.context_settings or {}).get("allow_interspersed_args", True)
    )


def _option(command: Any, name: str) -> Any | None:
    """The command's option of a name."""
    return next((each for each in command.params if name in (*each.opts, *each.secondary_opts)), None)


def _takes_value(option: Any) -> bool:
    return not (option.is_flag or option.count)
