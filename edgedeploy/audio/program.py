"""One demo on sounds from the names that a user gives to scores and detections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from edgedeploy.audio.cascade import Cascade
from edgedeploy.audio.events import Detector, Event
from edgedeploy.audio.spec import SOUND_DEMOS, SoundDemo
from edgedeploy.building import prepare
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.opening import Place, opened_together
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import find_source, means_file
from edgedeploy.zoo.store import fetch


@dataclass(frozen=True)
class Heard:
    """One frame of a sound.

    Attributes:
        sample: where it begins in the sound; negative in the silence that is heard before a file.
        score: its score.
        events: what was detected by it.
        inference_ms: how long its inferences took.
    """

    sample: int
    score: float
    events: list[Event]
    inference_ms: float


@dataclass(frozen=True)
class SoundProgram:
    """A demo whose name is known to be right.

    Attributes:
        name: the demo's name.
        demo: it, with the network and the threshold that the user named.
        own: the last network that the demo names itself.
    """

    name: str
    demo: SoundDemo
    own: str

    @staticmethod
    def of(name: str, model: str | None = None, threshold: float | None = None) -> SoundProgram:
        """The demo `name`, with another last network if `model` names one, and another threshold if one is given."""
        demo: SoundDemo = SOUND_DEMOS.load(name)
        own = demo.stages[-1].model
        detect = demo.detect if threshold is None else demo.detect.with_threshold(threshold)
        if model:
            if not means_file(model):
                MODELS.find(model)
            last = demo.stages[-1].model_copy(update={"model": model})
            detect = detect.model_copy(update={"label": Path(model).stem})
            demo = demo.model_copy(update={"stages": [*demo.stages[:-1], last]})
        return SoundProgram(name, demo.model_copy(update={"detect": detect}), own)

    def sound(self, progress: Progress = SILENT) -> Path:
        """The demo's own WAV file."""
        return fetch(self.demo.sound, folder=SOUND_DEMOS.find(self.name).parent, progress=progress)

    @contextmanager
    def opened(
        self,
        place: Place,
        *,
        threads: int | None = None,
        options: ImportOptions = AS_THE_FILE_SAYS,
        progress: Progress = SILENT,
    ) -> Iterator[SoundSession]:
        """The demo with its networks built and ready where `place` says."""
        built = [
            prepare(
                stage.model,
                place.board,
                input_shapes=self._shapes(stage.model, options),
                options=options,
                progress=progress,
            )
            for stage in self.demo.stages
        ]
        with opened_together([each.package_path for each in built], place, threads, progress) as there:
            random = any(each.manifest.weights == "random" for each in built)
            cascade = Cascade(self.demo, [network.runner for network in there])
            yield SoundSession(self.name, self.demo, cascade, place.board.name, there[0].machine, random)

    def _shapes(self, model: str, options: ImportOptions) -> Shapes:
        """The shape of the input that a file leaves open: that of the demo's own network."""
        if not means_file(model):
            return {}
        open_input = find_source(model, options=options).open_input()
        return {open_input: MODELS.load(self.own).input.shape} if open_input else {}


@dataclass(frozen=True)
class SoundSession:
    """A demo that is ready to listen, to one sound.

    Attributes:
        name: the demo's name.
        demo: what it says.
        cascade: its networks.
        board: the board that they run on.
        machine: that board in one line, if it is not this machine.
        random: whether weights are seeded random values, so that scores mean nothing.
    """

    name: str
    demo: SoundDemo
    cascade: Cascade
    board: str
    machine: str | None
    random: bool = False

    def listen(self, blocks: Iterable[np.ndarray], *, is_file: bool) -> Iterator[Heard]:
        """Each frame of a sound, as it comes; a detection that has not ended when the sound does comes with the last.

        Args:
            blocks: the sound, int16, one channel, at the demo's rate, in pieces of any length. What is missing to a
                whole frame at its end is silence.
            is_file: whether it is heard with silence around it, as the demo says.
        """
        demo = self.demo
        silence = np.zeros(round(demo.silence_s * demo.rate) if is_file else 0, np.int16)
        detector, sample, samples = Detector(demo.detect, demo.rate, demo.frame), -len(silence), -len(silence)
        held: Heard | None = None
        for frame, length in _frames(blocks, silence, demo.frame):
            if held:
                yield held
            began = perf_counter()
            score = self.cascade.score(frame)
            taken_ms = 1e3 * (perf_counter() - began)
            held = Heard(sample, score, detector.add(sample, score), taken_ms)
            sample, samples = sample + demo.frame, samples + length
            if not is_file:  # nobody waits for the end of a microphone
                yield held
                held = None
        last = detector.finish(samples)
        if held:
            yield replace(held, events=held.events + last)


def _frames(blocks: Iterable[np.ndarray], silence: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Pieces of `size` samples, each with how many of them are the sound's; silence before and after it counts."""

    def all_blocks() -> Iterator[np.ndarray]:
        yield silence
        yield from blocks
        yield silence

    left = np.empty(0, np.int16)
    for block in all_blocks():
        left = np.concatenate([left, block])
        whole = len(left) // size * size
        for frame in left[:whole].reshape(-1, size):
            yield frame, size
        left = left[whole:]
    if len(left):
        yield np.pad(left, (0, size - len(left))), len(left)
