"""`edgedeploy releases`: what lies on a board, what is in use and was, going back, and clearing away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.console import foreign, print_json, print_table, quiet_if, stdout
from edgedeploy.cli.options import Health, JsonOption, LastBoardOption, Where, board_or_last
from edgedeploy.cli.overrides import flattened
from edgedeploy.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from edgedeploy.api.boards import Board, OnBoard
    from edgedeploy.progress import Progress
    from edgedeploy.release.record import Entry

app = typer.Typer(help="List, switch between, and remove the releases on a board.", no_args_is_help=True)

ModelArgument = Annotated[str, typer.Argument(help="The model's name on the board.")]


@app.command("list")
@flattened
def list_releases(
    board: LastBoardOption = None,
    *,
    where: Where,
    history: Annotated[
        bool, typer.Option("--history", help="Show which releases were in use, when, and on whose behalf.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the releases on a board, or what was in use there.

    A release that was switched to and not confirmed is one whose push was cut off: push it again, or go back.

    Examples: edgedeploy releases list --board rpi4; edgedeploy releases list --board rpi4 --history --json
    """
    with _board(board, where, quiet_if(json_output)) as connected:
        if history:
            entries = connected.history()
            if json_output:
                print_json([{"model": model, **entry.to_dict()} for model, entry in entries])
            else:
                _print_history(entries)
            return
        found = connected.releases()
    if json_output:
        print_json([each.to_dict() for each in found])
    else:
        _print(found)


@app.command()
@flattened
def activate(
    model: ModelArgument,
    release: Annotated[str, typer.Argument(help="The release's name.")],
    board: LastBoardOption = None,
    *,
    where: Where,
    health: Health,
    json_output: JsonOption = False,
) -> None:
    """Switch to a release that lies on the board, after a self-test. If it fails a check in use, the board goes back.

    Example: edgedeploy releases activate digits 20260102T030405Z-89abcdef --board rpi4
    """
    from edgedeploy.release.layout import check_id

    check_id(release)
    _switch(model, release, board, where, health, json_output)


@app.command()
@flattened
def rollback(
    model: ModelArgument,
    board: LastBoardOption = None,
    *,
    where: Where,
    health: Health,
    json_output: JsonOption = False,
) -> None:
    """Switch to the release that was in use before, after a self-test. Called again, it goes back further.

    Example: edgedeploy releases rollback digits --board rpi4
    """
    _switch(model, None, board, where, health, json_output)


@app.command()
@flattened
def gc(
    board: LastBoardOption = None,
    *,
    where: Where,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many releases of each model to keep.")] = 3,
    json_output: JsonOption = False,
) -> None:
    """Remove old releases, all trials, and files that belong to none.

    Of each model, the release in use stays, and the newest that were in use.

    Example: edgedeploy releases gc --keep 1 --board rpi4
    """
    with _board(board, where, quiet_if(json_output)) as connected:
        removed = connected.remove_old(keep)
    if json_output:
        print_json({"host": connected.address, "removed": removed})
        return
    for folder in removed:
        area, _, name = folder.partition("/")
        stdout().print(f"{name} is removed{', a trial' if area == 'trials' else ''}")
    if not removed:
        stdout().print(f"no model has more than {count(keep, 'release')}, and there are no trials")


def _switch(
    model: str, release: str | None, board: str | None, where: Where, health: Health, json_output: bool
) -> None:
    """Switch to a release, or to the one before."""
    from edgedeploy.api.boards import connect
    from edgedeploy.release.layout import check_model

    check_model(model)
    progress = quiet_if(json_output)
    resolved = board_or_last(board, progress)
    health.of(resolved)  # what cannot be a check is refused before the board is asked
    with connect(resolved, **where.options, progress=progress) as connected:
        checks = vars(health)
        to = connected.activate(model, release, **checks) if release else connected.rollback(model, **checks)
        if json_output:
            print_json({"host": connected.address, "model": model, "release": to})
        else:
            stdout().print(f"{connected.address} now uses {model} {to}")


def _board(board: str | None, where: Where, progress: Progress) -> Board:
    """Where the releases lie; a board that is not named need not be known where `--host` says it."""
    from edgedeploy.api.boards import connect

    unknown = board is None and where.host and not where.virtual
    return connect(None if unknown else board_or_last(board, progress), **where.options, progress=progress)


def _print(releases: Sequence[OnBoard]) -> None:

    rows = []
    for each in releases:
        last = each.history[-1] if each.history else None
        told = f"{last.event.value} {_shown(last.time)} by {last.who}" if last else ""
        rows.append([each.model, each.id, _shown(each.made), each.state, f"{each.kibibytes:,}", foreign(told)])
    print_table(["model", "release", "made (UTC)", "state", "KiB", "last"], rows, right=["KiB"])


def _print_history(entries: list[tuple[str, Entry]]) -> None:

    rows = []
    for model, entry in entries:
        what = f"{entry.event.value}: {entry.reason}" if entry.reason else entry.event.value
        rows.append([_shown(entry.time), model, entry.id, foreign(what), foreign(entry.who)])
    print_table(["time (UTC)", "model", "release", "what", "by"], rows)


def _shown(time: datetime) -> str:
    """A time as tables show it."""
    return f"{time:%Y-%m-%d %H:%M}"
