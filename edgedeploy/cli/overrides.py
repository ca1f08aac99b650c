"""The options that override a board's profile, and the commands that take them."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Collection
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.options import complete
from edgedeploy.errors import InputError
from edgedeploy.files import is_file

if TYPE_CHECKING:
    from edgedeploy.board import Overrides


complete_toolchain = complete("toolchains")


def complete_triple(incomplete: str) -> list[str]:
    """Triples of boards that begin with what was typed."""
    from edgedeploy.board import BOARDS

    return sorted({triple for name in BOARDS.names() if (triple := BOARDS.load(name).triple).startswith(incomplete)})


def complete_cpu(context: typer.Context, incomplete: str) -> list[str]:
    """LLVM's names of CPUs of the board's architecture that begin with what was typed."""
    from edgedeploy.board import load_board
    from edgedeploy.compile.targets import cpus

    triple = context.params.get("mtriple") or load_board(context.params.get("board") or "local").triple
    return [cpu for cpu in cpus(triple) if cpu.startswith(incomplete)]


def _overrides(
    toolchain: Annotated[
        str | None,
        typer.Option(
            "--toolchain", help="Use this toolchain instead of the board's.", autocompletion=complete_toolchain
        ),
    ] = None,
    cross_compiler: Annotated[
        str | None,
        typer.Option(
            "--cross-compiler",
            metavar="COMMAND",
            help="Link with this compiler instead of a toolchain: a program, or words such as `zig cc`.",
        ),
    ] = None,
    cross_compiler_options: Annotated[
        str | None,
        typer.Option(
            "--cross-compiler-options",
            metavar="OPTIONS",
            help="Options of the linking compiler, after the toolchain's own; quoted as in a shell.",
        ),
    ] = None,
    mtriple: Annotated[
        str | None,
        typer.Option(
            "--mtriple",
            metavar="TRIPLE",
            help="Use this triple instead of the board's: of the same architecture.",
            autocompletion=complete_triple,
        ),
    ] = None,
    mcpu: Annotated[
        str | None,
        typer.Option(
            "--mcpu",
            metavar="CPU",
            help="Use this CPU, by LLVM's name, instead of the board's.",
            autocompletion=complete_cpu,
        ),
    ] = None,
    mattr: Annotated[
        str | None,
        typer.Option(
            "--mattr",
            metavar="FLAGS",
            help="LLVM's feature flags instead of the board's, such as +dotprod,-lse; '' for none.",
        ),
    ] = None,
    sysroot: Annotated[
        Path | None,
        typer.Option(
            "--sysroot", metavar="FOLDER", help="Link with the headers and libraries of this copy of a system."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="Use this device instead of the profile's: a part of its name, '' for any."
        ),
    ] = None,
) -> Overrides:
    """What the options say, as fields of a board's profile."""
    if toolchain is not None and cross_compiler is not None:
        raise InputError("--toolchain and --cross-compiler both say what links", hints=["give one of them"])
    given = {
        "toolchain": toolchain,
        "cross_compiler": _words("--cross-compiler", cross_compiler),
        "cross_compiler_options": _words("--cross-compiler-options", cross_compiler_options),
        "triple": mtriple,
        "cpu": mcpu,
        "features": None if mattr is None else _flags(mattr),
        "sysroot": sysroot,
        "device": None if device is None else {"name": device},
    }
    if given["cross_compiler"] == []:
        raise InputError("--cross-compiler names no program", hints=["name one, such as aarch64-linux-gnu-gcc"])
    return {name: value for name, value in given.items() if value is not None}


def _flags(text: str) -> list[str]:
    """The flags of a list that commas separate."""
    flags = [flag.strip() for flag in text.split(",") if flag.strip()]
    for flag in flags:
        if not re.fullmatch(r"[+-][\w.-]+", flag):
            name = flag.strip("+-")
            example = f"+{name} or -{name}" if re.fullmatch(r"[\w.-]+", name) else "them as +dotprod,-lse"
            raise InputError(f"{flag!r} is no feature flag", hints=[f"write {example}"])
    return flags


def _words(option: str, text: str | None) -> list[str] | None:
    """The words of an option's value, as a shell would split it; a file of that name is one word."""
    if text is None:
        return None
    try:
        return [text] if is_file(Path(text)) else shlex.split(text)
    except ValueError as error:
        raise InputError(f"{option} is not written as in a shell", why=f"{text!r}: {error}") from error


def overridable(command: Callable[..., None], without: Collection[str] = ()) -> Callable[..., None]:
    """Give a command these options, some excepted; it gets what they say as its parameter `overrides`."""
    return flattened(command, without, overrides=_overrides)


def flattened(
    command: Callable[..., None], without: Collection[str] = (), **makers: Callable[..., Any]
) -> Callable[..., None]:
    """Give a command options that it gets together, as records: its parameters that are dataclasses, and others.

    Args:
        command: the command.
        without: options that it does not get.
        makers: by parameter of the command, a function that makes its value, and whose own parameters are the options.
    """
    own = _parameters(command)
    annotations = {name: parameter.annotation for name, parameter in own.items()}
    records = makers | {
        name: each for name, each in annotations.items() if isinstance(each, type) and is_dataclass(each)
    }
    options = {
        name: {option: parameter for option, parameter in _parameters(make).items() if option not in without}
        for name, make in records.items()
    }

    @functools.wraps(command)
    def with_records(**arguments: Any) -> None:
        made = {
            name: make(**{option: arguments.pop(option) for option in options[name]}) for name, make in records.items()
        }
        command(**arguments, **made)

    parameters: list[inspect.Parameter] = []
    for name, parameter in own.items():
        parameters += options[name].values() if name in options else [parameter]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    with_records.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    with_records.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return with_records


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """A function's parameters, with annotations that are no longer text: typer would look them up elsewhere.

    Not by `typing.get_type_hints`: Python 3.10's makes all with the default None optional, around what typer looks for.
    """
    return dict(inspect.signature(function, locals={"Overrides": Any}, eval_str=True).parameters)
