"""A package alone as a detector: images in, results out, by what its manifest says of its use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import ValidationError

from edgedeploy.demo.part import Look
from edgedeploy.demo.pipeline import Network, infer, infer_frame
from edgedeploy.demo.spec import Stage
from edgedeploy.errors import InputError
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import Manifest
from edgedeploy.runtime.interface import Runner
from edgedeploy.runtime.session import Session
from edgedeploy.vision.results import Detection


class Detector:
    """A package that says itself how it is used."""

    def __init__(self, package: Path, threads: int | None = None, *, runner: Runner | None = None) -> None:
        """Open a package in this process, with as many threads as it says unless given; or take `runner`, its network
        where that is open already.
        """
        manifest = read_manifest(package)
        look = look_of(manifest, package)
        fitted = look.fitted(manifest)
        self._network: Network = look.network(manifest, package, fitted, runner or Session.open(package, threads))

    def detect(self, image: np.ndarray) -> list[Detection]:
        """What the network sees in an image (uint8, height x width x 3, B G R), as its demo decodes it.

        For a package built for a camera, the image becomes a frame in the camera's format first.
        """
        return infer(image, self._network, repeat=0).detections

    def detect_frame(self, frame: np.ndarray) -> list[Detection]:
        """What the network sees in a frame as the package's camera gives it: uint8, of the shape that its input has."""
        return infer_frame(frame, self._network, repeat=0).detections


def look_of(manifest: Manifest, package: Path) -> Look:
    """How a package says that it is used."""
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
    stated = {"fit": usage.fit, "decoder": usage.decoder, "log": usage.log}
    try:
        stage = Stage.model_validate({"model": manifest.model, **stated})
    except ValidationError as error:
        raise InputError(
            f"{package} is used in a way that this version of edgedeploy does not know",
            why=str(error.errors(include_url=False)[0]["msg"]),
            hints=["install a later version, or build the package again with this one"],
        ) from error
    return Look(stage, manifest.model, usage.input, usage.labels, usage.outputs, camera=usage.camera)
