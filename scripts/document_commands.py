"""Writes docs/commands.md from the help of the commands.

The text is that of `--help`; the layout is our own, because that of help pages changes with typer's version.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from edgedeploy.cli import _tree

TARGET = Path(__file__).resolve().parent.parent / "docs" / "commands.md"

HEAD = """\
# Commands

Written by `make docs` from the commands' own help. Results go to standard output, everything else to standard
error; what the exit codes mean is listed in [exit-codes.md](exit-codes.md).
"""

# What typer adds to the command itself.
COMPLETION = ("install_completion", "show_completion")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group of commands with its full name, parents first."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for child, subcommand in getattr(command, "commands", {}).items():
            yield from below(f"{name} {child}", subcommand)

    return below("edgedeploy", _tree())


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(name, command) for name, command in commands())])


def _section(name: str, command: Any) -> str:
    arguments, options = _parameters(command)
    usage = [name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    if hasattr(command, "commands"):
        usage.append("[COMMAND]" if command.invoke_without_command else "COMMAND")
    lines = [f"## {name}", "", "```", " ".join(usage), "```", "", _text(command.help)]
    rows = [(_argument(each), each.help or "") for each in arguments]
    rows += [(_option(each), f"{each.help}{_default(each)}") for each in options]
    if rows:
        lines += ["", f"| {'Argument or option' if arguments else 'Option'} | Meaning |", "|---|---|"]
        lines += [f"| {_code(name)} | {_escaped(meaning)} |" for name, meaning in rows]
    return "\n".join([*lines, ""])


def _parameters(command: Any) -> tuple[list[Any], list[Any]]:
    shown = [each for each in command.params if each.name not in COMPLETION]
    options = [each for each in shown if each.opts[0].startswith("-")]
    return [each for each in shown if each not in options], options


def _text(text: str) -> str:
    """A help text with its examples as code, one on each line."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        word, colon, rest = paragraph.replace("\n", " ").partition(": ")
        if colon and word in ("Example", "Examples"):
            paragraphs.append("\n".join(["```", *rest.split("; "), "```"]))
        elif paragraph.startswith("\b"):  # of lines that stay as they are: a title, and commands
            _, title, *lines = paragraph.splitlines()
            block = "\n".join(["```", *map(str.strip, lines), "```"])
            paragraphs += [block] if title == "Examples:" else [title, block]
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs).replace("```\n\n```\n", "")


def _code(text: str) -> str:
    """Code in a table: a bar between backticks ends the cell for some readers, and for others keeps its backslash."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).removesuffix("...").strip("[]")
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag or getattr(option, "count", False):
        return names
    return f"{names} {option.metavar or option.name.upper()}"


def _default(option: Any) -> str:
    """What holds if the option is not given, where that is a value, with the others there are."""
    default = option.default
    if isinstance(default, bool) or not isinstance(default, (str, int, float)) or not default:
        return ""
    annotation = option.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return f" One of {', '.join(get_args(annotation))}; by default {default}."
    return f" By default {default}."


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
