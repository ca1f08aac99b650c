"""`edgedeploy boards`: list, show, create and probe board profiles."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from edgedeploy.base.files import replacing
from edgedeploy.cli.console import as_table, print_result, readable
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import BoardArgument, RemoteBoard, complete_board
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    from edgedeploy.target.facts import Facts

app = Commands()

_STATED: Any = {"mode": "json", "exclude_none": True}


@app.listing
def list_boards() -> None:
    """List, show and create board profiles.

    Example: edgedeploy boards
    """
    from edgedeploy.target.board import BOARDS
    from edgedeploy.target.resolved import resolve

    boards = {path.stem: resolve(path.stem).profile for path, _ in readable(BOARDS)}
    whole = ("triple", "CPU", "cores", "toolchain")
    rows = (
        [name, each.description, each.triple, each.cpu, str(each.cores), each.toolchain]
        for name, each in boards.items()
    )
    print_result(
        [{"name": name, **board.model_dump(**_STATED)} for name, board in boards.items()],
        as_table(["board", "description", *whole], rows, whole=whole),
    )


@app.command()
def show(name: BoardArgument) -> None:
    """Show a board's profile, the TVM target derived from it, and the facts probed on boards of this kind.

    Example: edgedeploy boards show rpi4
    """
    import yaml

    from edgedeploy.target.board import BOARDS
    from edgedeploy.target.facts import stored
    from edgedeploy.target.resolved import resolve

    path, board = BOARDS.find(name), resolve(name).profile
    about = {"name": path.stem, "file": str(path), **board.model_dump(**_STATED), "target": board.target()}
    probed = stored(path.stem)
    stated = {**board.model_dump(mode="json", exclude_defaults=True), "cores": board.cores}
    lines = [f"# {path}", *yaml.safe_dump(stated, sort_keys=False).rstrip().split("\n"), ""]
    lines.append(f"TVM target: {json.dumps(board.target())}")
    for each in probed:
        lines += ["", f"probed {each.time:%Y-%m-%d %H:%M} UTC, {each.host}: {each.facts.line()}", *_lines(each.facts)]
    print_result({**about, "probed": [each.model_dump(exclude={"board"}, **_STATED) for each in probed]}, *lines)


@app.command()
def new(
    name: str = Argument(..., help="The new board's name, or a path ending in .yaml."),
    template: str = Option(..., "--from", help="The board to copy.", autocompletion=complete_board),
) -> None:
    """Create a board profile as a copy of another, in the user's configuration folder.

    Example: edgedeploy boards new my-board --from rpi4
    """
    from edgedeploy.base.settings import user_folder
    from edgedeploy.target.board import BOARDS

    source = BOARDS.find(template)
    BOARDS.load(template)
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise InputError(
                f"{name!r} cannot name a board", hints=["use letters, digits, dots, dashes and underscores only"]
            )
        path = user_folder() / "boards" / f"{name}.yaml"
    if path.exists():
        raise InputError(f"{path} exists", hints=["choose another name, or edit or remove that file"])
    is_another = name in BOARDS.names()
    with replacing(path) as temporary:
        temporary.write_bytes(source.read_bytes())
    used = BOARDS.find(name) if is_another else path
    lines = [f"{path}: a copy of {template}; edit it, then `edgedeploy boards show {name}`"]
    lines += [f"there is another board {name} already; {used} is used"] if is_another else []
    print_result({"name": name, "file": str(path), "from": template, "used": str(used)}, *lines)


@app.command()
def probe(*, where: RemoteBoard) -> None:
    """Probe a board over SSH, and store what it reports.

    The stored facts fill in what the profile leaves open: cores, glibc and properties of the OpenCL device.
    `edgedeploy boards show` shows them.

    Example: edgedeploy boards probe --board rpi4 --host pi@10.0.0.7
    """
    from datetime import datetime, timezone

    from edgedeploy.doctor.opencl import devices_on
    from edgedeploy.remote.facts import probe as ask
    from edgedeploy.target.facts import Probed, store
    from edgedeploy.target.opencl.profile import opencl_of

    with where.connected() as (connection, resolved):
        address = connection.address
        facts = ask(connection)
        if opencl_of(resolved.profile):
            facts = facts.model_copy(update={"opencl": devices_on(connection, resolved.profile)})
    now = datetime.now(timezone.utc).replace(microsecond=0)
    path = store(Probed(board=resolved.label, host=str(address), time=now, facts=facts))
    lines = [f"{address}: {facts.line()}", *_lines(facts), f"stored in {path}"]
    print_result({"host": str(address), "file": str(path), **facts.model_dump()}, *lines)


def _lines(facts: Facts) -> list[str]:
    stated = facts.model_dump(exclude_none=True, exclude={"opencl"})
    lines = [f"  {name:<14} {' '.join(value) if isinstance(value, list) else value}" for name, value in stated.items()]
    return [*lines, *(f"  {'opencl':<14} {device.line()}" for device in facts.opencl)]
