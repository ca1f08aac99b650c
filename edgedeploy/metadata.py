"""What exporters write about a network into its file: frontends keep it, packages carry it, decoders read it."""

from __future__ import annotations

from collections.abc import Iterable

from edgedeploy import heads, quantised

# The name of the zoo's entry that says how images become the input of a network.
ENTRY = "edgedeploy.entry"
# What files that edgedeploy wrote say: it stands elsewhere in packages, or is of no use there.
OWN = (heads.KEY, quantised.KEY, ENTRY)
# Of all that files say, what tells how outputs are to be read: Ultralytics' keys, RapidOCR's with the characters
# that a network can read, one on each line, and our own.
_KEPT = ("task", "names", "stride", "imgsz", "kpt_shape", "end2end", "character", *OWN)
# A manifest has 1 MiB, in which a character takes six bytes at most. The names of ImageNet's 1000 classes take 23 kB.
MOST_CHARACTERS = 1 << 17


def kept(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The entries that decoders read, as the file has them.

    All of them are absent if together they are longer than `MOST_CHARACTERS`.
    """
    found = {key: value for key, value in entries if key in _KEPT}
    return found if sum(map(len, found.values())) <= MOST_CHARACTERS else {}
