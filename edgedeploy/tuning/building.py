"""Candidates become machine code: each in a worker process, those of a batch in one library for the board.

Candidates for a device with its own runtime become a library each: its driver compiles all kernels of a library
together, and refuses them together.
"""

from __future__ import annotations

import itertools
import math
import queue
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.base.closing import Closing
from edgedeploy.base.files import writing
from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.compile.ir.types import bytes_of
from edgedeploy.compile.native import MEASURING, THREAD_POOL
from edgedeploy.errors import ToolchainError
from edgedeploy.runtime.session import processors
from edgedeploy.target.board import Board
from edgedeploy.target.toolchain import link_shared

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

# If less space is left, that is why a build failed: LLVM ends its process when it cannot write.
_SPACE_BYTES = 4 << 20


@dataclass(frozen=True)
class Argument:
    """A tensor that a function takes."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """The size of its values."""
        return math.prod(self.shape) * bytes_of(self.dtype)


@dataclass(frozen=True)
class Entry:
    """A candidate of a batch: its function's name and arguments, inputs first, and its library, or why it failed."""

    name: str
    arguments: tuple[Argument, ...]
    error: str | None = None
    library: Path | None = None


@dataclass(frozen=True)
class Batch:
    """Candidates that were built together, in their order."""

    entries: list[Entry]

    @property
    def libraries(self) -> list[Path]:
        """The libraries of all candidates that could be built."""
        return list(dict.fromkeys(entry.library for entry in self.entries if entry.library))

    def remove(self) -> None:
        """Remove the libraries."""
        for library in self.libraries:
            library.unlink(missing_ok=True)


class WorkerPool(Closing):
    """Worker processes with a thread for each and a temporary folder, which end with it."""

    def __init__(self, prepare: Callable[[], object], count: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="edgedeploy-tune-"))
        self._workers = [Worker(prepare, self._folder / f"worker{number}.txt") for number in range(count)]
        self._threads = ThreadPoolExecutor(count)

    def start(self) -> None:
        """Start the processes, which takes seconds, so that the first batch does not wait for them."""
        list(self._threads.map(Worker.start, self._workers))

    def close(self) -> None:
        """End the processes and remove the folder."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)


class Builder(WorkerPool):
    """Builds candidates as builds of packages do; a context manager that ends its processes."""

    def __init__(self, board: Board, timeout_s: float = 120, workers: int | None = None) -> None:
        """Prepare processes, by default one for each processor; one candidate may take `timeout_s`."""
        super().__init__(_prepare, workers or processors())
        self._board, self._timeout_s = board, timeout_s
        self._batches = 0
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def build(self, functions: Iterable[PrimFunc]) -> Batch:
        """Build scheduled functions, whose arguments are tensors of fixed shapes.

        Functions may be scheduled while others are built. One that cannot be built becomes an entry with an error.
        """
        self._batches += 1
        names = (f"candidate{self._batches}_{index}" for index in itertools.count())
        try:
            entries = list(self._threads.map(self._entry, functions, names))
            built = [entry for entry in entries if entry.error is None]
            if len(built) < len(entries):
                self._require_space()
            return Batch(self._linked(entries, built))
        finally:
            for path in self._folder.glob(f"candidate{self._batches}_*"):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)

    def _entry(self, function: PrimFunc, name: str) -> Entry:
        try:
            arguments = tuple(_arguments(function))
        except ValueError as error:
            return Entry(name, (), str(error))
        worker = self._idle.get()
        try:
            worker.call(_write_objects, function, name, self._board, self._folder / name, timeout_s=self._timeout_s)
        except WorkerError as error:
            return Entry(name, arguments, f"the compiler failed: {error}")
        finally:
            self._idle.put(worker)
        return Entry(name, arguments)

    def _linked(self, entries: list[Entry], built: list[Entry]) -> list[Entry]:
        shares = [[entry] for entry in built] if self._board.accelerator else [built] if built else []
        libraries: dict[str, Path] = {}
        try:
            for share, library in zip(shares, self._threads.map(self._library, shares), strict=True):
                libraries |= {entry.name: library for entry in share}
        except ToolchainError:
            self._require_space()
            raise
        return [replace(entry, library=libraries.get(entry.name)) for entry in entries]

    def _library(self, share: list[Entry]) -> Path:
        objects = [path for entry in share for path in sorted((self._folder / entry.name).glob("*.o"))]
        library = self._folder / f"{share[0].name}.so"
        link_shared([*objects, *([] if self._board.accelerator else [THREAD_POOL, MEASURING])], library, self._board)
        return library

    def _require_space(self) -> None:
        """Raise an error if the disk is full, which may be why something else failed."""
        with writing(self._folder), tempfile.TemporaryFile(dir=self._folder) as stream:
            stream.write(bytes(_SPACE_BYTES))


def _arguments(function: PrimFunc) -> list[Argument]:
    from tvm.tirx.buffer import BufferType

    arguments = []
    for parameter in function.params:
        if not isinstance(parameter.ty, BufferType):
            raise ValueError(f"parameter {parameter} is not a tensor")
        try:
            shape = tuple(int(size) for size in parameter.ty.shape)
        except TypeError as error:
            raise ValueError(f"the shape of tensor {parameter} is not fixed: {parameter.ty.shape}") from error
        arguments.append(Argument(shape, str(parameter.ty.dtype)))
    return arguments


def _prepare() -> None:
    """Import the slow modules of a worker, at the expense of no candidate."""
    import edgedeploy.compile.backends  # noqa: F401


def _write_objects(function: PrimFunc, name: str, board: Board, folder: Path) -> None:
    """In a worker: the object files of one candidate, in a new folder."""
    import tvm

    from edgedeploy.compile.backends import backend_of

    folder.mkdir()
    backend_of(board).write_objects(tvm.IRModule({name: function.with_attr("global_symbol", name)}), folder)
