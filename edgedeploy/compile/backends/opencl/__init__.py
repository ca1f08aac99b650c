"""OpenCL devices of boards."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import tvm
from tvm.ir import Call
from tvm.tirx import call_pure_extern, register_intrin_lowering
from typing_extensions import override

from edgedeploy.compile.backend import Backend, Generated
from edgedeploy.compile.backends.opencl.schedules import TEMPLATES
from edgedeploy.compile.backends.opencl.strategy import DeviceStrategy, WorkItem, device_of
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.strategy import Strategy

# Elementary functions that OpenCL C names alike for every type of float (OpenCL C specification, 6.15.2); TVM writes
# those of C's library, such as `atan2f`, and `native_sin` and `native_cos`, whose errors the specification leaves open.
_NAMES = "acos acosh asin asinh atan atan2 atanh cos sin tan"

_LEVEL = 100  # TVM takes the rule of the highest level; its own are at 10 and, from Python, at 99


@functools.cache
def _use_functions_of_opencl() -> None:
    """Name these functions as OpenCL C does, in this process; TVM refuses a second rule of the same level."""

    def called(name: str, call: Call) -> Any:
        return call_pure_extern(call.ty.dtype, name, *call.args)

    for name in _NAMES.split():
        register_intrin_lowering(f"tirx.{name}", "opencl", f=functools.partial(called, name), level=_LEVEL)


class OpenCLBackend(Backend):
    """A board's OpenCL device, whose driver compiles the kernels on the board."""

    forms = (WorkItem,)
    templates = TEMPLATES

    @override
    def strategy(self, layer: AnyAnchorOp) -> Strategy[Any]:
        return DeviceStrategy(layer, self.board)

    @property
    @override
    def little_work(self) -> int:
        return device_of(self.board).little_work

    @override
    def generate(self, functions: tvm.IRModule, folder: Path) -> Generated:
        _use_functions_of_opencl()
        return Generated(launched=functions)

    @override
    def write_objects(self, functions: tvm.IRModule, folder: Path) -> None:
        """Write the code that runs on the CPU, with the kernels in it."""
        _use_functions_of_opencl()
        with tvm.transform.PassContext(opt_level=3):
            library = tvm.tirx.build(functions, target=tvm.target.Target(self.board.target()))
        # In place of a linker: leave the object files as they are.
        library.export_library("", fcompile=lambda *_, **_options: None, workspace_dir=str(folder))
