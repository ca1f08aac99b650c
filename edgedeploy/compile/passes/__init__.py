"""Passes: named steps that rewrite a network's module, from what a frontend read to the functions to schedule.

`order` lists edgedeploy's own and adds those of other packages (entry points of the group `edgedeploy.passes`, each a
`Pass` of the same name), and `running` applies them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from edgedeploy.base.plugins import Group, code_of, package_of
from edgedeploy.model.quantised import Half
from edgedeploy.target.board import Board

if TYPE_CHECKING:
    from edgedeploy.compile.passes.dead_channels import RemovedChannels
    from edgedeploy.compile.passes.fusion import FusedFunction

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # users type these names, and they are part of file names

# What a module consists of: operators of Relax, by the layout of their feature maps (weights are OIHW, or HWIO);
# functions of TensorIR, before and after fusion; and the same with reshapes as views.
Layout = Literal["NCHW", "NHWC", "functions", "fused functions", "fused functions and views"]


@dataclass(frozen=True)
class Form:
    """What a module consists of before or after a pass.

    `types` are numpy's names of the types of tensors that the pass rewrites or creates; empty for all types.
    """

    layout: Layout
    types: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join([self.layout, *self.types])


@dataclass
class Compilation:
    """What passes know besides the module, and what they leave for later stages.

    `half` states which layers are in half precision, or their weights; None without any.
    `removed` lost channels. `groups` are, by name, the functions that hold a layer, before each became one loop nest.
    """

    board: Board
    half: Half | None = None
    removed: list[RemovedChannels] = field(default_factory=list)
    groups: dict[str, FusedFunction] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """A step of the compiler."""

    name: str  # as users see it: lower-case words between hyphens
    what: str  # what it does, in one sentence
    # Returns a new `tvm.IRModule` for one, within the board's target; it may raise anything.
    run: Callable[[Any, Compilation], Any]
    expects: Form = Form("NCHW")  # the form that it works on
    leaves: Form | None = None  # the form of its result; the same if None
    required: str = ""  # why nothing can be built without it; empty if it can be disabled
    # The pass before or after which it runs directly, for passes of other packages: one of the two.
    before: str = ""
    after: str = ""
    applies: Callable[[Board], bool] = lambda board: True  # whether a board needs it
    package: str = ""  # the name and version of the package that it comes from; empty for edgedeploy's own

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"invalid name of a pass {self.name!r}: write lower-case words between hyphens")
        if self.before and self.after:
            raise ValueError(f"pass {self.name} can run before {self.before} or after {self.after}, not both")

    @property
    def result(self) -> Form:
        """The form of its result."""
        return self.leaves or self.expects

    @property
    def title(self) -> str:
        """Its name and package, for messages."""
        return f"pass {self.name}" + (f" of {self.package}" if self.package else "")


def rewriting(pattern: Any, rewrite: Callable[[Any, Mapping[Any, Any]], Any]) -> Callable[[Any, Compilation], Any]:
    """The `run` of a pass that replaces operators.

    Args:
        pattern: of `tvm.relax.dpl`, the calls to replace.
        rewrite: takes a call and what the parts of the pattern matched, by pattern; returns an expression of the same
            shape and dtype, or the call itself.
    """

    def run(module: Any, compilation: Compilation) -> Any:
        import tvm
        from tvm.relax.dpl import rewrite_call

        main = rewrite_call(pattern, rewrite, module["main"])
        return tvm.IRModule({**module.functions, module.get_global_var("main"): main}, attrs=module.attrs)

    return run


GROUP: Group[Pass] = Group(
    "edgedeploy.passes",
    "pass",
    "Pass",
    lambda found: found.name if isinstance(found, Pass) else None,
    "leave it out: --disable-pass {name}",
)


def provider_versions() -> dict[str, str]:
    """The packages that passes come from, with their versions."""
    return {entry.dist.name: entry.dist.version for entry in GROUP.entries() if entry.dist}


def provider_code() -> dict[str, str]:
    """A hash of each module or package that passes come from: its code may change while its version stays."""
    return {name: code_of(name) for name in sorted({entry.module.partition(".")[0] for entry in GROUP.entries()})}


def load_installed(disabled: Collection[str] = ()) -> list[Pass]:
    """The passes of other packages, by name; disabled ones are not even imported."""
    packages = {entry.name: package_of(entry) for entry in GROUP.entries()}
    return [replace(each, package=packages[each.name]) for each in GROUP.load(disabled)]
