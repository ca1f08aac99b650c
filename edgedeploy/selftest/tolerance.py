"""How far outputs may be from the reference's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgedeploy.runtime.interface import Tensors

if TYPE_CHECKING:
    from edgedeploy.board import Board
    from edgedeploy.frontends.network import Network

# |difference| <= relative * max|reference| + absolute. The absolute part is for outputs that are nearly zero.
TOLERANCE = (1e-4, 1e-6)
# OpenCL lets devices compute functions less exactly than CPUs do: "The OpenCL C Specification", 7.4, relative error.
OPENCL_TOLERANCE = (1e-3, 1e-6)
# Quantised networks run in float here; where a value falls on the other side of a rounding step, it moves by
# one step, and so do those that follow from it.
QUANTISED_TOLERANCE = (0.3, 1e-6)


def tolerance_of(network: Network, inputs: Tensors, expected: Tensors, board: Board) -> tuple[float, float]:
    """What one set of the self-test's inputs allows: a fraction of an output's largest value, and what comes on top.

    Args:
        network: the network.
        inputs: one set of inputs, by name.
        expected: what the reference made of them, by name.
        board: where the network will run.
    """
    tolerance = OPENCL_TOLERANCE if board.opencl else TOLERANCE
    return QUANTISED_TOLERANCE if network.quantised else tolerance
