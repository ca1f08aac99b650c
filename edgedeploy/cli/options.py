"""Options and completions that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.errors import BoardConnectionError, InputError, OutputError
from edgedeploy.files import is_folder

if TYPE_CHECKING:
    from edgedeploy.board import Overrides
    from edgedeploy.frontends.format import ImportOptions, Shapes
    from edgedeploy.progress import Progress
    from edgedeploy.release.health import HealthCheck
    from edgedeploy.remote.address import Address
    from edgedeploy.resolved import ResolvedBoard
    from edgedeploy.runtime.opening import Place


MOST = 2**31 - 1  # of what is counted; more than anyone waits for, and TVM's timer takes it


def complete(*folders: str) -> Callable[[str], list[str]]:
    """What completes names of documents, by their folders, without reading them; the shell itself completes paths."""

    def beginning(incomplete: str) -> list[str]:
        from edgedeploy.catalog import names_in

        return [name for folder in folders for name in names_in(folder) if name.startswith(incomplete)]

    return beginning


complete_board = complete("boards")
complete_model = complete("models")


def complete_records(incomplete: str) -> list[str]:
    """Boards with records whose names begin with what was typed; the shell itself completes paths."""
    from edgedeploy.records.header import folders

    return [folder.name for folder in folders() if folder.name.startswith(incomplete)]


def complete_records_or_none(incomplete: str) -> list[str]:
    """The same, and what stands for no records."""
    return [*complete_records(incomplete), *(["none"] if "none".startswith(incomplete) else [])]


def board_or_last(
    board: str | None, progress: Progress, overrides: Overrides | None = None, *, otherwise: str | None = None
) -> ResolvedBoard:
    """The board that was named, else the last one that was built for, which the user is told, else `otherwise`."""
    from edgedeploy.building import last_built_board
    from edgedeploy.resolved import resolve

    if board is None and (board := last_built_board()):
        progress.note(f"board {board}, the last one that was built for here; --board names another")
    board = otherwise if board is None else board
    if board is None:
        hints = ["name one with --board; --host only says where it is"]
        raise InputError("no board is named, and nothing was built in this folder", hints=hints)
    return resolve(board, overrides or {})


@contextmanager
def here_if_silent(board: str | None, where: Where) -> Iterator[None]:
    """Within the block, an error of a board that the user did not name begins its hints with this machine."""
    try:
        yield
    except BoardConnectionError as error:
        if board is None and where.address is None and not where.virtual:
            error.hints = ("run it on this machine: --board local", *error.hints)
        raise


def _one_host(hosts: list[str] | None) -> list[str] | None:
    """The values of `--host` for a command that takes one: of several, none would be taken silently."""
    if hosts and len(hosts) > 1:
        raise typer.BadParameter(
            f"this command takes one, and {len(hosts)} were given: call it for each of them "
            "(`push`, `tune` and `rpc server` take several)"
        )
    return hosts


def _in_a_folder(path: Path | None) -> Path | None:
    """A file to write, whose folder must be there: a misspelt one is not made."""
    if path and not is_folder(path.parent):
        raise OutputError(
            f"cannot write {path}", why=f"{path.parent} is not a folder", hints=["make it, or name another one"]
        )
    return path


def file_option(*names: str, what: str, metavar: str | None = None) -> Any:
    """An option that names a file to write."""
    return typer.Option(*names, metavar=metavar, help=what, callback=_in_a_folder)


def one_host_option(what: str, metavar: str = "USER@HOST") -> Any:
    """`--host` of a command that takes one."""
    return typer.Option("--host", metavar=metavar, help=what, callback=_one_host)


def parse_shapes(options: list[str] | None) -> dict[str, list[int]]:
    """The values of `--input-shape`, `NAME:1,3,224,224` each, as shapes by input name."""
    shapes, *others = parse_entries(options)
    if others:
        raise InputError("this command takes one shape for an input", hints=["`build` and `run` take several"])
    return shapes


def parse_entries(options: list[str] | None) -> list[dict[str, list[int]]]:
    """The values of `--input-shape` for commands that take several shapes: the shapes by input name of each entry.

    The second shape of an input belongs to the second entry, and so on; one that is given once is for all.
    """
    shapes: dict[str, list[list[int]]] = {}
    for option in options or []:
        name, _, sizes = option.rpartition(":")
        try:
            shapes.setdefault(name, []).append([int(size) for size in sizes.strip("[]").split(",")])
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"{option!r} is not a shape", hints=["write it as NAME:1,3,224,224"])
    counts = {len(each) for each in shapes.values()} - {1}
    if len(counts) > 1:
        stated = ", ".join(f"{name}: {len(each)}" for name, each in shapes.items())
        raise InputError("inputs have different numbers of shapes", why=stated)
    count = max(counts, default=1)
    return [{name: each[place % len(each)] for name, each in shapes.items()} for place in range(count)]


def parse_batches(option: str | None) -> list[int]:
    """The value of `--batch`, sizes separated by commas; nothing if there is none."""
    try:
        sizes = [int(size) for size in option.split(",")] if option else []
    except ValueError:
        sizes = [0]
    if min(sizes, default=1) < 1 or len(set(sizes)) < len(sizes):
        raise InputError(f"{option!r} is no list of batch sizes", hints=["write it as 1,4"])
    return sizes


def parse_values(options: list[str] | None) -> dict[str, Any]:
    """The values of `--set`, `NAME=16000` or `NAME=1,2` each, by input name: a number, or a list of numbers."""
    values: dict[str, Any] = {}
    for option in options or []:
        name, _, text = option.rpartition("=")
        try:
            numbers = [_number(each) for each in text.strip("[]").split(",")]
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"{option!r} sets no input", hints=["write it as NAME=16000, or NAME=1,2"])
        if name in values:
            raise InputError(f"input {name!r} is set twice")
        values[name] = numbers if "," in text or text.startswith("[") else numbers[0]
    return values


def parse_numbers(name: str, option: str | None) -> list[float] | None:
    """The value of an option, such as `0.485,0.456,0.406`, as numbers; None if it is not given."""
    try:
        numbers = None if option is None else [float(each) for each in option.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers or ())):
        raise InputError(
            f"{name} {option!r} is no list of numbers", hints=[f"write it as {name} 0.5 or {name} 0.4,0.5,0.6"]
        )
    return numbers


def _number(text: str) -> bool | int | float:
    """A number as a user writes it."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        return int(word)
    except ValueError:
        return float(word)


def import_options(weights: Weights, epsilon: float | None = None, values: list[str] | None = None) -> ImportOptions:
    """The values of `--weights`, `--epsilon` and `--set`."""
    from edgedeploy.frontends.format import ImportOptions

    return ImportOptions(weights=weights.value, epsilon=epsilon, values=parse_values(values))


def check_one_model(
    models: Sequence[str], done: str, shapes: Shapes, options: ImportOptions, batches: Sequence[int] = ()
) -> None:
    """Refuse what is said of inputs where several models are to be built, or whatever is done with them."""
    said = [
        name for name, value in (("--input-shape", shapes), ("--batch", batches), ("--set", options.values)) if value
    ]
    if said and len(models) > 1:
        raise InputError(f"{said[0]} needs one model", why=f"{len(models)} are to be {done}")


class Weights(str, Enum):
    """Where a network's weights come from."""

    file = "file"
    random = "random"


BoardOption = Annotated[
    str,
    typer.Option("--board", "-b", help="A board's name, or a path to its YAML file.", autocompletion=complete_board),
]
LastBoardOption = Annotated[
    str | None,
    typer.Option(
        "--board",
        "-b",
        help="A board's name, or a path to its YAML file; by default the last one that was built for.",
        autocompletion=complete_board,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value for scripts.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", "-t", min=1, help="Threads to use; the board's cores by default.")
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:D,D,...", help="The shape of an input; may be given for each input."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Fix the value of an input, such as sr=16000 or sizes=1,2: it becomes a constant of the package. May be "
        "given for each input.",
    ),
]
InputShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="NAME:D,D,...",
        help="The shape of an input; may be given for each input, and several times for one: the package then runs "
        "with each of these shapes, with one set of weights.",
    ),
]
BatchOption = Annotated[
    str | None,
    typer.Option("--batch", metavar="N,N,...", help="Sizes of the inputs' first dimension, each for a shape."),
]
WeightsOption = Annotated[
    Weights,
    typer.Option(
        "--weights",
        help="`random` takes seeded weights for a network whose own are in a separate file or not available: "
        "for timing, as its results mean nothing.",
    ),
]
RecordsArgument = Annotated[
    str,
    typer.Argument(
        metavar="BOARD|DIR", help="A board's name, or a folder of records.", autocompletion=complete_records
    ),
]
TuningRecordsOption = Annotated[
    str | None,
    typer.Option(
        "--tuning-records",
        metavar="none|BOARD|DIR",
        help="The tuning records to use; the board's own by default.",
        autocompletion=complete_records_or_none,
    ),
]
EpsilonOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        min=0.0,
        max=1.0,
        help="What batch normalisation adds to the variance, for Darknet networks; 1e-5 unless given, OpenCV has 1e-6.",
    ),
]
DemoOption = Annotated[
    str | None,
    typer.Option(
        "--demo",
        metavar="NAME",
        help="The demo that says how images become inputs, and outputs results; by default one of this network.",
        autocompletion=complete("demos"),
    ),
]
_HOST = "Where the board is, if not where its profile says"
VirtualOption = Annotated[
    bool | None,
    typer.Option(
        "--virtual/--no-virtual",
        help="Use the profile's virtual board, and start it if it is not running. Default: as configured.",
        show_default=False,
    ),
]
StrictOption = Annotated[bool, typer.Option("--strict-host-key", help="Refuse a board whose host key is not known.")]
HealthCheckOption = Annotated[
    str | None,
    typer.Option(
        "--health-check",
        metavar="COMMAND",
        help="A shell command that checks, on the board, whether the release in use works; the profile's unless "
        "given, none if empty.",
    ),
]
HealthCheckTimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--health-check-timeout", metavar="S", min=1, max=86400, help="Time limit of the health check: 60 s by default."
    ),
]


@dataclass(frozen=True)
class Where:
    """Where the board is: options of a command that `flattened` gives it."""

    host: Annotated[list[str] | None, one_host_option(f"{_HOST}.")] = None
    virtual: VirtualOption = None
    strict_host_key: StrictOption = False

    @property
    def address(self) -> str | None:
        """The address, if one is given."""
        return self.host[0] if self.host else None

    @property
    def options(self) -> dict[str, Any]:
        """The same as arguments of the Python API."""
        return {"host": self.address, "virtual": self.virtual, "strict_host_key": self.strict_host_key}

    def place(self, board: ResolvedBoard) -> Place:
        """Where networks run; an InputError if the options contradict each other."""
        from edgedeploy.runtime.opening import Place

        return Place(board, self.address, self.virtual, self.strict_host_key)

    def addresses(self, board: ResolvedBoard, progress: Progress) -> list[Address]:
        """The boards that are meant, with the errors of `remote.address.addresses`."""
        from edgedeploy.remote.address import addresses

        return addresses(board, self.host or (), virtual=self.virtual, progress=progress)


@dataclass(frozen=True)
class WhereOrHere(Where):
    """The same, or this machine."""

    host: Annotated[list[str] | None, one_host_option(f"{_HOST}; `local`: this machine.")] = None


@dataclass(frozen=True)
class WhereAll(Where):
    """Where one board is, or several of one kind."""

    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="USER@HOST", help=f"{_HOST}; several may be given.")
    ] = None


@dataclass(frozen=True)
class Health:
    """How a release in use is checked: options of a command that `flattened` gives it."""

    health_check: HealthCheckOption = None
    health_check_timeout: HealthCheckTimeoutOption = None

    def of(self, board: ResolvedBoard) -> HealthCheck | None:
        """The check of the options or the board's profile; an InputError if the option's cannot be a command."""
        from edgedeploy.release.health import HealthCheck

        return HealthCheck.chosen(board.profile, self.health_check, self.health_check_timeout)
