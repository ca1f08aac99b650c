"""`edgedeploy package`: what is in a package, and whether it is sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgedeploy.cli.options import JsonOption

app = typer.Typer(help="Look into packages.", no_args_is_help=True)


@app.command()
def verify(
    packages: Annotated[list[Path], typer.Argument(metavar="PACKAGE", help="The archives.")],
    json_output: JsonOption = False,
) -> None:
    """Check that packages are whole: every file that the manifest lists, with its SHA-256, and nothing else.

    Nothing is unpacked or run. The first that is not sound ends the command.

    Example: edgedeploy package verify dist/rpi4/digits.tar.gz
    """
    from edgedeploy.cli.console import print_json, stdout
    from edgedeploy.package.archive import read_package

    found = []
    for path in packages:
        manifest, contents = read_package(path)
        size = sum(map(len, contents.values()))
        found.append({"package": str(path), "model": manifest.model, "board": manifest.board, "bytes": size})
        if not json_output:
            stdout().print(
                f"{path} is sound: {manifest.model} for {manifest.board}, {len(contents)} files, {size:,} bytes",
                markup=False,
            )
    if json_output:
        print_json(found)
