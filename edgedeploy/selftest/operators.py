"""What a network's operators make of its inputs, read from its Relax module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgedeploy.compile.types import bits_of, is_floating

if TYPE_CHECKING:
    from edgedeploy.network import Network

# The values of a tensor, some of them or in another form.
_PASSING = {
    "astype", "broadcast_to", "concat", "expand_dims", "flatten", "permute_dims", "reshape", "split", "squeeze",
    "stack", "strided_slice", "where",
}  # fmt: skip

_PRODUCTS = ("nn.conv", "nn.attention", "matmul", "einsum")
_DIVISIONS = {"divide", "floor_divide", "mod", "floor_mod", "trunc_mod", "truncate_mod"}
_WRITING = {"index_put", "scatter_elements", "scatter_nd"}
_SHIFTS = {"left_shift", "right_shift"}

# Operators that make no NaN of infinities. onnxruntime's MaxPool is none of them: at edges it gives the least finite
# number for nothing but -inf.
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
# Operators in whose results a NaN need not show: programs differ in what they make of it.
_HIDING = {
    "argmax", "argmin", "argsort", "equal", "greater", "greater_equal", "less", "less_equal", "max", "maximum", "min",
    "minimum", "nn.leakyrelu", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.prelu", "not_equal", "sort",
    "topk", "where",
}  # fmt: skip


@dataclass
class Use:
    """What one input is used for.

    Attributes:
        size: of the shortest axis that it indexes: its values are -size to size - 1. None for all other inputs.
        from_end: whether they may be negative, and then count from the axis' end.
        written: whether they say where to write: two that are equal leave the result open.
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
    """What a network's operators are, as far as inputs for it depend on that.

    Attributes:
        inputs: by name.
        products: whether it sums up products.
        convolutions: whether convolutions are among these.
        casts: whether it makes integers of floats, which is open for those that no integer stands for.
        divides: whether it divides integers by such as it computes; a zero would end the process.
        steady: whether infinities stay infinities, or become NaN that show, in every program alike.
        keeps_nan: whether NaN among its inputs shows in every program alike.
    """

    inputs: dict[str, Use] = field(default_factory=dict)
    products: bool = False
    convolutions: bool = False
    casts: bool = False
    divides: bool = False
    steady: bool = True
    keeps_nan: bool = False


def uses_of(network: Network) -> Uses:
    """What the operators of a network make of its inputs."""
    from tvm import relax

    from edgedeploy.compile.expressions import constant_value

    function = network.module["main"]
    uses = Uses({spec.name: Use() for spec in network.inputs})
    # By variable, the inputs whose values it holds.
    origins: dict[Any, list[Use]] = {
        variable: [uses.inputs[spec.name]] for variable, spec in zip(function.params, network.inputs, strict=True)
    }
    operators = set()

    def origins_of(expression: Any) -> list[Use]:
        fields = expression.fields if isinstance(expression, relax.Tuple) else [expression]
        return [use for each in fields if isinstance(each, relax.Var) for use in origins.get(each, [])]

    for variable, value in _bindings(function):
        if isinstance(value, relax.TupleGetItem):
            origins[variable] = origins_of(value.tuple_value)
        elif not isinstance(value, relax.Call):
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
            uses.divides |= name == "call_tir" and _kind(variable) in "iu"
    uses.products = any(name.startswith(_PRODUCTS) for name in operators)
    uses.convolutions = any(name.startswith("nn.conv") for name in operators)
    uses.steady = operators <= _STEADY or (operators <= _STEADY | _PLAIN and not operators & _HIDING)
    by_onnxruntime = network.reference_name.startswith("onnxruntime")
    uses.keeps_nan = "isnan" in operators or (by_onnxruntime and operators <= _KEEPING_NAN)
    return uses


def computed_types(network: Network) -> set[str]:
    """The floating-point types of what a network's operators compute: those in which they sum up, and their results."""
    return {dtype for variable, _ in _bindings(network.module["main"]) if is_floating(dtype := _dtype(variable))}


def _bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    """Variables of a function with what they are bound to, in order."""
    for block in getattr(function.body, "blocks", []):
        for binding in block.bindings:
            yield binding.var, getattr(binding, "value", None)


def _indexed(name: str, call: Any) -> Iterator[tuple[int, int, dict[str, bool]]]:
    """Which arguments of a call are indices, how long the axes are that they index, and what is to be noted of them."""
    from edgedeploy.compile.expressions import constant_value
    from edgedeploy.compile.passes.arithmetic import indexed_axes

    if axes := indexed_axes(call):
        yield 1, min(axes), {"written": name in _WRITING}
    elif name == "one_hot":
        yield 0, int(call.attrs.depth), {}
    elif name == "equal":
        # OneHot, as a comparison with all the places that there are.
        choices = constant_value(call.args[1])
        if choices is not None and choices.dtype.kind in "iu" and choices.size > 1:
            yield 0, max(int(choices.max()) + 1, 1), {}
    elif name in _SHIFTS:
        yield 1, bits_of(_dtype(call.args[1])), {"from_end": False}


def _dtype(expression: Any) -> str:
    return str(getattr(expression.ty, "dtype", ""))


def _kind(expression: Any) -> str:
    """The first letter of an element type as numpy has it; empty for what is no tensor."""
    return _dtype(expression)[:1]
