"""What packages say of how their networks are used: found among the demos, and fitted to a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from edgedeploy.camera.format import Camera
from edgedeploy.camera.preparation import Preparation
from edgedeploy.demo.part import Part, stated_entry
from edgedeploy.demo.pipeline import image_input
from edgedeploy.demo.spec import DEMOS, Stage
from edgedeploy.errors import EdgedeployError, InputError, ModelError, UnsupportedError
from edgedeploy.files import is_file
from edgedeploy.network import Network
from edgedeploy.package.usage import Usage
from edgedeploy.vision.classification import Classification
from edgedeploy.zoo.entry import MODELS, ZooModel


@dataclass(frozen=True)
class Use:
    """The network of a demo that a package is to be made of.

    Attributes:
        part: it.
        demo: the demo's name.
        number: which of the demo's networks it is, from 1.
        asked: whether the user named the demo; else a network that does not suit it is none of its own.
        camera: whose frames the package is to take; None for images of any size.
    """

    part: Part
    demo: str
    number: int
    asked: bool
    camera: Camera | None = None

    @property
    def usage(self) -> Usage:
        """What its package says, if it suits the demo."""
        stage = self.part.stage.alone()
        stated = stage.model_dump(mode="json", include={"fit", "decoder", "log"})
        part = self.part
        return Usage(
            demo=self.demo,
            stage=self.number,
            input=part.input,
            outputs=list(part.outputs),
            labels=part.labels,
            camera=self.camera,
            **stated,
        )

    def of(self, network: Network) -> tuple[Network, Usage | None]:
        """A network as its package holds it, and what that says; nothing of one that does not suit the demo.

        For a camera, the network begins with what becomes of a frame.

        Raises:
            InputError, ModelError: it does not suit a demo that the user named, or whose camera; as `Part.fitted`.
            UnsupportedError: it is shown images in a way of which no code is generated.
        """
        try:
            stage, labels = self.part.fitted(network)
        except (InputError, ModelError):
            if self.asked or self.camera:
                raise
            return network, None
        # Labels of another number of classes are none of its own.
        part = self.part if labels else replace(self.part, labels=[])
        use = replace(self, part=part)
        return use._of_frames(network, stage, self.camera) if self.camera else (network, use.usage)

    def _of_frames(self, network: Network, stage: Stage, camera: Camera) -> tuple[Network, Usage]:
        from edgedeploy.compile.entries import taking_frames

        model_input, tensor = self.part.input, image_input(network.inputs, self.part.input)
        model_input = model_input.model_copy(update={"shape": list(tensor.shape)})
        if not isinstance(stage.fit, str) or len(network.inputs) > 1:
            raise UnsupportedError(
                f"the demo {self.demo} has no network for frames of one size",
                why="its input depends on what an image shows",
                hints=["build the package without --camera"],
            )
        preparation = Preparation(
            camera=camera,
            fit=stage.fit,
            size=model_input.size,
            **model_input.model_dump(include={"layout", "colour", "mean", "scale"}),
            dtype=tensor.dtype,
            steps=tensor.steps,
        )
        usage = self.usage.model_copy(update={"input": model_input, "fit": stage.fit})
        return taking_frames(network, preparation), usage


class _Known(NamedTuple):
    demo: str
    number: int
    stage: Stage
    alone: bool

    def use(self, model: str, *, asked: bool = False) -> Use:
        return Use(Part.of(self.stage, model), self.demo, self.number, asked)


def find_use(model: str, demo: str | None = None, camera: Camera | None = None) -> Use | None:
    """The network of a demo that `model` stands for: of the demo that is named, of one that has this network and if
    possible no other, or of the one that classifies images if it does; None where that is not known. A file that was
    quantised of a network of the zoo is used as that is.

    Raises:
        UnknownNameError: there is no such demo.
        ModelError: the zoo has no network under that name.
        InputError: it is for a camera's frames, and it is not known what becomes of them.
    """
    found = _found(model, demo)
    if camera is None:
        return found
    if found is None:
        raise InputError(
            f"it is not known how images become the input of {model}",
            why="no demo has this network, and --camera has its frames prepared as a demo says",
            hints=["name a demo with --demo; `edgedeploy demo` lists them"],
        )
    return replace(found, camera=camera)


def _found(model: str, demo: str | None) -> Use | None:
    if demo:
        known = list(_networks(demo))
        return next((each for each in known if each.stage.model == model), known[0]).use(model, asked=True)
    name = model if _is_of_the_zoo(model) else _stated(model)
    if name is None:
        return None
    entry = MODELS.load(name)
    known = [each for name in DEMOS.names() for each in _sound(name)]
    with_it = sorted((each for each in known if each.stage.model == name), key=lambda each: not each.alone)
    alike = [
        each
        for each in known
        if isinstance(each.stage.decoder, Classification)
        and entry.input.kind == "image"
        and entry.task == _task(each.stage.model)
    ]
    found = next(iter(with_it + alike), None)
    return found.use(model) if found else None


def _networks(demo: str) -> Iterator[_Known]:
    stages = DEMOS.load(demo).stages
    for number, stage in enumerate(stages, 1):
        yield _Known(demo, number, stage, len(stages) == 1)


def _sound(demo: str) -> list[_Known]:
    try:
        return list(_networks(demo))
    except EdgedeployError:  # one that is broken is not this network's
        return []


def _stated(model: str) -> str | None:
    """The network of the zoo that a file says it was made of."""
    try:
        return stated_entry(Path(model)) if is_file(Path(model)) else None
    except EdgedeployError:  # it is none, as will be said when it is read
        return None


def _is_of_the_zoo(model: str) -> bool:
    try:
        return isinstance(MODELS.load(model), ZooModel)
    except EdgedeployError:
        return False


def _task(model: str) -> str | None:
    try:
        return MODELS.load(model).task
    except EdgedeployError:
        return None
