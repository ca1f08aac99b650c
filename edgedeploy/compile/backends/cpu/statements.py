"""Rewriting of TensorIR's statements and expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call, Expr, Op, _ffi_api, register_op_attr
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_mutate

# Expressions whose operands `replaced_within` rewrites.
_ARITHMETIC = tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max, tirx.Cast, Call


def new_operator(name: str, about: str, lower: Callable[[Call], Any]) -> str:
    """Register an operator of TensorIR's, without effects, and what LLVM's targets make of it; returns its name.

    Call it while a module is imported, which happens once: functions are generated in several threads.
    """
    _ffi_api.RegisterOp(name, about)
    for attribute in ("TCallEffectKind", "TVectorizable"):
        register_op_attr(name, attribute, Op.get("tirx.exp").get_attr(attribute))
    register_op_attr(name, "TScriptPrinterName", name.removeprefix("tirx."))
    tirx.register_intrin_lowering(name, "llvm", f=lower)
    return name


def replaced(statement: Any, replacement: Callable[[Any], Any]) -> Any:
    """Apply `replacement` to a statement and to those in it, but not inside of what it has replaced."""

    def changed(each: Any, mutator: Any) -> Any:
        found = replacement(each)
        return mutator.default_mutate(each) if found is each else found

    return structural_mutate(statement, (tirx.Stmt, changed))


def with_body(loop: tirx.For, body: Any) -> tirx.For:
    """A loop with another body."""
    begin = loop.loop_var, loop.min, loop.extent, loop.kind
    return tirx.For(*begin, body, loop.thread_binding, loop.annotations, loop.step)


def with_block(statement: Any, body: Any, init: Any) -> Any:
    """A block where it runs, with another body and another initial value of its sums."""
    block = statement.block
    before = block.iter_vars, block.reads, block.writes, block.name_hint
    written = SBlock(*before, body, init, block.alloc_buffers, block.match_buffers, block.annotations)
    return SBlockRealize(statement.iter_values, statement.predicate, written)


def replaced_within(expression: Any, replacement: Callable[[Any], Any]) -> Any:
    """Apply `replacement` to an expression and to the operands of arithmetic, choices, casts and calls in it.

    As for statements, what it has replaced is left alone; so is an expression for which it returns None.
    """

    def changed(each: Any, mutator: Any) -> Any:
        found = replacement(each)
        if found is not each:
            return each if found is None else found
        if isinstance(each, tirx.Select):
            return tirx.Select(each.condition, mutator.mutate(each.true_value), mutator.mutate(each.false_value))
        return mutator.default_mutate(each) if isinstance(each, _ARITHMETIC) else each

    return structural_mutate(expression, (Expr, changed))
