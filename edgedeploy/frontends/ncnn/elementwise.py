"""Layers that compute each value from the values at its own place: activations, arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from edgedeploy.frontends.ncnn.step import Blob, Step, Translator, translates

# Bounds beyond this are none; converters write the largest float32, rounded to some digits.
_BOUNDLESS = 3.4e38


def leaky_relu(step: Step, blob: Blob, slope: float) -> Blob:
    """max(x, 0) + slope min(x, 0)."""
    return step.elementwise("LeakyRelu", blob, alpha=slope) if slope else step.elementwise("Relu", blob)


def clip(step: Step, blob: Blob, lowest: float, highest: float) -> Blob:
    """Values below `lowest` and above `highest` replaced by these."""
    bounds = ["" if abs(bound) > _BOUNDLESS else step.constant(bound) for bound in (lowest, highest)]
    return step.elementwise("Clip", blob, *bounds)


def mish(step: Step, blob: Blob) -> Blob:
    """x tanh(log(1 + exp(x))), from Misra, "Mish" (2019)."""
    return step.elementwise("Mul", blob, step.elementwise("Tanh", step.elementwise("Softplus", blob)))


def hard_swish(step: Step, blob: Blob, alpha: float, beta: float) -> Blob:
    """x min(max(alpha x + beta, 0), 1)."""
    return step.elementwise("Mul", blob, step.elementwise("HardSigmoid", blob, alpha=alpha, beta=beta))


def activated(step: Step, blob: Blob) -> Blob:
    """What follows a convolution or a dense layer in the same layer: parameter 9 says which, 10 its numbers."""
    kind, numbers = step.layer.integer(9), step.layer.numbers(10)
    if not 0 <= kind < len(_ACTIVATIONS):
        raise step.layer.error(f"activation {kind} (parameter 9) is not known")
    count, activation = _ACTIVATIONS[kind]
    if len(numbers) < count:
        raise step.layer.error(f"activation {kind} needs {count} numbers (parameter 10), and has {len(numbers)}")
    return activation(step, blob, *numbers[:count])


# By ncnn's number: how many numbers it needs, and what it does.
_ACTIVATIONS: list[tuple[int, Callable[..., Blob]]] = [
    (0, lambda step, blob: blob),
    (0, lambda step, blob: step.elementwise("Relu", blob)),
    (1, leaky_relu),
    (2, clip),
    (0, lambda step, blob: step.elementwise("Sigmoid", blob)),
    (0, mish),
    (2, hard_swish),
]


@translates("ReLU", {0})
def _relu(step: Step) -> Blob:
    return leaky_relu(step, step.only_input(), step.layer.number(0))


@translates("PReLU", {0})
def _prelu(step: Step) -> Blob:
    blob, count = step.only_input(), step.layer.integer(0)
    if count not in (1, blob.shape[0]):
        raise step.layer.error(f"it has {count} slopes for {blob.shape[0]} channels")
    slopes = step.weights.plain([count], step.layer.name)
    return step.elementwise("PRelu", blob, step.outermost(slopes, blob))


@translates("Clip", {0, 1})
def _clip(step: Step) -> Blob:
    return clip(step, step.only_input(), step.layer.number(0, -math.inf), step.layer.number(1, math.inf))


@translates("Swish")
def _swish(step: Step) -> Blob:
    blob = step.only_input()
    return step.elementwise("Mul", blob, step.elementwise("Sigmoid", blob))


@translates("HardSigmoid", {0, 1})
def _hard_sigmoid(step: Step) -> Blob:
    alpha, beta = step.layer.number(0, 0.2), step.layer.number(1, 0.5)
    return step.elementwise("HardSigmoid", step.only_input(), alpha=alpha, beta=beta)


@translates("HardSwish", {0, 1})
def _hard_swish(step: Step) -> Blob:
    return hard_swish(step, step.only_input(), step.layer.number(0, 0.2), step.layer.number(1, 0.5))


@translates("ELU", {0})
def _elu(step: Step) -> Blob:
    return step.elementwise("Elu", step.only_input(), alpha=step.layer.number(0, 0.1))


@translates("SELU", {0, 1})
def _selu(step: Step) -> Blob:
    # The constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017), as ncnn has them.
    alpha, gamma = step.layer.number(0, 1.67326324), step.layer.number(1, 1.050700987)
    return step.elementwise("Selu", step.only_input(), alpha=alpha, gamma=gamma)


@translates("GELU", {0})
def _gelu(step: Step) -> Blob:
    """x Phi(x), or by Hendrycks and Gimpel's tanh (2016) if parameter 0 says so."""
    blob = step.only_input()
    if step.layer.integer(0):
        cubic = step.elementwise("Mul", step.elementwise("Mul", blob, blob), blob)
        bent = step.elementwise("Add", blob, step.elementwise("Mul", cubic, step.constant(0.044715)))
        gate = step.elementwise("Tanh", step.elementwise("Mul", bent, step.constant(math.sqrt(2 / math.pi))))
    else:
        gate = step.elementwise("Erf", step.elementwise("Mul", blob, step.constant(math.sqrt(0.5))))
    half = step.elementwise("Mul", blob, step.constant(0.5))
    return step.elementwise("Mul", half, step.elementwise("Add", gate, step.constant(1.0)))


@translates("Dropout", {0})
def _dropout(step: Step) -> Blob:
    """Only the scale is left of it at inference."""
    blob, scale = step.only_input(), step.layer.number(0, 1.0)
    return blob if scale == 1 else step.elementwise("Mul", blob, step.constant(scale))


def _operator(name: str) -> Callable[[Step, Blob], Blob]:
    return lambda step, blob: step.elementwise(name, blob)


def _only(translator: Callable[[Step, Blob], Blob]) -> Translator:
    return lambda step: translator(step, step.only_input())


# By ncnn's number.
_UNARY: list[Callable[[Step, Blob], Blob]] = [
    _operator("Abs"),
    _operator("Neg"),
    _operator("Floor"),
    _operator("Ceil"),
    lambda step, blob: step.elementwise("Mul", blob, blob),
    _operator("Sqrt"),
    lambda step, blob: step.elementwise("Reciprocal", step.elementwise("Sqrt", blob)),
    _operator("Exp"),
    _operator("Log"),
    _operator("Sin"),
    _operator("Cos"),
    _operator("Tan"),
    _operator("Asin"),
    _operator("Acos"),
    _operator("Atan"),
    _operator("Reciprocal"),
    _operator("Tanh"),
    lambda step, blob: step.elementwise("Mul", step.elementwise("Log", blob), step.constant(1 / math.log(10))),
    _operator("Round"),
]

# Layers that are one operator of ONNX, without parameters.
for _kind, _name in (("Sigmoid", "Sigmoid"), ("TanH", "Tanh"), ("AbsVal", "Abs"), ("BNLL", "Softplus")):
    translates(_kind)(_only(_operator(_name)))
translates("Mish")(_only(mish))


@translates("UnaryOp", {0})
def _unary(step: Step) -> Blob:
    kind = step.layer.integer(0)
    if not 0 <= kind < len(_UNARY):
        raise step.layer.error(f"operation {kind} (parameter 0) is not known")
    return _UNARY[kind](step, step.only_input())


# By ncnn's number: ONNX's operator, and whether the second operand comes first.
_BINARY = [
    ("Add", False),
    ("Sub", False),
    ("Mul", False),
    ("Div", False),
    ("Max", False),
    ("Min", False),
    ("Pow", False),
    ("Sub", True),
    ("Div", True),
    ("Pow", True),
]


@translates("BinaryOp", {0, 1, 2})
def _binary(step: Step) -> Blob:
    kind = step.layer.integer(0)
    if not 0 <= kind < len(_BINARY):
        raise step.layer.error(f"operation {kind} (parameter 0) is not known")
    operator, reverse = _BINARY[kind]
    if step.layer.integer(1):
        blob = step.only_input()
        operands: list[Blob | str] = [blob, step.constant(step.layer.number(2))]
        shape: Sequence[int] = blob.shape
    else:
        one, other = step.check_inputs(2)
        one, other = _aligned(step, one, other), _aligned(step, other, one)
        if any(1 not in pair and pair[0] != pair[1] for pair in zip(one.shape, other.shape, strict=True)):
            raise step.layer.error(f"shapes {one.shape} and {other.shape} do not fit")
        operands, shape = [one, other], [max(pair) for pair in zip(one.shape, other.shape, strict=True)]
    return step.node(operator, *reversed(operands) if reverse else operands, shape=shape)


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
    kind, factors = step.layer.integer(0), step.layer.numbers(1)
    blobs = step.inputs
    if not blobs or any(blob.shape != blobs[0].shape for blob in blobs):
        raise step.layer.error("its inputs should have one shape")
    if kind not in (0, 1, 2):
        raise step.layer.error(f"operation {kind} (parameter 0) is not known")
    if factors and kind == 1:
        if len(factors) != len(blobs):
            raise step.layer.error(f"it has {len(factors)} factors for {len(blobs)} inputs")
        pairs = zip(blobs, factors, strict=True)
        blobs = [step.elementwise("Mul", blob, step.constant(factor)) for blob, factor in pairs]
    operator = ("Mul", "Add", "Max")[kind]
    return functools.reduce(lambda one, other: step.elementwise(operator, one, other), blobs)


@translates("Power", {0, 1, 2})
def _power(step: Step) -> Blob:
    power = step.layer.number(0, 1.0)
    return step.elementwise("Pow", _affine(step), step.constant(power))


@translates("Exp", {0, 1, 2})
def _exponential(step: Step) -> Blob:
    """base ^ (shift + scale x); -1 stands for e."""
    blob, base = _affine(step), step.layer.number(0, -1.0)
    if base != -1:
        blob = step.elementwise("Mul", blob, step.constant(math.log(_positive(step, base))))
    return step.elementwise("Exp", blob)


@translates("Log", {0, 1, 2})
def _logarithm(step: Step) -> Blob:
    """The logarithm of shift + scale x to a base; -1 stands for e."""
    blob, base = step.elementwise("Log", _affine(step)), step.layer.number(0, -1.0)
    if base == -1:
        return blob
    return step.elementwise("Div", blob, step.constant(math.log(_positive(step, base))))


def _affine(step: Step) -> Blob:
    """shift + scale x, by parameters 2 and 1."""
    scaled = step.elementwise("Mul", step.only_input(), step.constant(step.layer.number(1, 1.0)))
    return step.elementwise("Add", scaled, step.constant(step.layer.number(2)))


def _positive(step: Step, base: float) -> float:
    if base <= 0 or base == 1:
        raise step.layer.error(f"base {base} (parameter 0) is none of a logarithm")
    return base
