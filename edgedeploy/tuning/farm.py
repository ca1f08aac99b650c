"""The boards that measure, kept at work: one that is lost is waited for, and what it measured is measured again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgedeploy.errors import BoardConnectionError, DeviceLostError, EdgedeployError
from edgedeploy.progress import Progress
from edgedeploy.records.trial import Conditions
from edgedeploy.remote import LOOPBACK
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, require_device
from edgedeploy.tuning.building import Batch
from edgedeploy.tuning.conditions import Throttling
from edgedeploy.tuning.measuring import Measurer, Outcome

# How long a board may take to come back. With what it takes to notice, a run ends within a minute.
RETURN_S = 40

# How often a board may be lost while the same candidate runs, before that is to blame.
_LOSSES = 2

# How often a batch is begun, when boards are lost with no candidate running.
_ATTEMPTS = 4


class Farm:
    """Boards of one kind under one key of a tracker."""

    def __init__(
        self, servers: Sequence[BoardServer], measurer: Measurer, tracker: Endpoint, key: str, progress: Progress
    ) -> None:
        """Use what runs already.

        Args:
            servers: of the boards; none for those of somebody else's tracker, which are not ours to revive.
            measurer: sends candidates to devices of the tracker.
            tracker, key: where devices come from.
            progress: is told when a board is lost.
        """
        self._servers = list(servers)
        self._measurer, self._tracker, self._key, self._progress = measurer, tracker, key, progress
        self._throttling = {server.name: Throttling(server.run) for server in servers}

    @property
    def names(self) -> list[str]:
        """The boards, or the tracker they are from."""
        return [server.name for server in self._servers] or [f"{self._key} of {self._tracker}"]

    def measure(self, batch: Batch, rounds: int | None = None) -> list[Outcome]:
        """Time each candidate of a batch, whatever becomes of boards meanwhile; `rounds` as for `Measurer.measure`.

        Raises:
            BoardConnectionError, RpcError: there is no board any more, and none comes back in time.
        """
        title = "measure candidates" if rounds is None else "measure the best candidates, interleaved"
        losses: Counter[int] = Counter()
        blamed: dict[int, Outcome] = {}
        attempts = 0
        while True:
            attempts += 1
            part = _without(batch, blamed)
            steps = (rounds or 1) * sum(entry.error is None for entry in part.entries)
            try:
                with self._progress.steps(title, steps) as advance:
                    outcomes = self._measurer.measure(part, rounds, advance)
            except DeviceLostError as error:
                if error.suspect is not None:
                    losses[error.suspect] += 1
                    if losses[error.suspect] == _LOSSES:
                        blamed[error.suspect] = Outcome([], "crash", f"the board was lost while it ran: {error.cause}")
                elif attempts == _ATTEMPTS:
                    raise
                self._recover(error)
            else:
                names = {f"{LOOPBACK}:{server.port}": server.name for server in self._servers}
                outcomes = [blamed.get(index, outcome) for index, outcome in enumerate(outcomes)]
                return [replace(each, device=names.get(each.device or "", each.device)) for each in outcomes]

    def conditions(self) -> Mapping[str, Conditions]:
        """The state of each board by its name; `throttled` tells of the time since the last reading."""
        found = {}
        for name, throttling in self._throttling.items():
            try:
                found[name] = throttling.conditions()
            except BoardConnectionError:  # the next measurement finds out
                continue
        return found

    def _recover(self, lost: DeviceLostError) -> None:
        """Bring back the boards that are lost, or go on without them."""
        self._progress.note(f"{lost}")
        if not self._servers:
            require_device(self._tracker, self._key, RETURN_S)
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


def _without(batch: Batch, blamed: Mapping[int, Outcome]) -> Batch:
    """A batch in which some candidates count as not built."""
    entries = [
        replace(entry, error=blamed[index].error) if index in blamed else entry
        for index, entry in enumerate(batch.entries)
    ]
    return Batch(entries)
