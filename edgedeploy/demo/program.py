"""One demo from the names that a user gives to what comes out: finds, builds and opens what the pipeline needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from edgedeploy.build import Prepared, prepare
from edgedeploy.demo.pipeline import Network, Outcome, SizedNetwork, called, image_input, infer_with
from edgedeploy.demo.spec import DEMOS, Demo, NextStage, Stage
from edgedeploy.demo.tengine_log import following_lines, log_lines, result_lines, version_line
from edgedeploy.demo.tracking import Tracker
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.metadata import ENTRY
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.opening import Opened, Place, opening
from edgedeploy.tensors import TensorSpec
from edgedeploy.vision.decoder import Decoder, Described
from edgedeploy.vision.draw import draw
from edgedeploy.vision.fits import LineFit
from edgedeploy.vision.page import Page
from edgedeploy.vision.preprocess import input_size
from edgedeploy.vision.source import Shot
from edgedeploy.zoo.entry import MODELS, ZooModel, known_file
from edgedeploy.zoo.labels import load_labels
from edgedeploy.zoo.source import find_source, means_file, users_own
from edgedeploy.zoo.store import fetch

Weights = Literal["file", "random"]

# How many sizes of a network stay open here at a time; a folder may have images of any number of sizes.
_MOST_SIZES = 8


class Stated(Described, Protocol):
    """What a network says of itself, with its inputs: a package's manifest, for one."""

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...  # noqa: D102


@dataclass(frozen=True)
class Part:
    """One network of a demo, as it was named: what is known before anything is built.

    Attributes:
        stage: what the demo says of it.
        model: it as the user named it, or the demo's own.
        entry: the entry of the zoo that says how images become its input.
        entry_name: its name or file.
        labels: the names of its classes.
        from_file: whether it is named as a file.
    """

    stage: Stage
    model: str
    entry: ZooModel
    entry_name: str
    labels: list[str]
    from_file: bool

    @staticmethod
    def of(stage: Stage, model: str | None = None) -> Part:
        """A demo's network, or another one in its place. A file is fed as the demo's own network is, with images of
        the same size if it leaves that open; one that edgedeploy wrote says itself whose input it has, and of its own
        files the zoo knows it."""
        model = model or stage.model
        from_file = means_file(model)
        entry_name = _entry_of(Path(model), stage.model) if from_file else model
        entry: ZooModel = MODELS.load(entry_name)
        if not from_file and not entry.has_form:
            raise users_own(MODELS.find(model).stem, entry)
        return Part(stage, model, entry, entry_name, load_labels(entry.labels) if entry.labels else [], from_file)

    def shapes(self, options: ImportOptions) -> Shapes:
        """The shape of the input that a file leaves open.

        Raises:
            ModelError: the file cannot be read, or is no network's.
        """
        source = find_source(self.model, options=options) if self.from_file else None
        open_input = source.open_input() if source else None
        if not source or not open_input:
            return {}
        size = self.stage.decoder.size_of(source.metadata())
        return {open_input: self.entry.input.shape_of(size) if size else self.entry.input.shape}

    def sized_input(self, options: ImportOptions) -> str | None:
        """The input whose size depends on the image; None if the demo builds the network for one size, or a file
        states it."""
        if isinstance(self.stage.fit, str) or self.stage.fit.one_size:
            return None
        return find_source(self.model, options=options).open_input() if self.from_file else self.entry.input.name

    def lengths(self, sized: str | None) -> dict[str, int]:
        """By input, the axis that the network is to be told the length of: the width of lines of text."""
        if sized is None or not isinstance(self.stage.fit, LineFit):
            return {}
        return {sized: 3 if self.entry.input.layout == "NCHW" else 2}

    def output_names(self, decoder: Decoder) -> Sequence[str]:
        """What the demo's decoder calls the network's outputs, unless it has taken their names from the network."""
        return MODELS.load(self.stage.model).outputs if decoder is self.stage.decoder else ()

    def fitted(self, network: Stated) -> tuple[Stage, list[str]]:
        """What the demo says, with what the network says of itself, and the names of its classes.

        Raises:
            InputError: the network does not take and give what the demo makes and reads.
        """
        tensor = image_input(network.inputs, self.entry.input)
        suited = self.stage.decoder.fitted(network)
        decoder = suited.decoder
        names = called([spec.name for spec in network.results], self.output_names(decoder))
        outputs = [spec.model_copy(update={"name": name}) for spec, name in zip(network.results, names, strict=True)]
        decoder.check(outputs, input_size(self.entry.input, tensor))
        stage = self.stage.model_copy(update={"decoder": decoder, "fit": suited.fit or self.stage.fit})
        return stage, self.labels or suited.labels

    def network(self, prepared: Prepared, fitted: tuple[Stage, list[str]], opened: Opened) -> Network:
        """It, built and opened, with what `fitted` gave."""
        stage, labels = fitted
        names = self.output_names(stage.decoder)
        specs = (*prepared.manifest.inputs, *prepared.manifest.results)
        steps = {spec.name: spec.steps for spec in specs if spec.steps}
        return Network(
            stage, self.model, prepared.source.file, opened.runner, self.entry.input, labels, names, steps=steps
        )


def _entry_of(file: Path, otherwise: str) -> str:
    """The zoo's entry that says how images become the input of a file's network."""
    found, description = describing(file)
    name = found.metadata([description]).get(ENTRY, "")
    fed = name in MODELS.names() and MODELS.load(name).input.kind == "image"
    return name if fed else known_file(file, MODELS.load(otherwise).task) or otherwise


@dataclass(frozen=True)
class Program:
    """A demo whose names are known to be right.

    Attributes:
        name: the demo's name.
        demo: the demo.
        parts: its networks, in the order in which they look.
    """

    name: str
    demo: Demo
    parts: list[Part]

    @staticmethod
    def of(name: str, model: str | None = None) -> Program:
        """The demo `name`, with another network than its first one's if `model` names one.

        Raises:
            UnknownNameError, ConfigurationError: there is no such demo, model or label set, or it is not as it should.
            ModelError: the demo needs a network of the user's own, and `model` names none, or a file that is not there.
        """
        demo = DEMOS.load(name)
        first, *following = demo.stages
        return Program(name, demo, [Part.of(first, model), *map(Part.of, following)])

    def image(self, progress: Progress = SILENT) -> Path:
        """The image of the demo of this task that was made for the first network, else the demo's own.

        Raises:
            DownloadError: it cannot be had.
        """
        name, demo, model = self.name, self.demo, self.parts[0].model
        if model != demo.model:
            for other in DEMOS.names():
                candidate = DEMOS.load(other)
                if candidate.model == model and candidate.decoder.kind == demo.decoder.kind:
                    name, demo = other, candidate
                    break
        beside_demo, beside_model = DEMOS.find(name).parent, MODELS.find(demo.model).parent
        folder = beside_demo if (beside_demo / demo.image.name).is_file() else beside_model
        return fetch(demo.image, folder=folder, progress=progress)

    @contextmanager
    def opened(
        self,
        place: Place,
        *,
        threads: int | None = None,
        options: ImportOptions = AS_THE_FILE_SAYS,
        progress: Progress = SILENT,
    ) -> Iterator[DemoSession]:
        """The demo with its networks built and ready where `place` says, each of them once for all images.

        Args:
            threads: threads of each network; the board's cores by default.
            options: what the networks' files leave open; values of inputs are the first one's.

        Raises:
            EdgedeployError: any of the errors of finding, building and opening; a network that does not suit the demo
                is refused before anything is sent.
        """
        # What is said of inputs is said of the first network's.
        asked = [replace(options, values={}) if number else options for number in range(len(self.parts))]
        # Of networks of several sizes, those that the first images need are built and opened when these are there.
        sized = [part.sized_input(of_part) for part, of_part in zip(self.parts, asked, strict=True)]

        def built(index: int, size: tuple[int, int] | None = None) -> tuple[Prepared, tuple[Stage, list[str]]]:
            part, name = self.parts[index], sized[index]
            shapes = {name: part.entry.input.shape_of(size)} if name and size else part.shapes(asked[index])
            of_part = replace(asked[index], lengths=part.lengths(name))
            prepared = prepare(part.model, place.board, input_shapes=shapes, options=of_part, progress=progress)
            return prepared, part.fitted(prepared.manifest)

        ready = {index: built(index) for index, name in enumerate(sized) if not name} or {0: built(0)}
        with opening(place, threads, progress) as open_all:
            there = dict(zip(ready, open_all([prepared.package_path for prepared, _ in ready.values()]), strict=True))

            def network(index: int) -> Network | SizedNetwork:
                part = self.parts[index]
                if not sized[index]:
                    return part.network(*ready[index], there[index])

                @lru_cache(_MOST_SIZES)
                def of_size(size: tuple[int, int]) -> Network:
                    prepared, fitted = built(index, size)
                    [opened] = open_all([prepared.package_path])
                    return part.network(prepared, fitted, opened)

                file = find_source(part.model, options=asked[index]).file
                return SizedNetwork(part.stage, part.model, file, part.entry.input.size, of_size)

            networks = [network(index) for index in range(len(self.parts))]
            [machine, *_] = (each.machine for each in there.values())
            weights: Weights = (
                "random" if any(each.manifest.weights == "random" for each, _ in ready.values()) else "file"
            )
            yield DemoSession(self.name, networks, place.board.name, machine, weights, self.demo.page)


@dataclass(frozen=True)
class DemoSession:
    """A demo that is ready for images.

    Attributes:
        name: the demo's name.
        networks: its networks.
        board: the board that they run on.
        machine: that board in one line, if it is not this machine.
        weights: `random` if a network's weights are seeded random values, so that results mean nothing.
        page: what is done to images before.
    """

    name: str
    networks: Sequence[Network | SizedNetwork]
    board: str
    machine: str | None
    weights: Weights = "file"
    page: Page | None = None

    def tracker(self) -> Tracker | None:
        """What remembers, for one film, what was seen in the image before; None if this demo does not track."""
        stage = self.networks[-1].stage
        return Tracker(stage.track) if isinstance(stage, NextStage) and stage.track else None

    def infer(self, shot: Shot, *, repeat: int = 1, tracker: Tracker | None = None) -> Result:
        """What the demo makes of one image; see `pipeline.infer_with`.

        Raises:
            EdgedeployError: the network's outputs are not of the kind that the demo reads, or the board is gone.
        """
        outcome = infer_with(shot.image, self.networks, repeat=repeat, page=self.page, tracker=tracker)
        return Result(self, shot, outcome)

    def head(self, source: Path) -> list[str]:
        """The lines before those of a sequence's images."""
        files = [f"model file : {network.file}" for network in self.networks]
        return [version_line(), *files, f"image file : {source}"]

    def tail(self) -> list[str]:
        """The lines that say that weights are random, if they are, and name the board, if there is one."""
        weights = ["weights : random, seeded: what it sees means nothing"] if self.weights == "random" else []
        return [*weights, *([f"board : {self.machine}"] if self.machine else [])]

    def as_dict(self, source: Path) -> dict[str, Any]:
        """What `--json` says of it, and of what it is shown."""
        return {
            "task": self.name,
            "model": self.networks[0].model,
            "weights": self.weights,
            "board": self.board,
            **({"machine": self.machine} if self.machine else {}),
            "image": str(source),
        }


@dataclass(frozen=True)
class Result:
    """One image that was shown to a demo.

    Attributes:
        show: the demo.
        shot: the image.
        outcome: what came out.
    """

    session: DemoSession
    shot: Shot
    outcome: Outcome

    def log(self) -> list[str]:
        """The lines that Tengine's examples of the same tasks print; after them what `DemoSession.tail` says."""
        lines = log_lines(self.outcome, self.shot.file)
        return [*lines, *following_lines(self.outcome, times=True), *self.session.tail()]

    def frame_log(self) -> list[str]:
        """The lines of one image of a video: its times and its results."""
        results = [*result_lines(self.outcome), *following_lines(self.outcome, times=False)]
        return [f"frame {self.shot.index}: {self.outcome.all_parts.line()}", *results]

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints for a single image."""
        about = self.session.as_dict(self.shot.file)
        return {**about, "times": self.outcome.timing.as_dict(), "results": self._results()}

    def frame_dict(self) -> dict[str, Any]:
        """The object that `--json` prints for one image of a sequence."""
        times = self.outcome.all_parts.as_dict()
        about = self.session.as_dict(self.shot.file)
        return {**about, "frame": self.shot.index, "times": times, "results": self._results()}

    def drawn(self) -> np.ndarray:
        """The image with the results on it."""
        return draw(self.shot.image, self.outcome.all_detections)

    def _results(self) -> list[dict[str, Any]]:
        return _results(self.outcome)


def _results(outcome: Outcome) -> list[dict[str, Any]]:
    """The results as `--json` prints them, each with what the next network made of it under `then`."""
    results = [detection.as_dict() for detection in outcome.detections]
    for result, then in zip(results, outcome.then, strict=False):
        result["then"] = _results(then)
    return results
