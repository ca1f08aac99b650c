"""Layers that compute each value from the values at the same place: activations, arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from edgedeploy.frontends.graph import UNARY, Graph, Value, operator
from edgedeploy.frontends.ncnn.graph import NcnnGraph, translates

Function = Callable[..., Value]  # a function of a graph, a blob, and some numbers

# Layers of one input, whose parameters from 0 on are numbers with these defaults.
_FUNCTIONS: dict[str, tuple[Function, tuple[float, ...]]] = {
    "AbsVal": (operator("Abs"), ()),
    "BNLL": (operator("Softplus"), ()),
    "CELU": (operator("Celu", "alpha"), (1.0,)),
    "Clip": (Graph.clip, (-math.inf, math.inf)),
    "Dropout": (Graph.scaled, (1.0,)),
    "ELU": (operator("Elu", "alpha"), (0.1,)),
    "Erf": (operator("Erf"), ()),
    "HardSigmoid": (operator("HardSigmoid", "alpha", "beta"), (0.2, 0.5)),
    "HardSwish": (Graph.hard_swish, (0.2, 0.5)),
    "Mish": (Graph.mish, ()),
    "Power": (Graph.power, (1.0, 1.0, 0.0)),
    "ReLU": (Graph.leaky_relu, (0.0,)),
    # The constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017), as ncnn has them.
    "SELU": (operator("Selu", "alpha", "gamma"), (1.67326324, 1.050700987)),
    "Sigmoid": (operator("Sigmoid"), ()),
    "Softplus": (operator("Softplus"), ()),
    "Swish": (Graph.swish, ()),
    "TanH": (operator("Tanh"), ()),
}


def _translate(kind: str, function: Function, defaults: Sequence[float]) -> None:
    translates(kind, range(len(defaults)))(
        lambda graph, blob: function(graph, blob, *map(graph.layer.number, range(len(defaults)), defaults))
    )


for _kind, (_function, _defaults) in _FUNCTIONS.items():
    _translate(_kind, _function, _defaults)

# By ncnn's number: how many numbers the activation needs, and the activation.
_ACTIVATIONS: list[tuple[int, Function]] = [
    (0, lambda graph, blob: blob),
    (0, operator("Relu")),
    (1, Graph.leaky_relu),
    (2, Graph.clip),
    (0, operator("Sigmoid")),
    (0, Graph.mish),
    (2, Graph.hard_swish),
]


def activated(graph: NcnnGraph, blob: Value) -> Value:
    """The activation of a convolution or a dense layer, parameter 9, with its numbers, parameter 10."""
    count, activation = graph.layer.one_of(9, "activation", _ACTIVATIONS)
    numbers = graph.layer.numbers(10)
    if len(numbers) < count:
        raise graph.layer.error(
            f"activation {graph.layer.integer(9)} needs {count} numbers (parameter 10), and has {len(numbers)}"
        )
    return activation(graph, blob, *numbers[:count])


@translates("PReLU", {0})
def _prelu(graph: NcnnGraph, blob: Value, count: int = 0) -> Value:
    if count not in (1, blob.shape[0]):
        raise graph.layer.error(f"it has {count} slopes for {blob.shape[0]} channels")
    return graph.node("PRelu", blob, graph.per_channel(graph.weights.plain(count), blob))


@translates("GELU", {0})
def _gelu(graph: NcnnGraph, blob: Value, approximate: bool = False) -> Value:
    """x Phi(x), or its approximation by tanh (Hendrycks and Gimpel, 2016)."""
    if approximate:
        cubic = graph.node("Mul", graph.node("Mul", blob, blob), blob)
        bent = graph.node("Add", blob, graph.scaled(cubic, 0.044715))
        gate = graph.node("Tanh", graph.scaled(bent, math.sqrt(2 / math.pi)))
    else:
        gate = graph.node("Erf", graph.scaled(blob, math.sqrt(0.5)))
    return graph.node("Mul", graph.scaled(blob, 0.5), graph.node("Add", gate, graph.floats(1.0)))


@translates("GLU", {0})
def _glu(graph: NcnnGraph, blob: Value, axis: int = 0) -> Value:
    """The first half of an axis, each value times the sigmoid of its counterpart in the second half."""
    axis = graph.axis(axis, blob.rank)
    if blob.shape[axis] % 2:
        raise graph.layer.error(f"axis {axis} with {blob.shape[axis]} has no halves")
    values, gates = graph.split(blob, [blob.shape[axis] // 2] * 2, axis)
    return graph.node("Mul", values, graph.node("Sigmoid", gates))


translates("UnaryOp", {0})(lambda graph, blob: graph.layer.one_of(0, "operation", UNARY)(graph, blob))

# By ncnn's number: ONNX's operator, and whether the second operand comes first.
_BINARY = [(operator, False) for operator in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")]
_BINARY += [(operator, True) for operator in ("Sub", "Div", "Pow")]


@translates("BinaryOp", (1, 2, 0))
def _binary(graph: NcnnGraph, with_number: bool = False, number: float = 0.0) -> Value:
    operator, reverse = graph.layer.one_of(0, "operation", _BINARY)
    if with_number:
        operands = [graph.only_input(), graph.floats(number)]
    else:
        one, other = graph.check_inputs(2)
        operands = [_aligned(graph, one, other), _aligned(graph, other, one)]
    return graph.node(operator, *reversed(operands) if reverse else operands)


def _aligned(graph: NcnnGraph, blob: Value, other: Value) -> Value:
    """A blob with as many dimensions as another one that has more.

    Unlike in numpy, its own are the outer ones (ncnn's "binaryop broadcasting"), unless it is a vector that only fits
    the inner one.
    """
    missing = other.rank - blob.rank
    if missing <= 0:
        return blob
    ones = [1] * missing
    inner = blob.rank == 1 and blob.shape[0] != other.shape[0]
    return graph.reshape(blob, [*ones, *blob.shape] if inner else [*blob.shape, *ones])


@translates("Eltwise", {0, 1})
def _eltwise(graph: NcnnGraph) -> Value:
    operator, factors = graph.layer.one_of(0, "operation", ("Mul", "Add", "Max")), graph.layer.numbers(1)
    blobs = graph.inputs
    if not blobs or any(blob.shape != blobs[0].shape for blob in blobs):
        raise graph.layer.error("its inputs should have one shape")
    if factors and operator == "Add":
        if len(factors) != len(blobs):
            raise graph.layer.error(f"it has {len(factors)} factors for {len(blobs)} inputs")
        blobs = list(map(graph.scaled, blobs, factors))
    return functools.reduce(lambda one, other: graph.node(operator, one, other), blobs)


@translates("Exp", range(3))
def _exponential(graph: NcnnGraph, blob: Value, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> Value:
    """base ^ (shift + scale x)."""
    return graph.node("Exp", graph.scaled(graph.power(blob, 1, scale, shift), _logarithm_of(graph, base)))


@translates("Log", range(3))
def _logarithm(graph: NcnnGraph, blob: Value, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> Value:
    """The logarithm of shift + scale x to a base."""
    blob, divisor = graph.node("Log", graph.power(blob, 1, scale, shift)), _logarithm_of(graph, base)
    return blob if divisor == 1 else graph.node("Div", blob, graph.floats(divisor))


def _logarithm_of(graph: NcnnGraph, base: float) -> float:
    """-1 stands for e."""
    if base != -1 and (base <= 0 or base == 1):
        raise graph.layer.error(f"a logarithm cannot have base {base} (parameter 0)")
    return 1.0 if base == -1 else math.log(base)
