"""A process beside a build that reports when LLVM or TVM ends the build: by abort, exit or stack overflow.

The process forks before anything slow is imported, while it has one thread: later a fork would take tens of
milliseconds, and locks of other threads would stay locked in it forever.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgedeploy.errors import EdgedeployError

# Commands that compile in their own process, and use neither terminal nor cameras.
_COMMANDS = {"build", "quantize"}

# Signals by which others end a process.
_ASKED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_BY_OTHERS = {*_ASKED, signal.SIGPIPE, signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ}

_KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG, linux/prctl.h
_FROM_KERNEL = 0x80  # SI_KERNEL, asm-generic/siginfo.h: a terminal sends its signals to all processes at once
_AT_ONCE_S = 0.05

_LONGEST = 300  # characters about a step
_REMOVED = "\x01"  # prefix of paths to remove

# Shared by both processes: whether Ctrl-C came, and lines about the compiler's current work.
_shared: mmap.mmap | None = None


class EndedError(Exception):
    """The compiler ended its process with a code as in `subprocess`, while `doing` some work, outermost first."""

    def __init__(self, doing: list[str], code: int) -> None:
        super().__init__(f"the compiler ended its process ({code})")
        self._doing, self._code = doing, code

    def error(self) -> EdgedeployError:
        """The error to report."""
        from edgedeploy.errors import CompileError, MemoryExhaustedError, ending, signal_of

        what, *inner = self._doing
        kind = MemoryExhaustedError if signal_of(self._code) == "SIGKILL" else CompileError
        return kind(
            f"{what} cannot be compiled",
            why=f"the compiler's process did not survive it: {ending(self._code)}"
            + "".join(f", in {each}" for each in inner),
            hints=[
                "give it a larger stack, which operators that are nested deeply need: ulimit -s 65536, and build again",
                "simplify these operators in the network, or report it with the network's file",
            ],
        )


def doing(what: str) -> AbstractContextManager[None]:
    """State the compiler's work within the block, in case it ends the process."""
    text = " ".join(what.split())
    return _stated(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...")


def leaving(path: object) -> AbstractContextManager[None]:
    """State that a file or an empty folder is to be removed if the process ends within the block."""
    return _stated(f"{_REMOVED}{os.path.abspath(str(path))}")  # noqa: PTH100 - strings, as `_temporary`


@contextmanager
def _stated(line: str) -> Iterator[None]:
    if _shared is None:
        yield
        return
    before = _lines()
    _write([*before, line])
    try:
        yield
    finally:
        _write(before)


def _lines() -> list[str]:
    return _shared[1:].rstrip(b"\0").decode(errors="surrogateescape").splitlines() if _shared else []


def _write(lines: list[str]) -> None:
    assert _shared is not None
    room = len(_shared) - 1
    _shared[1:] = "\n".join(lines).encode(errors="surrogateescape")[:room].ljust(room, b"\0")


def note_interruption() -> None:
    """State that Ctrl-C came."""
    if _shared is not None:
        _shared[0] = 1


def supervise() -> None:
    """Go on in a copy of this process if it will compile; this one waits for it, and ends as it does.

    Raises EndedError if the compiler ended the copy, whose temporary files are then removed.
    """
    global _shared
    if _COMMANDS.isdisjoint(sys.argv[1:]):
        return
    _shared = mmap.mmap(-1, 1 << 14)
    watched = {*_ASKED, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    parent, temporary = os.getpid(), _temporary()
    child = os.fork()
    if not child:
        import ctypes

        ctypes.CDLL(None).prctl(_KILL_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if temporary:
            os.environ["TMPDIR"] = temporary
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    code = os.waitstatus_to_exitcode(_wait(child, watched))
    if temporary:
        import shutil

        shutil.rmtree(temporary, ignore_errors=True)
    lines = _lines()
    for path in (line.removeprefix(_REMOVED) for line in reversed(lines) if line.startswith(_REMOVED)):
        with suppress(OSError):
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)  # noqa: PTH112
    steps = [line for line in lines if not line.startswith(_REMOVED)]
    if code < 0 and _shared[0]:  # some library turned Ctrl-C's exception into this
        os._exit(128 + signal.SIGINT)
    if steps and code in (1, *(-each for each in set(signal.Signals) - _BY_OTHERS)):
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise EndedError(steps, code)
    if code < 0:  # as if this were the only process
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        os.kill(parent, -code)
    os._exit(code)


def _wait(child: int, watched: set[signal.Signals]) -> int:
    """Forward signals sent to this process alone until the child has ended; returns its status."""
    assert _shared is not None
    while True:
        came = signal.sigwaitinfo(watched)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif came.si_code != _FROM_KERNEL:
            time.sleep(_AT_ONCE_S)  # a signal to the process group reaches the child anyway
            if not (came.si_signo == signal.SIGINT and _shared[0]):
                with suppress(ProcessLookupError):
                    os.kill(child, came.si_signo)


def _temporary() -> str | None:
    """A folder for the copy's temporary files; None if it cannot be created."""
    path = f"{os.environ.get('TMPDIR') or '/tmp'}/edgedeploy-{os.getpid()}"
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102 - pathlib takes a hundredth of a second to import
    except OSError:
        return None
    return path
