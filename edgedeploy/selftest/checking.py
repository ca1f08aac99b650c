"""Runs a package's self-test before the package is written: on this machine, or in an emulator of the board."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgedeploy.base.progress import Progress
from edgedeploy.errors import NumericalError, PackageError, UnsupportedError
from edgedeploy.model.tensors import Tensors
from edgedeploy.package.archive import describe, weights_of
from edgedeploy.package.entry import Case
from edgedeploy.package.manifest import LIBRARY_NAME, Check, Manifest
from edgedeploy.selftest.emulator import Emulator
from edgedeploy.selftest.tolerance import TOLERANCE, Recorded, difference_of, error_limit, fractions, other_outputs
from edgedeploy.target.board import Board, load_board

if TYPE_CHECKING:
    from edgedeploy.agent.build import Agent
    from edgedeploy.model.network import Network

Checks = Literal["all", "here", "none"]  # `here`: only if this machine runs the package itself
MOST_GFLOP_OF_SECOND_OPINION = 0.05  # the largest networks that a program in Python computes within seconds

# The most arithmetic that is emulated for one check. Two processors emulate 0.2 to 0.4 GFLOP a second.
MOST_EMULATED_GFLOP = 20.0


@dataclass(frozen=True)
class Draft:
    """A package before it is written, with the cases of its self-test by name; `gflop` is of one inference.

    `further` are networks of the same weights for other shapes, with their cases.
    """

    network: Network
    board: Board
    manifest: Manifest
    contents: Mapping[str, bytes]
    cases: Mapping[str, Recorded]
    gflop: float
    further: Sequence[tuple[Network, Mapping[str, Recorded]]] = ()

    @property
    def all_cases(self) -> list[Mapping[str, Recorded]]:
        """The cases of each entry."""
        return [self.cases, *(cases for _, cases in self.further)]


def check(
    draft: Draft, checks: Checks, agent: Callable[[], Agent | None], progress: Progress
) -> tuple[Draft, Check, float | None]:
    """Run the self-test of a package: here if this machine can, else under an emulator, else compiled for this machine.

    If the code differs from the reference, the network's second opinion is computed. If that differs from the reference
    too, it takes its place. `agent` returns the board's agent, which an emulator runs; None without one.

    Returns the package, with the outputs that it was compared with; how it was checked; and the largest difference from
    these as a fraction of the tolerance.
    """
    try:
        return draft, *_checked(draft, checks, agent, progress)
    except NumericalError as refused:
        other = _by_second_opinion(draft, refused)
        try:
            result = _checked(other, checks, agent, progress)
        except NumericalError as error:
            raise _extended(refused, f"{draft.network.second_opinion_name} differs from both") from error
        progress.note(
            f"{draft.network.reference_name} gives other outputs; "
            f"the code agrees with {draft.network.second_opinion_name}"
        )
        return other, *result


def _by_second_opinion(draft: Draft, refused: NumericalError) -> Draft:
    """The package with another program's outputs for the inputs of its self-test."""
    network, test, contents = draft.network, draft.manifest.selftest, dict(draft.contents)
    if network.second_opinion is None or draft.further:
        raise refused
    if draft.gflop > MOST_GFLOP_OF_SECOND_OPINION:
        raise _extended(refused, _by_operator(network, [each.inputs for each in draft.cases.values()])) from refused
    kept: list[Case] = []
    cases: dict[str, Recorded] = {}
    differs = False
    for case in test.cases:
        before = draft.cases[case.name]
        try:
            made = network.second_opinion(before.inputs)
            outputs = {spec.name: made[spec.name] for spec in network.outputs}
        except Exception as error:
            raise refused from error
        if any(spec.misfit(outputs[spec.name]) for spec in network.outputs):
            raise refused
        other = any(fraction > 1 for fraction in fractions(outputs, before.outputs, case).values())
        differs |= other
        if other and kept and _has_nan(outputs) and not _has_nan(before.outputs):
            # Products of infinities and zero, which are not part of the operator's definition.
            for file in (*case.inputs, *case.outputs):
                del contents[file]
            continue
        kept.append(case)
        cases[case.name] = replace(before, outputs=outputs)
        contents |= {file: array.tobytes() for file, array in zip(case.outputs, outputs.values(), strict=True)}
    if not differs:
        raise _extended(refused, f"{network.second_opinion_name} agrees with {network.reference_name}") from refused
    changed = {
        "selftest": test.model_copy(update={"reference": network.second_opinion_name, "cases": kept}),
        "files": describe(contents),
    }
    return replace(draft, manifest=draft.manifest.model_copy(update=changed), contents=contents, cases=cases)


def _by_operator(network: Network, cases: Sequence[Tensors]) -> str:
    """The second opinion about each single operator of a network that is too large as a whole."""
    asked: set[str] = set()
    ask, reference, other = network.by_operator, network.reference_name, network.second_opinion_name
    with suppress(Exception):  # as the reference raises for inputs that it refuses
        for operator, made, opinion in (
            each for inputs in cases if ask for each in ask(inputs, MOST_GFLOP_OF_SECOND_OPINION)
        ):
            if any(map(_differ, made, opinion)):
                return f"{other} differs from {reference} in {operator}"
            asked.add(operator)
    if not asked:
        return f"the network is too large to ask {other} as well"
    return f"{other} agrees with {reference} about each operator that is small enough to ask about ({len(asked)})"


def _differ(reference: np.ndarray, other: np.ndarray) -> bool:
    """Whether two results differ by more than rounding, which is a step of integers."""
    if reference.shape != other.shape or reference.dtype.kind not in "iuf":
        return reference.shape != other.shape or not np.array_equal(reference, other)
    if (pair := difference_of(other, reference)) is None:
        return True
    difference, largest = pair
    return difference > 1e-3 * largest + (1.0 if reference.dtype.kind in "iu" else 1e-6)


def _has_nan(outputs: Tensors) -> bool:
    return any(array.dtype.kind == "f" and bool(np.isnan(array).any()) for array in outputs.values())


def _extended(refused: NumericalError, why: str) -> NumericalError:
    return NumericalError(refused.what, why=f"{refused.why}; {why}", hints=refused.hints)


def _checked(
    draft: Draft, checks: Checks, agent: Callable[[], Agent | None], progress: Progress
) -> tuple[Check, float | None]:
    """One run of the self-test, as `check`."""
    from edgedeploy.runtime.session import misfits_here

    if checks == "none":
        return Check(how="no"), None
    if draft.board.runs_here or not (draft.board.accelerator or misfits_here(draft.manifest.abi)):
        with progress.stage("check"):
            return Check(how="here"), _error(draft.manifest, draft.contents, draft.all_cases)
    if checks == "here":
        return Check(how="no"), None
    try:
        return _emulated(draft, agent, progress)
    except UnsupportedError as error:
        progress.note(f"checked as compiled for this machine, not with the board's own code: {error.cause}")
    with progress.stage("check"):
        return Check(how="compiled for this machine"), _compiled_here(draft)


def _emulated(draft: Draft, agent: Callable[[], Agent | None], progress: Progress) -> tuple[Check, float]:
    from edgedeploy.runtime.session import processors

    if draft.board.accelerator:
        raise UnsupportedError("it is for another device than the CPU")
    gflop = draft.gflop * len(draft.cases)
    if gflop > MOST_EMULATED_GFLOP:
        raise UnsupportedError(
            f"{gflop:.0f} GFLOP would take minutes under an emulator", why=f"{MOST_EMULATED_GFLOP:g} are the most"
        )
    emulator = Emulator.of(draft.board, agent)
    with progress.stage(f"check under {emulator.name}"):
        error = emulator.self_test(draft.manifest, draft.contents, min(draft.board.cores, processors()))
    return Check(how="emulated", emulator=emulator.name), error


def _compiled_here(draft: Draft) -> float:
    from edgedeploy.compile.output.codegen import link
    from edgedeploy.compile.pipeline import compile_entries
    from edgedeploy.package.abi import read_abi

    here = load_board("local")
    networks = [
        (network, error_limit(network, here, cases.values()))
        for network, cases in ((draft.network, draft.cases), *draft.further)
    ]
    compiled = compile_entries(networks, here, disabled_passes=draft.manifest.disabled_passes)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        library = Path(folder) / LIBRARY_NAME
        link(compiled.code, library, here)
        changed = {"abi": read_abi(library, here), "threads": here.cores, "device": None, "transformed": []}
        return _error(draft.manifest.model_copy(update=changed), {LIBRARY_NAME: library.read_bytes()}, draft.all_cases)


def _error(manifest: Manifest, contents: Mapping[str, bytes], cases: Sequence[Mapping[str, Recorded]]) -> float:
    """The largest difference from the reference of all entries, as a fraction of the tolerance."""
    from edgedeploy.runtime.session import Session

    weights = weights_of(manifest, contents)
    what, worst = other_outputs(manifest), 0.0
    sessions = Session(manifest, contents[LIBRARY_NAME], weights=weights).of_each_entry()
    for session, recorded in zip(sessions, cases, strict=True):
        for case in session.manifest.selftest.cases:
            try:
                found = session.run(recorded[case.name].inputs)
            except PackageError as error:
                raise NumericalError(what, why=error.cause) from error
            by_output = fractions(found, recorded[case.name].outputs, case).items()
            for (name, fraction), relative, spread in zip(by_output, case.relative, case.spread, strict=True):
                if fraction > 1:
                    alone = f", of which rounding alone changes {spread:g}" if spread is not None else ""
                    raise NumericalError(
                        what,
                        why=f"output {name!r} differs by {fraction:.3g} times what is allowed ({relative:g} of "
                        f"{case.basis(name)}{alone}), for {case.name} inputs",
                    )
                worst = max(worst, fraction)
    return worst


def check_tail(network: Network, cases: Mapping[str, Recorded]) -> None:
    """Refuse a tail whose outputs differ from the reference's for the whole network.

    The tail gets the reference's own values, so that no box falls to the other side of a threshold. Inputs for which
    these are not finite are left out: programs order NaN differently.
    """
    if network.cut_off is None:
        return
    for name, case in cases.items():
        if not all(np.isfinite(array).all() for array in case.outputs.values()):
            continue
        wanted = network.cut_off.reference(case.inputs)
        what = f"the end of {network.file} gives other outputs than {network.reference_name}"
        hints = ["that is a fault of edgedeploy: please report it with the file"]
        try:
            found = network.cut_off.tail.run({**case.inputs, **case.outputs})
        except PackageError as error:
            raise NumericalError(what, why=error.cause, hints=hints) from error
        for output, expected in wanted.items():
            if why := _difference(found[output], expected):
                raise NumericalError(what, why=f"output {output!r} for {name} inputs: {why}", hints=hints)


def _difference(found: np.ndarray, expected: np.ndarray) -> str | None:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if (pair := difference_of(found, expected)) is None:
        return "other infinities or NaN"
    difference, largest = pair
    allowed = TOLERANCE[0] * largest + TOLERANCE[1] if expected.dtype.kind == "f" else 0.0
    return None if difference <= allowed else f"it differs by {difference:g}, and {allowed:g} is allowed"
