"""Statements of TensorIR with others in the place of some of them; TVM 0.27 offers no such walk to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize


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
        loop = statement.loop_var, statement.min, statement.extent, statement.kind
        return tirx.For(*loop, inside(statement.body), statement.thread_binding, statement.annotations, statement.step)
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, inside(statement.body))
    if isinstance(statement, tirx.IfThenElse):
        otherwise = statement.else_case
        return tirx.IfThenElse(
            statement.condition, inside(statement.then_case), inside(otherwise) if otherwise else None
        )
    if isinstance(statement, SBlockRealize):
        block = statement.block
        written = SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            inside(block.body),
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )
        return SBlockRealize(statement.iter_values, statement.predicate, written)
    return statement
