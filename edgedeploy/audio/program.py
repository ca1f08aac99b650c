"""A demo on sounds: its networks one after the other, from frames of samples to scores and detections."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np

from edgedeploy.audio.spec import SOUND_DEMOS, Detecting, SoundDemo, SoundStage
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.building import prepare
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.model.tensors import TensorSpec, shown
from edgedeploy.runtime.opening import Place, Runner, opening
from edgedeploy.runtime.stateful import check_states
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import find_source, means_file
from edgedeploy.zoo.store import fetch


class _Listener:
    """One network and its window of rows."""

    def __init__(self, stage: SoundStage, runner: Runner) -> None:
        self.stage, self._runner = stage, runner
        check_states(stage.states, runner.inputs, runner.outputs)
        self._input = _only("input", [spec for spec in runner.inputs if spec.name not in stage.states], stage)
        states = set(stage.states.values())
        self.output = _only("output", [spec for spec in runner.outputs if spec.name not in states], stage)
        size = math.prod(self._input.shape)
        if size % stage.window:
            shape = shown(self._input.shape)
            raise _unsuitable(stage, f"its input {self._input.name!r} is {shape}, which are not {stage.window} rows")
        self.width = size // stage.window
        self.columns = (self.output.shape or [1])[-1]
        before = 0.0 if stage.before == "silence" else stage.before
        self.rows = np.full((stage.window, self.width), before, np.float32)
        self._states = {
            spec.name: np.zeros(spec.shape, spec.dtype) for spec in runner.inputs if spec.name in stage.states
        }

    def run(self, rows: np.ndarray, *, keep: bool = True) -> np.ndarray:
        """The network's output for `window` rows: rows x columns, float32. `keep` updates its state."""
        tensor = rows.reshape(self._input.shape).astype(self._input.dtype)
        outputs = self._runner.run({self._input.name: tensor, **self._states})
        if keep:
            self._states = {name: outputs[output] for name, output in self.stage.states.items()}
        found = outputs[self.output.name].reshape(-1, self.columns).astype(np.float32)
        return found * np.float32(self.stage.scale) + np.float32(self.stage.offset)

    def push(self, rows: np.ndarray) -> None:
        """Append rows to the window; the oldest ones go."""
        self.rows = np.concatenate([self.rows, rows.reshape(-1, self.width)])[-self.stage.window :]


class Cascade:
    """The networks of a demo, from one frame of samples to one score."""

    def __init__(self, demo: SoundDemo, runners: Sequence[Runner]) -> None:
        """Prepare them for a new sound; refuse networks that suit neither the demo nor each other."""
        self._demo = demo
        self._stages = [_Listener(stage, runner) for stage, runner in zip(demo.stages, runners, strict=True)]
        for before, after in zip(self._stages, self._stages[1:], strict=False):
            if before.columns != after.width:
                why = f"it takes rows of {after.width} values, {before.stage.model} gives rows of {before.columns}"
                raise _unsuitable(after.stage, why)
        last = self._stages[-1]
        if math.prod(last.output.shape) != 1 or self._stages[0].width != 1:
            shape = shown(last.output.shape)
            raise _unsuitable(last.stage, f"its output {last.output.name!r} is {shape}, not one score")
        self._hear_silence()
        self._samples = self._scores = 0

    def score(self, frame: np.ndarray) -> float:
        """The score of the next frame: int16, as many samples as the demo's `frame`."""
        rows = frame.astype(np.float32) * np.float32(self._demo.full_scale / 32768)
        self._samples += len(frame)
        for stage in self._stages:
            stage.push(rows)
            rows = stage.run(stage.rows)
            if stage.stage.samples_per_row:
                missing = max(0, stage.stage.window - self._samples)
                rows = rows[-(-missing // stage.stage.samples_per_row) :]
        self._scores += 1
        return 0.0 if self._scores <= self._demo.warm_up else float(rows.item())

    def _hear_silence(self) -> None:
        """Fill windows that begin with silence: where all rows are silent, each is the last one."""
        if all(stage.stage.before != "silence" for stage in self._stages):
            return
        row = np.zeros((1, 1), np.float32)
        for stage in self._stages:
            silent = np.repeat(row, stage.stage.window, axis=0)
            if stage.stage.before == "silence":
                stage.rows = silent
            row = stage.run(silent, keep=False)[-1:]


def _only(what: str, found: list[TensorSpec], stage: SoundStage) -> TensorSpec:
    if len(found) != 1:
        names = ", ".join(spec.name for spec in found) or "none"
        raise _unsuitable(stage, f"it needs one {what} besides its state, not {names}")
    return found[0]


def _unsuitable(stage: SoundStage, why: str) -> InputError:
    return InputError(f"{stage.model} does not suit the demo", why=why)


@dataclass(frozen=True)
class Event:
    """The beginning or the end of a detection, its position in the sound, and the highest score so far."""

    kind: Literal["begin", "end"]
    sample: int
    score: float


class Detector:
    """Turns scores into events, one score after the other. Positions are in samples."""

    def __init__(self, how: Detecting, rate: int, frame: int) -> None:
        """Begin; a score is of `frame` samples, at `rate` samples per second."""
        self._threshold = how.threshold
        self._release = how.threshold if how.release is None else how.release
        self._shortest, self._gap, self._margin = (
            round(seconds * rate) for seconds in (how.shortest_s, how.gap_s, how.margin_s)
        )
        self._frame = frame
        self._begun: int | None = None
        self._reported = False
        self._quiet_since: int | None = None
        self._best = 0.0

    def add(self, sample: int, score: float) -> list[Event]:
        """Add the score of the frame that begins at `sample`; returns new events."""
        if score >= self._threshold:
            self._quiet_since = None
            if self._begun is None:
                self._begun, self._reported, self._best = sample, False, 0.0
        if self._begun is None:
            return []
        self._best = max(self._best, score)
        if score < self._release:
            if self._quiet_since is None:
                self._quiet_since = sample
            return self._end(self._quiet_since) if sample - self._quiet_since >= self._gap else []
        long_enough = sample + self._frame - self._begun > self._shortest
        return self._begin() if self._quiet_since is None and long_enough else []

    def finish(self, samples: int) -> list[Event]:
        """The sound has ended, after `samples`; returns the last events."""
        if self._begun is None:
            return []
        begun = self._begin() if samples - self._begun > self._shortest else []
        return begun + [replace(each, sample=min(samples, each.sample)) for each in self._end(samples)]

    def _begin(self) -> list[Event]:
        if self._reported or self._begun is None:
            return []
        self._reported = True
        # A margin does not extend before the beginning of the sound.
        return [Event("begin", max(min(0, self._begun), self._begun - self._margin), self._best)]

    def _end(self, sample: int) -> list[Event]:
        self._begun = self._quiet_since = None
        return [Event("end", sample + self._margin, self._best)] if self._reported else []


@dataclass(frozen=True)
class Heard:
    """One frame of a sound and the time of all its inferences; `sample` is negative in the silence before a file."""

    sample: int
    score: float
    events: list[Event]
    inference_ms: float


@dataclass(frozen=True)
class SoundProgram:
    """A demo on sounds, as the user chose it, before its networks are built; `own` is the demo's own last network."""

    name: str
    demo: SoundDemo
    own: str

    @staticmethod
    def of(name: str, model: str | None = None, threshold: float | None = None) -> SoundProgram:
        """The demo `name`; `model` replaces its last network."""
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
        """The demo with its networks built and opened in `place`."""
        built = []
        for stage in self.demo.stages:
            shapes = self._shapes(stage.model, options)
            built.append(prepare(stage.model, place.board, input_shapes=shapes, options=options, progress=progress))
        with opening(place, threads, progress) as open_all:
            networks = open_all([each.package_path for each in built])
            random = any(each.manifest.weights == "random" for each in built)
            cascade = Cascade(self.demo, [network.runner for network in networks])
            yield SoundSession(self.name, self.demo, cascade, place.board.name, networks[0].machine, random)

    def _shapes(self, model: str, options: ImportOptions) -> Shapes:
        """The shape of an input that a file leaves open: that of the demo's own network."""
        if not means_file(model):
            return {}
        open_input = find_source(model, options=options).open_input()
        return {open_input: MODELS.load(self.own).input.shape} if open_input else {}


@dataclass(frozen=True)
class SoundSession:
    """A demo that is ready for one sound."""

    name: str
    demo: SoundDemo
    cascade: Cascade
    board: str  # which runs the networks
    machine: str | None  # the board in one line, if it is not this machine
    random: bool = False  # weights are seeded random values, so that scores mean nothing

    def listen(self, blocks: Iterable[np.ndarray], *, is_file: bool) -> Iterator[Heard]:
        """Each frame of a sound, as it comes; a detection that lasts to the end of the sound comes with the last frame.

        `blocks` are int16, one channel, at the demo's rate, in pieces of any length. Silence completes the last frame;
        a file also has the demo's silence before and after it.
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
    """Frames of `size` samples, each with how many of them belong to the sound or the silence around it."""
    left = np.empty(0, np.int16)
    for block in chain([silence], blocks, [silence]):
        left = np.concatenate([left, block])
        whole = len(left) // size * size
        for frame in left[:whole].reshape(-1, size):
            yield frame, size
        left = left[whole:]
    if len(left):
        yield np.pad(left, (0, size - len(left))), len(left)
