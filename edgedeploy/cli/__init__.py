"""The `edgedeploy` command: one module per subcommand, each imported cheaply.

Modules of this package import typer and the standard library at the top, and everything heavier inside
the functions that need it, so that `edgedeploy --help` and tab completion answer at once.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from edgedeploy import __version__
from edgedeploy.cli import (
    bench,
    boards,
    build,
    demo,
    doctor,
    models,
    package,
    push,
    records,
    releases,
    rpc,
    run,
    toolchains,
    tune,
    virtual,
)
from edgedeploy.cli.console import log
from edgedeploy.errors import EdgedeployError
from edgedeploy.text import printable

app = typer.Typer(
    name="edgedeploy",
    help="Take a trained neural network to a small board: build, push, run, demo, bench, tune.",
    epilog="Start with: edgedeploy demo all",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help pages without rich: twice as quick
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("build")(build.build)
app.command("push")(push.push)
app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
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

_verbosity = 0


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"edgedeploy {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Say more; -vv also shows tracebacks.")
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    global _verbosity
    _verbosity = verbose
    log([logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)])


def main() -> None:
    """Run the command line; every failure ends in a message and a documented exit code."""
    try:
        app(prog_name="edgedeploy")
    except EdgedeployError as error:
        if _verbosity >= 2:
            raise
        from edgedeploy.cli.console import print_error

        print_error(error)
        sys.exit(error.exit_code)
    except MemoryError as error:
        if _verbosity >= 2:
            raise
        print(f"error: there is not enough memory: {error}", file=sys.stderr)
        sys.exit(EdgedeployError.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        if _verbosity >= 2:
            raise
        message = printable(" ".join(str(error).split()))[:300]
        print(f"internal error: {type(error).__name__}: {message}", file=sys.stderr)
        print(
            "  try: the same command with `edgedeploy -vv ...` for a traceback, and report it",
            file=sys.stderr,
        )
        sys.exit(70)
