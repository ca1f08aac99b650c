"""Work on several items, some of which may fail; exceptions as errors for users."""

from __future__ import annotations

import errno
import logging
import os
import re
import resource
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from edgedeploy import errors
from edgedeploy.base import interruption
from edgedeploy.base.extras import missing_module
from edgedeploy.base.files import cannot_write

Item = TypeVar("Item")
Value = TypeVar("Value")

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
# Messages without a Python exception of their own: of glibc and its loader, C++, CPython's threads, LLVM.
_NO_MEMORY = re.compile(
    r"failed to map segment|cannot allocate memory|bad_alloc|can't start new thread|out of memory", re.IGNORECASE
)
# Of Python's tempfile, if none of its folders is writable.
_NO_FOLDER = "No usable temporary directory found"
_ANOTHER_FOLDER = "make room, or name another folder for temporary files: TMPDIR=/some/folder"
_NO_ROOM = re.compile(re.escape(os.strerror(errno.ENOSPC)), re.IGNORECASE)
# Errors whose text may quote libraries or programs on this machine.
_QUOTING = (errors.ModelError, errors.CompileError, errors.ToolchainError)

# The compiler's address space for the smallest network (measured: `VmPeak` in /proc/PID/status), and what each
# processor's thread adds for its stack and its part of the heap.
_ADDRESS_SPACE, _FOR_EACH_PROCESSOR = 1_300 << 20, 80 << 20


def attempted(work: Callable[[], Value], *, alone: bool = False) -> Value | errors.EdgedeployError:
    """The result of work on one item, or its error; with `alone`, for a single item, errors are raised."""
    try:
        return work()
    except Exception as error:
        interruption.check()
        if alone or isinstance(error, errors.ReaderGoneError):
            raise
        logging.getLogger(__name__).debug("one of several failed", exc_info=error)
        return refusal(error) or errors.InternalError.of(error)


def each_attempted(
    work: Callable[[Item], Value], items: Mapping[str, Item], failed: dict[str, errors.EdgedeployError] | None
) -> dict[str, Value]:
    """The results of the items that succeed; errors of others go into `failed` by name, or are raised if it is None."""
    done: dict[str, Value] = {}
    for name, item in items.items():
        outcome = attempted(partial(work, item), alone=failed is None)
        if isinstance(outcome, errors.EdgedeployError):
            assert failed is not None
            failed[name] = outcome
        else:
            done[name] = outcome
    return done


def first_failure(outcomes: Iterable[object]) -> errors.EdgedeployError | None:
    """The error that a command ends with, given what `attempted` returned for each item.

    That is the first fault; without a fault, None if at least one item succeeded, else the first error.
    """
    found = list(outcomes)
    failures = [each for each in found if isinstance(each, errors.EdgedeployError)]
    faults = [each for each in failures if not each.unavailable]
    return next(iter(faults or (failures if len(failures) == len(found) else [])), None)


def refusal(error: BaseException) -> errors.EdgedeployError | None:
    """The error for users, if they can act on an exception; None for bugs of edgedeploy."""
    if isinstance(error, errors.EdgedeployError) and not isinstance(error, _QUOTING):
        return error
    text = errors.cause_of(error)
    if isinstance(error, ModuleNotFoundError) and (missing := missing_module(error)):
        return missing
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return _no_memory(text or None)
    if isinstance(error, OSError) and str(error.strerror).startswith(_NO_FOLDER):
        return errors.OutputError("no usable folder for temporary files", why=error.strerror, hints=[_ANOTHER_FOLDER])
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename:
        return cannot_write(Path(os.fsdecode(error.filename)), error)
    if _NO_ROOM.search(text):
        return errors.OutputError("no space left to write", why=text, hints=[_ANOTHER_FOLDER])
    if isinstance(error, errors.EdgedeployError):
        return error
    return _no_memory(f"{type(error).__name__}: {text}") if _is_tight() else None


def require_address_space() -> None:
    """Raise MemoryExhaustedError if the process has too little address space for the compiler.

    Later is too late: LLVM, and libraries that are being loaded, end a process without memory.
    """
    if _is_tight():
        raise _no_memory(None)


def _is_tight() -> bool:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = _ADDRESS_SPACE + _FOR_EACH_PROCESSOR * len(os.sched_getaffinity(0))
    return limit != resource.RLIM_INFINITY and limit < needed


def _no_memory(why: str | None) -> errors.MemoryExhaustedError:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    hint = "end other programs, or add swap"
    if limit != resource.RLIM_INFINITY:
        text = f"the limit on this process's address space is {limit >> 20} MiB"
        why = f"{text}; {why}" if why else text
        hint = "raise the limit: ulimit -v unlimited"
    return errors.MemoryExhaustedError("there is not enough memory", why=why, hints=[hint])
