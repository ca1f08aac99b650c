"""One layer on its way into ONNX's terms, and who translates which kind of layers.

ncnn's blobs have one to four dimensions and no batch: an image is channels x height x width, as numpy would show
it. In ONNX's terms each has a batch of one before them. Nobody but this module knows of it: translators count axes as
ncnn does, from 0 for the outermost, and give shapes without a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Attribute, Graph, is_too_large
from edgedeploy.frontends.ncnn.text import NcnnLayer
from edgedeploy.frontends.ncnn.weights import Weights

# In a parameter: a dimension that is left out, or everything that is left.
UNSET = -233

_LARGEST = 2**31 - 1  # of dimensions and places; far beyond any memory

_LEFT_BY_PNNX = (
    "ncnn cannot run this layer either: it is an operator of PyTorch that pnnx could not translate; export a detector "
    "without its selection of boxes (Ultralytics: end2end=False)"
)

_CHECK_INPUT = "check the shape of the network's input"

# Parameters that any layer may have: shapes of its outputs, for ncnn's own planning, and what of ncnn it may use.
_HINTS = frozenset({30, 31})


@dataclass(frozen=True)
class Blob:
    """A tensor between layers.

    Attributes:
        value: its name in the graph.
        shape: without the batch.
        factor: what makes integers of 8 bits of its values; None if they are others.
    """

    value: str
    shape: tuple[int, ...]
    factor: float | None = None

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)


class NcnnGraph(Graph):
    """A network being written layer by layer.

    Attributes:
        layer: what is being written, for messages.
    """

    layer: NcnnLayer

    def check_output(self, operator: str, inputs: Sequence[str], shape: Sequence[int]) -> None:
        """See `Graph.check_output`."""
        if min(shape, default=0) < 1 or is_too_large(shape):
            raise self.layer.error(f"its output would have the shape {_times(shape[1:])}", _CHECK_INPUT)

    def unsuitable(self, operator: str, why: str) -> ModelError:
        """See `Graph.unsuitable`."""
        return self.layer.error(f"{operator} does not suit its inputs: {why}", _CHECK_INPUT)


class Step:
    """One layer with what it reads, and the graph that it is written into.

    Attributes:
        layer: the layer.
        inputs: its inputs.
        weights: where its weights come from.
    """

    def __init__(self, layer: NcnnLayer, inputs: Sequence[Blob], weights: Weights, graph: NcnnGraph) -> None:
        self.layer = graph.layer = layer
        self.inputs = inputs
        self.weights = weights
        self._graph = graph

    def only_input(self, *ranks: int) -> Blob:
        """The input of a layer that has one.

        Args:
            ranks: the numbers of dimensions that it may have; any if none is given.

        Raises:
            ModelError: there are more or none, or it has another number of dimensions.
        """
        [blob] = self.check_inputs(1, *ranks)
        return blob

    def check_inputs(self, count: int, *ranks: int) -> Sequence[Blob]:
        """The inputs, which should be as many; arguments and errors are those of `only_input`."""
        if len(self.inputs) != count:
            raise self.layer.error(f"it should read {count} blobs and reads {len(self.inputs)}")
        for blob in self.inputs:
            if ranks and blob.rank not in ranks:
                expected = " or ".join(map(str, ranks))
                raise self.layer.error(f"an input has {blob.rank} dimensions, and only {expected} can be imported")
        return self.inputs

    def axis(self, axis: int, rank: int) -> int:
        """An axis that may be counted from the end, counted from 0.

        Raises:
            ModelError: there is no such axis.
        """
        if not -rank <= axis < rank:
            raise self.layer.error(f"it names axis {axis} of {rank}")
        return axis % rank

    def node(self, operator: str, *inputs: Blob | str, **attributes: Attribute) -> Blob:
        """Add a node.

        Args:
            operator: ONNX's name of it.
            inputs: blobs, and names of constants.
            attributes: as ONNX has them; `axis` and `axes` are counted as ncnn does.

        Raises:
            ModelError: its output would be empty or too large.
        """
        [blob] = self.nodes(operator, *inputs, outputs=1, **attributes)
        return blob

    def nodes(self, operator: str, *inputs: Blob | str, outputs: int, **attributes: Attribute) -> list[Blob]:
        """Add a node with several outputs; arguments and errors are those of `node`."""
        for key, value in attributes.items():
            if key == "axis" and isinstance(value, int):
                attributes[key] = _onnx_axes([value])[0]
            if key == "axes" and isinstance(value, Sequence):
                attributes[key] = _onnx_axes([int(axis) for axis in value])
        names = [f"{self._stem} {operator.lower()} {index}" for index in range(outputs)]
        read = [each.value if isinstance(each, Blob) else each for each in inputs]
        values = self._graph.nodes(operator, *read, names=names, **attributes)
        return [Blob(value, self._graph.shape(value)[1:]) for value in values]

    def constant(self, values: np.ndarray | Sequence[float] | float) -> str:
        """Add float32 numbers."""
        return self._graph.constant(np.asarray(values, np.float32), f"{self._stem} weights")

    def stored(self, values: np.ndarray) -> str:
        """Add numbers of their own dtype."""
        return self._graph.constant(values, f"{self._stem} weights")

    def integers(self, values: Sequence[int]) -> str:
        """Add int64 numbers, such as sizes.

        Raises:
            ModelError: one is larger than any size can be.
        """
        if any(abs(value) > _LARGEST for value in values):
            raise self.layer.error(f"{max(values, key=abs)} is too large", _CHECK_INPUT)
        return self._graph.constant(np.asarray(values, np.int64), f"{self._stem} sizes")

    def axes(self, axes: Sequence[int]) -> str:
        """Add axes, counted as ncnn does, for an operator that takes them as an input."""
        return self.integers(_onnx_axes(axes))

    def outermost(self, values: np.ndarray, blob: Blob) -> str:
        """Add one number for each position of the outermost axis, which is that of channels."""
        return self.constant(values.reshape(1, -1, *[1] * (blob.rank - 1)))

    def reshape(self, blob: Blob, shape: Sequence[int]) -> Blob:
        """The same values in another shape."""
        if tuple(shape) == blob.shape:
            return blob
        if math.prod(shape) != math.prod(blob.shape):
            raise self.layer.error(f"{_times(blob.shape)} values do not fit {_times(shape)}")
        return self.node("Reshape", blob, self.integers([1, *shape]))

    def transpose(self, blob: Blob, order: Sequence[int]) -> Blob:
        """Axes in another order."""
        return self.node("Transpose", blob, perm=[0, *_onnx_axes(order)])

    def pad(
        self, blob: Blob, begins: Sequence[int], ends: Sequence[int], mode: str = "constant", value: float = 0.0
    ) -> Blob:
        """More values before and after those of each axis; `mode` is ONNX's."""
        if not any(begins) and not any(ends):
            return blob
        return self.node("Pad", blob, self.integers([0, *begins, 0, *ends]), self.constant(value), mode=mode)

    def crop(self, blob: Blob, begins: Sequence[int], ends: Sequence[int]) -> Blob:
        """The values from `begins` to before `ends` of each axis."""
        return self.node("Slice", blob, self.integers(begins), self.integers(ends), self.axes(range(blob.rank)))

    @property
    def _stem(self) -> str:
        """What names of the graph begin with: with a space after it none is that of a blob."""
        return self.layer.outputs[0]


Translator = Callable[[Step], Blob | Sequence[Blob]]


# By kind of layer: its translator, and the parameters that it understands.
_TRANSLATIONS: dict[str, tuple[Translator, frozenset[int]]] = {}


def translates(kind: str, parameters: Iterable[int] = ()) -> Callable[[Translator], Translator]:
    """Mark a function as the translator of a kind of layers.

    Args:
        kind: ncnn's name of it.
        parameters: the numbers of those that it understands.
    """

    def register(translator: Translator) -> Translator:
        _TRANSLATIONS[kind] = (translator, _HINTS | frozenset(parameters))
        return translator

    return register


def check_known(layer: NcnnLayer) -> None:
    """Check that a layer can be translated.

    Raises:
        ModelError: nobody translates layers of its kind, or such a parameter, or it writes nothing; the message says
            where it stands.
    """
    if layer.kind not in _TRANSLATIONS:
        raise ModelError(
            f"{layer.kind} layers are not supported",
            why=f"{layer.path}, line {layer.line}: layer {layer.name!r} is one",
            hints=[
                *([_LEFT_BY_PNNX] if "." in layer.kind or "::" in layer.kind else []),
                "convert the network without it, or cut the network before this line",
            ],
        )
    if not layer.outputs and layer.kind != "Noop":
        raise layer.error("it writes no blob")
    unknown = sorted(set(layer.parameters) - _TRANSLATIONS[layer.kind][1])
    if unknown:
        raise layer.error(
            f"nothing is known of its parameter {unknown[0]}, here {layer.parameters[unknown[0]]!r}",
            "convert the network again, with another version of the converter",
        )


def translate(step: Step) -> list[Blob]:
    """The outputs of a layer that `check_known` found known.

    Raises:
        ModelError: it does not fit its inputs or its weights, or computes something that cannot be translated.
    """
    translator, _ = _TRANSLATIONS[step.layer.kind]
    found = translator(step)
    outputs = [found] if isinstance(found, Blob) else list(found)
    if len(outputs) != len(step.layer.outputs):
        raise step.layer.error(f"it should write {len(outputs)} blobs and writes {len(step.layer.outputs)}")
    if any(not 1 <= blob.rank <= 4 for blob in outputs):
        raise step.layer.error("its output has not one to four dimensions")
    return outputs


def _onnx_axes(axes: Sequence[int]) -> list[int]:
    return [axis + 1 for axis in axes]


def _times(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))
