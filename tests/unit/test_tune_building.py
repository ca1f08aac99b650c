"""Batches of candidates: one library of the product's own code, and entries for what cannot be built."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from elftools.elf.elffile import ELFFile
from support import kernels
from support.commands import generous
from support.networks import tiny

from edgedeploy.compile.native import SET_THREADS
from edgedeploy.compile.pipeline import lower_network
from edgedeploy.errors import OutputError, ToolchainError
from edgedeploy.target.board import load_board
from edgedeploy.tuning.building import Argument, Batch, Builder
from edgedeploy.zoo.source import find_source


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    with Builder(load_board("local"), timeout_s=60) as builder:
        yield builder


def loaded(batch: Batch) -> Any:
    [library] = batch.libraries
    return tvm.runtime.load_module(str(library))


def result(module: Any, batch: Batch, index: int, *inputs: np.ndarray) -> np.ndarray:
    """The last tensor of a candidate after it ran; it was zero before."""
    entry = batch.entries[index]
    output = tvm.runtime.tensor(np.zeros(entry.arguments[-1].shape, entry.arguments[-1].dtype))
    module[entry.name](*map(tvm.runtime.tensor, inputs), output)
    return output.numpy()


def test_a_batch_is_one_library_with_a_function_for_each_candidate(builder: Builder) -> None:
    batch = builder.build([kernels.doubling, kernels.exponential, kernels.doubling])
    assert [entry.error for entry in batch.entries] == [None] * 3
    assert len({entry.name for entry in batch.entries}) == 3
    assert batch.entries[1].arguments == (Argument((4096,), "float32"), Argument((4096,), "float32"))
    module = loaded(batch)
    small, large = np.arange(64, dtype=np.float32), np.linspace(-5, 5, 4096, dtype=np.float32)
    for index in (0, 2):
        np.testing.assert_array_equal(result(module, batch, index, small), 2 * small)
    np.testing.assert_allclose(result(module, batch, 1, large), np.exp(large), rtol=1e-6)
    # It is code of the product's own generation.
    [library] = batch.libraries
    with library.open("rb") as stream:
        symbols = {symbol.name for symbol in ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()}
    assert f"__tvm_ffi_{batch.entries[1].name}" in symbols
    assert not {"exp", "expf"} & symbols  # as arithmetic on vectors, not calls of the C library


def test_candidates_run_on_the_librarys_own_threads(builder: Builder) -> None:
    batch = builder.build([kernels.parallel_sum])
    module = loaded(batch)
    before = len(list(Path("/proc/self/task").iterdir()))
    assert module[SET_THREADS](3) == 3
    assert len(list(Path("/proc/self/task").iterdir())) == before + 2
    data = np.random.default_rng(0).standard_normal((64, 16384)).astype(np.float32)
    np.testing.assert_allclose(result(module, batch, 0, data), data.sum(1), rtol=1e-3, atol=1e-2)
    module[SET_THREADS](1)


def test_all_functions_of_a_network_are_built(builder: Builder, tmp_path: Path) -> None:
    lowered = lower_network(find_source(str(tiny(tmp_path / "net.onnx"))).read(), load_board("local"))
    every = lowered.module.functions.items()
    functions = [function for variable, function in every if variable.name_hint in lowered.functions]
    batch = builder.build(functions)
    assert len(batch.entries) == len(functions) >= 2
    assert not [entry.error for entry in batch.entries if entry.error]


@pytest.mark.parametrize(
    ("function", "why"),
    [(kernels.of_any_size, "not a tensor|not fixed"), (kernels.uncompilable, "the compiler failed: [A-Z]")],
    ids=["of_any_size", "uncompilable"],
)
def test_a_candidate_that_cannot_be_built_leaves_the_others_alone(builder: Builder, function: Any, why: str) -> None:
    batch = builder.build([kernels.doubling, function])
    assert batch.entries[0].error is None
    assert re.search(why, batch.entries[1].error or "")
    data = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(result(loaded(batch), batch, 0, data), 2 * data)


@pytest.mark.slow
def test_a_candidate_that_takes_too_long_is_given_up_and_its_process_is_replaced() -> None:
    with Builder(load_board("local"), timeout_s=3, workers=1) as builder:
        builder.start()
        began = time.monotonic()
        batch = builder.build([kernels.endless_to_compile, kernels.doubling])
        assert time.monotonic() - began < generous(60)
    assert "longer than 3 s" in (batch.entries[0].error or "")
    assert batch.entries[1].error is None


@pytest.mark.slow
def test_a_compiler_that_crashes_costs_its_candidate_only() -> None:
    before = set(multiprocessing.active_children())
    with Builder(load_board("local"), timeout_s=60, workers=1) as builder:
        builder.start()
        [process] = set(multiprocessing.active_children()) - before
        threading.Timer(1, os.kill, (process.pid, signal.SIGKILL)).start()  # as a system does that runs out of memory
        batch = builder.build([kernels.endless_to_compile, kernels.doubling])
    assert "crashed (SIGKILL)" in (batch.entries[0].error or "")
    assert batch.entries[1].error is None


def test_a_batch_of_which_nothing_can_be_built_has_no_library(builder: Builder) -> None:
    batch = builder.build([kernels.of_any_size])
    assert batch.libraries == []
    batch.remove()


@pytest.mark.slow
def test_libraries_go_when_told_and_all_files_in_the_end() -> None:
    with Builder(load_board("local")) as builder:
        first, second = builder.build([kernels.doubling]), builder.build([kernels.doubling])
        [removed], [kept] = first.libraries, second.libraries
        first.remove()
        assert not removed.exists()
        assert kept.exists()
    assert not kept.parent.exists()


def test_a_toolchain_that_is_not_there_is_an_error_of_its_own() -> None:
    board = load_board("local").overridden({"cross_compiler": ["no-such-compiler-gcc"]})
    with Builder(board) as builder, pytest.raises(ToolchainError, match="no-such-compiler-gcc"):
        builder.build([kernels.doubling])


FULL_DISK = """
import sys, tempfile
from contextlib import suppress
sys.path.insert(0, sys.argv[1])
from support import kernels
from edgedeploy.target.board import load_board
from edgedeploy.errors import OutputError
from edgedeploy.tuning.building import Builder

if __name__ == "__main__":
    with Builder(load_board("local")) as builder:
        builder.start()
        filler = open(tempfile.gettempdir() + "/filler", "wb")
        with suppress(OSError):
            while True:
                filler.write(bytes(1 << 16))
                filler.flush()
        try:
            builder.build([kernels.doubling] * 3)
        except OutputError as error:
            print(error)
"""


@pytest.mark.slow
def test_a_full_disk_is_told_from_candidates_that_fail(tmp_path: Path) -> None:
    """In a file system of 16 MB of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    (tmp_path / "script.py").write_text(FULL_DISK)
    tests = Path(__file__).parent.parent
    mount = f'mkdir {tmp_path}/small && mount -t tmpfs -o size=16m tmpfs {tmp_path}/small && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, str(tmp_path / "script.py"), str(tests)]
    environment = {**os.environ, "TMPDIR": f"{tmp_path}/small"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"this system lets nobody mount: {done.stderr.strip()}")
    assert OutputError.__name__ not in done.stderr
    assert re.search(r"cannot write .*: No space left on device", done.stdout), done.stderr
