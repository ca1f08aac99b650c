"""WAV files: PCM of 8, 16, 24 or 32 bits, read block by block as 16-bit samples of one channel."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgedeploy.audio.resampling import resampled
from edgedeploy.errors import InputError

# Bounds of what is read at a time: a header may state 65,535 channels and four billion samples per second.
_MOST_CHANNELS = 64
_RATES = range(1_000, 768_001)
_FRAMES = 1 << 14

_HINT = "write it as PCM: ffmpeg -i FILE -ar 16000 -ac 1 -c:a pcm_s16le NEW.wav"


def read_wav(path: Path, rate: int) -> Iterator[np.ndarray]:
    """The samples of a WAV file in blocks: int16, one channel (the mean of all), at `rate` samples per second.

    The header is checked before the first block; a file that ends before its header says is read to where it ends.
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
    blocks = _blocks(reader, path)
    return blocks if found == rate else resampled(blocks, found, rate)


def _blocks(reader: wave.Wave_read, path: Path) -> Iterator[np.ndarray]:
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
            samples = _wide(content, reader.getsampwidth()).reshape(-1, reader.getnchannels())
            yield np.rint(samples.mean(axis=1)).clip(-32768, 32767).astype(np.int16)


def _wide(content: bytes, width: int) -> np.ndarray:
    """Samples of one to four bytes in units of 16-bit samples, float64. Those of one byte are unsigned."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float64) - 128) * 256
    raw = np.frombuffer(content, np.uint8).reshape(-1, width)
    padded = np.zeros((len(raw), 4), np.uint8)
    padded[:, 4 - width :] = raw  # the most significant bytes come last
    return padded.view("<i4").ravel() / 65536.0
