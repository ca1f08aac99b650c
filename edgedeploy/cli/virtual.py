"""`edgedeploy virtual`: boards that nobody has at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.console import print_json, print_table, quiet_if, stdout
from edgedeploy.cli.options import JsonOption, complete_board
from edgedeploy.errors import InputError, VirtualBoardError

if TYPE_CHECKING:
    from edgedeploy.virtual.board import VirtualBoard

app = typer.Typer(help="Start, list and stop virtual boards.", no_args_is_help=True)


def complete_virtual(incomplete: str) -> list[str]:
    """Names of running virtual boards that begin with what was typed."""
    from edgedeploy.virtual.board import running

    return [virtual.name for virtual in running() if virtual.name.startswith(incomplete)]


VirtualName = Annotated[str, typer.Argument(help="A virtual board's name.", autocompletion=complete_virtual)]


@app.command()
def up(
    board: Annotated[str, typer.Argument(help="A board's name or file.", autocompletion=complete_board)],
    name: Annotated[str | None, typer.Option("--name", help="Its name; by default the board's.")] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", help="The Debian suite: bookworm (RISC-V: trixie) unless given; bullseye has glibc 2.31."
        ),
    ] = None,
    disk: Annotated[
        int, typer.Option("--disk", metavar="MIB", min=16, help="Size of its disk in memory, in MiB.")
    ] = 1024,
    packages: Annotated[
        str | None,
        typer.Option(
            "--packages",
            metavar="NAMES",
            help="Packages of Debian's to have there: python3,libgomp1,libstdc++6 for other engines of `bench`.",
        ),
    ] = None,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Have systemd run it, so that it has services and can be rebooted.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Start a virtual board, or find the running one of that name.

    Its programs are those of the board's architecture, run by qemu where this machine cannot. It is reached over SSH as
    any board: `--virtual` on other commands. Its files are kept in memory and are lost when it stops. Needs
    root, mmdebstrap and qemu-user-static.

    Example: edgedeploy virtual up rpi4
    """
    from edgedeploy.resolved import resolve
    from edgedeploy.virtual.board import up as start

    wanted = [each.strip() for each in (packages or "").split(",") if each.strip()]
    virtual = start(
        resolve(board),
        name=name,
        suite=suite,
        disk_mib=disk,
        packages=wanted,
        systemd=systemd,
        progress=quiet_if(json_output),
    )
    if json_output:
        print_json(_as_dict(virtual))
        return
    how = "emulated" if virtual.emulated else "not emulated"
    stdout().print(
        f"{virtual.name}: {virtual.suite}, {virtual.architecture}, {how}; end it with "
        f"`edgedeploy virtual down {virtual.name}`, log in with `edgedeploy virtual ssh {virtual.name}`"
    )


@app.command("list")
def list_running(json_output: JsonOption = False) -> None:
    """List the running virtual boards.

    Example: edgedeploy virtual list
    """
    from edgedeploy.virtual.board import HOST, running

    boards = running()
    if json_output:
        print_json([_as_dict(virtual) for virtual in boards])
        return
    rows = []
    for virtual in boards:
        how = [virtual.suite, virtual.architecture, "yes" if virtual.emulated else "no"]
        where = [f"{virtual.user}@{HOST}:{virtual.port}", str(virtual.process.pid)]
        rows.append([virtual.name, virtual.board, *how, *where])
    print_table(["virtual board", "board", "suite", "architecture", "emulated", "address", "process"], rows)


@app.command()
def down(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Their names.", autocompletion=complete_virtual)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop all that run.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Stop virtual boards; files written on them are lost.

    Example: edgedeploy virtual down rpi4
    """
    from edgedeploy.virtual.board import down as end
    from edgedeploy.virtual.board import require, running

    if not names and not everything:
        raise InputError("no virtual board is named", hints=["name some, or give --all"])
    boards = list(running() if everything else [require(name) for name in names or []])
    for virtual in boards:
        end(virtual)
        if not json_output:
            stdout().print(f"{virtual.name} has ended")
    if json_output:
        print_json({"ended": [virtual.name for virtual in boards]})


@app.command()
def reboot(name: VirtualName, json_output: JsonOption = False) -> None:
    """Reboot a virtual board that systemd runs; files written on it stay.

    Example: edgedeploy virtual reboot rpi4
    """
    from edgedeploy.virtual.board import reboot as start_again
    from edgedeploy.virtual.board import require

    virtual = require(name)
    start_again(virtual)
    if json_output:
        print_json({"rebooted": virtual.name})
        return
    stdout().print(f"{virtual.name} has rebooted")


# What follows the name is the board's, `--help` too.
@app.command(context_settings={"allow_interspersed_args": False})
def ssh(
    name: VirtualName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What to run there; a shell if absent.")
    ] = None,
) -> None:
    """Log in to a virtual board with OpenSSH's client, or run a command there.

    Example: edgedeploy virtual ssh rpi4 uname -m
    """
    import os
    import shutil

    from edgedeploy.virtual.board import HOST, require

    virtual = require(name)
    program = shutil.which("ssh")
    if program is None:
        raise VirtualBoardError("there is no ssh", hints=["apt-get install openssh-client"])
    options = ("-F", "none", "-i", str(virtual.key), "-p", str(virtual.port))
    checks = (f"UserKnownHostsFile={virtual.known_hosts}", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes")
    arguments = [part for check in checks for part in ("-o", check)]
    os.execv(program, ["ssh", *options, *arguments, f"{virtual.user}@{HOST}", *(command or [])])


def _as_dict(virtual: VirtualBoard) -> dict[str, object]:
    from edgedeploy.virtual.board import HOST

    return {
        **virtual.model_dump(exclude={"process"}),
        "host": HOST,
        "key": str(virtual.key),
        "pid": virtual.process.pid,
    }
