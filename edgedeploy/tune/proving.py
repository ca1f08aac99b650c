"""Tries MetaSchedule's traces in another process: a damaged one can end the process that applies it.

TVM checks little of what a trace says; a tile of size 0, for one, is divided by. The other process is told a module
and a record at a time, each a line of JSON, and answers each with a line: what went wrong, or null.
"""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.errors import RecordsError, last_line

if TYPE_CHECKING:
    from tvm import IRModule

# TVM's import, on a slow and busy machine; a trace is applied in a few milliseconds.
_START_S = 120
_PATIENCE_S = 60
_MEMORY = 2 << 30


class Prover:
    """The other process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._module: tuple[IRModule, str] | None = None

    def check(self, workload: IRModule, record: Any) -> None:
        """Apply the trace of a record.

        Args:
            workload: its module.
            record: its JSON value.

        Raises:
            RecordsError: it cannot be applied, takes for ever, or ends the process; then this object is of no more use.
        """
        import tvm

        if self._module is None or not workload.same_as(self._module[0]):
            self._module = (workload, tvm.ir.save_json(workload))
        question = json.dumps([self._module[1], record]).encode() + b"\n"
        try:
            assert self._process.stdin
            self._process.stdin.write(question)
            self._process.stdin.flush()
            answer = self._answer(_PATIENCE_S)
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise RecordsError(
                "a tuning record cannot be read", why="to apply its trace crashes TVM, or takes for ever"
            )
        if problem := json.loads(answer):
            raise RecordsError("a tuning record cannot be read", why=problem)

    def wait_until_ready(self) -> None:
        """Wait until TVM is imported there.

        Raises:
            RecordsError: it does not come up.
        """
        if not self._answer(_START_S):
            raise RecordsError("tuning records cannot be checked", why="the process that would do it does not start")

    def _answer(self, seconds: float) -> bytes:
        """The next line, or nothing if the process ended or the time is over."""
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        deadline, answer = time.monotonic() + seconds, b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(descriptor, 1 << 16) if ready else b""
            if not block:
                return b""
            answer += block
        return answer


@contextmanager
def prover() -> Iterator[Prover]:
    """Start the other process, and end it with the block.

    Raises:
        RecordsError: it does not come up.
    """
    command = [sys.executable, "-m", "edgedeploy.tune.proving"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    )
    try:
        started = Prover(process)
        started.wait_until_ready()
        yield started
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream
            stream.close()


def _serve() -> None:
    """The other process: ends when its standard input does."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0) as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that TVM prints may look like an answer
        import tvm
        from tvm.s_tir import ScheduleError
        from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

        _limit_resources()
        workload, known = None, None
        output.write(b"null\n")
        for line in sys.stdin.buffer:
            problem = None
            try:
                module, record = json.loads(line)
                if module != known:
                    workload, known = Workload(tvm.ir.load_json(module)), module
                TuningRecord.from_json(record, workload)
            except ScheduleError:
                problem = "its trace is not of its function"
            except Exception as error:  # TVM raises errors of many types
                problem = last_line(error)
            output.write(json.dumps(problem).encode() + b"\n")


def _limit_resources() -> None:
    """No dump of a crash, and no more than some memory beyond what TVM itself takes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit, hard = pages * resource.getpagesize() + _MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))


if __name__ == "__main__":
    _serve()
