"""A board that we are logged in to: what it is, what it has room and rights for, and whether programs run there."""

from __future__ import annotations

from edgedeploy.agent.build import built_agent
from edgedeploy.doctor.case import Case, is_remote
from edgedeploy.doctor.check import Finding, Group, check, failed, ok, warning
from edgedeploy.doctor.running import CANNOT_RUN, end_of, run_program
from edgedeploy.errors import BoardConnectionError
from edgedeploy.facts import VIRTUAL, Facts
from edgedeploy.package.abi import misfits, needs_of
from edgedeploy.remote.connection import Completed
from edgedeploy.remote.facts import BASE, probe
from edgedeploy.tuning.conditions import Throttling

_PROGRAM_S = 15
_ROOM_BYTES = 64 << 20

# The fault of a real write tells more than permissions and numbers do. 8 MiB are an agent and a network.
_WRITE = """
folder=$HOME/$1
until [ -d "$folder" ]; do folder=${folder%/*}; folder=${folder:-/}; done
file=$folder/.edgedeploy-doctor.$$
trap 'rm -f "$file"' EXIT
trap 'exit 1' HUP INT TERM
echo "$folder"
df -Pk "$folder" | sed -n '2s/^.* \\([0-9][0-9]*\\)  *[0-9]*% .*/\\1/p'
( : >"$file" ) 2>/dev/null || { echo "user $(id -un) may not write there" >&2; exit 3; }
dd if=/dev/zero of="$file" bs=65536 count=128 2>/dev/null || { echo "8 MiB could not be written there" >&2; exit 4; }
"""
_FORBIDDEN = 3

# What the steps of a push call (release/board.py, release/lock.py).
_PROGRAMS = "cat chmod cut df du find flock ln mkdir mv readlink rm rmdir sed sha256sum sync tail"
_LOOK_FOR_PROGRAMS = 'for each; do command -v "$each" >/dev/null || echo "$each"; done'

_TOUCH = 'name=$HOME/.edgedeploy-doctor.$$; : >"$name" && echo "$name"'
_REMOVE = 'rm -f "$@"'


@check("architecture", Group.BOARD, needs=("login",), applies=is_remote)
def architecture(case: Case) -> Finding:
    """Whether the board is what its profile says, as far as code depends on it."""
    case.facts = facts = probe(case.line)
    reasons = misfits(needs_of(case.board), facts, "the board")
    name = f"{facts.line()}; {facts.system}, kernel {facts.machine}"
    if reasons:
        return failed(
            f"{'; '.join(reasons)} ({name})",
            "name the profile of this board: edgedeploy boards",
            f"or make one: edgedeploy boards new NAME --from {case.name}",
        )
    # A virtual board's cores are this machine's.
    if facts.cores and facts.cores < case.board.cores and not str(case.address).startswith(VIRTUAL):
        found = f"{name}: the profile states {case.board.cores} cores"
        return warning(found, f"set `cores: {facts.cores}` in a profile of its own: edgedeploy boards new")
    return ok(name, **facts.model_dump(exclude_none=True))


@check("glibc", Group.BOARD, needs=("architecture",), applies=is_remote)
def glibc(case: Case) -> Finding:
    """Whether the board's C library is as new as its profile says."""
    assert case.facts is not None
    has, wanted = case.facts.glibc, case.board.glibc
    if has is None:
        return warning("the board does not say which glibc it has", "look there: ldd --version")
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


@check("releases", Group.BOARD, needs=("login",), applies=is_remote, limit_s=15)
def releases(case: Case) -> Finding:
    """Whether there is room, and the right to write, where releases lie."""
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


@check("programs for releases", Group.BOARD, needs=("releases",), applies=is_remote)
def needed_programs(case: Case) -> Finding:
    """Whether the board has what a push calls there, SFTP among it."""
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
    return ok("a POSIX shell, SFTP, and what else a push calls there")


@check("port forwarding", Group.BOARD, needs=("login",), applies=is_remote)
def forwarding(case: Case) -> Finding:
    """Whether tuning can reach through the SSH connection, in both directions."""
    try:
        case.line.listen_no_more(case.line.listen(lambda channel: channel.close()))
        case.line.reach(9).close()  # the port of "discard", where hardly anything listens
    except ConnectionRefusedError:
        pass
    except BoardConnectionError as error:
        return warning(f"{error.cause}; tuning needs that", *error.hints)
    return ok("in both directions")


@check("program there", Group.BOARD, needs=("architecture", "toolchain"), applies=is_remote, limit_s=_PROGRAM_S + 5)
def program_there(case: Case) -> Finding:
    """Whether a program that the toolchain made runs on the board."""
    return _ran(run_program(case.place, case.program, limit_s=_PROGRAM_S), "what the toolchain makes runs there")


@check("agent", Group.BOARD, needs=("architecture",), applies=is_remote, limit_s=25, if_stuck="try it again")
def agent(case: Case) -> Finding:
    """Whether the agent runs on the board: the one that lies there, or this edgedeploy's, of which nothing stays."""
    assert case.facts is not None
    built = built_agent(case.board)
    if built and case.facts.agent == built.key:
        return ok("it lies there, runs, and is the one of this edgedeploy")
    if built is None:
        older = "an older one runs there; the one of this edgedeploy" if case.facts.agent else "it"
        push = f"edgedeploy push digits --board {case.name} --host {case.address}"
        return warning(f"{older} is not built yet: the next push does so, which takes minutes", push)
    done = run_program(case.place, built.path, "--version", limit_s=_PROGRAM_S)
    return _ran(done, "the one of this edgedeploy runs there; nothing of it was left")


def _ran(done: Completed, well: str) -> Finding:
    if done.code == 0:
        return ok(well)
    if done.code == CANNOT_RUN and "denied" in done.messages:
        hint = "on the board: look with `mount` whether the file system of the home folder has the option noexec"
        return failed(f"the board does not allow programs there: {done.messages}", hint)
    return failed(f"it does not run there: {end_of(done)}", "log in and look at `dmesg`, and at what is free: `free`")


@check("state", Group.BOARD, needs=("login",))
def state(case: Case) -> Finding:
    """Whether the board runs as fast as it can; times that are measured depend on it."""
    now = Throttling(lambda script: case.place.run(script).text).conditions()
    facts = {
        "governor": now.governor,
        "frequency": f"{now.frequency_mhz:.0f} MHz" if now.frequency_mhz else None,
        "temperature": f"{now.temperature_c:.1f} °C" if now.temperature_c is not None else None,
    }
    found = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    found = found or "governor, frequency and temperature are not told"
    if now.throttled:
        hint = "cool the board, or give it a stronger power supply; on a Raspberry Pi: vcgencmd get_throttled"
        return warning(f"{found}: it slows itself down now", hint)
    if now.governor not in (None, "performance"):
        return ok(found, "to measure, have `edgedeploy tune --set-governor performance`")
    return ok(found)
