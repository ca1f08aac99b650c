"""Passes: named steps that rewrite a network's module, from what a frontend read to the functions to schedule.

`builtin` lists those of edgedeploy, `installed` finds those of other packages, `order` puts both in one list,
and `running` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgedeploy.board import Board

if TYPE_CHECKING:
    from edgedeploy.compile.dead_channels import RemovedChannels
    from edgedeploy.compile.fusion import FusedFunction

# Names are typed, and are part of file names.
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

# What a module consists of: operators of Relax, by the layout of their feature maps (weights are OIHW, or HWIO);
# functions of TensorIR, before and after those that belong together became one; and the same with reshapes as views.
Layout = Literal["NCHW", "NHWC", "functions", "fused functions", "fused functions and views"]


@dataclass(frozen=True)
class Form:
    """What a module is like before a pass, or after it.

    Attributes:
        layout: what it consists of.
        types: of the tensors that the pass rewrites, as numpy names them, or that it makes of them; tensors of other
            types stay as they are. Empty for all types.
    """

    layout: Layout
    types: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join([self.layout, *self.types])


@dataclass
class Compilation:
    """What passes know beside the module, and what they leave for later stages.

    Attributes:
        board: what the code is for.
        removed: the layers that lost channels.
        groups: by name, the functions that hold a layer, before they became one loop nest each.
    """

    board: Board
    removed: list[RemovedChannels] = field(default_factory=list)
    groups: dict[str, FusedFunction] = field(default_factory=dict)


def _always(board: Board) -> bool:
    return True


@dataclass(frozen=True)
class Pass:
    """A step of the compiler.

    Attributes:
        name: as users see it: lower-case words between hyphens.
        what: what it does, in one sentence.
        run: makes a new `tvm.IRModule` of one, within the board's target; it may raise anything.
        expects: what it works on.
        leaves: what it makes of that; the same unless given.
        required: why nothing can be built without it; empty if it can be disabled.
        before, after: the pass that it runs directly before or after, for passes of other packages: one of the two.
        applies: whether a board needs it.
        package: the name and version of the package that it comes from; empty for edgedeploy's own.

    Raises:
        ValueError: its name has another form, or it says two places.
    """

    name: str
    what: str
    run: Callable[[Any, Compilation], Any]
    expects: Form = Form("NCHW")
    leaves: Form | None = None
    required: str = ""
    before: str = ""
    after: str = ""
    applies: Callable[[Board], bool] = _always
    package: str = ""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a pass: write lower-case words between hyphens")
        if self.before and self.after:
            raise ValueError(f"pass {self.name} can run before {self.before} or after {self.after}, not both")

    @property
    def result(self) -> Form:
        """What it leaves."""
        return self.leaves or self.expects

    @property
    def title(self) -> str:
        """Its name and package, for messages."""
        return f"pass {self.name}" + (f" of {self.package}" if self.package else "")


def rewriting(pattern: Any, rewrite: Callable[[Any, Mapping[Any, Any]], Any]) -> Callable[[Any, Compilation], Any]:
    """What a pass runs that replaces operators.

    Args:
        pattern: of `tvm.relax.dpl`, the calls to replace.
        rewrite: takes a call and what the parts of the pattern matched, by pattern; returns an expression of the same
            shape and dtype, or the call itself.
    """

    def run(module: Any, compilation: Compilation) -> Any:
        import tvm
        from tvm.relax.dpl import rewrite_call

        functions = dict(module.functions)
        main = module.get_global_var("main")
        return tvm.IRModule(functions | {main: rewrite_call(pattern, rewrite, module["main"])}, attrs=module.attrs)

    return run
