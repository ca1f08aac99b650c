"""Sounds brought to another rate, by SciPy's polyphase filter."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from math import gcd

import numpy as np

from edgedeploy.errors import InputError

# Elements on each side of SciPy's filter, in samples of the lower rate: `resample_poly` takes 10.
_REACH = 10

# At least so many samples are filtered at a time.
_SAMPLES = 1 << 18


def resampled(blocks: Iterator[np.ndarray], rate: int, wanted: int) -> Iterator[np.ndarray]:
    """Blocks of int16 samples at `wanted` instead of `rate` samples per second, as if filtered in one piece."""
    if find_spec("scipy") is None:
        raise InputError(
            f"the sound has {rate:,} samples per second, the network takes {wanted:,}",
            why="SciPy, which converts between them, is not installed",
            hints=["pip install 'edgedeploy[audio]'", f"convert it: ffmpeg -i FILE -ar {wanted} NEW.wav"],
        )
    return _filtered(blocks, rate // gcd(rate, wanted), wanted // gcd(rate, wanted))


def _filtered(blocks: Iterator[np.ndarray], down: int, up: int) -> Iterator[np.ndarray]:
    from scipy.signal import resample_poly

    def through(samples: np.ndarray) -> np.ndarray:
        return resample_poly(samples.astype(np.float64), up, down)

    # Pieces begin at multiples of `down`, where a sample of the new rate lies on one of the old, and are filtered with
    # as much before and after them as the filter reaches.
    margin = -(-(_REACH * max(up, down) // up + 1) // down) * down
    piece = -(-max(_SAMPLES, margin) // down) * down
    held, before = np.empty(0, np.int16), 0
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= before + piece + margin:
            found = through(held[: before + piece + margin])
            yield _as_int16(found[before // down * up : (before + piece) // down * up])
            held, before = held[before + piece - margin :], margin
    if len(held) > before:
        yield _as_int16(through(held)[before // down * up :])


def _as_int16(samples: np.ndarray) -> np.ndarray:
    return np.rint(samples).clip(-32768, 32767).astype(np.int16)
