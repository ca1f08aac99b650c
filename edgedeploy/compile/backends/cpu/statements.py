"""Statements and expressions of TensorIR with others in the place of some; TVM 0.27 offers no such walk to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock, SBlockRealize

_BINARY = tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max


def replaced(statement: Any, replacement: Callable[[Any], Any]) -> Any:
    """A statement with what `replacement` makes of it and of those in it, but for those in what it has replaced."""
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
        otherwise = statement.else_case
        return tirx.IfThenElse(
            statement.condition, inside(statement.then_case), inside(otherwise) if otherwise else None
        )
    if isinstance(statement, SBlockRealize):
        block = statement.block
        return with_block(statement, inside(block.body), block.init)
    return statement


def with_body(loop: tirx.For, body: Any) -> tirx.For:
    """A loop over something else."""
    begin = loop.loop_var, loop.min, loop.extent, loop.kind
    return tirx.For(*begin, body, loop.thread_binding, loop.annotations, loop.step)


def with_block(statement: Any, body: Any, init: Any) -> Any:
    """A block where it runs, with another body and another start of its sums."""
    block = statement.block
    written = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    return SBlockRealize(statement.iter_values, statement.predicate, written)


def replaced_within(expression: Any, replacement: Callable[[Any], Any]) -> Any:
    """An expression with what `replacement` makes of it and of the operands of arithmetic, choices, casts and calls.

    As for statements, what it has replaced is left as it is; so is an expression of which it makes None.
    """
    found = replacement(expression)
    if found is not expression:
        return expression if found is None else found

    def inside(each: Any) -> Any:
        return replaced_within(each, replacement)

    if isinstance(expression, _BINARY):
        operands = inside(expression.a), inside(expression.b)
        kept = operands[0].same_as(expression.a) and operands[1].same_as(expression.b)
        return expression if kept else type(expression)(*operands)
    if isinstance(expression, tirx.Select):
        choices = inside(expression.true_value), inside(expression.false_value)
        return tirx.Select(expression.condition, *choices)
    if isinstance(expression, tirx.Cast):
        value = inside(expression.value)
        return expression if value.same_as(expression.value) else tirx.Cast(expression.ty.dtype, value)
    if isinstance(expression, Call):
        arguments = [inside(each) for each in expression.args]
        if any(not now.same_as(before) for now, before in zip(arguments, expression.args, strict=True)):
            return Call(expression.op, arguments, expression.attrs, expression.ty_args, ret_ty=expression.ty)
    return expression
