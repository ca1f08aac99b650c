"""The interface of inference engines to a benchmark."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from edgedeploy.base.extras import is_installed
from edgedeploy.base.workers import WorkerError
from edgedeploy.runtime.opening import Runner

# The device of a network unless an engine names another one.
CPU = "CPU"

# By name of each function or operator in the engine: its type, and its time in each of some inferences, in ms.
Profile = dict[str, tuple[str, list[float]]]
# The same of one inference.
Once = Mapping[str, tuple[str, float]]


@dataclass(frozen=True)
class Task:
    """One network to run, the same for every engine."""

    file: Path
    package: Path
    inputs: dict[str, np.ndarray]  # one array for each input, by name, in the network's order
    outputs: list[str]  # the names of the outputs, in the network's order
    threads: int  # how many threads to use, the calling one among them
    folder: Path  # an empty folder for converted files
    # Whether edgedeploy runs on another device than the processor: then engines that know graphics processors take one
    # too, if there is one
    accelerated: bool = False
    batch: int = 1  # how many inferences one call makes, if requested: the first dimension of every input
    converted: Path | None = None  # the file that the engine's `convert` wrote, if it has one

    @property
    def network(self) -> Path:
        """The network's file in the engine's own form."""
        return self.converted or self.file

    @property
    def files(self) -> list[Path]:
        """All files of that: converters write them next to each other under the same name."""
        if self.converted is None:
            return [self.file]
        return sorted(self.converted.parent.glob(f"{self.converted.stem}.*"))

    @property
    def size_bytes(self) -> int:
        """The size of these files."""
        return sum(path.stat().st_size for path in self.files)

    def write_arguments(self) -> tuple[Path, Path]:
        """Write the files INPUTS and NAMES of `engine_program` into the folder."""
        inputs, names = self.folder / "inputs.npz", self.folder / "names.json"
        np.savez(inputs, *self.inputs.values())
        names.write_text(json.dumps({"inputs": list(self.inputs), "outputs": self.outputs}), encoding="utf-8")
        return inputs, names


@dataclass(frozen=True)
class Loaded:
    """A network that an engine has loaded, its inputs in place."""

    # One inference, from inputs to outputs in the processor's memory, complete when it returns. This is what is timed:
    # no copies of inputs or outputs that the engine can do without.
    run: Callable[[], object]
    # The outputs of the last inference as arrays by name. An engine that has no dimension for the batch may leave out
    # dimensions of size one.
    outputs: Callable[[], dict[str, np.ndarray]]
    device: str = CPU  # the name of the device that runs the network
    # The sum of the times of the last inference's kernels by the device's own clock; None if the engine does not
    # measure it
    kernel_seconds: Callable[[], float] | None = None
    # The part of the loading time that a compiler took, and would take again in another run
    compile_s: float | None = None


@dataclass(frozen=True)
class Engine:
    """An inference engine, imported only when `load` is called, in a process of its own."""

    name: str
    module: str
    distribution: str  # the Python package that provides the module
    suffix: str  # the suffix of the files that it reads or converts
    # Makes a network ready to run. Any exception means that the engine cannot run the network.
    load: Callable[[Task], Loaded]
    # Writes the network in the engine's own form, into the task's folder, in files whose names begin alike; one of them
    # is returned. None if the engine reads the network's file.
    convert: Callable[[Task], Path] | None = None
    extra: str = "bench"  # the optional dependencies of edgedeploy that it belongs to
    # Returns what this machine lacks for it, such as a graphics processor; None if nothing
    lack: Callable[[], str | None] | None = None
    # What else `load` imports, which is not part of the time that loading a network takes
    imports: tuple[str, ...] = ()
    by_default: bool = True
    # Times a number of inferences by function or operator, in a network that is loaded for that; None if the engine
    # does not support it
    profile: Callable[[Task, int], Profile] | None = None

    def installed(self) -> bool:
        """Whether the engine's Python package is installed."""
        try:
            return is_installed(self.module) and bool(self.version())
        except importlib.metadata.PackageNotFoundError:
            return False  # another package has a module of this name

    def absence(self) -> str | None:
        """Why it cannot run here, for people; None if it can."""
        if self.lack and (reason := self.lack()):
            return reason
        if self.installed():
            return None
        return f"it is not installed; `pip install 'edgedeploy[{self.extra}]'` installs it"

    def converted(self, task: Task) -> tuple[Task, float | None]:
        """The task with the network in the engine's own form, and the time of the conversion in seconds, if any."""
        if self.convert is None:
            return task, None
        started = perf_counter()
        return replace(task, converted=self.convert(task)), perf_counter() - started

    def version(self) -> str:
        """The version of the engine's Python package."""
        return importlib.metadata.version(self.distribution)


def profile_of(once: Callable[[], Once], count: int) -> Profile:
    """The profile of `count` inferences, which `once` runs and times one by one; one before them warms up."""
    once()
    found: Profile = {}
    for _ in range(count):
        for name, (kind, milliseconds) in once().items():
            found.setdefault(name, (kind, []))[1].append(milliseconds)
    return found


def profile_of_functions(runner: Runner, inputs: Mapping[str, np.ndarray], count: int) -> Profile:
    """The same of a package's functions, without their types, which the package states."""
    times = runner.function_times(inputs, repeat=count, warmup=1)
    return {name: ("", each) for name, each in times.items()}


class CannotRunError(WorkerError):
    """An engine cannot run a network, with the reason as the engine's module words it."""


class NotHereError(CannotRunError):
    """A program that an engine needs to run or convert a network is not installed."""
