"""What was in use on a board: one line for each event of a model, kept beside its releases.

    2026-01-02T03:04:05Z switched 20260102T030400Z-89abcdef alice@laptop
    2026-01-02T03:04:09Z confirmed 20260102T030400Z-89abcdef alice@laptop

`switched` is written before the link `current` changes, `confirmed` after the release has passed its checks through
that link. So a switch that was cut off anywhere is known by its last line and by where the link leads, and only what
was confirmed counts as having been in use.
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

# Older lines go: a record does not grow for ever.
MOST_ENTRIES = 200

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_ODD = re.compile(r"[^A-Za-z0-9._@-]+")
_LONGEST = 100


class Event(str, Enum):
    """What happened to a release.

    `FOUND`: `current` led to it, and no line said why: somebody switched by hand, or the record was lost.
    `RETURNED`: as `SWITCHED`, by going back.
    """

    FOUND = "found"
    SWITCHED = "switched"
    RETURNED = "returned"
    CONFIRMED = "confirmed"
    FAILED = "failed"


_CONFIRMING = (Event.FOUND, Event.CONFIRMED)


@dataclass(frozen=True)
class Entry:
    """One line of a record: when, what, which release, on whose behalf, and why it failed."""

    time: datetime
    event: Event
    id: str
    who: str
    reason: str = ""

    @classmethod
    def now(cls, event: Event, identity: str, reason: str = "") -> Entry:
        """An entry of this moment and this user."""
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        return cls(datetime.now(timezone.utc), event, identity, _word(who), _word(reason))

    @property
    def line(self) -> str:
        """The entry as it is stored."""
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
    """An entry, or None for a line that is none: it was cut off, or somebody else wrote it."""
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
    """What happened to the releases of one model, oldest first, and where `current` leads."""

    entries: tuple[Entry, ...] = ()
    current: str | None = None

    @classmethod
    def read(cls, lines: Iterable[str], current: str | None) -> Record:
        """The record of some lines; what is no entry is left out."""
        return cls(tuple(entry for entry in map(_parsed, lines) if entry), current)

    def last(self, identity: str) -> Entry | None:
        """The last entry of a release."""
        return next((entry for entry in reversed(self.entries) if entry.id == identity), None)

    @property
    def confirmed(self) -> bool:
        """Whether what is in use passed its checks, or nothing says that it did not."""
        last = self.last(self.current) if self.current else None
        return self.current is not None and (last is None or last.event in _CONFIRMING)

    def state(self, identity: str) -> str:
        """What a release on the board is, in words."""
        last = self.last(identity)
        if identity == self.current:
            if self.confirmed:
                return "in use"
            return "in use, failed" if last and last.event is Event.FAILED else "in use, not confirmed"
        if last and last.event is Event.FAILED:
            return "failed"
        used = any(entry.event in _CONFIRMING for entry in self.entries if entry.id == identity)
        return "was in use" if used else "never in use"

    @property
    def unknown(self) -> str | None:
        """What `current` leads to, if not the record led it there: the user did, or the record was lost."""
        way = self._way()
        return self.current if self.confirmed and (not way or way[-1] != self.current) else None

    @property
    def way(self) -> list[str]:
        """The releases that were in use, in the order in which they became it, without those that were gone back from.

        What is in use is the last one, if it is confirmed.
        """
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
        """What going back leads to: the last release that was in use before, lies there still, and did not fail since.

        That is the one in use if going back to it was cut off before it was confirmed.
        """
        last = self.last(self.current) if self.current else None
        return self.current if last and last.event is Event.RETURNED else self._before(present)

    def _before(self, present: Collection[str], but: str | None = None) -> str | None:
        for identity in reversed(self.way):
            last = self.last(identity)
            failed = last is not None and last.event is Event.FAILED
            if identity in present and identity not in (self.current, but) and not failed:
                return identity
        return None

    def way_back(self, present: Collection[str], target: str) -> str | None:
        """Which release is to be in use if `target` fails its checks: the one that is; itself, if it was already.

        One that is not confirmed gives way to the one before it. None if there is nothing to go back to.
        """
        if self.confirmed:
            return self.current
        return self._before(present, but=target) or (self.current if self.current != target else None)

    def ranked(self, present: Sequence[str]) -> list[str]:
        """The releases on the board, those that are to be kept first.

        That is the one in use, those on the way back from it, others that were in use, and those that never were, the
        newest of each first.
        """
        used = [entry.id for entry in self.entries if entry.event in _CONFIRMING]
        order = [*filter(None, [self.current]), *reversed(self.way), *reversed(used), *sorted(present, reverse=True)]
        return [identity for identity in dict.fromkeys(order) if identity in present]
