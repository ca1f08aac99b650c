"""`edgedeploy bench`: networks measured against other inference engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from edgedeploy.base.text import significant
from edgedeploy.benchmarking import RUNS_ON_DEVICES
from edgedeploy.cli import console, options
from edgedeploy.cli.groups import USUAL, Commands, ModelsOrCommand
from edgedeploy.cli.overrides import Overriding
from edgedeploy.errors import InputError, SlowerError

if TYPE_CHECKING:
    from rich.table import Table

    from edgedeploy.benchmarking.report import Report
    from edgedeploy.benchmarking.tables import Column


complete_columns = options.completing("edgedeploy.benchmarking.tables:COLUMNS.values", "all", listed=True)
complete_engines = options.completing("edgedeploy.benchmarking.engines:PEERS.copy", listed=True)

app = Commands(cls=ModelsOrCommand, help="Measure networks against other inference engines.", no_args_is_help=True)


@app.command(USUAL)
def bench(
    models: options.ModelsArgument,
    board: options.BoardOption = "local",
    *,
    where: options.WhereOrHere,
    against: str | None = Option(
        None,
        metavar="ENGINES",
        help="Measure these engines; default: onnxruntime,openvino,ncnn,mnn,litert,torch; also available: "
        "torch-compile,tensorrt,onnxruntime-gpu.",
        autocompletion=complete_engines,
    ),
    threads: options.ThreadsOption = None,
    rounds: int = Option(10, min=1, max=options.MOST, help="Rounds to run; each engine has a turn in each."),
    runs: int | None = Option(
        None,
        min=1,
        max=options.MOST,
        help=f"Inferences to time with each engine; default: {RUNS_ON_DEVICES} for boards with a device, else as "
        "many as fit into 0.1 s each round.",
    ),
    batch: str | None = Option(None, metavar="N,N,...", help="Measure these batch sizes: the inputs' first dimension."),
    tuned: str | None = Option(
        None,
        metavar="BOARD|DIR",
        help="Build with these tuning records, and also measure edgedeploy without any.",
        autocompletion=options.complete_records,
    ),
    profile: bool = Option(
        False, "--profile", help="Also measure the time by function, over 10 inferences, if the engine reports it."
    ),
    energy: bool = Option(False, "--energy", help="Also measure the energy of inferences, if the board reports power."),
    columns: str | None = Option(
        None,
        metavar="NAMES",
        help="Columns of the engines' table: median,compile,load,energy,power,memory,size,p99,first,per-second,"
        "deviation,mean,p90,difference,top-1, or all; default: those that fit.",
        autocompletion=complete_columns,
    ),
    importing: options.Importing,
    overrides: Overriding,
    markdown: bool = Option(False, "--markdown", help="Print tables in Markdown."),
    report: Path | None = options.file_option(
        None, "--report", what="Also write HTML with charts; needs edgedeploy[report]."
    ),
) -> None:
    """Measure networks against other inference engines.

    Their runs are interleaved, with the same number of threads.

    An inference is timed from the inputs in memory to the outputs in memory. For boards with a device, the time of its
    kernels is shown as well; OpenVINO then uses a GPU too, if there is one.

    A network that fails does not stop the others: the end lists it with the reason (docs/exit-codes.md).

    An engine that is not installed (`pip install edgedeploy[bench]`; `edgedeploy[bench-torch]` for PyTorch, which is
    large; `edgedeploy[bench-gpu]` for NVIDIA's graphics processors) or cannot run a network is named and left out.
    Networks of the zoo that edgedeploy can write itself get random weights if their files are not available, and the
    report says so.

    The second table has a line for each engine on each network: the time of its compiler or converter, the time to load
    the network without importing the engine, the memory of its process while it ran, and the size of the files that it
    reads. `--columns` selects columns, and `--json` prints all. With `--batch`, times are those of a whole batch, and
    `per second` counts its images. A batch size that exporters wrote into constants is changed. A network whose images
    would then change each other's results is left out, as is an engine without batches.

    `--report` writes all of it as a page with charts, and `edgedeploy bench compare` shows what changed between two
    outputs of `--json`.

    On a board over SSH, times are taken there, and outputs are compared here. Of the other engines, those named with
    `--against` take turns there too: ncnn, onnxruntime, mnn and litert. Pip downloads their wheels here for the board's
    Python, which it must have (python3); they are removed from the board at the end. An engine that the board's Python
    or CPU cannot load is named with the reason. `--host local` measures code for another board on this machine, next to
    all engines.

    With --energy, each engine runs for some seconds more while the board's power is read: by a sensor in its supply
    line (INA219 and the like), by the power chip of a Raspberry Pi 5, or by the processor's counters on x86. The report
    says which, and whether that covers the whole board.

    \b
    Examples:
      edgedeploy bench digits
      edgedeploy bench squeezenet_v1.1 pfld --against onnxruntime,ncnn --threads 2
      edgedeploy bench digits mobilenet_v1 --board rpi4 --host pi@10.0.0.7 --against ncnn,onnxruntime
      edgedeploy bench mobilenet_v1 --batch 1,4,16 --columns median,per-second,compile
      edgedeploy bench mobilenet_v1 --profile --against onnxruntime,openvino
      edgedeploy bench retinaface --board rpi5 --energy --against ncnn
      edgedeploy bench models compare --rounds 3  # a network that is called compare
      edgedeploy bench resnet18 resnet50 --board local-opencl --against onnxruntime,openvino,torch
    """
    from edgedeploy.api.measuring import bench as measured
    from edgedeploy.benchmarking.tables import as_markdown, columns_called
    from edgedeploy.target.resolved import resolve

    shown = columns_called(None if columns is None else _names(columns))
    if console.as_json() and markdown:
        raise InputError("--json and --markdown are two forms of the same report", hints=["ask for one of them"])
    importing.check_one(models, "measured")
    found = measured(
        models,
        board=resolve(board, overrides.fields),
        **where.options,
        against=None if against is None else _names(against),
        threads=threads,
        rounds=rounds,
        runs=runs,
        batches=options.parse_batches(batch),
        tuned=tuned,
        shapes=importing.shapes,
        options=importing.options,
        energy=energy,
        profile=profile,
        page=report,
        progress=console.shown_progress(),
    )
    if markdown:
        console.print_lines(as_markdown(found, shown).splitlines())
    else:
        console.print_result(found.to_dict(), *_as_text(found, shown, fitting=columns is None))
    console.conclude([*((case, None) for case in found.cases), *found.failed.items()])


@app.command()
def compare(
    before: Path = Argument(..., metavar="BEFORE", help="A file printed by `edgedeploy bench --json`."),
    after: Path = Argument(..., metavar="AFTER", help="Another, of a later day, version or machine."),
    fail_above: float | None = Option(
        None,
        metavar="RATIO",
        min=1.0,
        help="Exit with code 28 if an engine takes more than RATIO times as long as before, beyond chance.",
    ),
    engine: str = Option("edgedeploy", metavar="ENGINE", help="The engine that --fail-above checks."),
) -> None:
    """Show what changed between two reports of `edgedeploy bench --json`, and which changes are more than chance.

    By Mann and Whitney's test: how often would chance alone order the medians of all rounds like this? Results below
    0.05, corrected for the number of changes by Holm's method, count as slower or quicker. Measure ten rounds or more.
    Two runs of a program may differ by a few percent more than their rounds do: leave room for that in --fail-above.

    Example: edgedeploy bench digits --json > a.json

    Example: edgedeploy bench compare a.json b.json --fail-above 1.05
    """
    from edgedeploy.benchmarking.comparison import change_table, compare_reports, read_report

    found = compare_reports(read_report(before), read_report(after))
    slower = found.slower(fail_above, engine) if fail_above is not None else []
    (titles, *rows), ratios = change_table(found), found.mean_ratios()
    console.print_text(
        console.as_table(titles, rows, right=titles[2:-1]),
        *(f"{name}: {significant(ratio)} of the time before, geometric mean" for name, ratio in ratios.items()),
        *(f"gone: {each}" for each in found.gone),
        *(f"new: {each}" for each in found.new),
        *(f"note: {note}" for note in found.notes),
    )
    if slower:
        worst = max(slower, key=lambda change: change.ratio)
        raise SlowerError(
            f"{engine} became slower than {fail_above:g} times the time before on {', '.join(c.case for c in slower)}",
            why=f"{worst.case}: {significant(worst.before_ms)} ms before, {significant(worst.after_ms)} after",
        )
    console.print_result(found.to_dict())


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _as_text(report: Report, columns: Sequence[Column], *, fitting: bool) -> Iterator[str | Table]:
    """The report as tables; with `fitting`, only the columns that fit on the terminal."""
    from edgedeploy.benchmarking.report import heading, notes
    from edgedeploy.benchmarking.tables import MOST_FUNCTIONS, profile_tables, tables
    from edgedeploy.runtime.profile import NAMES

    yield heading(report)
    for title, (titles, *rows) in tables(report, columns, console.stdout().width if fitting else None):
        yield from ("", title, console.as_table(titles, rows, right=titles[1:]))
    for title, (titles, *rows) in profile_tables(report, MOST_FUNCTIONS):
        yield from ("", title, console.as_table(titles, rows, right=[each for each in titles if each not in NAMES]))
    yield from (f"note: {note}" for note in notes(report))
