"""Compares the kernels for this machine's OpenCL device with the code for its CPU, in one run.

    python benchmarks/opencl.py [--rounds N] [--device NAME] [NETWORK]...

Where the device is the CPU itself (PoCL), the ratio shows kernels that are needlessly slow: more than 20 is one of
those. So is a kernel that takes more than 30 % of the time. Without networks, it takes those of the demos and a
ResNet-18, whose weights are random where its file is not in reach.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from errors import ending_with_errors

from edgedeploy.benchmarking.networks import source_to_measure
from edgedeploy.building import Built, build
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.compile.ir.expressions import call_counts
from edgedeploy.frontends.format import AS_THE_FILE_SAYS
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.session import Session
from edgedeploy.target.resolved import resolve

NETWORKS = ["mobilenet_v1", "retinaface-316x474", "yolo-fastest-1.1", "resnet18"]
MOST_SLOWER, MOST_OF_TIME = 20, 0.3

# Inferences of a turn, and those before it that do not count.
REPEAT, WARMUP = 10, 2


@dataclass(frozen=True)
class Largest:
    """The kernel that takes most of a network's time.

    Attributes:
        name: the function that it belongs to.
        ms: of all its calls in one inference.
        calls: how many those are.
        share: of the time of all functions.
    """

    name: str
    ms: float
    calls: int
    share: float

    def __str__(self) -> str:
        each = f" ({self.share / self.calls:.0%} each of {self.calls} calls)" if self.calls > 1 else ""
        return f"{self.share:.0%} in {self.name}, {self.ms:.2f} ms{each}"


@dataclass(frozen=True)
class Compared:
    """A network's median times in ms, on the CPU and on the device."""

    network: str
    cpu_ms: float
    device_ms: float
    largest: Largest

    @property
    def ratio(self) -> float:
        """How much longer the device takes."""
        return self.device_ms / self.cpu_ms

    @property
    def good(self) -> bool:
        """Whether no kernel is needlessly slow."""
        return self.ratio <= MOST_SLOWER and self.largest.share / self.largest.calls <= MOST_OF_TIME

    def __str__(self) -> str:
        return (
            f"{self.network}: CPU {self.cpu_ms:.2f} ms, device {self.device_ms:.2f} ms, ratio {self.ratio:.1f}; "
            f"{self.largest}{'' if self.good else '  <- more than allowed'}"
        )


def compare(model: str, device: str, rounds: int, folder: Path, progress: ConsoleProgress) -> Compared:
    """Build a network for both, and interleave their runs."""
    source = source_to_measure(model, None, progress, AS_THE_FILE_SAYS)
    builds = {
        board: build(
            source,
            resolve(board, {"device": {"name": device}} if board == "local-opencl" else {}),
            folder / board / "network.tar.gz",
            tuning="none",
            progress=progress,
        )
        for board in ("local", "local-opencl")
    }
    sessions = {board: Session.open(built.path) for board, built in builds.items()}
    tensors = {spec.name: fill(spec, "random", seed) for seed, spec in enumerate(sessions["local"].inputs)}
    times: dict[str, list[float]] = {board: [] for board in sessions}
    with progress.steps(f"measure {source.name}", rounds) as advance:
        for _ in range(rounds):
            for board, session in sessions.items():
                times[board] += session.measure(tensors, repeat=REPEAT, warmup=WARMUP).runs_ms
            advance()
    largest = _largest(
        builds["local-opencl"], sessions["local-opencl"].function_times(tensors, repeat=REPEAT, warmup=1)
    )
    medians = {board: statistics.median(each) for board, each in times.items()}
    return Compared(source.name, medians["local"], medians["local-opencl"], largest)


def _largest(built: Built, function_times: dict[str, list[float]]) -> Largest:
    calls = call_counts(built.compiled.module)
    # Without what TVM's virtual machine does between them.
    medians = {name: statistics.median(times) for name, times in function_times.items() if name in calls}
    name = max(medians, key=medians.__getitem__)
    return Largest(name, medians[name], calls[name], medians[name] / sum(medians.values()))


def run(arguments: argparse.Namespace) -> bool:
    """Measure and print; returns whether all is as it should be."""
    progress = ConsoleProgress()
    good = True
    for model in arguments.networks or NETWORKS:
        with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
            compared = compare(model, arguments.device, arguments.rounds, Path(folder), progress)
        print(compared, flush=True)
        good = good and compared.good
    return good


def main() -> None:
    """Parse the command line; exit code 1 if a kernel is needlessly slow, else as errors of `edgedeploy` end."""
    parser = argparse.ArgumentParser(description="Compare the kernels for this machine's OpenCL device with its CPU.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="names of the zoo, or files")
    parser.add_argument("--rounds", type=int, default=5, help="how often each has its turn (5)")
    parser.add_argument("--device", default="", help="a part of the device's name; the first unless given")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    with ending_with_errors():
        sys.exit(0 if run(arguments) else 1)


if __name__ == "__main__":
    main()
