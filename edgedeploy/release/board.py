"""The single steps of releases on a board: each one command there, each safe to be cut off anywhere.

Every step takes names that `layout` has checked, and leaves what is in use as it is; `switch` alone changes it, and
does so at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgedeploy.errors import ReleaseError
from edgedeploy.release.layout import CURRENT, STAGING, Release, folder_of, is_id, is_model
from edgedeploy.remote.connection import Completed, Connection
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.failures import OPENCL, failure

# A network of a board takes seconds at most, an emulated one a hundred times as long.
SELF_TEST_S = 1800

# The agent's exit code for outputs that differ by more than is allowed.
_DIFFERS = 6

_LOOK = """
cd && cd "$1" 2>/dev/null || exit 0
for name in releases/*/*; do
    case ${name##*/} in
        current) echo "current ${name#releases/} $(readlink "$name")" ;;
        *) [ ! -d "$name" ] || echo "release ${name#releases/} $(du -sk "$name" | cut -f 1)" ;;
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
cd && cd "$1/releases" && mkdir -p "$2" && cd "$2" || exit
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
cd && cd "$1/releases/$2" && mv "$3" "$4" || exit
"""

_LINK = """
cd && cd "$1/releases/$2" || exit
[ -d "$3" ] || { echo "there is no $3" >&2; exit 1; }
rm -f "staging-current" && ln -s "$3" "staging-current" && ln -f "$3/agent" ../../staging-agent &&
    mv -f ../../staging-agent ../../agent && rm -f ../../staging-agent && { sync -f . 2>/dev/null || sync; }
"""

# A release that is being removed is no longer one.
_SWEEP = """
cd && cd "$1/releases" || exit
shift
for name; do
    aside=${name%/*}/staging-${name##*/}
    mv "$name" "$aside" && rm -rf "$aside" || exit
done
find ../blobs -type f -links 1 -exec rm -f {} +
"""


@dataclass(frozen=True)
class OnBoard:
    """A release that lies on a board: its model, its name, its size, and whether it is in use."""

    model: str
    id: str
    kibibytes: int
    current: bool


def releases(connection: Connection) -> list[OnBoard]:
    """The releases on a board, by model, oldest first."""
    lines = [line.split() for line in _done(connection, "list the releases", _LOOK, BASE).text.splitlines()]
    lines = [line for line in lines if len(line) == 3]  # what has blanks in its name is not ours
    in_use = {name.rpartition("/")[0]: identity for kind, name, identity in lines if kind == "current"}
    found = []
    for kind, name, size in lines:
        model, _, identity = name.rpartition("/")
        if kind == "release" and is_model(model) and is_id(identity) and size.isdigit():
            found.append(OnBoard(model, identity, int(size), in_use.get(model) == identity))
    return sorted(found, key=lambda each: (each.model, each.id))


def missing(connection: Connection, release: Release) -> dict[str, bytes]:
    """The blobs of a release that the board lacks, or has with another content."""
    wanted = {blob: release.contents[name] for name, blob in release.blobs.items()}
    there = present(connection, wanted)
    return {blob: content for blob, content in wanted.items() if blob not in there}


def present(connection: Connection, blobs: Iterable[str]) -> set[str]:
    """Those of some blobs that a board has with their right content."""
    return set(_done(connection, "look for files", _STOCK, BASE, *blobs).text.split())


def upload(connection: Connection, blob: str, content: bytes, advance: Callable[[int], None]) -> None:
    """Send one blob; it gets its name after its SHA-256 was found right there.

    Raises:
        ReleaseError: it did not arrive as it was sent, or the disk is full.
    """
    _done(connection, "store a file", _UPLOAD, BASE, blob, content=[content], advance=advance)


def assemble(connection: Connection, release: Release, identity: str) -> str:
    """Put the files of a release together under a preliminary name, which is returned."""
    pairs = [part for pair in release.blobs.items() for part in pair]
    _done(connection, "put the release together", _ASSEMBLE, BASE, release.model, STAGING + identity, *pairs)
    return STAGING + identity


def self_test(connection: Connection, model: str, name: str) -> dict[str, Any]:
    """Have the board check the files of a release and run its self-test; what the agent says of it.

    Raises:
        ReleaseError: a file is not what the manifest says, the network does not run, or gives other outputs.
        OpenCLError: the board's OpenCL device is not there, or does not do what the network asks of it.
    """
    done = connection.run(_SELF_TEST, folder_of(model, name), timeout_s=SELF_TEST_S)
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
    if done.code == OPENCL:
        raise failure(done.code, what, why.removeprefix("agent: "))
    raise ReleaseError(
        what,
        why=why or f"it ended with code {done.code}, as it does for want of memory",
        hints=["`edgedeploy boards probe` says what the board is", "the release in use was left as it is"],
    )


def _differs(output: dict[str, Any]) -> bool:
    """Whether an output is wrong; one that is not finite has no fraction."""
    return output["fraction"] is None or output["fraction"] > 1


def _difference(output: dict[str, Any]) -> str:
    name, difference, allowed = output["name"], output["largest_difference"], output["allowed"]
    of = f" of the {output['case']} inputs" if "case" in output else ""  # older agents have one case, without a name
    return f"output {name!r}{of} differs by {difference}, {allowed:.3g} is allowed"


def publish(connection: Connection, model: str, staged: str, identity: str) -> None:
    """Give a release that was tested its name."""
    _done(connection, "name the release", _PUBLISH, BASE, model, staged, identity)


def switch(connection: Connection, model: str, identity: str) -> None:
    """Make a release the one in use: at once, by renaming a link."""
    _done(connection, f"switch to {identity}", _LINK, BASE, model, identity)
    folder = f"{BASE}/releases/{model}"
    try:
        connection.rename(f"{folder}/{STAGING}{CURRENT}", f"{folder}/{CURRENT}")
    except OSError as error:
        raise ReleaseError(f"{connection.address} does not switch to {identity}", why=str(error)) from error


def sweep(connection: Connection, unwanted: Sequence[OnBoard]) -> None:
    """Remove releases, and files that no release has any more."""
    _done(connection, "remove old releases", _SWEEP, BASE, *(f"{each.model}/{each.id}" for each in unwanted))


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
