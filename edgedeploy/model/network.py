"""An imported network: the result of every frontend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.model.heads import Head
from edgedeploy.model.quantised import Half
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import TensorSpec

Reference = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]

# One inference, one operator at a time, of those below a number of GFLOP: the operator, and the outputs of the
# reference and of the second opinion, both computed from the reference's earlier outputs.
OperatorWise = Callable[[Mapping[str, np.ndarray], float], Iterator[tuple[str, list[np.ndarray], list[np.ndarray]]]]


@dataclass(frozen=True)
class CutOff:
    """The end of a network that is not compiled; `reference` runs the whole network, to check the tail with."""

    tail: Tail
    reference: Reference


@dataclass(frozen=True)
class Network:
    """A network as a Relax module, with further information."""

    file: Path  # the file it was read from
    module: Any  # a `tvm.IRModule` whose `main` takes the inputs in order; weights are constants in it
    # Names, shapes and dtypes, in the network's order; if it has a tail, outputs are those of the compiled part,
    # as are those of `reference`.
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    quantised: bool  # whether it has quantised layers
    reference: Reference  # one inference by a program other than TVM, to check the compiled code against
    reference_name: str  # that program and its version
    heads: Sequence[Head] = ()  # its detection heads, according to the file
    # Inferences by the same program with other kernels, or in float64: their largest distance from `reference` is the
    # effect of rounding alone. None of them if the program has only one set of kernels.
    other_kernels: Sequence[Reference] = ()
    other_kernels_name: str = ""  # a name for these kernels
    # One inference by a third, possibly slow program, used if the code differs from `reference`; None without one.
    second_opinion: Reference | None = None
    second_opinion_name: str = ""  # that program and its version
    # `reference` and `second_opinion`, one operator at a time, for networks that are too large for that program.
    by_operator: OperatorWise | None = None
    # Whether `reference` computes a quantised network in integers alone, by kernels that edgedeploy agrees with.
    is_reference_exact: Callable[[], bool] = lambda: True
    cut_off: CutOff | None = None  # the end after `module` whose sizes depend on data; None for most networks
    # The file's entries about its use; see `edgedeploy.model.metadata`.
    metadata: Mapping[str, str] = field(default_factory=dict)
    half: Half | None = None  # the layers in half precision; None if all of them compute in single

    @property
    def results(self) -> list[TensorSpec]:
        """Its outputs: those of its tail, if it has one."""
        return self.cut_off.tail.outputs if self.cut_off else self.outputs
