"""Predicts networks on ARM boards beside other engines, and writes the tables of docs/predictions.md.

    python benchmarks/arm_engines.py [NETWORK ...] [--boards NAMES] [--engines NAMES] [--known] [--threads N]
                                        [--sweep FOLDER]

Other engines' own wheels for ARM run under emulation, which takes minutes for each network. What they execute does not
depend on edgedeploy's code: arm_engines.jsonl keeps it, and a later run records only what is not there. With --known it
records nothing, and edgedeploy's side alone is new. Without NETWORKs it takes those of cycles.py, and networks in
TensorFlow Lite's format for LiteRT, and writes the page. NETWORKs are printed instead, and so are those of the sweep,
as `benchmarks/sweep.py export` wrote them into FOLDER, and predictions for several threads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from arm_engines_tables import Row, page, tables
from cycles import NETWORKS
from errors import ending_with_errors
from sweep_networks import read_cases

from edgedeploy.benchmarking.networks import candidates
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.files import replacing
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.predicting.means import Means, predictable
from edgedeploy.predicting.network import open_package, predict_package
from edgedeploy.predicting.peer_results import PeerResults
from edgedeploy.predicting.peers import NAMES, find_predictable_peers, predict_peers
from edgedeploy.resolved import resolve

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_suffix(".jsonl")
PAGE = ROOT / "docs" / "predictions.md"

# Of the zoo, in single precision, in the only format that LiteRT reads.
TFLITE = ["mobilenet_v1_0.25-tflite", "visual-wake-words", "resnet8-cifar10"]


def rows(
    networks: Mapping[str, ImportOptions],
    board: str,
    engines: str,
    *,
    threads: int = 1,
    record: bool = True,
) -> Iterator[Row]:
    """What each network takes on a board; other engines are recorded if they were not before."""
    progress, resolved = ConsoleProgress(), resolve(board, {})
    profile, means = resolved.profile, Means.of(board, resolved.profile)
    peers = find_predictable_peers(engines)
    for network, options in networks.items():
        [candidate] = candidates([network], resolved, progress=progress, options=options)
        manifest, contents = open_package(candidate.prepared.package_path)
        ours = predict_package(manifest, contents, profile, means, progress, threads=threads)
        found = predict_peers(
            peers,
            candidate,
            manifest,
            contents,
            profile,
            means,
            PeerResults(RESULTS),  # another run may add to them meanwhile
            progress,
            threads=threads,
            record=record,
        )
        yield Row(candidate.name, ours, found)


def of_sweep(folder: Path) -> dict[str, ImportOptions]:
    """The files of the sweep that are there."""
    files = [case.file(folder) for case in read_cases()]
    return {str(file): AS_THE_FILE_SAYS for file in files if file.is_file()}


def run(arguments: argparse.Namespace) -> None:
    """Predict, and write or print."""
    chosen: dict[str, ImportOptions] = {name: NETWORKS.get(name, AS_THE_FILE_SAYS) for name in arguments.networks}
    if arguments.sweep:
        chosen |= of_sweep(arguments.sweep)
    networks = chosen or {**NETWORKS, **dict.fromkeys(TFLITE, AS_THE_FILE_SAYS)}
    found: dict[str, Sequence[Row]] = {}
    for board in arguments.boards.split(","):
        options = {"threads": arguments.threads, "record": not arguments.known}
        found[board] = list(rows(networks, board, arguments.engines, **options))
    text = tables(found, arguments.threads)
    print(text)
    if not chosen and arguments.threads == 1:
        with replacing(PAGE) as temporary:
            temporary.write_text(page(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
        PeerResults(RESULTS).tidy()


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Predict networks on ARM boards beside other engines.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="names of the zoo, or files")
    parser.add_argument("--boards", default=",".join(predictable()), help="separated by commas")
    parser.add_argument("--engines", default=",".join(NAMES), help="separated by commas")
    parser.add_argument("--threads", type=int, default=1, help="of every engine (1)")
    parser.add_argument("--known", action="store_true", help="record no other engine")
    parser.add_argument("--sweep", type=Path, metavar="FOLDER", help="the networks of the sweep, which lie there")
    arguments = parser.parse_args()
    with ending_with_errors():
        run(arguments)


if __name__ == "__main__":
    main()
