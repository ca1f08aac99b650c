"""Networks that listen one after the other, each to the latest rows of what the one before it gave."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgedeploy.audio.spec import SoundDemo, SoundStage
from edgedeploy.errors import InputError
from edgedeploy.runtime.interface import Runner
from edgedeploy.runtime.stateful import check_states
from edgedeploy.tensors import TensorSpec, shown


class _Listening:
    """One network, and the rows that it looks at."""

    def __init__(self, stage: SoundStage, runner: Runner) -> None:
        self.stage, self._runner = stage, runner
        check_states(stage.states, runner.inputs, runner.outputs)
        self._input = _only("input", [spec for spec in runner.inputs if spec.name not in stage.states], stage)
        given = set(stage.states.values())
        self.output = _only("output", [spec for spec in runner.outputs if spec.name not in given], stage)
        size = math.prod(self._input.shape)
        if size % stage.window:
            raise InputError(
                f"{stage.model} does not suit the demo",
                why=f"its input {self._input.name!r} is {shown(self._input.shape)}, which are not {stage.window} rows",
            )
        self.width = size // stage.window
        self.columns = (self.output.shape or [1])[-1]
        before = 0.0 if stage.before == "silence" else stage.before
        self.rows = np.full((stage.window, self.width), before, np.float32)
        self._states = {
            spec.name: np.zeros(spec.shape, spec.dtype) for spec in runner.inputs if spec.name in stage.states
        }

    def run(self, rows: np.ndarray, *, keep: bool = True) -> np.ndarray:
        """What the network gives for rows, without those of its state: rows x columns, float32."""
        tensor = rows.reshape(self._input.shape).astype(self._input.dtype)
        outputs = self._runner.run({self._input.name: tensor, **self._states})
        if keep:
            self._states = {name: outputs[output] for name, output in self.stage.states.items()}
        found = outputs[self.output.name].reshape(-1, self.columns).astype(np.float32)
        return found * np.float32(self.stage.scale) + np.float32(self.stage.offset)

    def push(self, rows: np.ndarray) -> None:
        """New rows come last; the oldest ones go."""
        self.rows = np.concatenate([self.rows, rows.reshape(-1, self.width)])[-self.stage.window :]


class Cascade:
    """The networks of a demo, from one frame of samples to one score."""

    def __init__(self, demo: SoundDemo, runners: Sequence[Runner]) -> None:
        """Make them ready for a new sound."""
        self._demo = demo
        self._stages = [_Listening(stage, runner) for stage, runner in zip(demo.stages, runners, strict=True)]
        for before, after in zip(self._stages, self._stages[1:], strict=False):
            if before.columns != after.width:
                raise InputError(
                    f"{after.stage.model} does not suit the demo",
                    why=f"it takes rows of {after.width} values, {before.stage.model} gives rows of {before.columns}",
                )
        last = self._stages[-1]
        if math.prod(last.output.shape) != 1 or self._stages[0].width != 1:
            raise InputError(
                f"{last.stage.model} does not suit the demo",
                why=f"its output {last.output.name!r} is {shown(last.output.shape)}, not one score",
            )
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
        """Fill the windows that begin with what silence gives: where all rows are silent, each gives the last one."""
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
        raise InputError(
            f"{stage.model} does not suit the demo", why=f"it has not one {what} beside its state: {names}"
        )
    return found[0]
