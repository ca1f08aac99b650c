"""`edgedeploy predict`: the predicted time of a network on a board's core, without the board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from edgedeploy.base.text import count, significant
from edgedeploy.cli.console import as_table, foreign, print_result, shown_progress
from edgedeploy.cli.options import Importing, complete_model, completing, file_option
from edgedeploy.cli.overrides import Precision

if TYPE_CHECKING:
    from rich.table import Table

    from edgedeploy.predicting.prediction import Prediction
    from edgedeploy.predicting.tools import Means

complete_predictable = completing("edgedeploy.predicting.tools:predictable")


def predict(
    network: str = Argument(
        ...,
        metavar="NETWORK",
        help="A zoo name, a network's file, or a package: its archive or unpacked folder.",
        autocompletion=complete_model,
    ),
    board: str = Option(
        ..., "--board", "-b", help="A board's name, or a path to its YAML file.", autocompletion=complete_predictable
    ),
    threads: int = Option(1, "--threads", "-t", min=1, help="Threads to use, at most the board's cores."),
    precision: Precision = None,
    against: str | None = Option(
        None,
        metavar="ENGINES",
        help="Also predict these engines: ncnn,onnxruntime,mnn,litert,ncnn-half,mnn-half. Needs root, mmdebstrap and a "
        "Debian mirror; pip downloads the engines' wheels for the board.",
    ),
    *,
    importing: Importing,
    report: Path | None = file_option(None, "--report", what="Also write a page with a chart.", metavar="FILE.html"),
) -> None:
    """Predict a network's cycles on a board's core.

    The board is not needed: its own code runs under QEMU, which records what it executes; LLVM's model of the core
    gives the cycles, and a model of the caches the time spent waiting for memory. docs/predictions.md says how
    accurate this is. The same network built by the same version gives the same number on any machine, so that small
    changes of code show.

    Works for boards with a `core_model` in their profile. Needs Debian's qemu-user and llvm-19: `edgedeploy doctor
    --board rpi4` says what is missing.

    --against runs other engines' own code for the board in the same way; engines that are not installed here or cannot
    run the network are named and left out. Outputs are compared. Their recordings are cached.

    Examples: edgedeploy predict mobilenet_v1 --board rpi4; edgedeploy predict net.onnx --board rpi5 --report net.html

    Example: edgedeploy predict squeezenet_v1.1 --board rpi4 --against ncnn,onnxruntime

    Example: edgedeploy predict mobilenet_v1 --board rpi4 --threads 4

    Example: edgedeploy predict dist/rpi4/digits.tar.gz --board rpi4 --json
    """
    from edgedeploy.api.predicting import predict as predict_network
    from edgedeploy.predicting.page import beside, cells, write_page
    from edgedeploy.report import require_report
    from edgedeploy.target.resolved import resolve

    if report:
        require_report()
    predicted = predict_network(
        network,
        resolve(board, {"precision": precision} if precision else {}),
        threads=threads,
        against=against,
        shapes=importing.shapes,
        options=importing.options,
        progress=shown_progress(),
    )
    title = f"{predicted.manifest.model} on {predicted.board}, {count(threads, 'thread')}"
    prediction = predicted.prediction
    facts, compared = _facts(prediction, predicted.means), beside(prediction, predicted.peers)
    if report:
        write_page(report, prediction, title, facts, compared)
    titles = ["function", "calls", "cycles, M", *prediction.cycles.by_kind(), "products, M", "per cycle", "of peak"]
    rows = [[foreign(each.name), str(each.calls), *cells(each)] for each in prediction.functions]
    shown: list[str | Table] = [as_table(titles, rows, right=titles[1:]), title]
    shown += [f"  {name}: {text}" for name, text in facts.items()]
    if predicted.peers:
        shown.append(as_table(compared.titles, compared.rows, right=compared.titles[1:]))
        shown += [f"{engine} is left out: {why}" for engine, why in compared.left_out]
    print_result(predicted.to_dict(), *shown)


def _facts(prediction: Prediction, means: Means) -> dict[str, str]:
    from edgedeploy.api.predicting import NOT_MEASURED

    cycles, time = prediction.cycles, f"{significant(prediction.ms)} ms at {prediction.clock_mhz} MHz"
    return {
        NOT_MEASURED: f"{cycles.total / 1e6:.2f} million cycles, {time}",
        "error": f"+-{prediction.error:.0%} of published times; differences below 5% mean nothing between programs",
        "of the core's peak": f"{prediction.of_peak:.0%}",
        "taken by": ", ".join(f"{name} {value / cycles.total:.0%}" for name, value in cycles.by_kind().items()),
        "instructions": f"{prediction.instructions / 1e6:.2f} million",
        "model": f"{means.name}; docs/predictions.md says how far to believe it",
    }
