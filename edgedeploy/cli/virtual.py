"""`edgedeploy virtual`: start, list and stop emulated boards."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from edgedeploy.cli.console import as_table, print_result, print_text, shown_progress
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import BoardArgument, completing
from edgedeploy.errors import InputError, VirtualBoardError

if TYPE_CHECKING:
    from edgedeploy.virtual.board import VirtualBoard

app = Commands(help="Start, list and stop virtual boards.", no_args_is_help=True)


complete_virtual = completing("edgedeploy.virtual.board:running")
VirtualName = Annotated[str, Argument(help="A virtual board's name.", autocompletion=complete_virtual)]


@app.command()
def up(
    board: BoardArgument,
    name: str | None = Option(None, help="Its name; default: the board's."),
    suite: str | None = Option(None, help="Debian suite; default: bookworm (RISC-V: trixie); bullseye has glibc 2.31."),
    disk: int = Option(1024, metavar="MIB", min=16, help="Size of its disk in memory, in MiB."),
    packages: str | None = Option(
        None,
        metavar="NAMES",
        help="Debian packages to install: python3,libgomp1,libstdc++6 for other engines of `bench`.",
    ),
    systemd: bool = Option(False, "--systemd", help="Run systemd, so that it has services and can be rebooted."),
) -> None:
    """Start a virtual board, or find the running one of that name.

    Its programs are those of the board's architecture, run by qemu if this machine cannot. It is reached over SSH like
    any board: with `--virtual` in other commands. Its files are in memory and are lost when it stops. Needs root,
    mmdebstrap and qemu-user-static.

    Example: edgedeploy virtual up rpi4
    """
    from edgedeploy.target.resolved import resolve
    from edgedeploy.virtual.board import up as start

    virtual = start(
        resolve(board),
        name=name,
        suite=suite,
        disk_mib=disk,
        packages=[each.strip() for each in (packages or "").split(",") if each.strip()],
        systemd=systemd,
        progress=shown_progress(),
    )
    how = "emulated" if virtual.emulated else "not emulated"
    line = (
        f"{virtual.name}: {virtual.suite}, {virtual.architecture}, {how}; end it with "
        f"`edgedeploy virtual down {virtual.name}`, log in with `edgedeploy virtual ssh {virtual.name}`"
    )
    print_result(_as_dict(virtual), line)


@app.command("list")
def list_running() -> None:
    """List the running virtual boards.

    Example: edgedeploy virtual list
    """
    from edgedeploy.virtual.board import HOST, running

    boards = list(running())
    rows = []
    for virtual in boards:
        how = [virtual.suite, virtual.architecture, "yes" if virtual.emulated else "no"]
        where = [f"{virtual.user}@{HOST}:{virtual.port}", str(virtual.process.pid)]
        rows.append([virtual.name, virtual.board, *how, *where])
    titles = ["virtual board", "board", "suite", "architecture", "emulated", "address", "process"]
    print_result([_as_dict(virtual) for virtual in boards], as_table(titles, rows))


@app.command()
def down(
    names: list[str] | None = Argument(None, metavar="NAME", help="Their names.", autocompletion=complete_virtual),
    everything: bool = Option(False, "--all", help="Stop all running virtual boards."),
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
        print_text(f"{virtual.name} has ended")
    print_result({"ended": [virtual.name for virtual in boards]})


@app.command()
def reboot(name: VirtualName) -> None:
    """Reboot a virtual board that runs systemd; files written on it stay.

    Example: edgedeploy virtual reboot rpi4
    """
    from edgedeploy.virtual.board import reboot as start_again
    from edgedeploy.virtual.board import require

    virtual = require(name)
    start_again(virtual)
    print_result({"rebooted": virtual.name}, f"{virtual.name} has rebooted")


# What follows the name is the board's, `--help` too.
@app.command(json=None, context_settings={"allow_interspersed_args": False})
def ssh(
    name: VirtualName,
    command: list[str] | None = Argument(None, metavar="COMMAND", help="The command to run there; default: a shell."),
) -> None:
    """Log in to a virtual board with OpenSSH's client, or run a command there.

    Example: edgedeploy virtual ssh rpi4 uname -m
    """
    from edgedeploy.virtual.board import HOST, require

    virtual = require(name)
    program = shutil.which("ssh")
    if program is None:
        raise VirtualBoardError("ssh is not installed", hints=["apt-get install openssh-client"])
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
