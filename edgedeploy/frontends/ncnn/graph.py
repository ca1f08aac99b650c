"""A network being converted layer by layer, and the table of translators.

ncnn's blobs have one to four dimensions and no batch: an image is channels x height x width, as numpy would show it.
So have the shapes and axes here; the graph adds a batch of one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Graph, Shape, Value, is_too_large, times
from edgedeploy.frontends.ncnn.text import NcnnLayer
from edgedeploy.frontends.ncnn.weights import Weights

UNSET = -233  # in a parameter: a dimension that is left out, or everything that is left

_LARGEST = 2**31 - 1  # of dimensions and places; far beyond any memory

_LEFT_BY_PNNX = (
    "ncnn cannot run this layer either: it is an operator of PyTorch that pnnx could not translate; export a detector "
    "without its selection of boxes (Ultralytics: end2end=False)"
)

CHECK_INPUT = "check the shape of the network's input"

# Parameters that any layer may have: shapes of its outputs, for ncnn's own planning, and which features of ncnn it may
# use.
_HINTS = frozenset({30, 31})


class NcnnGraph(Graph):
    """A network being converted layer by layer."""

    layer: NcnnLayer
    inputs: Sequence[Value]

    def __init__(self, name: str, weights: Weights) -> None:
        super().__init__(name, batch=1)
        self.weights = weights
        self.factors: dict[str, float] = {}  # of values that 8 bits can hold, the factor that makes integers of them

    def check_output(self, operator: str, inputs: Sequence[str], shape: Shape) -> None:
        """See `Graph.check_output`."""
        if min(shape, default=0) < 1 or is_too_large(shape):
            raise self.layer.error(f"its output would have the shape {times(shape[1:])}", CHECK_INPUT)

    def unsuitable(self, operator: str, why: str) -> ModelError:
        """See `Graph.unsuitable`."""
        return self.layer.error(f"{operator} does not suit its inputs: {why}", CHECK_INPUT)

    def only_input(self, *ranks: int) -> Value:
        """The input of a layer that must have one, with one of these numbers of dimensions if any are given."""
        return self.check_inputs(1, *ranks)[0]

    def check_inputs(self, count: int, *ranks: int) -> Sequence[Value]:
        """The inputs, which must be `count`, each with one of these numbers of dimensions if any are given."""
        if len(self.inputs) != count:
            raise self.layer.error(f"it should read {count} blobs and reads {len(self.inputs)}")
        for blob in self.inputs:
            if ranks and blob.rank not in ranks:
                expected = " or ".join(map(str, ranks))
                raise self.layer.error(f"an input has {blob.rank} dimensions, and only {expected} can be imported")
        return self.inputs

    def axis(self, axis: int, rank: int) -> int:
        """An axis that may be counted from the end, counted from 0."""
        if not -rank <= axis < rank:
            raise self.layer.error(f"it names axis {axis} of {rank}")
        return axis % rank

    def integers(self, values: Sequence[int]) -> Value:
        """See `Graph.integers`."""
        if any(abs(value) > _LARGEST for value in values):
            raise self.layer.error(f"{max(values, key=abs)} is too large", CHECK_INPUT)
        return super().integers(values)


# A function of the graph, of `blob` if it reads just one input, and of parameters with defaults.
Translator = Callable[..., Value | Sequence[Value]]

# By kind of layer: a function of the graph, and the parameters that it understands.
_TRANSLATIONS: dict[str, tuple[Callable[[NcnnGraph], Value | Sequence[Value]], frozenset[int]]] = {}


def translates(kind: str, parameters: Iterable[int] = (), *ranks: int) -> Callable[[Translator], Translator]:
    """Mark a function as the translator of a kind of layers.

    The numbers of parameters are those that it takes, in their order, then those that it asks for itself; `blob` may
    have any rank without `ranks`.
    """
    numbers = tuple(parameters)

    def register(translator: Translator) -> Translator:
        arguments = inspect.signature(translator).parameters.values()
        defaults = [each.default for each in arguments if each.default is not each.empty]
        reads_one = any(each.name == "blob" for each in arguments)

        def translated(graph: NcnnGraph) -> Value | Sequence[Value]:
            blobs = [graph.only_input(*ranks)] if reads_one else []
            return translator(graph, *blobs, *map(graph.layer.value, numbers, defaults))

        _TRANSLATIONS[kind] = (translated, _HINTS | frozenset(numbers))
        return translator

    return register


def check_known(layer: NcnnLayer) -> None:
    """Check that a layer's kind and parameters are supported, and that it writes something."""
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


def translate(graph: NcnnGraph, layer: NcnnLayer, inputs: Sequence[Value]) -> list[Value]:
    """Write a layer that passed `check_known`; returns its outputs."""
    graph.layer, graph.inputs, graph.weights.layer_name = layer, inputs, layer.name
    graph.begin(f"{layer.outputs[0]} " if layer.outputs else "")  # no blob's name has a space
    written = _TRANSLATIONS[layer.kind][0](graph)
    outputs = [written] if isinstance(written, Value) else list(written)
    if len(outputs) != len(layer.outputs):
        raise layer.error(f"it should write {len(outputs)} blobs and writes {len(layer.outputs)}")
    if any(not 1 <= blob.rank <= 4 for blob in outputs):
        raise layer.error("its output has not one to four dimensions")
    finished = graph.finish(outputs, layer.outputs)
    for name, blob in zip(finished, outputs, strict=True):
        if blob in graph.factors:
            graph.factors[name] = graph.factors[blob]
    return finished
