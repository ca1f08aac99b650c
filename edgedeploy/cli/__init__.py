"""The `edgedeploy` command: one module per subcommand, each imported cheaply.

Modules of this package import typer and the standard library at the top, and everything heavier inside
the functions that need it, so that `edgedeploy --help` and tab completion answer at once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from edgedeploy import interruption
from edgedeploy.cli import (
    bench,
    boards,
    build,
    demo,
    doctor,
    image,
    labels,
    library,
    models,
    new,
    package,
    predict,
    push,
    quantize,
    records,
    releases,
    rpc,
    run,
    service,
    toolchains,
    tune,
    virtual,
)
from edgedeploy.cli.console import log, print_json, print_json_error, print_lines
from edgedeploy.cli.manners import Manners, WrongColourError, manners, speak, taken
from edgedeploy.cli.options import JsonOption
from edgedeploy.cli.tvmc import translated
from edgedeploy.errors import InternalError, ReaderGoneError
from edgedeploy.refusals import refusal, require_address_space
from edgedeploy.settings import default_board, default_threads
from edgedeploy.streams import give_up_output
from edgedeploy.text import printable
from edgedeploy.version import __version__

app = typer.Typer(
    name="edgedeploy",
    help="Take a trained neural network to a small board: build, push, run, demo, bench, tune.",
    epilog="Start with: edgedeploy demo all",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help pages without rich: twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("build")(build.build)
app.command("quantize")(quantize.quantize)
app.command("push")(push.push)
app.command("run")(run.run)
app.command("demo")(demo.demo)
app.add_typer(bench.app, name="bench")
app.command("predict")(predict.predict)
app.command("library")(library.library)
app.add_typer(image.app, name="image")
app.command("labels")(labels.labels)
app.add_typer(new.app, name="new")
app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")
app.add_typer(boards.app, name="boards")
app.add_typer(toolchains.app, name="toolchains")
app.add_typer(package.app, name="package")
app.add_typer(releases.app, name="releases")
app.add_typer(service.app, name="service")
app.add_typer(tune.app, name="tune")
app.add_typer(records.app, name="records")
app.add_typer(virtual.app, name="virtual")
app.add_typer(rpc.app, name="rpc")

# The commands that load the compiler or its runtime.
_LARGE = {"build", "run", "demo", "bench", "predict", "tune", "quantize"}

# They work whatever is set.
_WITHOUT_SETTINGS = {"help", "version"}

# Said of every command in the help of `edgedeploy` itself; `manners.taken` takes them, wherever they stand.
_VERBOSE = typer.Option("-v", "--verbose", count=True, help="Say more; -vv also shows tracebacks.")
_QUIET = typer.Option("-q", "--quiet", help="Say nothing but results and errors.")
_NO_PROGRESS = typer.Option("--no-progress", help="Show no steps and bars; what is decided is said.")
_JSON = typer.Option("--json", help="Print JSON, errors too: the commands that can do so.")
_COLOUR = typer.Option("--color", metavar="auto|always|never", help="When to print in colours.")


def _defaults(command: Any, stated: dict[str, Any]) -> dict[str, Any]:
    """What the options of all commands below one are unless the command line says it."""
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
    # Help is shown whatever is set, be it wrong.
    if context.invoked_subcommand not in _WITHOUT_SETTINGS and not {"-h", "--help", "help"} & set(sys.argv[1:]):
        stated = {"board": default_board(), "threads": default_threads()}
        context.default_map = _defaults(context.command, {name: value for name, value in stated.items() if value})
    log({-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}.get(manners().verbosity, logging.DEBUG))


@app.command("help")
def show_help(
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="The command's name.")] = None,
) -> None:
    """Show the help of a command, as its --help does.

    Examples: edgedeploy help build; edgedeploy help releases list
    """
    app([*(words or []), "--help"], prog_name="edgedeploy")


@app.command("version")
def show_version(json_output: JsonOption = False) -> None:
    """Print the versions of edgedeploy, Python, and what networks are compiled and checked with.

    Example: edgedeploy version --json
    """
    from edgedeploy.cli.versions import versions

    found = versions()
    if json_output:
        print_json(found)
    else:
        print_lines(f"{name} {version}" for name, version in found.items())


def main() -> None:
    """Run the command line; every failure ends in a message and a documented exit code."""
    speak(Manners())
    code = _code_of(_run)
    flushed = _code_of(sys.stdout.flush)
    if flushed:
        give_up_output()
    sys.exit(code or flushed)


def _run() -> object:
    """Run the command that is named; gives its exit code where it ends with one."""
    if "_EDGEDEPLOY_COMPLETE" in os.environ:
        return app(prog_name="edgedeploy")
    try:
        chosen, words = taken(sys.argv[1:], typer.main.get_command(app))
    except WrongColourError as error:
        print(f"Usage: edgedeploy [OPTIONS] COMMAND\n\nError: {error}", file=sys.stderr)
        return 2
    speak(chosen)
    if (typed := translated([word for word in words if word != "--json"], _options_of)) is not None:
        what, why = "this is a command line of tvmc's", "; ".join(typed.reasons)
        if chosen.json:
            print_json_error(what, why, [typed.command], 2)
        print(f"error: {printable(what)}: {printable(why)}\n  try: {printable(typed.command)}", file=sys.stderr)
        return 2
    if not chosen.json:
        return app(words, prog_name="edgedeploy")
    try:
        return app(words, prog_name="edgedeploy", standalone_mode=False)
    except Exception as error:
        said = getattr(error, "format_message", None)
        if said is None:
            raise
        print_json_error(said(), None, [f"edgedeploy {' '.join(['help', *_command_of(words)])}"], 2)
        error.show()  # type: ignore[attr-defined]
        return 2


def _options_of(name: str) -> set[str]:
    """All options of a command."""
    command: Any = typer.main.get_command(app)
    command = command.commands.get(name)
    command = getattr(command, "commands", {}).get(getattr(command, "usual", ""), command)
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)}


def _command_of(words: list[str]) -> list[str]:
    """The words of a command line that name the command."""
    named: list[str] = []
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        named.append(word)
    return named


def _code_of(work: Callable[[], object]) -> int | str | None:
    """Do the work; the exit code that says how it ended."""
    try:
        ended_with = work()
    except SystemExit as ended:
        return ended.code
    except Exception as error:
        if interruption.came():
            return interruption.INTERRUPTED
        if manners().verbosity >= 2:
            raise
        return _reported(error)
    return ended_with if isinstance(ended_with, int) else 0


def _reported(error: Exception) -> int:
    """Print what happened, and what to do where that is known; the exit code."""
    known = refusal(error) or InternalError(error)
    if isinstance(known, ReaderGoneError):
        return known.exit_code
    try:
        from edgedeploy.cli.console import print_error

        if manners().json:
            print_json_error(known.what, known.why, known.hints, known.exit_code)
        print_error(known)
    except Exception:  # rich cannot be imported: there is too little memory
        print(f"error: {printable(known.cause)}", file=sys.stderr)
    return known.exit_code
