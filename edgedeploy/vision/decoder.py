"""What all decoders share: a decoder is data (the parameters of a postprocessing) that knows how to apply itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.errors import InputError
from edgedeploy.runtime.interface import TensorSpec
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection

Outputs = Mapping[str, np.ndarray]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Decoder(Record):
    """Base of the postprocessings; each adds its parameters and a `kind` that names it in YAML."""

    def required_outputs(self) -> list[str]:
        """The names of the outputs that it reads by name."""
        return []

    def check(self, outputs: Sequence[TensorSpec]) -> None:
        """Make sure, before anything runs, that a network with these outputs has those that are read by name.

        Raises:
            InputError: some are missing.
        """
        present = [spec.name for spec in outputs]
        missing = [name for name in self.required_outputs() if name not in present]
        if missing:
            raise not_of_this_kind(f"it has no output {', '.join(map(repr, missing))}, only {', '.join(present)}")

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """Read the network's outputs, arrays by output name, as results in pixels of the picture.

        Raises:
            InputError: the outputs are not those of a network of this kind.
        """
        raise NotImplementedError


def head(outputs: Outputs, name: str, channels: int | None = None) -> np.ndarray:
    """The output `name` of a fully convolutional network, without its batch axis: channels x height x width.

    Raises:
        InputError: there is no such output, or it has another shape.
    """
    if name not in outputs:
        raise not_of_this_kind(f"it has no output {name!r}, only {', '.join(outputs)}")
    output = outputs[name]
    if output.ndim != 4 or output.shape[0] != 1 or channels not in (None, output.shape[1]):
        wanted = f"1x{channels or 'C'}xHxW"
        raise not_of_this_kind(f"its output {name!r} is {'x'.join(map(str, output.shape))}, not {wanted}")
    return output[0]


def not_of_this_kind(why: str) -> InputError:
    """The error for a network whose outputs another decoder may read, but not this one."""
    return InputError(
        "the network does not give what this demo reads",
        why=why,
        hints=["choose the demo that belongs to this network; `edgedeploy demo` lists them"],
    )
