"""One demo from the names that a user gives to its outcome: finds, builds and opens what the pipeline needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.board import NO_OVERRIDES, Overrides
from edgedeploy.build import prepare
from edgedeploy.demo.pipeline import Outcome, see
from edgedeploy.demo.spec import DEMOS, Demo
from edgedeploy.demo.tengine_log import log_lines
from edgedeploy.files import is_file
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.opening import Place, opened
from edgedeploy.vision.draw import draw
from edgedeploy.vision.picture import read_picture
from edgedeploy.zoo.entry import MODELS, ZooModel
from edgedeploy.zoo.labels import load_labels
from edgedeploy.zoo.store import fetch


@dataclass(frozen=True)
class Screening:
    """A demo that has run, with what it ran on.

    Attributes:
        name: the demo's name.
        demo: the demo.
        model: the network as the user named it, or the demo's own.
        model_file, image_file: the files that were used.
        board: the board that the network ran on.
        machine: that board in one line, if it is not this machine.
        picture: the picture, uint8, height x width x 3, B G R.
        outcome: what came out.
    """

    name: str
    demo: Demo
    model: str
    model_file: Path
    image_file: Path
    board: str
    machine: str | None
    picture: np.ndarray
    outcome: Outcome

    def log(self) -> list[str]:
        """The lines that Tengine's example of the same task prints; after them the board, if there is one."""
        lines = log_lines(self.demo.log, self.outcome, model_file=self.model_file, image_file=self.image_file)
        return [*lines, *([f"board : {self.machine}"] if self.machine else [])]

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "task": self.name,
            "model": self.model,
            "board": self.board,
            **({"machine": self.machine} if self.machine else {}),
            "image": str(self.image_file),
            "times": self.outcome.timing.as_dict(),
            "results": [detection.model_dump(mode="json") for detection in self.outcome.detections],
        }

    def drawn(self) -> np.ndarray:
        """The picture with the results on it."""
        return draw(self.picture, self.outcome.detections)


def play(
    name: str,
    *,
    place: Place = Place(),
    model: str | None = None,
    image: Path | None = None,
    repeat: int = 1,
    threads: int | None = None,
    overrides: Overrides = NO_OVERRIDES,
    options: ImportOptions = AS_THE_FILE_SAYS,
    progress: Progress = SILENT,
) -> Screening:
    """Run the demo `name` where `place` says.

    Args:
        model: another network than the demo's, by its name in the zoo or as a file. A file is fed as the
            demo's own network is, and has its size where the file leaves that open.
        image: another picture than the demo's.
        repeat: how many inferences are timed.
        threads: threads of the network; the board's cores by default.
        overrides: fields that go before those of the board's profile.
        options: what the network's files leave open.

    Raises:
        EdgedeployError: any of the errors of finding, building and running; pictures and names are checked
            before anything is built.
    """
    demo = DEMOS.load(name)
    model = model or demo.model
    from_file = is_file(Path(model)) and not model.endswith((".yaml", ".yml"))
    entry: ZooModel = MODELS.load(demo.model if from_file else model)
    image_file = image or _default_picture(name, model, progress)
    picture = read_picture(image_file)
    labels = load_labels(entry.labels) if entry.labels else []
    if from_file:
        options = replace(options, open_shape=tuple(entry.input.shape))
    prepared = prepare(model, place.board, overrides=overrides, options=options, progress=progress)
    with opened(prepared.package_path, place, threads, progress) as network:
        outcome = see(picture, demo, network.runner, entry.input, labels=labels, repeat=repeat)
    file, machine = prepared.source.file, network.machine
    return Screening(name, demo, model, file, image_file, place.board, machine, picture, outcome)


def _default_picture(name: str, model: str, progress: Progress) -> Path:
    """The picture of the demo of this task that was made for `model`, else the one of the demo `name`."""
    demo = DEMOS.load(name)
    if model != demo.model:
        for other in DEMOS.names():
            candidate = DEMOS.load(other)
            if candidate.model == model and candidate.decoder.kind == demo.decoder.kind:
                name, demo = other, candidate
                break
    beside_demo, beside_model = DEMOS.find(name).parent, MODELS.find(demo.model).parent
    folder = beside_demo if (beside_demo / demo.image.name).is_file() else beside_model
    return fetch(demo.image, folder=folder, progress=progress)
