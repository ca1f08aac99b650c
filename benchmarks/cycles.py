"""Writes what networks take on boards by prediction into benchmarks/cycles.json, which a slow test holds builds to.

    python benchmarks/cycles.py [NETWORK ...] [--boards NAMES] [--check]

Counts of instructions and misses are the same on every machine, so that a change of one per cent shows, and in which
function. Who makes a network slower on purpose rewrites the file in the same commit. With --check, nothing is
written: what became slower is printed. Networks that no argument names stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from errors import ending_with_errors

from edgedeploy.base.files import replacing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.building import prepare
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.demo.usage import find_use
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.predicting.prediction import open_package, predict_package
from edgedeploy.predicting.tools import Means, predictable
from edgedeploy.target.resolved import resolve

FILE = Path(__file__).with_suffix(".json")

# Those that docs/performance.md measures; of the last one, the true layers with random weights.
NETWORKS = {
    "mobilenet_v1": AS_THE_FILE_SAYS,
    "squeezenet_v1.1-onnx": AS_THE_FILE_SAYS,
    "retinaface-316x474": AS_THE_FILE_SAYS,
    "yolo-fastest-1.1": AS_THE_FILE_SAYS,
    "landmark-106": AS_THE_FILE_SAYS,
    "pfld": AS_THE_FILE_SAYS,
    "yunet": AS_THE_FILE_SAYS,
    "resnet18": ImportOptions(weights="random"),
}

# Boards, and those in half precision: not as by `--precision auto`, whose choice of layers may change.
HALF = "-half"
BOARDS = [*predictable(), f"rpi5{HALF}"]

# By how much of the cycles before a network may rise.
ALLOWED = 0.01


@dataclass(frozen=True)
class Taken:
    """What an inference takes on a board.

    Attributes:
        model: what it was predicted by; figures of two models are not compared.
        cycles: all of them.
        instructions: how many were executed.
        functions: cycles by function of the network.
    """

    model: str
    cycles: int
    instructions: int
    functions: dict[str, int]


# By board, then by network.
Results = dict[str, dict[str, Taken]]


def read() -> Results:
    """The file; nothing if there is none."""
    if not FILE.is_file():
        return {}
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {board: {name: Taken(**each) for name, each in networks.items()} for board, networks in content.items()}


def write(results: Results) -> None:
    """Write the file, in the order of boards and names."""
    content = {
        board: {name: asdict(results[board][name]) for name in sorted(results[board])} for board in sorted(results)
    }
    with replacing(FILE) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def taken(network: str, board: str, progress: Progress = SILENT) -> Taken:
    """Build one of `NETWORKS` for one of `BOARDS`, and predict it.

    Raises:
        EdgedeployError: as `prepare` and `predict_package`.
    """
    name, half, _ = board.partition(HALF)
    resolved = resolve(name, {"precision": "half" if half else "single"})
    means = Means.of(name, resolved.profile)
    options, use = NETWORKS[network], find_use(network)
    package = prepare(network, resolved, options=options, use=use, progress=progress).package_path
    found = predict_package(*open_package(package), resolved.profile, means, progress)
    functions = {each.name: round(each.cycles.total) for each in found.functions}
    return Taken(means.name, round(found.cycles.total), found.instructions, functions)


def risen(before: Taken, now: Taken) -> str | None:
    """What became slower, with the functions that gained most; None if it is less than what is allowed."""
    if now.cycles <= (1 + ALLOWED) * before.cycles:
        return None
    gained = _gains(before.functions, now.functions)
    worst = ", ".join(f"{name} +{gain / 1e6:.3f} M" for name, gain in list(gained.items())[:3])
    rise = now.cycles / before.cycles - 1
    return f"{before.cycles / 1e6:.2f} to {now.cycles / 1e6:.2f} million cycles, +{rise:.1%}: {worst}"


def _gains(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The cycles by which functions rose, the most first; one that has another name now is new."""
    gains = {name: cycles - before.get(name, 0) for name, cycles in now.items()}
    return dict(sorted(((name, gain) for name, gain in gains.items() if gain > 0), key=lambda pair: -pair[1]))


def run(arguments: argparse.Namespace) -> bool:
    """Predict all that is asked for; whether nothing became slower."""
    progress, results, good = ConsoleProgress(), read(), True
    for board in arguments.boards.split(","):
        for network in arguments.networks or NETWORKS:
            now = taken(network, board, progress)
            before = results.setdefault(board, {}).get(network)
            slower = before and before.model == now.model and risen(before, now)
            change = f" ({now.cycles / before.cycles - 1:+.2%})" if before else ""
            print(f"{network} on {board}: {now.cycles / 1e6:.2f} million cycles{change}", flush=True)
            if slower:
                print(f"  slower: {slower}", flush=True)
                good = False
            results[board][network] = now
            if not arguments.check:
                write(results)
    return good or not arguments.check


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Predict what networks take on boards.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--boards", default=",".join(BOARDS), help="separated by commas")
    parser.add_argument("--check", action="store_true", help="write nothing, and end with 1 if a network is slower")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - NETWORKS.keys():
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    with ending_with_errors():
        sys.exit(0 if run(arguments) else 1)


if __name__ == "__main__":
    main()
