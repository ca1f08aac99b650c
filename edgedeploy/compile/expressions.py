"""What expressions of Relax are, and how a network's function is rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.types import LayerTypes


class Rewriter(relax.PyExprMutator):
    """A walk over the function `main` of a network, in which subclasses replace calls."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.module = module

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        """What to put in the place of a call, if anything.

        Args:
            call: as it is now that what it reads has been rewritten.
            original: as it was.
        """
        return None

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite a call."""
        now = self.visit_expr_post_order(call)
        found = self.replacement(now, call)
        return now if found is None else found

    def emit(self, expression: relax.Expr) -> relax.Var:
        """A new variable before the call, bound to an expression."""
        return self.builder_.emit(expression)

    def bound_value(self, expression: Any) -> Any:
        """What a variable of the new function is bound to; any other expression is its own value."""
        return self.lookup_binding(expression) if isinstance(expression, relax.Var) else expression

    @cached_property
    def uses(self) -> Counter[relax.Var]:
        """How often the network uses each variable, before anything is rewritten."""
        return Counter(each for each in parts_of(self.module["main"]) if isinstance(each, relax.Var))


def walked(rewriter: type[Rewriter], module: tvm.IRModule, *arguments: Any) -> tvm.IRModule:
    """The module with its function `main` as a rewriter makes it; `arguments` are the rewriter's own."""
    # TVM calls the methods of such classes alone, and these cannot be inherited from.
    walk = relax.expr_functor.mutator(rewriter)(module, *arguments)
    walk.builder_.update_func(module.get_global_var("main"), walk.visit_expr(module["main"]))
    return walk.builder_.get()


def rewritten(rewriter: type[Rewriter], module: tvm.IRModule, *arguments: Any) -> tvm.IRModule:
    """As `walked`, without what nothing uses then."""
    return relax.transform.DeadCodeElimination()(walked(rewriter, module, *arguments))


def parts_of(function: relax.Function) -> list[Any]:
    """All expressions of a function's body, as often as they are used there, each behind its operands.

    TVM's own walk shows the sizes of every field of a tuple's type as well, at each of its uses.
    """
    found: list[Any] = []
    pending = [*(each.value for block in function.body.blocks for each in block.bindings), function.body.body]
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


def is_call(expression: Any, operator: str) -> bool:
    """Whether an expression calls the Relax operator of that name."""
    return (
        isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op) and expression.op.name == operator
    )


def calls_of(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Call]]:
    """The calls of generated functions in a function, with the variables that their results are bound to."""
    for block in function.body.blocks:
        for binding in block.bindings:
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
    """The array that an expression holds if it is a constant."""
    if isinstance(expression, tvm.ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
        return expression.value.numpy()
    return None  # strings and dtypes are constants too


def shape_of(expression: Any) -> list[int]:
    """The shape of a tensor."""
    return [int(size) for size in expression.ty.shape]


def axes_of(expression: Any) -> list[int] | None:
    """The order in which a transpose puts the axes of its tensor; None for anything else, and where it says none."""
    if not is_call(expression, "relax.permute_dims") or not expression.attrs.axes:
        return None
    return [int(axis) for axis in expression.attrs.axes]


def types_of(call: relax.Call) -> LayerTypes:
    """The types of a convolution or a product; TVM's operators sum up in the type of their results."""
    data, weights, result = (str(each.ty.dtype) for each in (*call.args[:2], call))
    return LayerTypes(data, weights, accumulator=result, result=result)


def is_oihw(convolution: relax.Call) -> bool:
    """Whether a convolution works on feature maps in NCHW with weights in OIHW."""
    attrs = convolution.attrs
    return bool(attrs.data_layout == attrs.out_layout == "NCHW" and attrs.kernel_layout == "OIHW")


def constant(values: Any, dtype: str | None = None) -> Any:
    """A constant of exactly the dtype of its values, or of `dtype`.

    `relax.const` takes int64 for int32 and float64 for float32, where no dtype is said.
    """
    array = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
    return relax.const(array, str(array.dtype))


def call_counts(module: tvm.IRModule) -> Counter[str]:
    """How often one inference calls each function, by name."""
    return Counter(function_name(call) for _, call in calls_of(module["main"]))
