"""The features of CPUs, as LLVM names them."""

from __future__ import annotations

import tvm
from tvm.target import codegen


def features_of(target: tvm.target.Target) -> frozenset[str]:
    """Those of a target's CPU, and what its own features add or take away."""
    return frozenset(map(str, codegen.llvm_get_cpu_features(target)))
