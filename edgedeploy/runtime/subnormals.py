"""Arithmetic without subnormal numbers: results too small for a normal float become zero.

A subnormal operand slows an x86 core down a hundredfold, and networks whose activations die out are full of
them. The processor's mode belongs to each thread; a network's threads calculate in the mode of the one that calls.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Where glibc's `fenv_t` keeps the control register, in 32-bit words, and the register's bits that flush
# results and operands (Intel SDM volume 1, section 10.2.3: FTZ and DAZ; Arm ARM, FPCR: FZ).
_CONTROL = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_WORDS = 16  # longer than every `fenv_t`


@contextmanager
def flushed_to_zero() -> Iterator[None]:
    """Flush subnormals in this thread while the block runs, and in the threads of networks that it runs.

    Does nothing where the C library is not glibc, or the processor another one than x86-64 or 64-bit ARM.
    """
    library, position = _library(), _CONTROL.get(platform.machine())
    if library is None or position is None:
        yield
        return
    before, during = (ctypes.c_uint32 * _WORDS)(), (ctypes.c_uint32 * _WORDS)()
    library.fegetenv(before)
    ctypes.memmove(during, before, ctypes.sizeof(before))
    word, bits = position
    during[word] |= bits
    library.fesetenv(during)
    try:
        yield
    finally:
        library.fesetenv(before)


@cache
def _library() -> ctypes.CDLL | None:
    return ctypes.CDLL("libm.so.6") if platform.libc_ver()[0] == "glibc" else None
