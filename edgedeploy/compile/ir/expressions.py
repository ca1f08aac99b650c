"""Helpers for expressions of Relax, and the walk that rewrites a network's function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.types import LayerTypes, is_floating

NHWC_OF_NCHW, NCHW_OF_NHWC = [0, 2, 3, 1], [0, 3, 1, 2]  # the axes of a transpose between layouts

# TVM's `OpPatternKind`: `kInjective` is fused with what follows, but not into what comes before; `kOpaque` never.
INJECTIVE, OPAQUE = 2, 8

# Parts of one concatenation or split: TVM writes nested conditions and buffers for them, through which its passes
# recurse. Besides, each use of a tuple takes time for all of its fields.
MOST_PARTS = 32


class Emitter:
    """Binds expressions to new variables: `emit(expression)`, or `emit.add(a, b)` for `emit(relax.op.add(a, b))`.

    In the latter form, numbers and arrays among the arguments become constants of the dtype of the first tensor; axes
    are keyword arguments.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder

    def __call__(self, expression: relax.Expr) -> relax.Var:
        """A new variable, bound to an expression."""
        return self._builder.emit(expression)

    def __getattr__(self, name: str) -> Callable[..., relax.Var]:
        operator = getattr(relax.op, name)

        def call(*arguments: Any, **settings: Any) -> relax.Var:
            tensors = (each for each in arguments if isinstance(each, relax.Expr))
            dtype = next((str(getattr(each.ty, "dtype", "")) for each in tensors), None)
            numbers = int | float | np.floating | np.ndarray
            values = (constant(each, dtype) if isinstance(each, numbers) else each for each in arguments)
            return self(operator(*values, **settings))

        return call


class Rewriter(relax.PyExprMutator):
    """A walk over the function `main` of a network, in which subclasses replace calls."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.module = module

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        """What to put in the place of a call, if anything: `call` has rewritten operands, `original` those before."""
        return None

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite a call."""
        now = self.visit_expr_post_order(call)
        found = self.replacement(now, call)
        return now if found is None else found

    @property
    def emit(self) -> Emitter:
        """Binds expressions to new variables before the call."""
        return Emitter(self.builder_)

    def bound_value(self, expression: Any) -> Any:
        """The value of a variable of the new function; any other expression is its own value."""
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else expression

    def value_before(self, expression: Any) -> Any:
        """As `bound_value`, before anything is rewritten."""
        return self.before.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def is_shared(self, expression: Any) -> bool:
        """Whether it is a variable that is not read exactly once."""
        return isinstance(expression, relax.Var) and self.uses[expression] != 1

    @cached_property
    def before(self) -> dict[relax.Var, relax.Expr]:
        """The values of the network's variables, before anything is rewritten."""
        return {each.var: each.value for each in bindings_of(self.module["main"])}

    @cached_property
    def uses(self) -> Counter[relax.Var]:
        """How often the network uses each variable, before anything is rewritten."""
        return Counter(each for each in parts_of(self.module["main"]) if isinstance(each, relax.Var))

    @classmethod
    def walked(cls, module: tvm.IRModule, *arguments: Any) -> tvm.IRModule:
        """The module with its function `main` rewritten; `arguments` are the class's own."""
        # TVM calls only the methods of classes that went through `mutator`, which cannot be inherited from.
        walk = relax.expr_functor.mutator(cls)(module, *arguments)
        walk.builder_.update_func(module.get_global_var("main"), walk.visit_expr(module["main"]))
        return walk.builder_.get()

    @classmethod
    def rewritten(cls, module: tvm.IRModule, *arguments: Any) -> tvm.IRModule:
        """As `walked`, without dead code."""
        return relax.transform.DeadCodeElimination()(cls.walked(module, *arguments))

    @classmethod
    def canonicalised(cls, module: tvm.IRModule, *arguments: Any) -> tvm.IRModule:
        """As `rewritten`, with constants and other variables in the place of variables that only rename them."""
        return relax.transform.CanonicalizeBindings()(cls.rewritten(module, *arguments))


def bindings_of(function: relax.Function) -> list[Any]:
    """The bindings of a function's body, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def parts_of(function: relax.Function) -> list[Any]:
    """All expressions of a function's body, as often as they are used there, each behind its operands.

    TVM's own walk also visits the sizes of every field of a tuple's type, at each of its uses.
    """
    found: list[Any] = []
    pending = [*(each.value for each in bindings_of(function)), function.body.body]
    while pending:
        part = pending.pop()
        found.append(part)
        if isinstance(part, relax.Call):
            pending.extend([part.op, *part.args])
        elif isinstance(part, relax.Tuple):
            pending.extend(part.fields)
        elif isinstance(part, relax.TupleGetItem):
            pending.append(part.tuple_value)
    return found[::-1]


def is_call(expression: Any, *operators: str) -> bool:
    """Whether an expression calls a Relax operator of one of these names."""
    calls = isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op)
    return calls and expression.op.name in operators


def calls_of(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Call]]:
    """The calls of generated functions in a function, with the variables that their results are bound to."""
    for binding in bindings_of(function):
        if is_call(binding.value, "relax.call_tir"):
            yield binding.var, binding.value


def function_name(call: relax.Call) -> str:
    """The name of the generated function that a call calls."""
    return str(call.args[0].name_hint)


def result_types(call: relax.Call) -> list[relax.TensorType]:
    """The types of the tensors that a call of a generated function computes."""
    returned = call.ty_args[0] if len(call.ty_args) else call.ty
    return list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]


def constant_value(expression: Any) -> np.ndarray | None:
    """The array of a constant; None for anything else."""
    if isinstance(expression, tvm.ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
        return expression.value.numpy()
    return None  # strings and dtypes are constants too


def shape_of(expression: Any) -> list[int]:
    """The shape of a tensor."""
    return [int(size) for size in expression.ty.shape]


def axes_of(expression: Any) -> list[int] | None:
    """The axes of a transpose; None for anything else, and for a transpose without axes."""
    if not is_call(expression, "relax.permute_dims") or not expression.attrs.axes:
        return None
    return [int(axis) for axis in expression.attrs.axes]


def types_of(call: relax.Call) -> LayerTypes:
    """The types of a convolution or a product, which sums up in the type of its floats, or in that of its result."""
    data, weights, result = (str(each.ty.dtype) for each in (*call.args[:2], call))
    return LayerTypes(data, weights, data if is_floating(data) and data == weights else result, result)


def is_oihw(convolution: relax.Call) -> bool:
    """Whether a convolution works on feature maps in NCHW with weights in OIHW."""
    attrs = convolution.attrs
    return bool(attrs.data_layout == attrs.out_layout == "NCHW" and attrs.kernel_layout == "OIHW")


def constant(values: Any, dtype: str | None = None) -> Any:
    """A constant of exactly the dtype of its values, or of `dtype`.

    Without a dtype, `relax.const` makes int32 of int64 and float32 of float64.
    """
    array = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
    return relax.const(array, str(array.dtype))


def exactly_in_half(array: np.ndarray) -> np.ndarray | None:
    """An array in half precision, if that holds all of its values."""
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float16)
    return rounded if np.array_equal(rounded, array) else None


def call_counts(module: tvm.IRModule) -> Counter[str]:
    """How often one inference calls each function, by name."""
    return Counter(function_name(call) for _, call in calls_of(module["main"]))


def integers_of(attrs: Any, name: str) -> list[int]:
    """An attribute that is a list of integers."""
    return [int(each) for each in getattr(attrs, name)]


def conv2d_like(call: relax.Call, data: relax.Expr, weights: relax.Expr, **changes: Any) -> relax.Call:
    """A `conv2d` of other operands, with the attributes of another one but for `changes`."""
    attrs = call.attrs
    same = {name: integers_of(attrs, name) for name in ("strides", "padding", "dilation")}
    layouts = {name: str(getattr(attrs, name)) for name in ("data_layout", "kernel_layout", "out_layout")}
    others = {"groups": int(attrs.groups), "out_dtype": str(call.ty.dtype)}
    return relax.op.nn.conv2d(data, weights, **{**same, **layouts, **others, **changes})
