"""The single steps of releases on a board: each one command there, each safe to be cut off anywhere.

Every step takes names that `layout` has checked, and leaves what is in use as it is; `switch` and `go_back` alone
change it, and do so at once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgedeploy.errors import ReleaseError, ending
from edgedeploy.release.layout import CURRENT, RELEASES, STAGING, TRIALS, Release, is_id, is_model
from edgedeploy.release.record import MOST_ENTRIES, Entry, Record
from edgedeploy.remote.connection import Completed, Connection
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.failures import DEVICE, failure

# A network of a board takes seconds at most, an emulated one a hundred times as long.
SELF_TEST_S = 1800

# The agent's exit code for outputs that differ by more than is allowed.
_DIFFERS = 6

# Lines "KIND MODEL ...".
_LOOK = """
cd && cd "$1" 2>/dev/null || exit 0
for name in releases/*/* trials/*/*; do
    folder=${name%/*} file=${name##*/}
    model=${folder#*/}
    case $folder/$file in
        releases/*/current) echo "current $model $(readlink "$name")" ;;
        releases/*/history)
            tail -n "$2" "$name" |
                while read -r line || [ -n "$line" ]; do printf 'record %s %s\\n' "$model" "$line"; done ;;
        *) [ ! -d "$name" ] || echo "${folder%%/*} $model $file $(du -sk "$name" | cut -f 1)" ;;
    esac
done
"""

_STOCK = """
cd && cd "$1/blobs" 2>/dev/null || exit 0
shift
for blob; do
    [ ! -f "$blob" ] || { actual=$(sha256sum "$blob"); [ "${actual%% *}" != "$blob" ] || echo "$blob"; }
done
"""

# Whatever ends it early, the blob does not get its name. The preliminary one is this shell's own: another may still
# wait for the rest of the same blob at the end of a connection that is dead.
_UPLOAD = """
cd && cd "$1/blobs" || exit
incoming=incoming-$2.$$
trap 'rm -f "$incoming"' EXIT
cat >"$incoming" || exit
actual=$(sha256sum "$incoming") || exit
[ "${actual%% *}" = "$2" ] || { echo "SHA-256 of what arrived is ${actual%% *} instead of $2" >&2; exit 1; }
mv -f "$incoming" "$2"
"""

_ASSEMBLE = """
cd && cd "$1" && mkdir -p "$2" && cd "$2" || exit
rm -rf "$3" && mkdir "$3" && cd "$3" || exit
shift 3
while [ $# -gt 0 ]; do
    case $1 in */*) mkdir -p "${1%/*}" || exit ;; esac
    ln "../../../blobs/$2" "$1" || exit
    shift 2
done
chmod 755 agent && { sync -f . 2>/dev/null || sync; }
"""

_SELF_TEST = """
cd && cd "$1" && ./agent verify . && exec ./agent selftest .
"""

_PUBLISH = """
cd && cd "$1/$2" && mv "$3" "$4" || exit
"""

# Replaced as a whole: a line that is appended may be cut off, and the next one would follow on it.
_WRITE_RECORD = """
write_record() {
    most=$1
    shift
    { { [ ! -f history ] || tail -n "$most" history; } && printf '%s\\n' "$@"; } >staging-history &&
        { sync staging-history 2>/dev/null || sync; } && mv -f staging-history history &&
        { sync -f . 2>/dev/null || sync; }
}
"""

_RECORD = f"""{_WRITE_RECORD}
cd && cd "$1/releases/$2" || exit
shift 2
write_record "$@"
"""

# The way back is made beforehand: a release that fails may have filled the disk.
_LINK = f"""{_WRITE_RECORD}
cd && cd "$1/releases/$2" || exit
[ -d "$3" ] || {{ echo "there is no $3" >&2; exit 1; }}
rm -f staging-current staging-back && ln -s "$3" staging-current || exit
[ -z "$4" ] || ln -s "$4" staging-back || exit
ln -f "$3/agent" ../../staging-agent && mv -f ../../staging-agent ../../agent && rm -f ../../staging-agent || exit
shift 4
write_record "$@"
"""

_UNLINK = """
cd && cd "$1/releases/$2" && rm -f current
"""

# A release that is being removed is no longer one. What cannot be removed goes with a later command: NFS keeps the
# files of programs that run.
_SWEEP = """
cd && cd "$1" || exit
shift
for name; do
    aside=${name%/*}/staging-${name##*/}
    mv "$name" "$aside" || exit
    rm -rf "$aside"
done
rmdir trials/* 2>/dev/null
find blobs -type f -links 1 -exec rm -f {} +
"""


@dataclass(frozen=True)
class Inventory:
    """What lies on a board of one model.

    Attributes:
        releases: their sizes in KiB by their names, oldest first.
        trials: the same of trials.
        record: what was in use, and what is.
    """

    releases: Mapping[str, int] = field(default_factory=dict)
    trials: Mapping[str, int] = field(default_factory=dict)
    record: Record = field(default_factory=Record)


def inventories(connection: Connection) -> dict[str, Inventory]:
    """What lies on a board, by model."""
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
        there = {area: dict(sorted(each.items())) for area, each in sizes[model].items()}
        in_use = current.get(model)
        record = Record.read(lines[model], in_use if in_use in there[RELEASES] else None)
        found[model] = Inventory(there[RELEASES], there[TRIALS], record)
    return found


def inventory(connection: Connection, model: str) -> Inventory:
    """What lies on a board of one model."""
    return inventories(connection).get(model) or Inventory()


def missing(connection: Connection, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those of some blobs, by their SHA-256, that the board lacks or has with another content."""
    there = _done(connection, "look for files", _STOCK, BASE, *wanted).text.split()
    return {blob: content for blob, content in wanted.items() if blob not in there}


def upload(connection: Connection, blob: str, content: bytes, advance: Callable[[int], None]) -> None:
    """Send one blob; it gets its name after its SHA-256 was found right there."""
    _done(connection, "store a file", _UPLOAD, BASE, blob, content=[content], advance=advance)


def assemble(connection: Connection, release: Release, folder: str, identity: str) -> str:
    """Put the files of a release together in a folder of `BASE` under a preliminary name, which is returned."""
    pairs = [part for pair in release.blobs.items() for part in pair]
    _done(connection, "put the release together", _ASSEMBLE, BASE, folder, STAGING + identity, *pairs)
    return STAGING + identity


def self_test(connection: Connection, model: str, folder: str) -> dict[str, Any]:
    """Have the board check the files of a release and run its self-test; what the agent says of it.

    Args:
        model: what it is called in messages.
        folder: where the release lies, in `BASE`.
    """
    done = connection.run(_SELF_TEST, f"{BASE}/{folder}", timeout_s=SELF_TEST_S)
    why = done.messages
    try:
        said = json.loads(done.text.rpartition("\n")[2]) if done.code in (0, _DIFFERS) else {}
        if done.code == 0:
            return dict(said)
        if done.code == _DIFFERS:
            why = "; ".join(_difference(each) for each in said["outputs"] if _differs(each))
    except (ValueError, KeyError, TypeError):
        why = f"it said {done.text[-200:]!r}"
    what = f"the self-test of {model} failed on {connection.address}"
    if done.code == DEVICE:
        raise failure(done.code, what, why)
    raise ReleaseError(
        what,
        why=why or ending(done.code),
        hints=["`edgedeploy boards probe` says what the board is", "the release in use was left as it is"],
    )


def _differs(output: dict[str, Any]) -> bool:
    """Whether an output is wrong; one that is not finite has no fraction."""
    return output["fraction"] is None or output["fraction"] > 1


def _difference(output: dict[str, Any]) -> str:
    name, difference, allowed = output["name"], output["largest_difference"], output["allowed"]
    return f"output {name!r} of the {output['case']} inputs differs by {difference}, {allowed:.3g} is allowed"


def publish(connection: Connection, folder: str, staged: str, identity: str) -> None:
    """Give a release that was tested its name."""
    _done(connection, "name the release", _PUBLISH, BASE, folder, staged, identity)


def switch(connection: Connection, model: str, identity: str, *, back: str | None, entries: Iterable[Entry]) -> None:
    """Write into the record that a release is to be the one in use, and make it that: at once, by renaming a link.

    Args:
        connection: the board.
        model, identity: the release.
        back: the release that `go_back` is to lead to.
        entries: what is written before the link changes.
    """
    arguments = [model, identity, back or "", str(MOST_ENTRIES), *(entry.line for entry in entries)]
    _done(connection, f"switch to {identity}", _LINK, BASE, *arguments)
    _rename_link(connection, model, CURRENT, f"switch to {identity}")


def go_back(connection: Connection, model: str, back: str | None) -> None:
    """Undo a switch: at once, to the release that was named as the way back, or to none."""
    if back is None:
        _done(connection, "undo the switch", _UNLINK, BASE, model)
    else:
        _rename_link(connection, model, "back", f"go back to {back}")


def write_record(connection: Connection, model: str, entry: Entry) -> None:
    """Add a line to a model's record."""
    _done(connection, "write its record", _RECORD, BASE, model, str(MOST_ENTRIES), entry.line)


def sweep(connection: Connection, unwanted: Iterable[str]) -> None:
    """Remove folders of releases and trials, named from `BASE` on, and files that none has any more."""
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
                "do it again: what was sent is kept, and the release in use was left as it is",
            ],
        )
    return done
