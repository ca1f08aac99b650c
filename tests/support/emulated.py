"""Compiled functions of other architectures, and networks of them, run by qemu.

No agent is needed, which takes long to build for another architecture.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.compile.backend import Generated
from edgedeploy.compile.backends import host_of
from edgedeploy.compile.output import codegen
from edgedeploy.compile.pipeline import Lowered, lower_network
from edgedeploy.model.network import Network
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.toolchain import c_compiler, link_program, link_shared
from support.agents import emulation_here
from support.agreement import computed

_PROGRAM = Path(__file__).with_name("emulated_program.c")
_PROGRAMS = FolderCache("emulated-programs")

Program = Callable[[str, Sequence[np.ndarray]], list[np.ndarray]]


def emulated_program(objects: Sequence[Path], board: Board, folder: Path) -> Program:
    """Functions of object files, to be called by name with tensors: what lies in these afterwards is returned."""
    emulation = emulation_here(board)
    caller, library = _caller(board), folder / "functions.so"
    link_shared([*objects], library, board)

    def call(name: str, tensors: Sequence[np.ndarray]) -> list[np.ndarray]:
        files = [folder / str(index) for index in range(len(tensors))]
        for file, tensor in zip(files, tensors, strict=True):
            file.write_bytes(np.ascontiguousarray(tensor).tobytes())
        command = [*emulation, "-cpu", board.cpu, caller, library, f"__tvm_ffi_{name}", *files]
        subprocess.run([str(word) for word in command], check=True)
        return [
            np.frombuffer(file.read_bytes(), tensor.dtype).reshape(tensor.shape)
            for file, tensor in zip(files, tensors, strict=True)
        ]

    return call


def _caller(board: Board) -> Path:
    """The program that calls functions of libraries, for the board's triple."""

    def make(folder: Path) -> None:
        link_program(_PROGRAM, folder / "program", board)

    key = key_of([_PROGRAM.read_text(), board.triple, c_compiler(board).identity])
    return _PROGRAMS.get(key, make, "the caller of functions") / "program"


def outputs_on(board: str, network: Network, inputs: Mapping[str, np.ndarray], folder: Path) -> list[np.ndarray]:
    """The outputs of a network on `local`, or on another board by qemu."""
    profile = load_board(board)
    if board == "local":
        return computed(network, inputs)
    return emulated_outputs(lower_network(network, profile), profile, inputs, folder)


def emulated_outputs(
    lowered: Lowered, board: Board, inputs: Mapping[str, np.ndarray], folder: Path
) -> list[np.ndarray]:
    """The outputs of a network for a board: TVM's virtual machine runs here, and qemu each function that it calls."""
    names: list[str] = []

    class Emulated(type(host_of(board))):  # type: ignore[misc]
        """Leaves the functions out of the network's library, and their object files in the test's folder."""

        def generate(self, functions: tvm.IRModule, _: Path) -> Generated:
            names.extend(each.name_hint for each in functions.get_global_vars())
            return Generated([], super().generate(functions, folder).libraries)

    backend = Emulated(board)
    code = codegen.generate(lowered.module, backend, backend)
    program = emulated_program(sorted(folder.glob("*.o")), board, folder)
    with _registered(names, program):
        machine = relax.VirtualMachine(code.executable, tvm.cpu())
        returned = machine["main"](*map(tvm.runtime.tensor, inputs.values()))
    return [returned.numpy()] if hasattr(returned, "numpy") else [array.numpy() for array in returned]


@contextmanager
def _registered(names: Sequence[str], program: Program) -> Iterator[None]:
    """Functions that TVM's virtual machine finds by their names, as its library has none of them."""

    def call(name: str, *tensors: Any) -> None:
        before = [tensor.numpy() for tensor in tensors]
        for tensor, old, new in zip(tensors, before, program(name, before), strict=True):
            if not np.array_equal(old, new):
                tensor.copyfrom(new)

    for name in names:
        tvm_ffi.register_global_func(name, partial(call, name), override=True)
    try:
        yield
    finally:
        for name in names:
            tvm_ffi.registry.remove_global_func(name)
