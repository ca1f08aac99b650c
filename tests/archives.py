"""Archives as nobody should write them."""

from __future__ import annotations

import io
import tarfile


def add(
    archive: tarfile.TarFile, name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> None:
    """Add an entry of any kind, of whatever name."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(content)
    archive.addfile(entry, io.BytesIO(content))
