"""Options and completions that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, BadParameter, Option

from edgedeploy.base.files import is_folder
from edgedeploy.cli.console import shown_progress
from edgedeploy.errors import BoardConnectionError, InputError, OutputError

if TYPE_CHECKING:
    from edgedeploy.base.progress import Progress
    from edgedeploy.frontends.format import ImportOptions
    from edgedeploy.release.switching import HealthCheck
    from edgedeploy.remote.address import Address
    from edgedeploy.remote.connection import Connection
    from edgedeploy.runtime.opening import Place
    from edgedeploy.target.board import Overrides
    from edgedeploy.target.resolved import ResolvedBoard


MOST = 2**31 - 1  # for counts: more than anyone waits for, and TVM's timer takes it


def complete(*folders: str, also: Sequence[str] = ()) -> Callable[[str], list[str]]:
    """A completion of names of documents in folders, which are not read, and others; the shell completes paths."""

    def beginning(incomplete: str) -> list[str]:
        from edgedeploy.base.catalog import names_in

        names = [name for folder in folders for name in names_in(folder)]
        return [name for name in (*names, *also) if name.startswith(incomplete)]

    return beginning


complete_board = complete("boards")
complete_model = complete("models")


def completing(names: str, *further: str, listed: bool = False) -> Callable[[str], list[str]]:
    """A completion from a function, `module:name`, that lists names or named things, and from further names.

    If they are `listed`, they follow the names that were typed, separated by commas.
    """

    def beginning(incomplete: str) -> list[str]:
        typed, comma, last = incomplete.rpartition(",") if listed else ("", "", incomplete)
        found = [getattr(each, "name", each) for each in resolve_name(names)()]
        return [f"{typed}{comma}{name}" for name in (*found, *further) if name.startswith(last)]

    return beginning


complete_records = completing("edgedeploy.records.schema:folders")


@contextmanager
def here_if_silent(board: str | None, where: Where) -> Iterator[None]:
    """Put this machine first among the hints of a connection error if the user did not name the board."""
    try:
        yield
    except BoardConnectionError as error:
        if board is None and where.address is None and not where.virtual:
            error.hints = ("run it on this machine: --board local", *error.hints)
        raise


def _one_host(hosts: list[str] | None) -> list[str] | None:
    """Refuse several values of `--host` for commands that would silently use only one."""
    if hosts and len(hosts) > 1:
        raise BadParameter(
            f"this command takes one, and {len(hosts)} were given: call it for each of them "
            "(`push`, `tune` and `rpc server` take several)"
        )
    return hosts


def _in_a_folder(path: Path | None) -> Path | None:
    """A file to write, whose folder must exist: a misspelt one is not created."""
    if path and not is_folder(path.parent):
        hints = ["create it, or name another one"]
        raise OutputError(f"cannot write {path}", why=f"{path.parent} is not a folder", hints=hints)
    return path


def file_option(default: Any, *names: str, what: str, metavar: str | None = None) -> Any:
    """An option that names a file to write."""
    return Option(default, *names, metavar=metavar, help=what, callback=_in_a_folder)


def one_host_option(what: str, metavar: str = "USER@HOST") -> Any:
    """`--host` of a command that takes one."""
    return Option("--host", metavar=metavar, help=what, callback=_one_host)


def parse_shapes(options: list[str] | None) -> dict[str, list[int]]:
    """The values of `--input-shape`, `NAME:1,3,224,224` each, as shapes by input name."""
    shapes, *others = parse_entries(options)
    if others:
        raise InputError("this command takes one shape for an input", hints=["`build` and `run` take several"])
    return shapes


def parse_entries(options: list[str] | None) -> list[dict[str, list[int]]]:
    """The values of `--input-shape` for commands that take several shapes: the shapes by input name of each entry.

    The second shape of an input belongs to the second entry, and so on; a single one is for all entries.
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
    """The value of `--batch`, sizes separated by commas; empty without the option."""
    try:
        sizes = [int(size) for size in option.split(",")] if option else []
    except ValueError:
        sizes = [0]
    if min(sizes, default=1) < 1 or len(set(sizes)) < len(sizes):
        raise InputError(f"{option!r} is not a list of batch sizes", hints=["write it as 1,4"])
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
    """The value of an option, such as `0.485,0.456,0.406`, as finite numbers; None if it is absent."""
    try:
        numbers = None if option is None else [float(each) for each in option.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers or ())):
        hints = [f"write it as {name} 0.5 or {name} 0.4,0.5,0.6"]
        raise InputError(f"{name} {option!r} is not a list of numbers", hints=hints)
    return numbers


def _number(text: str) -> bool | int | float:
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        return int(word)
    except ValueError:
        return float(word)


_BOARD = "A board's name, or a path to its YAML file"
BoardOption = Annotated[str, Option("--board", "-b", help=f"{_BOARD}.", autocompletion=complete_board)]
BoardArgument = Annotated[str, Argument(help="A board's name or file.", autocompletion=complete_board)]
ModelOnBoard = Annotated[str, Argument(help="The model's name on the board.")]
ModelsArgument = Annotated[
    list[str], Argument(metavar="MODEL", help="Networks: zoo names or files.", autocompletion=complete_model)
]
ThreadsOption = Annotated[
    int | None, Option("--threads", "-t", min=1, help="Threads to use; default: the board's cores.")
]
RecordsArgument = Annotated[
    str, Argument(metavar="BOARD|DIR", help="A board's name, or a records folder.", autocompletion=complete_records)
]
TuningRecordsOption = Annotated[
    str | None,
    Option(
        metavar="none|BOARD|DIR",
        help="Tuning records to use; default: the board's own.",
        autocompletion=completing("edgedeploy.records.schema:folders", "none"),
    ),
]
DemoOption = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="The demo that defines preprocessing and decoding; default: the network's own.",
        autocompletion=complete("demos"),
    ),
]
_SHAPE = "Set the shape of an input; repeat for other inputs"
ShapeOption = Annotated[list[str] | None, Option("--input-shape", metavar="NAME:D,D,...", help=f"{_SHAPE}.")]
SetOption = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="NAME=VALUE",
        help="Compile an input in as a constant, such as sr=16000 or sizes=1,2; repeat for other inputs.",
    ),
]
WeightsOption = Annotated[
    Literal["file", "random"],
    Option("--weights", help="`random` replaces missing weights with seeded random ones, for timing only."),
]
EpsilonOption = Annotated[
    float | None,
    Option(min=0.0, max=1.0, help="Batch normalisation's epsilon, for Darknet; default: 1e-5; OpenCV uses 1e-6."),
]


@dataclass(frozen=True)
class Importing:
    """What a network's file leaves open: a record of options (`groups.Commands`)."""

    input_shape: ShapeOption = None
    set_inputs: SetOption = None
    weights: WeightsOption = "file"
    epsilon: EpsilonOption = None

    @property
    def shapes(self) -> dict[str, list[int]]:
        """Shapes by input name."""
        return parse_shapes(self.input_shape)

    @property
    def options(self) -> ImportOptions:
        """What else the file leaves open."""
        from edgedeploy.frontends.format import ImportOptions

        return ImportOptions(weights=self.weights, epsilon=self.epsilon, values=parse_values(self.set_inputs))

    def check_one(self, models: Sequence[str], done: str, **others: object) -> None:
        """Refuse options about inputs, and `others`, for several models, which are to be `done`: built, for one."""
        given = {"input-shape": self.input_shape, "batch": getattr(self, "batch", None), "set": self.set_inputs}
        for name, value in {**given, **others}.items():
            if value and len(models) > 1:
                raise InputError(f"--{name} needs one model", why=f"{len(models)} are to be {done}")


@dataclass(frozen=True)
class ImportingEntries(Importing):
    """The same for commands whose packages may have several shapes."""

    input_shape: Annotated[
        list[str] | None,
        Option(
            metavar="NAME:D,D,...",
            help=f"{_SHAPE}, or for one input: the package then runs with each shape, sharing the weights.",
        ),
    ] = None
    batch: Annotated[
        str | None, Option(metavar="N,N,...", help="Build for these batch sizes: the inputs' first dimension.")
    ] = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The same as arguments of the Python API."""
        entries, batches = parse_entries(self.input_shape), parse_batches(self.batch)
        return {"shapes": entries, "batches": batches, "options": self.options}


_HOST = "The board's address, if not the profile's"


@dataclass(frozen=True)
class Where:
    """Where the board is: a record of options (`groups.Commands`)."""

    host: Annotated[list[str] | None, one_host_option(f"{_HOST}.")] = None
    virtual: Annotated[
        bool | None,
        Option(
            "--virtual/--no-virtual",
            help="Use the profile's virtual board, starting it if needed; default: as configured.",
            show_default=False,
        ),
    ] = None
    strict_host_key: Annotated[bool, Option("--strict-host-key", help="Refuse boards with unknown host keys.")] = False

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

    def addresses(self, board: ResolvedBoard) -> list[Address]:
        """The addresses of the boards."""
        from edgedeploy.remote.address import addresses

        return addresses(board, self.host or (), virtual=self.virtual, progress=shown_progress())


@dataclass(frozen=True)
class WhereOrHere(Where):
    """The same, or this machine."""

    host: Annotated[list[str] | None, one_host_option(f"{_HOST}; `local`: this machine.")] = None


@dataclass(frozen=True)
class WhereAll(Where):
    """Where one board is, or several of one kind."""

    host: Annotated[list[str] | None, Option(metavar="USER@HOST", help=f"{_HOST}; repeat for several boards.")] = None


@dataclass(frozen=True)
class BoardOrLast:
    """A board, by default the one last built for: a record of options (`groups.Commands`)."""

    board: Annotated[
        str | None,
        Option("--board", "-b", help=f"{_BOARD}; default: the board last built for.", autocompletion=complete_board),
    ] = None

    def resolved(self, overrides: Overrides | None = None, *, otherwise: str | None = None) -> ResolvedBoard:
        """The named board, else the board of this folder's last build, with a note to the user, else `otherwise`."""
        from edgedeploy.building import last_built_board
        from edgedeploy.target.resolved import resolve

        board = self.board
        if board is None and (board := last_built_board()):
            note = f"using board {board}, the last one built for in this folder; --board selects another"
            shown_progress().note(note)
        board = otherwise if board is None else board
        if board is None:
            hints = ["name one with --board; --host only says where it is"]
            raise InputError("no board is named, and nothing was built in this folder", hints=hints)
        return resolve(board, overrides or {})


@dataclass(frozen=True)
class RemoteBoard(Where, BoardOrLast):
    """A board to connect to, and its address; `board` is the first option."""

    @contextmanager
    def connected(
        self, model: str | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[Connection, ResolvedBoard]]:
        """Connect to the board while the block runs; the name of a model is checked before that."""
        from edgedeploy.release.layout import check_model
        from edgedeploy.remote.connection import Connection

        if model is not None:
            check_model(model)
        resolved = self.resolved()
        [address] = self.addresses(resolved)
        with Connection(address, strict=self.strict_host_key, progress=progress or shown_progress()) as connection:
            yield connection, resolved


@dataclass(frozen=True)
class Health:
    """How a release in use is checked: a record of options (`groups.Commands`)."""

    health_check: Annotated[
        str | None,
        Option(
            metavar="COMMAND",
            help="Check the release in use with this shell command on the board; default: the profile's; '' for none.",
        ),
    ] = None
    health_check_timeout: Annotated[
        int | None, Option(metavar="S", min=1, max=86400, help="Time limit of the health check; default: 60 s.")
    ] = None

    def of(self, board: ResolvedBoard) -> HealthCheck | None:
        """The check of the options or the board's profile; an InputError if the option's is not a valid command."""
        from edgedeploy.release.switching import HealthCheck

        return HealthCheck.chosen(board.profile, self.health_check, self.health_check_timeout)
