"""Sounds as blocks of 16-bit samples of one channel: PCM WAV files at the rate of the network, and the microphone."""

from __future__ import annotations

import shutil
import subprocess
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import gcd
from pathlib import Path

import numpy as np

from edgedeploy.errors import InputError

# Limits for one read: a header may state 65,535 channels and four billion samples per second.
_MOST_CHANNELS = 64
_RATES = range(1_000, 768_001)
_FRAMES = 1 << 14

_HINT = "write it as PCM: ffmpeg -i FILE -ar 16000 -ac 1 -c:a pcm_s16le NEW.wav"

# Half the length of SciPy's filter, in samples of the lower rate: `resample_poly` takes 10.
_REACH = 10

# The fewest samples filtered at a time.
_SAMPLES = 1 << 18

# Programs that write the default microphone's samples to standard output, in the order in which they are tried.
_RECORDERS = {
    "arecord": "arecord -q -t raw -f S16_LE -c 1 -r {rate}",
    "parec": "parec --raw --format=s16le --channels=1 --rate={rate}",
}
_SECONDS_TO_END = 5

# Blocks are shorter than any frame, so that a score does not wait for samples of the next one.
_BLOCKS_PER_S = 50


def read_wav(path: Path, rate: int) -> Iterator[np.ndarray]:
    """The samples of a WAV file in blocks: int16, one channel (the mean of all), at `rate` samples per second.

    The header is checked before the first block; a truncated file is read to its end.
    """
    try:
        reader = wave.open(str(path), "rb")  # noqa: SIM115  it is closed when the last block was taken
    except (wave.Error, EOFError, RuntimeError, OSError) as error:  # RuntimeError: a chunk that is longer than the file
        why = getattr(error, "strerror", None) or str(error) or "it ends too early"
        hint = "check the path given to --wav" if isinstance(error, OSError) else _HINT
        raise InputError(f"cannot read {path} as a WAV file", why=why, hints=[hint]) from error
    channels, width, found = reader.getnchannels(), reader.getsampwidth(), reader.getframerate()
    if not (channels <= _MOST_CHANNELS and width <= 4 and found in _RATES):
        reader.close()
        why = f"it states {channels} channels of {8 * width} bits at {found} samples per second"
        raise InputError(f"cannot read {path} as a WAV file", why=why, hints=[_HINT])
    blocks = _wav_blocks(reader, path)
    return blocks if found == rate else resampled(blocks, found, rate)


def _wav_blocks(reader: wave.Wave_read, path: Path) -> Iterator[np.ndarray]:
    with reader:
        size = reader.getnchannels() * reader.getsampwidth()
        while True:
            try:
                content = reader.readframes(_FRAMES)
            except (wave.Error, EOFError, RuntimeError, OSError) as error:
                raise InputError(f"cannot read {path} to its end", why=str(error) or None) from error
            content = content[: len(content) // size * size]
            if not content:
                return
            samples = _scaled(content, reader.getsampwidth()).reshape(-1, reader.getnchannels())
            yield _as_int16(samples.mean(axis=1))


def _scaled(content: bytes, width: int) -> np.ndarray:
    """Samples of one to four bytes in units of 16-bit samples, float64. 8-bit samples are unsigned."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float64) - 128) * 256
    raw = np.frombuffer(content, np.uint8).reshape(-1, width)
    padded = np.zeros((len(raw), 4), np.uint8)
    padded[:, 4 - width :] = raw  # the most significant bytes come last
    return padded.view("<i4").ravel() / 65536.0


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

    # Pieces begin at multiples of `down`, where samples of both rates coincide, and are filtered with a margin on
    # both sides as long as the filter.
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


@contextmanager
def microphone(rate: int) -> Iterator[Iterator[np.ndarray]]:
    """The microphone's samples until the block ends: int16, one channel, `rate` samples per second."""
    name = next((name for name in _RECORDERS if shutil.which(name)), None)
    if name is None:
        raise InputError(
            "no installed program records from a microphone",
            why=f"neither {' nor '.join(_RECORDERS)} is installed",
            hints=["apt install alsa-utils", "give a recording instead: --wav FILE"],
        )
    command = _RECORDERS[name].format(rate=rate).split()
    # In a session of its own, so that Ctrl-C does not reach it before its last samples are read.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield _recorded(process, name, rate)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _recorded(process: subprocess.Popen[bytes], name: str, rate: int) -> Iterator[np.ndarray]:
    assert process.stdout
    assert process.stderr
    while content := process.stdout.read(2 * (rate // _BLOCKS_PER_S)):
        yield np.frombuffer(content[: len(content) // 2 * 2], "<i2")
    lines = process.stderr.read(4096).decode(errors="replace").strip().splitlines()
    raise InputError(f"{name} records nothing more", why=lines[-1] if lines else None, hints=["give --wav FILE"])
