"""`edgedeploy releases`: what lies on a board, what is in use and was, going back, and clearing away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.options import (
    HealthCheckOption,
    HealthCheckTimeoutOption,
    HostOption,
    JsonOption,
    LastBoardOption,
    StrictOption,
    VirtualOption,
    board_or_last,
)

if TYPE_CHECKING:
    from edgedeploy.progress import Progress
    from edgedeploy.release.board import Inventory
    from edgedeploy.release.record import Entry
    from edgedeploy.remote.address import Address

app = typer.Typer(help="List, switch between, and remove the releases on a board.", no_args_is_help=True)

ModelArgument = Annotated[str, typer.Argument(help="The model's name on the board.")]


@app.command("list")
def list_releases(
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    history: Annotated[
        bool, typer.Option("--history", help="Show which releases were in use, when, and on whose behalf.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the releases on a board, or what was in use there.

    A release that was switched to and not confirmed is one whose push was cut off: push it again, or go back.

    Examples: edgedeploy releases list --board rpi4; edgedeploy releases list --board rpi4 --history --json
    """
    from edgedeploy.cli.console import print_json, quiet_if, stdout
    from edgedeploy.release.board import inventories
    from edgedeploy.remote.connection import Connection

    progress = quiet_if(json_output)
    address = _address(board, host, virtual, progress)
    with Connection(address, strict=strict_host_key, progress=progress) as connection:
        found = inventories(connection)
    if history:
        entries = [(model, entry) for model, each in found.items() for entry in each.record.entries]
        if json_output:
            print_json([{"model": model, **_as_dict(entry)} for model, entry in entries])
        else:
            stdout().print(_history_table(entries))
    elif json_output:
        print_json([row for model, each in found.items() for row in _rows(model, each)])
    else:
        stdout().print(_table([row for model, each in found.items() for row in _rows(model, each)]))


@app.command()
def activate(
    model: ModelArgument,
    release: Annotated[str, typer.Argument(help="The release's name.")],
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    health_check: HealthCheckOption = None,
    health_check_timeout: HealthCheckTimeoutOption = None,
) -> None:
    """Switch to a release that lies on the board, after a self-test. If it fails a check in use, the board goes back.

    Example: edgedeploy releases activate digits 20260102T030405Z-89abcdef --board rpi4
    """
    from edgedeploy.release.layout import check_id

    check_id(release)
    _switch(model, release, board, host, virtual, strict_host_key, health_check, health_check_timeout)


@app.command()
def rollback(
    model: ModelArgument,
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    health_check: HealthCheckOption = None,
    health_check_timeout: HealthCheckTimeoutOption = None,
) -> None:
    """Switch to the release that was in use before, after a self-test. Called again, it goes back further.

    Example: edgedeploy releases rollback digits --board rpi4
    """
    _switch(model, None, board, host, virtual, strict_host_key, health_check, health_check_timeout)


@app.command()
def gc(
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
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
    address = _address(board, host, virtual, progress)
    with Connection(address, strict=strict_host_key, progress=progress) as connection, locked(connection):
        removed = sweep(connection, keep=keep)
    for folder in removed:
        area, _, name = folder.partition("/")
        stdout().print(f"{name} is removed{', a trial' if area == 'trials' else ''}")
    if not removed:
        stdout().print(f"no model has more than {count(keep, 'release')}, and there are no trials")


def _switch(
    model: str,
    release: str | None,
    board: str | None,
    host: list[str] | None,
    virtual: bool,
    strict: bool,
    health_check: str | None,
    health_check_timeout: int | None,
) -> None:
    """Switch to a release, or to the one before."""
    from edgedeploy.cli.console import quiet_if, stdout
    from edgedeploy.release.health import HealthCheck
    from edgedeploy.release.layout import check_model
    from edgedeploy.release.lock import locked
    from edgedeploy.release.switching import activate as activate_release
    from edgedeploy.release.switching import previous
    from edgedeploy.remote.address import addresses
    from edgedeploy.remote.connection import Connection

    check_model(model)
    progress = quiet_if(False)
    resolved = board_or_last(board, progress)
    health = HealthCheck.chosen(resolved.profile, health_check, health_check_timeout)
    [address] = addresses(resolved, host or (), virtual=virtual, progress=progress)
    with Connection(address, strict=strict, progress=progress) as connection, locked(connection) as check:
        to = release or previous(connection, model)
        activate_release(connection, model, to, check, returning=release is None, health=health, progress=progress)
        stdout().print(f"{connection.address} now uses {model} {to}")


def _address(board: str | None, host: list[str] | None, virtual: bool, progress: Progress) -> Address:
    """Where the releases lie; a board that is not named need not be known where `--host` says it."""
    from edgedeploy.remote.address import addresses, parse_address

    if board is None and host and not virtual:
        return parse_address(host[0])
    [address] = addresses(board_or_last(board, progress), host or (), virtual=virtual, progress=progress)
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


def _table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from edgedeploy.cli.console import foreign

    table = Table("model", "release", "made (UTC)", "state", box=None, pad_edge=False)
    table.add_column("KiB", justify="right")
    table.add_column("last")
    for row in rows:
        last = row["history"][-1] if row["history"] else None
        told = f"{last['event']} {_shown(last['time'])} by {last['who']}" if last else ""
        table.add_row(
            row["model"], row["id"], _shown(row["made"]), row["state"], f"{row['kibibytes']:,}", foreign(told)
        )
    return table


def _history_table(entries: list[tuple[str, Entry]]) -> Any:
    from rich.table import Table

    from edgedeploy.cli.console import foreign

    table = Table("time (UTC)", "model", "release", "what", "by", box=None, pad_edge=False)
    for model, entry in entries:
        what = f"{entry.event.value}: {entry.reason}" if entry.reason else entry.event.value
        table.add_row(_shown(entry.time.isoformat()), model, entry.id, foreign(what), foreign(entry.who))
    return table


def _shown(time: str) -> str:
    """A time as tables show it, from ISO 8601."""
    return time[:16].replace("T", " ")
