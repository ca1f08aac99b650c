"""Write the library for users' own programs, for compilers, CMake, pkg-config and Python, and example programs.

The wheel for Python is the package `edgedeploy_runtime`: one module over the shared library. Equal contents give equal
bytes. The format is the "Binary distribution format" of the Python Packaging User Guide.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Literal

from edgedeploy.agent import edgedeploy_runtime
from edgedeploy.agent.build import Product, build_product, oldest_glibc, sources_with_device
from edgedeploy.agent.edgedeploy_runtime import LIBRARY_NAME
from edgedeploy.agent.recipe import LIBRARY, library_sources, load_recipe
from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.files import filling, replacing, write_text, writing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.text import fill_template
from edgedeploy.errors import InputError, OutputError
from edgedeploy.package.manifest import MODEL_NAME
from edgedeploy.target.board import Board
from edgedeploy.target.triples import architecture_of
from edgedeploy.version import __version__

STATIC_NAME = "libedgedeploy.a"
_HEADERS = ("edgedeploy.h", "edgedeploy.hpp")

_PACKAGE = "edgedeploy_runtime"
# The oldest versions that the module works with.
_PYTHON, _NUMPY = "3.9", "1.19"

Language = Literal["c", "cpp", "python"]

# The network whose release the examples open.
_EXAMPLE = "retinaface"


def shared_library(board: Board, progress: Progress = SILENT) -> Path:
    """The shared library for a board's triple, from the cache or built."""
    symbols = LIBRARY / "symbols.map"
    link_flags = [*load_recipe().library.link_flags, f"-Wl,--version-script={symbols}"]
    return _built(LIBRARY_NAME, link_flags, board, progress)


def write_library(board: Board, folder: Path, progress: Progress = SILENT) -> list[Path]:
    """Write headers, libraries, files for CMake and pkg-config, and the Python package for a board's triple.

    The folder is created if it is missing. Files of an earlier call are replaced; a folder with anything else is
    refused. Returns the files, relative to the folder, without a wheel if Python has no name for the architecture.
    """
    with writing(folder):
        if folder.exists() and any(folder.iterdir()) and not (folder / "include" / _HEADERS[0]).is_file():
            why, hints = "it holds something else", ["name a new folder, or an empty one"]
            raise OutputError(f"the library is not written to {folder}", why=why, hints=hints)
        with filling(folder):  # before the long work: an unwritable folder should not cost it
            shared = shared_library(board, progress).read_bytes()
            static = _built(STATIC_NAME, load_recipe().library.merge_flags, board, progress).read_bytes()
        files = {
            **{Path("include", name): (LIBRARY / name).read_bytes() for name in _HEADERS},
            Path("lib", LIBRARY_NAME): shared,
            Path("lib", STATIC_NAME): static,
            Path("lib", "cmake", "edgedeploy", "edgedeploy-config.cmake"): _filled("edgedeploy-config.cmake"),
            Path("lib", "pkgconfig", "edgedeploy.pc"): _filled("edgedeploy.pc"),
        }
        if machine := architecture_of(board.triple).python:
            platform = platform_tag(machine, oldest_glibc(board))
            files[Path(f"{_PACKAGE}-{__version__}-py3-none-{platform}.whl")] = _wheel(shared, platform)
        for wheel in folder.glob(f"{_PACKAGE}-*.whl"):  # of another version, or for another board
            wheel.unlink()
        for name, content in files.items():
            with replacing(folder / name) as temporary:
                temporary.write_bytes(content)
        link = Path("lib", LIBRARY_NAME.removesuffix(".1"))  # what linkers look for
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(LIBRARY_NAME)
    return [*files, link]


def _built(name: str, link_flags: list[str], board: Board, progress: Progress) -> Path:
    recipe = load_recipe()
    sources = sources_with_device(library_sources(recipe), board)
    return build_product(Product(name, sources, link_flags, recipe.library.units), board, progress=progress).path


def _filled(template: str) -> bytes:
    values = {"shared": LIBRARY_NAME, "static": STATIC_NAME, "version": __version__}
    return fill_template(__package__, template, **values).encode()


def platform_tag(machine: str, glibc: str) -> str:
    """The tag of systems with a glibc of this version or later (PEP 600); `machine` as Python calls it."""
    return f"manylinux_{glibc.replace('.', '_')}_{machine}"


def _wheel(library: bytes, platform: str) -> bytes:
    information = f"{_PACKAGE}-{__version__}.dist-info"
    contents = {
        f"{_PACKAGE}/__init__.py": Path(edgedeploy_runtime.__file__).read_bytes(),
        f"{_PACKAGE}/{LIBRARY_NAME}": library,
        f"{_PACKAGE}/py.typed": b"",
        f"{information}/METADATA": _lines(
            "Metadata-Version: 2.1",
            f"Name: {_PACKAGE.replace('_', '-')}",
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
    record = f"{information}/RECORD"  # lists itself without size and hash
    digests = {name: urlsafe_b64encode(hashlib.sha256(each).digest()) for name, each in contents.items()}
    rows = [f"{name},sha256={digests[name].decode().rstrip('=')},{len(each)}" for name, each in contents.items()]
    contents[record] = _lines(*rows, f"{record},,")
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            member = zipfile.ZipInfo(name)  # dated 1980, so that wheels are reproducible
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return wheel.getvalue()


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def write_program(language: Language, model: str, folder: Path) -> list[Path]:
    """Write a program that opens a model's release in use, and prints what it sees in an image.

    The folder is created if it is missing; existing files are kept. Returns the files, relative to the folder.
    """
    if not re.fullmatch(MODEL_NAME, model):
        raise InputError(
            f"invalid name of a model: {model!r}",
            hints=["give the name that `edgedeploy push` shows, of letters, digits, dots, dashes and underscores"],
        )
    sources = sorted((builtin_folder() / "examples" / language).iterdir())
    texts = {Path(source.name): source.read_text(encoding="utf-8") for source in sources if source.is_file()}
    with writing(folder):
        for name in texts:
            if (folder / name).exists():
                hints = ["name a new folder, or remove that file"]
                raise OutputError(f"{folder / name} is left as it is", why="it exists", hints=hints)
        for name, text in texts.items():
            write_text(folder / name, text.replace(f'"{_EXAMPLE}"', f'"{model}"'))
    return list(texts)
