"""Measures the project's networks against other engines and writes docs/performance.md.

    python benchmarks/run.py [--threads N] [--rounds N] [--against ENGINES] [--output FILE] [--remark TEXT]
                             [--networks NAMES] [--batches 1,4,16]
    python benchmarks/run.py --calibrate FOLDER ...

The networks are those of the zoo that its demos stand on, which must be here or have a download
(`edgedeploy models`), and two ResNets with random weights. ConvNeXt-Tiny and ResNet-50 are then measured with several
batches, with what compiling takes; charts of that go into `charts` beside the page. With images to calibrate by, some
networks are measured in float and in integers instead, for docs/quantised_performance.md.
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import readme_chart
from errors import ending_with_errors
from quantised import IN_FLOAT, RANDOM, READY, RESNETS, quantised_for_all

from edgedeploy.base.files import replacing
from edgedeploy.base.progress import Progress
from edgedeploy.benchmarking.engines import find_peers
from edgedeploy.benchmarking.engines.engine import Engine
from edgedeploy.benchmarking.measure import Measurement, leaving_out, measure
from edgedeploy.benchmarking.networks import candidates
from edgedeploy.benchmarking.page import compile_and_run, medians
from edgedeploy.benchmarking.report import Skipped
from edgedeploy.benchmarking.tables import as_markdown
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.report import require_report
from edgedeploy.report.charts import alone
from edgedeploy.runtime.session import check_threads, processors
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve

CHARTS = "charts"
ROOT = Path(__file__).resolve().parent.parent

ZOO = [
    "mobilenet_v1",
    "squeezenet_v1.1-onnx",
    "retinaface-316x474",
    "yolo-fastest-1.1",
    "landmark-106",
    "pfld",
    "yunet",
]
BY_BATCH = ["convnext_tiny", "resnet50"]

QUANTISED_PAGE = """\
# Performance of quantised networks

Written by `python benchmarks/run.py --calibrate FOLDER` on {date}.

{remark}Networks are in single precision, and in 8 bits from `edgedeploy quantize` (`-int8`). If that omits
roundings which other engines' kernels need, the network is also measured with all of them (`-int8-all-pairs`). All
engines read the same files. ResNet-18 and ResNet-50 have random weights; `mobilenet_v2-int8` was quantised by others.
The method is the one for [single precision](performance.md).

{report}"""

PAGE = """\
# Performance

Written by `python benchmarks/run.py` on {date}. Measure your own networks with
[`edgedeploy bench`](commands.md#edgedeploy-bench).

{remark}Each engine runs in its own process with the same number of threads, in single precision, on one
image, and otherwise with its defaults. The engines take turns in each
round; each time is the median over all inferences of all rounds. ResNet-18 and ResNet-50 have random weights.

{report}
## Batches and compilation

ConvNeXt-Tiny and ResNet-50, with random weights, in batches of {batches}. Times are per batch; missing engines do not
support batches, or are listed below. [Measuring](measuring.md#output) describes the columns.

![Median times by network and batch]({charts}/medians.svg)

![Compilation time against inference time]({charts}/compiling.svg)

{by_batch}"""


def run(arguments: argparse.Namespace) -> None:
    """Measure, and write the page."""
    progress = ConsoleProgress()
    require_report()
    peers = find_peers(arguments.against)
    threads = check_threads(arguments.threads) if arguments.threads else min(load_board("local").cores, processors())
    with TemporaryDirectory() as folder:
        page, output, names, files = PAGE, "performance.md", ZOO, list[str]()
        if arguments.calibrate:
            page, output, names, files = QUANTISED_PAGE, "quantised_performance.md", IN_FLOAT, list(READY)
            for name in [*IN_FLOAT, *RESNETS]:
                files += map(str, quantised_for_all(name, arguments.calibrate, Path(folder), progress))
        local = resolve("local")
        chosen = arguments.networks or [*names, *RESNETS]
        networks = candidates([name for name in chosen if name not in RESNETS], local, progress=progress)
        networks += candidates([name for name in chosen if name in RESNETS], local, progress=progress, options=RANDOM)
        networks += candidates(files, local, progress=progress)
        report = measure(networks, peers, threads, Measurement(arguments.rounds, progress=progress))
        path = arguments.output or ROOT / "docs" / output
        said = {}
        if not arguments.calibrate:
            said = by_batch(arguments.batches, peers, threads, arguments.rounds, path.parent / CHARTS, progress)
    remark = f"**{arguments.remark.strip()}**\n\n" if arguments.remark else ""
    with replacing(path) as temporary:
        text = page.format(date=date.today().isoformat(), remark=remark, report=as_markdown(report), **said)
        temporary.write_text(text, encoding="utf-8")
    print(path)
    if not arguments.output:
        readme_chart.write()


def by_batch(
    batches: list[int], peers: list[Engine], threads: int, rounds: int, charts: Path, progress: Progress
) -> dict[str, str]:
    """What the page says of networks with several batches; its charts are written."""
    skipped: list[Skipped] = []
    left_out = leaving_out(peers, skipped, progress)
    networks = candidates(
        BY_BATCH, resolve("local"), progress=progress, options=RANDOM, batches=batches, left_out=left_out
    )
    report = measure(networks, peers, threads, Measurement(rounds, before=skipped, progress=progress))
    charts.mkdir(parents=True, exist_ok=True)
    for name, drawn in (("medians", medians(report)), ("compiling", compile_and_run(report))):
        if drawn:
            (charts / f"{name}.svg").write_text(alone(drawn), encoding="utf-8")
    said = ", ".join(map(str, batches))
    return {"by_batch": as_markdown(report), "batches": said, "charts": CHARTS}


def _names(listed: str) -> list[str]:
    return listed.split(",")


def _sizes(listed: str) -> list[int]:
    return [int(each) for each in listed.split(",")]


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Measure the project's networks and write docs/performance.md.")
    parser.add_argument("--threads", type=int, help="threads of every engine; all processors by default")
    parser.add_argument("--rounds", type=int, default=10, help="how often each engine has its turn (10)")
    parser.add_argument("--against", metavar="ENGINES", help="engines, separated by commas; all by default")
    parser.add_argument("--networks", type=_names, help="networks, separated by commas; all of the page by default")
    parser.add_argument("--batches", type=_sizes, default=[1, 4, 16], help="batches of the second table (1,4,16)")
    parser.add_argument("--calibrate", type=Path, metavar="FOLDER", help="measure quantised networks; its images")
    parser.add_argument("--output", type=Path, help="the page; the one in docs/ by default")
    parser.add_argument("--remark", help="a sentence about the machine's state, for the page")
    arguments = parser.parse_args()
    for name in ("threads", "rounds"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    with ending_with_errors():
        run(arguments)


if __name__ == "__main__":
    main()
