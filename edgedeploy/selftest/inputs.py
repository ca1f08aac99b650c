"""The inputs that a network is tested with: random ones, and edge cases of its operators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edgedeploy.compile.ir.types import bits_of, is_floating
from edgedeploy.runtime.arrays import fill

if TYPE_CHECKING:
    from edgedeploy.model.network import Network
    from edgedeploy.model.tensors import TensorSpec
    from edgedeploy.package.usage import ModelInput

# Operators that return values of their inputs, all or some of them, in any shape or type.
_PASSING = {
    "astype", "broadcast_to", "concat", "expand_dims", "flatten", "permute_dims", "reshape", "split", "squeeze",
    "stack", "strided_slice", "where",
}  # fmt: skip

_PRODUCTS = ("nn.conv", "nn.attention", "matmul", "einsum")
_DIVISIONS = {"divide", "floor_divide", "mod", "floor_mod", "trunc_mod", "truncate_mod"}
_WRITING = {"index_put", "scatter_elements", "scatter_nd"}
_SHIFTS = {"left_shift", "right_shift"}

# Operators that make no NaN of infinities. onnxruntime's MaxPool does not belong here: at edges it returns the least
# finite number for a window of -inf.
_STEADY = _PASSING | {
    "abs", "argmax", "argmin", "argsort", "atan", "ceil", "clip", "equal", "erf", "exp", "flip", "floor", "full",
    "gather_elements", "gather_nd", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "min", "minimum", "negative",
    "nn.relu", "not_equal", "one_hot", "repeat", "round",
    "scatter_elements", "scatter_nd", "shape_of", "shape_to_tensor", "sigmoid", "sign", "sort", "take", "tanh", "tile",
    "topk", "tril", "triu",
}  # fmt: skip
# Operators that make NaN of some infinities, and the same wherever they are computed. Means are not: onnxruntime's of a
# layer normalisation is NaN for -inf.
_PLAIN = {
    "acos", "acosh", "add", "asin", "asinh", "atanh", "cos", "cosh", "cumprod", "cumsum", "divide", "log", "log10",
    "log1p", "log2", "log_softmax", "mod", "multiply", "nn.log_softmax", "nn.softmax", "power", "prod", "rsqrt",
    "sin", "sinh", "sqrt", "square", "subtract", "sum", "tan",
}  # fmt: skip
# Operators that make NaN of NaN in onnxruntime on every CPU. LiteRT's exp makes 0 of it.
_KEEPING_NAN = _PASSING | {
    "abs", "add", "clip", "divide", "flip", "multiply", "negative", "nn.relu", "repeat", "sign", "square", "subtract",
    "tile",
}  # fmt: skip
# Operators whose results may hide a NaN: programs differ in them.
_HIDING = {
    "argmax", "argmin", "argsort", "equal", "greater", "greater_equal", "less", "less_equal", "max", "maximum", "min",
    "minimum", "nn.leakyrelu", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.prelu", "not_equal", "sort",
    "topk", "where",
}  # fmt: skip


@dataclass
class Use:
    """The use of one input: the size of the shortest axis that it indexes, by -size to size - 1; None for others.

    `from_end`: negative indices count from the axis' end. `written`: indices are places to write to; the result for two
    equal ones is undefined.
    """

    size: int | None = None
    from_end: bool = True
    written: bool = False

    def indexes(self, size: int, *, from_end: bool = True, written: bool = False) -> None:
        """Note an axis that it indexes."""
        self.size = min(size, self.size or size)
        self.from_end &= from_end
        self.written |= written


@dataclass
class Uses:
    """The properties of a network's operators that its test inputs depend on."""

    inputs: dict[str, Use] = field(default_factory=dict)
    products: bool = False  # whether it sums up products
    convolutions: bool = False  # whether convolutions are among these
    casts: bool = False  # whether it converts floats to integers, which is undefined for values out of range
    divides: bool = False  # whether it divides integers by computed ones; a zero would end the process
    steady: bool = True  # whether every program gives the same infinities and NaN for infinities
    keeps_nan: bool = False  # whether every program gives the same NaN for NaN among its inputs
    selected: set[int] = field(default_factory=set)  # the sizes of its TopK selections


def uses_of(network: Network) -> Uses:
    """The uses of a network's inputs by its operators, read from its Relax module."""
    from tvm import relax

    from edgedeploy.compile.ir.expressions import bindings_of, constant_value

    function = network.module["main"]
    uses = Uses({spec.name: Use() for spec in network.inputs})
    # By variable, the inputs whose values it contains.
    origins: dict[Any, list[Use]] = {
        variable: [uses.inputs[spec.name]] for variable, spec in zip(function.params, network.inputs, strict=True)
    }
    operators = set()

    def origins_of(expression: Any) -> list[Use]:
        if isinstance(expression, relax.TupleGetItem):
            return origins_of(expression.tuple_value)
        fields = expression.fields if isinstance(expression, relax.Tuple) else [expression]
        return [use for each in fields if isinstance(each, relax.Var) for use in origins.get(each, [])]

    for variable, value in ((each.var, each.value) for each in bindings_of(function)):
        if not isinstance(value, relax.Call):
            origins[variable] = origins_of(value)
        else:
            name = getattr(value.op, "name", "").removeprefix("relax.")
            operators.add(name)
            if name in _PASSING:
                origins[variable] = [use for argument in value.args for use in origins_of(argument)]
            if any(origins_of(argument) for argument in value.args):
                for index, size, marks in _indexed(name, value):
                    for use in origins_of(value.args[index]):
                        use.indexes(size, **marks)
            of = [_kind(argument) for argument in value.args]
            uses.casts |= name == "astype" and of[0] == "f" and _kind(variable) in "iu"
            fixed = len(value.args) > 1 and constant_value(value.args[1]) is not None
            uses.divides |= name in _DIVISIONS and _kind(variable) in "iu" and not fixed
            uses.selected |= {int(value.attrs.k)} if name == "topk" else set()
            uses.divides |= name == "call_tir" and _kind(variable) in "iu"
    uses.products = any(name.startswith(_PRODUCTS) for name in operators)
    uses.convolutions = any(name.startswith("nn.conv") for name in operators)
    uses.steady = operators <= _STEADY or (operators <= _STEADY | _PLAIN and not operators & _HIDING)
    by_onnxruntime = network.reference_name.startswith("onnxruntime")
    uses.keeps_nan = "isnan" in operators or (by_onnxruntime and operators <= _KEEPING_NAN)
    return uses


def computed_types(network: Network) -> set[str]:
    """The floating-point types of a network's operators: those in which they sum up, and of their results."""
    from edgedeploy.compile.ir.expressions import bindings_of

    return {dtype for each in bindings_of(network.module["main"]) if is_floating(dtype := _dtype(each.var))}


def _indexed(name: str, call: Any) -> Iterator[tuple[int, int, dict[str, bool]]]:
    """Arguments of a call that are indices, the lengths of the axes that they index, and options of `Use.indexes`."""
    from edgedeploy.compile.ir.expressions import constant_value
    from edgedeploy.compile.passes.arithmetic import indexed_axes

    if axes := indexed_axes(call):
        yield 1, min(axes), {"written": name in _WRITING}
    elif name == "one_hot":
        yield 0, int(call.attrs.depth), {}
    elif name == "equal":
        choices = constant_value(call.args[1])  # OneHot, as a comparison with all places
        if choices is not None and choices.dtype.kind in "iu" and choices.size > 1:
            yield 0, max(int(choices.max()) + 1, 1), {}
    elif name in _SHIFTS:
        yield 1, bits_of(_dtype(call.args[1])), {"from_end": False}


def _dtype(expression: Any) -> str:
    return str(getattr(expression.ty, "dtype", ""))


def _kind(expression: Any) -> str:
    """The first letter of numpy's name of an element type; empty if it is not a tensor."""
    return _dtype(expression)[:1]


Inputs = dict[str, np.ndarray]

# exp of these exceeds the range of float16 or float32, and sigmoid of float64 saturates at 0 and 1.
_LARGE = {2: 16.0, 4: 100.0, 8: 100.0}
# The same for networks that sum up products: larger values leave softmax nothing but differences of rounding.
_LARGE_FOR_PRODUCTS = 4.0
# How many pictures are made up, the mean and the standard deviation of their levels, and the part of colour in them.
_PICTURES = 2
_LEVELS = 115.0, 60.0
_COLOUR = 0.4
_RUN = 8  # so many neighbours have one value in inputs of convolutions


def random_inputs(network: Network) -> Iterator[Inputs]:
    """The same random values each time; then, for a reference that refuses them, integers of 0 and 1, and of 0."""
    uses = uses_of(network)
    yield {spec.name: _random(spec, uses, seed) for seed, spec in enumerate(network.inputs)}
    for most in (1, 0):
        yield {
            spec.name: np.minimum(array, most) if (array := _random(spec, uses, seed)).dtype.kind in "iu" else array
            for seed, spec in enumerate(network.inputs)
        }


def edge_inputs(network: Network) -> Iterator[Inputs]:
    """Zeros, ones, large and negative values, the first and the last index. The second set has no extreme values."""
    uses = uses_of(network)
    for extreme in (True, False):
        yield {spec.name: _edge(spec, uses, place, extreme=extreme) for place, spec in enumerate(network.inputs)}


def infinite_inputs(network: Network) -> Iterator[Inputs]:
    """Random values with some infinities; nothing for networks in which these give different results by program."""
    uses = uses_of(network)
    if uses.products or uses.casts or not uses.steady:
        return
    if any(np.dtype(spec.dtype).kind == "f" and uses.inputs[spec.name].size is None for spec in network.inputs):
        yield {spec.name: _with_infinities(spec, uses, seed) for seed, spec in enumerate(network.inputs)}


def picture_inputs(network: Network, given: ModelInput) -> list[Inputs]:
    """Made-up pictures, as a network takes photographs; nothing for networks that take anything else."""
    if given.kind != "image" or len(network.inputs) > 1:
        return []
    from edgedeploy.vision.preprocess import input_size, to_tensor

    [spec] = network.inputs
    size = input_size(given, spec)
    return [{spec.name: to_tensor(_picture(*size, seed), given, spec.dtype, spec.steps)} for seed in range(_PICTURES)]


def bounded_inputs(network: Network) -> list[TensorSpec]:
    """A network's inputs, with the bounds of indices."""
    uses = uses_of(network)
    return [spec.model_copy(update={"below": uses.inputs[spec.name].size}) for spec in network.inputs]


def _random(spec: TensorSpec, uses: Uses, seed: int) -> np.ndarray:
    use = uses.inputs[spec.name]
    if use.size is not None and use.written and spec.dtype != "bool":
        return _different(spec, use.size)
    array = fill(spec.model_copy(update={"below": use.size}), "normal", seed)
    return np.maximum(array, 1) if uses.divides and use.size is None and array.dtype.kind in "iu" else array


def _edge(spec: TensorSpec, uses: Uses, place: int, *, extreme: bool) -> np.ndarray:
    use = uses.inputs[spec.name]
    if use.written and use.size is not None and spec.dtype != "bool":
        return (use.size - 1 - _different(spec, use.size)).astype(spec.dtype)
    values = _edges(spec, uses, extreme=extreme)
    if uses.convolutions and np.dtype(spec.dtype).kind == "f":
        return _uneven(spec.shape, values, place).astype(spec.dtype)
    return _pattern(spec.shape, values, place).astype(spec.dtype)


def _different(spec: TensorSpec, size: int) -> np.ndarray:
    """Indices below `size`, all different if there are enough: of two that are equal, either may be written last."""
    return (np.arange(math.prod(spec.shape)) % size).reshape(spec.shape).astype(spec.dtype)


def _edges(spec: TensorSpec, uses: Uses, *, extreme: bool) -> list[float | int]:
    dtype, use = np.dtype(spec.dtype), uses.inputs[spec.name]
    if dtype.kind == "b":
        return [0, 1]
    if use.size is not None:
        last = use.size - 1
        return [0, last, -1, -use.size] if extreme and use.from_end and dtype.kind != "u" else [last, 0]
    if dtype.kind == "f":
        if uses.casts or not extreme:
            return [0, 1, -1]
        large = _LARGE_FOR_PRODUCTS if uses.products else _LARGE[dtype.itemsize]
        return [0, 1, -large, large]
    if not extreme or uses.divides:
        return [1, 2] if uses.divides else [0, 1]
    limits = np.iinfo(dtype)
    # One more than fits into half the bits: products of two of them are still exact.
    high = limits.max if dtype.itemsize == 1 else (1 << 4 * dtype.itemsize) + 1
    return [0, 1, high] if dtype.kind == "u" else [0, 1, -1, high, limits.min if dtype.itemsize == 1 else -high]


def _pattern(shape: list[int], values: list[float | int], place: int) -> np.ndarray:
    """Rows of one value each, and a last row of all of them; a single row is the last one.

    The order of the values in later rows differs from input to input (`place`).
    """
    length = shape[-1] if shape else 1
    rows = np.arange(math.prod(shape) // max(length, 1))
    turns = np.repeat((rows + place * (rows // len(values))) % len(values), length).reshape(len(rows), length)
    if len(rows):
        turns[-1] = np.arange(length) % len(values)
    return np.array(values)[turns].reshape(shape)


def _uneven(shape: list[int], values: list[float | int], place: int) -> np.ndarray:
    """Short runs of each value in random order, for convolutions.

    Of even rows they compute even feature maps. The reference's sums over thousands of equal pixels have rounding
    errors of one sign, larger than the difference of a wrong network.
    """
    size = math.prod(shape)
    runs = np.random.default_rng(place).permutation(np.arange(-(-size // _RUN)) % len(values))
    return np.array(values)[np.repeat(runs, _RUN)[:size]].reshape(shape)


def _with_infinities(spec: TensorSpec, uses: Uses, seed: int) -> np.ndarray:
    """Random values, with -inf in one whole slice and in a line across all slices, and +inf in another slice.

    So a reduction over the first axis, as over any of the others, meets nothing but -inf somewhere.
    """
    array = _random(spec, uses, seed)
    if array.dtype.kind != "f" or uses.inputs[spec.name].size is not None or not array.size:
        return array
    slices = array.reshape([size for size in spec.shape if size > 1] or [1])
    if slices.ndim > 1:
        slices.reshape(len(slices), -1)[:, 0] = -np.inf
    if len(slices) > 2:
        slices[-2] = np.inf
    slices[-1] = -np.inf
    if uses.keeps_nan and array.size > 3:
        slices.reshape(-1)[1] = np.nan
    return array


def _picture(height: int, width: int, seed: int) -> np.ndarray:
    """A picture with a photograph's statistics: uint8, height x width x 3, B G R.

    Amplitudes fall with the inverse of the frequency (Field, Relations between the statistics of natural images and the
    response properties of cortical cells, Journal of the Optical Society of America A 4, 1987); most of the contrast is
    grey.
    """
    frequencies = np.hypot(np.fft.fftfreq(height)[:, np.newaxis], np.fft.rfftfreq(width))
    frequencies[0, 0] = np.inf
    noise = np.random.default_rng(seed).standard_normal((4, height, width))
    grey, *colours = np.fft.irfft2(np.fft.rfft2(noise) / frequencies, s=(height, width))
    levels = np.stack([grey + _COLOUR * each for each in colours], axis=-1)
    mean, deviation = _LEVELS
    levels = mean + deviation * levels / max(levels.std(), np.finfo(float).tiny)
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
