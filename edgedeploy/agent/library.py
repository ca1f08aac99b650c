"""The library for programs of users' own, in the forms that compilers, CMake, pkg-config and Python take."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from edgedeploy.agent.build import Product, build_product, oldest_glibc, sources_with_device
from edgedeploy.agent.recipe import library_folder, library_sources, load_recipe
from edgedeploy.agent.wheel import PACKAGE, platform_tag, wheel_name, write_wheel
from edgedeploy.board import Board
from edgedeploy.errors import OutputError
from edgedeploy.files import cannot_write, filling, replacing
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.library import LIBRARY_NAME
from edgedeploy.triples import architecture_of
from edgedeploy.version import __version__

STATIC_NAME = "libedgedeploy.a"
_HEADERS = ("edgedeploy.h", "edgedeploy.hpp")

_CMAKE = f"""\
# edgedeploy::edgedeploy is the shared library, for any compiler. edgedeploy::static is the static one, for programs
# that zig links: it needs zig's C++ library, and GNU's in the same program would clash with that. `edgedeploy
# toolchains cmake BOARD` writes a toolchain file with zig.
if(NOT TARGET edgedeploy::edgedeploy)
  get_filename_component(_edgedeploy "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
  add_library(edgedeploy::edgedeploy SHARED IMPORTED)
  set_target_properties(edgedeploy::edgedeploy PROPERTIES
    IMPORTED_LOCATION "${{_edgedeploy}}/lib/{LIBRARY_NAME}" IMPORTED_SONAME {LIBRARY_NAME}
    INTERFACE_INCLUDE_DIRECTORIES "${{_edgedeploy}}/include")
  add_library(edgedeploy::static STATIC IMPORTED)
  set_target_properties(edgedeploy::static PROPERTIES
    IMPORTED_LOCATION "${{_edgedeploy}}/lib/{STATIC_NAME}" IMPORTED_LINK_INTERFACE_LANGUAGES CXX
    INTERFACE_INCLUDE_DIRECTORIES "${{_edgedeploy}}/include" INTERFACE_LINK_LIBRARIES "dl;pthread;m")
  unset(_edgedeploy)
endif()
"""

_PKG_CONFIG = f"""\
prefix=${{pcfiledir}}/../..
Name: edgedeploy
Description: Networks of edgedeploy in programs of your own
Version: {__version__}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -ledgedeploy
"""


def shared_library(board: Board, progress: Progress = SILENT) -> Path:
    """The shared library for a board's triple: the one that was built before, or a new one."""
    symbols = library_folder() / "symbols.map"
    link_flags = [*load_recipe().library.link_flags, f"-Wl,--version-script={symbols}"]
    return _built(LIBRARY_NAME, link_flags, board, progress)


def static_library(board: Board, progress: Progress = SILENT) -> Path:
    """The static library, in the same way; programs with it are linked with zig's C++ library."""
    return _built(STATIC_NAME, load_recipe().library.merge_flags, board, progress)


def write_library(board: Board, folder: Path, progress: Progress = SILENT) -> list[Path]:
    """Write headers, libraries, what CMake and pkg-config need, and the Python package for a board's triple.

    Args:
        board: the board.
        folder: where they go; created if it is missing. What was written there before is replaced.
        progress: is told what is built.

    Returns:
        The files, relative to the folder; there is no wheel where Python has no name of the architecture.

    Raises:
        ToolchainError: the library cannot be built.
        OutputError: the folder cannot be written, or holds something else; that is left as it is.
    """
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / "include" / _HEADERS[0]).is_file():
            why, hints = "it holds something else", ["name a new folder, or an empty one"]
            raise OutputError(f"the library is not written to {folder}", why=why, hints=hints)
        with filling(folder):  # before the long work: an unwritable folder should not cost it
            shared, static = shared_library(board, progress), static_library(board, progress)

        def text(content: str) -> Callable[[Path], object]:
            return lambda path: path.write_text(content, encoding="utf-8")

        def copy(source: Path) -> Callable[[Path], object]:
            return lambda path: shutil.copyfile(source, path)

        files = {
            **{Path("include", name): copy(library_folder() / name) for name in _HEADERS},
            Path("lib", LIBRARY_NAME): copy(shared),
            Path("lib", STATIC_NAME): copy(static),
            Path("lib", "cmake", "edgedeploy", "edgedeploy-config.cmake"): text(_CMAKE),
            Path("lib", "pkgconfig", "edgedeploy.pc"): text(_PKG_CONFIG),
        }
        if machine := architecture_of(board.triple).python:
            platform = platform_tag(machine, oldest_glibc(board))
            files[Path(wheel_name(platform))] = lambda path: write_wheel(path, shared, platform)
        for wheel in folder.glob(f"{PACKAGE}-*.whl"):  # of another version, or for another board
            wheel.unlink()
        for name, write in files.items():
            with replacing(folder / name) as temporary:
                write(temporary)
        link = Path("lib", LIBRARY_NAME.removesuffix(".1"))  # what linkers look for
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(LIBRARY_NAME)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return [*files, link]


def _built(name: str, link_flags: list[str], board: Board, progress: Progress) -> Path:
    recipe = load_recipe()
    sources = sources_with_device(library_sources(recipe), board)
    return build_product(Product(name, sources, link_flags, recipe.library.units), board, progress=progress).path
