"""The `edgedeploy` command: one module per subcommand, each imported cheaply.

Modules of this package import typer and the standard library at the top, and everything heavier inside
the functions that need it, so that `edgedeploy --help` and tab completion answer at once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Annotated, Any

import typer

from edgedeploy.base import interruption
from edgedeploy.base.attempts import refusal, require_address_space
from edgedeploy.base.settings import default_board, default_threads
from edgedeploy.base.streams import give_up_output
from edgedeploy.base.supervision import EndedError
from edgedeploy.base.text import printable
from edgedeploy.cli.console import log, print_error, print_json_error, print_result
from edgedeploy.cli.global_options import (
    GlobalOptions,
    InvalidColourError,
    global_options,
    set_global_options,
    split_global_options,
)
from edgedeploy.cli.groups import Commands, InSections
from edgedeploy.cli.options import MOST
from edgedeploy.cli.tvmc import translated
from edgedeploy.errors import InternalError, ReaderGoneError
from edgedeploy.version import __version__

_HELP = """Take a trained neural network to a small board: build, push, run, demo, bench, tune.

\b
A first session:
  edgedeploy demo digits                                 see it run here
  edgedeploy build digits --board rpi4                   compile it
  edgedeploy push digits --board rpi4 --host pi@ADDRESS  install it there
  edgedeploy demo digits --board rpi4 --host pi@ADDRESS  see it run there
"""

app = Commands(
    name="edgedeploy",
    cls=InSections,
    help=_HELP,
    epilog="edgedeploy COMMAND --help has the options of a command, and examples.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help pages without rich: twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Each command is the `app`, or the function of its name, in the module of its name.
_COMMANDS = {
    "Networks": ("build", "run", "demo", "quantize", "models", "image", "labels"),
    "Boards": ("push", "doctor", "boards", "releases", "service", "virtual", "rpc"),
    "Speed": ("bench", "predict", "tune", "records"),
    "Files": ("library", "package", "new", "toolchains"),
}
for _section, _names in _COMMANDS.items():
    for _name in _names:
        _module = import_module(f"edgedeploy.cli.{_name}")
        if hasattr(_module, "app"):
            app.add_typer(_module.app, name=_name, rich_help_panel=_section)
        else:
            app.command(_name, rich_help_panel=_section)(getattr(_module, _name))

# The commands that load the compiler or its runtime.
_LARGE = {"build", "run", "demo", "bench", "predict", "tune", "quantize"}

# Commands that ignore the user's settings.
_WITHOUT_SETTINGS = {"help", "version"}

# For the help of `edgedeploy` itself; `split_global_options` parses them, anywhere on the command line.
_VERBOSE = typer.Option("-v", "--verbose", count=True, show_default=False, help="Print more; -vv prints tracebacks.")
_QUIET = typer.Option("-q", "--quiet", help="Print only results and errors.")
_NO_PROGRESS = typer.Option("--no-progress", help="Hide progress output; notes about decisions stay.")
_JSON = typer.Option("--json", help="Print results and errors as JSON, in commands that support it.")
_COLOUR = typer.Option("--color", metavar="auto|always|never", help="When to use colours.")


def _defaults(command: Any, stated: dict[str, Any]) -> dict[str, Any]:
    """Defaults of the options of all commands below one."""
    below = {name: _defaults(each, stated) for name, each in getattr(command, "commands", {}).items()}
    options = {each.name for each in command.params if each.name in stated and each.opts[0].startswith("-")}
    return below | {name: stated[name] for name in options}


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"edgedeploy {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    verbose: Annotated[int, _VERBOSE] = 0,
    quiet: Annotated[bool, _QUIET] = False,
    no_progress: Annotated[bool, _NO_PROGRESS] = False,
    json_output: Annotated[bool, _JSON] = False,
    color: Annotated[str, _COLOUR] = "auto",
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand in _LARGE:
        require_address_space()
    # Help is shown even if settings are invalid.
    if context.invoked_subcommand not in _WITHOUT_SETTINGS and not {"-h", "--help", "help"} & set(sys.argv[1:]):
        stated = {"board": default_board(), "threads": default_threads()}
        context.default_map = _defaults(context.command, {name: value for name, value in stated.items() if value})
    log({-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}.get(global_options().verbosity, logging.DEBUG))


@cache
def _tree() -> Any:
    """All commands as typer parses them, which is slow to create; their help states ranges of numbers in words."""

    def in_words(command: Any) -> Any:
        for each in command.params:
            low, high = getattr(each, "min", None), getattr(each, "max", None)
            if high not in (None, MOST):
                each.help += f" From {low:g} to {high:g}."
            elif low is not None and low > 1:
                each.help += f" At least {low:g}."
            if not getattr(each, "count", False):
                each.min = each.max = None  # which typer would show as 1<=x<=2147483647
        for each in getattr(command, "commands", {}).values():
            in_words(each)
        return command

    return in_words(typer.main.get_command(app))


@app.command("help", json=None, rich_help_panel="About")
def show_help(
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="The command's name.")] = None,
) -> None:
    """Show the help of a command, as its --help does.

    Examples: edgedeploy help build; edgedeploy help releases list
    """
    _tree()([*(words or []), "--help"], prog_name="edgedeploy")


@app.command("version", rich_help_panel="About")
def show_version() -> None:
    """Print the versions of edgedeploy, Python and its packages.

    Example: edgedeploy version --json
    """
    import platform

    from edgedeploy.base.extras import installed_versions

    packages = ("apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "ziglang", "numpy", "paramiko")
    found = {"edgedeploy": __version__, "python": platform.python_version(), **installed_versions(packages)}
    print_result(found, *(f"{name} {version}" for name, version in found.items()))


def main(ended: EndedError | None = None) -> None:
    """Run the command line, or report how the compiler `ended` it; each failure gives a message and an exit code."""
    set_global_options(GlobalOptions())
    code = _code_of(partial(_refuse, ended) if ended else _run)
    flushed = _code_of(sys.stdout.flush)
    if flushed:
        give_up_output()
    sys.exit(code or flushed)


def _refuse(ended: EndedError) -> None:
    with suppress(InvalidColourError):
        set_global_options(split_global_options(sys.argv[1:], _tree())[0])
    raise ended.error()


def _run() -> object:
    """Run the named command; returns its exit code, if any."""
    if "_EDGEDEPLOY_COMPLETE" in os.environ:
        return app(prog_name="edgedeploy")
    try:
        chosen, words = split_global_options(sys.argv[1:], _tree())
    except InvalidColourError as error:
        print(f"Usage: edgedeploy [OPTIONS] COMMAND\n\nError: {error}", file=sys.stderr)
        return 2
    set_global_options(chosen)
    if (typed := translated([word for word in words if word != "--json"], _options_of)) is not None:
        what, why = "this is a command line of tvmc's", "; ".join(typed.reasons)
        if chosen.json:
            print_json_error(what, why, [typed.command], 2)
        print(f"error: {printable(what)}: {printable(why)}\n  try: {printable(typed.command)}", file=sys.stderr)
        return 2
    try:
        return _tree()(words or ["--help"], prog_name="edgedeploy", standalone_mode=False)
    except Exception as error:
        wrong: Any = error
        if not hasattr(wrong, "format_message"):
            raise
        from pydantic import ValidationError

        from edgedeploy.base.documents import faults

        if isinstance(error.__cause__, ValidationError):  # typer repeats pydantic's words
            [(_, _, wrong.message), *_] = faults(error.__cause__)
        if chosen.json:
            hints = [f"edgedeploy {' '.join(['help', *_command_of(words)])}"]
            print_json_error(wrong.format_message(), None, hints, 2)
        wrong.show()
        return 2


def _options_of(name: str) -> set[str]:
    command: Any = _tree().commands.get(name)
    command = getattr(command, "commands", {}).get(getattr(command, "usual", ""), command)
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)}


def _command_of(words: list[str]) -> list[str]:
    """The words of a command line that name the command."""
    named: list[str] = []
    command: Any = _tree()
    for word in words:
        if (command := getattr(command, "commands", {}).get(word)) is None:
            break
        named.append(word)
    return named


def _code_of(work: Callable[[], object]) -> int | str | None:
    try:
        ended_with = work()
    except SystemExit as ended:
        return ended.code
    except Exception as error:
        if interruption.came():
            return interruption.INTERRUPTED
        logging.getLogger(__name__).debug("the command failed", exc_info=error)
        return _reported(error)
    return ended_with if isinstance(ended_with, int) else 0


def _reported(error: Exception) -> int:
    """Print an error; returns its exit code."""
    known = refusal(error) or InternalError.of(error)
    if isinstance(known, ReaderGoneError):
        return known.exit_code
    try:
        if global_options().json:
            print_json_error(known.what, known.why, known.hints, known.exit_code)
        print_error(known)
    except Exception:  # rich cannot be imported: there is too little memory
        print(f"error: {printable(known.cause)}", file=sys.stderr)
    return known.exit_code
