"""`edgedeploy toolchains`: the toolchains there are, and their use in CMake."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.console import print_json, print_table, quiet_if, readable, stdout
from edgedeploy.cli.options import JsonOption, complete_board, file_option
from edgedeploy.cli.overrides import overridable
from edgedeploy.files import replacing

if TYPE_CHECKING:
    from edgedeploy.board import Overrides

app = typer.Typer(invoke_without_command=True)


@app.callback()
def list_toolchains(context: typer.Context, json_output: JsonOption = False) -> None:
    """List the toolchains, and write files that have CMake use them.

    Example: edgedeploy toolchains
    """
    if context.invoked_subcommand is not None:
        return
    from edgedeploy.toolchain import TOOLCHAINS, is_installed

    toolchains = {path.stem: toolchain for path, toolchain in readable(TOOLCHAINS)}
    if json_output:
        print_json(
            [
                {"name": name, "installed": is_installed(toolchain), **toolchain.model_dump(exclude_none=True)}
                for name, toolchain in toolchains.items()
            ]
        )
        return
    rows = []
    for name, toolchain in toolchains.items():
        architectures = ", ".join(toolchain.architectures) if toolchain.architectures else "all"
        installed = "yes" if is_installed(toolchain) else f"no: {toolchain.install}"
        rows.append([name, toolchain.description, architectures, installed])
    print_table(["toolchain", "description", "links for", "installed"], rows)


@app.command()
@partial(overridable, without=("mcpu", "mattr", "device"))
def cmake(
    board: Annotated[str, typer.Argument(help="A board's name or file.", autocompletion=complete_board)],
    *,
    overrides: Overrides,
    output: Annotated[
        Path | None, file_option("--output", "-o", what="Write to this file; to standard output unless given.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write a CMake toolchain file for C and C++ of your own, with the compilers that build for a board.

    Executables need no C++ library on the board, and with zig no newer glibc than the board's profile states. They run
    on every CPU of the architecture, unless CMAKE_CXX_FLAGS say otherwise.

    Example: edgedeploy toolchains cmake rpi4 --output rpi4.cmake

    Example: edgedeploy toolchains cmake rpi-armhf --toolchain gnu-armhf
    """
    from edgedeploy.cmake import toolchain_file
    from edgedeploy.resolved import resolve

    text = toolchain_file(resolve(board, overrides), quiet_if(json_output))
    if output is None:
        if json_output:
            print_json({"board": board, "file": None, "text": text})
        else:
            print(text, end="")
        return
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if json_output:
        print_json({"board": board, "file": str(output), "text": text})
        return
    stdout().print(f"{output}: use it with `cmake -B build -DCMAKE_TOOLCHAIN_FILE={output.absolute()}`")
