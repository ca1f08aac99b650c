"""Whether LLVM knows what a board's profile names: it goes on with a generic CPU, or crashes, where it does not."""

from __future__ import annotations

import difflib

import tvm
from tvm.target import codegen

from edgedeploy.board import Board
from edgedeploy.errors import ConfigurationError


def check_target(board: Board) -> None:
    """Refuse triples, CPUs and features that LLVM does not know.

    Raises:
        ConfigurationError: the profile names one.
    """
    if not codegen.llvm_is_valid_cpu(board.cpu, board.triple):
        if not codegen.llvm_is_valid_cpu("generic", board.triple):
            raise ConfigurationError(f"LLVM generates no code for the triple {board.triple!r}")
        generic = tvm.target.Target({"kind": "llvm", "mtriple": board.triple, "mcpu": "generic"})
        near = difflib.get_close_matches(board.cpu, map(str, codegen.llvm_get_cpu_archlist(generic)), n=4)
        raise ConfigurationError(
            f"LLVM knows no CPU {board.cpu!r} of {board.architecture}",
            why=f"near names: {', '.join(near)}" if near else None,
        )
    known = codegen.llvm_get_cpu_features(tvm.target.Target(board.cpu_target()))
    for feature in board.features:
        if feature.startswith("+") and feature[1:] not in known:
            raise ConfigurationError(
                f"LLVM does not give {board.cpu} the feature {feature!r}",
                why="it knows no such feature, or another one of the profile takes it away",
            )
