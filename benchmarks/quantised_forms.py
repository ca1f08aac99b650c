"""Builds networks as onnxruntime's quantiser writes them, for several CPUs, and says how far outputs are from its own.

    python benchmarks/quantised_forms.py --json FILE --sweep FOLDER [--only PATTERN] [--cpus NAMES] [--write]

The networks are the sweep's, as `benchmarks/sweep.py export` wrote them with the older exporter, smallest first. Each
is quantised in the forms that people use, from 3 and from 20 random inputs, and built like `edgedeploy build`, with its
self-test: for boards under emulation, and for levels of this machine's CPU. A file keeps the results as they come, and
a later run tries what it lacks; --write writes the table of docs/quantisation.md from all of it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arm_engines import ROOT
from arm_engines_tables import page
from results import as_table, read_results, write_results
from sweep_measure import prepare
from sweep_networks import LEGACY, Case, read_cases

sys.path.append(str(ROOT / "tests"))

from support.cpus import LEVELS, lacking
from support.quantised_networks import FORMS, quantise, random_samples

from edgedeploy.base.files import replacing
from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.building import build
from edgedeploy.errors import EdgedeployError, NumericalError
from edgedeploy.target.resolved import ResolvedBoard, resolve
from edgedeploy.zoo.source import find_source

PAGE = ROOT / "docs" / "quantisation.md"
BEGIN = "<!-- forms written by benchmarks/quantised_forms.py -->"
BOARDS = ["rpi-armhf", "rpi3", "rpi4", "rpi5"]
CALIBRATED = (3, 20)  # with so many inputs
STATIC = [name for name, form in FORMS.items() if form.kind != "dynamic"]
DEADLINE_S = 300.0  # of one build


@dataclass(frozen=True)
class Result:
    """A network in one form for one CPU."""

    network: str
    form: str
    inputs: int  # that calibrated it
    cpu: str
    outcome: str  # of `OUTCOMES`
    difference: float = 0.0  # the largest of the self-test, as a fraction of what is allowed
    why: str = ""


def board_of(cpu: str) -> ResolvedBoard:
    """A board by its name, or this machine as another CPU."""
    return resolve(cpu) if cpu in BOARDS else resolve("local", {"cpu": cpu})


def tried(file: Path, wanted: Sequence[tuple[str, int, str]], folder: Path) -> Iterator[dict[str, Any]]:
    """Parts of the results of a network: by form, inputs and CPU."""
    made: dict[tuple[str, int], Path] = {}
    for form, inputs, cpu in wanted:
        part = {"form": form, "inputs": inputs, "cpu": cpu}
        try:
            if (form, inputs) not in made:
                target = folder / f"{form}-{inputs}.onnx"
                made[form, inputs] = quantise(file, target, FORMS[form], random_samples(file, inputs))
        except Exception as error:  # of any kind: the quantiser's
            yield {**part, "outcome": "not quantised", "why": f"{type(error).__name__}: {error}"[:200]}
            continue
        yield {**part, **_built(made[form, inputs], board_of(cpu), folder)}


def _built(file: Path, board: ResolvedBoard, folder: Path) -> dict[str, Any]:
    try:
        built = build(find_source(str(file)), board, folder / "net.tar.gz")
    except EdgedeployError as error:
        refused = isinstance(error, NumericalError)
        return {"outcome": "refused" if refused else "error", "why": f"{error.what}: {error.why}"[:400]}
    if built.error is None:
        return {"outcome": "not checked"}
    outcome = "near" if built.error else "exact" if built.compiled and built.compiled.exact else "equal"
    return {"outcome": outcome, "difference": built.error}


def try_all(cases: Sequence[Case], cpus: Sequence[str], folder: Path, known: list[Result], file: Path) -> None:
    """Try what is not known, and keep results as they come."""

    def left(network: str) -> list[tuple[str, int, str]]:
        done = {(each.form, each.inputs, each.cpu) for each in known if each.network == network}
        every = ((form, inputs, cpu) for inputs in CALIBRATED for form in STATIC for cpu in cpus)
        return [each for each in every if each not in done]

    def keep(result: Result) -> None:
        known.append(result)
        write_results(file, known)
        print(result, flush=True)

    for case in sorted(cases, key=lambda case: case.file(folder).stat().st_size):
        name = case.network.name
        while wanted := left(name):  # once more after a build that hung or crashed
            with TemporaryDirectory() as scratch, Worker(prepare, Path(scratch) / "said.txt") as worker:
                try:
                    for part in worker.stream(tried, case.file(folder), wanted, Path(scratch), timeout_s=DEADLINE_S):
                        keep(Result(name, **part))
                except WorkerError as error:
                    keep(Result(name, *left(name)[0], "error", why=str(error)[:400]))


OUTCOMES = ["exact", "equal", "near", "refused", "error", "not checked", "not quantised"]


def table(results: Sequence[Result]) -> str:
    """How many builds of each network ended in which way, and the refused ones."""
    counted = [name for name in OUTCOMES if any(each.outcome == name for each in results)]
    lines = [["network", "builds", *counted, "largest difference"]]
    for network in dict.fromkeys(each.network for each in results):
        lines.append(_row(network, [each for each in results if each.network == network], counted))
    lines.append(_row("all", results, counted))
    cpus = ", ".join(f"`{cpu}`" for cpu in dict.fromkeys(each.cpu for each in results))
    failed = [each for each in results if each.outcome in ("refused", "error")]
    said = [f"- {each.network}, {each.form}, {each.inputs} inputs, {each.cpu}: {each.why}" for each in failed]
    return "\n\n".join([f"For {cpus}:", as_table(lines), *(["\n".join(said)] if said else [])])


def _row(name: str, results: Sequence[Result], counted: Sequence[str]) -> list[str]:
    outcomes = [each.outcome for each in results]
    largest = max(each.difference for each in results)
    return [name, str(len(results)), *(str(outcomes.count(each)) for each in counted), f"{largest:.2f}"]


def main() -> None:
    """Parse the command line, and do as it says."""
    levels = [level for level in LEVELS if not lacking(level)]
    parser = argparse.ArgumentParser(description="Build networks as onnxruntime's quantiser writes them.")
    parser.add_argument("--json", type=Path, required=True, help="the results, written as they come")
    parser.add_argument("--sweep", type=Path, metavar="FOLDER", required=True, help="the files of the sweep")
    parser.add_argument("--only", metavar="PATTERN", default="", help="a regular expression that names match")
    parser.add_argument("--cpus", default=",".join([*BOARDS, *levels]), help="boards, and levels of this machine's CPU")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    known = read_results(arguments.json, Result)
    cases = [case for case in read_cases() if case.exporter == LEGACY and case.file(arguments.sweep).is_file()]
    cases = [case for case in cases if all(each.below is None for each in case.network.inputs)]
    chosen = [case for case in cases if re.search(arguments.only, case.name)]
    try_all(chosen, arguments.cpus.split(","), arguments.sweep, known, arguments.json)
    if arguments.write:
        with replacing(PAGE) as temporary:
            temporary.write_text(page(PAGE.read_text(encoding="utf-8"), table(known), BEGIN), encoding="utf-8")


if __name__ == "__main__":
    main()
