"""`edgedeploy tune`: candidates of a network's functions, measured on the board."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.groups import USUAL, ModelsOrCommand
from edgedeploy.cli.options import (
    BoardOption,
    EpsilonOption,
    InputShapeOption,
    JsonOption,
    RecordsArgument,
    SetOption,
    Weights,
    WeightsOption,
    WhereAll,
    check_one_model,
    complete_model,
    complete_records,
    file_option,
    import_options,
    parse_shapes,
)
from edgedeploy.cli.overrides import overridable

if TYPE_CHECKING:
    from edgedeploy.board import Board, Overrides
    from edgedeploy.resolved import ResolvedBoard
    from edgedeploy.tuning.task import Task
    from edgedeploy.tuning.tuning import Boards
    from edgedeploy.zoo.source import Source

app = typer.Typer(
    cls=ModelsOrCommand,
    help="Measure candidates of a network's functions on the board, and record the best for builds.",
    no_args_is_help=True,
)


class Tuner(str, Enum):
    """How candidates are chosen."""

    xgb = "xgb"
    ga = "ga"
    random = "random"
    gridsearch = "gridsearch"


@dataclass(frozen=True)
class _Devices:
    """The devices that candidates are measured on, if not those of the boards, and how boards run meanwhile."""

    rpc_tracker: Annotated[
        str | None,
        typer.Option("--rpc-tracker", metavar="HOST:PORT", help="Measure on the devices of this tracker."),
    ] = None
    rpc_key: Annotated[
        str | None,
        typer.Option("--rpc-key", metavar="KEY", help="Key of the tracker's devices; the board's name by default."),
    ] = None
    set_governor: Annotated[
        str | None,
        typer.Option(
            "--set-governor",
            metavar="NAME",
            help="Set the board's CPU frequency governor, such as performance, while measuring.",
        ),
    ] = None

    def boards(self, board: ResolvedBoard, where: WhereAll) -> Boards:
        """The boards of a kind.

        Raises:
            InputError: options contradict each other.
        """
        from edgedeploy.errors import InputError
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
    """How candidates are chosen: the fields of `tune.run.Options`."""

    tuner: Annotated[
        Tuner,
        typer.Option(
            "--tuner",
            help="xgb: evolution guided by a cost model that learns (XGBoost); ga: evolution alone; random; "
            "gridsearch: all candidates in their order.",
        ),
    ] = Tuner.xgb
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=100_000, help="Trials per task, including those of earlier runs.")
    ] = 64
    early_stopping: Annotated[
        int | None,
        typer.Option("--early-stopping", metavar="N", min=1, help="Stop a task after N trials without improvement."),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Continue from the recorded trials, or start over.")
    ] = True
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search's random choices.")] = 0


@dataclass(frozen=True)
class _Timing:
    """How a candidate is measured: fields of `tune.remote.Evaluation`."""

    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="S", min=0.1, max=3600, help="Time limit for measuring one candidate, in seconds."
        ),
    ] = 10.0
    number: Annotated[int, typer.Option("--number", min=1, max=10_000, help="Runs averaged in one measurement.")] = 1
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=10_000, help="Measurements per candidate.")] = 10
    min_repeat_ms: Annotated[
        int,
        typer.Option(
            "--min-repeat-ms", min=0, max=60_000, help="Least duration of one measurement; runs are added to reach it."
        ),
    ] = 0


@app.command(USUAL)
@overridable
def tune_models(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Names of the zoo, or networks' files.", autocompletion=complete_model),
    ],
    board: BoardOption = "local",
    *,
    where: WhereAll,
    devices: _Devices,
    search: _Search,
    timing: _Timing,
    tasks: Annotated[
        str, typer.Option("--tasks", metavar="list|all|0,2,3-5", help="Which tasks to tune; list shows them.")
    ] = "all",
    tuning_records: Annotated[
        list[str] | None,
        typer.Option(
            "--tuning-records",
            metavar="BOARD|DIR",
            help="Warm start: learn from these records too, of any board; several may be given.",
            autocompletion=complete_records,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder of records; the board's own by default.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="At the end, measure the whole network untuned and tuned.")
    ] = True,
    input_shape: InputShapeOption = None,
    set_inputs: SetOption = None,
    weights: WeightsOption = Weights.file,
    epsilon: EpsilonOption = None,
    overrides: Overrides,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON value for each event.")] = False,
) -> None:
    """Tune networks: build each convolution and product in several configurations, and measure them on the board.

    The results are kept in the board's tuning records, which `build` uses from then on. Ctrl-C ends a run after the
    current batch; the same command resumes it. `edgedeploy tune report` writes a page about the results.

    Examples: edgedeploy tune squeezenet_v1.1 --board rpi4; edgedeploy tune net.onnx --board rpi4 --trials 200

    Examples: edgedeploy tune retinaface --tasks list; edgedeploy tune retinaface --tasks 0,2-4 --tuner random

    Example: edgedeploy tune yolo-fastest --board rpi4 --host pi@10.0.0.5 --host pi@10.0.0.6 --set-governor performance

    Example: edgedeploy tune models report --board rpi4, for a network that is called report
    """
    from edgedeploy.cli.console import until_interrupted
    from edgedeploy.cli.tuning_display import display
    from edgedeploy.compile.targets import check_target
    from edgedeploy.records.header import find_folder
    from edgedeploy.resolved import resolve
    from edgedeploy.tuning.remote import Evaluation
    from edgedeploy.tuning.run import Options
    from edgedeploy.tuning.tuning import found_tasks, tune_all
    from edgedeploy.zoo.source import find_source, note_weights

    shapes, importing = parse_shapes(input_shape), import_options(weights, epsilon, set_inputs)
    check_one_model(models, "tuned", shapes, importing)
    resolved = resolve(board, overrides)
    measuring, profile = devices.boards(resolved, where), resolved.profile
    check_target(profile)
    known = [find_folder(each) for each in tuning_records or []]
    options = Options(**{**vars(search), "tuner": search.tuner.value})
    evaluation = Evaluation.on(profile, **vars(timing))
    with display(json_output) as shown:
        if tasks == "list":
            sources = [find_source(model, shapes, shown, importing) for model in models]
            for source in sources:
                note_weights(source, importing, shown)
            shown.close()
            _list_tasks(sources, profile, json_output=json_output)
            return
        found = found_tasks(models, profile, tasks, shapes=shapes, options=importing, progress=shown)
        with until_interrupted() as stopping:
            tune_all(
                found,
                measuring,
                output,
                options=options,
                evaluation=evaluation,
                warm_start=known,
                compare=compare,
                listener=shown,
                progress=shown,
                stopping=stopping,
            )
            if stopping():
                raise typer.Exit(130)


@app.command()
def report(
    records: RecordsArgument,
    output: Annotated[
        Path | None, file_option("--output", "-o", what="The HTML file; report.html in the folder by default.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write an HTML page about tuning records: a curve for each task, times before and after, the board's temperature.

    It needs Matplotlib: pip install 'edgedeploy[report]'.

    Example: edgedeploy tune report rpi4 -o report.html
    """
    from edgedeploy.cli.console import print_json, stdout
    from edgedeploy.records.header import find_folder
    from edgedeploy.tuning.report.page import write_report

    folder = find_folder(records)
    written = write_report(folder, output or folder / "report.html")
    if json_output:
        print_json({"folder": str(folder), "file": str(written)})
    else:
        stdout().print(str(written))


def _list_tasks(sources: list[Source], profile: Board, *, json_output: bool) -> None:
    """List the functions that can be tuned."""
    from edgedeploy.cli.console import print_json, print_table
    from edgedeploy.tuning.task import tasks_of

    found = {source.name: tasks_of(source.read(), profile) for source in sources}
    if json_output:
        print_json({name: [_described(task) for task in tasks] for name, tasks in found.items()})
        return
    titles = ["task", "function", "weight", "MFLOP", "candidates"]
    for name, tasks in found.items():
        rows = (
            [str(task.number), task.name, str(task.weight), f"{task.mflop:.2f}", str(len(task.candidates))]
            for task in tasks
        )
        print_table(titles, rows, right=set(titles) - {"function"}, title=name)


def _described(task: Task) -> dict[str, Any]:
    return {
        "number": task.number,
        "name": task.name,
        "workload": task.key,
        "weight": task.weight,
        "mflop": task.mflop,
        "candidates": len(task.candidates),
    }
