"""What every inference engine looks like to a benchmark."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedeploy.extras import is_installed
from edgedeploy.runtime.interface import Runner
from edgedeploy.workers import WorkerError

# What runs a network unless an engine says otherwise.
CPU = "CPU"

# By name of each function or operator as the engine calls them: of what kind it is, and the time of its calls in each
# of some inferences, in ms.
Profile = dict[str, tuple[str, list[float]]]
# The same of one inference.
Once = Mapping[str, tuple[str, float]]


@dataclass(frozen=True)
class Task:
    """One network to run, the same for every engine.

    Attributes:
        file: the network's file, with fixed shapes.
        package: edgedeploy's package of the same network.
        inputs: one array for each input, by name, in the network's order.
        outputs: the names of the outputs, in the network's order.
        threads: how many threads to use, the calling one among them.
        folder: an empty folder for converted files.
        accelerated: whether edgedeploy runs on another device than the processor: then engines that know graphics
            processors take one too, if there is one.
        batch: how many inferences one call makes, if that was asked for: the first dimension of every input.
        converted: what the engine's `convert` wrote, if it has one.
    """

    file: Path
    package: Path
    inputs: dict[str, np.ndarray]
    outputs: list[str]
    threads: int
    folder: Path
    accelerated: bool = False
    batch: int = 1
    converted: Path | None = None


@dataclass(frozen=True)
class Loaded:
    """A network that an engine has ready, its inputs in place.

    Attributes:
        run: one inference, from inputs to outputs in the processor's memory, complete when it returns. This is what
            is timed: no copies of inputs or outputs beyond what the engine cannot do without.
        outputs: the outputs of the last inference as arrays by name. An engine that has no dimension for the
            batch may leave out dimensions of size one.
        device: what runs the network.
        kernel_seconds: what the kernels of the last inference took by the device's own clock, summed; None where
            nothing tells.
        compile_s: of the time that loading took, what a compiler took that another run would have to wait for again.
    """

    run: Callable[[], None]
    outputs: Callable[[], dict[str, np.ndarray]]
    device: str = CPU
    kernel_seconds: Callable[[], float] | None = None
    compile_s: float | None = None


@dataclass(frozen=True)
class Engine:
    """An inference engine; nothing of it is imported before `load` is called, in the engine's own process.

    Attributes:
        name: what the command line calls it.
        module: the Python module that it is used through.
        distribution: the Python package that provides the module.
        suffix: the suffix of the files that it reads or converts.
        load: makes a network ready to run. Whatever it raises means that the engine cannot run the network.
        convert: writes the network in the engine's own form, into the task's folder, in files whose names begin alike;
            one of them is returned. None where the engine reads the network's file.
        extra: the optional dependencies of edgedeploy that it belongs to.
        lack: says what it needs and this machine has not, such as a graphics processor; None if it needs nothing.
        by_default: whether it is measured where no engine is named.
        profile: times a number of inferences by function or operator, in a network that is made ready for that; None
            where the engine does not tell.
        imports: what else `load` imports, so that it is no part of the time that loading a network takes.
    """

    name: str
    module: str
    distribution: str
    suffix: str
    load: Callable[[Task], Loaded]
    convert: Callable[[Task], Path] | None = None
    extra: str = "bench"
    lack: Callable[[], str | None] | None = None
    imports: tuple[str, ...] = ()
    by_default: bool = True
    profile: Callable[[Task, int], Profile] | None = None

    def installed(self) -> bool:
        """Whether the engine's Python package is here."""
        try:
            return is_installed(self.module) and bool(self.version())
        except importlib.metadata.PackageNotFoundError:
            return False  # another package has a module of this name

    def absence(self) -> str | None:
        """Why it is left out everywhere, None if it can be asked: for people."""
        if self.lack and (reason := self.lack()):
            return reason
        if self.installed():
            return None
        return f"it is not installed; `pip install 'edgedeploy[{self.extra}]'` installs it"

    def version(self) -> str:
        """The version of the engine's Python package."""
        return importlib.metadata.version(self.distribution)


def profile_of(once: Callable[[], Once], count: int) -> Profile:
    """The profile of `count` inferences, each of which `once` runs and times; one before them warms up."""
    once()
    found: Profile = {}
    for _ in range(count):
        for name, (kind, milliseconds) in once().items():
            found.setdefault(name, (kind, []))[1].append(milliseconds)
    return found


def profile_of_functions(runner: Runner, inputs: Mapping[str, np.ndarray], count: int) -> Profile:
    """The same of a package's functions: of what kind they are stands in the package."""
    times = runner.function_times(inputs, repeat=count, warmup=1)
    return {name: ("", each) for name, each in times.items()}


def files_of(network: Path) -> list[Path]:
    """All files of a network: those that a converter wrote lie beside each other under the same name."""
    stem = network.with_suffix("").name
    return [path for path in sorted(network.parent.iterdir()) if path.name.startswith(f"{stem}.")]


class CannotRunError(WorkerError):
    """An engine cannot run a network, for a reason that the engine's module knows how to say."""


class NotHereError(CannotRunError):
    """What an engine needs to run or convert a network is not installed."""
