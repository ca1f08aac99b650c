"""Networks of demos: which one is meant, how the demo and the zoo use it, and what its package states."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from typing_extensions import Self

from edgedeploy.base.files import is_file
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.pipeline import Look, image_input, placed
from edgedeploy.demo.spec import DEMOS, Demo, Stage, loaded
from edgedeploy.errors import DownloadError, EdgedeployError, InputError, ModelError, UnsupportedError
from edgedeploy.frontends.format import ImportOptions, Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.model.metadata import ENTRY
from edgedeploy.model.network import Network as ImportedNetwork
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.package.usage import Camera, Usage
from edgedeploy.vision.decoder import Described
from edgedeploy.vision.decoders.classification import Classification
from edgedeploy.vision.frames import Preparation
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import read_image
from edgedeploy.vision.preprocess import LineFit
from edgedeploy.vision.results import same_results
from edgedeploy.zoo.entry import MODELS, ZooModel, known_file, load_labels
from edgedeploy.zoo.source import find_source, means_file, users_own
from edgedeploy.zoo.store import fetch

Outputs = Mapping[str, np.ndarray]

_LOG = logging.getLogger(__name__)
_OTHER_CLASSES = (
    "%s gives %d classes, and the demo has names of %d: numbers are shown; `edgedeploy models import FILE --name NAME` "
    "writes a file that says how its images are prepared and what its classes are called"
)


@dataclass(frozen=True)
class Part(Look):
    """One network of a demo before it is built; its entry in the zoo states how images become its input."""

    entry: ZooModel
    entry_name: str
    from_file: bool

    @staticmethod
    def of(stage: Stage, model: str | None = None) -> Part:
        """A demo's network, or another one in its place.

        A file gets images like the demo's own network, of the same size if it leaves that open, unless its metadata
        names an entry, or it is the file of an entry.
        """
        model = model or stage.model
        from_file = means_file(model)
        entry_name = model
        if from_file:
            file = Path(model)
            entry_name = stated_entry(file) or known_file(file, MODELS.load(stage.model).task) or stage.model
        entry: ZooModel = MODELS.load(entry_name)
        if not from_file and not entry.has_form:
            raise users_own(MODELS.find(model).stem, entry)
        labels = load_labels(entry.labels) if entry.labels else []
        names = MODELS.load(stage.model).outputs
        return Part(stage, model, entry.input, labels, names, entry, entry_name, from_file)

    def fitted(self, network: Described) -> Self:
        """As `Look.fitted`; without labels if a file's network has another number of classes."""
        part = super().fitted(network)
        if self.from_file and part.labels and isinstance(part.stage.decoder, Classification):
            classes = prod(network.results[0].shape)
            if classes != len(part.labels):
                _LOG.warning(_OTHER_CLASSES, self.model, classes, len(part.labels))
                return replace(part, labels=[])
        return part

    def shapes(self, options: ImportOptions) -> Shapes:
        """The shape of an input that a file leaves open."""
        source = find_source(self.model, options=options) if self.from_file else None
        open_input = source.open_input() if source else None
        if not source or not open_input:
            return {}
        size = self.stage.decoder.size_of(source.metadata())
        return {open_input: self.entry.input.shape_of(size) if size else self.entry.input.shape}

    def sized_input(self, options: ImportOptions) -> str | None:
        """The input whose size depends on the image; None if there is one size for all images."""
        if isinstance(self.stage.fit, str) or self.stage.fit.one_size:
            return None
        return find_source(self.model, options=options).open_input() if self.from_file else self.entry.input.name

    def lengths(self, sized: str | None) -> dict[str, int]:
        """By input, the axis whose used length the network takes as another input: the width of lines of text."""
        if sized is None or not isinstance(self.stage.fit, LineFit):
            return {}
        return {sized: 3 if self.entry.input.layout == "NCHW" else 2}


@dataclass(frozen=True)
class ImageUse(Part):
    """A part that is `fitted` to a network: images in, results out; `tensor` is the network's input."""

    tensor: TensorSpec

    @staticmethod
    def fitting(part: Part, network: Described) -> ImageUse:
        """A part of a demo for this network."""
        return ImageUse(**vars(part.fitted(network)), tensor=network.inputs[0])

    @property
    def classifies(self) -> bool:
        """Whether results are classes of the whole image."""
        return isinstance(self.stage.decoder, Classification)

    def feed(self, image: np.ndarray) -> tuple[Tensors, Frame]:
        """The network's input for an image, uint8, height x width x 3, B G R, and the image's place in it."""
        return placed(image, self.stage, self.input, self.tensor)


@dataclass(frozen=True)
class Example:
    """A demo's own image, and what a network makes of it; `tail` computes its last results."""

    use: ImageUse
    inputs: Tensors
    frame: Frame
    tail: Tail | None

    def same(self, one: Outputs, other: Outputs) -> bool:
        """Whether outputs of the compiled part give the same results, as `vision.results.same_results` takes them."""
        whole = (self.tail.run({**self.inputs, **each}) if self.tail else each for each in (one, other))
        return same_results(*(self.use.results(each, self.frame) for each in whole))


def stated_entry(file: Path) -> str | None:
    """The zoo's entry in the metadata of a network's file, which `quantize` writes."""
    found, description = describing(file)
    name = found.metadata([description]).get(ENTRY, "")
    return name if name in MODELS.names() and MODELS.load(name).input.kind == "image" else None


@dataclass(frozen=True)
class Use:
    """The network of a demo from which a package is built, by its number in the demo, from 1.

    If the user has not `asked` for the demo, a network may turn out not to suit it. The package takes frames of the
    camera; None for images of any size.
    """

    part: Part
    demo: str
    number: int
    asked: bool
    camera: Camera | None = None

    @property
    def usage(self) -> Usage:
        """The usage in the package's manifest, if the network suits the demo."""
        part, stage = self.part, self.part.stage.alone()
        return Usage(
            demo=self.demo,
            stage=self.number,
            input=part.input,
            outputs=list(part.outputs),
            labels=part.labels,
            camera=self.camera,
            **stage.model_dump(mode="json", include={"fit", "decoder", "log"}),
        )

    def of(self, network: ImportedNetwork) -> tuple[ImportedNetwork, Usage | None]:
        """The network in the package, and its usage, or None if it does not suit a demo that the user did not name.

        For a camera, the network begins with the preparation of a frame.
        """
        try:
            part = self.part.fitted(network)
        except (InputError, ModelError):
            if self.asked or self.camera:
                raise
            return network, None
        # Without labels of another number of classes.
        use = replace(self, part=self.part if part.labels else replace(self.part, labels=[]))
        return use._of_frames(network, part.stage, self.camera) if self.camera else (network, use.usage)

    def image(self, progress: Progress = SILENT) -> Path | None:
        """The demo's image, if this is its first network; None, with a note, if it is not available."""
        if self.camera or self.number > 1:
            return None
        try:
            return demo_image(self.demo, progress)
        except DownloadError as error:
            progress.note(f"the image of the demo {self.demo} does not judge half precision: {error.cause}")
            return None

    def example(self, network: ImportedNetwork, image: Path) -> Example | None:
        """The demo's image as a network takes it, if that has one input and suits the demo."""
        if len(network.inputs) > 1:
            return None
        use = ImageUse.fitting(self.part, network)
        return Example(use, *use.feed(read_image(image)), network.cut_off.tail if network.cut_off else None)

    def _of_frames(self, network: ImportedNetwork, stage: Stage, camera: Camera) -> tuple[ImportedNetwork, Usage]:
        from edgedeploy.compile.output.entries import taking_frames

        tensor = image_input(network.inputs, self.part.input)
        model_input = self.part.input.model_copy(update={"shape": list(tensor.shape)})
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


def find_use(model: str, demo: str | None = None, camera: Camera | None = None) -> Use | None:
    """The network of a demo that `model` replaces, if any.

    It belongs to the demo that is named, or to a demo of this network, if possible with no other networks, or to the
    demo for classification with the same task. A file that was quantised from a network of the zoo counts as that one.
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


def demo_image(name: str, progress: Progress = SILENT) -> Path:
    """A demo's image, which is next to its file or its model's, or is downloaded."""
    demo: Demo = DEMOS.load(name)
    beside_demo, beside_model = DEMOS.find(name).parent, MODELS.find(demo.model).parent
    folder = beside_demo if (beside_demo / demo.image.name).is_file() else beside_model
    return fetch(demo.image, folder=folder, progress=progress)


def _found(model: str, demo: str | None) -> Use | None:
    if demo:
        stages = DEMOS.load(demo).stages
        number = next((place for place, stage in enumerate(stages) if stage.model == model), 0)
        return Use(Part.of(stages[number], model), demo, number + 1, asked=True)
    name = model if isinstance(loaded(MODELS, model), ZooModel) else _quantised_from(model)
    if name is None:
        return None
    entry = MODELS.load(name)
    uses, alike = [], []
    for each in DEMOS.names():
        stages = found.stages if (found := loaded(DEMOS, each)) else []
        for number, stage in enumerate(stages, 1):
            if stage.model == name:
                uses.append((len(stages) > 1, each, number, stage))
            elif isinstance(stage.decoder, Classification) and entry.input.kind == "image":
                own = loaded(MODELS, stage.model)
                if entry.task == (own and own.task):
                    alike.append((True, each, number, stage))
    for _, each, number, stage in [*sorted(uses, key=lambda use: use[0]), *alike]:
        return Use(Part.of(stage, model), each, number, asked=False)
    return None


def _quantised_from(model: str) -> str | None:
    """The network of the zoo in the metadata of a file."""
    try:
        return stated_entry(Path(model)) if is_file(Path(model)) else None
    except EdgedeployError:  # reading the network reports it
        return None
