"""Elementwise arithmetic at its edges, NaN, infinities and quotients of integers; and checks of integers at run time.

TVM simplifies floats as if they were real numbers: `x == x` becomes true, `x - x` and `x * 0` become zero, `(x + y) -
x` becomes `y`, and `not (x < y)` becomes `y <= x`. NaN, infinities and rounding make each of these wrong. The forms
here state the same in terms that TVM leaves alone and that LLVM turns into the same instructions.

Integer divisions never trap: `guard` refuses zeros at run time, and -1, by which the least integer cannot be divided,
is replaced. An index beyond its axis would read or write foreign memory. Divisors and indices that a network computes
are copied by a function that ends the inference with an error if it finds one (`compile/native/guards.c`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from edgedeploy.compile.ir.expressions import Rewriter, constant, constant_value, shape_of
from edgedeploy.compile.ir.optraits import operator_name
from edgedeploy.compile.ir.types import bytes_of, is_floating

_Compute = Callable[..., Any]  # computes one element of the result from one element of each operand

# Writes a call of an operator as a call of a function.
Legalisation = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def as_in_tvm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """An operator as TVM's own function of it."""
    return call.op.get_attr("FLegalize")(builder, call)


def _legalised(name: str, compute: _Compute, applies: Callable[[relax.Call], bool]) -> Legalisation:
    """An operator as an elementwise function if `applies` is true; else as TVM has it."""

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape, scalars = shape_of(call), [_scalar(argument) for argument in call.args]
        if not applies(call) or None not in scalars:
            return as_in_tvm(builder, call)

        def written(*tensors: te.Tensor) -> te.Tensor:
            def value(*place: Any) -> Any:
                left = iter(tensors)
                elements = (_element(next(left), shape, place) if scalar is None else scalar for scalar in scalars)
                return compute(*elements)

            return te.compute(shape, value, name=name)

        varying = [each for each, scalar in zip(call.args, scalars, strict=True) if scalar is None]
        return builder.call_te(written, *varying, primfunc_name_hint=name)

    return legalise


def _scalar(argument: relax.Expr) -> Any:
    """A constant without dimensions as a number; None for anything else."""
    value = constant_value(argument)
    return None if value is None or value.ndim else tirx.const(value.item(), str(value.dtype))


def _element(tensor: te.Tensor, shape: list[int], place: tuple[Any, ...]) -> Any:
    """The element of an operand that is broadcast to a place of a result."""
    outer = len(shape) - len(tensor.shape)
    sizes = zip(tensor.shape, shape[outer:], place[outer:], strict=True)
    return tensor(*(index if int(size) == whole else 0 for size, whole, index in sizes))


def _opaque(condition: Any) -> Any:
    """A condition that TVM does not simplify further."""
    return tirx.Select(condition, tirx.const(1, "int8"), tirx.const(0, "int8")).astype("bool")


def _equal(a: Any, b: Any) -> Any:
    return _opaque(tirx.all(a <= b, a >= b))


def _difference(a: Any, b: Any) -> Any:
    return tirx.Add(a, tirx.Mul(b, tirx.const(-1, b.ty.dtype)))


def _product_with_zero(a: Any, b: Any) -> Any:
    """Zero, or NaN if the other factor is infinite or NaN."""
    factor = b if isinstance(a, tirx.FloatImm) else a
    return _difference(factor, factor)


def _quotient_with_zero(a: Any, b: Any) -> Any:
    """TVM takes every quotient of zero for zero, and fails on quotients by zero."""
    if isinstance(b, tirx.FloatImm):
        return tirx.Mul(a, tirx.const(math.copysign(math.inf, float(b.value)), b.ty.dtype))
    return _product_with_zero(a, tirx.Div(tirx.const(1, b.ty.dtype), b))


def _sign(x: Any) -> Any:
    """The sign of NaN is NaN."""
    one, zero = tirx.const(1, x.ty.dtype), tirx.const(0, x.ty.dtype)
    return tirx.Select(x > zero, one, tirx.Select(x < zero, -one, x))


def _of_integers(divide: _Compute, *, remainder: bool) -> _Compute:
    """A quotient or a remainder that never traps.

    The quotient of the least integer by -1 wraps to the least integer. The result for zero does not matter: `guard`
    refuses it.
    """

    def compute(a: Any, b: Any) -> Any:
        one, zero = tirx.const(1, b.ty.dtype), tirx.const(0, b.ty.dtype)
        if isinstance(b, tirx.IntImm) and int(b.value) not in (0, -1):
            return divide(a, b)
        if str(b.ty.dtype).startswith("u"):
            return divide(a, tirx.Select(b == 0, one, b))
        result = divide(a, tirx.Select(tirx.any(b == 0, b == -1), one, b))
        return result if remainder else tirx.Select(b == -1, zero - a, result)

    return compute


def _of_floats(call: relax.Call) -> bool:
    return is_floating(str(call.args[0].ty.dtype))


def _of_float_zero(call: relax.Call) -> bool:
    zeros = [value is not None and not value.ndim and value == 0 for value in map(constant_value, call.args)]
    return _of_floats(call) and any(zeros)


_COMPARISONS = {"greater": tirx.GT, "greater_equal": tirx.GE, "less": tirx.LT, "less_equal": tirx.LE}
_FLOATS: dict[str, _Compute] = {
    **{name: lambda a, b, compare=compare: _opaque(compare(a, b)) for name, compare in _COMPARISONS.items()},
    "equal": _equal,
    "erf": tirx.erf,  # TVM's own function widens half precision
    "not_equal": lambda a, b: tirx.Not(_equal(a, b)),
    "sign": _sign,
    "subtract": _difference,
}
# The function of integers, and whether it is a remainder.
_DIVISIONS = {
    "divide": (tirx.truncdiv, False),
    "floor_divide": (tirx.floordiv, False),
    "floor_mod": (tirx.floormod, True),
    "mod": (tirx.truncmod, True),
}


def _division(name: str) -> Legalisation:
    """Of integers as they are here; of floats only by or of zero."""
    divide, remainder = _DIVISIONS[name]
    integers = _legalised(name, _of_integers(divide, remainder=remainder), lambda call: not _of_floats(call))
    floats = _legalised(name, _quotient_with_zero, lambda call: name == "divide" and _of_float_zero(call))
    return lambda builder, call: (floats if _of_floats(call) else integers)(builder, call)


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A gathering by checked indices. TVM's own function of it warns that it does not check them."""
    if str(call.attrs.mode) != "fast" or call.attrs.axis is None:
        return as_in_tvm(builder, call)
    axis = int(call.attrs.axis) % len(shape_of(call.args[0]))

    def compute(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        end = axis + len(indices.shape)
        return te.compute(
            [*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]],
            lambda *place: data(*place[:axis], indices(*place[axis:end]), *place[end:]),
            name="taken",
            tag="injective",
        )

    return builder.call_te(compute, *call.args, primfunc_name_hint="take")


LEGALISATIONS: dict[str, Legalisation] = {
    **{f"relax.{name}": _legalised(name, compute, _of_floats) for name, compute in _FLOATS.items()},
    **{f"relax.{name}": _division(name) for name in _DIVISIONS},
    "relax.multiply": _legalised("multiply", _product_with_zero, _of_float_zero),
    "relax.take": _take,
}


_CHECK_DIVISORS, _CHECK_INDICES = "edgedeploy_check_divisors", "edgedeploy_check_indices"  # the functions of `guards.c`

_INDEX_TYPE = "int64"

# ONNX's names of the operators, which users may know.
_NAMES = {
    "divide": "Div", "floor_divide": "Div", "floor_mod": "Mod", "gather_elements": "GatherElements",
    "gather_nd": "GatherND", "index_put": "index_put", "index_tensor": "indexing", "mod": "Mod",
    "scatter_elements": "ScatterElements", "scatter_nd": "ScatterND", "take": "Gather",
}  # fmt: skip


class _Guard(Rewriter):
    """Checks divisors and indices that are known only at run time, before operators use them."""

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name, arguments = operator_name(call), list(call.args)
        if name in _DIVISIONS and not is_floating(str(call.ty.dtype)):
            divisor = constant_value(arguments[1])
            if divisor is not None and divisor.all():
                return None
            arguments[1] = self._checked(_CHECK_DIVISORS, name, arguments[1], [])
        elif name == "take" and str(call.attrs.mode) != "fast":
            return None  # it keeps within its axis by itself
        elif sizes := indexed_axes(call):
            if isinstance(arguments[1], relax.Tuple):
                indices = zip(arguments[1].fields, sizes, strict=False)
                arguments[1] = relax.Tuple([self._index(name, index, [size]) for index, size in indices])
            else:
                arguments[1] = self._index(name, arguments[1], sizes)
        if arguments == list(call.args):
            return None
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    def _index(self, name: str, index: relax.Expr, sizes: list[int]) -> relax.Expr:
        """Checked indices: constants now, others at run time."""
        if str(index.ty.dtype) == "bool":
            return index
        if (values := constant_value(index)) is not None:
            if ((values < -np.asarray(sizes)) | (values >= sizes)).any():
                raise ValueError(f"an index in {_NAMES[name]} is out of bounds for axes of sizes {sizes}")
            return constant(np.where(values < 0, values + sizes, values), _INDEX_TYPE) if (values < 0).any() else index
        if str(index.ty.dtype) != _INDEX_TYPE:
            index = self.emit.astype(index, _INDEX_TYPE)
        return self._checked(_CHECK_INDICES, name, index, sizes)

    def _checked(self, check: str, name: str, tensor: relax.Expr, sizes: list[int]) -> relax.Expr:
        shape, dtype = shape_of(tensor), str(tensor.ty.dtype)
        variable = self.builder_.add_func(_checking(check, shape, dtype, _NAMES[name], sizes), f"check_{name}")
        return self.emit(relax.call_tir(variable, relax.Tuple([tensor]), relax.TensorType(shape, dtype)))


def indexed_axes(call: Any) -> list[int]:
    """The sizes of the axes that the indices in a call's second argument refer to, along its last axis."""
    name = operator_name(call)
    if name in ("take", "gather_elements", "scatter_elements"):
        shape, axis = shape_of(call.args[0]), call.attrs.axis
        return [math.prod(shape) if axis is None else shape[int(axis)]]
    if name in ("gather_nd", "scatter_nd"):
        begin = int(call.attrs.batch_dims) if name == "gather_nd" else 0
        return shape_of(call.args[0])[begin : begin + shape_of(call.args[1])[-1]]
    return shape_of(call.args[0]) if name in ("index_tensor", "index_put") else []


def _checking(check: str, shape: list[int], dtype: str, name: str, sizes: list[int]) -> tirx.PrimFunc:
    """A function that copies a tensor, or fails."""
    with IRBuilder() as builder, T.prim_func(private=True, s_tir=True):
        given, checked = (T.arg(each, T.buffer(shape, dtype)) for each in ("given", "checked"))
        whole = tuple(slice(0, size) for size in shape)
        with T.sblock("check"):
            T.reads(given[whole])
            T.writes(checked[whole])
            numbers = [tirx.const(each, "int64") for each in (math.prod(shape), bytes_of(dtype), *sizes)]
            T.evaluate(tirx.call_cpacked(check, name, given.data, checked.data, *numbers))
    return builder.get()


guard_integers = _Guard.rewritten
