"""Metadata that exporters write into a network's file: frontends keep it, packages carry it, decoders read it."""

from __future__ import annotations

from collections.abc import Iterable

from edgedeploy.model import heads, quantised

ENTRY = "edgedeploy.entry"  # the key of the zoo entry's name, which defines a network's preprocessing
OWN = (heads.KEY, quantised.KEY, ENTRY)  # edgedeploy's own keys, which packages store elsewhere or do not need
# Keys that decoders read: Ultralytics', RapidOCR's (`character`: the characters that a network can read, one on each
# line), and our own.
_KEPT = ("task", "names", "stride", "imgsz", "kpt_shape", "end2end", "character", *OWN)
# A manifest has 1 MiB, in which a character takes six bytes at most. The names of ImageNet's 1000 classes take 23 kB.
MOST_CHARACTERS = 1 << 17


def kept(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The entries that decoders read; none if together they exceed `MOST_CHARACTERS`."""
    found = {key: value for key, value in entries if key in _KEPT}
    return found if sum(map(len, found.values())) <= MOST_CHARACTERS else {}
