"""Recurrent networks against onnxruntime, on this machine.

    python benchmarks/recurrent.py [--threads N] [--rounds N]

Both run interleaved in one process. One thread is measured in processor time, several in time that passed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.building import build
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.runtime.session import Session
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CLASSES = 12
ROUND_S = 0.06  # of each round, for one side


@dataclass(frozen=True)
class Stack:
    """Recurrent layers, the last step of the last of them, and a dense layer."""

    operator: str
    steps: int
    features: int
    hidden: int
    layers: int = 1
    both: bool = False
    batch: int = 1
    attributes: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        directions = " in both directions" if self.both else ""
        size = f"{self.steps} steps of {self.features}, {self.hidden} hidden, batch {self.batch}"
        return f"{self.layers} {self.operator}{directions}, {size} {' '.join(self.attributes)}".strip()

    def model(self) -> onnx.ModelProto:
        """The network in ONNX's terms, with seeded weights."""
        random, weights, nodes, value = np.random.default_rng(0), [], [], "data"
        directions = 2 if self.both else 1

        def weight(array: np.ndarray) -> str:
            name = f"w{len(weights)}"
            weights.append(numpy_helper.from_array(array, name))
            return name

        def normal(*shape: int) -> str:
            return weight((random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

        rows, direction = GATES[self.operator] * self.hidden, "bidirectional" if self.both else "forward"
        for layer in range(self.layers):
            given = [normal(directions, rows, size) for size in (self.features, self.hidden)]
            if layer:
                given[0] = normal(directions, rows, self.hidden * directions)
            inputs, settings = [value, *given, normal(directions, 2 * rows)], {"hidden_size": self.hidden}
            nodes.append(
                helper.make_node(
                    self.operator, inputs, [f"y{layer}"], direction=direction, **settings, **self.attributes
                )
            )
            nodes.append(helper.make_node("Transpose", [f"y{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3]))
            shape = weight(np.array([0, 0, -1], np.int64))
            nodes.append(helper.make_node("Reshape", [f"t{layer}", shape], [f"o{layer}"]))
            value = f"o{layer}"
        nodes.append(helper.make_node("Gather", [value, weight(np.array(self.steps - 1, np.int64))], ["last"], axis=0))
        dense = [normal(CLASSES, self.hidden * directions), normal(CLASSES)]
        nodes.append(helper.make_node("Gemm", ["last", *dense], ["scores"], transB=1))
        given = helper.make_tensor_value_info("data", TensorProto.FLOAT, [self.steps, self.batch, self.features])
        returned = helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "stack", [given], [returned], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


STACKS = (
    Stack("LSTM", 100, 40, 128),
    Stack("LSTM", 500, 40, 128),
    Stack("LSTM", 49, 10, 64),
    Stack("LSTM", 1, 64, 128),
    Stack("LSTM", 100, 40, 128, layers=2, both=True),
    Stack("LSTM", 200, 80, 256, layers=2, both=True),
    Stack("GRU", 100, 40, 128, attributes={"linear_before_reset": 1}),
    Stack("GRU", 100, 40, 128),
    Stack("RNN", 100, 40, 128),
    Stack("LSTM", 50, 40, 128, batch=8),
)


def main() -> None:
    """Measure all networks, and print a line for each."""
    parser = argparse.ArgumentParser(description="Measure recurrent networks against onnxruntime.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for stack in STACKS:
        theirs, ours, error = measured(stack, options.threads, options.rounds)
        print(
            f"{theirs * 1e3:8.3f} ms  {ours * 1e3:8.3f} ms  {ours / theirs:.2f}  error {error:.1e}  {stack}", flush=True
        )


def measured(stack: Stack, threads: int, rounds: int) -> tuple[float, float, float]:
    """The medians of onnxruntime's time and of ours in seconds, and the largest difference of an output."""
    model = stack.model()
    data = np.random.default_rng(1).standard_normal((stack.steps, stack.batch, stack.features)).astype(np.float32)
    reference = cpu_session(model.SerializeToString(), threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, Path(folder) / "stack.onnx")
        build(find_source(str(Path(folder) / "stack.onnx")), resolve("local"), Path(folder) / "stack.tar.gz")
        session = Session.open(Path(folder) / "stack.tar.gz", threads)
    call = session.bind({"data": data})
    [wanted], found = reference.run(None, {"data": data}), session.read(call())["scores"]
    clock = process_time if threads == 1 else perf_counter
    sides = (lambda: reference.run(None, {"data": data})), call
    number = max(1, int(ROUND_S / _seconds(sides[0], 3, clock)))
    times = [[_seconds(side, number, clock) for side in sides] for _ in range(rounds)]
    theirs, ours = np.median(times, axis=0)
    return float(theirs), float(ours), float(np.abs(found - wanted).max())


def _seconds(side: Callable[[], Any], number: int, clock: Callable[[], float]) -> float:
    begun = clock()
    for _ in range(number):
        side()
    return max((clock() - begun) / number, 1e-9)


if __name__ == "__main__":
    main()
