"""Checks a board's triple, CPU and features: for unknown names LLVM generates generic code, or crashes."""

from __future__ import annotations

import tvm
from tvm.target import codegen

from edgedeploy.base.catalog import did_you_mean
from edgedeploy.compile.backends.cpu.steps import cpu_features, features_of
from edgedeploy.errors import ConfigurationError
from edgedeploy.target.board import Board


def check_target(board: Board) -> None:
    """Refuse triples, CPUs and features that LLVM does not know."""
    if not codegen.llvm_is_valid_cpu(board.cpu, board.triple):
        if not codegen.llvm_is_valid_cpu("generic", board.triple):
            raise ConfigurationError(f"LLVM generates no code for the triple {board.triple!r}")
        raise _unknown(f"CPU {board.cpu!r} of {board.architecture}", board.cpu, cpus(board.triple))
    has = cpu_features(board)
    for feature in board.features:
        name = feature[1:]
        # LLVM lists the features that are on, and knows others.
        added = {**board.cpu_target(), "mattr": [f"+{name}"]}
        if name not in has and name not in features_of(tvm.target.Target(added)):
            raise _unknown(f"feature {feature!r} of {board.architecture}", name, sorted(has))
        if feature.startswith("+") and name not in has:
            raise ConfigurationError(
                f"LLVM does not give {board.cpu} the feature {feature!r}", why="another flag takes it away"
            )


def _unknown(what: str, name: str, known: list[str]) -> ConfigurationError:
    return ConfigurationError(f"LLVM knows no {what}", why=did_you_mean(name, known))


def cpus(triple: str) -> list[str]:
    """LLVM's names of the CPUs of a triple's architecture."""
    generic = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": "generic"})
    return sorted(map(str, codegen.llvm_get_cpu_archlist(generic)))
