"""TVM's runtime for OpenCL devices in this process: a library in addition to TVM's own, built here once.

TVM's wheel generates code for OpenCL and cannot run it. The runtime is the C++ of the agents for OpenCL boards
(`agent/opencl`). TVM calls `autoload` when it is imported, by the entry point in group `tvm.backends`: so this module
imports little itself.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.files import digest_of
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import NoOpenCLError, OpenCLError, UnsupportedError

LIBRARY_NAME = "libtvm_runtime_opencl.so"
_RUNTIME = FolderCache("opencl-runtime")

# The runtime derives from TVM's classes, whose layout changes between releases: the ones that pyproject.toml pins.
SUPPORTED = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}

# TVM looks this function up when it first meets an OpenCL device.
_DEVICE_API = "device_api.opencl"


def autoload() -> None:
    """Load the runtime into TVM if it is built; otherwise do nothing."""
    if _RUNTIME.folder.is_dir() and _unsupported() is None and (library := library_path()).is_file():
        _load(library)


def load(progress: Progress = SILENT) -> None:
    """Load the runtime into TVM, and build it the first time.

    From then on TVM raises `OpenCLError`s for faults of OpenCL devices. A missing device shows at its first use.
    """
    from edgedeploy.agent.build import build_opencl_library

    if found := _unsupported():
        raise UnsupportedError(f"the runtime for OpenCL is written for {_line(SUPPORTED)}", why=f"there is {found}")
    build, what = partial(build_opencl_library, progress=progress), "building the runtime for OpenCL"
    _load(_RUNTIME.get_file(_key(), LIBRARY_NAME, build, what, progress))


def device_named(stated: str) -> Any:
    """The first OpenCL device here with `stated` in its name, in any case, GPUs first, as a `tvm.runtime.Device`.

    `EDGEDEPLOY_OPENCL_DEVICE` overrides the text.
    """
    import tvm

    from edgedeploy.target.opencl.device import meant

    load()
    return opencl_device(meant(stated), tvm.opencl)


def opencl_device(part: str, device_at: Callable[[int], Any]) -> Any:
    """The first device with `part` in its name; `device_at` gives the `tvm.runtime.Device` of a number."""
    names: list[str] = []
    while not names or device_at(len(names)).exist:
        device = device_at(len(names))
        names.append(str(device.device_name))  # raises if there is no device at all
        if part.lower() in names[-1].lower():
            return device
    raise NoOpenCLError(
        f"no OpenCL device here has {part!r} in its name",
        why=f"there is {', '.join(names)}",
        hints=[
            "name one of them: --device where networks are built, or EDGEDEPLOY_OPENCL_DEVICE",
            "install the driver of that device; `edgedeploy doctor` lists the devices",
        ],
    )


def remote_device(remote: Any, stated: str) -> Any:
    """The device of a remote session: the agent chooses it; other RPC servers give the one of that name."""
    try:
        find = remote.get_function("edgedeploy.opencl_device")  # agent/rpc_session.cc
    except AttributeError:
        return opencl_device(stated, lambda index: remote.device("opencl", index))
    return remote.device("opencl", find(stated))


def kernel_seconds(device: Any, work: Callable[[], object]) -> float:
    """Call `work` in this thread; the time of its kernels on a device in seconds, by the device's clock.

    Copies and the time between kernels do not count. `device` is from `device_named`.
    """
    import tvm_ffi

    return float(tvm_ffi.get_global_func("edgedeploy.opencl.kernel_nanoseconds")(device, work)) / 1e9


def library_path() -> Path:
    """The path of the library, built or not: in the user's cache folder, under a hash of its sources."""
    return _RUNTIME.path(_key()) / LIBRARY_NAME


@cache
def _key() -> str:
    from edgedeploy.agent.recipe import AGENT, opencl_library_sources, own_files

    files = sorted({*own_files(), *opencl_library_sources()})
    return key_of([digest_of(files, AGENT), SUPPORTED])[:16]


def _unsupported() -> str | None:
    """The installed releases if they are not the supported ones."""
    installed = {name: importlib.metadata.version(name) for name in SUPPORTED}
    return None if installed == SUPPORTED else _line(installed)


def _line(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _load(library: Path) -> None:
    import ctypes

    import tvm  # noqa: F401  # this library is linked to TVM's
    import tvm_ffi

    for kind, error in OpenCLError.kinds().items():
        tvm_ffi.register_error(kind, error)
    if tvm_ffi.get_global_func(_DEVICE_API, allow_missing=True) is None:
        ctypes.CDLL(str(library), ctypes.RTLD_LOCAL)
