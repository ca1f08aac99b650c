"""Tasks: the functions of a network that can be computed in several ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm

from edgedeploy.board import Board
from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.expressions import call_counts
from edgedeploy.compile.groups import Group
from edgedeploy.compile.packing import constant_parameters
from edgedeploy.compile.pipeline import Optimised, optimise
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.tuned import workload_of
from edgedeploy.errors import InputError
from edgedeploy.network import Network
from edgedeploy.tune.database import workload_hash


@dataclass(frozen=True)
class Task:
    """A function of a network.

    Attributes:
        number: what `--tasks` calls it.
        names: of the functions of the network that are this one.
        workload: the function as records know it.
        weight: how often one inference runs it.
        processor: that it runs on.
        group: its layer and what is fused with it; None if it has no layer.
        packable: parameters, by index, that are constants.
    """

    number: int
    names: tuple[str, ...]
    workload: tvm.IRModule
    weight: int
    processor: Backend
    group: Group | None
    packable: frozenset[int]

    @property
    def name(self) -> str:
        """What the task is called."""
        return self.names[0]

    @cached_property
    def key(self) -> str:
        """The hash that names the workload in records."""
        return workload_hash(self.workload)

    @cached_property
    def candidates(self) -> list[Configuration]:
        """The templates' space, the untuned default first; empty for a function without a layer."""
        if self.group is None:
            return []
        return list(dict.fromkeys([self.strategy.default(), *self.strategy.candidates()]))

    @cached_property
    def strategy(self) -> Strategy[Any]:
        """The ways to compute the layer; only tasks with one are asked."""
        assert self.group is not None
        return self.processor.strategy(self.group.layer)

    @cached_property
    def mflop(self) -> float:
        """Millions of arithmetic operations of one call; a multiply-add is two."""
        return self.group.layer.operations / 1e6 if self.group else 0.0

    def scheduled(self, configuration: Configuration | None) -> tvm.tirx.PrimFunc:
        """The function with its layer in a configuration, or with none as a build without records has it."""
        if self.group is None:
            scheduled = self.processor.schedule(self.workload["main"], set(self.packable))
            assert scheduled is not None, "only layers are tuned on devices"
            return scheduled.function
        chosen = configuration or self.candidates[0]
        return self.processor.configured(self.group, chosen, set(self.packable)).function


def tasks_of(network: Network, board: Board) -> list[Task]:
    """The tasks of the templates' space, those with the most work first.

    Raises:
        CompileError: as `compile_network`.
    """
    return _tasks(optimise(network, board), board, layers_only=True)


def all_tasks_of(network: Network, board: Board) -> list[Task]:
    """The tasks of MetaSchedule's space, which has schedules for any function.

    Raises:
        CompileError: as `compile_network`.
    """
    return _tasks(optimise(network, board), board, layers_only=False)


def _tasks(network: Optimised, board: Board, *, layers_only: bool) -> list[Task]:
    constants, counts = constant_parameters(network.module), call_counts(network.module)
    processor = backend_of(board)
    found: dict[str, Task] = {}
    for name, function in network.functions.items():
        group = network.groups.get(name)
        if (group is None and layers_only) or name in network.on_cpu:  # beside a device, it does what is soon done
            continue
        packable = frozenset(constants.get(name, ()))
        task = Task(0, (name,), workload_of(function), counts[name], processor, group, packable)
        if same := found.get(task.key):
            task = replace(same, names=(*same.names, name), weight=same.weight + counts[name])
        found[task.key] = task
    ordered = sorted(found.values(), key=lambda task: (-task.mflop * task.weight, task.name))
    return [replace(task, number=number) for number, task in enumerate(ordered)]


def selected(tasks: list[Task], chosen: str) -> list[Task]:
    """The tasks that `all`, or numbers and ranges such as `0,2,3-5`, name.

    Raises:
        InputError: it has another form, or names a task that there is not.
    """
    if chosen == "all":
        return tasks
    numbers = set()
    for part in chosen.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            wanted = range(int(first), int(last if dash else first) + 1)
            if len(wanted) > len(tasks):  # before a set of them is made
                raise ValueError
            numbers |= set(wanted)
        except ValueError:
            numbers = set()
            break
    if not numbers or not numbers <= set(range(len(tasks))):
        raise InputError(
            f"{chosen!r} names no tasks",
            why=f"there are {len(tasks)}, from 0 to {len(tasks) - 1}" if tasks else "there are none",
            hints=["write all, or numbers and ranges such as 0,2,3-5", "see them with --tasks list"],
        )
    return [task for task in tasks if task.number in numbers]
