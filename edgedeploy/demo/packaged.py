"""A package alone as a detector, and as a demo: its manifest states how it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.pipeline import Look, Network, infer, infer_frame
from edgedeploy.demo.program import DemoSession, demo_of
from edgedeploy.demo.spec import Stage
from edgedeploy.demo.usage import demo_image
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import Manifest
from edgedeploy.runtime.opening import Place, Runner, opened
from edgedeploy.runtime.session import Session
from edgedeploy.vision.results import Detection


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
    """A demo like `demo.program.Program`, from a package."""

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
