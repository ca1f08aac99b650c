"""How often a network is right: on images in folders named after classes, or with boxes in a COCO file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from edgedeploy.base.cache import key_of
from edgedeploy.base.documents import first_fault
from edgedeploy.base.files import is_file, is_folder
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.usage import ImageUse, Part
from edgedeploy.errors import InputError
from edgedeploy.model.network import Network
from edgedeploy.model.quantised import Accuracy
from edgedeploy.model.tensors import Tensors
from edgedeploy.quantisation.samples import find_samples, identity_of, image_files
from edgedeploy.vision.image import read_image
from edgedeploy.vision.results import OVERLAP, Box, Detection, area, best_match, intersection, label_of

Run = Callable[[Tensors], Mapping[str, np.ndarray]]

_TOP = 5
# As COCO counts: at most so many boxes of a class in an image, and precision at so many recalls from 0 to 1.
_MOST_BOXES = 100
_RECALLS = np.linspace(0, 1, 101)

_LOW_THRESHOLD = 0.01  # boxes below a demo's threshold count if precision is averaged over all recalls

_WORDNET = re.compile(r"^n\d{8}[_ -]")  # the prefix of ImageNet's folders: a number of WordNet


class Score(NamedTuple):
    """The share of right results or the mean average precision, and further numbers by name, such as `top-5`."""

    value: float
    more: Mapping[str, float]


@dataclass(frozen=True)
class Truth:
    """An object in an image: x1, y1, x2, y2 in pixels. A crowd of objects is not counted."""

    class_id: int
    box: Box
    crowd: bool = False


@dataclass(frozen=True)
class Evaluation:
    """Image files to evaluate a network on, with the numbers of their classes or the `Truth`s of all objects."""

    usage: ImageUse
    images: Sequence[tuple[Path, Any]]

    @property
    def measure(self) -> Literal["top-1", "mAP@0.5"]:
        """The name of the score."""
        return "top-1" if self.usage.classifies else "mAP@0.5"

    def score(self, run: Run, progress: Progress = SILENT, title: str = "evaluate") -> Score:
        """Run a network on all images.

        The score is the share of images whose best class is right, with that of those where it is among the best five;
        or the mean over all classes of the average precision at an intersection over union of 0.5.
        """
        labels = [label for _, label in self.images]
        if not self.usage.classifies:
            found = self._results(run, of_all_scores(self.usage), progress, title)
            return Score(mean_average_precision(labels, found), {})
        decoder = self.usage.stage.decoder.model_copy(update={"top": _TOP})
        usage = replace(self.usage, stage=self.usage.stage.model_copy(update={"decoder": decoder}))
        classes = [[each.class_id for each in results] for results in self._results(run, usage, progress, title)]
        pairs = list(zip(classes, labels, strict=True))
        first, among = (sum(wanted in found[:most] for found, wanted in pairs) / len(pairs) for most in (1, _TOP))
        return Score(first, {f"top-{_TOP}": among})

    def accuracy(self, before: Score, after: Score) -> Accuracy:
        """The record of two networks' scores."""
        return Accuracy(of=self.measure, before=before.value, after=after.value, samples=len(self.images))

    def _results(self, run: Run, usage: ImageUse, progress: Progress, title: str) -> list[list[Detection]]:
        found = []
        with progress.steps(title, len(self.images)) as advance:
            for file, _ in self.images:
                tensors, frame = usage.feed(read_image(file))
                found.append(usage.results(run(tensors), frame))
                advance()
        return found


def of_all_scores(usage: ImageUse) -> ImageUse:
    """The same with boxes of low scores, as the mean average precision needs them."""
    decoder = usage.stage.decoder
    if "threshold" not in type(decoder).model_fields:
        return usage
    lowered = decoder.model_copy(update={"threshold": _LOW_THRESHOLD})
    return replace(usage, stage=usage.stage.model_copy(update={"decoder": lowered}))


_MOST_JUDGES = 16  # how many inputs judge the choice of layers at most; each runs once or more for every layer


@dataclass(frozen=True)
class Judge:
    """Images that judge the choice of layers in half precision, and labelled ones that state the accuracy.

    `selftest.precision.Judge` describes the methods. `part` is None if no demo says how images become inputs.
    """

    part: Part | None
    calibration: Path | None
    evaluation: Path | None

    def identity(self) -> str:
        """A hash of all files below both folders."""
        folders = {"calibration": self.calibration, "evaluation": self.evaluation}
        return key_of({name: identity_of(folder) if folder else None for name, folder in folders.items()})

    def inputs(self, network: Network, progress: Progress) -> list[Tensors]:
        """At most 16 inputs, evenly chosen."""
        if self.calibration is None:
            return []
        feed = self._usage(network).feed if self.part else None
        given = find_samples(self.calibration, network.inputs, feed, _MOST_JUDGES, progress, network=network.file)
        return [sample.tensors for sample in given]

    def accuracy(self, network: Network, single: Run, half: Run, progress: Progress) -> Accuracy | None:
        """The accuracy in both precisions."""
        if self.evaluation is None:
            return None
        evaluation = find_evaluation(self.evaluation, self._usage(network))

        def score(run: Run, title: str) -> Score:
            tail = network.cut_off.tail if network.cut_off else None
            return evaluation.score(
                (lambda given: tail.run({**given, **run(given)})) if tail else run, progress, f"evaluate in {title}"
            )

        return evaluation.accuracy(score(single, "single precision"), score(half, "half precision"))

    def _usage(self, network: Network) -> ImageUse:
        if self.part is None:
            raise unknown_images()
        return ImageUse.fitting(self.part, network)


def unknown_images() -> InputError:
    """The error for an evaluation of a network that no demo has."""
    return InputError(
        "--evaluate needs to know how images become inputs of the network",
        why="neither the zoo nor a demo defines it",
        hints=["name a demo that uses such a network: --demo classification"],
    )


def find_evaluation(folder: Path, usage: ImageUse) -> Evaluation:
    """The labelled images of a folder: a `.json` file in it lists boxes as COCO does; else its folders are classes."""
    if not is_folder(folder):
        raise InputError(f"there is no folder {folder}", hints=["name one with labelled images: docs/quantisation.md"])
    documents = sorted(each for each in folder.glob("*.json") if not each.name.startswith("."))
    if len(documents) > 1:
        raise InputError(f"{folder} has {len(documents)} .json files", why="boxes must be in a single one")
    return _boxes(documents[0], usage) if documents else _classes(folder, usage)


def mean_average_precision(truths: Sequence[Sequence[Truth]], found: Sequence[Sequence[Detection]]) -> float:
    """The mean of the average precision over all classes in the images, for an intersection over union of 0.5.

    As COCO's evaluation (cocoeval.py of github.com/cocodataset/cocoapi). `truths` and `found` are by image.
    """
    classes = {truth.class_id for each in truths for truth in each if not truth.crowd}
    return float(np.mean([_average_precision(number, truths, found) for number in sorted(classes)])) if classes else 0.0


def _average_precision(number: int, truths: Sequence[Sequence[Truth]], found: Sequence[Sequence[Detection]]) -> float:
    scores: list[float] = []
    right: list[bool] = []
    total = 0
    for in_image, results in zip(truths, found, strict=True):
        wanted = [each.box for each in in_image if each.class_id == number and not each.crowd]
        crowds = [each.box for each in in_image if each.class_id == number and each.crowd]
        total += len(wanted)
        boxes = [each for each in results if each.class_id == number and each.box]
        for result in sorted(boxes, key=lambda each: -(each.score or 0))[:_MOST_BOXES]:
            box = result.box
            assert box
            best = best_match(box, wanted)
            if best is not None:
                wanted.remove(best)
            elif any(intersection(box, crowd) >= OVERLAP * area(box) > 0 for crowd in crowds):
                continue
            scores.append(result.score or 0)
            right.append(best is not None)
    order = np.argsort(-np.asarray(scores), kind="stable")
    hits = np.cumsum(np.asarray(right, bool)[order])
    recall, precision = hits / total, hits / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]  # the best precision at this recall or a higher one
    places = np.searchsorted(recall, _RECALLS, side="left")
    return float(np.mean([precision[place] if place < len(precision) else 0.0 for place in places]))


def _classes(folder: Path, usage: ImageUse) -> Evaluation:
    if not usage.classifies:
        raise InputError(
            f"{folder} has no .json file with boxes",
            why=f"the network gives what a {usage.stage.decoder.kind} reads, no class of the whole image",
            hints=["put a .json file with images, annotations and categories next to the images, as COCO has it"],
        )
    names = _class_numbers(usage.labels)
    images = []
    for file in image_files(folder):
        place = file.relative_to(folder)
        if len(place.parts) < 2:
            raise InputError(
                f"{file} has no label",
                why=f"folders in {folder} are named after classes, and it is in none of them",
                hints=[f"put it into a folder such as {folder / (label_of(usage.labels, 0))}"],
            )
        images.append((file, _class_of(place.parts[0], names, len(usage.labels), folder)))
    if not images:
        raise InputError(
            f"there is no image below {folder}", hints=["give a folder with one folder of images for each class"]
        )
    return Evaluation(usage, images)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", _WORDNET.sub("", name)).strip().casefold()


def _class_numbers(labels: Sequence[str]) -> dict[str, set[int]]:
    """The numbers of classes by name: the label, and each of several names in it."""
    numbers: dict[str, set[int]] = {}
    for number, label in enumerate(labels):
        for name in {label, *label.split(",")}:
            numbers.setdefault(_plain(name), set()).add(number)
    return numbers


def _class_of(name: str, numbers: Mapping[str, set[int]], count: int, folder: Path) -> int:
    """The class that a folder is named after; `count` is 0 if the network has no names."""
    found = numbers.get(_plain(name), set())
    if len(found) == 1:
        return next(iter(found))
    if not found and name.isdecimal() and (not count or int(name) < count):
        return int(name)
    why = f"classes {', '.join(map(str, sorted(found)))} have that name" if found else "no class has that name"
    raise InputError(
        f"{folder / name} names no class of the network",
        why=why,
        hints=["name it after the class's number, from 0", "the names are those of the network's label set"],
    )


# COCO's files have further fields, which are ignored.
class _Image(BaseModel):
    id: int | str
    file_name: str


class _Annotation(BaseModel):
    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int = 0


class _Category(BaseModel):
    id: int
    name: str


class _Document(BaseModel):
    images: list[_Image] = Field(min_length=1)
    annotations: list[_Annotation]
    categories: list[_Category] = Field(min_length=1)


def _boxes(path: Path, usage: ImageUse) -> Evaluation:
    if usage.classifies:
        raise InputError(f"{path} lists boxes", why="the network gives classes of whole images, no boxes")
    try:
        document = _Document.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = first_fault(error) if isinstance(error, ValidationError) else str(error)
        raise InputError(
            f"{path} does not list boxes as COCO does",
            why=why,
            hints=["it has the lists images, annotations and categories: docs/quantisation.md"],
        ) from error
    numbers = _class_numbers(usage.labels)
    if not numbers and len(document.categories) == 1:  # a network of one thing, such as faces, may not name it
        numbers = {_plain(document.categories[0].name): {0}}
    classes = {each.id: _class_of_category(each, numbers, path) for each in document.categories}
    truths: dict[int | str, list[Truth]] = {each.id: [] for each in document.images}
    for each in document.annotations:
        if each.image_id not in truths or each.category_id not in classes:
            raise InputError(f"{path} does not list image {each.image_id} or category {each.category_id} of a box")
        x, y, width, height = each.bbox
        box = (x, y, x + width, y + height)
        truths[each.image_id].append(Truth(classes[each.category_id], box, bool(each.iscrowd)))
    if all(truth.crowd for each in truths.values() for truth in each):
        raise InputError(f"{path} has no box", why="there is nothing to find for the network")
    files = [(path.parent / each.file_name, truths[each.id]) for each in document.images]
    if missing := next((file for file, _ in files if not is_file(file)), None):
        raise InputError(f"there is no image {missing}", why=f"{path} lists it")
    return Evaluation(usage, files)


def _class_of_category(category: _Category, numbers: Mapping[str, set[int]], path: Path) -> int:
    found = numbers.get(_plain(category.name), set())
    if not numbers and re.fullmatch(r"[0-9]{1,9}", category.name):
        found = {int(category.name)}
    if len(found) != 1:
        raise InputError(
            f"{path}: category {category.name!r} is not a class of the network",
            why=f"its classes: {', '.join(list(numbers)[:8])}{'...' if len(numbers) > 8 else ''}"
            if numbers
            else "its classes have no names: give their numbers, from 0",
        )
    return next(iter(found))
