"""`edgedeploy predict`: what a network would take on a board's core, without the board."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.options import (
    EpsilonOption,
    InputShapeOption,
    JsonOption,
    SetOption,
    Weights,
    WeightsOption,
    complete_model,
    file_option,
    import_options,
    parse_shapes,
)

if TYPE_CHECKING:
    from edgedeploy.package.manifest import Manifest
    from edgedeploy.predicting.means import Means
    from edgedeploy.predicting.peers import PeerPrediction
    from edgedeploy.predicting.prediction import Prediction

NOT_MEASURED = "predicted, not measured"


def complete_predictable(incomplete: str) -> list[str]:
    """Boards for which cycles are predicted."""
    from edgedeploy.predicting.means import predictable

    return [name for name in predictable() if name.startswith(incomplete)]


def predict(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK",
            help="A name of the zoo, a network's file, or a package: its archive, or the folder it was unpacked into.",
            autocompletion=complete_model,
        ),
    ],
    board: Annotated[
        str,
        typer.Option(
            "--board", "-b", help="A board's name, or a path to its YAML file.", autocompletion=complete_predictable
        ),
    ],
    threads: Annotated[
        int, typer.Option("--threads", "-t", min=1, help="Threads to use, as many as the board has cores at most.")
    ] = 1,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="ENGINES",
            help="Also predict these engines, separated by commas: ncnn,onnxruntime,mnn,litert. Needs root, mmdebstrap "
            "and a mirror of Debian, and pip brings their wheels for the board.",
        ),
    ] = None,
    input_shape: InputShapeOption = None,
    set_inputs: SetOption = None,
    weights: WeightsOption = Weights.file,
    epsilon: EpsilonOption = None,
    report: Annotated[
        Path | None, file_option("--report", what="Also write an HTML page with a chart.", metavar="FILE.html")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Predict the cycles of a network on a board's core, function by function, without the board.

    The board's own code runs under QEMU, which records what it executes; LLVM's model of the core says the cycles, and
    a model of the caches what waiting for memory adds. docs/predictions.md says how far to believe it. The same network
    built by the same version gives the same number on any machine, so that small changes of code show.

    Boards are those whose profile has a `core_model`. Needs qemu-user and llvm-19 of Debian: `edgedeploy doctor --board
    rpi4` says what is missing.

    --against runs other engines' own code for the board in the same way; those that are not installed here or cannot
    run the network are named and left out. Outputs are compared. What they execute is kept for the next time.

    Examples: edgedeploy predict mobilenet_v1 --board rpi4; edgedeploy predict net.onnx --board rpi5 --report net.html

    Example: edgedeploy predict squeezenet_v1.1 --board rpi4 --against ncnn,onnxruntime

    Example: edgedeploy predict mobilenet_v1 --board rpi4 --threads 4

    Example: edgedeploy predict dist/rpi4/digits.tar.gz --board rpi4 --json
    """
    from edgedeploy.benchmarking.networks import candidates
    from edgedeploy.cli.console import print_json, quiet_if
    from edgedeploy.errors import InputError
    from edgedeploy.files import is_file, is_folder
    from edgedeploy.frontends.format import AS_THE_FILE_SAYS
    from edgedeploy.package.manifest import MANIFEST_NAME
    from edgedeploy.predicting.means import Means
    from edgedeploy.predicting.network import open_package, predict_package
    from edgedeploy.predicting.page import beside
    from edgedeploy.predicting.peer_results import PeerResults
    from edgedeploy.predicting.peers import find_predictable_peers, predict_peers
    from edgedeploy.report import require_report
    from edgedeploy.resolved import resolve
    from edgedeploy.text import count

    if report:
        require_report()
    shapes, options = parse_shapes(input_shape), import_options(weights, epsilon, set_inputs)
    engines = find_predictable_peers(against) if against else []
    resolved = resolve(board, {})
    means = Means.of(resolved.label, resolved.profile)
    if threads > resolved.profile.cores:
        raise InputError(f"{resolved.label} has {resolved.profile.cores} cores, and {threads} threads are asked for")
    progress = quiet_if(json_output)
    path, candidate = Path(network), None
    if network.endswith(".tar.gz") or (is_folder(path) and is_file(path / MANIFEST_NAME)):
        if shapes or options != AS_THE_FILE_SAYS:
            raise InputError("what is said of a network's file does not go with a package", why="it is built already")
        if engines:
            raise InputError("--against needs a network", why="other engines cannot read a package of edgedeploy")
    else:
        [candidate] = candidates([network], resolved, shapes, progress, options=options)
        path = candidate.prepared.package_path
    manifest, contents = open_package(path)
    title = f"{manifest.model} on {resolved.label}, {count(threads, 'thread')}"
    prediction = predict_package(manifest, contents, resolved.profile, means, progress, threads=threads)
    peers: list[PeerPrediction] = []
    if engines and candidate:
        results = PeerResults.of_user()
        peers = predict_peers(
            engines, candidate, manifest, contents, resolved.profile, means, results, progress, threads=threads
        )
    if report:
        from edgedeploy.predicting.page import write_page

        write_page(report, prediction, title, _facts(prediction, means), beside(prediction, peers))
    if json_output:
        print_json(_as_dict(prediction, manifest, resolved.label, means, peers, threads))
    else:
        _print(prediction, title, means, peers)


def _as_dict(
    prediction: Prediction, manifest: Manifest, board: str, means: Means, peers: Sequence[PeerPrediction], threads: int
) -> dict[str, Any]:
    return {
        "network": manifest.model,
        "board": board,
        "threads": threads,
        "note": NOT_MEASURED,
        "model": means.name,
        "build_key": manifest.build_key,
        "clock_mhz": prediction.clock_mhz,
        "error": prediction.error,
        "ms": prediction.ms,
        "cycles": prediction.cycles.total,
        "cycles_by_kind": prediction.cycles.by_kind(),
        "sampling_error_cycles": prediction.core_error,
        "instructions": prediction.instructions,
        "of_peak": prediction.of_peak,
        "missed_lines": dict(prediction.misses),
        "functions": [
            {
                "function": each.name,
                "calls": each.calls,
                "cycles": each.cycles.total,
                "cycles_by_kind": each.cycles.by_kind(),
                "sampling_error_cycles": each.core_error,
                "instructions": each.instructions,
                "float_products": each.floats,
                "integer_products": each.integers,
                "products_per_cycle": each.products_per_cycle,
                "of_peak": each.of_peak,
            }
            for each in prediction.functions
        ],
        **({"against": [_of_peer(each) for each in peers]} if peers else {}),
    }


def _of_peer(peer: PeerPrediction) -> dict[str, Any]:
    named: dict[str, Any] = {"engine": peer.engine, "version": peer.version, "wheel_sha256": peer.sha256}
    if peer.prediction is None:
        return {**named, "left_out": peer.left_out}
    return {
        **named,
        "ms": peer.prediction.ms,
        "cycles": peer.prediction.cycles.total,
        "cycles_by_kind": peer.prediction.cycles.by_kind(),
        "instructions": peer.prediction.instructions,
        "of_peak": peer.prediction.of_peak,
        "difference_of_outputs": peer.difference,
        "missed_lines": dict(peer.prediction.misses),
    }


def _facts(prediction: Prediction, means: Means) -> dict[str, str]:
    """What stands above or below the table, by what it is."""
    from edgedeploy.text import significant

    cycles, time = prediction.cycles, f"{significant(prediction.ms)} ms at {prediction.clock_mhz} MHz"
    return {
        NOT_MEASURED: f"{cycles.total / 1e6:.2f} million cycles, {time}",
        "error": f"+-{prediction.error:.0%} of published times; differences below 5% mean nothing between programs",
        "of the core's peak": f"{prediction.of_peak:.0%}",
        "taken by": ", ".join(f"{name} {value / cycles.total:.0%}" for name, value in cycles.by_kind().items()),
        "instructions": f"{prediction.instructions / 1e6:.2f} million",
        "model": f"{means.name}; docs/predictions.md says how far to believe it",
    }


def _print(prediction: Prediction, title: str, means: Means, peers: Sequence[PeerPrediction]) -> None:
    from edgedeploy.cli.console import foreign, print_table, stdout
    from edgedeploy.predicting.page import beside, cells

    titles = ["function", "calls", "cycles, M", *prediction.cycles.by_kind(), "products, M", "per cycle", "of peak"]
    rows = [[foreign(each.name), str(each.calls), *cells(each)] for each in prediction.functions]
    print_table(titles, rows, right=titles[1:])
    stdout().print(title)
    for name, text in _facts(prediction, means).items():
        stdout().print(f"  {name}: {text}")
    if peers:
        compared = beside(prediction, peers)
        print_table(compared.titles, compared.rows, right=compared.titles[1:])
        for engine, why in compared.left_out:
            stdout().print(foreign(f"{engine} is left out: {why}"))
