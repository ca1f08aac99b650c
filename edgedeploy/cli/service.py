"""`edgedeploy service`: a network on a board that starts with it and answers programs there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from typer import Option

from edgedeploy.base.progress import SILENT
from edgedeploy.cli.console import as_table, print_lines, print_result, shown_progress, stdout
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import ModelOnBoard, RemoteBoard

app = Commands(help="Keep networks running on a board, as systemd services.", no_args_is_help=True)

SystemOption = Annotated[bool, Option("--system", help="Use a system unit, through sudo, instead of the user's.")]


@dataclass(frozen=True)
class Limits:
    """Resource limits of a service: a record of options (`groups.Commands`)."""

    memory_max: Annotated[str | None, Option(metavar="SIZE", help="Memory limit, such as 256M or 50%.")] = None
    cpu_quota: Annotated[
        str | None, Option(metavar="SHARE", help="Limit of processor time; 150% is one and a half processors.")
    ] = None
    threads: Annotated[
        int | None, Option("--threads", "-t", min=1, help="Threads to use; default: as in the package.")
    ] = None
    watchdog: Annotated[
        int, Option(metavar="S", min=2, max=3600, help="Restart the service if one inference takes longer.")
    ] = 30


@app.command()
def install(
    model: ModelOnBoard,
    *,
    where: RemoteBoard,
    system: SystemOption = False,
    camera: str | None = Option(
        None,
        metavar="DEVICE",
        help="Watch a camera of the board all the time, for programs that follow it: its number or device, "
        "`rpicam`, rtsp://... or http://..., or `auto`.",
    ),
    limits: Limits,
) -> None:
    """Have the release in use of a model answer at a Unix socket, now and whenever the board starts.

    It follows the releases that are pushed, restarts after failures, and writes a log (docs/service.md). Push the model
    first.

    Example: edgedeploy service install retinaface --board rpi4 --memory-max 256M

    Example: edgedeploy service install retinaface --board rpi4 --camera rpicam
    """
    from edgedeploy.service.systemd import Choices, Service

    choices = Choices(limits.memory_max, limits.cpu_quota, limits.threads, limits.watchdog, camera)
    progress = shown_progress()
    with where.connected(model) as (connection, resolved):
        service = Service(connection.run, model, str(connection.address), system)
        made = service.install(choices, has_device=resolved.profile.device is not None)
        if not made.lingers:
            progress.note("it ends when its user logs out: `loginctl enable-linger` was refused; run it there as root")
        if not made.backs_off:
            progress.note("its waits between starts do not grow: systemd there is older than 254")
        print_result(asdict(made), f"{made.unit} runs on {connection.address}, at {made.socket}")


@app.command()
def status(model: ModelOnBoard, *, where: RemoteBoard, system: SystemOption = False) -> None:
    """Show whether a service runs, how often it was restarted, and which release is in use.

    Example: edgedeploy service status retinaface --board rpi4
    """
    from edgedeploy.service.systemd import Service

    with where.connected(model) as (connection, _):
        found = Service(connection.run, model, str(connection.address), system).status()
    memory = "" if found["memory_bytes"] is None else f"{found['memory_bytes'] >> 20:,}"
    enabled = "yes" if found["enabled"] else "no"
    cells = [*(found[key] for key in ("unit", "state", "restarts")), memory, enabled, found["release"]]
    titles = ["unit", "state", "restarts", "memory, MiB", "with the board", "release"]
    print_result(found, as_table(titles, [[str(cell) for cell in cells]], right=["restarts", "memory, MiB"]))


@app.command(json=None)
def logs(
    model: ModelOnBoard,
    *,
    where: RemoteBoard,
    lines: int = Option(50, "--lines", "-n", min=1, max=100_000, help="How many of the last lines to print."),
    follow: bool = Option(False, "--follow", "-f", help="Print new lines as they come, until Ctrl-C."),
) -> None:
    """Print a service's log: one JSON object for each event, on a line of its own.

    Example: edgedeploy service logs retinaface --board rpi4 --follow
    """
    from edgedeploy.remote.facts import BASE
    from edgedeploy.remote.place import Place
    from edgedeploy.service.systemd import LOGS

    with where.connected(model, SILENT) as (connection, _):
        program = Place(connection).start(LOGS, BASE, model, str(lines), "follow" if follow else "")
        try:
            for line in program.lines():
                print_lines([line])
        finally:
            program.close()


@app.command(json=None)
def start(model: ModelOnBoard, *, where: RemoteBoard, system: SystemOption = False) -> None:
    """Start a service that was stopped.

    Example: edgedeploy service start retinaface --board rpi4
    """
    _control("start", model, where, system)


@app.command(json=None)
def stop(model: ModelOnBoard, *, where: RemoteBoard, system: SystemOption = False) -> None:
    """Stop a service, after the current inference, until it is started or the board boots.

    Example: edgedeploy service stop retinaface --board rpi4
    """
    _control("stop", model, where, system)


@app.command(json=None)
def uninstall(model: ModelOnBoard, *, where: RemoteBoard, system: SystemOption = False) -> None:
    """Stop a service, and remove its unit and its log; the releases stay.

    Example: edgedeploy service uninstall retinaface --board rpi4
    """
    address = _control("uninstall", model, where, system)
    stdout().print(f"the service of {model} is removed from {address}")


def _control(verb: Literal["start", "stop", "uninstall"], model: str, where: RemoteBoard, system: bool) -> str:
    """Start, stop or uninstall a service; returns its board's address."""
    from edgedeploy.service.systemd import Service

    with where.connected(model) as (connection, _):
        Service(connection.run, model, str(connection.address), system).control(verb)
        return str(connection.address)
