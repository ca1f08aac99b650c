"""llvm-mca: what a core's scheduling model in LLVM predicts for a loop."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from assembly import Loop
from edgedeploy.board import Board
from edgedeploy.errors import ToolchainError

# Cores for which LLVM has no model that llvm-mca can use, or another core's, with one that comes near.
# Cortex-A7: in order, two instructions in a cycle, as Cortex-R52 is; its multiply-adds are slower by half and more.
# Cortex-A76: Neoverse N1 is the same core for servers; LLVM has a model of it from version 16 on.
MODELS = {"cortex-a7": "cortex-r52", "cortex-a76": "neoverse-n1"}

# Iterations of which only the later half is counted: the first ones fill the pipeline.
ITERATIONS = 200


@dataclass(frozen=True)
class Prediction:
    """One iteration of a loop on a core, all data in the first cache.

    Attributes:
        cycles: of an iteration, once the loop runs steadily.
        multiply_adds: cycles that the multiply-adds alone keep their units busy for: the bound.
        arithmetic, loads: the same for all arithmetic on vectors of floats, and for the loads.
    """

    cycles: float
    multiply_adds: float
    arithmetic: float
    loads: float

    @property
    def ratio(self) -> float:
        """Cycles beside the bound."""
        return self.cycles / self.multiply_adds


class Analyser:
    """llvm-mca for one board's core.

    Args:
        board: whose core it is.
        program: llvm-mca's name or path.

    Raises:
        ToolchainError: there is no such program.
    """

    def __init__(self, board: Board, program: str = "llvm-mca") -> None:
        found = shutil.which(program)
        if found is None:
            raise ToolchainError(
                f"there is no program {program!r}",
                hints=["install LLVM's tools (on Debian: apt install llvm)", "name the program with --mca"],
            )
        self.model = MODELS.get(board.cpu, board.cpu)
        # Features that only steer the choice of instructions are of no use here, and the model's core has its own.
        features = ",".join(feature for feature in board.features if feature.startswith("+"))
        self._command = [found, f"-mtriple={board.triple}", f"-mcpu={self.model}", f"-mattr={features}", "--json"]

    def predict(self, loop: Loop) -> Prediction:
        """Predict a loop that has multiply-adds.

        Raises:
            ToolchainError: llvm-mca has no model of the core, or does not know an instruction.
        """
        half, whole = (self._run(loop.instructions, count) for count in (ITERATIONS // 2, ITERATIONS))
        busy = {
            instruction: float(entry["RThroughput"])
            for instruction, entry in zip(
                loop.instructions, whole["InstructionInfoView"]["InstructionList"], strict=True
            )
        }
        cycles = [region["SummaryView"]["TotalCycles"] for region in (half, whole)]
        return Prediction(
            cycles=(cycles[1] - cycles[0]) / (ITERATIONS - ITERATIONS // 2),
            multiply_adds=sum(busy[instruction] for instruction in loop.multiply_adds),
            arithmetic=sum(busy[instruction] for instruction in loop.arithmetic),
            loads=sum(busy[instruction] for instruction in loop.loads),
        )

    def _run(self, instructions: Sequence[str], iterations: int) -> dict:
        text = "\n".join(instructions) + "\n"
        command = [*self._command, f"-iterations={iterations}"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolchainError(f"llvm-mca cannot predict {self.model}", why=done.stderr.strip().splitlines()[0])
        return json.loads(done.stdout)["CodeRegions"][0]
