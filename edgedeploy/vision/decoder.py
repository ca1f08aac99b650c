"""The base of all decoders, which are records of the parameters of a postprocessing, and the arithmetic they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, get_args

import numpy as np
from pydantic import Field

from edgedeploy.base.documents import Record
from edgedeploy.errors import InputError
from edgedeploy.model.heads import Head
from edgedeploy.model.tensors import TensorSpec, shown
from edgedeploy.package.usage import Fit
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection

Outputs = Mapping[str, np.ndarray]
Fraction = Annotated[float, Field(ge=0, le=1)]
Stride = Annotated[int, Field(gt=0, le=4096)]
Strides = Annotated[list[Stride], Field(min_length=1)]

# exp(32) times any anchor is far outside of every image, and far from the largest float32, exp(88).
_LARGEST_EXPONENT = 32


class Described(Protocol):
    """A network's own description, such as a package's manifest: `results` are its outputs, or those of its tail."""

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...  # noqa: D102
    @property
    def heads(self) -> Sequence[Head]: ...  # noqa: D102
    @property
    def metadata(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def results(self) -> Sequence[TensorSpec]: ...  # noqa: D102


def kind_of(value: Any) -> str | None:
    """The kind of a class of decoders; None for anything else."""
    if not (isinstance(value, type) and issubclass(value, Decoder) and "kind" in value.model_fields):
        return None
    kinds = get_args(value.model_fields["kind"].annotation)
    return str(kinds[0]) if len(kinds) == 1 else None


class Decoder(Record):
    """Base of the postprocessings; each adds its parameters and a `kind` that names it in YAML."""

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """Read the network's outputs, arrays by output name, as results in pixels of the image."""
        raise NotImplementedError

    def check(self, outputs: Sequence[TensorSpec], network: tuple[int, int]) -> None:
        """Check names and shapes of a network's outputs before it runs; `network` is the input's height and width."""
        # NaN gives no results in any decoder. Open sizes may have any value.
        trial = {
            spec.name: np.broadcast_to(
                np.array(np.nan if "float" in spec.dtype else 0, spec.dtype), [max(size, 1) for size in spec.shape]
            )
            for spec in outputs
        }
        self.decode(trial, Frame(network, network, (1, 1)), [])

    def size_of(self, metadata: Mapping[str, str]) -> tuple[int, int] | None:
        """Height and width of the images that a network was trained for, if this decoder finds them in its metadata."""
        return None

    def fitted(self, network: Described) -> Fitted:
        """This decoder with the network's own anchors, classes and preparation of images, if it uses them."""
        return Fitted(self)


@dataclass(frozen=True)
class Fitted:
    """A decoder for one network, which may choose how images are brought to its size, and name its classes."""

    decoder: Decoder
    fit: Fit | None = None
    labels: list[str] = field(default_factory=list)


def output(outputs: Outputs, name: str) -> np.ndarray:
    """The output `name`, of any shape."""
    if name not in outputs:
        raise not_of_this_kind(f"it has no output {name!r}, only {', '.join(outputs)}")
    return outputs[name]


def head(outputs: Outputs, name: str, channels: int | None = None) -> np.ndarray:
    """The output `name` of a fully convolutional network, without its batch axis: channels x height x width."""
    return _output(outputs, name, "C" if channels is None else channels, "H", "W")


def table(outputs: Outputs, name: str, rows: int | None = None, columns: int | None = None) -> np.ndarray:
    """The output `name` without its batch axis, one row of values for each place: rows x columns."""
    return _output(outputs, name, "N" if rows is None else rows, "M" if columns is None else columns)


def cells(rows: int, columns: int) -> np.ndarray:
    """Column and row of each cell of a grid, row by row: (rows columns) x 2, float32."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    return np.stack([column, row], axis=1).astype(np.float32)


def grids(network: tuple[int, int], strides: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The cells of all levels, one level after another, n x 2, and the stride of each, n x 1, float32."""
    levels = [cells(*grid_size(network, stride)) for stride in strides]
    steps = np.repeat(np.array(strides, np.float32), [len(level) for level in levels])
    return np.concatenate(levels), steps[:, None]


def grid_size(network: tuple[int, int], stride: int) -> tuple[int, int]:
    """Rows and columns of a level whose convolutions pad: a partial cell at the right or bottom counts."""
    return -(-network[0] // stride), -(-network[1] // stride)


def anchors(network: tuple[int, int], levels: Iterable[tuple[int, np.ndarray]], *, even: bool = False) -> np.ndarray:
    """The anchors of all levels, one level after another, as centre and size, n x 4, float32.

    A level has a stride, and the sizes (k x 2) of the anchors around the centre of each of its cells. Centres are one
    stride apart, or spread evenly over the network's input.
    """
    found = []
    for stride, sizes in levels:
        rows, columns = grid_size(network, stride)
        step = np.array([network[1] / columns, network[0] / rows] if even else [stride, stride], np.float32)
        centres = (cells(rows, columns) + np.float32(0.5)) * step
        parts = np.repeat(centres, len(sizes), axis=0), np.tile(sizes, (len(centres), 1))
        found.append(np.concatenate(parts, axis=1, dtype=np.float32))
    return np.concatenate(found)


def corners(centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Boxes (..., 4) as x1, y1, x2, y2 from their centres and sizes (..., 2)."""
    return np.concatenate([centre - size / 2, centre + size / 2], axis=-1)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return (np.tanh(values / 2) + 1) / 2


def softmax(values: np.ndarray) -> np.ndarray:
    """exp(x) as a fraction of its sum over the last axis, without overflow."""
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def exponential(values: np.ndarray) -> np.ndarray:
    """exp(x) for sizes of boxes, limited to sizes larger than any image, so that none is infinite."""
    return np.exp(np.minimum(values, _LARGEST_EXPONENT))


def not_of_this_kind(why: str) -> InputError:
    """The error for a network whose outputs this decoder cannot read."""
    return InputError(
        "the network does not give what this demo reads",
        why=why,
        hints=["choose the demo that belongs to this network; `edgedeploy demo` lists them"],
    )


def _output(outputs: Outputs, name: str, *wanted: int | str) -> np.ndarray:
    """An output without its batch axis; letters in its shape stand for any size."""
    found = output(outputs, name)
    shape = found.shape
    if len(shape) != 1 + len(wanted) or any(
        size != each for size, each in zip(shape, (1, *wanted), strict=True) if not isinstance(each, str)
    ):
        raise not_of_this_kind(f"its output {name!r} is {shown(shape)}, not 1x{'x'.join(map(str, wanted))}")
    return found[0]
