"""Rewriting of TensorIR's statements and expressions; TVM 0.27 offers no such walk to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock, SBlockRealize

_BINARY = tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max


def replaced(statement: Any, replacement: Callable[[Any], Any]) -> Any:
    """Apply `replacement` to a statement and to those in it, but not inside of what it has replaced."""
    found = replacement(statement)
    if found is not statement:
        return found

    def inside(each: Any) -> Any:
        return replaced(each, replacement)

    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([inside(each) for each in statement.seq])
    if isinstance(statement, tirx.For):
        return with_body(statement, inside(statement.body))
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, inside(statement.body))
    if isinstance(statement, tirx.IfThenElse):
        otherwise = inside(statement.else_case) if statement.else_case else None
        return tirx.IfThenElse(statement.condition, inside(statement.then_case), otherwise)
    if isinstance(statement, SBlockRealize):
        return with_block(statement, inside(statement.block.body), statement.block.init)
    return statement


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
    found = replacement(expression)
    if found is not expression:
        return expression if found is None else found

    def inside(each: Any) -> Any:
        return replaced_within(each, replacement)

    if isinstance(expression, _BINARY):
        operands = inside(expression.a), inside(expression.b)
        same = operands[0].same_as(expression.a) and operands[1].same_as(expression.b)
        return expression if same else type(expression)(*operands)
    if isinstance(expression, tirx.Select):
        return tirx.Select(expression.condition, inside(expression.true_value), inside(expression.false_value))
    if isinstance(expression, tirx.Cast):
        value = inside(expression.value)
        return expression if value.same_as(expression.value) else tirx.Cast(expression.ty.dtype, value)
    if isinstance(expression, Call):
        arguments = [inside(each) for each in expression.args]
        if any(not now.same_as(before) for now, before in zip(arguments, expression.args, strict=True)):
            return Call(expression.op, arguments, expression.attrs, expression.ty_args, ret_ty=expression.ty)
    return expression
