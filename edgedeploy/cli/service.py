"""`edgedeploy service`: a network on a board that starts with it and answers programs there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.options import JsonOption, LastBoardOption, Where, board_or_last
from edgedeploy.cli.overrides import flattened

if TYPE_CHECKING:
    from edgedeploy.remote.connection import Connection
    from edgedeploy.resolved import ResolvedBoard

app = typer.Typer(help="Keep networks running on a board, as services of systemd.", no_args_is_help=True)

ModelArgument = Annotated[str, typer.Argument(help="The model's name on the board.")]
SystemOption = Annotated[
    bool, typer.Option("--system", help="A unit of the system, through sudo, instead of the user's own.")
]


@dataclass(frozen=True)
class Take:
    """What a service may take of its board: options that `flattened` gives to a command."""

    memory_max: Annotated[
        str | None, typer.Option("--memory-max", metavar="SIZE", help="Memory that it may take, such as 256M or 50%.")
    ] = None
    cpu_quota: Annotated[
        str | None,
        typer.Option("--cpu-quota", metavar="SHARE", help="Processor time that it may take: 150% is one and a half."),
    ] = None
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", min=1, help="Threads to use; as the package says by default.")
    ] = None
    watchdog: Annotated[
        int,
        typer.Option(
            "--watchdog", metavar="S", min=2, max=3600, help="Restart the service if one inference takes longer."
        ),
    ] = 30


@app.command()
@flattened
def install(
    model: ModelArgument,
    board: LastBoardOption = None,
    *,
    where: Where,
    system: SystemOption = False,
    camera: Annotated[
        str | None,
        typer.Option(
            "--camera",
            metavar="DEVICE",
            help="Look at a camera of the board all the time, for programs that watch: its number or device, `rpicam`, "
            "rtsp://... or http://..., or `auto`.",
        ),
    ] = None,
    take: Take,
    json_output: JsonOption = False,
) -> None:
    """Have the release in use of a model answer at a Unix socket, from now on and whenever the board starts.

    It follows the releases that are pushed, is restarted when it fails, and writes what happens into a log
    (docs/service.md). Push the model before.

    Example: edgedeploy service install retinaface --board rpi4 --memory-max 256M

    Example: edgedeploy service install retinaface --board rpi4 --camera rpicam
    """
    from dataclasses import asdict

    from edgedeploy.cli.console import print_json, quiet_if, stdout
    from edgedeploy.service.board import Choices
    from edgedeploy.service.board import install as install_service

    choices = Choices(take.memory_max, take.cpu_quota, take.threads, take.watchdog, camera)
    with _reached(model, board, where, json_output) as (connection, resolved):
        made = install_service(
            connection.run,
            model,
            choices,
            as_system=system,
            has_device=resolved.profile.device is not None,
            where=str(connection.address),
        )
        progress = quiet_if(json_output)
        if not made.lingers:
            progress.note("it ends when its user logs out: `loginctl enable-linger` was refused; run it there as root")
        if not made.backs_off:
            progress.note("its waits between starts do not grow: systemd there is older than 254")
        if json_output:
            print_json(asdict(made))
        else:
            stdout().print(f"{made.unit} runs on {connection.address}, at {made.socket}")


@app.command()
@flattened
def status(
    model: ModelArgument,
    board: LastBoardOption = None,
    *,
    where: Where,
    system: SystemOption = False,
    json_output: JsonOption = False,
) -> None:
    """Say whether a service runs, how often it was restarted, and which release is in use.

    Example: edgedeploy service status retinaface --board rpi4
    """
    from edgedeploy.cli.console import foreign, print_json, print_table
    from edgedeploy.service.board import status as status_of

    with _reached(model, board, where, json_output) as (connection, _):
        said = status_of(connection.run, model, as_system=system, where=str(connection.address))
    if json_output:
        print_json(said)
        return
    memory = "" if said["memory_bytes"] is None else f"{said['memory_bytes'] >> 20:,}"
    cells = [said["unit"], said["state"], said["restarts"], memory, "yes" if said["enabled"] else "no", said["release"]]
    titles = ["unit", "state", "restarts", "memory, MiB", "with the board", "release"]
    print_table(titles, [[foreign(str(cell)) for cell in cells]], right=["restarts", "memory, MiB"])


@app.command()
@flattened
def logs(
    model: ModelArgument,
    board: LastBoardOption = None,
    *,
    where: Where,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=100_000, help="How many of the last ones.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """Print a service's log: one JSON object for each event, on a line of its own.

    Example: edgedeploy service logs retinaface --board rpi4 --follow
    """
    from edgedeploy.cli.console import print_lines
    from edgedeploy.remote.facts import BASE
    from edgedeploy.remote.place import OnBoard
    from edgedeploy.service.board import LOGS

    with _reached(model, board, where, True) as (connection, _):
        program = OnBoard(connection).start(LOGS, BASE, model, str(lines), "follow" if follow else "")
        try:
            for line in program.lines():
                print_lines([line])
        finally:
            program.close()


@app.command()
@flattened
def start(model: ModelArgument, board: LastBoardOption = None, *, where: Where, system: SystemOption = False) -> None:
    """Start a service that was stopped.

    Example: edgedeploy service start retinaface --board rpi4
    """
    _control("start", model, board, where, system)


@app.command()
@flattened
def stop(model: ModelArgument, board: LastBoardOption = None, *, where: Where, system: SystemOption = False) -> None:
    """Stop a service, after the inference that is running, until it is started or the board starts.

    Example: edgedeploy service stop retinaface --board rpi4
    """
    _control("stop", model, board, where, system)


@app.command()
@flattened
def uninstall(
    model: ModelArgument, board: LastBoardOption = None, *, where: Where, system: SystemOption = False
) -> None:
    """Stop a service, and remove its unit and its log; the releases stay.

    Example: edgedeploy service uninstall retinaface --board rpi4
    """
    from edgedeploy.cli.console import stdout
    from edgedeploy.service.board import uninstall as uninstall_service

    with _reached(model, board, where, False) as (connection, _):
        uninstall_service(connection.run, model, as_system=system, where=str(connection.address))
        stdout().print(f"the service of {model} is removed from {connection.address}")


def _control(verb: str, model: str, board: str | None, where: Where, system: bool) -> None:
    from edgedeploy.service.board import control

    with _reached(model, board, where, False) as (connection, _):
        control(connection.run, verb, model, as_system=system, where=str(connection.address))


@contextmanager
def _reached(
    model: str, board: str | None, where: Where, json_output: bool
) -> Iterator[tuple[Connection, ResolvedBoard]]:
    """The board, logged in to while the block runs."""
    from edgedeploy.cli.console import quiet_if
    from edgedeploy.release.layout import check_model
    from edgedeploy.remote.connection import Connection

    check_model(model)
    progress = quiet_if(json_output)
    resolved = board_or_last(board, progress)
    [address] = where.addresses(resolved, progress)
    with Connection(address, strict=where.strict_host_key, progress=progress) as connection:
        yield connection, resolved
