"""The microphone, through the recorder of ALSA or of PulseAudio."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from edgedeploy.errors import InputError

# Programs that write what the default microphone hears to standard output, in the order in which they are tried.
_RECORDERS = {
    "arecord": "arecord -q -t raw -f S16_LE -c 1 -r {rate}",
    "parec": "parec --raw --format=s16le --channels=1 --rate={rate}",
}
_SECONDS_TO_END = 5

# Shorter than any frame, so that a score does not wait for samples of the next one.
_BLOCKS_PER_S = 50


@contextmanager
def microphone(rate: int) -> Iterator[Iterator[np.ndarray]]:
    """What the microphone hears until the block ends, in blocks: int16, one channel, `rate` samples per second."""
    name = next((name for name in _RECORDERS if shutil.which(name)), None)
    if name is None:
        raise InputError(
            "there is no program that records from a microphone",
            why=f"neither {' nor '.join(_RECORDERS)} is installed",
            hints=["apt install alsa-utils", "give a recording instead: --wav FILE"],
        )
    command = _RECORDERS[name].format(rate=rate).split()
    # In a session of its own, so that Ctrl-C does not reach it before we have taken what it heard.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield _blocks(process, name, rate)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _blocks(process: subprocess.Popen[bytes], name: str, rate: int) -> Iterator[np.ndarray]:
    assert process.stdout
    assert process.stderr
    while content := process.stdout.read(2 * (rate // _BLOCKS_PER_S)):
        yield np.frombuffer(content[: len(content) // 2 * 2], "<i2")
    said = process.stderr.read(4096).decode(errors="replace").strip().splitlines()
    raise InputError(f"{name} records nothing more", why=said[-1] if said else None, hints=["give --wav FILE"])
