"""A board's OpenCL device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from typing_extensions import override

from edgedeploy.compile.backend import Backend, Generated
from edgedeploy.compile.backends.opencl.functions import use_functions_of_opencl
from edgedeploy.compile.backends.opencl.schedules import TEMPLATES
from edgedeploy.compile.backends.opencl.strategy import DeviceStrategy, WorkItem, device_of
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.strategy import Strategy


class OpenCLBackend(Backend):
    """A board's OpenCL device. Kernels become machine code where they run, by the device's own compiler."""

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
        use_functions_of_opencl()
        return Generated(launched=functions)

    @override
    def write_objects(self, functions: tvm.IRModule, folder: Path) -> None:
        """Write the code that runs on the CPU, and the kernels as that reads them."""

        def leave(_output: str, _objects: list[str], **_: Any) -> None:
            """In the place of a linker: the object files stay where they are."""

        use_functions_of_opencl()
        with tvm.transform.PassContext(opt_level=3):
            library = tvm.tirx.build(functions, target=tvm.target.Target(self.board.target()))
        library.export_library("", fcompile=leave, workspace_dir=str(folder))
