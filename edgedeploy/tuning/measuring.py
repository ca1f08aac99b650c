"""Batches timed on devices of a tracker, so that a bad kernel costs its own measurement and nothing else.

A session measures one function after the other. If it breaks, what was not measured yet goes into another one,
beginning with the function that ran: that one is to blame only if it breaks sessions that begin with it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.closing import Closing
from edgedeploy.errors import DeviceLostError, NoTrackerError, RpcError
from edgedeploy.records.trial import Failure
from edgedeploy.remote.failures import device_failure
from edgedeploy.rpc.tracker import Endpoint, request, require_device
from edgedeploy.tuning.building import Batch
from edgedeploy.tuning.remote import (
    TIMEOUT_MARK,
    Begun,
    Done,
    Evaluation,
    Job,
    Refused,
    session,
)
from edgedeploy.workers import Worker, WorkerError

# A session begins functions for so long; the server ends it when the last one has had its time as well.
SESSION_S = 5.0
# How long the server's end of a session may take to be heard of, and what a session needs besides functions.
_GRACE_S = 5.0
# What a slow link carries in a second: the upload of the library is part of the session's time.
_UPLOAD_BYTES_PER_S = 200_000

# Servers whose connection to the tracker broke connect again within seconds, or not at all.
_REGISTERED_S = 10.0

# How often a function may break a session that begins with it, before it is to blame.
_CRASHES = 2
# How often in a row a session may break before any function began.
_FALSE_STARTS = 3


@dataclass(frozen=True)
class Outcome:
    """What came out of a candidate.

    Attributes:
        seconds: the time of one run, as often as it was taken; empty if it failed.
        failure: of which kind, or None.
        error: what went wrong, or None.
        device: where the tracker said that the device is which measured it, as HOST:PORT.
    """

    seconds: list[float]
    failure: Failure | None = None
    error: str | None = None
    device: str | None = None


class Measurer(Closing):
    """Measures batches; a context manager that ends its processes."""

    def __init__(
        self,
        tracker: Endpoint,
        key: str,
        evaluation: Evaluation = Evaluation(),
        devices: int = 1,
        threads: int = 1,
        patience_s: float = 30,
        tracker_s: float = 90,
    ) -> None:
        """Nothing is started yet.

        Args:
            tracker: hands out devices.
            key: of the devices.
            evaluation: how a function is timed.
            devices: how many are used at the same time.
            threads: how many threads functions run with.
            patience_s: how long to wait for a device that others use.
            tracker_s: how long to wait for a tracker that is away; one that is started again has a minute for that.
        """
        self._tracker, self._key = tracker, key
        self._evaluation, self._threads = evaluation, threads
        self._patience_s, self._tracker_s = patience_s, tracker_s
        self._folder = Path(tempfile.mkdtemp(prefix="edgedeploy-tune-"))
        self._workers = [Worker(_prepare, self._folder / f"worker{i}.txt") for i in range(devices)]
        self._pool = futures.ThreadPoolExecutor(devices)

    def start(self) -> None:
        """Start the processes, which takes seconds."""
        list(self._pool.map(Worker.start, self._workers))

    def measure(
        self, batch: Batch, rounds: int | None = None, advance: Callable[[], None] = lambda: None
    ) -> list[Outcome]:
        """Time each candidate.

        Args:
            batch: the candidates.
            rounds: None: each once, on as many devices as there are. Otherwise they take turns on one device, so many
                times over: what changes meets them all.
            advance: is called after each turn, from any thread.

        Raises:
            DeviceLostError: a device went away.
            NoTrackerError: the tracker did, and does not come back.
            RpcError: a device cannot load the library: it is another board, or its disk is full.
            DeviceError: it has no device as the profile names it.
        """
        built = [index for index, entry in enumerate(batch.entries) if entry.error is None]
        if rounds is None:
            built.sort(key=lambda index: str(batch.entries[index].arguments))  # equal inputs are made once
            parts = [built[part :: len(self._workers)] for part in range(len(self._workers))]
        else:
            parts = [built * rounds]
        outcomes = [Outcome([], None if entry.error is None else "build", entry.error) for entry in batch.entries]
        shares = [_Share(batch, part, outcomes, self._evaluation.limit_s, advance) for part in parts]
        runs = [
            self._pool.submit(self._run, worker, share) for worker, share in zip(self._workers, shares, strict=False)
        ]
        futures.wait(runs)
        for run in runs:
            run.result()
        return outcomes

    def close(self) -> None:
        """End the processes; sessions end with them."""
        for worker in self._workers:
            worker.close()
        self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, worker: Worker, share: _Share) -> None:
        """Sessions on one device until nothing of a share is left."""
        while share.waiting or share.doubtful:
            try:
                self._session(worker, share)
            except WorkerError as error:
                share.broken(str(error))
            else:
                share.doubtful = False

    def _session(self, worker: Worker, share: _Share) -> None:
        order = list(share.waiting)
        entries = map(share.batch.entries.__getitem__, order)
        jobs = [Job(entry.name, entry.arguments, entry.library) for entry in entries if entry.library]
        libraries = dict.fromkeys(job.library for job in jobs)
        begin_s = SESSION_S + sum(library.stat().st_size for library in libraries) / _UPLOAD_BYTES_PER_S
        session_s = begin_s + self._evaluation.limit_s
        worker.start()
        device, secret = self._device(share)
        share.opened(str(device))
        arguments = (device, secret, jobs, self._evaluation, self._threads, begin_s, session_s)
        for message in worker.stream(session, *arguments, timeout_s=session_s + _GRACE_S):
            if isinstance(message, Begun):
                share.begun(order[message.job])
            elif isinstance(message, Refused):
                what = f"the device at {device} does not take what was built"
                hint = "look whether it is the board that was named, and whether it has space left"
                raise device_failure(what, message.why) or RpcError(what, why=message.why, hints=[hint])
            else:
                share.done(order[message.job], message)

    def _device(self, share: _Share) -> tuple[Endpoint, str]:
        """A device from the tracker, as soon as one is free. A tracker that is away is waited for, too."""
        deadline, registered_s = time.monotonic() + self._tracker_s, _REGISTERED_S
        while True:
            try:
                require_device(self._tracker, self._key, registered_s)
                return request(self._tracker, self._key, self._patience_s)
            except NoTrackerError:
                if time.monotonic() > deadline:
                    raise
                registered_s = self._patience_s  # all servers register anew, some of them after the session at hand
                time.sleep(0.2)
            except RpcError as error:
                raise DeviceLostError(error.what, why=error.why, suspect=share.suspect) from error


class _Share:
    """What one device measures of a batch.

    Attributes:
        batch: the batch.
        waiting: indices of candidates, in the order in which they are measured; some may be there more than once.
        doubtful: a candidate was blamed for a crash, and it is yet to be seen that the device is still there.
        suspect: the candidate that ran when a session broke, until another one stood.
    """

    def __init__(
        self,
        batch: Batch,
        waiting: list[int],
        outcomes: list[Outcome],
        limit_s: float,
        advance: Callable[[], None],
    ) -> None:
        """Write outcomes to `outcomes`, of all candidates of the batch; `advance` is called for each of `waiting`."""
        self.batch, self.waiting = batch, waiting
        self.doubtful = False
        self.suspect: int | None = None
        self._outcomes, self._limit_s, self._advance = outcomes, limit_s, advance
        self._crashes: Counter[int] = Counter()
        self._false_starts = 0
        self._device = ""
        self._running: int | None = None
        self._since = 0.0

    def opened(self, device: str) -> None:
        """A session on a device begins."""
        self._device, self._running = device, None

    def begun(self, index: int) -> None:
        """A candidate runs."""
        self.suspect, self._running, self._since = None, index, time.monotonic()

    def done(self, index: int, message: Done) -> None:
        """A candidate has run."""
        self._running, self._false_starts = None, 0
        if index not in self.waiting:
            return  # one that failed is not measured again
        if message.error:
            self._fail(index, "error", message.error)
        else:
            self.waiting.remove(index)
            self._advance()
            seconds = [*self._outcomes[index].seconds, *message.seconds]
            self._outcomes[index] = Outcome(seconds, device=self._device)

    def broken(self, why: str) -> None:
        """The session broke.

        Raises:
            DeviceLostError: so do others, before any candidate runs.
        """
        index, self._running = self._running, None
        if index is None:
            self._false_starts += 1
            if self._false_starts == _FALSE_STARTS:
                raise DeviceLostError(f"no session with the device at {self._device} comes about", why=why)
            return
        self.suspect = index
        if TIMEOUT_MARK in why and time.monotonic() - self._since >= self._limit_s:
            self._fail(index, "timeout", f"it took longer than {self._limit_s:g} s")
        else:
            self._crashes[index] += 1
            if self._crashes[index] == _CRASHES:
                self._fail(index, "crash", f"it ended its session: {why}")
                self.doubtful = True

    def _fail(self, index: int, failure: Failure, error: str) -> None:
        self._outcomes[index] = Outcome([], failure, error, self._device)
        for _ in range(self.waiting.count(index)):
            self.waiting.remove(index)
            self._advance()


def _prepare() -> None:
    """Import what a worker needs: seconds that are no session's."""
    import tvm.rpc  # noqa: F401
