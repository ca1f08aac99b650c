"""What goes wrong with OpenCL is said in typed errors, and nothing waits for ever."""

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from support.agents import packaged
from support.networks import two_sides
from support.opencl_devices import ALL_THREADS, ONE_THREAD, Program, buffer, load_kernels
from support.patience import generous

from edgedeploy.errors import (
    DeviceMemoryError,
    KernelBuildError,
    NoOpenCLError,
    OpenCLDeviceLostError,
    OpenCLError,
    WorkGroupError,
)
from edgedeploy.runtime.opencl import device_named

pytestmark = pytest.mark.compiles

# Says which of edgedeploy's errors the use of a device ends in.
FIRST_USE = """
from edgedeploy.errors import EdgedeployError
from edgedeploy.runtime.opencl import device_named
assert not tvm.opencl(0).exist
try:
    device_named("")
except EdgedeployError as error:
    print(type(error).__name__, error.exit_code, error.cause)
"""

ONE = "__kernel void one(__global float* to) { to[get_global_id(0)] = 1; }"
WITH_A_KERNEL = f"""
from support.opencl_devices import buffer, load_kernels
from edgedeploy.errors import OpenCLError
kernels = load_kernels({ONE!r}, one=["handle"])
output = tvm.runtime.tensor(np.zeros(64, "float32"), device=tvm.opencl(0))
"""

# Runs kernels until one fails, then asks for more of the lost device.
UNTIL_LOST = """
for attempt in range(10):
    try:
        kernels["one"](buffer(output), 1, 64)
        output.numpy()
        print("ran")
    except OpenCLError as error:
        print(type(error).__name__, error.exit_code, error.cause)
        if attempt > 3:
            break
del output
"""

# Sums up the times of more kernels than are kept, so that their device is waited for in between.
SUMMED = """
from edgedeploy.runtime.opencl import kernel_seconds
def work():
    for _ in range(5000):
        kernels["one"](buffer(output), 1, 64)
try:
    kernel_seconds(tvm.opencl(0), work)
except OpenCLError as error:
    print(type(error).__name__, error.exit_code, error.cause)
"""


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OCL_ICD_VENDORS": os.devnull}, "no OpenCL driver is installed here"),
        pytest.param({"POCL_DEVICES": ""}, "OpenCL has no device here", marks=pytest.mark.slow),
    ],
    ids=["no driver", "no device"],
)
def test_without_a_driver_or_a_device_that_is_said(program: Program, variables: dict[str, str], says: str) -> None:
    done = program(FIRST_USE, **variables)
    assert done.stdout.startswith(f"NoOpenCLError 21 {says}"), done


@pytest.mark.slow
def test_without_opencl_on_the_machine_that_is_said_and_the_rest_of_tvm_works(program: Program, tmp_path: Path) -> None:
    (tmp_path / "libOpenCL.so.1").write_text("no library")
    (tmp_path / "libOpenCL.so").write_text("no library")
    done = program(FIRST_USE + "print(tvm.runtime.tensor(np.ones(2)).numpy().sum())", LD_LIBRARY_PATH=str(tmp_path))
    [error, rest] = done.stdout.splitlines()
    assert error.startswith("NoOpenCLError 21 there is no OpenCL here"), done
    assert rest == "2.0"


def test_a_device_that_is_not_there_is_said_with_those_that_are(opencl: Any) -> None:
    said = f"'Mali' in its name: there is {ONE_THREAD}.*{re.escape(ALL_THREADS)}"
    with pytest.raises(NoOpenCLError, match=said) as caught:
        device_named("Mali")
    assert caught.value.hints


@pytest.mark.slow
def test_a_device_beyond_the_last_one_is_said(opencl: Any) -> None:
    with pytest.raises(NoOpenCLError, match="no OpenCL device 7 here: there are 2"):
        tvm.runtime.tensor(np.zeros(3), device=tvm.opencl(7))


def test_a_kernel_that_does_not_build_is_shown_with_the_compilers_log(opencl: Any) -> None:
    kernels = load_kernels("__kernel void wrong(__global float* to) { to[0] = no_such_name; }", wrong=["handle"])
    output = tvm.runtime.tensor(np.zeros(1, "float32"), device=opencl)
    with pytest.raises(KernelBuildError, match=f"the kernels do not compile for {ONE_THREAD}") as caught:
        kernels["wrong"](buffer(output), 1, 1)
    assert "no_such_name" in str(caught.value.why)


@pytest.mark.slow
def test_a_kernel_that_the_program_lacks_is_named(opencl: Any) -> None:
    kernels = load_kernels("__kernel void other(__global float* to) { to[0] = 1; }", missing=["handle"])
    output = tvm.runtime.tensor(np.zeros(1, "float32"), device=opencl)
    with pytest.raises(OpenCLError, match="kernel missing"):
        kernels["missing"](buffer(output), 1, 1)


def test_a_work_group_beyond_the_device_is_refused_with_both_numbers(opencl: Any) -> None:
    kernels = load_kernels(ONE, one=["handle"])
    most = opencl.max_threads_per_block
    output = tvm.runtime.tensor(np.zeros(2 * most, "float32"), device=opencl)
    with pytest.raises(WorkGroupError, match=rf"kernel one .* {2 * most} work-items, .* gives it {most}"):
        kernels["one"](buffer(output), 1, 2 * most)
    kernels["one"](buffer(output), 2, most)
    assert output.numpy().all()


@pytest.mark.slow
def test_local_memory_beyond_the_device_is_refused_with_both_numbers(opencl: Any) -> None:
    most = opencl.max_shared_memory_per_block
    kernels = load_kernels(
        f"""
        __kernel void local_memory(__global int* to) {{
          __local int shared[{most // 4 + 16}];
          shared[to[0]] = 1;
          barrier(CLK_LOCAL_MEM_FENCE);
          to[0] = shared[to[1]];
        }}
        """,
        local_memory=["handle"],
    )
    output = tvm.runtime.tensor(np.zeros(2, "int32"), device=opencl)
    with pytest.raises(WorkGroupError, match=rf"needs {most + 64} bytes of local memory, .* has {most}"):
        kernels["local_memory"](buffer(output), 1, 1)


def test_a_piece_of_memory_beyond_the_device_is_refused_with_both_numbers(opencl: Any) -> None:
    said = rf"4398046511104 bytes are more than {ONE_THREAD}.* gives in one piece, \d+"
    with pytest.raises(DeviceMemoryError, match=said):
        tvm.runtime.empty((1 << 40,), "float32", device=opencl)


@pytest.mark.slow
def test_memory_that_is_exhausted_is_said_and_usable_again(program: Program) -> None:
    done = program(
        """
from edgedeploy.errors import OpenCLError
held = []
try:
    while True:
        held.append(tvm.runtime.empty((64 << 20,), "int8", device=tvm.opencl(0)))
except OpenCLError as error:
    print(type(error).__name__, error.exit_code, error.cause)
count = len(held)
del held
print(count, tvm.runtime.tensor(np.ones(64 << 20, "int8"), device=tvm.opencl(0)).numpy().all())
""",
        POCL_MEMORY_LIMIT="1",
    )
    [error, after] = done.stdout.splitlines()
    assert error.startswith(f"DeviceMemoryError 21 the memory of {ONE_THREAD}"), done
    count, usable = after.split()
    assert int(count) >= 4
    assert usable == "True"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("gone", "it cannot launch the kernel one: CL_DEVICE_NOT_AVAILABLE (-2)"),
        ("failed", "it failed while it was working: CL_OUT_OF_RESOURCES (-5)"),
        ("stuck", "it did not answer for 2 s"),
    ],
)
@pytest.mark.slow
def test_a_lost_device_is_said_then_and_later(program: Program, faulty: dict[str, str], fault: str, says: str) -> None:
    begin = time.monotonic()
    done = program(WITH_A_KERNEL + UNTIL_LOST, FAULT=fault, FAULT_AFTER="3", EDGEDEPLOY_OPENCL_TIMEOUT_S="2", **faulty)
    assert time.monotonic() - begin < generous(30)
    first, second, lost, *after = done.stdout.splitlines()
    assert (first, second) == ("ran", "ran"), done
    assert lost.startswith(f"OpenCLDeviceLostError 21 the device {ONE_THREAD}"), done
    assert says in lost
    assert after
    assert all("was lost before" in line for line in after)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_device_that_is_lost_while_its_kernels_are_timed_is_said(program: Program, faulty: dict[str, str]) -> None:
    done = program(WITH_A_KERNEL + SUMMED, FAULT="failed", FAULT_AFTER="4096", **faulty)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"OpenCLDeviceLostError 21 the device {ONE_THREAD}"), done


def test_the_errors_of_devices_are_one_family() -> None:
    assert {kind.exit_code for kind in OpenCLError.kinds().values()} == {21}
    assert issubclass(OpenCLDeviceLostError, OpenCLError)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        pytest.param({"OCL_ICD_VENDORS": os.devnull}, ["no OpenCL driver is installed here", "apt install"], id="none"),
        *(
            pytest.param({"FAULT": fault}, [says], id=fault, marks=pytest.mark.slow)
            for fault, says in {
                "narrow": "gives it 1",
                "full": "CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)",
                "gone": "it cannot launch the kernel",
                "failed": "it failed while it was working",
                "stuck": "it did not answer for 2 s",
            }.items()
        ),
    ],
)
def test_a_command_that_meets_a_fault_ends_with_the_documented_code(
    program: Program, faulty: dict[str, str], tmp_path: Path, variables: dict[str, str], says: list[str]
) -> None:
    package = packaged(two_sides(tmp_path / "net.onnx"), "local-opencl").path
    run = f"import sys; sys.argv = ['edgedeploy', 'run', {str(package)!r}]; from edgedeploy.cli import main; main()"
    begin = time.monotonic()
    done = program(run, EDGEDEPLOY_OPENCL_TIMEOUT_S="2", **variables, **faulty)
    assert time.monotonic() - begin < generous(30)
    assert done.returncode == 21, done.stderr
    assert all(each in " ".join(done.stderr.split()) for each in says)
    assert "Traceback" not in done.stderr
