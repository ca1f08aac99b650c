"""Applies passes, times them, and shows a listener the module after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from edgedeploy.base.files import cannot_write, replacing
from edgedeploy.base.supervision import doing
from edgedeploy.compile.passes import Compilation, Pass
from edgedeploy.errors import last_line

# Takes each pass that was applied, the module that it returned, which later passes may change, and its time in seconds.
Listener = Callable[[Pass, tvm.IRModule, float], None]


class PassError(Exception):
    """A pass failed; `hints` are things to try."""

    def __init__(self, failed: Pass, error: Exception) -> None:
        super().__init__(f"{failed.title}: {type(error).__name__}: {last_line(error)}")
        self.hints = ["see its input: --dump passes"]
        if not failed.required:
            self.hints.append(f"build without it: --disable-pass {failed.name}")


def ignore(applied: Pass, module: tvm.IRModule, seconds: float) -> None:
    """The listener that does nothing."""


def run_passes(
    module: tvm.IRModule, passes: Iterable[Pass], compilation: Compilation, listener: Listener = ignore
) -> tvm.IRModule:
    """Apply passes one after the other; raises `PassError`."""
    module = module.clone()  # some passes change their argument
    for each in passes:
        begun = time.perf_counter()
        try:
            with doing(f"pass {each.name}"):
                result = each.run(module, compilation)
            seconds = time.perf_counter() - begun
            if not isinstance(result, tvm.IRModule):
                raise TypeError(f"it returned {type(result).__name__}, not an IRModule")
            if each.package:  # tests check edgedeploy's own; the check takes nearly as long as all of them
                relax.analysis.well_formed(result)
                if not structural_equal(_interface(result), _interface(module)):
                    raise ValueError("it changed the inputs or outputs of the network")
        except Exception as error:
            raise PassError(each, error) from error
        listener(each, result, seconds)
        module = result
    return module


def _interface(module: tvm.IRModule) -> Any:
    """The type of a network's function; None if a module has none."""
    return next((each.ty for variable, each in module.functions.items() if variable.name_hint == "main"), None)


class PassLog:
    """A listener that records the seconds of each pass in `times`, and writes each module into a folder, if given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.times: list[tuple[str, float]] = []
        self._folder = folder
        if folder:
            try:
                for path in folder.glob("[0-9][0-9]-*.ir.py"):  # of an earlier build
                    path.unlink()
            except OSError as error:
                raise cannot_write(folder, error) from error

    def __call__(self, applied: Pass, module: tvm.IRModule, seconds: float) -> None:
        """Record the time, and write the module."""
        self.times.append((applied.name, seconds))
        self.write(applied.name, module)

    def write(self, name: str, module: tvm.IRModule) -> None:
        """Write a module as `NN-NAME.ir.py`, if there is a folder; NN is the number of passes so far."""
        if self._folder:
            with replacing(self._folder / f"{len(self.times):02}-{name}.ir.py") as temporary:
                temporary.write_text(module.script(), encoding="utf-8")
