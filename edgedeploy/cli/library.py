"""`edgedeploy library`: the library for users' own programs on a board."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from edgedeploy.cli.console import as_table, print_result, shown_progress
from edgedeploy.cli.options import BoardOption


def library(
    board: BoardOption = "local",
    *,
    output: Path = Option(..., "--output", "-o", metavar="FOLDER", help="Write to this folder, creating it if needed."),
) -> None:
    """Write the library for your own C, C++ or Python programs.

    The folder gets `include`, `lib` with the shared and the static library and files for CMake and pkg-config, and
    the Python package as a wheel.

    Example: edgedeploy library --board rpi4 --output rpi4-library
    """
    from edgedeploy.agent.build import oldest_glibc
    from edgedeploy.agent.library import write_library
    from edgedeploy.target.resolved import resolve

    profile = resolve(board).profile
    files = write_library(profile, output, shown_progress())
    glibc = oldest_glibc(profile)
    names = [str(name) for name in files]
    print_result(
        {"board": board, "triple": profile.triple, "glibc": glibc, "folder": str(output), "files": names},
        f"the library for {profile.triple} with glibc {glibc} or later, in {output}",
        as_table(["file", "bytes"], [[name, f"{(output / name).stat().st_size:,}"] for name in names]),
    )
