"""llvm-mca: what a core's scheduling model in LLVM predicts for a loop."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass

from assembly import Loop, registers

from edgedeploy.errors import ToolchainError
from edgedeploy.target.board import Board

# Cores for which LLVM has no model that llvm-mca can use, with one that comes nearest.
MODELS = {
    # LLVM describes it in a form that llvm-mca does not read. The same code runs on the Cortex-A72 of a Raspberry
    # Pi 4, for which the cycles are; Cortex-A7 itself works in order, and waits more for what it loads.
    "cortex-a7": "cortex-a72",
    # In its model no load may end before the multiply-adds that began earlier; loops would take three times as
    # long as in Cortex-A55's, its successor: in order, two instructions in a cycle. That one takes six cycles for
    # `ldp` of two vectors where the other takes two, which may overstate loops that load weights in pairs.
    "cortex-a53": "cortex-a55",
    # The same core for servers, of which LLVM has a model from version 16 on; until 18 that is
    # Cortex-A57's, with half as many multiply-adds in a cycle.
    "cortex-a76": "neoverse-n1",
}

# A version whose models of all these cores are whole; `make predictions` installs it.
PROGRAM = "llvm-mca-19"

# Iterations of which only the later half is counted: the first ones fill the pipeline.
ITERATIONS = 200


@dataclass(frozen=True)
class Prediction:
    """One iteration of a loop on a core, all data in the L1 cache.

    Attributes:
        cycles: of an iteration on LLVM's model, once the loop runs steadily.
        multiply_adds: cycles that the multiply-adds alone need on the board: the bound.
        arithmetic: the same for all arithmetic on vectors that are summed up.
        loads: cycles that the loads alone need on LLVM's model.
    """

    cycles: float
    multiply_adds: float
    arithmetic: float
    loads: float

    @property
    def ratio(self) -> float:
        """Cycles beside the bound; below 1 where the board multiplies and adds more slowly than the model."""
        return self.cycles / self.multiply_adds


class Analyser:
    """llvm-mca for one board's core.

    Raises:
        ToolchainError: there is no such program.
    """

    def __init__(self, board: Board) -> None:
        found = shutil.which(PROGRAM)
        if found is None:
            raise ToolchainError(
                f"{PROGRAM} is not installed",
                hints=["on Debian 12 and 13: make predictions, or as root: apt install llvm-19"],
            )
        self.model = MODELS.get(board.cpu, board.cpu)
        self._rate = board.fma.per_cycle
        # Features that are taken away only steer LLVM's choice of instructions.
        features = ",".join(feature for feature in board.features if feature.startswith("+"))
        self._command = [found, f"-mtriple={board.triple}", f"-mcpu={self.model}", f"-mattr={features}", "--json"]

    def predict(self, loop: Loop) -> Prediction:
        """Predict a loop that has multiply-adds.

        Raises:
            ToolchainError: llvm-mca has no model of the core, or does not know an instruction.
        """
        cycles, whole = self._steadily(loop)
        busy = [float(entry["RThroughput"]) for entry in whole["InstructionInfoView"]["InstructionList"]]
        loads = set(loop.loads)
        return Prediction(
            cycles=cycles,
            multiply_adds=registers(loop.multiply_adds) / self._rate,
            arithmetic=registers(loop.arithmetic) / self._rate,
            loads=sum(time for line, time in zip(loop.instructions, busy, strict=True) if line in loads),
        )

    def cycles(self, loop: Loop) -> float:
        """Cycles of an iteration, once a loop runs steadily; of any instructions.

        Raises:
            ToolchainError: as `predict`.
        """
        return self._steadily(loop)[0]

    def _steadily(self, loop: Loop) -> tuple[float, dict]:
        """Cycles of an iteration, and what llvm-mca says of the instructions."""
        half, whole = (self._run(loop, count) for count in (ITERATIONS // 2, ITERATIONS))
        cycles = [region["SummaryView"]["TotalCycles"] for region in (half, whole)]
        return (cycles[1] - cycles[0]) / (ITERATIONS - ITERATIONS // 2), whole

    def _run(self, loop: Loop, iterations: int) -> dict:
        command = [*self._command, f"-iterations={iterations}"]
        text = "\n".join(loop.instructions) + "\n"
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolchainError(f"llvm-mca cannot predict {self.model}", why=done.stderr.strip().splitlines()[0])
        return json.loads(done.stdout)["CodeRegions"][0]
