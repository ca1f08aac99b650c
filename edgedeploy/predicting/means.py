"""What predictions for a board are made with, and for which boards there are any."""

from __future__ import annotations

from dataclasses import dataclass

from edgedeploy.board import BOARDS, Board
from edgedeploy.core_model import CoreModel
from edgedeploy.errors import UnsupportedError
from edgedeploy.predicting.mca import Llvm
from edgedeploy.predicting.plugin import recording_emulator


@dataclass(frozen=True)
class Means:
    """What predictions for a board are made with.

    Attributes:
        core: the board's.
        llvm: LLVM's tools.
    """

    core: CoreModel
    llvm: Llvm

    @property
    def name(self) -> str:
        """Of the model, with LLVM's version: predictions of different ones are not compared."""
        return f"{self.core.llvm} of LLVM {self.llvm.version}"

    @classmethod
    def of(cls, name: str, board: Board) -> Means:
        """What there is for a board called `name`. Call it before the network is built."""
        if board.core_model is None or board.accelerator:
            raise UnsupportedError(
                f"no cycles are predicted for board {name}",
                why=_why_not(board),
                hints=[f"name another board: {', '.join(predictable())}"],
            )
        recording_emulator(board)
        return cls(board.core_model, Llvm.found())


def predictable() -> list[str]:
    """The names of boards for which cycles are predicted."""
    return [name for name in BOARDS.names() if BOARDS.load(name).core_model]


def _why_not(board: Board) -> str:
    """Why there are no predictions for a board."""
    if board.accelerator:
        return "networks run on its device, not on the core"
    if board.family == "arm":
        # Of 13 independent `vmla.f32 q`, LLVM 19 starts two in a cycle on its Cortex-A72; of `fmla .4s`, one.
        return (
            "in 32-bit state LLVM's Cortex-A72 multiplies twice as many floats in a cycle as the core does, and there "
            "is no model of Cortex-A7 or Cortex-A53"
        )
    return f"no model of {board.cpu} was confirmed by published times: its profile states no `core_model`"
