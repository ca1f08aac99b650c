"""Packages that run in this process, on TVM's virtual machine."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from pathlib import Path
from time import perf_counter
from timeit import timeit
from typing import Any

import numpy as np

from edgedeploy.agent.edgedeploy_runtime import convert
from edgedeploy.compile.native import INPUT_ERROR, SET_THREADS
from edgedeploy.errors import DeviceError, InputError, PackageError, last_line
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import Tensors, TensorSpec, shown
from edgedeploy.package.abi import misfits
from edgedeploy.package.archive import read_manifest, read_package, read_tails, weights_of
from edgedeploy.package.manifest import LIBRARY_NAME, TRANSFORM, Abi, Manifest
from edgedeploy.runtime.subnormals import flushed_to_zero
from edgedeploy.runtime.timing import Timing
from edgedeploy.target.devices import KINDS, runtime_of
from edgedeploy.target.facts import Facts
from edgedeploy.target.hosts import host_facts, host_features


class Session:
    """A `Runner` in this process, with its own threads."""

    def __init__(
        self,
        manifest: Manifest,
        library: bytes,  # the content of its shared library
        threads: int | None = None,  # the manifest's if None
        *,
        weights: Sequence[np.ndarray] = (),  # the arrays that the library transforms at load, in the manifest's order
        # For each entry of the manifest, the part after the library's; outputs are the tail's
        tails: Sequence[Tail | None] = (),
        name: str | Path = "the package",
    ) -> None:
        """Load the library of a package, called `name` in messages."""
        import tvm

        self._owner: Session | None = None
        self._whole, self._tails = manifest, tails or [None] * len(manifest.entries)
        self._enter(0)
        self.threads = check_threads(threads) if threads else min(self.manifest.threads, processors())
        check_machine(name, manifest)
        with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
            path = Path(folder) / LIBRARY_NAME
            path.write_bytes(library)
            device = manifest.device
            self._device = tvm.cpu() if device is None else _runtime_of(manifest).device_named(device)
            self._library, self._machine, set_threads = _load(name, path, self._device)
        set_threads(self.threads)
        self._transformed = self._transform(name, weights)
        # TVM never unloads libraries: the threads would outlive their session.
        weakref.finalize(self, set_threads, 1)

    @classmethod
    def open(cls, package: Path, threads: int | None = None) -> Session:
        """Load a package from its archive."""
        members = [LIBRARY_NAME, *(spec.name for spec in read_manifest(package).transformed)]
        manifest, contents = read_package(package, keep=members)
        weights, tails = weights_of(manifest, contents), read_tails(package)
        return cls(manifest, contents[LIBRARY_NAME], threads, weights=weights, tails=tails, name=package)

    def _transform(self, name: str | Path, weights: Sequence[np.ndarray]) -> list[Any]:
        """Transform the weights: the network's arguments after its inputs, which all entries share."""
        import tvm

        if not weights:
            return []
        try:
            with flushed_to_zero():
                return list(self._machine[TRANSFORM](*(tvm.runtime.tensor(array) for array in weights)))
        except Exception as error:
            raise PackageError(f"{name} cannot be loaded", why=last_line(error)) from error

    def _enter(self, place: int) -> None:
        """Become the session of one entry of the package."""
        entry, self._tail = self._whole.entries[place], self._tails[place]
        self.manifest = self._whole.of_entry(entry)
        self.inputs: list[TensorSpec] = entry.inputs
        self.outputs: list[TensorSpec] = entry.results
        self._function = entry.function

    def of_each_entry(self) -> list[Session]:
        """A session for each entry of the package, with one library, its weights and its threads."""
        return [self._of_entry(place) for place in range(len(self._whole.entries))]

    def fitting(self, tensors: Tensors) -> Session:
        """The session of the entry with the shapes of these arrays; this one if it is the only one."""
        if len(self._whole.entries) == 1:
            return self
        return self._of_entry(fitting_entry(tensors, [entry.inputs for entry in self._whole.entries]))

    def _of_entry(self, place: int) -> Session:
        session = copy(self)
        session._enter(place)
        session._owner = self._owner or self  # the threads end with the owner
        return session

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference: arrays by input name, to arrays by output name."""
        fitting = self.fitting(tensors)
        return fitting.read(fitting.bind(tensors)())

    def bind(self, tensors: Tensors) -> Callable[[], Any]:
        """A call that runs one inference on these inputs; `read` turns its return value into arrays.

        It begins and ends in the processor's memory: another device's inputs and outputs are copied each time.
        """
        import tvm

        main, arguments = self._machine[self._function], self._arguments(tensors)
        checked = check_tensors(tensors, self.inputs)
        named = dict(zip((spec.name for spec in self.inputs), checked, strict=True))
        uploads = list(zip(checked, arguments[: len(checked)], strict=True)) if self.device_name else []

        def call() -> Any:
            with _inference():
                for array, place in uploads:
                    place.copyfrom(array)
                returned = main(*arguments)
                here = [array.copyto(tvm.cpu()) for array in _listed(returned)] if self.device_name else returned
            return self._tail.run({**named, **self._arrays(here)}) if self._tail else here

        return call

    def read(self, returned: Any) -> dict[str, np.ndarray]:
        """Arrays by output name, from the return value of a bound call."""
        return returned if self._tail else self._arrays(returned)

    def _arrays(self, returned: Any) -> dict[str, np.ndarray]:
        arrays = _listed(returned)
        if len(arrays) != len(self.manifest.outputs):
            raise PackageError(
                "the package's library does not fit its manifest",
                why=f"it gives {len(arrays)} outputs, the manifest names {len(self.manifest.outputs)}",
            )
        tensors = {}
        for spec, array in zip(self.manifest.outputs, arrays, strict=True):
            tensors[spec.name] = array.numpy()
            if why := spec.misfit(tensors[spec.name]):
                raise PackageError(f"output {spec.name!r} of the package does not fit its manifest", why=why)
        return tensors

    @cached_property
    def device_name(self) -> str | None:
        """The name of the device that runs the network; None for the processor."""
        return None if self.manifest.device is None else str(self._device.device_name)

    def kernel_seconds(self, work: Callable[[], object]) -> float:
        """Call `work`; the time of its kernels on the network's device in seconds, by the device's clock."""
        return float(_runtime_of(self.manifest).kernel_seconds(self._device, work))

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """Run `warmup` times, then time `repeat` groups of `number` inferences, as TVM's `time_evaluator` does.

        The evaluator would use the device's clock, which misses the CPU's part: for devices this is the time until both
        are done. A tail counts.
        """
        main, arguments = self._machine[self._function], self._arguments(tensors)

        def call() -> None:
            main(*arguments)
            self._device.sync()

        with _inference():
            timed: Callable[[], Any] = self.bind(tensors) if self._tail else call
            for _ in range(warmup):
                timed()
            if self._tail or self.device_name is not None:
                return Timing.of_seconds([timeit(timed, number=number) / number for _ in range(repeat)])
            evaluator = self._machine.time_evaluator(self._function, self._device, number=number, repeat=repeat)
            return Timing.of_seconds(list(evaluator(*arguments).results))

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """For each function of the network, by name, the time of its calls in each of `repeat` inferences, in ms."""
        from tvm import relax

        arguments, begun = self._arguments(tensors), 0.0
        sums: dict[str, float] = defaultdict(float)

        def watch(_function: Any, name: str, before: bool, *_rest: Any) -> None:
            nonlocal begun
            self._device.sync()
            if before:
                begun = perf_counter()
            else:
                sums[name] += (perf_counter() - begun) * 1e3

        # On a separate virtual machine: an instrument cannot be removed.
        machine = relax.VirtualMachine(self._library, self._device)
        machine.set_instrument(watch)
        times: dict[str, list[float]] = {}
        with _inference():
            for index in range(warmup + repeat):
                sums.clear()
                machine[self._function](*arguments)
                for name, milliseconds in sums.items() if index >= warmup else ():
                    times.setdefault(name, []).append(milliseconds)
        return times

    def _arguments(self, tensors: Tensors) -> list[Any]:
        import tvm

        checked = check_tensors(tensors, self.inputs)
        return [*(tvm.runtime.tensor(array, device=self._device) for array in checked), *self._transformed]


def fitting_entry(tensors: Tensors, entries: Sequence[list[TensorSpec]]) -> int:
    """The index of the entry whose inputs have the shapes of these arrays."""
    shapes = {name: list(np.shape(array)) for name, array in tensors.items()}
    for place, specs in enumerate(entries):
        if shapes == {spec.name: spec.shape for spec in specs}:
            return place
    if any(shapes.keys() != {spec.name for spec in specs} for specs in entries):
        check_tensors(tensors, entries[0])  # raises: a name is missing or unknown
    stated = "; ".join(", ".join(f"{spec.name} {shown(spec.shape)}" for spec in specs) for specs in entries)
    given = ", ".join(f"{name} {shown(shape)}" for name, shape in shapes.items())
    raise InputError(f"the package has no entry for {given}", why=f"it was built for {stated}")


def check_tensors(tensors: Tensors, specs: list[TensorSpec]) -> list[np.ndarray]:
    """The arrays in the order of `specs`, converted as by `edgedeploy_runtime.convert`."""
    names = [spec.name for spec in specs]
    for what, found in (("unknown", set(tensors) - set(names)), ("missing", set(names) - set(tensors))):
        if found:
            raise InputError(
                f"{what} input {', '.join(map(repr, sorted(found)))}", why=f"the network's inputs: {', '.join(names)}"
            )
    arrays = []
    for spec in specs:
        array = np.asarray(tensors[spec.name])
        if list(array.shape) != spec.shape:
            raise InputError(
                f"input {spec.name!r} has shape {shown(array.shape)}",
                why=f"the network was built for {shown(spec.shape)}",
                hints=[f"build it for another shape: --input-shape {spec.name}:{','.join(map(str, array.shape))}"],
            )
        try:
            arrays.append(convert(spec.name, array, spec.dtype))
        except ValueError as error:
            raise InputError(str(error)) from error
    return arrays


def _runtime_of(manifest: Manifest) -> Any:
    backend = str(manifest.target.get("kind"))
    if backend not in KINDS:
        raise PackageError("the package cannot be run here", why=f"it is for a device of an unknown kind, {backend!r}")
    return runtime_of(backend)


def _load(name: str | Path, library: Path, device: Any) -> tuple[Any, Any, Callable[[int], int]]:
    """Load a library: its module, its virtual machine, and its function that sets the number of threads."""
    import tvm
    import tvm_ffi
    from tvm import relax

    tvm_ffi.register_error(INPUT_ERROR, InputError)
    try:
        module = tvm.runtime.load_module(str(library))
        return module, relax.VirtualMachine(module, device), module.imports[0][SET_THREADS]
    except DeviceError:
        raise
    except Exception as error:
        raise PackageError(f"{name} cannot be loaded", why=last_line(error)) from error


def misfits_here(abi: Abi) -> list[str]:
    """The reasons why code does not run on this machine; empty if it does."""
    from elftools.elf.elffile import ELFFile

    with Path("/proc/self/exe").open("rb") as stream:
        elf = ELFFile(stream)
    facts = {"glibc": host_facts()["glibc"], "features": sorted(host_features())}
    return misfits(abi, Facts(elf_class=elf.elfclass, elf_machine=elf["e_machine"], **facts), "this machine")


def check_machine(name: str | Path, manifest: Manifest) -> None:
    """Refuse packages for other machines, with a clearer message than the loader's."""
    if reasons := misfits_here(manifest.abi):
        raise PackageError(
            f"{name} was built for board {manifest.board!r} and does not run on this machine",
            why="; ".join(reasons),
            hints=["build it for this machine: `edgedeploy build --board local`"],
        )


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def check_threads(threads: int) -> int:
    """The number of threads, if this machine has as many processors."""
    if threads > processors():
        raise InputError(f"{threads} threads were asked for", why=f"there are {processors()} processors")
    return threads


@contextmanager
def _inference() -> Iterator[None]:
    """Call the network; it checks its arguments, which are as the manifest describes."""
    try:
        with flushed_to_zero():
            yield
    except (TypeError, ValueError) as error:
        what = "the package's library takes other inputs than its manifest describes"
        raise PackageError(what, why=last_line(error)) from error


def _listed(returned: Any) -> list[Any]:
    """A network's outputs, which returns one tensor or several."""
    return [returned] if hasattr(returned, "numpy") else list(returned)
