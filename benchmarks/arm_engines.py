"""Predicts networks on ARM boards beside other engines, and writes the tables of docs/predictions.md.

    python benchmarks/arm_engines.py [NETWORK ...] [--boards NAMES] [--engines NAMES] [--known] [--threads N]
                                        [--sweep FOLDER]
    python benchmarks/arm_engines.py --half ...
    python benchmarks/arm_engines.py --calibrate FOLDER ...

Other engines' own wheels for ARM run under emulation, which takes minutes for each network. What they execute does not
depend on edgedeploy's code: arm_engines.jsonl keeps it, and a later run records only what is not there. With --known it
records nothing, and edgedeploy's side alone is new. Without NETWORKs it takes those of cycles.py, and networks in
TensorFlow Lite's format for LiteRT, and writes the page. NETWORKs are printed instead, and so are those of the sweep,
as `benchmarks/sweep.py export` wrote them into FOLDER, and predictions for several threads. With --half, networks
are predicted as `--precision auto` builds them, beside other engines in half precision and the same ones in single.
With images to calibrate by, networks of 8 bits are predicted instead, beside the same ones in single.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import readme_chart
from arm_engines_tables import BEGIN, BEGIN_OF_BYTES, BEGIN_OF_HALF, Row, page, tables
from cycles import NETWORKS
from errors import ending_with_errors
from quantised import IN_FLOAT, READY, options_of, quantised_for_all
from sweep_networks import read_cases

from edgedeploy.base.files import replacing
from edgedeploy.benchmarking.networks import candidates
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.compile.backends import host_of
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.predicting.peers import NAMES, PeerResults, find_predictable_peers, predict_peers
from edgedeploy.predicting.prediction import open_package, predict_package
from edgedeploy.predicting.tools import Means, predictable
from edgedeploy.target.resolved import resolve

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_suffix(".jsonl")
PAGE = ROOT / "docs" / "predictions.md"

# Of the zoo, in single precision, in the only format that LiteRT reads.
TFLITE = ["mobilenet_v1_0.25-tflite", "visual-wake-words", "resnet8-cifar10"]

SINGLE = [name for name in NAMES if not name.endswith("-half")]
HALF = [name for name in NAMES if name.endswith("-half")]

# Networks that are quantised, and what those that others quantised are in float.
TO_QUANTISE = [*IN_FLOAT, "resnet18"]
IN_FLOAT_TOO = {"mobilenet_v1_0.25_quant": "mobilenet_v1_0.25-tflite"}


def rows(
    networks: Mapping[str, ImportOptions],
    board: str,
    engines: str,
    *,
    threads: int = 1,
    record: bool = True,
    precision: str = "single",
) -> Iterator[Row]:
    """What each network takes on a board; other engines are recorded if they were not before."""
    progress, resolved = ConsoleProgress(), resolve(board, {"precision": precision})
    profile, means = resolved.profile, Means.of(board, resolved.profile)
    peers = find_predictable_peers(engines) if engines else []
    for network, options in networks.items():
        [candidate] = candidates([network], resolved, progress=progress, options=options)
        manifest, contents = open_package(candidate.prepared.package_path)
        ours = predict_package(manifest, contents, profile, means, progress, threads=threads)
        found = predict_peers(
            peers,
            candidate,
            profile,
            means,
            PeerResults(RESULTS),  # another run may add to them meanwhile
            progress,
            threads=threads,
            record=record,
        )
        yield Row(candidate.name, ours, found, half=manifest.half)


def rows_in_half(
    networks: Mapping[str, ImportOptions], board: str, engines: str, *, threads: int, record: bool
) -> Iterator[Row]:
    """What networks take on a board with layers in half precision, beside other engines and themselves in single."""
    in_single = rows(networks, board, "", threads=threads)
    found = rows(networks, board, engines, threads=threads, record=record, precision="auto")
    for row, single in zip(found, in_single, strict=True):
        yield replace(row, in_single=single.ours)


def of_bytes(images: Path, folder: Path) -> dict[str, str | None]:
    """Networks of 8 bits, files in a folder and names of the zoo, with those that they are in float."""
    files = {
        str(path): name for name in TO_QUANTISE for path in quantised_for_all(name, images, folder, ConsoleProgress())
    }
    return files | {name: IN_FLOAT_TOO.get(name) for name in READY}


def rows_of_bytes(
    networks: Mapping[str, str | None], board: str, engines: str, *, threads: int, record: bool
) -> Iterator[Row]:
    """What networks of 8 bits take on a board, beside other engines and themselves in single precision."""
    floats = {name: options_of(name) for name in networks.values() if name}
    in_single = {row.network: row.ours for row in rows(floats, board, "", threads=threads)}
    found = rows(dict.fromkeys(networks, AS_THE_FILE_SAYS), board, engines, threads=threads, record=record)
    for row, name in zip(found, networks.values(), strict=True):
        yield replace(row, in_single=in_single[name] if name else None)


def of_sweep(folder: Path) -> dict[str, ImportOptions]:
    """The files of the sweep that are there."""
    files = [case.file(folder) for case in read_cases()]
    return {str(file): AS_THE_FILE_SAYS for file in files if file.is_file()}


def run(arguments: argparse.Namespace) -> None:
    """Predict, and write or print."""
    chosen: dict[str, ImportOptions] = {name: NETWORKS.get(name, AS_THE_FILE_SAYS) for name in arguments.networks}
    if arguments.sweep:
        chosen |= of_sweep(arguments.sweep)
    networks = chosen or {**NETWORKS, **({} if arguments.half else dict.fromkeys(TFLITE, AS_THE_FILE_SAYS))}
    boards = arguments.boards.split(",")
    if arguments.half:
        boards = [board for board in boards if host_of(resolve(board, {}).profile).has_half]
    engines = arguments.engines or ",".join(HALF if arguments.half else SINGLE)
    found: dict[str, Sequence[Row]] = {}
    with TemporaryDirectory() as folder:
        quantised = of_bytes(arguments.calibrate, Path(folder)) if arguments.calibrate else None
        for board in boards:
            where, options = (board, engines), {"threads": arguments.threads, "record": not arguments.known}
            floats = rows_in_half if arguments.half else rows
            of_board = rows_of_bytes(quantised, *where, **options) if quantised else floats(networks, *where, **options)
            found[board] = list(of_board)
    text = tables(found, arguments.threads)
    print(text)
    if not chosen and arguments.threads == 1:
        begin = BEGIN_OF_BYTES if arguments.calibrate else BEGIN_OF_HALF if arguments.half else BEGIN
        with replacing(PAGE) as temporary:
            temporary.write_text(page(PAGE.read_text(encoding="utf-8"), text, begin), encoding="utf-8")
        PeerResults(RESULTS).tidy()
        readme_chart.write()


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Predict networks on ARM boards beside other engines.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="names of the zoo, or files")
    parser.add_argument("--boards", default=",".join(predictable()), help="separated by commas")
    parser.add_argument("--engines", help=f"separated by commas; of {', '.join(NAMES)}")
    parser.add_argument("--threads", type=int, default=1, help="of every engine (1)")
    parser.add_argument("--known", action="store_true", help="record no other engine")
    parser.add_argument("--sweep", type=Path, metavar="FOLDER", help="the networks of the sweep, which lie there")
    parser.add_argument("--half", action="store_true", help="layers in half precision, on boards whose CPU has it")
    parser.add_argument("--calibrate", type=Path, metavar="FOLDER", help="networks of 8 bits; images to quantise with")
    arguments = parser.parse_args()
    with ending_with_errors():
        run(arguments)


if __name__ == "__main__":
    main()
