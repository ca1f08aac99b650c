"""Runs a program of this machine's disk on the board, here or over SSH, where nothing of it stays."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.errors import ending, signal_of
from edgedeploy.remote.connection import Completed
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.place import Place

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

# The exit code of shells for a file that cannot be run.
CANNOT_RUN = 126


def run_program(place: Place, program: Path, *arguments: str, limit_s: float) -> Completed:
    """Run a program, and end it once its time is over."""
    limit = f"{limit_s:.0f}"
    return place.run(_RUN, BASE, limit, *arguments, content=[program.read_bytes()], timeout_s=limit_s + 5)


def end_of(done: Completed) -> str:
    """How a program ended that did not end well, in words."""
    name = signal_of(done.code)  # SIGKILL ends programs that hang
    how = f"it was ended by {name}" if name else ending(done.code)
    return f"{how}: {done.messages.splitlines()[-1]}" if done.messages else how
