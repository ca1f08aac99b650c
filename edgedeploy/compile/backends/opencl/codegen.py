"""Scheduled functions to kernels, and to the code on the CPU that starts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm


def write_objects(functions: tvm.IRModule, target: tvm.target.Target, folder: Path) -> None:
    """Generate the kernels of functions that are scheduled for a device, and what launches them.

    Written into the folder are object files with the code that runs on the CPU, and with the kernels as that reads
    them; linked, they are a library of their own.
    """
    with tvm.transform.PassContext(opt_level=3):
        library = tvm.tirx.build(functions, target=target)
    library.export_library("", fcompile=_leave, workspace_dir=str(folder))


def _leave(_output: str, _objects: list[str], **_: Any) -> None:
    """In the place of a linker: the object files stay where they are."""
