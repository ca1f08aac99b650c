"""`edgedeploy tune`: candidates of a network's functions, measured on the board."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from edgedeploy.cli.options import (
    BoardOption,
    EpsilonOption,
    HostsOption,
    InputShapeOption,
    RecordsArgument,
    StrictOption,
    VirtualOption,
    Weights,
    WeightsOption,
    complete_model,
    complete_records,
    file_option,
    import_options,
    parse_shapes,
)
from edgedeploy.cli.overrides import overridable

if TYPE_CHECKING:
    from edgedeploy.board import Board, Overrides
    from edgedeploy.source import Source
    from edgedeploy.tune.task import Task

_RUN = "models"


class _ModelsOrCommand(TyperGroup):
    """A group whose first argument may be a model: what is none of its commands is tuned."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ModelsOrCommand,
    help="Measure candidates of a network's functions on the board, and record the best for builds.",
    no_args_is_help=True,
)


class Tuner(str, Enum):
    """How candidates are chosen."""

    xgb = "xgb"
    ga = "ga"
    random = "random"
    gridsearch = "gridsearch"


@app.command(_RUN)
@overridable
def tune_models(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Names of the zoo, or networks' files.", autocompletion=complete_model),
    ],
    board: BoardOption = "local",
    host: HostsOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    tuner: Annotated[
        Tuner,
        typer.Option(
            "--tuner",
            help="xgb: evolution guided by a model of cost that learns (XGBoost); ga: evolution alone; random; "
            "gridsearch: all candidates in their order.",
        ),
    ] = Tuner.xgb,
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=100_000, help="Candidates of each task, those of earlier runs too.")
    ] = 64,
    early_stopping: Annotated[
        int | None,
        typer.Option("--early-stopping", metavar="N", min=1, help="End a task after N trials without a better one."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds that measuring one candidate may take.")
    ] = 10.0,
    number: Annotated[int, typer.Option("--number", min=1, max=10_000, help="Runs of which one time is the mean.")] = 1,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=10_000, help="Times of one candidate.")] = 10,
    min_repeat_ms: Annotated[
        int, typer.Option("--min-repeat-ms", min=0, max=60_000, help="Let the runs of one time take so long.")
    ] = 0,
    tasks: Annotated[
        str, typer.Option("--tasks", metavar="list|all|0,2,3-5", help="Which tasks to tune; list shows them.")
    ] = "all",
    tuning_records: Annotated[
        list[str] | None,
        typer.Option(
            "--tuning-records",
            metavar="BOARD|DIR",
            help="Begin with what other records know, of the same tasks or of another board; several may be given.",
            autocompletion=complete_records,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder of records; the board's own by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on from the trials that are recorded, or begin anew.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", help="Of the search's random choices.")] = 0,
    rpc_tracker: Annotated[
        str | None,
        typer.Option("--rpc-tracker", metavar="HOST:PORT", help="Measure on the devices of this tracker."),
    ] = None,
    rpc_key: Annotated[
        str | None,
        typer.Option("--rpc-key", metavar="KEY", help="Of the tracker's devices; the board's name by default."),
    ] = None,
    set_governor: Annotated[
        str | None,
        typer.Option(
            "--set-governor",
            metavar="NAME",
            help="Have the board's processors run under this governor, as performance, while it measures.",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Measure the whole network before and after, at the end.")
    ] = True,
    input_shape: InputShapeOption = None,
    weights: WeightsOption = Weights.file,
    epsilon: EpsilonOption = None,
    *,
    overrides: Overrides,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON value for each event.")] = False,
) -> None:
    """Tune networks: each function with a layer is built in several ways, which are measured on the board.

    What is found lies in the board's tuning records, which `build` uses from then on. Ctrl-C ends a run after the
    batch that is being measured; the same command goes on where it ended. `edgedeploy tune report` writes a page about
    what was found.

    Examples: edgedeploy tune squeezenet_v1.1 --board rpi4; edgedeploy tune net.onnx --board rpi4 --trials 200

    Examples: edgedeploy tune retinaface --tasks list; edgedeploy tune retinaface --tasks 0,2-4 --tuner random

    Example: edgedeploy tune yolo-fastest --board rpi4 --host pi@10.0.0.5 --host pi@10.0.0.6 --set-governor performance

    Example: edgedeploy tune models report --board rpi4, for a network that is called report
    """
    from edgedeploy.cli.console import until_interrupted
    from edgedeploy.cli.tuning_display import display
    from edgedeploy.compile.targets import check_target
    from edgedeploy.errors import InputError
    from edgedeploy.resolved import resolve
    from edgedeploy.rpc.tracker import Endpoint
    from edgedeploy.runtime.opening import Place
    from edgedeploy.source import find_source, note_weights
    from edgedeploy.tune.header import default_folder, find_folder
    from edgedeploy.tune.remote import COMPILING_S, Evaluation
    from edgedeploy.tune.run import Options
    from edgedeploy.tune.tuning import Boards, chosen_tasks, tune, workshop

    if rpc_tracker and (host or virtual or set_governor):
        raise InputError("--rpc-tracker does not go with --host, --virtual and --set-governor")
    if rpc_key and not rpc_tracker:
        raise InputError("--rpc-key needs --rpc-tracker")
    shapes, importing = parse_shapes(input_shape), import_options(weights, epsilon)
    if shapes and len(models) > 1:
        raise InputError("--input-shape needs one model", why=f"{len(models)} are to be tuned")
    resolved = resolve(board, overrides)
    profile = resolved.profile
    check_target(profile)
    known = [find_folder(each) for each in tuning_records or []]
    boards = Boards(
        place=Place(resolved, host[0] if host else None, virtual, strict_host_key),
        hosts=host or [],
        rpc_tracker=Endpoint.parse(rpc_tracker) if rpc_tracker else None,
        rpc_key=rpc_key,
        governor=set_governor,
    )
    options = Options(
        tuner=tuner.value,
        trials=trials,
        early_stopping=early_stopping,
        resume=resume,
        seed=seed,
    )
    evaluation = Evaluation(
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        timeout_s=timeout,
        displaced_bytes=2 * profile.cache.l2_kib * 1024,
        opencl=profile.opencl.device if profile.opencl else None,
        compiling_s=COMPILING_S if profile.opencl else 0,
    )
    with display(json_output) as shown:
        sources = [find_source(model, shapes, shown, importing) for model in models]
        for source in sources:
            note_weights(source, importing, shown)
        if tasks == "list":
            shown.close()
            _list_tasks(sources, profile, json_output=json_output)
            return
        chosen = []
        for source in sources:
            with shown.stage(f"find the tasks of {source.name}"):
                chosen.append(chosen_tasks(source, profile, tasks))
        folder = output or default_folder(resolved.label)
        with until_interrupted() as stopping, workshop(boards, evaluation, shown) as shop:
            for source, its_tasks in zip(sources, chosen, strict=True):
                if stopping():
                    break
                tune(
                    source,
                    its_tasks,
                    shop,
                    options,
                    folder,
                    shown,
                    shown,
                    known=known,
                    comparing=compare and not rpc_tracker,
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
) -> None:
    """Write an HTML page about tuning records: a curve for each task, before and after, the board's temperature.

    Example: edgedeploy tune report rpi4 -o report.html
    """
    from edgedeploy.cli.console import stdout
    from edgedeploy.tune.header import find_folder
    from edgedeploy.tune.report import write_report

    folder = find_folder(records)
    stdout().print(str(write_report(folder, output or folder / "report.html")))


def _list_tasks(sources: list[Source], profile: Board, *, json_output: bool) -> None:
    """Show what there is to tune."""
    from edgedeploy.cli.console import print_json, stdout
    from edgedeploy.tune.task import tasks_of

    found = {source.name: tasks_of(source.read(), profile) for source in sources}
    if json_output:
        print_json({name: [_described(task) for task in tasks] for name, tasks in found.items()})
        return
    from rich.table import Table

    for name, tasks in found.items():
        table = Table(box=None, pad_edge=False, title=name, title_justify="left")
        for title in ("task", "function", "weight", "MFLOP", "candidates"):
            table.add_column(title, justify="left" if title == "function" else "right")
        for task in tasks:
            mflop, candidates = f"{task.mflop:.2f}", str(len(task.candidates))
            table.add_row(str(task.number), task.name, str(task.weight), mflop, candidates)
        stdout().print(table)


def _described(task: Task) -> dict[str, Any]:
    return {
        "number": task.number,
        "name": task.name,
        "workload": task.key,
        "weight": task.weight,
        "mflop": task.mflop,
        "candidates": len(task.candidates),
    }
