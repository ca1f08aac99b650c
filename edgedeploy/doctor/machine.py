"""Where programs of a board run: scripts and programs are started there in one way, be it here or over SSH."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.connection import Completed
from edgedeploy.remote.facts import BASE

# Into the folder where releases lie, or where their folder would be made: other places may forbid programs. Whatever
# ends it, the program's file goes, and a program that hangs is ended with it.
_RUN = """
folder=$HOME/$1 limit=$2
shift 2
until [ -d "$folder" ]; do folder=${folder%/*}; folder=${folder:-/}; done
program=$folder/.edgedeploy-doctor.$$
trap 'rm -f "$program"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$program" && chmod 700 "$program" || exit
"$program" "$@" &
running=$!
{
    while [ "$limit" -gt 0 ] && kill -0 $running; do sleep 1; limit=$((limit - 1)); done
    kill -9 $running
} >/dev/null 2>&1 &
watchdog=$!
wait $running
code=$?
kill $watchdog 2>/dev/null
exit $code
"""

# Exit codes of shells: 128 and a signal's number; the file cannot be run.
_SIGNALLED, CANNOT_RUN = 128, 126


class Machine(Protocol):
    """A machine with a POSIX shell."""

    def run(self, script: str, *arguments: str, content: Iterable[bytes] = (), timeout_s: float = 10) -> Completed:
        """Run a script with arguments `$1`, `$2`, ... and `content` as its input."""


class Here:
    """This machine."""

    def run(self, script: str, *arguments: str, content: Iterable[bytes] = (), timeout_s: float = 10) -> Completed:
        """Run a script, as `Connection.run` does on a board.

        Raises:
            BoardConnectionError: it does not end.
        """
        process = subprocess.Popen(
            ["sh", "-c", script, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, messages = process.communicate(b"".join(content), timeout_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise BoardConnectionError(f"a command did not end within {timeout_s:g} s") from error
        return Completed(process.returncode, output, messages.decode(errors="replace").strip())


def run_program(machine: Machine, program: Path, *arguments: str, limit_s: float) -> Completed:
    """Run a program of this machine's disk on a machine, where nothing of it stays.

    Raises:
        BoardConnectionError: the connection broke.
    """
    limit = f"{limit_s:.0f}"
    return machine.run(_RUN, BASE, limit, *arguments, content=[program.read_bytes()], timeout_s=limit_s + 5)


def end_of(done: Completed) -> str:
    """How a program ended that did not end well, in words."""
    number = done.code - _SIGNALLED
    if number in set(signal.Signals):
        how = f"it was ended by {signal.Signals(number).name}"
    else:
        how = f"it ended with code {done.code}"
    return f"{how}: {done.messages.splitlines()[-1]}" if done.messages else how
