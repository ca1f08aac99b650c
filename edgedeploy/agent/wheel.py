"""The Python package `edgedeploy_runtime` as a wheel: one module over the library for programs of users' own.

A wheel is a zip archive (the "Binary distribution format" of the Python Packaging User Guide); equal contents give
equal bytes.
"""

from __future__ import annotations

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from edgedeploy.runtime.library import LIBRARY_NAME
from edgedeploy.version import __version__

PACKAGE = "edgedeploy_runtime"
# The module, and the oldest Python and numpy that it works with.
_MODULE = Path(__file__).parent.parent / "runtime" / "library.py"
_PYTHON, _NUMPY = "3.9", "1.19"


def platform_tag(machine: str, glibc: str) -> str:
    """The tag of systems with a glibc of this version or later (PEP 600); `machine` as Python calls it."""
    return f"manylinux_{glibc.replace('.', '_')}_{machine}"


def wheel_name(platform: str) -> str:
    """The file name of the wheel for a platform."""
    return f"{PACKAGE}-{__version__}-py3-none-{platform}.whl"


def write_wheel(target: Path, library: Path, platform: str) -> None:
    """Write the wheel for a platform.

    Args:
        target: the file to write, called as `wheel_name` says.
        library: the shared library for that platform.
        platform: its tag.

    Raises:
        OSError: the wheel cannot be written.
    """
    information = f"{PACKAGE}-{__version__}.dist-info"
    contents = {
        f"{PACKAGE}/__init__.py": _MODULE.read_bytes(),
        f"{PACKAGE}/{LIBRARY_NAME}": library.read_bytes(),
        f"{PACKAGE}/py.typed": b"",
        f"{information}/METADATA": _lines(
            "Metadata-Version: 2.1",
            f"Name: {PACKAGE.replace('_', '-')}",
            f"Version: {__version__}",
            "Summary: Networks that edgedeploy built, in Python on a board",
            "License: Apache-2.0",
            f"Requires-Python: >={_PYTHON}",
            f"Requires-Dist: numpy>={_NUMPY}",
        ),
        f"{information}/WHEEL": _lines(
            "Wheel-Version: 1.0",
            f"Generator: edgedeploy {__version__}",
            "Root-Is-Purelib: false",
            f"Tag: py3-none-{platform}",
        ),
    }
    record = f"{information}/RECORD"
    contents[record] = _record(contents, record)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            member = zipfile.ZipInfo(name)  # of 1980, as wheels that are reproducible
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)


def _record(contents: Mapping[str, bytes], record: str) -> bytes:
    """The list of files with their sizes and hashes, of itself without."""
    lines = []
    for name, content in contents.items():
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return _lines(*lines, f"{record},,")


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
