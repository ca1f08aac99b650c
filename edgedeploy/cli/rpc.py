"""`edgedeploy rpc`: trackers and servers of TVM's RPC, run by hand."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from edgedeploy.cli.console import ConsoleProgress, as_table, foreign, print_result, print_text, stderr, stdout
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import BoardOption, WhereAll, completing, one_host_option
from edgedeploy.errors import InputError, RpcError
from edgedeploy.rpc import DEFAULT_PORT

if TYPE_CHECKING:
    from edgedeploy.rpc.background import Part
    from edgedeploy.rpc.tracker import Endpoint, Summary

app = Commands(help="Run, list and stop trackers and servers of TVM's RPC.", no_args_is_help=True)


_LOOK_S = 1.0
# Long enough for a board to reboot, or to come back to its Wi-Fi.
_REVIVE_S = 600

TrackerOption = Annotated[
    str | None, Option("--tracker", metavar="HOST:PORT", help="A tracker, here or elsewhere; default: those here.")
]
DetachOption = Annotated[bool, Option("--detach", help="Run in the background, until `edgedeploy rpc stop`.")]


@app.command(json=None)
def tracker(
    port: int = Option(DEFAULT_PORT, "--port", "-p", min=0, max=65535, help="Port to listen on; 0 takes any."),
    host: Annotated[
        list[str] | None,
        one_host_option("Address to listen on; default: 127.0.0.1. All but loopback are unsafe.", "ADDRESS"),
    ] = None,
    detach: DetachOption = False,
) -> None:
    """Run a tracker, which assigns waiting servers to clients.

    TVM's RPC has no authentication, and its servers run any code that they are sent: everyone who reaches a tracker can
    use its boards.

    Examples: edgedeploy rpc tracker; edgedeploy rpc tracker --port 0 --detach
    """
    from edgedeploy.remote import LOOPBACK
    from edgedeploy.rpc.background import Part, detached, registered
    from edgedeploy.rpc.tracker import tracker as start
    from edgedeploy.virtual.process import Process

    address = host[0] if host else LOOPBACK
    if address != LOOPBACK:
        stderr().print(
            f"warning: anyone who reaches {address} over the network can run any code on this tracker's boards"
        )
    if detach:
        _print_detached(detached(["tracker", "--port", str(port), "--host", address]))
        return
    with _ending(), start(port, host=address, progress=ConsoleProgress()) as endpoint:
        part = Part(
            name=f"tracker-{endpoint.port}", kind="tracker", addresses=[str(endpoint)], process=Process.current()
        )
        with registered(part), suppress(KeyboardInterrupt):
            stdout().print(f"tracker at {endpoint}; end it with Ctrl-C")
            while True:
                time.sleep(_LOOK_S)


@app.command(json=None)
def server(
    board: BoardOption = "local",
    *,
    where: WhereAll,
    tracker_at: str | None = Option(
        None, "--tracker", metavar="HOST:PORT", help="Tracker to register at; default: the one running here, if any."
    ),
    key: str | None = Option(None, help="Key that clients ask for; default: the board's name."),
    threads: int | None = Option(
        None, "--threads", "-t", min=1, help="Threads of a session; default: one per processor."
    ),
    detach: DetachOption = False,
) -> None:
    """Run a server on one or several boards of a kind, over SSH alone; on this machine for `local`.

    Clients of TVM's RPC on this machine can use it, in Python `tvm.rpc.connect_tracker(HOST, PORT).request(KEY)`. It is
    restarted after the connection or the board fails. Only the agent's file stays on the board.

    Examples: edgedeploy rpc server --board rpi4 --host pi@10.0.0.7; edgedeploy rpc server --detach
    """
    from edgedeploy.remote import LOOPBACK
    from edgedeploy.rpc.background import Part, detached, registered
    from edgedeploy.rpc.server import BoardServer
    from edgedeploy.rpc.tracker import Endpoint
    from edgedeploy.target.resolved import resolve
    from edgedeploy.virtual.process import Process

    resolved = resolve(board)
    key = key or resolved.label
    endpoint = Endpoint.parse(tracker_at) if tracker_at else _tracker_here()
    progress = ConsoleProgress()
    if detach:
        arguments = ["server", "--board", board, "--key", key]
        arguments += [part for each in where.host or () for part in ("--host", each)]
        arguments += ["--tracker", str(endpoint)] if endpoint else []
        arguments += ["--threads", str(threads)] if threads else []
        flags = {"--virtual": where.virtual, "--strict-host-key": where.strict_host_key}
        _print_detached(detached([*arguments, *(flag for flag, given in flags.items() if given)]))
        return
    here = resolved.profile.runs_here and not where.host and not where.virtual
    places = [None] if here else where.addresses(resolved)
    with _ending(), ExitStack() as stack:
        strict = where.strict_host_key
        servers = [
            stack.enter_context(
                BoardServer(place, resolved.profile, endpoint, key, progress, threads=threads, strict=strict)
            )
            for place in places
        ]
        part = Part(
            name=key,
            kind="server",
            addresses=[f"{LOOPBACK}:{each.port}" for each in servers],
            process=Process.current(),
            key=key,
            board=board,
            hosts=[each.name for each in servers],
            tracker=str(endpoint) if endpoint else None,
        )
        with registered(part), suppress(KeyboardInterrupt):
            tracked = f"registered at {endpoint}" if endpoint else "without a tracker"
            for each in servers:
                stdout().print(f"{each.name} serves key {key} at {LOOPBACK}:{each.port}, {tracked}")
            stdout().print("end with Ctrl-C")
            while True:
                time.sleep(_LOOK_S)
                for each in servers:
                    if not each.alive:
                        each.revive(_REVIVE_S)


@app.command()
def status(tracker_at: TrackerOption = None) -> None:
    """List the trackers and servers running here, and the trackers' devices.

    Examples: edgedeploy rpc status; edgedeploy rpc status --tracker farm:9190 --json
    """
    from edgedeploy.rpc.background import running
    from edgedeploy.rpc.tracker import Endpoint, summary

    parts = [] if tracker_at else running()
    known: dict[str, Summary | RpcError] = {}
    if tracker_at:
        known[tracker_at] = summary(Endpoint.parse(tracker_at))
    trackers = {address for part in parts for address in ([part.tracker] if part.tracker else part.addresses)}
    servers = {address for part in parts if part.kind == "server" for address in part.addresses}
    for address in sorted(trackers - servers):
        try:
            known[address] = summary(Endpoint.parse(address))
        except RpcError as error:
            known[address] = error
    if not parts and not known:
        print_text("no tracker and no server of TVM's RPC was started here")
    if parts:
        rows = []
        for part in parts:
            what = [part.name, part.kind, foreign(*part.addresses), part.key or ""]
            rows.append([*what, foreign(*part.hosts), part.tracker or "", str(part.process.pid)])
        print_text(as_table(["name", "what", "at", "key", "boards", "registered at", "process"], rows))
    trackers_found: dict[str, Any] = {}
    for address, found in known.items():
        if isinstance(found, RpcError):
            trackers_found[address] = {"error": str(found)}
            print_text(str(found))
            continue
        trackers_found[address] = {key: asdict(each) for key, each in found.items()}
        numbers = ["free", "clients waiting"]
        cells = [
            [key, foreign(*devices.addresses or ["none"]), str(devices.free), str(devices.pending)]
            for key, devices in found.items()
        ]
        table = as_table([f"key at {address}", "devices", *numbers], cells, right=numbers)
        print_text(table if found else f"tracker {address} has no devices")
    running_here = [{**part.model_dump(exclude={"process"}), "pid": part.process.pid} for part in parts]
    print_result({"running": running_here, "trackers": trackers_found})


@app.command()
def stop(
    names: list[str] | None = Argument(
        None,
        metavar="NAME",
        help="Names as in `edgedeploy rpc status`.",
        autocompletion=completing("edgedeploy.rpc.background:running"),
    ),
    everything: bool = Option(False, "--all", help="Stop all trackers and servers running here."),
) -> None:
    """Stop trackers and servers running here, with what they started on boards.

    Example: edgedeploy rpc stop --all
    """
    from edgedeploy.rpc.background import require, running
    from edgedeploy.rpc.background import stop as end

    if not names and not everything:
        raise InputError("no tracker or server is named", hints=["name some, or give --all"])
    # Servers first: without its tracker, one would say that it lost it.
    parts = sorted(running(), key=lambda part: part.kind) if everything else [require(name) for name in names or []]
    for part in parts:
        end(part)
        print_text(f"{part.name} has ended")
    print_result({"ended": [part.name for part in parts]})


@contextmanager
def _ending() -> Iterator[None]:
    """Within the block SIGTERM interrupts as Ctrl-C does, so that everything is cleaned up."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    # A process in the background of a shell begins with Ctrl-C ignored.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupt)


def _tracker_here() -> Endpoint | None:
    """The one tracker that runs here, if any."""
    from edgedeploy.rpc.background import running
    from edgedeploy.rpc.tracker import Endpoint

    found = [part.addresses[0] for part in running() if part.kind == "tracker"]
    if len(found) > 1:
        raise InputError(f"several trackers run here: {', '.join(found)}", hints=["name one with --tracker"])
    return Endpoint.parse(found[0]) if found else None


def _print_detached(part: Part) -> None:
    where = ", ".join(part.addresses)
    stdout().print(f"{part.name} runs at {where}; end it with `edgedeploy rpc stop {part.name}`")
