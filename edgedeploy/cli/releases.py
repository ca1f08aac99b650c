"""`edgedeploy releases`: what lies on a board, what is in use and was, going back, and clearing away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.options import (
    Health,
    JsonOption,
    LastBoardOption,
    Where,
    board_or_last,
)
from edgedeploy.cli.overrides import flattened

if TYPE_CHECKING:
    from edgedeploy.progress import Progress
    from edgedeploy.release.board import Inventory
    from edgedeploy.release.record import Entry
    from edgedeploy.remote.address import Address

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
    from edgedeploy.cli.console import print_json, quiet_if
    from edgedeploy.release.board import inventories
    from edgedeploy.remote.connection import Connection

    progress = quiet_if(json_output)
    address = _address(board, where, progress)
    with Connection(address, strict=where.strict_host_key, progress=progress) as connection:
        found = inventories(connection)
    if history:
        entries = [(model, entry) for model, each in found.items() for entry in each.record.entries]
        if json_output:
            print_json([{"model": model, **_as_dict(entry)} for model, entry in entries])
        else:
            _print_history(entries)
        return
    rows = [row for model, each in found.items() for row in _rows(model, each)]
    if json_output:
        print_json(rows)
    else:
        _print(rows)


@app.command()
@flattened
def activate(
    model: ModelArgument,
    release: Annotated[str, typer.Argument(help="The release's name.")],
    board: LastBoardOption = None,
    *,
    where: Where,
    health: Health,
) -> None:
    """Switch to a release that lies on the board, after a self-test. If it fails a check in use, the board goes back.

    Example: edgedeploy releases activate digits 20260102T030405Z-89abcdef --board rpi4
    """
    from edgedeploy.release.layout import check_id

    check_id(release)
    _switch(model, release, board, where, health)


@app.command()
@flattened
def rollback(
    model: ModelArgument,
    board: LastBoardOption = None,
    *,
    where: Where,
    health: Health,
) -> None:
    """Switch to the release that was in use before, after a self-test. Called again, it goes back further.

    Example: edgedeploy releases rollback digits --board rpi4
    """
    _switch(model, None, board, where, health)


@app.command()
@flattened
def gc(
    board: LastBoardOption = None,
    *,
    where: Where,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many releases of each model to keep.")] = 3,
) -> None:
    """Remove old releases, all trials, and files that belong to none.

    Of each model, the release in use stays, and the newest that were in use.

    Example: edgedeploy releases gc --keep 1 --board rpi4
    """
    from edgedeploy.cli.console import quiet_if, stdout
    from edgedeploy.release.lock import locked
    from edgedeploy.release.switching import sweep
    from edgedeploy.remote.connection import Connection
    from edgedeploy.text import count

    progress = quiet_if(False)
    address = _address(board, where, progress)
    with Connection(address, strict=where.strict_host_key, progress=progress) as connection, locked(connection):
        removed = sweep(connection, keep=keep)
    for folder in removed:
        area, _, name = folder.partition("/")
        stdout().print(f"{name} is removed{', a trial' if area == 'trials' else ''}")
    if not removed:
        stdout().print(f"no model has more than {count(keep, 'release')}, and there are no trials")


def _switch(model: str, release: str | None, board: str | None, where: Where, health: Health) -> None:
    """Switch to a release, or to the one before."""
    from edgedeploy.cli.console import quiet_if, stdout
    from edgedeploy.release.layout import check_model
    from edgedeploy.release.lock import locked
    from edgedeploy.release.switching import activate as activate_release
    from edgedeploy.release.switching import previous
    from edgedeploy.remote.connection import Connection

    check_model(model)
    progress = quiet_if(False)
    resolved = board_or_last(board, progress)
    check_in_use = health.of(resolved)
    [address] = where.addresses(resolved, progress)
    with (
        Connection(address, strict=where.strict_host_key, progress=progress) as connection,
        locked(connection) as check,
    ):
        to = release or previous(connection, model)
        activate_release(
            connection, model, to, check, returning=release is None, health=check_in_use, progress=progress
        )
        stdout().print(f"{connection.address} now uses {model} {to}")


def _address(board: str | None, where: Where, progress: Progress) -> Address:
    """Where the releases lie; a board that is not named need not be known where `--host` says it."""
    from edgedeploy.remote.address import parse_address

    if board is None and where.host and not where.virtual:
        return parse_address(where.host[0])
    [address] = where.addresses(board_or_last(board, progress), progress)
    return address


def _rows(model: str, stock: Inventory) -> list[dict[str, Any]]:
    """What is told of each release and trial."""
    from edgedeploy.release.layout import made_at

    record = stock.record
    rows = []
    for trial, present in ((False, stock.releases), (True, stock.trials)):
        for identity, kibibytes in present.items():
            entries = [_as_dict(entry) for entry in record.entries if entry.id == identity]
            rows.append(
                {
                    "model": model,
                    "id": identity,
                    "made": made_at(identity).isoformat(),
                    "kibibytes": kibibytes,
                    "trial": trial,
                    "current": not trial and identity == record.current,
                    "state": "trial" if trial else record.state(identity),
                    "history": [] if trial else entries,
                }
            )
    return rows


def _as_dict(entry: Entry) -> dict[str, Any]:
    return {
        "time": entry.time.isoformat(),
        "event": entry.event.value,
        "id": entry.id,
        "who": entry.who,
        "reason": entry.reason or None,
    }


def _print(releases: list[dict[str, Any]]) -> None:
    from edgedeploy.cli.console import foreign, print_table

    rows = []
    for each in releases:
        last = each["history"][-1] if each["history"] else None
        told = f"{last['event']} {_shown(last['time'])} by {last['who']}" if last else ""
        size = f"{each['kibibytes']:,}"
        rows.append([each["model"], each["id"], _shown(each["made"]), each["state"], size, foreign(told)])
    print_table(["model", "release", "made (UTC)", "state", "KiB", "last"], rows, right=["KiB"])


def _print_history(entries: list[tuple[str, Entry]]) -> None:
    from edgedeploy.cli.console import foreign, print_table

    rows = []
    for model, entry in entries:
        what = f"{entry.event.value}: {entry.reason}" if entry.reason else entry.event.value
        rows.append([_shown(entry.time.isoformat()), model, entry.id, foreign(what), foreign(entry.who)])
    print_table(["time (UTC)", "model", "release", "what", "by"], rows)


def _shown(time: str) -> str:
    """A time as tables show it, from ISO 8601."""
    return time[:16].replace("T", " ")
