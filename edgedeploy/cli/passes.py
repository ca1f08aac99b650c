"""What `edgedeploy build` shows of the compiler's passes, and how they are named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer


def complete_pass(incomplete: str) -> list[str]:
    """Names of passes that can be disabled and begin with what was typed."""
    from edgedeploy.compile.passes.order import disableable

    return [name for name in disableable() if name.startswith(incomplete)]


DisablePassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--disable-pass",
        metavar="NAME",
        help="Leave a pass of the compiler out; may be given several times.",
        autocompletion=complete_pass,
    ),
]
PassTimesOption = Annotated[bool, typer.Option("--print-pass-times", help="Print how long each pass took.")]
ListPassesOption = Annotated[
    bool, typer.Option("--list-passes", help="List the passes of the compiler in order, and build nothing.")
]


def show_passes(disabled: Sequence[str], json_output: bool) -> None:
    """List all passes in order: what each does, works on and leaves, and where it comes from.

    Those of other packages that are disabled are not loaded.
    """
    from edgedeploy.cli.console import print_json, print_table, stdout
    from edgedeploy.compile.passes import load_installed
    from edgedeploy.compile.passes.order import ordered

    records = [
        {
            "name": each.name,
            "what": each.what,
            "expects": str(each.expects),
            "leaves": str(each.result),
            "required": each.required or None,
            "package": each.package or "edgedeploy",
        }
        for each in ordered(load_installed(disabled))
    ]
    if json_output:
        print_json(records)
        return
    keys = ("what", "expects", "leaves", "package")
    rows = (
        [f"{each['name']}{' *' if each['required'] else ''}", *(str(each[key]) for key in keys)] for each in records
    )
    print_table(["pass", "", *keys[1:]], rows)
    stdout().print("* required: it cannot be disabled")


def pass_times(times: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """The times of passes as JSON: `pass` and `ms`, in order."""
    return [{"pass": name, "ms": round(seconds * 1e3, 3)} for name, seconds in times]


def print_pass_times(times: Sequence[tuple[str, float]]) -> None:
    """The same as a table, with their sum."""
    from edgedeploy.cli.console import print_table

    whole = [*times, ("all", sum(seconds for _, seconds in times))]
    print_table(["pass", "ms"], ([name, f"{seconds * 1e3:.1f}"] for name, seconds in whole), right=["ms"])
