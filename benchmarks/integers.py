"""Writes what networks of 8 bits take beside their float networks into docs/quantisation.md: time, memory, size, loops.

    python benchmarks/integers.py --calibrate FOLDER [--networks NAMES] [--inferences N] [--tables times,memory,loops]

Networks are those of the zoo, quantised by the defaults of `edgedeploy quantize`; ResNets have random weights. Times
are those of code for x86 CPUs without dot products of bytes, on one thread of this machine, which must have all their
instructions: the least processor time of so many inferences, in turns with the float network. `benchmarks/run.py`
measures code for this machine's own CPU. Memory and sizes are those of packages for a Raspberry Pi 4, wherever this
runs; loops are those of layers on ARM (`integer_loops.py`), by llvm-mca, of LLVM 19 or later.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import integer_loops
import numpy as np
from errors import ending_with_errors
from quantised import IN_FLOAT, RESNETS, options_of, quantised
from results import as_table

from edgedeploy.base.files import replacing
from edgedeploy.base.progress import Progress
from edgedeploy.benchmarking.networks import Candidate, candidates
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.package.archive import read_manifest
from edgedeploy.runtime.session import Session
from edgedeploy.target.hosts import cpu_name
from edgedeploy.target.resolved import ResolvedBoard, resolve

PAGE = Path(__file__).resolve().parent.parent / "docs" / "quantisation.md"

# What the page has around each table.
BEGIN, END = "<!-- {} written by benchmarks/integers.py -->", "<!-- until here -->"

NETWORKS = [*IN_FLOAT, *RESNETS]

# The heads of columns, with what is replaced in this machine's profile.
CPUS = {
    "AVX2 (`x86-64-v3`)": {"cpu": "x86-64-v3", "vector": {"bits": 256, "registers": 16}},
    "AVX-512 (`skylake-avx512`)": {"cpu": "skylake-avx512", "vector": {"bits": 512, "registers": 32}},
}


def pair(name: str, file: Path, board: ResolvedBoard, progress: Progress) -> list[Candidate]:
    """A float network and that of 8 bits, built."""
    return [
        *candidates([name], board, progress=progress, options=options_of(name)),
        *candidates([str(file)], board, progress=progress),
    ]


def ratio_of_times(networks: Sequence[Candidate], inferences: int) -> float:
    """The time of the second network over that of the first."""
    sessions = [Session.open(each.prepared.package_path, 1) for each in networks]
    inputs = [each.tensors() for each in networks]
    least = [float("inf")] * len(sessions)
    for index in range(inferences):
        for place, (session, given) in enumerate(zip(sessions, inputs, strict=True)):
            begun = process_time()
            session.run(given)
            if index > 1:  # caches and threads are warm
                least[place] = min(least[place], process_time() - begun)
    return least[1] / least[0]


def times(files: dict[str, Path], inferences: int, progress: Progress) -> list[list[str]]:
    """A row for each network: its ratios on each CPU."""
    rows = [["network", *CPUS]]
    for name, file in files.items():
        ratios = []
        for overrides in CPUS.values():
            networks = pair(name, file, resolve("local", overrides), progress)
            ratios.append(f"{ratio_of_times(networks, inferences):.2f}")
        rows.append([name, *ratios])
    return rows


def memory(files: dict[str, Path], progress: Progress) -> list[list[str]]:
    """A row for each network: its outputs, what else lies between functions, its weights, and its package."""
    heads = ["between layers", "outputs", "weights", "package"]
    rows = [["network", *(f"{head}, float and int8, kB" for head in heads)]]
    for name, file in files.items():
        networks = pair(name, file, resolve("rpi4"), progress)
        columns = zip(*map(_kilobytes, networks), strict=True)
        rows.append([name, *(f"{float_:,} / {integers:,} ({integers / float_:.2f})" for float_, integers in columns)])
    return rows


def _kilobytes(network: Candidate) -> list[int]:
    path = network.prepared.package_path
    found = read_manifest(path).memory
    outputs = sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in network.prepared.manifest.results)
    sizes = [found.workspace_bytes - outputs, outputs, found.constants_bytes, path.stat().st_size]
    return [-(-size // 1000) for size in sizes]


def write(name: str, text: str) -> None:
    """Put a text into the page, between its marks."""
    before, mark, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN.format(name))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{PAGE} has no place for {name}")
    with replacing(PAGE) as temporary:
        temporary.write_text(f"{before}{mark}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def run(arguments: argparse.Namespace) -> None:
    """Quantise, build, measure, and write the page."""
    progress = ConsoleProgress()
    if "loops" in arguments.tables:
        write("loops", as_table(integer_loops.table()))
    if not {"times", "memory"} & {*arguments.tables}:
        return
    with TemporaryDirectory() as folder:
        files = {name: quantised(name, arguments.calibrate, Path(folder), progress) for name in arguments.networks}
        if "times" in arguments.tables:
            rows = times(files, arguments.inferences, progress)
            write("times", f"On {cpu_name()}, {arguments.inferences} inferences of each:\n\n{as_table(rows)}")
        if "memory" in arguments.tables:
            write("memory", as_table(memory(files, progress)))


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser: Any = argparse.ArgumentParser(description="Write what networks of 8 bits take beside floats.")
    parser.add_argument("--calibrate", type=Path, metavar="FOLDER", help="images to quantise with, for all but loops")
    parser.add_argument("--networks", type=lambda text: text.split(","), default=NETWORKS, help="which of the zoo")
    parser.add_argument("--inferences", type=int, default=300, help="of each network, for each CPU (300)")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=["times", "memory"], help="which")
    arguments = parser.parse_args()
    with ending_with_errors():
        run(arguments)


if __name__ == "__main__":
    main()
