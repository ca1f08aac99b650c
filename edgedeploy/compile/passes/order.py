"""Which passes run for a board, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from edgedeploy.board import Board
from edgedeploy.catalog import unknown_name
from edgedeploy.compile.passes import Pass, entries, load_installed
from edgedeploy.compile.passes.builtin import PASSES
from edgedeploy.errors import ConfigurationError, InputError

LISTING = "edgedeploy build --list-passes"


def pass_names() -> list[str]:
    """The names of all passes, edgedeploy's own first; nothing is loaded."""
    return [*(each.name for each in PASSES), *(entry.name for entry in entries())]


def disableable() -> list[str]:
    """The names of passes that can be disabled."""
    required = {each.name for each in PASSES if each.required}
    return [name for name in pass_names() if name not in required]


def check_disabled(disabled: Collection[str]) -> None:
    """Refuse unknown names, and passes without which nothing can be built."""
    names, required = pass_names(), {each.name: each.required for each in PASSES if each.required}
    for name in disabled:
        if name not in names:
            raise unknown_name("pass", name, names, LISTING)
        if name in required:
            hints = [f"see which can with `{LISTING}`"]
            raise InputError(f"the pass {name} cannot be disabled", why=required[name], hints=hints)


def ordered(added: Sequence[Pass]) -> list[Pass]:
    """All passes in order: edgedeploy's own, and passes of other packages at the places that they ask for.

    If several ask for one place, they run in the order of their names.
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
    """The passes that run for a board, in order, without those whose names are in `disabled`."""
    check_disabled(disabled)
    every = ordered(load_installed(disabled))
    chosen = [each for each in every if each.name not in disabled and each.applies(board)]
    for before, each in pairwise(chosen):
        if each.expects.layout != before.result.layout:
            misfit = each if each.package else before
            why = f"{each.name} works on {each.expects.layout}, and {before.name} leaves {before.result.layout}"
            raise _misplaced(misfit, why)
        if each.package and each.expects.layout.startswith("fused"):
            raise _misplaced(each, "fused functions with a layer are lowered from their groups, not from their bodies")
    return chosen


def _without_a_place(each: Pass) -> ConfigurationError:
    place = each.before or each.after
    if not place:
        return _misplaced(each, "it has neither `before` nor `after`")
    if place in pass_names():
        return _misplaced(each, f"it runs next to {place}, which is disabled or has no place itself")
    error = unknown_name("pass", place, pass_names(), LISTING)
    return _misplaced(each, f"it asks for a place next to {place!r}: {error}")


def _misplaced(each: Pass, why: str) -> ConfigurationError:
    hints = [f"leave it out: --disable-pass {each.name}", f"see the order with `{LISTING}`"]
    return ConfigurationError(f"the pass {each.name!r} of {each.package} cannot be used", why=why, hints=hints)
