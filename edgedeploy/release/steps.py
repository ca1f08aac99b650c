"""The steps of a release on a board: each is one command there that may be cut off anywhere.

Names come checked from `layout`. Only `switch` and `go_back` change the release in use, and both do so atomically.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgedeploy.base.programs import script
from edgedeploy.errors import ReleaseError, ending
from edgedeploy.release.layout import CURRENT, RELEASES, STAGING, TRIALS, Release, is_id, is_model
from edgedeploy.release.record import MOST_ENTRIES, Entry, Record
from edgedeploy.remote.connection import Completed, Connection
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.failures import DEVICE, failure

# A network takes seconds on a board, and a hundred times as long on an emulated one.
SELF_TEST_S = 1800

# The agent's exit code for outputs that differ too much.
_DIFFERS = 6

_LOOK = script(__package__, "look.sh")
_STOCK = script(__package__, "stock.sh")
_UPLOAD = script(__package__, "upload.sh")
_ASSEMBLE = script(__package__, "assemble.sh")
_WRITE_RECORD = script(__package__, "write_record.sh")
_RECORD = _WRITE_RECORD + script(__package__, "record.sh")
_LINK = _WRITE_RECORD + script(__package__, "link.sh")
_SWEEP = script(__package__, "sweep.sh")
_SELF_TEST = 'cd && cd "$1" && ./agent verify . && exec ./agent selftest .'
_PUBLISH = 'cd && cd "$1/$2" && mv "$3" "$4"'
_UNLINK = 'cd && cd "$1/releases/$2" && rm -f current'


@dataclass(frozen=True)
class Inventory:
    """A model's files on a board: sizes in KiB by name, oldest first, and the record of releases in use."""

    releases: Mapping[str, int] = field(default_factory=dict)
    trials: Mapping[str, int] = field(default_factory=dict)
    record: Record = field(default_factory=Record)


def inventories(connection: Connection) -> dict[str, Inventory]:
    """The inventories of all models on a board."""
    sizes: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: {RELEASES: {}, TRIALS: {}})
    current: dict[str, str] = {}
    lines: dict[str, list[str]] = defaultdict(list)
    for line in _done(connection, "list the releases", _LOOK, BASE, str(MOST_ENTRIES)).text.splitlines():
        kind, model, rest = [*line.split(" ", 2), "", ""][:3]
        words = rest.split()
        if not is_model(model):
            continue
        if kind == "record":
            lines[model].append(rest)
        elif kind == "current" and len(words) == 1:
            current[model] = words[0]
        elif kind in (RELEASES, TRIALS) and len(words) == 2 and is_id(words[0]) and words[1].isdigit():
            sizes[model][kind][words[0]] = int(words[1])
    found = {}
    for model in sorted({*sizes, *lines}):
        releases, trials = (dict(sorted(sizes[model][area].items())) for area in (RELEASES, TRIALS))
        in_use = current.get(model)
        found[model] = Inventory(releases, trials, Record.read(lines[model], in_use if in_use in releases else None))
    return found


def inventory(connection: Connection, model: str) -> Inventory:
    """The inventory of one model."""
    return inventories(connection).get(model) or Inventory()


def missing(connection: Connection, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
    """The blobs, by SHA-256, that the board lacks or has damaged."""
    there = _done(connection, "look for files", _STOCK, BASE, *wanted).text.split()
    return {blob: content for blob, content in wanted.items() if blob not in there}


def upload(connection: Connection, blob: str, content: bytes, advance: Callable[[int], None]) -> None:
    """Send one blob; the board checks its SHA-256 before it gets its name."""
    _done(connection, "store a file", _UPLOAD, BASE, blob, content=[content], advance=advance)


def assemble(connection: Connection, release: Release, folder: str, identity: str) -> str:
    """Assemble a release in a folder of `BASE` under a temporary name, which is returned."""
    pairs = [part for pair in release.blobs.items() for part in pair]
    _done(connection, "put the release together", _ASSEMBLE, BASE, folder, STAGING + identity, *pairs)
    return STAGING + identity


def self_test(connection: Connection, model: str, folder: str) -> dict[str, Any]:
    """Have the board check a release in a folder of `BASE` and run its self-test; returns the agent's report."""
    done = connection.run(_SELF_TEST, f"{BASE}/{folder}", timeout_s=SELF_TEST_S)
    why = done.messages
    try:
        report = json.loads(done.text.rpartition("\n")[2]) if done.code in (0, _DIFFERS) else {}
        if done.code == 0:
            return dict(report)
        if done.code == _DIFFERS:
            # An output that is not finite has no fraction.
            wrong = [each for each in report["outputs"] if each["fraction"] is None or each["fraction"] > 1]
            why = "; ".join(
                f"output {each['name']!r} of the {each['case']} inputs differs by {each['difference']},"
                f" {each['allowed']:.3g} is allowed"
                for each in wrong
            )
    except (ValueError, KeyError, TypeError):
        why = f"it printed {done.text[-200:]!r}"
    what = f"the self-test of {model} failed on {connection.address}"
    if done.code == DEVICE:
        raise failure(done.code, what, why)
    raise ReleaseError(
        what,
        why=why or ending(done.code),
        hints=["`edgedeploy boards probe` shows what the board is", "the release in use is unchanged"],
    )


def publish(connection: Connection, folder: str, staged: str, identity: str) -> None:
    """Give a tested release its name."""
    _done(connection, "name the release", _PUBLISH, BASE, folder, staged, identity)


def switch(connection: Connection, model: str, identity: str, *, back: str | None, entries: Iterable[Entry]) -> None:
    """Write `entries` into the record, then put a release in use, atomically by renaming a link.

    `back` is the release to which `go_back` returns.
    """
    arguments = [model, identity, back or "", str(MOST_ENTRIES), *(entry.line for entry in entries)]
    _done(connection, f"switch to {identity}", _LINK, BASE, *arguments)
    _rename_link(connection, model, CURRENT, f"switch to {identity}")


def go_back(connection: Connection, model: str, back: str | None) -> None:
    """Undo a switch atomically: back to the release named in `switch`, or to none."""
    if back is None:
        _done(connection, "undo the switch", _UNLINK, BASE, model)
    else:
        _rename_link(connection, model, "back", f"go back to {back}")


def write_record(connection: Connection, model: str, entry: Entry) -> None:
    """Add a line to a model's record."""
    _done(connection, "write its record", _RECORD, BASE, model, str(MOST_ENTRIES), entry.line)


def sweep(connection: Connection, unwanted: Iterable[str]) -> None:
    """Remove folders of releases and trials, relative to `BASE`, and files that are in no release any more."""
    _done(connection, "remove old releases", _SWEEP, BASE, *unwanted)


def _rename_link(connection: Connection, model: str, link: str, what: str) -> None:
    folder = f"{BASE}/{RELEASES}/{model}"
    try:
        connection.rename(f"{folder}/{STAGING}{link}", f"{folder}/{CURRENT}")
    except OSError as error:
        raise ReleaseError(f"{connection.address} could not {what}", why=str(error)) from error


def _done(connection: Connection, what: str, script: str, *arguments: str, **options: Any) -> Completed:
    done = connection.run(script, *arguments, **options)
    if done.code != 0:
        full = "No space left" in done.messages
        raise ReleaseError(
            f"{connection.address} could not {what}",
            why=done.messages or f"its shell ended with code {done.code}",
            hints=[
                "remove old releases: `edgedeploy releases gc --keep 1`" if full else f"look at ~/{BASE} on the board",
                "try again: files that were sent stay there, and the release in use is unchanged",
            ],
        )
    return done
