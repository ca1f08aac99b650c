"""Networks of demos: which one is meant, how the demo and the zoo use it, and what its package states."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from edgedeploy.demo.pipeline import Network, called, image_input
from edgedeploy.demo.spec import DEMOS, Stage
from edgedeploy.errors import EdgedeployError, InputError, ModelError, UnsupportedError
from edgedeploy.files import is_file
from edgedeploy.frontends.format import ImportOptions, Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.metadata import ENTRY
from edgedeploy.network import Network as ReadNetwork
from edgedeploy.package.manifest import Manifest
from edgedeploy.package.usage import Camera, ModelInput, Usage
from edgedeploy.runtime.interface import Runner
from edgedeploy.tensors import TensorSpec
from edgedeploy.vision.camera import Preparation
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.decoder import Decoder, Described
from edgedeploy.vision.fits import LineFit
from edgedeploy.vision.preprocess import input_size
from edgedeploy.zoo.entry import MODELS, ZooModel, known_file, load_labels
from edgedeploy.zoo.source import find_source, means_file, users_own

_LOG = logging.getLogger(__name__)
_OTHER_CLASSES = (
    "%s gives %d classes, and the demo has names of %d: numbers are shown; `edgedeploy models import FILE --name NAME` "
    "writes a file that says how its images are prepared and what its classes are called"
)


class Stated(Described, Protocol):
    """What a network says of itself, with its inputs: a package's manifest, for one."""

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...  # noqa: D102


@dataclass(frozen=True)
class Look:
    """How a demo shows images to one network, and reads what it gives.

    Attributes:
        stage: what the demo says of it.
        model: it as the user named it, or the demo's own.
        input: how images become its input.
        labels: the names of its classes; where there are none, those that it says itself.
        outputs: what the demo's decoder calls its outputs.
        camera: whose frames it takes as they are; None where it takes what is made of images.
    """

    stage: Stage
    model: str
    input: ModelInput
    labels: list[str]
    outputs: Sequence[str]
    camera: Camera | None = field(default=None, kw_only=True)

    def output_names(self, decoder: Decoder) -> Sequence[str]:
        """What the demo's decoder calls the network's outputs, unless it has taken their names from the network."""
        return self.outputs if decoder is self.stage.decoder else ()

    def fitted(self, network: Stated) -> tuple[Stage, list[str]]:
        """What the demo says, with what the network says of itself, and the names of its classes."""
        tensor = image_input(network.inputs, self.input, self.camera)
        suited = self.stage.decoder.fitted(network)
        decoder = suited.decoder
        names = called([spec.name for spec in network.results], self.output_names(decoder))
        outputs = [spec.model_copy(update={"name": name}) for spec, name in zip(network.results, names, strict=True)]
        decoder.check(outputs, input_size(self.input, tensor))
        stage = self.stage.model_copy(update={"decoder": decoder, "fit": suited.fit or self.stage.fit})
        return stage, self.labels or suited.labels

    def network(self, manifest: Manifest, file: Path, fitted: tuple[Stage, list[str]], runner: Runner) -> Network:
        """It, built and opened, with what `fitted` gave; `file` is the one that describes it."""
        stage, labels = fitted
        specs = (*manifest.inputs, *manifest.results)
        steps = {spec.name: spec.steps for spec in specs if spec.steps}
        names = self.output_names(stage.decoder)
        return Network(stage, self.model, file, runner, self.input, labels, names, steps=steps, camera=self.camera)


@dataclass(frozen=True)
class Part(Look):
    """One network of a demo, as it was named: what is known before anything is built.

    Attributes:
        entry: the entry of the zoo that says how images become its input.
        entry_name: its name or file.
        from_file: whether it is named as a file.
    """

    entry: ZooModel
    entry_name: str
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
        labels = load_labels(entry.labels) if entry.labels else []
        names = MODELS.load(stage.model).outputs
        return Part(stage, model, entry.input, labels, names, entry, entry_name, from_file)

    def fitted(self, network: Stated) -> tuple[Stage, list[str]]:
        """As `Look.fitted`; names of another number of classes than a file's network has are none of its own."""
        stage, labels = super().fitted(network)
        if self.from_file and labels and isinstance(stage.decoder, Classification):
            classes = stage.decoder.classes_of(network.results)
            if classes != len(labels):
                _LOG.warning(_OTHER_CLASSES, self.model, classes, len(labels))
                return stage, []
        return stage, labels

    def shapes(self, options: ImportOptions) -> Shapes:
        """The shape of the input that a file leaves open."""
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


def _entry_of(file: Path, otherwise: str) -> str:
    """The zoo's entry that says how images become the input of a file's network."""
    return stated_entry(file) or known_file(file, MODELS.load(otherwise).task) or otherwise


def stated_entry(file: Path) -> str | None:
    """The zoo's entry that a file of edgedeploy's own says it was made of, as `quantize` writes it."""
    found, description = describing(file)
    name = found.metadata([description]).get(ENTRY, "")
    return name if name in MODELS.names() and MODELS.load(name).input.kind == "image" else None


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

    def of(self, network: ReadNetwork) -> tuple[ReadNetwork, Usage | None]:
        """A network as its package holds it, and what that says; nothing of one that does not suit the demo.

        For a camera, the network begins with what becomes of a frame.
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

    def _of_frames(self, network: ReadNetwork, stage: Stage, camera: Camera) -> tuple[ReadNetwork, Usage]:
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
