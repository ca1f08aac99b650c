"""OpenCL for tests: PoCL's devices, which are this machine's CPU, and modules of kernels written by hand."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

# TVM's names of what a launch states, in the order in which it states it.
GRID, GROUP = "blockIdx.x", "threadIdx.x"

# DLPack's codes of an argument's type, with its bits; a handle is a buffer.
TYPES = {"int": 0, "uint": 1, "float": 2, "handle": 3}

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _two_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """PoCL shows the CPU twice, as two devices that share nothing; programs are kept in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_DEVICES", "pthread basic")
        patch.setenv("EDGEDEPLOY_OPENCL_CACHE", str(tmp_path_factory.mktemp("opencl")))
        yield


@pytest.fixture
def opencl() -> Any:
    """TVM's first OpenCL device, which kernels run on that no code of TVM's calls."""
    import tvm
    import tvm_ffi

    from edgedeploy.errors import NoOpenCLError
    from edgedeploy.runtime.opencl import device_named, load

    load()
    try:
        device_named("pthread")
    except NoOpenCLError as error:
        pytest.skip(f"there is no PoCL: {error}; apt install pocl-opencl-icd")
    device = tvm.opencl(0)
    tvm_ffi.get_global_func("__tvm_set_device")(device.dlpack_device_type(), device.index)
    return device


@pytest.fixture
def program(opencl: Any, tmp_path: Path) -> Program:
    """Runs a Python program with the runtime loaded, in a process of its own and with these variables set."""

    def run(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        begin = "import numpy as np, tvm\nfrom edgedeploy.runtime.opencl import load\nload()\n"
        environment = {**os.environ, "EDGEDEPLOY_OPENCL_CACHE": str(tmp_path / "programs"), **variables}
        folders = [str(Path(__file__).parent), *sys.path]
        environment["PYTHONPATH"] = os.pathsep.join(folders)
        command = [sys.executable, "-W", "ignore", "-c", begin + text]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    return run


def load_kernels(source: str, **arguments: Sequence[str]) -> Any:
    """A module of OpenCL kernels, in the form in which TVM's compiler stores it.

    Args:
        source: OpenCL C.
        arguments: for each kernel the types of its arguments, as `handle` or `int32`; beside them a call states the
            number of work-groups, and of work-items in each.
    """
    import tvm_ffi

    def text(value: str) -> bytes:
        return _count(len(value)) + value.encode()

    functions = b"".join(
        text(name)
        + text(name)
        + _count(len(types))
        + b"".join(_type(each) for each in types)
        + _count(2)
        + text(GRID)
        + text(GROUP)
        + _count(0)
        for name, types in arguments.items()
    )
    stored = text("cl") + _count(len(arguments)) + functions + text(source)
    return tvm_ffi.get_global_func("ffi.Module.load_from_bytes.opencl")(stored)


def buffer(tensor: Any) -> Any:
    """A tensor's buffer, as generated code gives it to a kernel."""
    import ctypes

    return ctypes.c_void_p(tensor.data_ptr())


def _count(value: int) -> bytes:
    return struct.pack("<Q", value)


def _type(name: str) -> bytes:
    kind = name.rstrip("0123456789")
    return struct.pack("<BBH", TYPES[kind], int(name[len(kind) :] or 64), 1)
