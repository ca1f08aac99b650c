"""OpenCL for tests: PoCL's devices, which are this machine's CPU, and modules of kernels written by hand."""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi

from edgedeploy.base.programs import capture
from edgedeploy.errors import NoOpenCLError, ToolchainError
from edgedeploy.runtime.opencl import device_named, load
from support.commands import generous, put

# TVM's names of what a launch states, in the order in which it states it.
GRID, GROUP = "blockIdx.x", "threadIdx.x"

# DLPack's codes of an argument's type, with its bits; a handle is a buffer.
TYPES = {"int": 0, "uint": 1, "float": 2, "handle": 3}

# A library in the place of OpenCL's loader that passes calls on to it, until a fault is due: after so many kernels
# the device is gone (an error for each call), fails at a command, or never finishes one; or it has no memory, or room
# for one work-item in a group.
FAULTY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int kernels;

static int due(const char* fault) {
  const char* wanted = getenv("FAULT") ? getenv("FAULT") : DEFAULT_FAULT;
  const char* after = getenv("FAULT_AFTER");
  return strcmp(wanted, fault) == 0 && kernels >= (after ? atoi(after) : 0);
}

static void* real(const char* name) {
  static void* library;
  if (!library) library = dlopen("libRealCL.so.1", RTLD_NOW | RTLD_LOCAL);
  return dlsym(library, name);
}

int clEnqueueNDRangeKernel(void* queue, void* kernel, unsigned dimensions, const size_t* offset, const size_t* global,
                           const size_t* local, unsigned events, const void* list, void* event) {
  ++kernels;
  if (due("gone")) return -2;
  int (*call)() = (int (*)())real("clEnqueueNDRangeKernel");
  return call(queue, kernel, dimensions, offset, global, local, events, list, event);
}

int clGetEventInfo(void* event, unsigned what, size_t size, void* value, size_t* needed) {
  int (*call)() = (int (*)())real("clGetEventInfo");
  int code = call(event, what, size, value, needed);
  if (due("stuck") && what == 0x11D3) *(int32_t*)value = 1;
  if (due("failed") && what == 0x11D3) *(int32_t*)value = -5;
  return code;
}

void* clCreateBuffer(void* context, uint64_t flags, size_t size, void* host, int* code) {
  if (due("full")) return *code = -4, NULL;
  void* (*call)() = (void* (*)())real("clCreateBuffer");
  return call(context, flags, size, host, code);
}

int clGetKernelWorkGroupInfo(void* kernel, void* device, unsigned what, size_t size, void* value, size_t* needed) {
  int (*call)() = (int (*)())real("clGetKernelWorkGroupInfo");
  int code = call(kernel, device, what, size, value, needed);
  if (due("narrow") && what == 0x11B0) *(size_t*)value = 1;
  return code;
}
"""


def _names() -> tuple[str, str]:
    """What PoCL calls this machine's CPU on one thread and on all: newer versions have other names."""
    for driver in Path("/usr/lib").glob("*/pocl/libpocl-devices-basic.so"):
        if b"cpu-minimal" in driver.read_bytes():
            listed = capture(["clinfo", "-l"], timeout_s=60).stdout if shutil.which("clinfo") else ""
            return "cpu-minimal", next(iter(re.findall(r"\bcpu-(?!minimal).*\S", listed)), "cpu-")
    return "basic", "pthread"


ONE_THREAD, ALL_THREADS = _names()

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
    try:
        load()
        device_named(ALL_THREADS)
    except ToolchainError as error:
        pytest.skip(f"there is no compiler for OpenCL's runtime: {error}")
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
        folders = [str(Path(__file__).parents[1]), *sys.path]
        environment["PYTHONPATH"] = os.pathsep.join(folders)
        command = [sys.executable, "-W", "ignore", "-c", begin + text]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=generous(120), check=False
        )

    return run


@pytest.fixture
def faulty(opencl: Any, tmp_path: Path) -> dict[str, str]:
    """Variables under which a program takes the library that fails for OpenCL's own; `FAULT` says how, if at all."""
    make_faulty(tmp_path)
    return {"LD_LIBRARY_PATH": str(tmp_path)}


def make_faulty(folder: Path, fault: str = "") -> tuple[Path, Path]:
    """The library that fails, with a fault unless `FAULT` names another, and the one that it passes calls on to."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler to make a faulty driver with")
    [loader] = Path("/usr/lib").glob("*/libOpenCL.so.1")
    # Under another name, so that both can be loaded; what the first does not define is found in the second.
    real, faulty = folder / "libRealCL.so.1", folder / "libOpenCL.so.1"
    real.write_bytes(loader.read_bytes().replace(b"libOpenCL.so.1\0", b"libRealCL.so.1\0"))
    source = put(folder / "faulty.c", FAULTY)
    options = ["-shared", "-fPIC", "-w", f'-DDEFAULT_FAULT="{fault}"', "-Wl,--no-as-needed"]
    subprocess.run([compiler, *options, "-o", str(faulty), str(source), str(real), "-ldl"], check=True)
    return faulty, real


# What clang takes from a header of its own, which zig leaves out.
_TYPES = "#define INFINITY __builtin_inff()\ntypedef unsigned char uchar; typedef unsigned short ushort;\n" + "".join(
    f"typedef {each} {each}{lanes} __attribute__((ext_vector_type({lanes})));\n"
    for each in ["char", "uchar", "short", "ushort", "int", "long", "half", "float"]
    for lanes in (2, 4, 8, 16)
)


def kernels_of(compiled: Any, folder: Path) -> str:
    """The kernels of a network, which clang takes for a device with half precision and without double."""
    [kernels] = [each for library in compiled.code.libraries for each in library.imports]
    source = str(kernels.inspect_source())
    path = put(folder / "kernels.cl", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + _TYPES + source)
    device = "-cl-std=CL1.2 -cl-ext=-all,+cl_khr_fp16 -triple spir64 -D__opencl_c_named_address_space_builtins"
    clang = [sys.executable, "-m", "ziglang", "clang", "-cc1", "-x", "cl", *device.split(), "-fdeclare-opencl-builtins"]
    subprocess.run([*clang, "-fsyntax-only", "-Werror", str(path)], check=True)
    return source


_count = struct.Struct("<Q").pack


def load_kernels(source: str, **arguments: Sequence[str]) -> Any:
    """A module of kernels in OpenCL C, in the form in which TVM's compiler stores it.

    `arguments` are the types of each kernel's arguments, `handle` or `int32`; a call also states the number of
    work-groups, and of work-items in each.
    """

    def text(value: str) -> bytes:
        return _count(len(value)) + value.encode()

    stored = text("cl") + _count(len(arguments))
    for name, types in arguments.items():
        stored += text(name) * 2 + _count(len(types)) + b"".join(map(_type, types))
        stored += _count(2) + text(GRID) + text(GROUP) + _count(0)
    stored += text(source)
    return tvm_ffi.get_global_func("ffi.Module.load_from_bytes.opencl")(stored)


def buffer(tensor: Any) -> Any:
    """A tensor's buffer, as generated code gives it to a kernel."""
    return ctypes.c_void_p(tensor.data_ptr())


def _type(name: str) -> bytes:
    kind = name.rstrip("0123456789")
    return struct.pack("<BBH", TYPES[kind], int(name[len(kind) :] or 64), 1)
