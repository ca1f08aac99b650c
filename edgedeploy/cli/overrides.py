"""The options that override a board's profile."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Context, Option

from edgedeploy.base.files import is_file
from edgedeploy.cli.options import complete
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    from edgedeploy.target.board import Overrides

complete_toolchain = complete("toolchains")


def complete_triple(incomplete: str) -> list[str]:
    """Triples of boards."""
    from edgedeploy.target.board import BOARDS

    return sorted({triple for name in BOARDS.names() if (triple := BOARDS.load(name).triple).startswith(incomplete)})


def complete_cpu(context: Context, incomplete: str) -> list[str]:
    """LLVM's names of the CPUs of the board's architecture."""
    from edgedeploy.compile.output.targets import cpus
    from edgedeploy.target.board import load_board

    triple = context.params.get("mtriple") or load_board(context.params.get("board") or "local").triple
    return [cpu for cpu in cpus(triple) if cpu.startswith(incomplete)]


@dataclass(frozen=True)
class Linking:
    """How code is linked for a board, instead of as its profile says."""

    toolchain: Annotated[
        str | None, Option(help="Use this toolchain instead of the board's.", autocompletion=complete_toolchain)
    ] = None
    cross_compiler: Annotated[
        str | None,
        Option(metavar="COMMAND", help="Link with this compiler instead of a toolchain: a program, or `zig cc`."),
    ] = None
    cross_compiler_options: Annotated[
        str | None,
        Option(metavar="OPTIONS", help="Pass these options to the compiler that links, quoted as in a shell."),
    ] = None
    mtriple: Annotated[
        str | None,
        Option(
            metavar="TRIPLE",
            help="Use this triple of the same architecture instead of the board's.",
            autocompletion=complete_triple,
        ),
    ] = None
    sysroot: Annotated[
        Path | None, Option(metavar="FOLDER", help="Link with the headers and libraries of this sysroot.")
    ] = None

    @property
    def fields(self) -> Overrides:
        """The same as fields of a board's profile."""
        if self.toolchain is not None and self.cross_compiler is not None:
            raise InputError("--toolchain and --cross-compiler both say what links", hints=["give one of them"])
        words = _words("--cross-compiler", self.cross_compiler)
        if words == []:
            raise InputError("--cross-compiler names no program", hints=["name one, such as aarch64-linux-gnu-gcc"])
        options = _words("--cross-compiler-options", self.cross_compiler_options)
        linker = {"toolchain": self.toolchain, "cross_compiler": words, "cross_compiler_options": options}
        return _given(**linker, triple=self.mtriple, sysroot=self.sysroot)


Precision = Annotated[
    Literal["single", "half", "auto"] | None,
    Option(help="Compute layers in this precision; auto: in half precision where outputs stay near those in single."),
]


@dataclass(frozen=True)
class Overriding(Linking):
    """Fields of a board's profile that a command replaces."""

    mcpu: Annotated[
        str | None,
        Option(metavar="CPU", help="Use this CPU, by LLVM's name, not the board's.", autocompletion=complete_cpu),
    ] = None
    mattr: Annotated[
        str | None, Option(metavar="FLAGS", help="Use these LLVM feature flags, such as +dotprod,-lse; '' for none.")
    ] = None
    precision: Precision = None
    device: Annotated[
        str | None, Option(metavar="NAME", help="Use the device whose name contains this; '' for any.")
    ] = None

    @property
    def fields(self) -> Overrides:
        """The same as fields of a board's profile."""
        features = None if self.mattr is None else _flags(self.mattr)
        device = None if self.device is None else {"name": self.device}
        return {**super().fields, **_given(cpu=self.mcpu, features=features, precision=self.precision, device=device)}


def _given(**fields: Any) -> Overrides:
    return {name: value for name, value in fields.items() if value is not None}


def _flags(text: str) -> list[str]:
    flags = [flag.strip() for flag in text.split(",") if flag.strip()]
    for flag in flags:
        if not re.fullmatch(r"[+-][\w.-]+", flag):
            name = flag.strip("+-")
            example = f"+{name} or -{name}" if re.fullmatch(r"[\w.-]+", name) else "them as +dotprod,-lse"
            raise InputError(f"{flag!r} is not a feature flag", hints=[f"write {example}"])
    return flags


def _words(option: str, text: str | None) -> list[str] | None:
    """The words of an option's value, as a shell would split it; the name of an existing file is one word."""
    if text is None:
        return None
    try:
        return [text] if is_file(Path(text)) else shlex.split(text)
    except ValueError as error:
        raise InputError(f"{option} is not quoted as in a shell", why=f"{text!r}: {error}") from error
