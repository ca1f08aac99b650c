"""A demo, by name or of a package: its networks are built and opened, and its results printed and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.building import Prepared, prepare
from edgedeploy.demo.pipeline import Look, Network, Outcome, SizedNetwork, infer, infer_frame, infer_with
from edgedeploy.demo.spec import DEMOS, Demo, NextStage, Stage
from edgedeploy.demo.tengine_log import LogStyle, following_lines, log_lines, result_lines, version_line
from edgedeploy.demo.tracking import Tracker
from edgedeploy.demo.usage import Part, demo_image, find_use
from edgedeploy.errors import InputError, ModelError, UnknownNameError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import Manifest
from edgedeploy.runtime.opening import Place, Runner, opened, opening
from edgedeploy.runtime.session import Session
from edgedeploy.vision.draw import draw, draw_enlarged
from edgedeploy.vision.preprocess import Page
from edgedeploy.vision.results import Detection
from edgedeploy.vision.source import Shot
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import find_source, means_file

Weights = Literal["file", "random"]

_MOST_SIZES = 8  # sizes of a network that stay open; a folder may have images of many sizes


def demo_of(model: str, kind: str | None = None) -> str | None:
    """The first demo of a network, with a decoder of this kind if one is stated."""
    demos = ((name, DEMOS.load(name)) for name in DEMOS.names())
    return next((name for name, demo in demos if demo.model == model and kind in (None, demo.decoder.kind)), None)


@dataclass(frozen=True)
class Program:
    """A demo before its networks are built; `parts` are its networks, in the order in which they run."""

    name: str
    demo: Demo
    parts: list[Part]

    @staticmethod
    def of(name: str, model: str | None = None) -> Program:
        """The demo `name`; `model` replaces its first network."""
        demo = _loaded(name)
        first, *following = demo.stages
        return Program(name, demo, [Part.of(first, model), *map(Part.of, following)])

    def image(self, progress: Progress = SILENT) -> Path:
        """The image of the demo for the first network and with this decoder, or else the demo's own."""
        model = self.parts[0].model
        other = demo_of(model, self.demo.decoder.kind) if model != self.demo.model else None
        return demo_image(other or self.name, progress)

    @contextmanager
    def opened(
        self,
        place: Place,
        *,
        threads: int | None = None,
        options: ImportOptions = AS_THE_FILE_SAYS,
        progress: Progress = SILENT,
    ) -> Iterator[DemoSession]:
        """The demo with its networks built and opened in `place`; `options.values` are for the first one's inputs."""
        asked = [replace(options, values={}) if number else options for number in range(len(self.parts))]
        # Networks of several sizes are built and opened when images need them.
        sized = [part.sized_input(of_part) for part, of_part in zip(self.parts, asked, strict=True)]

        def built(index: int, size: tuple[int, int] | None = None) -> tuple[Prepared, Part]:
            part, name = self.parts[index], sized[index]
            shapes = {name: part.entry.input.shape_of(size)} if name and size else part.shapes(asked[index])
            of_part = replace(asked[index], lengths=part.lengths(name))
            use = find_use(part.model)
            found = prepare(part.model, place.board, input_shapes=shapes, options=of_part, use=use, progress=progress)
            return found, part.fitted(found.manifest)

        ready = {index: built(index) for index, name in enumerate(sized) if not name} or {0: built(0)}
        with opening(place, threads, progress) as open_all:
            there = dict(zip(ready, open_all([prepared.package_path for prepared, _ in ready.values()]), strict=True))

            def network(index: int) -> Network | SizedNetwork:
                if not sized[index]:
                    prepared, part = ready[index]
                    return part.network(prepared.manifest, prepared.source.file, there[index].runner)

                @lru_cache(_MOST_SIZES)
                def of_size(size: tuple[int, int]) -> Network:
                    prepared, part = built(index, size)
                    [opened] = open_all([prepared.package_path])
                    return part.network(prepared.manifest, prepared.source.file, opened.runner)

                part = self.parts[index]
                file = find_source(part.model, options=asked[index]).file
                return SizedNetwork(part.stage, part.model, file, part.entry.input.size, of_size)

            networks = [network(index) for index in range(len(self.parts))]
            [machine, *_] = (each.machine for each in there.values())
            random = any(each.manifest.weights == "random" for each, _ in ready.values())
            weights: Weights = "random" if random else "file"
            yield DemoSession(self.name, networks, place.board.name, machine, weights, self.demo.page)


def _loaded(name: str) -> Demo:
    try:
        return DEMOS.load(name)
    except UnknownNameError as error:
        if not _is_network(name):
            raise
        use = find_use(name)
        demo = use.demo if use else "DEMO"
        raise UnknownNameError(
            f"there is no demo {name!r}",
            why="it is a network, and a demo says what its outputs mean",
            hints=[
                f"edgedeploy demo {demo} --model {name}",
                *([] if use else ["take the demo that reads such outputs; `edgedeploy demo` lists them"]),
                f"edgedeploy run {name}",
            ],
        ) from error


def _is_network(name: str) -> bool:
    try:
        return name in MODELS.names() or means_file(name)
    except ModelError:  # a path to nothing
        return False


@dataclass(frozen=True)
class DemoSession:
    """A demo that is ready for images."""

    name: str
    networks: Sequence[Network | SizedNetwork]
    board: str  # which runs the networks
    machine: str | None  # the board in one line, if it is not this machine
    weights: Weights = "file"  # results mean nothing with `random` ones, seeded values
    page: Page | None = None

    def tracker(self) -> Tracker | None:
        """A tracker for one video; None if this demo does not track."""
        stage = self.networks[-1].stage
        return Tracker(stage.track) if isinstance(stage, NextStage) and stage.track else None

    def infer(self, shot: Shot, *, repeat: int = 1, tracker: Tracker | None = None) -> Result:
        """The result for one image; see `pipeline.infer_with`."""
        outcome = infer_with(shot.image, self.networks, repeat=repeat, page=self.page, tracker=tracker)
        return Result(self, shot, outcome)

    def head(self, source: Path) -> list[str]:
        """The lines before those of a sequence of images."""
        files = [f"model file : {network.file}" for network in self.networks]
        return [version_line(), *files, f"image file : {source}"]

    def tail(self) -> list[str]:
        """The lines about random weights and the board, if any."""
        lines = ["weights : random, seeded: what it sees means nothing"] if self.weights == "random" else []
        return [*lines, f"board : {self.machine}"] if self.machine else lines

    def as_dict(self, source: Path) -> dict[str, Any]:
        """What `--json` prints about the demo and its source of images."""
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
    """The result of a demo for one image."""

    session: DemoSession
    shot: Shot
    outcome: Outcome

    def log(self, style: LogStyle = "named") -> list[str]:
        """The lines of Tengine's examples of the same tasks, and `DemoSession.tail`."""
        lines = log_lines(self.outcome, self.shot.file, style)
        return [*lines, *following_lines(self.outcome, times=True, style=style), *self.session.tail()]

    def frame_log(self, name: str, style: LogStyle = "named") -> list[str]:
        """The lines of one image of a sequence: its name, its times and its results."""
        results = [*result_lines(self.outcome, style), *following_lines(self.outcome, times=False, style=style)]
        return [f"{name}: {self.outcome.all_parts.line()}", *results]

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints for a single image."""
        return self._as_dict(times=self.outcome.timing.as_dict())

    def frame_dict(self) -> dict[str, Any]:
        """The object that `--json` prints for one image of a sequence."""
        return self._as_dict(frame=self.shot.index, times=self.outcome.all_parts.as_dict())

    def _as_dict(self, **about: object) -> dict[str, Any]:
        return {**self.session.as_dict(self.shot.file), **about, "results": _results(self.outcome)}

    def drawn(self, *, still: bool = False) -> np.ndarray:
        """The image with the results on it; small still images are enlarged."""
        return (draw_enlarged if still else draw)(self.shot.image, self.outcome.all_detections)


def _results(outcome: Outcome) -> list[dict[str, Any]]:
    """The results as `--json` prints them, each with those of the next network under `then`."""
    results = [detection.as_dict() for detection in outcome.detections]
    for result, then in zip(results, outcome.then, strict=False):
        result["then"] = _results(then)
    return results


class Detector:
    """A package whose manifest states its usage."""

    def __init__(self, package: Path, threads: int | None = None, *, runner: Runner | None = None) -> None:
        """Open a package in this process, by default with its own number of threads, or use its open `runner`."""
        manifest = read_manifest(package)
        look = look_of(manifest, package).fitted(manifest)
        self._network: Network = look.network(manifest, package, runner or Session.open(package, threads))

    def detect(self, image: np.ndarray) -> list[Detection]:
        """The results for an image (uint8, height x width x 3, B G R), converted to its camera's format."""
        return infer(image, self._network, repeat=0).detections

    def detect_frame(self, frame: np.ndarray) -> list[Detection]:
        """The results for a frame of the package's camera: uint8, of the shape of its input."""
        return infer_frame(frame, self._network, repeat=0).detections


def look_of(manifest: Manifest, package: Path) -> Look:
    """The usage in a package's manifest."""
    usage = manifest.usage
    if usage is None:
        raise InputError(
            f"{package} does not say how images become its input, and its outputs results",
            why="no demo was named when it was built, and none has its network",
            hints=[
                "build it again with --demo NAME (in Python demo=NAME); `edgedeploy demo` lists them",
                "describe the network once with `edgedeploy models import FILE --name NAME`, and name it so",
            ],
        )
    stated = {"model": manifest.model, "fit": usage.fit, "decoder": usage.decoder, "log": usage.log}
    try:
        stage = Stage.model_validate(stated)
    except ValidationError as error:
        raise InputError(
            f"{package} is used in a way that this version of edgedeploy does not know",
            why=str(error.errors(include_url=False)[0]["msg"]),
            hints=["install a later version, or build the package again with this one"],
        ) from error
    return Look(stage, manifest.model, usage.input, usage.labels, usage.outputs, camera=usage.camera)


@dataclass(frozen=True)
class PackagedProgram:
    """A demo like `Program`, from a package."""

    package: Path

    def image(self, progress: Progress = SILENT) -> Path:
        """The image of the zoo's demo of this network."""
        demo = demo_of(read_manifest(self.package).model)
        if demo is None:
            raise InputError(f"{self.package} comes with no image", hints=["name one: --image FILE"])
        return demo_image(demo, progress)

    @contextmanager
    def opened(
        self,
        place: Place,
        *,
        threads: int | None = None,
        options: ImportOptions = AS_THE_FILE_SAYS,
        progress: Progress = SILENT,
    ) -> Iterator[DemoSession]:
        """The network, opened in `place`; a package takes no `options`."""
        if options != AS_THE_FILE_SAYS:
            raise InputError(f"--weights and --set do not go with {self.package}", why="it is built already")
        manifest = read_manifest(self.package)
        look = look_of(manifest, self.package).fitted(manifest)
        with opened(self.package, place, threads, progress) as there:
            network = look.network(manifest, self.package, there.runner)
            yield DemoSession(manifest.model, [network], place.board.name, there.machine, manifest.weights)
