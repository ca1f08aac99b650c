"""Arithmetic without subnormal numbers: results too small for a normal float become zero.

A subnormal operand slows an x86 core down a hundredfold, and networks whose activations die out are full of them.
Each thread has its own mode; a network's threads calculate in the mode of the calling thread.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from edgedeploy.target.triples import architecture_of

_WORDS = 16  # longer than every `fenv_t`


@contextmanager
def flushed_to_zero() -> Iterator[None]:
    """Flush subnormals in this thread, and in the threads of networks that the block runs.

    Does nothing if the C library is not glibc or the processor has no such mode.
    """
    library, control = _library(), architecture_of(platform.machine()).flush_subnormals
    if library is None or control is None:
        yield
        return
    before, during = (ctypes.c_uint32 * _WORDS)(), (ctypes.c_uint32 * _WORDS)()
    library.fegetenv(before)
    ctypes.memmove(during, before, ctypes.sizeof(before))
    during[control.word] |= control.bits
    library.fesetenv(during)
    try:
        yield
    finally:
        library.fesetenv(before)


@cache
def _library() -> ctypes.CDLL | None:
    return ctypes.CDLL("libm.so.6") if platform.libc_ver()[0] == "glibc" else None
