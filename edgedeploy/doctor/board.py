"""The board: address, SSH server, host key, login, then its facts, free space, rights, and programs there."""

from __future__ import annotations

import socket
from functools import partial

from edgedeploy.agent.build import built_agent
from edgedeploy.base.programs import script
from edgedeploy.base.progress import Progress
from edgedeploy.doctor.case import Case
from edgedeploy.doctor.check import Finding, check, failed, failure, ok, warning
from edgedeploy.doctor.running import CANNOT_RUN, end_of, run_program
from edgedeploy.errors import BoardConnectionError, LoginError
from edgedeploy.package.abi import misfits, needs_of
from edgedeploy.remote.connection import Completed, Connection
from edgedeploy.remote.facts import BASE, probe
from edgedeploy.remote.login import destination, hints_for_name
from edgedeploy.target.facts import VIRTUAL, Facts
from edgedeploy.tuning.conditions import Throttling

_NAME_S, _PORT_S, _LOGIN_S = 5, 5, 15

# Checks of boards that are other machines.
_on_board = partial(check, group="board", applies=lambda case: not case.is_here)

_WHERE = "say where the board is with --host USER@HOST, or under `ssh` in its profile"
_POWER = "check that the board has power and network, and has started"

_PROGRAM_S = 15
_ROOM_BYTES = 64 << 20

_WRITE = script(__package__, "write.sh")
_FORBIDDEN = 3

# The programs that a push calls (release/*.sh).
_PROGRAMS = "cat chmod cut df du find flock ln mkdir mv readlink rm rmdir sed sha256sum sync tail"
_LOOK_FOR_PROGRAMS = 'for each; do command -v "$each" >/dev/null || echo "$each"; done'

_TOUCH = 'name=$HOME/.edgedeploy-doctor.$$; : >"$name" && echo "$name"'
_REMOVE = 'rm -f "$@"'


@_on_board(
    "address",
    limit_s=_NAME_S,
    if_stuck="check that this machine has a network, and that its name servers answer: resolvectl status",
)
def address(case: Case) -> Finding:
    """Whether the board's name has an address."""
    if case.address is None:
        assert case.no_virtual is not None
        return failure(case.no_virtual)
    place = destination(case.address)
    if place is None:
        return ok(f"{case.address}, through a jump host or a command of ~/.ssh/config")
    host, port = place
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        hints = [*hints_for_name(host), _WHERE, "or use a virtual one: --virtual"]
        return failed(f"unknown host {host}: {getattr(error, 'strerror', None) or error}", *hints)
    numbers = ", ".join(sorted(map(str, found)))
    return ok(f"{case.address} is {numbers}" if host not in found else str(case.address))


@_on_board("SSH server", needs=("address",), limit_s=_PORT_S * 2 + 2, if_stuck=_POWER)
def ssh_server(case: Case) -> Finding:
    """Whether an SSH server answers at the board's port."""
    assert case.address is not None
    place = destination(case.address)
    if place is None:
        return ok("reached through other hosts: the login will show it")
    host, port = place
    try:
        with socket.create_connection((host, port), _PORT_S) as stream:
            stream.settimeout(_PORT_S)
            greeting = stream.recv(255)
    except ConnectionRefusedError:
        return failed(
            f"{host} is there, and nothing listens on its port {port}",
            "on the board: sudo apt install openssh-server; sudo systemctl enable --now ssh",
            f"or name the right port: --host USER@{host}:PORT",
        )
    except TimeoutError:
        return failed(f"{host} does not answer on port {port} within {_PORT_S} s", _POWER, f"ping {host}", _WHERE)
    except OSError as error:
        return failed(f"{host} cannot be reached on port {port}: {error.strerror or error}", _POWER, _WHERE)
    if not greeting.startswith(b"SSH-"):
        return failed(f"the server on port {port} of {host} is not for SSH", f"name the right port: --host {host}:PORT")
    return ok(f"{greeting.splitlines()[0].decode(errors='replace')} on port {port}")


class _Recorded(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@_on_board("host key", needs=("SSH server",), limit_s=_LOGIN_S, if_stuck=_POWER)
def host_key(case: Case) -> Finding:
    """Whether the board shows its known host key. This logs in, since the key is shown then."""
    assert case.address is not None
    recorded = _Recorded()
    try:
        case.connection = Connection(case.address, strict=case.strict, progress=recorded)
    except LoginError as error:
        case.not_let_in = error
    if recorded.notes:
        hint = "compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board"
        return warning("; ".join(recorded.notes), hint)
    return ok(f"known: {case.line.known_from}" if case.connection else "known")


@_on_board("login", needs=("host key",))
def login(case: Case) -> Finding:
    """Whether the board lets us in."""
    if case.not_let_in is not None:
        return failure(case.not_let_in)
    return ok(f"as {case.line.run('id -un').text or 'a user without a name'}")


@_on_board("architecture", needs=("login",))
def architecture(case: Case) -> Finding:
    """Whether the board fits its profile, as far as code depends on it."""
    case.facts = facts = probe(case.line)
    reasons = misfits(needs_of(case.board), facts, "the board")
    name = f"{facts.line()}; {facts.system}, kernel {facts.machine}"
    if reasons:
        return failed(
            f"{'; '.join(reasons)} ({name})",
            "name the profile of this board: edgedeploy boards",
            f"or create one: edgedeploy boards new NAME --from {case.name}",
        )
    # A virtual board's cores are this machine's.
    if facts.cores and facts.cores < case.board.cores and not str(case.address).startswith(VIRTUAL):
        found = f"{name}: the profile states {case.board.cores} cores"
        return warning(found, f"set `cores: {facts.cores}` in its own profile: edgedeploy boards new")
    return ok(name, **facts.model_dump(exclude_none=True))


@_on_board("glibc", needs=("architecture",))
def glibc(case: Case) -> Finding:
    """Whether the board's C library is as new as its profile states."""
    assert case.facts is not None
    has, wanted = case.facts.glibc, case.board.glibc
    if has is None:
        return warning("the board does not state its version of glibc", "look there: ldd --version")
    if wanted is None:
        hint = f"edgedeploy boards probe --board {case.name} keeps what it has; packages are then built for that"
        return ok(f"{has}; the profile states none", hint)
    abi = needs_of(case.board).model_copy(update={"glibc": wanted})
    if misfits(abi, Facts(glibc=has), "the board"):
        return failed(
            f"{has}, the profile states {wanted}: programs built for that do not start",
            f'set `glibc: "{has}"` in a profile of its own: edgedeploy boards new NAME --from {case.name}',
        )
    return ok(f"{has}, at least {wanted} is needed")


@_on_board("releases", needs=("login",), limit_s=15)
def releases(case: Case) -> Finding:
    """Whether there are free space and write permission in the folder of releases."""
    done = case.line.run(_WRITE, BASE)
    folder, free, *_ = [*done.text.splitlines(), "", ""]
    if done.code == _FORBIDDEN:
        return failed(f"{folder}: {done.messages}", f"on the board: sudo chown -R $USER {folder}")
    if done.code != 0:
        return failed(
            f"{folder}: {done.messages or 'the test file could not be written'}",
            "remove old releases: edgedeploy releases gc --keep 1",
            f"on the board: df -h {folder}",
        )
    free_bytes = int(free) << 10 if free.isdigit() else None
    found = f"{folder} can be written" + (f", {free_bytes / (1 << 20):,.0f} MiB are free" if free_bytes else "")
    if free_bytes is not None and free_bytes < _ROOM_BYTES:
        return warning(found, "remove old releases: edgedeploy releases gc --keep 1")
    return ok(found)


@_on_board("programs for releases", needs=("releases",))
def needed_programs(case: Case) -> Finding:
    """Whether the board has SFTP and the programs that a push calls."""
    missing = case.line.run(_LOOK_FOR_PROGRAMS, *_PROGRAMS.split()).text.split()
    if missing:
        hint = "on the board: sudo apt install coreutils findutils util-linux sed, or a busybox with these"
        return failed(f"the board has no {', '.join(missing)}", hint)
    name = case.line.run(_TOUCH).text
    try:
        case.line.rename(name, f"{name}.renamed")
    except BoardConnectionError as error:
        return failed(error.cause, *error.hints)
    finally:
        case.line.run(_REMOVE, name, f"{name}.renamed")
    return ok("a POSIX shell, SFTP, and all other programs that a push calls")


@_on_board("port forwarding", needs=("login",))
def forwarding(case: Case) -> Finding:
    """Whether the SSH connection forwards ports in both directions, for tuning."""
    try:
        case.line.listen_no_more(case.line.listen(lambda channel: channel.close()))
        case.line.reach(9).close()  # the port of "discard", where hardly anything listens
    except ConnectionRefusedError:
        pass
    except BoardConnectionError as error:
        return warning(f"{error.cause}; tuning needs that", *error.hints)
    return ok("in both directions")


@_on_board("program there", needs=("architecture", "toolchain"), limit_s=_PROGRAM_S + 5)
def program_there(case: Case) -> Finding:
    """Whether a program built with the toolchain runs on the board."""
    return _ran(run_program(case.place, case.program, limit_s=_PROGRAM_S), "the toolchain's program runs there")


@_on_board("agent", needs=("architecture",), limit_s=25, if_stuck="try it again")
def agent(case: Case) -> Finding:
    """Whether the agent runs on the board: the one there, or this edgedeploy's, which is removed again."""
    assert case.facts is not None
    built = built_agent(case.board)
    if built and case.facts.agent == built.key:
        return ok("it is there, runs, and belongs to this edgedeploy")
    if built is None:
        older = "an older one runs there; this edgedeploy's" if case.facts.agent else "it"
        push = f"edgedeploy push digits --board {case.name} --host {case.address}"
        return warning(f"{older} is not built yet: the next push does that, which takes minutes", push)
    done = run_program(case.place, built.path, "--version", limit_s=_PROGRAM_S)
    return _ran(done, "this edgedeploy's runs there; it was removed again")


def _ran(done: Completed, well: str) -> Finding:
    if done.code == 0:
        return ok(well)
    if done.code == CANNOT_RUN and "denied" in done.messages:
        hint = "on the board: check with `mount` if the file system of the home folder has the option noexec"
        return failed(f"the board does not allow programs there: {done.messages}", hint)
    return failed(f"it does not run there: {end_of(done)}", "log in and look at `dmesg` and `free`")


@check("state", "board", needs=("login",))
def state(case: Case) -> Finding:
    """Whether the board runs at full speed, on which measured times depend."""
    now = Throttling(lambda script: case.place.run(script).text).conditions()
    facts = {
        "governor": now.governor,
        "frequency": f"{now.frequency_mhz:.0f} MHz" if now.frequency_mhz else None,
        "temperature": f"{now.temperature_c:.1f} °C" if now.temperature_c is not None else None,
    }
    found = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    found = found or "governor, frequency and temperature are unknown"
    if now.throttled:
        hint = "cool the board, or give it a stronger power supply; on a Raspberry Pi: vcgencmd get_throttled"
        return warning(f"{found}: it throttles itself now", hint)
    if now.governor not in (None, "performance"):
        return ok(found, "for measurements: `edgedeploy tune --set-governor performance`")
    return ok(found)
