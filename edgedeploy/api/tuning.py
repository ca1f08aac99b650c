"""Tuning: candidates of a network's functions, measured on the board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.api.packages import AnyBoard, resolved
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.compile.output.targets import check_target
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.records.schema import Listener, RunEnded, find_folder
from edgedeploy.runtime.opening import Place
from edgedeploy.tuning.remote import Evaluation
from edgedeploy.tuning.run import Options
from edgedeploy.tuning.tuning import Boards, found_tasks, tune_all

if TYPE_CHECKING:
    from edgedeploy.api.boards import Board


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of tuning a network."""

    network: str
    folder: Path  # the tuning records, which builds use from then on
    ended: RunEnded  # the tasks with their times, and the whole network's before and after, in ms; None if not measured

    @property
    def before_ms(self) -> float | None:
        """The time of one inference of the untuned network, in ms."""
        return self.ended.before_ms

    @property
    def after_ms(self) -> float | None:
        """The time of one inference of the tuned network, in ms."""
        return self.ended.after_ms

    def __repr__(self) -> str:
        times = [
            f"{value:.3f} ms" if value is not None else "not measured" for value in (self.before_ms, self.after_ms)
        ]
        return f"<edgedeploy.Tuned {self.network}: {times[0]} before, {times[1]} after; records in {self.folder}>"

    def to_dict(self) -> dict[str, Any]:
        """The same, as `tune --json` prints the end of a run."""
        return {"network": self.network, "folder": str(self.folder), **self.ended.model_dump(mode="json")}


def tune(
    network: str | PathLike[str],
    *,
    board: AnyBoard = "local",
    host: str | Sequence[str] = (),
    virtual: bool | None = None,
    strict_host_key: bool = False,
    connection: Board | None = None,
    tasks: str = "all",
    options: Options | None = None,
    evaluation: Evaluation | None = None,
    records: str | PathLike[str] | None = None,
    warm_start: Sequence[str] = (),
    compare: bool = True,
    shapes: Shapes | None = None,
    importing: ImportOptions = AS_THE_FILE_SAYS,
    listener: Listener = lambda event: None,
    progress: Progress = SILENT,
    stopping: Callable[[], bool] = lambda: False,
) -> Tuned:
    """Build a network's convolutions and products in several configurations, and measure them on the board.

    The results are recorded: `build` uses them from then on.

    Args:
        network: a name of the zoo, or a network's file.
        host: the addresses of one or several boards of this kind, if not the profile's.
        virtual: whether to use the profile's virtual board; as configured if None.
        strict_host_key: whether to refuse boards with unknown host keys.
        connection: a connected board, instead of the four arguments above.
        tasks: the functions to tune: `all`, or numbers such as `0,2,3-5`.
        options: how candidates are chosen: tuner, trials, early stopping, whether trials of earlier runs count, seed.
        evaluation: how a candidate is timed; as for the command unless given.
        records: the folder of records; the board's own unless given.
        warm_start: boards or folders whose records the search learns from.
        compare: whether to measure the whole network at the end.
        shapes: shapes of inputs that the network's file leaves open, by name.
        importing: what else it leaves open.
        listener: is notified of each measurement.
        stopping: called now and then; if it returns True, tuning ends, and the records keep the results so far.

    Raises:
        InputError: both a connection and a board or host are given, or the network has nothing to tune.
        EdgedeployError: of any other kind; the records keep the results until then.
    """
    hosts = [host] if isinstance(host, str) else list(host)
    if connection is not None:
        if hosts or virtual or board != "local":
            raise InputError("a connection does not go with a board or a host", why="it says which board to use")
        profile, hosts = connection.profile, [connection.address]
    else:
        profile = resolved(board)
    check_target(profile.profile)
    place = Place(profile, hosts[0] if hosts else None, virtual, strict_host_key)
    found = found_tasks([fspath(network)], profile.profile, tasks, shapes=shapes, options=importing, progress=progress)
    boards = Boards(place, hosts)
    folder = Path(records) if records else boards.records_folder(progress)
    ended = tune_all(
        found,
        boards,
        folder,
        options=options or Options(),
        evaluation=evaluation or Evaluation.on(profile.profile),
        warm_start=[find_folder(each) for each in warm_start],
        compare=compare,
        listener=listener,
        progress=progress,
        stopping=stopping,
    )
    if not ended:
        raise InputError(f"tuning {fspath(network)} was stopped before it began")
    return Tuned(found[0][0].name, folder, ended[0])
