"""Which passes run for a board, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from edgedeploy.board import Board
from edgedeploy.catalog import unknown_name
from edgedeploy.compile.passes import Pass
from edgedeploy.compile.passes.builtin import PASSES
from edgedeploy.compile.passes.installed import entries, load_installed
from edgedeploy.errors import ConfigurationError, InputError

LISTING = "edgedeploy build --list-passes"


def pass_names() -> list[str]:
    """The names of all passes, edgedeploy's own first; nothing is loaded."""
    return [*(each.name for each in PASSES), *(entry.name for entry in entries())]


def disableable() -> list[str]:
    """The names of passes that can be left out."""
    required = {each.name for each in PASSES if each.required}
    return [name for name in pass_names() if name not in required]


def check_disabled(disabled: Collection[str]) -> None:
    """Refuse names of passes that cannot be left out.

    Raises:
        UnknownNameError: there is no such pass.
        InputError: nothing can be built without it.
    """
    names, required = pass_names(), {each.name: each for each in PASSES if each.required}
    for name in disabled:
        if name not in names:
            raise unknown_name("pass", name, names, LISTING)
        if name in required:
            raise InputError(
                f"the pass {name} cannot be disabled",
                why=required[name].required,
                hints=[f"see which can with `{LISTING}`"],
            )


def ordered(added: Sequence[Pass]) -> list[Pass]:
    """All passes in order: edgedeploy's own, and those of other packages where they ask to be.

    Where several ask for one place, they run in the order of their names.

    Raises:
        ConfigurationError: one has the name of another, or asks for a place that there is not.
    """
    found, waiting = list(PASSES), sorted(added, key=lambda each: each.name)
    for each in waiting:
        if any(each.name == own.name for own in PASSES):
            raise _misplaced(each, "edgedeploy has one of that name")
    while waiting:
        names = [each.name for each in found]
        ready = [each for each in waiting if (each.before or each.after) in names]
        if not ready:
            raise _without_a_place(waiting[0])
        for each in ready:
            index = [other.name for other in found].index(each.before or each.after)
            if each.after:
                index += 1
                while index < len(found) and found[index].after == each.after:
                    index += 1
            found.insert(index, each)
        waiting = [each for each in waiting if each not in ready]
    return found


def passes_for(board: Board, disabled: Collection[str] = ()) -> list[Pass]:
    """The passes that run for a board, in order.

    Args:
        board: what the code is for.
        disabled: names of passes to leave out.

    Raises:
        UnknownNameError, InputError: as `check_disabled`.
        ConfigurationError: as `load_installed` and `ordered`; or a pass does not fit where it asks to be.
    """
    check_disabled(disabled)
    every = ordered(load_installed(disabled))
    chosen = [each for each in every if each.name not in disabled and each.applies(board)]
    for before, each in pairwise(chosen):
        if each.expects.layout != before.result.layout:
            misfit = each if each.package else before
            why = f"{each.name} works on {each.expects.layout}, and {before.name} leaves {before.result.layout}"
            raise _misplaced(misfit, why)
        if each.package and each.expects.layout.startswith("fused"):
            raise _misplaced(
                each, "fused functions with a layer are lowered from their groups, whatever a pass changes"
            )
    return chosen


def _without_a_place(each: Pass) -> ConfigurationError:
    place = each.before or each.after
    if not place:
        return _misplaced(each, "it does not say before or after which pass it runs")
    if place in pass_names():
        return _misplaced(each, f"it runs beside {place}, which is disabled or has no place itself")
    error = unknown_name("pass", place, pass_names(), LISTING)
    return _misplaced(each, f"it asks for a place beside {place!r}: {error}")


def _misplaced(each: Pass, why: str) -> ConfigurationError:
    hints = [f"leave it out: --disable-pass {each.name}", f"see the order with `{LISTING}`"]
    return ConfigurationError(f"the pass {each.name!r} of {each.package} cannot be used", why=why, hints=hints)
