"""Archives as nobody should write them; and what the reader of archives says of files, under any Python.

    python -m support.archives READER ARCHIVE...

Everything here needs nothing but the standard library.
"""

import gzip
import importlib.util
import io
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

ZEROS = gzip.compress(bytes(1 << 24), 9)  # 16 MiB in 16 kB


def add(
    archive: tarfile.TarFile, name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(content)
    archive.addfile(entry, io.BytesIO(content))


def header(name: bytes, size: bytes | int = 0, kind: bytes = b"0", **fields: bytes) -> bytes:
    """A header, right or not: its fields are what is said, and its sum is that of them unless `sum` says another."""
    places = {"mode": 100, "uid": 108, "size": 124, "mtime": 136, "sum": 148, "link": 157, "magic": 257, "prefix": 345}
    stated = {"size": size if isinstance(size, bytes) else b"%011o\0" % size, "magic": b"ustar\x0000", **fields}
    block = bytearray(512)
    block[: len(name)], block[156:157] = name, kind
    for field, value in stated.items():
        block[places[field] : places[field] + len(value)] = value
    if "sum" not in fields:
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def entry(name: bytes, content: bytes, **fields: Any) -> bytes:
    return header(name, fields.pop("size", len(content)), **fields) + content + bytes(-len(content) % 512)


END = bytes(1024)


def bomb(path: Path, begin: bytes, mebibytes: int) -> Path:
    """An archive of a beginning and zeros, 16 kB for each 16 MiB of them."""
    path.write_bytes(gzip.compress(begin) + ZEROS * (mebibytes >> 4))
    return path


def peak_bytes() -> int:
    """The most memory that this process had at a time; `getrusage` would count that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def pythons() -> list[Path]:
    """Every Python of this machine that edgedeploy is for, and the system's own."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [*map(Path, os.get_exec_path()), *root.glob("versions/*/bin")]
    found = [folder / f"python3.{minor}" for folder in places for minor in range(10, 14)]
    programs = {path.resolve(): path for path in [Path(sys.executable), *found] if path.is_file()}
    return [path for resolved, path in programs.items() if "shims" not in resolved.parts]


def main(reader: str, *archives: str) -> None:
    """Print as JSON what is in each archive, or why it is refused, and what memory all took."""
    spec = importlib.util.spec_from_file_location("reader", reader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["reader"] = module
    spec.loader.exec_module(module)
    before, verdicts = peak_bytes(), {}
    for path in archives:
        try:
            with module.opened_archive(Path(path)) as entries:
                verdict = [[entry.name, sum(map(len, entry.pieces()))] for entry in entries]
        except module.DamagedArchiveError as error:
            verdict = str(error)
        verdicts[Path(path).name] = verdict
    json.dump({"verdicts": verdicts, "memory": peak_bytes() - before}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
