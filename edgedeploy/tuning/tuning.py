"""`edgedeploy tune`: boards and workers are started, and networks are tuned one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.compile.configuration import untuned
from edgedeploy.errors import EdgedeployError, InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.records.best import tuned_by
from edgedeploy.records.database import Records
from edgedeploy.records.schema import Header, Listener, RunEnded, RunStarted, default_folder
from edgedeploy.remote.address import Address, addresses
from edgedeploy.rpc.device import require_fitting_device
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, require_device, tracker
from edgedeploy.runtime.opening import Place
from edgedeploy.target.board import Board
from edgedeploy.target.facts import VIRTUAL
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.conditions import governor, require_governor_name
from edgedeploy.tuning.finals import Comparison
from edgedeploy.tuning.measuring import Farm, Measurer
from edgedeploy.tuning.remote import Evaluation
from edgedeploy.tuning.run import Options, TuningRun
from edgedeploy.tuning.task import Task, selected, tasks_of
from edgedeploy.zoo.source import Source, find_source, note_weights

# A network that takes this many times as long as before is slower; less is chance.
MOST_LOSS = 1.01

# How long to look for a device of somebody else's tracker.
_DEVICE_S = 10


@dataclass(frozen=True)
class Boards:
    """The boards that measure."""

    place: Place  # of the first board; networks are compared there
    hosts: Sequence[str] = ()  # the addresses of all, if not the profile's own
    rpc_tracker: Endpoint | None = None  # a tracker that has them already, under `rpc_key`, instead of addresses
    rpc_key: str | None = None
    governor: str | None = None  # of their processors while they measure

    @property
    def board(self) -> ResolvedBoard:
        """Their profile."""
        return self.place.board

    @property
    def virtual(self) -> bool:
        """Whether virtual boards measure: this machine's times, under an emulator mostly."""
        if self.rpc_tracker or self.hosts:
            return any(host.startswith(VIRTUAL) for host in self.hosts)
        return self.place.is_virtual

    def records_folder(self, progress: Progress = SILENT) -> Path:
        """Where their records go by default; builds use records of virtual boards only on request."""
        if not self.virtual:
            return default_folder(self.board.label)
        name = f"{self.board.label}-virtual"
        progress.note(
            f"a virtual board measures: its records go to {name}, which builds for {self.board.label} do not use "
            f"without --tuning-records {name}"
        )
        return default_folder(name)


def found_tasks(
    models: Sequence[str],
    board: Board,
    numbers: str = "all",
    *,
    shapes: Shapes | None = None,
    options: ImportOptions = AS_THE_FILE_SAYS,
    progress: Progress = SILENT,
) -> list[tuple[Source, list[Task]]]:
    """Networks, names of the zoo or files, with their tasks to tune: those that `selected` finds by `numbers`."""
    sources = [find_source(model, shapes, progress, options) for model in models]
    found = []
    for source in sources:
        note_weights(source, options, progress)
        with progress.stage(f"find the tasks of {source.name}"):
            tasks = tasks_of(source.read(), board)
            if not tasks:
                nothing = "no convolution and no dense layer"
                why = f"the board's device runs {nothing} of it" if board.device else f"it has {nothing}"
                raise InputError(f"{source.name} has nothing to tune", why=why)
            found.append((source, selected(tasks, numbers)))
    return found


def tune_all(
    networks: Sequence[tuple[Source, Sequence[Task]]],  # as `found_tasks` returns them
    boards: Boards,
    folder: Path | None = None,  # of the records; the boards' own by default
    *,
    options: Options,
    evaluation: Evaluation,
    warm_start: Sequence[Path] = (),  # folders of other records, which the search learns from
    compare: bool = True,  # whether the whole network is measured at the end; a tracker's devices run functions alone
    listener: Listener = lambda event: None,
    progress: Progress = SILENT,
    stopping: Callable[[], bool] = lambda: False,  # returns whether the user stopped the run
) -> list[RunEnded]:
    """Tune networks one after the other, with boards and workers that keep running; the result of each.

    Trials that were measured before an error are recorded.
    """
    folder = folder or boards.records_folder(progress)
    header = Header.of(boards.board.label, boards.board.profile.target())

    def tune(source: Source, tasks: Sequence[Task]) -> RunEnded:
        began = time.monotonic()
        others = [Records.open(other) for other in warm_start]
        with Records.open(folder, header) as records:
            run = TuningRun(tasks, records, builder, farm, options, listener, others=others, stopping=stopping)
            started = RunStarted(
                run=run.identity,
                model=source.name,
                board=boards.board.label,
                hosts=farm.names,
                tuner=options.tuner,
                seed=options.seed,
                folder=str(folder),
                tasks=list(map(run.summary, tasks)),
                conditions=next(iter(farm.conditions().values()), None),
            )
            records.note(started)
            listener(started)
            run.run()
            before_ms = after_ms = None
            if compare and not boards.rpc_tracker and not stopping():
                comparison = Comparison(source, boards.place, progress, stopping)
                try:
                    before_ms, after_ms = _concluded(run, records, comparison) or (None, None)
                except EdgedeployError as error:
                    progress.note(f"the whole network was not measured: {error.cause}")
            ended = RunEnded(
                run=run.identity,
                results=list(run.finals.results.values()),
                before_ms=before_ms,
                after_ms=after_ms,
                seconds=time.monotonic() - began,
                interrupted=stopping(),
            )
            records.note(ended)
        listener(ended)
        return ended

    with ExitStack() as stack:
        builder, farm = _started(stack, boards, evaluation, progress)
        return [tune(source, tasks) for source, tasks in networks if not stopping()]


def _started(stack: ExitStack, boards: Boards, evaluation: Evaluation, progress: Progress) -> tuple[Builder, Farm]:
    """Connect to the boards and start workers, which end with `stack`."""
    profile = boards.board.profile
    if boards.governor:
        require_governor_name(boards.governor)
    if boards.rpc_tracker:
        endpoint, key = boards.rpc_tracker, boards.rpc_key or boards.board.label
        servers: list[BoardServer] = []
        require_fitting_device(endpoint, key, profile, timeout_s=_DEVICE_S, progress=progress)
        devices = require_device(endpoint, key).total
    else:
        key, place = f"edgedeploy-{token_hex(8)}", boards.place
        places: Sequence[Address | None] = [None]  # this machine
        if place.remote or boards.hosts:
            places = addresses(boards.board, boards.hosts, virtual=place.virtual, progress=progress)
        with progress.stage("start the tracker"):
            endpoint = stack.enter_context(tracker(progress=progress))
        servers = [
            stack.enter_context(BoardServer(each, profile, endpoint, key, progress, strict=place.strict))
            for each in places
        ]
        require_device(endpoint, key, patient=True)
        devices = len(servers)
    if boards.governor:
        for server in servers:
            stack.enter_context(governor(server.run, boards.governor, progress=progress))
    with progress.stage("start workers"):
        builder = stack.enter_context(Builder(profile))
        measurer = stack.enter_context(Measurer(endpoint, key, evaluation, devices=devices, threads=profile.cores))
        builder.start()
        measurer.start()
    return builder, Farm(servers, measurer, progress)


def _concluded(run: TuningRun, records: Records, comparison: Comparison) -> tuple[float, float] | None:
    """Measure the finalists of all tasks in the network, and the network before and after; None if the user ended it.

    If the network is not quicker, builds take the defaults: alone, a function finds other data in the caches.
    """
    if variants := run.finals.variants():
        times = comparison.function_times_s(variants)
        if times is None:
            return None
        run.finals.settle(times)
    compared = comparison.inference_times_ms([untuned, tuned_by(records)])
    if compared is None:
        return None
    before_ms, after_ms = compared
    if after_ms > MOST_LOSS * before_ms:
        run.finals.withdraw()
        comparison.progress.note("the whole network is not faster with the best candidates: builds keep the defaults")
    return before_ms, after_ms
