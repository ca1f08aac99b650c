"""`edgedeploy toolchains`: list toolchains, and use them in CMake."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.base.files import write_text
from edgedeploy.cli.console import as_json, as_table, print_result, readable, shown_progress
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import BoardArgument, file_option
from edgedeploy.cli.overrides import Linking

app = Commands()


@app.listing
def list_toolchains() -> None:
    """List the toolchains, and write CMake toolchain files.

    Example: edgedeploy toolchains
    """
    from edgedeploy.target.toolchain import TOOLCHAINS, is_installed

    toolchains = {path.stem: toolchain for path, toolchain in readable(TOOLCHAINS)}
    rows, objects = [], []
    for name, toolchain in toolchains.items():
        architectures = ", ".join(toolchain.architectures) if toolchain.architectures else "all"
        installed = is_installed(toolchain)
        how = "yes" if installed else f"no: {toolchain.install}"
        rows.append([name, toolchain.description, architectures, how])
        objects.append({"name": name, "installed": installed, **toolchain.model_dump(exclude_none=True)})
    print_result(objects, as_table(["toolchain", "description", "links for", "installed"], rows))


@app.command()
def cmake(
    board: BoardArgument,
    *,
    linking: Linking,
    output: Path | None = file_option(None, "--output", "-o", what="Write to this file; default: standard output."),
) -> None:
    """Write a CMake toolchain file to build your own C and C++ for a board.

    Executables need no C++ library on the board, and with zig no newer glibc than in the board's profile. They run
    on every CPU of the architecture, unless CMAKE_CXX_FLAGS say otherwise.

    Example: edgedeploy toolchains cmake rpi4 --output rpi4.cmake

    Example: edgedeploy toolchains cmake rpi-armhf --toolchain gnu-armhf
    """
    from edgedeploy.target.cmake import toolchain_file
    from edgedeploy.target.resolved import resolve

    text = toolchain_file(resolve(board, linking.fields), shown_progress())
    if output:
        write_text(output, text)
    elif not as_json():
        print(text, end="")
        return
    use = f"{output}: use it with `cmake -B build -DCMAKE_TOOLCHAIN_FILE={output and output.absolute()}`"
    print_result({"board": board, "file": output and str(output), "text": text}, use)
