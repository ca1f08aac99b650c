"""States how far outputs and results change with layers in half precision, in the tables of docs/precision.md.

    python benchmarks/half_errors.py --json FILE [--images FOLDER] [--sweep FOLDER] [--only PATTERN] [--write]

Layers are chosen as by `edgedeploy build --board rpi5 --precision auto`, for the networks of the zoo whose files are
on this machine (`EDGEDEPLOY_MODELS`) or that have an architecture, and for the files that `benchmarks/sweep.py export`
wrote with the older exporter. With images, and a demo that says how they become a network's input, results on all of
them are compared. The smallest networks are first, each in a process of its own. The file keeps results as they come,
and a later run tries what it lacks; --write writes the page from all of it.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from arm_engines import ROOT
from arm_engines_tables import page
from cycles import NETWORKS
from results import as_table, read_results, write_results
from sweep_measure import prepare
from sweep_networks import LEGACY, read_cases

from edgedeploy.base.files import replacing
from edgedeploy.base.text import count
from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.building import Plan, Referenced
from edgedeploy.demo.usage import Example, find_use
from edgedeploy.errors import CompileError, EdgedeployError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.selftest.inputs import picture_inputs
from edgedeploy.selftest.precision import Run, with_half
from edgedeploy.selftest.tolerance import relative_error
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.results import OVERLAP, SAME, Detection, best_match, overlap
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import find_source
from edgedeploy.zoo.store import locate, obtainable

PAGE = ROOT / "docs" / "precision.md"
BEGIN = "<!-- written by benchmarks/half_errors.py -->"
ZOO = "the zoo"
SOURCES = {ZOO: ZOO, "torchvision": "torchvision", "timm": "timm", "ultralytics": "Ultralytics"}
SOURCES |= {"own": "`benchmarks/networks/pytorch.py`"}
LIMIT = 0.01  # what errors should not exceed
DEADLINE_S = 900.0  # of one network


class Task(NamedTuple):
    """A network to try, of the zoo or a package of the sweep; `size` is that of its files in bytes."""

    source: str
    name: str
    model: str
    size: float
    options: ImportOptions = AS_THE_FILE_SAYS


@dataclass(frozen=True)
class Result:
    """What half precision changes in a network."""

    source: str
    name: str
    random: bool = False  # whether its weights are
    layers: int = 0
    half: int = 0  # of them
    error: float = 0.0  # what a build states, for inputs that are `judged_by`
    judged_by: str = ""
    inputs: int = 0  # that many judge, if outputs are classes; the largest output is the same in `same_classes` of them
    same_classes: int = 0
    images: int = 0
    same: int = 0  # images with the same results, and those whose first result has the same class
    same_first: int = 0
    in_images: float = 0.0  # the largest error of outputs, which is above `LIMIT` in `above` images
    above: int = 0
    boxes: int = 0  # in single precision; `alone` in either have no partner, others overlap by `least` or more
    alone: int = 0
    least: float | None = None
    candidate: float | None = None  # the least overlap with a candidate of a box that the other precision lacks,
    scores: float = 0.0  # and by how much their scores differ at most
    different: Sequence[str] = ()  # images with other results, and what differs
    why: str = ""  # it has no layers in half precision, or was not tried


class Runs:
    """A judge that keeps the runs in both precisions, and leaves the choice of layers to the build's own pictures."""

    def inputs(self, *_: object) -> list[Any]:
        """None."""
        return []

    def accuracy(self, _: object, single: Run, half: Run, __: object) -> None:
        """Keep the runs."""
        self.single, self.half = single, half


def tried(task: Task, images: Sequence[Path]) -> dict[str, Any]:
    """Parts of a network's result."""
    use = find_use(task.model)
    source, board = find_source(task.model, options=task.options), resolve("rpi5", {"precision": "auto"})
    plan, runs = Plan(source, board, use), Runs()
    network, cases, usage = Referenced.of(source, plan.progress, use)
    example = use.example(network, plan.image) if use and usage and plan.image else None
    half = with_half(network, board.profile, cases, usage=usage, judge=runs, example=example).half
    if half is None:
        return {"why": "it has no layers that may be in half precision"}
    found: dict[str, Any] = {"layers": half.layers, "half": half.used, "error": half.error, "judged_by": half.judged_by}
    judging = picture_inputs(network, usage.input) if usage else []
    judging = [*judging, example.inputs] if example else judging
    judging = judging or [case.inputs for name, case in cases.items() if name != "infinite"]
    shape = network.outputs[0].shape
    classifies = task.source != ZOO or MODELS.load(task.model).task == "classification"
    if classifies and len(network.outputs) == 1 and 1 < max(shape, default=1) == math.prod(shape):
        best = [[int(np.argmax(*run(each).values())) for run in (runs.single, runs.half)] for each in judging]
        found |= {"inputs": len(best), "same_classes": sum(one == other for one, other in best)}
    if use and usage and task.options.weights == "file":
        shown = ((image, use.example(network, image)) for image in images)
        found |= _compared([(image, each) for image, each in shown if each], runs)
    return found


def _compared(examples: Sequence[tuple[Path, Example]], runs: Runs) -> dict[str, Any]:
    """The results of both precisions in images."""
    found: dict[str, Any] = dict.fromkeys(("above", "same", "same_first", "boxes", "alone"), 0)
    largest, least, ties, different = 0.0, math.inf, [], []
    for image, example in examples:
        single, half = runs.single(example.inputs), runs.half(example.inputs)
        error = max(relative_error(half[name], expected) for name, expected in single.items())
        largest = max(largest, error)
        known, other = (_results(example, outputs) for outputs in (single, half))
        overlaps, alone = _overlaps(known, other)
        least = min([least, *overlaps])
        same = example.same(single, half)
        first = [each.class_id for each in known[:1]] == [each.class_id for each in other[:1]]
        for name, more in (("above", error > LIMIT), ("same", same), ("same_first", first), ("alone", alone)):
            found[name] += more
        found["boxes"] += sum(each.box is not None for each in known)
        if not same:
            ties += [*_near_ties(example, known, other, half), *_near_ties(example, other, known, single)]
            named = " / ".join(", ".join(each.label.split(",")[0] for each in some) for some in (known, other))
            boxes = f"smallest IoU {min(overlaps, default=0):.3f}, {alone} without partner"
            different.append(f"{image.name}: {boxes if alone or overlaps else named}")
    found["least"] = least if math.isfinite(least) else None
    if ties:
        found["candidate"], found["scores"] = min(shared for shared, _ in ties), max(apart for _, apart in ties)
    return {"images": len(examples), "in_images": largest, "different": different, **found}


def _results(example: Example, outputs: Any, **decoder: float) -> Sequence[Detection]:
    """A network's results, with other values of the decoder."""
    whole = example.tail.run({**example.inputs, **outputs}) if example.tail else outputs
    stage = example.use.stage
    stage = stage.model_copy(update={"decoder": stage.decoder.model_copy(update=decoder)}) if decoder else stage
    return replace(example.use, stage=stage).results(whole, example.frame)


def _near_ties(
    example: Example, found: Sequence[Detection], others: Sequence[Detection], outputs: Any
) -> Iterator[tuple[float, float]]:
    """For each box missing from the other precision's results: the IoU with its nearest candidate, and how far the
    scores differ.

    Candidates come from that precision's outputs, with a score of at least 0.9 of the threshold, before suppression.
    """
    threshold = getattr(example.use.stage.decoder, "threshold", 0.0)
    candidates = [each for each in _results(example, outputs, threshold=0.9 * threshold, iou_threshold=1.0) if each.box]
    for each in found:
        if each.box and not best_match(each.box, [its.box for its in others if its.class_id == each.class_id], SAME):
            near = max(candidates, key=lambda its: overlap(each.box, its.box), default=None)
            yield (overlap(each.box, near.box), abs(each.score - near.score)) if near else (0.0, math.inf)


def _overlaps(one: Sequence[Detection], other: Sequence[Detection]) -> tuple[list[float], int]:
    """The intersections over union of boxes with their partners, best scores first, and how many have none."""
    boxes, free = ([(each.class_id, each.box) for each in some if each.box] for some in (one, other))
    found = []
    for class_id, box in boxes:
        if best := best_match(box, [its for number, its in free if number == class_id], OVERLAP):
            free.remove((class_id, best))
            found.append(overlap(box, best))
    return found, len(boxes) - len(found) + len(free)


def tasks(folder: Path | None) -> Iterator[Task]:
    """The networks that are here, development networks and smaller ones first."""
    for name in MODELS.names():
        path, entry = obtainable(MODELS.find(name), MODELS.load(name))
        files = [locate(file, path.parent) for file in entry.files]
        if files and all(files):
            options = AS_THE_FILE_SAYS if entry.has_weights else ImportOptions(weights="random")
            yield Task(ZOO, name, name, sum(file.stat().st_size for file in files if file), options)
        elif entry.architecture:
            yield Task(ZOO, name, name, math.inf, ImportOptions(weights="random"))
    for case in read_cases():
        if folder and case.exporter == LEGACY and case.file(folder).is_file():
            file = case.file(folder)
            yield Task(case.network.family, case.network.name, str(file), file.stat().st_size)


def try_all(waiting: Sequence[Task], known: list[Result], file: Path, images: Sequence[Path]) -> None:
    """Try what is not known, and keep results as they come."""
    done = {(result.source, result.name) for result in known}
    for task in sorted(waiting, key=lambda task: (task.model not in NETWORKS, task.size)):
        if (task.source, task.name) in done:
            continue
        result = Result(task.source, task.name, random=task.source != ZOO or task.options.weights == "random")
        with TemporaryDirectory() as folder, Worker(prepare, Path(folder) / "said.txt") as worker:
            try:
                result = replace(result, **worker.call(tried, task, images, timeout_s=DEADLINE_S))
            except WorkerError as error:
                cause = error.__cause__
                said = (cause.why or cause.what) if isinstance(cause, EdgedeployError) else str(error)
                said = f"{cause.what}: {cause.why}" if isinstance(cause, CompileError) else said
                result = replace(result, why=said.replace(task.model, "it"))
        known.append(result)
        write_results(file, known)
        print(result, flush=True)


def tables(results: Sequence[Result]) -> str:
    """A table for each source, and the images in which results differ."""
    listed = Counter(case.network.family for case in read_cases() if case.exporter == LEGACY)
    listed[ZOO] = sum(MODELS.load(name).has_form for name in MODELS.names())
    parts = []
    for source, title in SOURCES.items():
        rows = sorted((each for each in results if each.source == source), key=lambda each: each.name)
        rows.sort(key=lambda each: source != ZOO or each.name not in NETWORKS)
        head = COLUMNS[: None if source == ZOO else 4]
        table = as_table([head, *(_row(each)[: len(head)] for each in rows)])
        parts.append(f"Of {title}, {len(rows)} of {count(listed[source], 'network')}:\n\n{table}")
    different = [f"- {each.name}, {said}" for each in results for said in each.different]
    shown = [each for each in results if each.images]
    within, same = sum(not each.above for each in shown), sum(each.same for each in shown)
    said = f"{within} of {count(len(shown), 'network')} stay within {LIMIT} in all images."
    said += f" Results are the same in {same} of {sum(each.images for each in shown)}. The others:"
    return "\n\n".join([*parts, said, "\n".join(different)])


COLUMNS = ["network", "in half", "error", "same class"]
COLUMNS += ["error in images", f"above {LIMIT}", "the same results", "the same first"]
COLUMNS += ["boxes", "smallest IoU", "as candidates"]


def _row(result: Result) -> list[str]:
    name = f"{result.name} (random)" if result.random and result.source == ZOO else result.name
    if result.why:
        return [name, result.why.replace("|", "\\|"), *[""] * len(COLUMNS)][: len(COLUMNS)]
    same = f"{result.same_classes} of {result.inputs}" if result.inputs else ""
    cells = [name, f"{result.half} of {result.layers}", f"{result.error:.4f}", same, *[""] * (len(COLUMNS) - 4)]
    if result.images:
        same = f"{result.same} of {result.images}"
        cells[4:8] = f"{result.in_images:.4f}", str(result.above), same, str(result.same_first)
    if result.least:
        cells[8:10] = str(result.boxes), f"{result.least:.3f}"
    if result.candidate is not None:
        cells[10] = f"{result.candidate:.3f}, {result.scores:.3f}"
    return cells


def main() -> None:
    """Parse the command line, and do as it says."""
    parser = argparse.ArgumentParser(description="State how far half precision changes networks.")
    parser.add_argument("--json", type=Path, required=True, help="the results, written as they come")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="images to compare results in, also below it")
    parser.add_argument("--sweep", type=Path, metavar="FOLDER", help="the files of the sweep")
    parser.add_argument("--only", metavar="PATTERN", default="", help="a regular expression that SOURCE.NAME matches")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    files = sorted(arguments.images.rglob("*")) if arguments.images else []
    images = [file for file in files if file.suffix.lower() in {".jpg", ".jpeg", ".png"}]
    known = read_results(arguments.json, Result)
    waiting = [task for task in tasks(arguments.sweep) if re.search(arguments.only, f"{task.source}.{task.name}")]
    try_all(waiting, known, arguments.json, images)
    if arguments.write:
        with replacing(PAGE) as temporary:
            temporary.write_text(page(PAGE.read_text(encoding="utf-8"), tables(known), BEGIN), encoding="utf-8")


if __name__ == "__main__":
    main()
