"""The `edgedeploy` command: one module per subcommand, each imported cheaply.

Modules of this package import typer and the standard library at the top, and everything heavier inside
the functions that need it, so that `edgedeploy --help` and tab completion answer at once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from edgedeploy import __version__, interruption
from edgedeploy.cli import (
    bench,
    boards,
    build,
    demo,
    doctor,
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
    toolchains,
    tune,
    virtual,
)
from edgedeploy.cli.console import log
from edgedeploy.errors import ReaderGoneError
from edgedeploy.refusals import refusal, require_address_space
from edgedeploy.streams import give_up_output
from edgedeploy.text import printable

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
app.command("bench")(bench.bench)
app.command("predict")(predict.predict)
app.command("library")(library.library)
app.add_typer(new.app, name="new")
app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")
app.add_typer(boards.app, name="boards")
app.add_typer(toolchains.app, name="toolchains")
app.add_typer(package.app, name="package")
app.add_typer(releases.app, name="releases")
app.add_typer(tune.app, name="tune")
app.add_typer(records.app, name="records")
app.add_typer(virtual.app, name="virtual")
app.add_typer(rpc.app, name="rpc")

# The commands that load the compiler or its runtime.
_LARGE = {"build", "run", "demo", "bench", "predict", "tune", "quantize"}

_verbosity = 0


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"edgedeploy {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Say more; -vv also shows tracebacks.")
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    global _verbosity
    _verbosity = verbose
    if context.invoked_subcommand in _LARGE:
        require_address_space()
    log([logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)])


def main() -> None:
    """Run the command line; every failure ends in a message and a documented exit code."""
    code = _code_of(lambda: app(prog_name="edgedeploy"))
    flushed = _code_of(sys.stdout.flush)
    if flushed:
        give_up_output()
    sys.exit(code or flushed)


def _code_of(work: Callable[[], object]) -> int | str | None:
    """Do the work; the exit code that says how it ended."""
    try:
        work()
    except SystemExit as ended:
        return ended.code
    except Exception as error:
        if interruption.came():
            return interruption.INTERRUPTED
        if _verbosity >= 2:
            raise
        return _reported(error)
    return 0


def _reported(error: Exception) -> int:
    """Print what happened, and what to do where that is known; the exit code."""
    known = refusal(error)
    if isinstance(known, ReaderGoneError):
        return known.exit_code
    if known:
        try:
            from edgedeploy.cli.console import print_error

            print_error(known)
        except Exception:  # rich cannot be imported: there is too little memory
            print(f"error: {printable(str(known))}", file=sys.stderr)
        return known.exit_code
    message = printable(" ".join(str(error).split()))[:300]
    print(f"internal error: {type(error).__name__}: {message}", file=sys.stderr)
    print("  try: the same command with `edgedeploy -vv ...` for a traceback, and report it", file=sys.stderr)
    return 70
