"""Recurrent layers as one function that holds the loop over time.

Written out step by step, a network would grow with the length of its sequences; one function for each step would be
called, and its tensors allocated, hundreds of times. Here a step is a loop over tiles of units: the products of all
gates of a tile are summed up in registers, and the activations are computed there, without a tensor in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812
from typing_extensions import override

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.operators.builder import function, in_vectors, lanes_of, vectors
from edgedeploy.compile.operators.recurrence import RECURRENCE_ATTRIBUTE, Recurrence
from edgedeploy.compile.tiles import Tile
from edgedeploy.target.board import Positive


class LoopTile(Configuration):
    """The sums that are in registers at the same time."""

    form: Literal["recurrence"] = "recurrence"
    rows: Positive = 1  # sequences of the batch, a divisor of it
    units: Positive = 1  # of the state, for each gate
    lanes: Positive = 1  # values in a vector, a power of two

    @property
    @override
    def register_tile(self) -> Tile:
        return Tile(1, self.rows, self.units)

    def __str__(self) -> str:
        return f"{self.rows} sequences x {self.units} units"


def called(builder: relax.BlockBuilder, layer: Recurrence, tensors: Mapping[str, relax.Expr]) -> list[relax.Expr]:
    """Add the layer's function, with plain loops, to a module, and call it with its `inputs`; returns its `outputs`."""
    cell = builder.add_func(write(layer, LoopTile(), packed=False), layer.cell)
    arguments = relax.Tuple([tensors[each.name] for each in layer.inputs])
    results = [relax.TensorType(each.shape, each.dtype) for each in layer.outputs]
    computed = builder.emit(relax.call_tir(cell, arguments, results))
    return [builder.normalize(relax.TupleGetItem(computed, index)) for index in range(len(results))]


def pack(layer: Recurrence, tile: LoopTile, weights: np.ndarray) -> np.ndarray:
    """Weights of the state, (directions, terms, gates, units), by phases, tiles and terms: (directions, the rest)."""
    parts = [
        weights[:, :, list(phase), first : first + tile.units].reshape(layer.directions, -1)
        for phase in layer.phases
        for first in range(0, layer.hidden, tile.units)
    ]
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def write(layer: Recurrence, tile: LoopTile, *, packed: bool, parallel: bool = False) -> tirx.PrimFunc:
    """The function of a layer; weights may be `packed` by `pack`, and directions and tiles of sequences `parallel`."""
    groups, inputs = layer.batch // tile.rows, layer.inputs
    if packed:  # the second input
        inputs[1] = inputs[1]._replace(shape=(layer.directions, layer.gates * layer.hidden**2))

    def write_task(tensors: dict[str, Any], task: Any) -> None:
        _Task(layer, tile, packed, tensors, task // groups, task % groups * tile.rows).write()

    described, tasks = (RECURRENCE_ATTRIBUTE, layer), layer.directions * groups
    return function(layer.cell, described, inputs, layer.outputs, tasks, write_task, parallel=parallel)


@dataclass
class _Task:
    """Some sequences in one direction, from the first step to the last; `row` is the first sequence."""

    layer: Recurrence
    tile: LoopTile
    packed: bool
    tensors: dict[str, Any]
    direction: Any
    row: Any
    states: dict[str, Any] = field(default_factory=dict)  # of the step before
    between: dict[str, Any] = field(default_factory=dict)  # results of the first phase for the second

    def write(self) -> None:
        layer = self.layer
        self.states = {name: self._begun(name) for name in ("hidden", "cell") if name in self.tensors}
        self.between = {name: self._buffer() for name in ("update", "reset")} if len(layer.phases) > 1 else {}
        with T.serial(layer.steps) as step:
            if layer.lengths:
                length = tirx.max(tirx.min(self.tensors["lengths"][self.row], layer.steps), 0)  # for any input
                with T.If(step < length):
                    with T.Then():
                        self._step(self._time(step, length))
                    with T.Else():
                        self._store_zeros(step)
            else:
                self._step(self._time(step, layer.steps))
        for name, state in self.states.items():
            self._give_last(self.tensors[f"last_{name}"], state)

    def _buffer(self) -> Any:
        return T.alloc_buffer((self.tile.rows, self.layer.hidden), self.layer.dtype)

    def _begun(self, name: str) -> Any:
        """A state before the first step."""
        state, given = self._buffer(), self.tensors[name]
        self._each(lambda r, unit: T.buffer_store(state, given[self.direction, self.row + r, unit], [r, unit]))
        return state

    def _give_last(self, tensor: Any, state: Any) -> None:
        self._each(lambda r, unit: T.buffer_store(tensor, state[r, unit], [self.direction, self.row + r, unit]))

    def _each(self, body: Callable[[int, Any], None]) -> None:
        """Write `body` for all units of all sequences, by vectors."""
        for r in range(self.tile.rows):
            for unit in in_vectors(self.layer.hidden, self.tile.lanes):
                body(r, unit)

    def _time(self, step: Any, length: Any) -> Any:
        """The place in the sequence that a step computes."""
        if self.layer.backwards == (False, True):
            return step + self.direction * (length - 1 - 2 * step)
        return length - 1 - step if self.layer.backwards[0] else step

    def _store_zeros(self, time: Any) -> None:
        zero, computed = tirx.const(0, self.layer.dtype), self.tensors["states"]
        self._each(lambda r, unit: T.buffer_store(computed, zero, [time, self.direction, self.row + r, unit]))

    def _step(self, time: Any) -> None:
        units = self.tile.units
        whole, rest = divmod(self.layer.hidden, units)
        for number in range(len(self.layer.phases)):
            if whole:
                with T.serial(whole) as index:
                    self._tile(time, number, index * units, units)
            if rest:
                self._tile(time, number, whole * units, rest)
        hidden, states = self.states["hidden"], self.tensors["states"]
        self._each(lambda r, unit: T.buffer_store(hidden, states[time, self.direction, self.row + r, unit], [r, unit]))

    def _tile(self, time: Any, number: int, first: Any, width: int) -> None:
        """The gates of a phase for some units, and the states that follow from them."""
        layer, gates = self.layer, self.layer.phases[number]
        read = self.between["reset"] if number else self.states["hidden"]
        sums = T.alloc_buffer((self.tile.rows, len(gates), width), layer.dtype, scope="local")

        def each(places: range) -> Iterator[tuple[int, int, Any, Any]]:
            """Sequences, places of gates, begins of vectors, and their lanes."""
            for r, place in itertools.product(range(self.tile.rows), places):
                for begin, length in vectors(width, self.tile.lanes):
                    with lanes_of(length) as lane:
                        yield r, place, begin, lane

        for r, place, begin, lane in each(range(len(gates))):
            unit, gate = first + begin + lane, gates[place]
            if layer.reset_after and gate == 2:
                value = self.tensors["bias"][self.direction, unit]
            else:
                value = self.tensors["products"][time, self.row + r, self.direction, gate, unit]
            T.buffer_store(sums, value, [r, place, begin + lane])
        with T.serial(layer.hidden) as term:
            for r, place, begin, lane in each(range(len(gates))):
                index = [r, place, begin + lane]
                weight = self._weight(number, place, gates[place], first, width, term, begin + lane)
                T.buffer_store(sums, sums[tuple(index)] + read[r, term] * weight, index)
        finish = {"lstm": self._lstm, "gru": self._gru, "rnn": self._rnn}[layer.cell]
        for r, _, begin, lane in each(range(1)):
            finish(_Values(sums, r, begin + lane, time, first + begin + lane, number))

    def _weight(self, number: int, place: int, gate: int, first: Any, width: int, term: Any, unit: Any) -> Any:
        layer, weights = self.layer, self.tensors["weights"]
        if not self.packed:
            return weights[self.direction, term, gate, first + unit]
        gates, before = len(layer.phases[number]), sum(map(len, layer.phases[:number])) * layer.hidden**2
        return weights[self.direction, before + (first * layer.hidden + term * width) * gates + place * width + unit]

    def _cut(self, value: Any, clip: float | None) -> Any:
        if clip is None:
            return value
        bound = tirx.const(clip, self.layer.dtype)
        return tirx.max(tirx.min(value, bound), -bound)

    def _gate(self, which: int, value: Any) -> Any:
        """The activation of a gate, of a value that is clipped first."""
        return self._activated(which, self._cut(value, self.layer.clip))

    def _activated(self, which: int, value: Any) -> Any:
        forwards, *other = (activations[which] for activations in self.layer.activations)
        if not other or other[0] == forwards:
            return forwards.of(value)
        return tirx.Select(self.direction == 0, forwards.of(value), other[0].of(value))

    def _lstm(self, at: _Values) -> None:
        cell, peephole = self.states["cell"], self.tensors.get("peepholes")

        def peeped(gate: int) -> Any:
            if peephole is None:
                return at.sum(gate)
            return at.sum(gate) + peephole[self.direction, gate, at.unit] * cell[at.row, at.unit]

        at.put(0, self._gate(0, peeped(0)))
        at.put(2, tirx.const(1, self.layer.dtype) - at.sum(0) if self.layer.coupled else self._gate(0, peeped(2)))
        at.put(3, self._gate(1, at.sum(3)))
        updated = at.sum(2) * cell[at.row, at.unit] + at.sum(0) * at.sum(3)
        T.buffer_store(cell, self._cut(updated, self.layer.cell_clip), [at.row, at.unit])
        at.put(1, self._gate(0, peeped(1)))
        self._give(at, at.sum(1) * self._activated(2, cell[at.row, at.unit]))

    def _gru(self, at: _Values) -> None:
        hidden, one = self.states["hidden"], tirx.const(1, self.layer.dtype)
        if at.number == 0:
            at.put(0, self._gate(0, at.sum(0)))
            at.put(1, self._gate(0, at.sum(1)))
        if self.layer.reset_after:
            product = self.tensors["products"][at.time, self.row + at.row, self.direction, 2, at.unit]
            at.put(2, self._gate(1, product + at.sum(1) * at.sum(2)))
            self._give(at, (one - at.sum(0)) * at.sum(2) + at.sum(0) * hidden[at.row, at.unit])
        elif at.number == 0:
            T.buffer_store(self.between["update"], at.sum(0), [at.row, at.unit])
            T.buffer_store(self.between["reset"], at.sum(1) * hidden[at.row, at.unit], [at.row, at.unit])
        else:
            at.put(0, self._gate(1, at.sum(0)))
            update = self.between["update"][at.row, at.unit]
            self._give(at, (one - update) * at.sum(0) + update * hidden[at.row, at.unit])

    def _rnn(self, at: _Values) -> None:
        self._give(at, self._gate(0, at.sum(0)))

    def _give(self, at: _Values, value: Any) -> None:
        T.buffer_store(self.tensors["states"], value, [at.time, self.direction, self.row + at.row, at.unit])


@dataclass(frozen=True)
class _Values:
    """A vector of units of one sequence at one step, after the products of a phase, by its number."""

    sums: Any  # of the tile, which activations replace
    row: int
    place: Any  # in the sums
    time: Any
    unit: Any  # in the state
    number: int

    def sum(self, gate: int) -> Any:
        return self.sums[self.row, gate, self.place]

    def put(self, gate: int, value: Any) -> None:
        T.buffer_store(self.sums, value, [self.row, gate, self.place])
