"""`edgedeploy toolchains`: list toolchains, and use them in CMake."""

from __future__ import annotations

from pathlib import Path

from typer import Context, Typer

from edgedeploy.base.files import replacing
from edgedeploy.cli.console import print_json, print_result, print_table, quiet_if, readable
from edgedeploy.cli.options import BoardArgument, JsonOption, file_option
from edgedeploy.cli.overrides import Linking, flattened

app = Typer(invoke_without_command=True)


@app.callback()
def list_toolchains(context: Context, json_output: JsonOption = False) -> None:
    """List the toolchains, and write CMake toolchain files.

    Example: edgedeploy toolchains
    """
    if context.invoked_subcommand is not None:
        return
    from edgedeploy.target.toolchain import TOOLCHAINS, is_installed

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
@flattened
def cmake(
    board: BoardArgument,
    *,
    linking: Linking,
    output: Path | None = file_option(None, "--output", "-o", what="Write to this file; default: standard output."),
    json_output: JsonOption = False,
) -> None:
    """Write a CMake toolchain file to build your own C and C++ for a board.

    Executables need no C++ library on the board, and with zig no newer glibc than in the board's profile. They run
    on every CPU of the architecture, unless CMAKE_CXX_FLAGS say otherwise.

    Example: edgedeploy toolchains cmake rpi4 --output rpi4.cmake

    Example: edgedeploy toolchains cmake rpi-armhf --toolchain gnu-armhf
    """
    from edgedeploy.target.cmake import toolchain_file
    from edgedeploy.target.resolved import resolve

    text = toolchain_file(resolve(board, linking.fields), quiet_if(json_output))
    if output:
        with replacing(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    elif not json_output:
        print(text, end="")
        return
    use = f"{output}: use it with `cmake -B build -DCMAKE_TOOLCHAIN_FILE={output and output.absolute()}`"
    print_result(json_output, {"board": board, "file": output and str(output), "text": text}, use)
