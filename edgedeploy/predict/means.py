"""What predictions for a board are made with, and for which boards there are any."""

from __future__ import annotations

from dataclasses import dataclass

from edgedeploy.board import BOARDS, Board
from edgedeploy.core_model import CoreModel
from edgedeploy.errors import UnsupportedError
from edgedeploy.predict.mca import Llvm
from edgedeploy.predict.plugin import recording_emulator


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
        """What there is for a board called `name`. Call it before the network is built.

        Raises:
            UnsupportedError: no model of its core is confirmed, or programs are missing here.
        """
        if board.core_model is None or board.accelerator:
            raise UnsupportedError(
                f"no cycles are predicted for board {name}",
                why=f"no model of {board.cpu} was confirmed by published times: its profile states no `core_model`"
                if board.core_model is None
                else "networks run on its device, not on the core",
                hints=[f"name another board: {', '.join(predictable())}"],
            )
        recording_emulator(board)
        return cls(board.core_model, Llvm.found())


def predictable() -> list[str]:
    """The names of boards for which cycles are predicted."""
    return [name for name in BOARDS.names() if BOARDS.load(name).core_model]
