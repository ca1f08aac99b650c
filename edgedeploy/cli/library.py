"""`edgedeploy library`: the library for users' own programs on a board."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from edgedeploy.cli.console import print_json, print_table, quiet_if, stdout
from edgedeploy.cli.options import BoardOption, JsonOption


def library(
    board: BoardOption = "local",
    *,
    output: Path = Option(..., "--output", "-o", metavar="FOLDER", help="Write to this folder, creating it if needed."),
    json_output: JsonOption = False,
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
    files = write_library(profile, output, quiet_if(json_output))
    glibc = oldest_glibc(profile)
    if json_output:
        names = [str(name) for name in files]
        print_json({"board": board, "triple": profile.triple, "glibc": glibc, "folder": str(output), "files": names})
        return
    stdout().print(f"the library for {profile.triple} with glibc {glibc} or later, in {output}")
    print_table(["file", "bytes"], [[str(name), f"{(output / name).stat().st_size:,}"] for name in files])
