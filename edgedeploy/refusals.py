"""What the system refuses a process, wherever that shows: no room, no right to write, no memory."""

from __future__ import annotations

import errno
import os
import re
import resource
from pathlib import Path

from edgedeploy.errors import (
    CompileError,
    EdgedeployError,
    MemoryExhaustedError,
    ModelError,
    OutputError,
    ToolchainError,
    cause_of,
)
from edgedeploy.extras import missing_module
from edgedeploy.files import cannot_write

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
# How those say it that have no Python exception for it: glibc and its loader, C++, CPython's threads, LLVM.
_NO_MEMORY = re.compile(
    r"failed to map segment|cannot allocate memory|bad_alloc|can't start new thread|out of memory", re.IGNORECASE
)
# Python's tempfile, where it can write into none of its folders.
_NO_FOLDER = "No usable temporary directory found"
_ANOTHER_FOLDER = "make room, or name another folder for temporary files: TMPDIR=/some/folder"
_NO_ROOM = re.compile(re.escape(os.strerror(errno.ENOSPC)), re.IGNORECASE)
# Errors that tell what libraries or programs on this machine said.
_TOLD = (ModelError, CompileError, ToolchainError)

# The address space that the compiler takes for the smallest network (measured: `VmPeak` in /proc/PID/status), and what
# each processor's thread adds for its stack and its part of the heap.
_ADDRESS_SPACE, _FOR_EACH_PROCESSOR = 1_300 << 20, 80 << 20


def refusal(error: BaseException) -> EdgedeployError | None:
    """The error that a user can do something about, of any exception; None where it is a mistake of edgedeploy's."""
    if isinstance(error, EdgedeployError) and not isinstance(error, _TOLD):
        return error
    said = cause_of(error)
    if isinstance(error, ModuleNotFoundError) and (missing := missing_module(error)):
        return missing
    if isinstance(error, MemoryError) or _NO_MEMORY.search(said):
        return _no_memory(said or None)
    if isinstance(error, OSError) and str(error.strerror).startswith(_NO_FOLDER):
        return OutputError("there is no folder for temporary files", why=error.strerror, hints=[_ANOTHER_FOLDER])
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename:
        return cannot_write(Path(os.fsdecode(error.filename)), error)
    if _NO_ROOM.search(said):
        return OutputError("there is no room left for what is to be written", why=said, hints=[_ANOTHER_FOLDER])
    if isinstance(error, EdgedeployError):
        return error
    return _no_memory(f"{type(error).__name__}: {said}") if _is_tight() else None


def require_address_space() -> None:
    """Raise MemoryExhaustedError where the process may not have what the compiler needs.

    Later is too late: libraries that find no memory while they are loaded, and LLVM, end the process.
    """
    if _is_tight():
        raise _no_memory(None)


def _is_tight() -> bool:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = _ADDRESS_SPACE + _FOR_EACH_PROCESSOR * len(os.sched_getaffinity(0))
    return limit != resource.RLIM_INFINITY and limit < needed


def _no_memory(why: str | None) -> MemoryExhaustedError:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return MemoryExhaustedError("there is not enough memory", why=why, hints=["end other programs, or add swap"])
    said = f"the limit on this process's address space is {limit >> 20} MiB"
    return MemoryExhaustedError(
        "there is not enough memory",
        why=f"{said}; {why}" if why else said,
        hints=["raise the limit: ulimit -v unlimited"],
    )
