"""`edgedeploy releases`: list the releases on a board, switch between them, and remove old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer import Argument, Option

from edgedeploy.base.text import count
from edgedeploy.cli.console import as_table, foreign, print_result, shown_progress
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import Health, ModelOnBoard, RemoteBoard

if TYPE_CHECKING:
    from edgedeploy.api.boards import Board

app = Commands(help="List, switch between, and remove the releases on a board.", no_args_is_help=True)

_TIME = "%Y-%m-%d %H:%M"


@app.command("list")
def list_releases(
    *,
    where: RemoteBoard,
    history: bool = Option(False, "--history", help="Show which releases were in use, when, and on whose behalf."),
) -> None:
    """List the releases on a board, or its history of releases in use.

    The push of a release that was switched to and not confirmed was cut off: push it again, or go back.

    Examples: edgedeploy releases list --board rpi4; edgedeploy releases list --board rpi4 --history --json
    """
    with _board(where) as connected:
        entries = connected.history() if history else []
        found = [] if history else connected.releases()
    rows = []
    for model, entry in entries:
        what = f"{entry.event.value}: {entry.reason}" if entry.reason else entry.event.value
        rows.append([f"{entry.time:{_TIME}}", model, entry.id, foreign(what), foreign(entry.who)])
    for each in found:
        last = each.history[-1] if each.history else None
        event = foreign(f"{last.event.value} {last.time:{_TIME}} by {last.who}" if last else "")
        rows.append([each.model, each.id, f"{each.made:{_TIME}}", each.state, f"{each.kibibytes:,}", event])
    titles = ["model", "release", "made (UTC)", "state", "KiB", "last"]
    if history:
        titles = ["time (UTC)", "model", "release", "what", "by"]
    events = [{"model": model, **entry.to_dict()} for model, entry in entries]
    print_result([*events, *(each.to_dict() for each in found)], as_table(titles, rows, right=["KiB"]))


@app.command()
def activate(
    model: ModelOnBoard, release: str = Argument(..., help="The release's name."), *, where: RemoteBoard, health: Health
) -> None:
    """Switch to a release on the board, after a self-test; go back if it fails a check in use.

    Example: edgedeploy releases activate digits 20260102T030405Z-89abcdef --board rpi4
    """
    from edgedeploy.release.layout import check_id

    check_id(release)
    _switch(model, release, where, health)


@app.command()
def rollback(model: ModelOnBoard, *, where: RemoteBoard, health: Health) -> None:
    """Switch to the previous release in use, after a self-test. Called again, it goes back further.

    Example: edgedeploy releases rollback digits --board rpi4
    """
    _switch(model, None, where, health)


@app.command()
def gc(*, where: RemoteBoard, keep: int = Option(3, min=1, help="How many releases of each model to keep.")) -> None:
    """Remove old releases, all trials, and files that belong to neither.

    Of each model, the release in use stays, and the newest that were in use.

    Example: edgedeploy releases gc --keep 1 --board rpi4
    """
    with _board(where) as connected:
        removed = connected.remove_old(keep)
    lines = [f"no model has more than {count(keep, 'release')}, and there are no trials"]
    if removed:
        parts = [folder.partition("/") for folder in removed]
        lines = [f"{name} is removed{', a trial' if area == 'trials' else ''}" for area, _, name in parts]
    print_result({"host": connected.address, "removed": removed}, *lines)


def _switch(model: str, release: str | None, where: RemoteBoard, health: Health) -> None:
    from edgedeploy.api.boards import connect
    from edgedeploy.release.layout import check_model

    check_model(model)
    resolved = where.resolved()
    health.of(resolved)  # refuses an invalid check before connecting
    with connect(resolved, **where.options, progress=shown_progress()) as connected:
        checks = vars(health)
        to = connected.activate(model, release, **checks) if release else connected.rollback(model, **checks)
        about = {"host": connected.address, "model": model, "release": to}
        print_result(about, f"{connected.address} now uses {model} {to}")


def _board(where: RemoteBoard) -> Board:
    """The connected board; a board without a name needs no profile if `--host` says where it is."""
    from edgedeploy.api.boards import connect

    unknown = where.board is None and where.host and not where.virtual
    return connect(None if unknown else where.resolved(), **where.options, progress=shown_progress())
