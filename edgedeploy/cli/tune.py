"""`edgedeploy tune`: candidates of a network's functions, measured on the board."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Exit, Option

from edgedeploy.base.interruption import INTERRUPTED
from edgedeploy.cli import options
from edgedeploy.cli.console import as_table, print_result, print_text, until_interrupted
from edgedeploy.cli.groups import USUAL, Commands, ModelsOrCommand
from edgedeploy.cli.overrides import Overriding
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    from edgedeploy.target.board import Board
    from edgedeploy.target.resolved import ResolvedBoard
    from edgedeploy.tuning.tuning import Boards
    from edgedeploy.zoo.source import Source

app = Commands(cls=ModelsOrCommand, help="Tune a network: measure its functions on the board.", no_args_is_help=True)


@dataclass(frozen=True)
class _Devices:
    """The devices that measure candidates, if not those of the boards, and the boards' governor meanwhile."""

    rpc_tracker: Annotated[str | None, Option(metavar="HOST:PORT", help="Measure on the devices of this tracker.")] = (
        None
    )
    rpc_key: Annotated[
        str | None, Option(metavar="KEY", help="Key of the tracker's devices; default: the board's name.")
    ] = None
    set_governor: Annotated[
        str | None,
        Option(metavar="NAME", help="Set the board's CPU frequency governor, such as performance, while measuring."),
    ] = None

    def boards(self, board: ResolvedBoard, where: options.WhereAll) -> Boards:
        """The boards of a kind."""
        from edgedeploy.rpc.tracker import Endpoint
        from edgedeploy.tuning.tuning import Boards

        if self.rpc_tracker and (where.host or where.virtual or self.set_governor):
            raise InputError("--rpc-tracker does not go with --host, --virtual and --set-governor")
        if self.rpc_key and not self.rpc_tracker:
            raise InputError("--rpc-key needs --rpc-tracker")
        return Boards(
            place=where.place(board),
            hosts=where.host or [],
            rpc_tracker=Endpoint.parse(self.rpc_tracker) if self.rpc_tracker else None,
            rpc_key=self.rpc_key,
            governor=self.set_governor,
        )


@dataclass(frozen=True)
class _Search:
    """How candidates are chosen: the fields of `tuning.run.Options`."""

    tuner: Annotated[
        Literal["xgb", "ga", "random", "gridsearch"],
        Option(
            help="xgb: evolution guided by a learned cost model (XGBoost); ga: evolution alone; random; gridsearch: "
            "all candidates in order."
        ),
    ] = "xgb"
    trials: Annotated[int, Option(min=1, max=100_000, help="Trials per task, including those of earlier runs.")] = 64
    early_stopping: Annotated[
        int | None, Option(metavar="N", min=1, help="Stop a task after N trials without improvement.")
    ] = None
    resume: Annotated[
        bool, Option("--resume/--no-resume", help="Continue from the recorded trials, or start over.")
    ] = True
    seed: Annotated[int, Option(help="Seed of the search's random choices.")] = 0


@dataclass(frozen=True)
class _Timing:
    """How a candidate is measured: fields of `tuning.remote.Evaluation`."""

    timeout_s: Annotated[
        float, Option("--timeout", metavar="S", min=0.1, max=3600, help="Time limit for one candidate, in seconds.")
    ] = 10.0
    number: Annotated[int, Option(min=1, max=10_000, help="Runs averaged in one measurement.")] = 1
    repeat: Annotated[int, Option(min=1, max=10_000, help="Measurements per candidate.")] = 10
    min_repeat_ms: Annotated[
        int, Option(min=0, max=60_000, help="Minimum duration of one measurement; runs are added to reach it.")
    ] = 0


@app.command(USUAL, json="Print one JSON value for each event.")
def tune_models(
    models: options.ModelsArgument,
    board: options.BoardOption = "local",
    *,
    where: options.WhereAll,
    devices: _Devices,
    search: _Search,
    timing: _Timing,
    tasks: str = Option("all", metavar="list|all|0,2,3-5", help="Tasks to tune; `list` prints them."),
    tuning_records: list[str] | None = Option(
        None,
        metavar="BOARD|DIR",
        help="Learn from these records too, of any board (warm start); repeat for several.",
        autocompletion=options.complete_records,
    ),
    output: Path | None = Option(None, "--output", "-o", help="Records folder; default: the board's own."),
    compare: bool = Option(True, "--compare/--no-compare", help="At the end, measure the network untuned and tuned."),
    importing: options.Importing,
    overrides: Overriding,
) -> None:
    """Tune networks: build each convolution and product in several configurations, and measure them on the board.

    The results are kept in the board's tuning records, which `build` uses from then on. Ctrl-C ends a run after the
    current batch; the same command resumes it. `edgedeploy tune report` writes a page about the results.

    Examples: edgedeploy tune squeezenet_v1.1 --board rpi4; edgedeploy tune net.onnx --board rpi4 --trials 200

    Examples: edgedeploy tune retinaface --tasks list; edgedeploy tune retinaface --tasks 0,2-4 --tuner random

    Example: edgedeploy tune yolo-fastest --board rpi4 --host pi@10.0.0.5 --host pi@10.0.0.6 --set-governor performance

    Example: edgedeploy tune models report --board rpi4, for a network that is called report
    """
    from edgedeploy.cli.tuning_display import display
    from edgedeploy.compile.output.targets import check_target
    from edgedeploy.records.schema import find_folder
    from edgedeploy.target.resolved import resolve
    from edgedeploy.tuning.remote import Evaluation
    from edgedeploy.tuning.run import Options
    from edgedeploy.tuning.tuning import found_tasks, tune_all
    from edgedeploy.zoo.source import find_source, note_weights

    shapes, reading = importing.shapes, importing.options
    importing.check_one(models, "tuned")
    resolved = resolve(board, overrides.fields)
    measuring, profile = devices.boards(resolved, where), resolved.profile
    check_target(profile)
    known = [find_folder(each) for each in tuning_records or []]
    evaluation = Evaluation.on(profile, **vars(timing))
    with display() as shown:
        if tasks == "list":
            sources = [find_source(model, shapes, shown, reading) for model in models]
            for source in sources:
                note_weights(source, reading, shown)
            shown.close()
            _list_tasks(sources, profile)
            return
        found = found_tasks(models, profile, tasks, shapes=shapes, options=reading, progress=shown)
        with until_interrupted() as stopping:
            tune_all(
                found,
                measuring,
                output,
                options=Options(**vars(search)),
                evaluation=evaluation,
                warm_start=known,
                compare=compare,
                listener=shown,
                progress=shown,
                stopping=stopping,
            )
            if stopping():
                raise Exit(INTERRUPTED)


@app.command()
def report(
    records: options.RecordsArgument,
    output: Path | None = options.file_option(
        None, "--output", "-o", what="HTML file; default: report.html in the folder."
    ),
) -> None:
    """Write an HTML page about tuning records: a curve for each task, times before and after, the board's temperature.

    It needs Matplotlib: pip install 'edgedeploy[report]'.

    Example: edgedeploy tune report rpi4 -o report.html
    """
    from edgedeploy.records.schema import find_folder
    from edgedeploy.tuning.report.page import write_report

    folder = find_folder(records)
    written = write_report(folder, output or folder / "report.html")
    print_result({"folder": str(folder), "file": str(written)}, str(written))


def _list_tasks(sources: list[Source], profile: Board) -> None:
    from edgedeploy.tuning.task import tasks_of

    found: dict[str, list[dict[str, Any]]] = {}
    titles = ["task", "function", "weight", "MFLOP", "candidates"]
    for source in sources:
        found[source.name], rows = [], []
        for task in tasks_of(source.read(), profile):
            work = {"weight": task.weight, "mflop": task.mflop, "candidates": len(task.candidates)}
            found[source.name].append({"number": task.number, "name": task.name, "workload": task.key, **work})
            cells = [str(task.number), task.name, str(task.weight), f"{task.mflop:.2f}", str(len(task.candidates))]
            rows.append(cells)
        print_text(as_table(titles, rows, right=set(titles) - {"function"}, title=source.name))
    print_result(found)
