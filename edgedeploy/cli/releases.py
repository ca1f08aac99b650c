"""`edgedeploy releases`: what lies on a board, what is in use, going back, and clearing away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.options import HostOption, JsonOption, LastBoardOption, StrictOption, VirtualOption, board_or_last

if TYPE_CHECKING:
    from edgedeploy.progress import Progress
    from edgedeploy.remote.connection import Connection

app = typer.Typer(help="List, switch between, and remove the releases on a board.", no_args_is_help=True)

ModelArgument = Annotated[str, typer.Argument(help="The model's name on the board.")]


@app.command("list")
def list_releases(
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    json_output: JsonOption = False,
) -> None:
    """List the releases on a board.

    Example: edgedeploy releases list --board rpi4
    """
    from dataclasses import asdict

    from edgedeploy.cli.console import print_json, quiet_if, stdout
    from edgedeploy.release.board import releases

    with _connected(board, host, virtual, strict_host_key, quiet_if(json_output)) as connection:
        present = releases(connection)
    if json_output:
        print_json([asdict(each) for each in present])
        return
    from rich.table import Table

    table = Table("model", "release", "in use", box=None, pad_edge=False)
    table.add_column("KiB", justify="right")
    for each in present:
        table.add_row(each.model, each.id, "yes" if each.current else "", f"{each.kibibytes:,}")
    stdout().print(table)


@app.command()
def activate(
    model: ModelArgument,
    release: Annotated[str, typer.Argument(help="The release's name.")],
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
) -> None:
    """Switch to a release that lies on the board, after a self-test.

    Example: edgedeploy releases activate digits 20260102T030405Z-89abcdef --board rpi4
    """
    from edgedeploy.release.layout import check_id

    _switch(model, check_id(release), board, host, virtual, strict_host_key)


@app.command()
def rollback(
    model: ModelArgument,
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
) -> None:
    """Switch to the release before the one in use, after a self-test.

    Example: edgedeploy releases rollback digits --board rpi4
    """
    _switch(model, None, board, host, virtual, strict_host_key)


@app.command()
def gc(
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many releases of each model to keep.")] = 3,
) -> None:
    """Remove old releases, and files that belong to none. Those in use stay.

    Example: edgedeploy releases gc --keep 1 --board rpi4
    """
    from edgedeploy.cli.console import quiet_if, stdout
    from edgedeploy.release.lock import locked
    from edgedeploy.release.push import sweep

    with _connected(board, host, virtual, strict_host_key, quiet_if(False)) as connection, locked(connection):
        removed = sweep(connection, keep=keep)
    for name in removed:
        stdout().print(f"{name} is removed", markup=False)
    if not removed:
        stdout().print(f"no model has more than {keep} releases", markup=False)


def _switch(model: str, release: str | None, board: str | None, host: str | None, virtual: bool, strict: bool) -> None:
    """Switch to a release, or to the one before."""
    from edgedeploy.cli.console import quiet_if, stdout
    from edgedeploy.release.layout import check_model
    from edgedeploy.release.lock import locked
    from edgedeploy.release.push import activate as activate_release
    from edgedeploy.release.push import previous

    check_model(model)
    with _connected(board, host, virtual, strict, quiet_if(False)) as connection, locked(connection) as check:
        release = release or previous(connection, model)
        activate_release(connection, model, release, check)
        stdout().print(f"{connection.address} now uses {model} {release}", markup=False)


@contextmanager
def _connected(
    board: str | None, host: str | None, virtual: bool, strict: bool, progress: Progress
) -> Iterator[Connection]:
    from edgedeploy.remote.address import addresses
    from edgedeploy.remote.connection import Connection

    hosts = (host,) if host else ()
    [address] = addresses(board_or_last(board, progress), hosts, virtual=virtual, progress=progress)
    with Connection(address, strict=strict, progress=progress) as connection:
        yield connection
