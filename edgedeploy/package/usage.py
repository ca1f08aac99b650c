"""What a package says of how its network is used: how an image becomes its input, and its outputs results."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from edgedeploy.camera.format import Camera
from edgedeploy.camera.geometry import Fit
from edgedeploy.documents import Listed, Record
from edgedeploy.zoo.entry import ModelInput

# A way of fitting images with parameters, and a decoder, as YAML files have them: their records belong to `vision`,
# and may be of kinds that only a later version knows. A package that names such a kind still runs.
Parameters = dict[str, object]

_DEEPEST = 8


class Usage(Record):
    """The part of a demo that is about this network, as `demos/*.yaml` and `models/*.yaml` state it.

    What the network says of itself, in `heads` and `metadata` of the manifest, completes it: see `Decoder.fitted`.

    Attributes:
        demo: the demo's name.
        stage: which of the demo's networks it is, from 1: the second one is shown what the first one found.
        input: the image input; its shape is that of the zoo's entry, and the manifest's `inputs` say what was built.
            With a camera, its shape is that which was built, and the manifest's input is the frame.
        fit: how an image of another size is brought to the input's, unless the network says it.
        decoder: the postprocessing, by its `kind`, with its parameters.
        log: whose lines print the results.
        outputs: what the decoder calls the outputs, in order, where that is not what the network calls them.
        labels: the names of the classes; where there are none, those that the network says.
        camera: whose frames the network takes as they are; None where it takes what was made of an image before.
    """

    demo: str
    stage: Annotated[int, Field(gt=0)] = 1
    input: ModelInput
    fit: Fit | Parameters
    decoder: Parameters
    log: str
    outputs: Listed[str] = []
    labels: Listed[str] = []
    camera: Camera | None = None

    @field_validator("fit", "decoder")
    @classmethod
    def _is_named_and_flat(cls, value: object) -> object:
        if isinstance(value, dict):
            if not isinstance(value.get("kind"), str):
                raise ValueError("it does not say its kind")
            if depth(value) > _DEEPEST:
                raise ValueError("it is nested too deeply")
        return value

    def lines(self) -> list[str]:
        """The same in lines for people."""
        image, which = self.input, f", network {self.stage}" if self.stage > 1 else ""
        mean, scale = _numbers(image.mean), _numbers(image.scale)
        fit = self.fit if isinstance(self.fit, str) else self.fit["kind"]
        classes = f", {len(self.labels):,} labels" if self.labels else ""
        camera = self.camera
        frames = [f"frames: {camera.width}x{camera.height}, {camera.pixels}, as a camera gives them"] if camera else []
        return [
            f"as of the demo {self.demo}{which}",
            *frames,
            f"images: {fit}, {image.colour}, {image.layout}, less {mean}, times {scale}",
            f"results: {self.decoder['kind']}{classes}",
        ]


def depth(value: object) -> int:
    """How many lists and mappings are in each other."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def _numbers(values: list[float]) -> str:
    """Values of channels; one for all that are equal."""
    return " ".join(f"{value:g}" for value in (values if len(set(values)) > 1 else values[:1]))
