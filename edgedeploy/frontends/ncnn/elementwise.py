"""Layers that compute each value from the values at its own place: activations, arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from edgedeploy.frontends.ncnn.step import Blob, Step, Translator, translates

# Bounds beyond this are none; converters write the largest float32, rounded to some digits.
_BOUNDLESS = 3.4e38


# A function of a blob and of some numbers.
Function = Callable[..., Blob]


def _operator(name: str, *attributes: str) -> Function:
    """An operator of ONNX, some of whose attributes are numbers of the layer."""
    return lambda step, blob, *numbers: step.node(name, blob, **dict(zip(attributes, numbers, strict=True)))


def _leaky_relu(step: Step, blob: Blob, slope: float) -> Blob:
    """max(x, 0) + slope min(x, 0)."""
    return step.node("LeakyRelu", blob, alpha=slope) if slope else step.node("Relu", blob)


def _clip(step: Step, blob: Blob, lowest: float, highest: float) -> Blob:
    """Values below `lowest` and above `highest` replaced by these."""
    bounds = ["" if abs(bound) > _BOUNDLESS else step.constant(bound) for bound in (lowest, highest)]
    return step.node("Clip", blob, *bounds)


def _swish(step: Step, blob: Blob) -> Blob:
    return step.node("Mul", blob, step.node("Sigmoid", blob))


def _mish(step: Step, blob: Blob) -> Blob:
    """x tanh(log(1 + exp(x))), from Misra, "Mish" (2019)."""
    return step.node("Mul", blob, step.node("Tanh", step.node("Softplus", blob)))


def _hard_swish(step: Step, blob: Blob, alpha: float, beta: float) -> Blob:
    """x min(max(alpha x + beta, 0), 1)."""
    return step.node("Mul", blob, step.node("HardSigmoid", blob, alpha=alpha, beta=beta))


def _scaled(step: Step, blob: Blob, scale: float) -> Blob:
    """What is left of dropout at inference."""
    return blob if scale == 1 else step.node("Mul", blob, step.constant(scale))


# Layers of one input, whose parameters from 0 on are numbers with these defaults.
_FUNCTIONS: dict[str, tuple[Function, tuple[float, ...]]] = {
    "AbsVal": (_operator("Abs"), ()),
    "BNLL": (_operator("Softplus"), ()),
    "CELU": (_operator("Celu", "alpha"), (1.0,)),
    "Clip": (_clip, (-math.inf, math.inf)),
    "Dropout": (_scaled, (1.0,)),
    "ELU": (_operator("Elu", "alpha"), (0.1,)),
    "Erf": (_operator("Erf"), ()),
    "HardSigmoid": (_operator("HardSigmoid", "alpha", "beta"), (0.2, 0.5)),
    "HardSwish": (_hard_swish, (0.2, 0.5)),
    "Mish": (_mish, ()),
    "ReLU": (_leaky_relu, (0.0,)),
    # The constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017), as ncnn has them.
    "SELU": (_operator("Selu", "alpha", "gamma"), (1.67326324, 1.050700987)),
    "Sigmoid": (_operator("Sigmoid"), ()),
    "Softplus": (_operator("Softplus"), ()),
    "Swish": (_swish, ()),
    "TanH": (_operator("Tanh"), ()),
}


def _of_numbers(function: Function, defaults: Sequence[float]) -> Translator:
    return lambda step: function(
        step, step.only_input(), *(step.layer.number(number, default) for number, default in enumerate(defaults))
    )


for _kind, (_function, _defaults) in _FUNCTIONS.items():
    translates(_kind, range(len(_defaults)))(_of_numbers(_function, _defaults))

# By ncnn's number: how many numbers it needs, and what it does.
_ACTIVATIONS: list[tuple[int, Function]] = [
    (0, lambda step, blob: blob),
    (0, _operator("Relu")),
    (1, _leaky_relu),
    (2, _clip),
    (0, _operator("Sigmoid")),
    (0, _mish),
    (2, _hard_swish),
]


def activated(step: Step, blob: Blob) -> Blob:
    """What follows a convolution or a dense layer in the same layer: parameter 9 says which, 10 its numbers."""
    count, activation = step.layer.one_of(9, "activation", _ACTIVATIONS)
    numbers = step.layer.numbers(10)
    if len(numbers) < count:
        raise step.layer.error(
            f"activation {step.layer.integer(9)} needs {count} numbers (parameter 10), and has {len(numbers)}"
        )
    return activation(step, blob, *numbers[:count])


@translates("PReLU", {0})
def _prelu(step: Step) -> Blob:
    blob, count = step.only_input(), step.layer.integer(0)
    if count not in (1, blob.shape[0]):
        raise step.layer.error(f"it has {count} slopes for {blob.shape[0]} channels")
    slopes = step.weights.plain([count], step.layer.name)
    return step.node("PRelu", blob, step.outermost(slopes, blob))


@translates("GELU", {0})
def _gelu(step: Step) -> Blob:
    """x Phi(x), or by Hendrycks and Gimpel's tanh (2016) if parameter 0 says so."""
    blob = step.only_input()
    if step.layer.integer(0):
        cubic = step.node("Mul", step.node("Mul", blob, blob), blob)
        bent = step.node("Add", blob, step.node("Mul", cubic, step.constant(0.044715)))
        gate = step.node("Tanh", step.node("Mul", bent, step.constant(math.sqrt(2 / math.pi))))
    else:
        gate = step.node("Erf", step.node("Mul", blob, step.constant(math.sqrt(0.5))))
    half = step.node("Mul", blob, step.constant(0.5))
    return step.node("Mul", half, step.node("Add", gate, step.constant(1.0)))


@translates("GLU", {0})
def _glu(step: Step) -> Blob:
    """The first half of an axis, each value times the sigmoid of its counterpart in the second."""
    blob = step.only_input()
    axis = step.axis(step.layer.integer(0), blob.rank)
    if blob.shape[axis] % 2:
        raise step.layer.error(f"axis {axis} with {blob.shape[axis]} has no halves")
    sizes = step.integers([blob.shape[axis] // 2] * 2)
    values, gates = step.nodes("Split", blob, sizes, outputs=2, axis=axis)
    return step.node("Mul", values, step.node("Sigmoid", gates))


# By ncnn's number.
_UNARY: list[Function] = [
    *map(_operator, ("Abs", "Neg", "Floor", "Ceil")),
    lambda step, blob: step.node("Mul", blob, blob),
    _operator("Sqrt"),
    lambda step, blob: step.node("Reciprocal", step.node("Sqrt", blob)),
    *map(_operator, ("Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Reciprocal", "Tanh")),
    lambda step, blob: step.node("Mul", step.node("Log", blob), step.constant(1 / math.log(10))),
    _operator("Round"),
]


@translates("UnaryOp", {0})
def _unary(step: Step) -> Blob:
    return step.layer.one_of(0, "operation", _UNARY)(step, step.only_input())


# By ncnn's number: ONNX's operator, and whether the second operand comes first.
_BINARY = [(operator, False) for operator in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")]
_BINARY += [(operator, True) for operator in ("Sub", "Div", "Pow")]


@translates("BinaryOp", {0, 1, 2})
def _binary(step: Step) -> Blob:
    operator, reverse = step.layer.one_of(0, "operation", _BINARY)
    if step.layer.integer(1):
        operands: list[Blob | str] = [step.only_input(), step.constant(step.layer.number(2))]
    else:
        one, other = step.check_inputs(2)
        one, other = _aligned(step, one, other), _aligned(step, other, one)
        if any(1 not in pair and pair[0] != pair[1] for pair in zip(one.shape, other.shape, strict=True)):
            raise step.layer.error(f"shapes {one.shape} and {other.shape} do not fit")
        operands = [one, other]
    return step.node(operator, *reversed(operands) if reverse else operands)


def _aligned(step: Step, blob: Blob, other: Blob) -> Blob:
    """A blob with as many dimensions as another that has more.

    By ncnn's rule ("binaryop broadcasting") its own are the outer ones, other than in numpy, unless only the other
    way fits.
    """
    missing = other.rank - blob.rank
    if missing <= 0:
        return blob
    ones = [1] * missing
    inner = blob.rank == 1 and blob.shape[0] != other.shape[0]
    return step.reshape(blob, [*ones, *blob.shape] if inner else [*blob.shape, *ones])


@translates("Eltwise", {0, 1})
def _eltwise(step: Step) -> Blob:
    operator, factors = step.layer.one_of(0, "operation", ("Mul", "Add", "Max")), step.layer.numbers(1)
    blobs = step.inputs
    if not blobs or any(blob.shape != blobs[0].shape for blob in blobs):
        raise step.layer.error("its inputs should have one shape")
    if factors and operator == "Add":
        if len(factors) != len(blobs):
            raise step.layer.error(f"it has {len(factors)} factors for {len(blobs)} inputs")
        pairs = zip(blobs, factors, strict=True)
        blobs = [step.node("Mul", blob, step.constant(factor)) for blob, factor in pairs]
    return functools.reduce(lambda one, other: step.node(operator, one, other), blobs)


@translates("Power", {0, 1, 2})
def _power(step: Step) -> Blob:
    power = step.layer.number(0, 1.0)
    return step.node("Pow", _affine(step), step.constant(power))


@translates("Exp", {0, 1, 2})
def _exponential(step: Step) -> Blob:
    """base ^ (shift + scale x); -1 stands for e."""
    blob, base = _affine(step), step.layer.number(0, -1.0)
    if base != -1:
        blob = step.node("Mul", blob, step.constant(math.log(_positive(step, base))))
    return step.node("Exp", blob)


@translates("Log", {0, 1, 2})
def _logarithm(step: Step) -> Blob:
    """The logarithm of shift + scale x to a base; -1 stands for e."""
    blob, base = step.node("Log", _affine(step)), step.layer.number(0, -1.0)
    if base == -1:
        return blob
    return step.node("Div", blob, step.constant(math.log(_positive(step, base))))


def _affine(step: Step) -> Blob:
    """shift + scale x, by parameters 2 and 1."""
    scaled = step.node("Mul", step.only_input(), step.constant(step.layer.number(1, 1.0)))
    return step.node("Add", scaled, step.constant(step.layer.number(2)))


def _positive(step: Step, base: float) -> float:
    if base <= 0 or base == 1:
        raise step.layer.error(f"base {base} (parameter 0) is none of a logarithm")
    return base
