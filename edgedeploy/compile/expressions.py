"""What expressions of Relax are, and how a network's function is rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.types import LayerTypes


def rewritten(mutator: relax.PyExprMutator, module: tvm.IRModule) -> tvm.IRModule:
    """The module with what a mutator makes of its function `main`, without what nothing uses then."""
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


def is_call(expression: Any, operator: str) -> bool:
    """Whether an expression calls the Relax operator of that name."""
    return (
        isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op) and expression.op.name == operator
    )


def calls_of(module: tvm.IRModule) -> Iterator[tuple[relax.Var, relax.Call]]:
    """The calls of generated functions in a network, with the variables that their results are bound to."""
    for block in module["main"].body.blocks:
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


def bound_value(mutator: relax.PyExprMutator, expression: Any) -> Any:
    """What a variable of the function that a mutator builds is bound to; any other expression is its own value."""
    return mutator.lookup_binding(expression) if isinstance(expression, relax.Var) else expression


def constant_value(expression: Any) -> np.ndarray | None:
    """The array that an expression holds if it is a constant."""
    if isinstance(expression, tvm.ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
        return expression.value.numpy()
    return None  # strings and dtypes are constants too


def shape_of(expression: Any) -> list[int]:
    """The shape of a tensor."""
    return [int(size) for size in expression.ty.shape]


def types_of(call: relax.Call) -> LayerTypes:
    """The types of a convolution or a product; TVM's operators sum up in the type of their results."""
    data, weights, result = (str(each.ty.dtype) for each in (*call.args[:2], call))
    return LayerTypes(data, weights, accumulator=result, result=result)


def use_counts(function: relax.Function) -> dict[Any, int]:
    """How often each variable is used in a function."""
    counts: dict[Any, int] = {}

    def count(expression: Any) -> None:
        if isinstance(expression, relax.Var):
            counts[expression] = counts.get(expression, 0) + 1

    relax.analysis.post_order_visit(function.body, count)
    return counts


def constant(values: Any, dtype: str | None = None) -> Any:
    """A constant of exactly the dtype of its values, or of `dtype`.

    `relax.const` takes int64 for int32 and float64 for float32, where no dtype is said.
    """
    array = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
    return relax.const(array, str(array.dtype))


def call_counts(module: tvm.IRModule) -> Counter[str]:
    """How often one inference calls each function, by name."""
    return Counter(function_name(call) for _, call in calls_of(module))
