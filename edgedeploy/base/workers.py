"""Worker processes for calls that may crash, hang, disturb others or block the interpreter, one call at a time.

The first call starts a worker, and the next ones reuse it. A call that takes too long is ended with its process group;
the next call starts another process, if that is allowed. A worker ends with its parent, however that ends.
"""

from __future__ import annotations

import atexit
import inspect
import multiprocessing
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from edgedeploy.base.closing import Closing
from edgedeploy.errors import EdgedeployError, last_line, signal_of

# Time limit for starting a process and its imports: usually seconds, but other programs may be busy.
START_S = 900.0

_END_S = 5.0
_MESSAGE_LENGTH = 500


class WorkerError(Exception):
    """A call raised an error, whose last line is the message.

    The worker can still be called; after a failed preparation, in another process. The cause is the error itself if it
    is an `EdgedeployError` or a `WorkerError`.
    """


class WorkerTimeoutError(WorkerError):
    """A call took too long; its process was ended."""


class WorkerCrashError(WorkerError):
    """The process of a call crashed."""


class Worker(Closing):
    """A process that runs functions of modules, one at a time; a context manager that ends it.

    Calls come from one thread at a time; `close` may come from another, and ends the running call.
    """

    def __init__(self, prepare: Callable[[], object], log: Path, *, restarts: bool = True) -> None:
        """Create a worker; the process starts later.

        Args:
            prepare: a function of a module, or a `partial` of one, that each new process runs first: slow imports.
            log: receives the process's output; each new process truncates it. Its folder is the caller's to remove, and
                the worker's if the caller is killed.
            restarts: whether a call may start another process after one ended; otherwise it fails, since the result of
                the preparation is gone.
        """
        self._prepare, self._log, self._restarts = prepare, log, restarts
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._closed = False
        self._starting = threading.Lock()

    def start(self, timeout_s: float = START_S) -> Any:
        """Start the process unless it runs, and wait up to `timeout_s` for the preparation; returns its result."""
        with self._starting:  # so that `close` sees the process
            if self._closed:
                raise _closed()
            if self._process is not None and self._process.is_alive():
                return None
            if self._process is not None and not self._restarts:
                raise self._crashed()
            self._end()
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._prepare, self._log), daemon=True)
            self._process.start()
            theirs.close()
            atexit.register(self.close)  # before multiprocessing ends the process, but not its children
        try:
            return self._receive(timeout_s)[1]
        except WorkerError:
            self._end()
            raise

    def call(self, function: Callable[..., Any], *arguments: Any, timeout_s: float | None) -> Any:
        """The result of a function of a module, with arguments that can be pickled; None waits forever."""
        self._send(function, arguments)
        return self._receive(timeout_s)[1]

    def stream(self, function: Callable[..., Iterator[Any]], *arguments: Any, timeout_s: float) -> Iterator[Any]:
        """The items of a generator, as they come; each may take `timeout_s`."""
        self._send(function, arguments)
        try:
            while (answer := self._receive(timeout_s))[0] == "item":
                yield answer[1]
        except GeneratorExit:
            self._end()
            raise

    def close(self) -> None:
        """End the process."""
        with self._starting:
            self._closed = True
            self._end()

    def _open(self) -> Connection:
        connection = self._connection
        if connection is None:
            raise _closed()
        return connection

    def _send(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.start()
        try:
            send(self._open(), (function, arguments))
        except OSError as error:
            raise self._crashed() from error

    def _receive(self, timeout_s: float | None) -> tuple[str, Any]:
        connection = self._open()
        try:
            if not connection.poll(timeout_s):
                self._end()
                raise WorkerTimeoutError(f"it took longer than {timeout_s:g} s")
            kind, value = connection.recv()
        except (EOFError, OSError) as error:
            raise self._crashed() from error
        if kind == "error":
            message, cause = value
            raise WorkerError(message) from cause
        return kind, value

    def _crashed(self) -> WorkerCrashError:
        process = self._process
        if process is not None:
            process.join(_END_S)  # its pipe ends before it does
        self._end()
        code = (process.exitcode if process is not None else None) or 0
        how = f"it crashed ({name})" if (name := signal_of(code)) else f"its process ended with exit code {code}"
        output = self._log.read_text(errors="replace").strip() if self._log.is_file() else ""
        return WorkerCrashError(f"{how}: {output.splitlines()[-1][:_MESSAGE_LENGTH]}" if output else how)

    def _end(self) -> None:
        process = self._process
        # Closed with its last reference: a call interrupted by `close` may still read from it, in another thread.
        self._process = self._connection = None
        if process is not None and process.pid is not None:
            atexit.unregister(self.close)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # it may not have its own group yet
            process.join(_END_S)


def send(connection: Connection, message: object) -> None:
    """Send an object that can be pickled to another process's `recv`, or raise OSError if that is gone.

    `Connection.send` writes from an exported buffer of a BytesIO. If the write fails, its frame keeps both, and from
    Python 3.13 on the garbage collector complains about them at some later time.
    """
    connection.send_bytes(pickle.dumps(message))


def _closed() -> WorkerError:
    return WorkerError("the worker was closed")


def _serve(connection: Connection, prepare: Callable[[], object], log: Path) -> None:
    """The process: run calls until the other side goes away."""
    os.setsid()  # its own process group, which ends with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    watching = threading.Thread(target=_end_with_parent, args=(log.parent,), daemon=True)
    watching.start()
    with log.open("wb") as stream, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        for descriptor in (1, 2):  # standard output is for results alone
            os.dup2(stream.fileno(), descriptor)
    function: Callable[..., Any] = prepare
    arguments: tuple[Any, ...] = ()
    try:
        while True:
            for answer in _answers(function, arguments):
                send(connection, answer)
            function, arguments = connection.recv()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        watching.join()  # the other side is gone, or about to kill this one


def _answers(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The answers to a call: items if there are any, then the end, or an error."""
    try:
        result = function(*arguments)
        if inspect.isgenerator(result):
            for item in result:
                yield "item", item
            result = None
        yield "end", result
    except Exception as error:
        message = f"{type(error).__name__}: {last_line(error)}"[:_MESSAGE_LENGTH]
        yield "error", (message, error if isinstance(error, EdgedeployError | WorkerError) else None)


def _end_with_parent(folder: Path) -> None:
    """End with the parent, even in the middle of a call, and leave nothing behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)
