"""The record of a model's releases in use on a board, one line per event, next to its releases.

    2026-01-02T03:04:05Z switched 20260102T030400Z-89abcdef alice@laptop
    2026-01-02T03:04:09Z confirmed 20260102T030400Z-89abcdef alice@laptop

`switched` is written before the link `current` changes, `confirmed` after the release has passed its checks through
that link. So the last line and the link identify a switch that was cut off, and only confirmed releases count as having
been in use.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from edgedeploy.release.layout import is_id

# Older lines are dropped.
MOST_ENTRIES = 200

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_ODD = re.compile(r"[^A-Za-z0-9._@-]+")
_LONGEST = 100


class Event(str, Enum):
    """An event of a release.

    `FOUND`: `current` led to it without a line: somebody switched by hand, or the record was lost.
    `RETURNED`: as `SWITCHED`, by a rollback.
    """

    FOUND = "found"
    SWITCHED = "switched"
    RETURNED = "returned"
    CONFIRMED = "confirmed"
    FAILED = "failed"


_CONFIRMING = (Event.FOUND, Event.CONFIRMED)


@dataclass(frozen=True)
class Entry:
    """One line of a record: time, event, release, user, and the reason of a failure."""

    time: datetime
    event: Event
    id: str
    who: str
    reason: str = ""

    @classmethod
    def now(cls, event: Event, identity: str, reason: str = "") -> Entry:
        """An entry with the current time and user."""
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        return cls(datetime.now(timezone.utc), event, identity, _word(who), _word(reason))

    @property
    def line(self) -> str:
        """The line in the file."""
        return f"{self.time:{_TIME}} {self.event.value} {self.id} {self.who} {self.reason}".rstrip()

    def to_dict(self) -> dict[str, str | None]:
        """The object that `--json` prints."""
        return {
            "time": self.time.isoformat(),
            "event": self.event.value,
            "id": self.id,
            "who": self.who,
            "reason": self.reason or None,
        }


def _word(text: str) -> str:
    return _ODD.sub("-", text)[:_LONGEST]


def _parsed(line: str) -> Entry | None:
    """The entry on a line; None for invalid lines, cut off or written by somebody else."""
    words = line.split()
    if len(words) not in (4, 5) or not is_id(words[2]) or max(map(len, words)) > _LONGEST:
        return None
    try:
        time = datetime.strptime(words[0], _TIME).replace(tzinfo=timezone.utc)
        return Entry(time, Event(words[1]), words[2], *words[3:])
    except ValueError:
        return None


@dataclass(frozen=True)
class Record:
    """The events of one model's releases, oldest first, and the target of `current`."""

    entries: tuple[Entry, ...] = ()
    current: str | None = None

    @classmethod
    def read(cls, lines: Iterable[str], current: str | None) -> Record:
        """The record of some lines; invalid lines are skipped."""
        return cls(tuple(entry for entry in map(_parsed, lines) if entry), current)

    def last(self, identity: str | None) -> Event | None:
        """The last event of a release."""
        return next((entry.event for entry in reversed(self.entries) if entry.id == identity), None)

    @property
    def confirmed(self) -> bool:
        """Whether the release in use passed its checks, as far as the record knows."""
        return self.current is not None and self.last(self.current) in (None, *_CONFIRMING)

    def state(self, identity: str) -> str:
        """The state of a release on the board, in words."""
        failed = self.last(identity) is Event.FAILED
        if identity == self.current:
            return "in use" if self.confirmed else f"in use, {'failed' if failed else 'not confirmed'}"
        if failed:
            return "failed"
        used = any(entry.event in _CONFIRMING for entry in self.entries if entry.id == identity)
        return "was in use" if used else "never in use"

    @property
    def unknown(self) -> str | None:
        """The target of `current` if it is not in the record: the user switched by hand, or the record was lost."""
        way = self._way()
        return self.current if self.confirmed and (not way or way[-1] != self.current) else None

    @property
    def way(self) -> list[str]:
        """The releases that were in use, in order, without those that were rolled back; the last may be in use."""
        return [*self._way(), *filter(None, [self.unknown])]

    def _way(self) -> list[str]:
        way: list[str] = []
        returning: str | None = None
        for entry in self.entries:
            if entry.event in _CONFIRMING:
                if entry.id == returning and entry.id in way:
                    while way[-1] != entry.id:
                        way.pop()
                elif way[-1:] != [entry.id]:
                    way.append(entry.id)
            returning = entry.id if entry.event is Event.RETURNED else None
        return way

    def previous(self, present: Collection[str]) -> str | None:
        """The target of a rollback: the last release that was in use before, still exists, and has not failed since.

        It is the one in use if a rollback to it was cut off before it was confirmed.
        """
        return self.current if self.last(self.current) is Event.RETURNED else self._before(present)

    def _before(self, present: Collection[str], but: str | None = None) -> str | None:
        for identity in reversed(self.way):
            if identity in present and identity not in (self.current, but) and self.last(identity) is not Event.FAILED:
                return identity
        return None

    def way_back(self, present: Collection[str], target: str) -> str | None:
        """The release to go back to if `target` fails its checks: the one in use, even if it is `target`.

        An unconfirmed one is replaced by the one before it. None if there is nothing to go back to.
        """
        if self.confirmed:
            return self.current
        return self._before(present, but=target) or (self.current if self.current != target else None)

    def ranked(self, present: Sequence[str]) -> list[str]:
        """The releases on the board by their worth, best first.

        The one in use, the ones before it, others that were in use, then never used ones; the newest of each first.
        """
        used = [entry.id for entry in self.entries if entry.event in _CONFIRMING]
        order = [*filter(None, [self.current]), *reversed(self.way), *reversed(used), *sorted(present, reverse=True)]
        return [identity for identity in dict.fromkeys(order) if identity in present]
