"""Inferences in sequence, of networks with a state that is an output and the next inference's input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Tensors, TensorSpec, shown
from edgedeploy.runtime.opening import Runner

# For each input, the output that is its next value.
States = Mapping[str, str]


def parse_states(options: Sequence[str]) -> dict[str, str]:
    """The values of `--state`, `OUTPUT=INPUT` each, as outputs by input."""
    states: dict[str, str] = {}
    for option in options:
        output, _, name = option.partition("=")
        if not output or not name:
            raise InputError(f"{option!r} is not a state", hints=["write it as OUTPUT=INPUT"])
        if name in states:
            raise InputError(f"input {name!r} is the state of two outputs", why=f"{states[name]!r} and {output!r}")
        states[name] = output
    return states


def check_states(states: States, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Refuse states that a network does not have."""
    if states and any(size < 0 for spec in outputs for size in spec.shape):
        raise InputError("inferences cannot follow one another", why="the size of an output depends on the data")
    taken, given = ({spec.name: spec for spec in specs} for specs in (inputs, outputs))
    for name, output in states.items():
        for what, wanted, known in (("output", output, given), ("input", name, taken)):
            if wanted not in known:
                raise InputError(f"there is no {what} {wanted!r}", why=f"the network's {what}s: {', '.join(known)}")
        after, before = given[output], taken[name]
        if (after.shape, after.dtype) != (before.shape, before.dtype):
            raise InputError(
                f"output {output!r} cannot be input {name!r}",
                why=f"{shown(after.shape)} of {after.dtype} is not {shown(before.shape)} of {before.dtype}",
            )


def inferences(
    tensors: Tensors, inputs: Sequence[TensorSpec], states: States, steps: int | None = None
) -> list[dict[str, np.ndarray]]:
    """The tensors for each inference; the first one also gets the states, zeros by default.

    A tensor with an additional first axis has a value for each inference. `steps` is their number; None for the number
    of values, or one. Later inferences take the states from the one before.
    """
    axes = {spec.name: len(spec.shape) for spec in inputs if spec.name not in states}
    series = {name: array for name, array in tensors.items() if name in axes and array.ndim == axes[name] + 1}
    counts = {name: len(array) for name, array in series.items()}
    if steps is not None:
        counts["--steps"] = steps
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise InputError(
            "the number of inferences is not clear",
            why=", ".join(f"{name}: {count}" for name, count in counts.items()),
            hints=["give each input the same number of values, along a first axis, or one value without that axis"],
        )
    count = next(iter(counts.values()), 1)
    constant = {name: array for name, array in tensors.items() if name not in series and name not in states}
    given = [{**constant, **{name: array[step] for name, array in series.items()}} for step in range(count)]
    begun = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in inputs if spec.name in states}
    given[0] |= begun | {name: array for name, array in tensors.items() if name in states}
    return given


def run_in_turn(runner: Runner, given: Sequence[Tensors], states: States) -> dict[str, np.ndarray]:
    """Run inferences in order; outputs by name, with all inferences along a new first axis."""
    found: list[dict[str, np.ndarray]] = []
    for tensors in given:
        state = {name: found[-1][output] for name, output in states.items()} if found else {}
        found.append(runner.run({**tensors, **state}))
    return {name: np.stack([each[name] for each in found]) for name in found[0]}
