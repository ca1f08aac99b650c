"""From an image to results: preprocessing, timed inference, postprocessing, and the next network on crops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from operator import add
from pathlib import Path
from time import perf_counter

import numpy as np
from typing_extensions import Self

from edgedeploy.demo.spec import NextStage, Stage
from edgedeploy.demo.tracking import Sighting, Tracker
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import length_name
from edgedeploy.model.tensors import Steps, TensorSpec
from edgedeploy.package.manifest import Manifest
from edgedeploy.package.usage import Camera, ModelInput
from edgedeploy.runtime.opening import Runner
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.crop import Rectangle, RotatedCrop
from edgedeploy.vision.decoder import Described
from edgedeploy.vision.frames import frame_of
from edgedeploy.vision.geometry import Frame, framed
from edgedeploy.vision.preprocess import LineFit, Page, ScaledFit, filled, input_size, place, to_tensor
from edgedeploy.vision.results import Detection, View


@dataclass(frozen=True)
class Parts:
    """The times from an image to its results, in milliseconds; on a board, inference includes transfers of tensors."""

    preprocess_ms: float = 0.0
    inference_ms: float = 0.0
    postprocess_ms: float = 0.0

    def __add__(self, other: Parts) -> Parts:
        return Parts(*map(add, astuple(self), astuple(other)))

    def per(self, count: int) -> Parts:
        """The means, if these are the sums of `count` images."""
        return Parts(*(sum_ms / count for sum_ms in astuple(self)))

    def line(self) -> str:
        """The times in one line for people."""
        return ", ".join(f"{name.removesuffix('_ms')} {value:.2f} ms" for name, value in self.as_dict().items())

    def as_dict(self) -> dict[str, float]:
        """The times under the names that `--json` prints."""
        return asdict(self)


@dataclass(frozen=True)
class Look:
    """How a demo prepares images for one network, and decodes its outputs, which the decoder calls `outputs`."""

    stage: Stage
    model: str  # how the user named it, or the demo's own
    input: ModelInput  # how an image becomes its input; the size is that of the network
    labels: list[str]  # the names of its classes; if empty, those in its metadata
    outputs: Sequence[str]  # see `called`
    # Whose frames it takes, with `input` of the size that they are resized to; None for others
    camera: Camera | None = field(default=None, kw_only=True)

    def fitted(self, network: Described) -> Self:
        """The same, completed by the network's metadata; refuses unsuitable networks."""
        tensor = image_input(network.inputs, self.input, self.camera)
        suited = self.stage.decoder.fitted(network)
        # A decoder created for this network knows the network's own names of its outputs.
        names = self.outputs if suited.decoder is self.stage.decoder else ()
        named = zip(network.results, called([spec.name for spec in network.results], names), strict=True)
        outputs = [spec.model_copy(update={"name": name}) for spec, name in named]
        suited.decoder.check(outputs, input_size(self.input, tensor))
        stage = self.stage.model_copy(update={"decoder": suited.decoder, "fit": suited.fit or self.stage.fit})
        return replace(self, stage=stage, labels=self.labels or suited.labels, outputs=names)

    def network(self, manifest: Manifest, file: Path, runner: Runner) -> Network:
        """The opened network, if this is `fitted`; `file` describes it."""
        steps = {spec.name: spec.steps for spec in (*manifest.inputs, *manifest.results) if spec.steps}
        known = self.stage, self.model, self.input, self.labels, self.outputs
        return Network(*known, file, runner, steps=steps, camera=self.camera)

    def results(self, outputs: Mapping[str, np.ndarray], frame: Frame) -> list[Detection]:
        """The results of outputs, in pixels of the image."""
        names = called(list(outputs), self.outputs)
        return self.stage.decoder.decode(dict(zip(names, outputs.values(), strict=True)), frame, self.labels)


@dataclass(frozen=True)
class Network(Look):
    """One network of a demo, ready to run."""

    file: Path
    runner: Runner
    length: int | None = None  # the used part of its input's width, for a network with an input for it
    # Scale and zero point of its quantised inputs and outputs, by name
    steps: Mapping[str, Steps] = field(default_factory=dict)

    def suiting(self, images: Sequence[np.ndarray]) -> list[Network]:
        """The network for each of several images: there is one."""
        return [self] * len(images)


@dataclass(frozen=True)
class SizedNetwork:
    """One network of a demo that is built for several sizes of its input, chosen by its fit."""

    stage: Stage
    model: str
    file: Path
    size: tuple[int, int]  # the default height and width
    of_size: Callable[[tuple[int, int]], Network]  # builds and opens it for a size on first use

    def suiting(self, images: Sequence[np.ndarray]) -> list[Network]:
        """The network for each of several images."""
        fit, sizes = self.stage.fit, [(image.shape[0], image.shape[1]) for image in images]
        if isinstance(fit, LineFit):
            lengths = fit.lengths(sizes, self.size)
            return [replace(self.of_size((self.size[0], fit.width(length))), length=length) for length in lengths]
        assert isinstance(fit, ScaledFit)
        return [self.of_size(fit.size(size)) for size in sizes]


@dataclass(frozen=True)
class Outcome:
    """The results of one network for one image."""

    detections: list[Detection]
    timing: Timing  # the times of the inferences, without pre- and postprocessing
    parts: Parts  # the times of all parts, for the inference that gave the results
    network: Network
    frame: Frame
    # The next network's outcome for each detection, in pixels of the same image; results without a place get that of
    # the detection
    then: tuple[Outcome, ...] = ()

    @property
    def all_parts(self) -> Parts:
        """The times of the parts, including the next networks."""
        return sum((each.all_parts for each in self.then), self.parts)

    @property
    def all_detections(self) -> list[Detection]:
        """The results that are shown, including those of the next networks."""
        shown = self.detections if self.network.stage.log else []
        return [*shown, *(detection for each in self.then for detection in each.all_detections)]

    def following(self) -> Iterator[Outcome]:
        """The outcomes of the next networks, depth first."""
        for outcome in self.then:
            yield outcome
            yield from outcome.following()


def infer(image: np.ndarray, network: Network, *, repeat: int = 1, rectangle: Rectangle | None = None) -> Outcome:
    """Run `image` (uint8, height x width x 3, B G R), or a rectangle of it, through one network.

    The first inference gives the results, and `repeat` more give the times; if 0, the first one gives them too.
    """
    begin = perf_counter()
    if network.camera:
        return infer_frame(frame_of(image, network.camera), network, repeat=repeat, begin=begin)
    tensor = image_input(network.runner.inputs, network.input)
    tensor = tensor.model_copy(update={"steps": network.steps.get(tensor.name)})
    tensors, frame = placed(image, network.stage, network.input, tensor, rectangle, network.length)
    return _outcome(tensors, frame, network, repeat, begin)


def infer_frame(taken: np.ndarray, network: Network, *, repeat: int = 1, begin: float | None = None) -> Outcome:
    """Run a camera's frame through a network that takes frames; preprocessing began at `begin`."""
    camera, fit, begin = network.camera, network.stage.fit, begin or perf_counter()
    if camera is None or not isinstance(fit, str):
        raise InputError(
            f"the package of {network.model} takes no frames of a camera",
            hints=["build it with --camera, or give it an image"],
        )
    tensor = image_input(network.runner.inputs, network.input, camera)
    frame = framed(camera.size, input_size(network.input, tensor), fit)
    return _outcome({tensor.name: taken}, frame, network, repeat, begin)


def _outcome(tensors: dict[str, np.ndarray], frame: Frame, network: Network, repeat: int, begin: float) -> Outcome:
    """Run a network on its inputs, whose preprocessing began at `begin`."""
    runner, times = network.runner, [begin, perf_counter()]
    outputs = runner.run(tensors)
    times.append(perf_counter())
    outputs = {
        name: steps.values(values) if (steps := network.steps.get(name)) else values for name, values in outputs.items()
    }
    detections = network.results(outputs, frame)
    times.append(perf_counter())
    parts = Parts(*(1e3 * float(taken) for taken in np.diff(times)))
    timing = runner.measure(tensors, repeat=repeat) if repeat else Timing((parts.inference_ms,))
    return Outcome(detections, timing, parts, network, frame)


def placed(
    image: np.ndarray,
    stage: Stage,
    model_input: ModelInput,
    tensor: TensorSpec,
    rectangle: Rectangle | None = None,
    length: int | None = None,
) -> tuple[dict[str, np.ndarray], Frame]:
    """The inputs of a network for an image, or a rectangle of it, and its frame; `length` is as in `Network`."""
    height, width = input_size(model_input, tensor)
    size = height, length or width
    if rectangle:
        pixels, frame = rectangle.place(image, size)
    else:
        fit = stage.fit
        pixels, frame = place(image, size, fit) if isinstance(fit, str) else fit.place(image, size)
    tensors = {tensor.name: filled(to_tensor(pixels, model_input, tensor.dtype, tensor.steps), tensor)}
    if length:
        tensors[length_name(tensor.name)] = np.array([length])
    return tensors, frame


def infer_with(
    image: np.ndarray,
    networks: Sequence[Network | SizedNetwork],
    *,
    repeat: int = 1,
    page: Page | None = None,
    tracker: Tracker | None = None,
) -> Outcome:
    """Run the first network on `image` (uint8, height x width x 3, B G R), the second on its results, and so on.

    With a tracker, the first network does not run if the second one had enough results in the image before.
    """
    if page:
        view = page.view(image)
        return _moved(infer_with(view.pixels, networks, repeat=repeat, tracker=tracker), view)
    first, *following = networks
    [network] = first.suiting([image])
    if tracker is None or tracker.needs_detector:
        outcome = infer(image, network, repeat=repeat)
    else:  # the detector need not run
        size = input_size(network.input, image_input(network.runner.inputs, network.input, network.camera))
        frame = Frame((image.shape[0], image.shape[1]), size, (1.0, 1.0))
        outcome = Outcome([], Timing((0.0,)), Parts(), network, frame)
    return _followed([image], [outcome], following, repeat, tracker)[0]


def called(outputs: Sequence[str], by_the_demo: Sequence[str]) -> Sequence[str]:
    """The demo's names of a network's outputs, if there are as many and none has one of these names; else their own."""
    same = len(outputs) == len(by_the_demo) and set(outputs).isdisjoint(by_the_demo)
    return by_the_demo if same else outputs


def image_input(inputs: Sequence[TensorSpec], model_input: ModelInput, camera: Camera | None = None) -> TensorSpec:
    """A network's image input, which must be the only one besides its length; for a camera, with the resized shape."""
    lengths = {length_name(tensor.name) for tensor in inputs}
    inputs = [tensor for tensor in inputs if tensor.name not in lengths]
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs)
        raise InputError(
            "a demo shows a network one image",
            why=f"this network has {len(inputs)} inputs: {names}",
            hints=[f"run it with `edgedeploy run`, giving each input, {model_input.name!r} among them"],
        )
    tensor = inputs[0].model_copy(update={"shape": model_input.shape}) if camera else inputs[0]
    input_size(model_input, tensor)
    return tensor


def _followed(
    images: Sequence[np.ndarray],
    outcomes: Sequence[Outcome],
    networks: Sequence[Network | SizedNetwork],
    repeat: int,
    tracker: Tracker | None = None,
) -> list[Outcome]:
    """The outcomes of images with those of the next networks.

    Each network runs on all crops before the next one begins: its width may depend on all of them.
    """
    if not networks:
        return list(outcomes)
    network, *following = networks
    stage = network.stage
    assert isinstance(stage, NextStage)
    crop = stage.crop
    if isinstance(crop, RotatedCrop):
        each_with = zip(images, outcomes, network.suiting(images), strict=True)
        return [_infer_turned(image, outcome, suited, crop, repeat, tracker) for image, outcome, suited in each_with]
    views = [
        [(crop.view(image, found), found) for found in outcome.detections]
        for image, outcome in zip(images, outcomes, strict=True)
    ]
    parts = [view.pixels for of_image in views for view, _ in of_image]
    seen = [infer(part, suited, repeat=repeat) for part, suited in zip(parts, network.suiting(parts), strict=True)]
    rest = iter(_followed(parts, seen, following, repeat))
    return [
        replace(outcome, then=tuple(_moved(next(rest), *each) for each in of_image))
        for outcome, of_image in zip(outcomes, views, strict=True)
    ]


def _infer_turned(
    image: np.ndarray, outcome: Outcome, network: Network, crop: RotatedCrop, repeat: int, tracker: Tracker | None
) -> Outcome:
    """The outcome with a network's outcome for each rectangle around a detection or a tracked result."""
    best = outcome.detections[: tracker.track.most if tracker else None]
    sightings = [Sighting(found, rectangle) for found in best if (rectangle := crop.rectangle(found))]
    if tracker is not None:
        sightings = tracker.joined(sightings)
    then = tuple(infer(image, network, repeat=repeat, rectangle=each.rectangle) for each in sightings)
    if tracker is not None:
        tracker.update([(each, seen.detections) for each, seen in zip(sightings, then, strict=True)])
    return replace(outcome, detections=[each.found for each in sightings], then=then)


def _moved(outcome: Outcome, view: View, found: Detection | None = None) -> Outcome:
    """The outcome of a view in pixels of the image; results without a place get that of `found`."""
    detections = [view.moved(each) for each in outcome.detections]
    if found:
        place = {"box": found.box, "corners": found.corners}
        detections = [each if each.box or each.points else each.model_copy(update=place) for each in detections]
    return replace(outcome, detections=detections, then=tuple(_moved(each, view, found) for each in outcome.then))
