"""Batches are timed on devices of a tracker, so that a bad kernel costs only its own measurement.

A session measures one function after the other. If it breaks, functions that were not measured yet go into another one,
beginning with the function that ran: that one is to blame only if it breaks sessions that begin with it. If a board is
lost, the farm waits for it, and measures again.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, replace

from edgedeploy.base.progress import Progress
from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.errors import BoardConnectionError, DeviceLostError, EdgedeployError, NoTrackerError, RpcError
from edgedeploy.records.schema import Conditions, Failure
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.failures import device_failure
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, request, require_device
from edgedeploy.tuning.building import Batch, WorkerPool
from edgedeploy.tuning.conditions import Throttling
from edgedeploy.tuning.remote import TIMEOUT_MARK, Begun, Done, Evaluation, Refused, session

# A session begins functions for this time; the server ends it when the last one has had its own time as well.
SESSION_S = 5.0
# For the news that the server ended a session, and for what a session does besides functions.
_GRACE_S = 5.0
# Of a slow link: the upload of the library is part of the session's time.
_UPLOAD_BYTES_PER_S = 200_000

# Servers whose connection to the tracker broke connect again within seconds, or not at all.
_REGISTERED_S = 10.0

# How often a function may break a session that begins with it, before it is to blame.
_CRASHES = 2
# How often in a row a session may break before any function began.
_FALSE_STARTS = 3

# How long a board may take to come back. With the time to notice, a run ends within a minute.
RETURN_S = 40

# How often a board may be lost while the same candidate runs, before that candidate is to blame.
_LOSSES = 2

# How often a batch is begun, when boards are lost with no candidate running.
_ATTEMPTS = 4


@dataclass(frozen=True)
class Outcome:
    """The result of a candidate: the time of one run, as often as it was taken; none if it failed."""

    seconds: list[float]
    failure: Failure | None = None
    error: str | None = None
    device: str | None = None  # that measured it: the address from the tracker, as HOST:PORT


class Measurer(WorkerPool):
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
        """Prepare to measure on several `devices` of a tracker under a key at once, without starting anything.

        `patience_s` is for devices that others use, `tracker_s` for a tracker that is away: restarts may take a minute.
        """
        super().__init__(_prepare, devices)
        self.tracker, self.key = tracker, key
        self._evaluation, self._threads_of_function = evaluation, threads
        self._patience_s, self._tracker_s = patience_s, tracker_s

    def measure(
        self, batch: Batch, rounds: int | None = None, advance: Callable[[], None] = lambda: None
    ) -> list[Outcome]:
        """Time each candidate once, on all devices; or let them take turns on one device, in several `rounds`.

        `advance` is called after each turn, from any thread.
        """
        built = [index for index, entry in enumerate(batch.entries) if entry.error is None]
        if rounds is None:
            built.sort(key=lambda index: str(batch.entries[index].arguments))  # equal inputs are created once
            parts = [built[part :: len(self._workers)] for part in range(len(self._workers))]
        else:
            parts = [built * rounds]
        outcomes = [Outcome([], None if entry.error is None else "build", entry.error) for entry in batch.entries]
        shares = [_Share(batch, part, outcomes, self._evaluation.limit_s, advance) for part in parts]
        runs = [self._threads.submit(self._run, *each) for each in zip(self._workers, shares, strict=False)]
        futures.wait(runs)
        for run in runs:
            run.result()
        return outcomes

    def _run(self, worker: Worker, share: _Share) -> None:
        while share.waiting or share.doubtful:
            try:
                self._session(worker, share)
            except WorkerError as error:
                share.broken(str(error))
            else:
                share.doubtful = False

    def _session(self, worker: Worker, share: _Share) -> None:
        order = list(share.waiting)
        jobs = Batch([share.batch.entries[index] for index in order])
        begin_s = SESSION_S + sum(library.stat().st_size for library in jobs.libraries) / _UPLOAD_BYTES_PER_S
        session_s = begin_s + self._evaluation.limit_s
        worker.start()
        device, secret = self._device(share)
        share.opened(str(device))
        arguments = (device, secret, jobs, self._evaluation, self._threads_of_function, begin_s, session_s)
        for message in worker.stream(session, *arguments, timeout_s=session_s + _GRACE_S):
            if isinstance(message, Begun):
                share.begun(order[message.job])
            elif isinstance(message, Refused):
                what = f"the device at {device} does not take the libraries"
                hint = "check that it is the board that you named, and that it has space left"
                raise device_failure(what, message.why) or RpcError(what, why=message.why, hints=[hint])
            else:
                share.done(order[message.job], message)

    def _device(self, share: _Share) -> tuple[Endpoint, str]:
        """A device from the tracker, as soon as one is free; waits for an unreachable tracker, too."""
        deadline, registered_s = time.monotonic() + self._tracker_s, _REGISTERED_S
        while True:
            try:
                require_device(self.tracker, self.key, registered_s)
                return request(self.tracker, self.key, self._patience_s)
            except NoTrackerError:
                if time.monotonic() > deadline:
                    raise
                registered_s = self._patience_s  # all servers register again, some of them after their current session
                time.sleep(0.2)
            except RpcError as error:
                raise DeviceLostError(error.what, why=error.why, suspect=share.suspect) from error


@dataclass
class _Share:
    """The part of a batch that one device measures."""

    batch: Batch
    # Indices of candidates, in the order in which they are measured; some may be there more than once
    waiting: list[int]
    outcomes: list[Outcome]  # of all candidates of the batch
    limit_s: float
    advance: Callable[[], None]  # is called for each of `waiting`
    # A candidate was blamed for a crash, and it is not known yet whether the device is still there
    doubtful: bool = False
    suspect: int | None = None  # the candidate that ran when a session broke, until another one succeeded

    def __post_init__(self) -> None:
        self._crashes: Counter[int] = Counter()
        self._false_starts, self._since, self._device = 0, 0.0, ""
        self._running: int | None = None

    def opened(self, device: str) -> None:
        self._device, self._running = device, None

    def begun(self, index: int) -> None:
        self.suspect, self._running, self._since = None, index, time.monotonic()

    def done(self, index: int, message: Done) -> None:
        self._running, self._false_starts = None, 0
        if index not in self.waiting:
            return  # one that failed is not measured again
        if message.error:
            self._fail(index, "error", message.error)
        else:
            self.waiting.remove(index)
            self.advance()
            seconds = [*self.outcomes[index].seconds, *message.seconds]
            self.outcomes[index] = Outcome(seconds, device=self._device)

    def broken(self, why: str) -> None:
        index, self._running = self._running, None
        if index is None:
            self._false_starts += 1
            if self._false_starts == _FALSE_STARTS:
                raise DeviceLostError(f"the device at {self._device} breaks every session as it begins", why=why)
            return
        self.suspect = index
        if TIMEOUT_MARK in why and time.monotonic() - self._since >= self.limit_s:
            self._fail(index, "timeout", f"it took longer than {self.limit_s:g} s")
        else:
            self._crashes[index] += 1
            if self._crashes[index] == _CRASHES:
                self._fail(index, "crash", f"it ended its session: {why}")
                self.doubtful = True

    def _fail(self, index: int, failure: Failure, error: str) -> None:
        self.outcomes[index] = Outcome([], failure, error, self._device)
        for _ in range(self.waiting.count(index)):
            self.waiting.remove(index)
            self.advance()


class Farm:
    """Boards of one kind under one key of a tracker."""

    def __init__(self, servers: Sequence[BoardServer], measurer: Measurer, progress: Progress) -> None:
        """Use running servers; none for the boards of somebody else's tracker, which are not ours to revive."""
        self._servers, self._measurer, self._progress = list(servers), measurer, progress
        self._throttling = {server.name: Throttling(server.run) for server in servers}

    @property
    def names(self) -> list[str]:
        """The boards, or the tracker that they are from."""
        return [server.name for server in self._servers] or [f"{self._measurer.key} of {self._measurer.tracker}"]

    def measure(self, batch: Batch, rounds: int | None = None) -> list[Outcome]:
        """Time each candidate of a batch, even if boards are lost and return; `rounds` as for `Measurer.measure`."""
        title = "measure candidates" if rounds is None else "measure the best candidates, interleaved"
        entries, losses = list(batch.entries), Counter[int]()
        blamed: dict[int, Outcome] = {}
        for attempt in itertools.count(1):
            steps = (rounds or 1) * sum(entry.error is None for entry in entries)
            try:
                with self._progress.steps(title, steps) as advance:
                    outcomes = self._measurer.measure(Batch(entries), rounds, advance)
                break
            except DeviceLostError as error:
                if (suspect := error.suspect) is not None:
                    losses[suspect] += 1
                    if losses[suspect] == _LOSSES:
                        why = f"the board was lost while it ran: {error.cause}"
                        blamed[suspect] = Outcome([], "crash", why)
                        entries[suspect] = replace(entries[suspect], error=why)
                elif attempt == _ATTEMPTS:
                    raise
                self._recover(error)
        names = {f"{LOOPBACK}:{server.port}": server.name for server in self._servers}
        outcomes = [blamed.get(index, outcome) for index, outcome in enumerate(outcomes)]
        return [replace(each, device=names.get(each.device or "", each.device)) for each in outcomes]

    def conditions(self) -> Mapping[str, Conditions]:
        """The state of each board by its name; `throttled` is of the time since the last reading."""
        found = {}
        for name, throttling in self._throttling.items():
            with suppress(BoardConnectionError):  # the next measurement finds out
                found[name] = throttling.conditions()
        return found

    def _recover(self, lost: DeviceLostError) -> None:
        self._progress.note(f"{lost}")
        if not self._servers:
            require_device(self._measurer.tracker, self._measurer.key, RETURN_S)
            return
        gone: dict[BoardServer, EdgedeployError] = {}
        for server in self._servers:
            try:
                server.revive(RETURN_S)
            except EdgedeployError as error:
                gone[server] = error
        if len(gone) == len(self._servers):
            raise gone[self._servers[0]]
        for server, reason in gone.items():
            self._progress.note(f"going on without {server.name}: {reason.cause}")
            self._servers.remove(server)
            del self._throttling[server.name]
            server.close()


def _prepare() -> None:
    """Import the slow modules of a worker, at the expense of no session."""
    import tvm.rpc  # noqa: F401
