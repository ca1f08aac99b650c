"""TVM's runtime for OpenCL devices in this process: a library beside TVM's own, made on this machine once.

TVM's wheel generates code for OpenCL and cannot run it. The runtime is the same C++ that agents of OpenCL boards have
in them (`agent/opencl`). TVM calls `autoload` when it is imported, by the entry point in group `tvm.backends`; this
module is imported with it, and so imports little itself.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.kept import Kept, key_of

if TYPE_CHECKING:
    from edgedeploy.progress import Progress

LIBRARY_NAME = "libtvm_runtime_opencl.so"
_RUNTIME = Kept("opencl-runtime")

# The runtime derives from classes of TVM's, whose layout is that of one release: those that pyproject.toml pins.
SUPPORTED = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}

# What TVM asks for when it first meets an OpenCL device.
_DEVICE_API = "device_api.opencl"

# The agent's function (`agent/rpc_session.cc`).
_FIND_DEVICE = "edgedeploy.opencl_device"


def autoload() -> None:
    """Load the runtime into TVM if it was made before; nothing is made, and nothing is said, where it was not."""
    if _RUNTIME.folder.is_dir() and _unsupported() is None and (library := library_path()).is_file():
        _load(library)


def load(progress: Progress | None = None) -> None:
    """Load the runtime into TVM, after making it if this is the first time.

    From here on TVM raises `OpenCLError`s where an OpenCL device is at fault. Whether there is such a device shows
    when it is first used.

    Raises:
        UnsupportedError: TVM is not the release that the runtime is written for.
        ToolchainError: there is no C++ compiler to make it with, or that fails.
        OutputError: the user's cache folder cannot be written.
    """
    from edgedeploy.agent.build import build_opencl_library
    from edgedeploy.errors import UnsupportedError
    from edgedeploy.progress import SILENT

    if found := _unsupported():
        raise UnsupportedError(f"the runtime for OpenCL is written for {_line(SUPPORTED)}", why=f"there is {found}")
    listener = progress or SILENT

    def make(folder: Path) -> None:
        build_opencl_library(folder / LIBRARY_NAME, listener)

    what = "building the runtime for OpenCL"
    _RUNTIME.made(_key()[:16], make, what, listener, sound=lambda folder: (folder / LIBRARY_NAME).is_file())
    _load(library_path())


def device_named(stated: str) -> Any:
    """The first OpenCL device of this machine with a text in its name, graphics processors before others.

    Args:
        stated: the text, in any case; the empty one is part of every name. `EDGEDEPLOY_OPENCL_DEVICE` goes before it.

    Returns:
        A `tvm.runtime.Device`.

    Raises:
        NoOpenCLError: there is none.
        UnsupportedError, ToolchainError, OutputError: as `load`.
    """
    import tvm

    from edgedeploy.opencl.device import meant

    load()
    return opencl_device(meant(stated), tvm.opencl)


def opencl_device(part: str, device_at: Callable[[int], Any]) -> Any:
    """The first of some OpenCL devices, each a `tvm.runtime.Device` of a number, with `part` in its name.

    Raises:
        NoOpenCLError: there is none.
    """
    from edgedeploy.errors import NoOpenCLError

    names: list[str] = []
    while not names or device_at(len(names)).exist:
        device = device_at(len(names))
        names.append(str(device.device_name))  # raises where there is no device at all
        if part.lower() in names[-1].lower():
            return device
    raise NoOpenCLError(
        f"no OpenCL device here has {part!r} in its name",
        why=f"there is {', '.join(names)}",
        hints=[
            "name one of them: --device where networks are built, or EDGEDEPLOY_OPENCL_DEVICE",
            "install the driver of the device that is meant; `edgedeploy doctor` lists what is here",
        ],
    )


def remote_device(remote: Any, stated: str) -> Any:
    """The device that an agent runs networks on, by a session with it; of a server of others, the one of that name.

    Raises:
        NoOpenCLError: there is none.
    """
    try:
        find = remote.get_function(_FIND_DEVICE)
    except AttributeError:
        return opencl_device(stated, lambda index: remote.device("opencl", index))
    return remote.device("opencl", find(stated))


def kernel_seconds(device: Any, work: Callable[[], object]) -> float:
    """Do `work`, and sum up what the kernels took that it gave to a device, by the device's clock.

    Copies and the time between kernels do not count.

    Args:
        device: one that `device_named` gave.
        work: what is to be done, in this thread.

    Returns:
        The sum in seconds.

    Raises:
        OpenCLError: the device failed; or what `work` raises, as TVM passes it on.
    """
    import tvm_ffi

    return float(tvm_ffi.get_global_func("edgedeploy.opencl.kernel_nanoseconds")(device, work)) / 1e9


def library_path() -> Path:
    """Where the library is, or will be: in the user's cache folder, under a hash of all that it is made from."""
    return _RUNTIME.path(_key()[:16]) / LIBRARY_NAME


@cache
def _key() -> str:
    from edgedeploy.agent.recipe import agent_folder, opencl_library_sources, own_files
    from edgedeploy.files import digest_of

    files = sorted({*own_files(), *opencl_library_sources()})
    return key_of([digest_of(files, agent_folder()), SUPPORTED])


def _unsupported() -> str | None:
    """The releases that are installed, if they are not those that are supported."""
    installed = {name: importlib.metadata.version(name) for name in SUPPORTED}
    return None if installed == SUPPORTED else _line(installed)


def _line(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _load(library: Path) -> None:
    import ctypes

    import tvm  # noqa: F401  # whose libraries this one is linked to
    import tvm_ffi

    from edgedeploy.errors import OpenCLError

    for kind, error in OpenCLError.kinds().items():
        tvm_ffi.register_error(kind, error)
    if tvm_ffi.get_global_func(_DEVICE_API, allow_missing=True) is None:
        ctypes.CDLL(str(library), ctypes.RTLD_LOCAL)
