"""Tasks: the functions of a network that can be computed in several ways."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm

from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends import backend_of, known_configuration
from edgedeploy.compile.configuration import Configuration, workload_hash, workload_of
from edgedeploy.compile.ir.expressions import call_counts
from edgedeploy.compile.output.packing import constant_parameters
from edgedeploy.compile.passes.fusion import FusedFunction
from edgedeploy.compile.pipeline import optimise
from edgedeploy.compile.strategy import Strategy
from edgedeploy.errors import InputError
from edgedeploy.model.network import Network
from edgedeploy.records.schema import Trial
from edgedeploy.target.board import Board


@dataclass(frozen=True)
class Task:
    """A function of a network."""

    number: int  # its name for `--tasks`
    names: tuple[str, ...]  # of the functions of the network that are equal to this one
    workload: tvm.IRModule
    weight: int  # how often one inference runs it
    processor: Backend
    group: FusedFunction  # its layer and the operators that are fused with it
    packable: frozenset[int]  # parameters, by index, that are constants

    @property
    def name(self) -> str:
        """The task's name."""
        return self.names[0]

    @property
    def identity(self) -> dict[str, Any]:
        """Number, name, workload and weight, as events have them."""
        return {"number": self.number, "name": self.name, "workload": self.key, "weight": self.weight}

    @cached_property
    def key(self) -> str:
        """The hash that names the workload in records."""
        return workload_hash(self.workload)

    @cached_property
    def candidates(self) -> list[Configuration]:
        """The configurations of its layer, the untuned default first."""
        return list(dict.fromkeys([self.strategy.default(), *self.strategy.candidates()]))

    @cached_property
    def strategy(self) -> Strategy[Any]:
        """The ways to compute the layer."""
        return self.processor.strategy(self.group.layer)

    @cached_property
    def mflop(self) -> float:
        """Millions of arithmetic operations of one call; a multiply-add is two."""
        return self.group.layer.operations / 1e6

    def measured(self, trials: Iterable[Trial]) -> list[tuple[Configuration, Trial]]:
        """Trials with their configurations, but for forms that the processor does not know."""
        found = ((known_configuration(trial.configuration), trial) for trial in trials)
        return [(each, trial) for each, trial in found if isinstance(each, self.processor.forms)]

    def scheduled(self, configuration: Configuration) -> tvm.tirx.PrimFunc:
        """The function with its layer in a configuration."""
        return self.processor.configured(self.group, configuration, set(self.packable)).function


def tasks_of(network: Network, board: Board) -> list[Task]:
    """The functions of a network that have a layer, those with the most work first."""
    optimised = optimise(network, board)
    constants, counts = constant_parameters(optimised.module), call_counts(optimised.module)
    processor = backend_of(board)
    found: dict[str, Task] = {}
    for name, function in optimised.functions.items():
        group = optimised.groups.get(name)
        if group is None or name in optimised.on_cpu:  # next to a device, the CPU runs small functions
            continue
        packable = frozenset(constants.get(name, ()))
        task = Task(0, (name,), workload_of(function), counts[name], processor, group, packable)
        if same := found.get(task.key):
            task = replace(same, names=(*same.names, name), weight=same.weight + counts[name])
        found[task.key] = task
    ordered = sorted(found.values(), key=lambda task: (-task.mflop * task.weight, task.name))
    return [replace(task, number=number) for number, task in enumerate(ordered)]


def selected(tasks: list[Task], chosen: str) -> list[Task]:
    """The tasks that `all`, or numbers and ranges such as `0,2,3-5`, name."""
    if chosen == "all":
        return tasks
    numbers = set()
    for part in chosen.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            wanted = range(int(first), int(last if dash else first) + 1)
            if len(wanted) > len(tasks):  # before a huge set is built
                raise ValueError
            numbers |= set(wanted)
        except ValueError:
            numbers = set()
            break
    if not numbers or not numbers <= set(range(len(tasks))):
        raise InputError(
            f"{chosen!r} names no tasks",
            why=f"there are {len(tasks)}, from 0 to {len(tasks) - 1}" if tasks else "the network has none",
            hints=["write all, or numbers and ranges such as 0,2,3-5", "see them with --tasks list"],
        )
    return [task for task in tasks if task.number in numbers]
