"""TVM's runtime for OpenCL, on PoCL's devices: memory, copies, kernels, streams, times, and what goes wrong."""

import ctypes
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from support.agents import packaged
from support.commands import generous
from support.networks import two_sides
from support.opencl_devices import ALL_THREADS, ONE_THREAD, Program, buffer, load_kernels
from tvm import te

from edgedeploy.errors import (
    DeviceMemoryError,
    KernelBuildError,
    NoOpenCLError,
    OpenCLDeviceLostError,
    OpenCLError,
    WorkGroupError,
)
from edgedeploy.runtime import opencl as runtime
from edgedeploy.runtime.opencl import device_named, kernel_seconds

pytestmark = pytest.mark.compiles

DOUBLE = """
__kernel void twice(__global float* to, __global const float* from) {
  to[get_global_id(0)] = 2 * from[get_global_id(0)];
}
"""


def tensor(values: Any, device: Any) -> Any:
    return tvm.runtime.tensor(np.asarray(values), device=device)


def random(count: int = 1000) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(count).astype("float32")


def scheduled(output: te.Tensor, *inputs: te.Tensor) -> Any:
    """A function of TVM's on the device, each value by a work-item of its own."""
    schedule = tvm.s_tir.Schedule(te.create_prim_func([*inputs, output]))
    [loop] = schedule.get_loops(schedule.get_sblock("result"))
    group, item = schedule.split(loop, [None, 64])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")
    return schedule.mod


def test_a_device_says_what_it_is(opencl: Any) -> None:
    assert opencl.exist
    assert ONE_THREAD in opencl.device_name
    assert opencl.max_threads_per_block >= 256
    assert opencl.max_shared_memory_per_block >= 32 << 10
    assert opencl.compute_version.startswith("OpenCL ")
    assert opencl.driver_version
    assert opencl.multi_processor_count >= 1
    assert opencl.total_global_memory > 1 << 20
    assert len(opencl.max_thread_dimensions) == 3


def test_there_are_as_many_devices_as_the_driver_has(opencl: Any) -> None:
    assert tvm.opencl(1).exist
    assert ALL_THREADS in tvm.opencl(1).device_name
    assert not tvm.opencl(2).exist


def test_a_device_is_found_by_a_part_of_its_name_in_any_case(opencl: Any) -> None:
    assert runtime.device_named(ALL_THREADS.upper()).index == 1
    assert runtime.device_named("").index == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"])
def test_values_come_back_as_they_went(opencl: Any, dtype: str) -> None:
    values = (random() * 100).astype(dtype).reshape(10, 5, 20)
    np.testing.assert_array_equal(tensor(values, opencl).numpy(), values)


def test_an_empty_tensor_is_a_tensor(opencl: Any) -> None:
    assert tensor(np.zeros((0, 3), "float32"), opencl).numpy().shape == (0, 3)


def test_memory_in_use_is_counted_and_given_back(opencl: Any) -> None:
    free = opencl.available_global_memory
    held = tvm.runtime.empty((1 << 20,), "float32", device=opencl)
    assert opencl.available_global_memory == free - (4 << 20)
    del held
    assert opencl.available_global_memory == free


@pytest.mark.parametrize(("source", "destination"), [(0, 0), (0, 1), (1, 0), (None, 0), (0, None)])
def test_copies_begin_and_end_where_they_are_told(opencl: Any, source: int | None, destination: int | None) -> None:
    devices = [tvm.cpu() if index is None else tvm.opencl(index) for index in (source, destination)]
    values = random(100)
    whole, into = tensor(values, devices[0]), tensor(np.zeros(100, "float32"), devices[1])
    part = whole._create_view((20,), "float32", relative_byte_offset=4 * 10)
    part.copyto(into._create_view((20,), "float32", relative_byte_offset=4 * 70))
    np.testing.assert_array_equal(into.numpy()[70:90], values[10:30])
    assert not into.numpy()[:70].any()
    assert not into.numpy()[90:].any()
    whole.copyto(into)
    np.testing.assert_array_equal(into.numpy(), values)


@pytest.mark.parametrize("index", [0, 1])
def test_a_function_of_tvms_runs_on_each_device(opencl: Any, tmp_path: Path, index: int) -> None:
    first, second = (te.placeholder((4096,), name=name) for name in "ab")
    result = te.compute((4096,), lambda i: te.exp(first[i]) * second[i], name="result")
    path = tmp_path / "library.so"
    target = tvm.target.Target({"kind": "opencl", "host": {"kind": "llvm"}})
    tvm.compile(scheduled(result, first, second), target=target).export_library(str(path))
    library, device = tvm.runtime.load_module(str(path)), tvm.opencl(index)
    values = random(4096)
    given, output = tensor(values, device), tensor(np.zeros_like(values), device)
    library["main"](given, given, output)
    np.testing.assert_allclose(output.numpy(), np.exp(values) * values, rtol=1e-5)


def test_a_kernel_is_given_arguments_of_each_type(opencl: Any) -> None:
    types = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64"
    kernels = load_kernels(
        """
        __kernel void collect(__global double* to, char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h,
                          float i, double j) {
          double all[] = {a, b, c, d, e, f, g, h, i, j};
          to[get_global_id(0)] = all[get_global_id(0)];
        }
        """,
        collect=["handle", *types.split()],
    )
    values = [-100, 200, -30_000, 60_000, -(2**31), 2**32 - 1, -(2**50), 2**50, 0.5, 1e300]
    output = tensor(np.zeros(10, "float64"), opencl)
    kernels["collect"](buffer(output), *values, 1, 10)
    np.testing.assert_array_equal(output.numpy(), values)


def test_a_kernel_runs_in_work_groups_of_the_size_it_is_launched_with(opencl: Any) -> None:
    kernels = load_kernels(
        "__kernel void sizes(__global int* to) { to[get_global_id(0)] = get_group_id(0) * 100 + get_local_id(0); }",
        sizes=["handle"],
    )
    output = tensor(np.zeros(12, "int32"), opencl)
    kernels["sizes"](buffer(output), 3, 4)
    assert output.numpy().tolist() == [100 * group + item for group in range(3) for item in range(4)]


def test_threads_share_a_kernel(opencl: Any) -> None:
    # PoCL 3.1 locks itself out where threads share its other device, `basic`.
    kernels, device = load_kernels(DOUBLE, twice=["handle", "handle"]), runtime.device_named(ALL_THREADS)
    choose = tvm_ffi.get_global_func("__tvm_set_device")
    wrong: list[int] = []

    def work(thread: int) -> None:
        choose(device.dlpack_device_type(), device.index)
        for round_ in range(50):
            values = np.full(256, thread * 1000 + round_, "float32")
            given, output = tensor(values, device), tensor(np.zeros(256, "float32"), device)
            kernels["twice"](buffer(output), buffer(given), 4, 64)
            if not np.array_equal(output.numpy(), 2 * values):
                wrong.append(thread)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not wrong


def test_a_stream_waits_for_another_one(opencl: Any) -> None:
    kernels = load_kernels(DOUBLE, twice=["handle", "handle"])
    make, choose, wait, free = (
        tvm_ffi.get_global_func(f"runtime.Device_{name}")
        for name in ("StreamCreate", "SetStream", "StreamSyncFromTo", "StreamFree")
    )
    values = random(1 << 20)
    tensors = [tensor(values, opencl), *(tensor(np.zeros_like(values), opencl) for _ in range(2))]
    streams = [make(opencl), make(opencl)]
    for index, stream in enumerate(streams):
        choose(opencl, stream)
        kernels["twice"](buffer(tensors[index + 1]), buffer(tensors[index]), 1 << 14, 64)
        if index == 0:
            wait(opencl, stream, streams[1])
    choose(opencl, 0)
    opencl.sync()
    np.testing.assert_array_equal(tensors[2].numpy(), 4 * values)
    for stream in streams:
        free(opencl, stream)


def test_a_workspace_that_was_given_back_is_used_again(opencl: Any) -> None:
    library = ctypes.CDLL("libtvm_runtime.so")
    library.TVMBackendAllocWorkspace.restype = ctypes.c_void_p
    place = (opencl.dlpack_device_type(), opencl.index)

    def take(size: int) -> Any:
        return ctypes.c_void_p(library.TVMBackendAllocWorkspace(*place, ctypes.c_uint64(size), 2, 32))

    first, second = take(1000), take(1000)
    assert first.value
    assert second.value not in (None, first.value)
    for each in (second, first):
        library.TVMBackendFreeWorkspace(*place, each)
    assert {take(1000).value, take(1000).value} == {first.value, second.value}


SPIN = """
__kernel void spin(__global float* to, int rounds) {
  float value = get_global_id(0);
  for (int i = 0; i < rounds; ++i) value = value * 0.999f + 1;
  to[get_global_id(0)] = value;
}
"""


@pytest.mark.quick("1")
@pytest.mark.parametrize("number", [1, 3])
def test_times_are_those_that_the_device_takes_for_a_call(opencl: Any, number: int) -> None:
    kernels, output = load_kernels(SPIN, spin=["handle", "int32"]), tensor(np.zeros(64, "float32"), opencl)
    evaluator = kernels.time_evaluator("spin", opencl, number=number, repeat=5)
    kernels["spin"](buffer(output), 10, 1, 64)  # the driver compiles it
    opencl.sync()
    begin = time.perf_counter()
    calls = number * sum(evaluator(buffer(output), 1_000_000, 1, 64).results)
    assert 1 / 20 < calls / (time.perf_counter() - begin) <= 1  # there is a call before those that are timed


def test_what_kernels_take_is_summed_without_what_lies_between_them(opencl: Any) -> None:
    kernels, output = load_kernels(SPIN, spin=["handle", "int32"]), tensor(np.zeros(64, "float32"), opencl)
    values = np.zeros(1 << 22, "float32")
    large = tensor(values, opencl)
    waited = []

    def spin(rounds: int) -> None:
        begin = time.perf_counter()
        kernels["spin"](buffer(output), rounds, 1, 64)
        opencl.sync()
        waited.append(time.perf_counter() - begin)

    def work() -> None:
        spin(1_000_000)
        time.sleep(5 * waited[-1])
        large.copyfrom(values)
        spin(2_000_000)

    spin(10)
    waited.clear()
    assert 1 / 10 < kernel_seconds(opencl, work) / sum(waited) <= 1
    assert kernel_seconds(opencl, lambda: large.copyfrom(values)) == 0


def test_more_kernels_than_are_kept_are_summed_as_well(opencl: Any) -> None:
    kernels, output = load_kernels(SPIN, spin=["handle", "int32"]), tensor(np.zeros(64, "float32"), opencl)

    def spin(count: int) -> float:
        def work() -> None:
            for _ in range(count):
                kernels["spin"](buffer(output), 2000, 1, 64)

        return kernel_seconds(opencl, work)

    spin(10)
    assert spin(10_000) > 4 * spin(1000)


def test_a_sum_that_was_broken_off_leaves_nothing_behind(opencl: Any) -> None:
    kernels, output = load_kernels(SPIN, spin=["handle", "int32"]), tensor(np.zeros(64, "float32"), opencl)

    def fail() -> None:
        kernels["spin"](buffer(output), 1000, 1, 64)
        raise ValueError("told to")

    with pytest.raises(ValueError, match="told to"):
        kernel_seconds(opencl, fail)
    kernels["spin"](buffer(output), 10_000_000, 1, 64)
    opencl.sync()
    assert kernel_seconds(opencl, lambda: None) == 0


def test_a_timer_does_not_count_what_the_caller_does_before_the_device_is_at_work(opencl: Any) -> None:
    kernels, output = load_kernels(SPIN, spin=["handle", "int32"]), tensor(np.zeros(64, "float32"), opencl)
    spin = kernels["spin"]

    @tvm_ffi.register_global_func("test.sleep_then_spin", override=True)
    def _sleep_then_spin() -> None:
        time.sleep(0.1)
        spin(buffer(output), 1000, 1, 64)

    evaluate = tvm_ffi.get_global_func("runtime.RPCTimeEvaluator")
    place = (opencl.dlpack_device_type(), opencl.index)
    timer = evaluate(None, "test.sleep_then_spin", *place, 1, 1, 0, 0, 0, 1, 0, "")
    assert 0 < np.frombuffer(timer(), "float64")[0] < 0.05


def test_a_program_is_compiled_once_for_each_machine(program: Program, tmp_path: Path) -> None:
    program(DOUBLED).check_returncode()
    [kept] = (tmp_path / "programs").iterdir()
    written = kept.stat()
    program(DOUBLED).check_returncode()
    [path] = (tmp_path / "programs").iterdir()
    # What is compiled is kept in a new file.
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.parametrize("damage", [pytest.param("cut off", marks=pytest.mark.slow), "changed"])
def test_a_kept_program_that_is_damaged_is_compiled_anew(program: Program, tmp_path: Path, damage: str) -> None:
    program(DOUBLED).check_returncode()
    [path] = (tmp_path / "programs").iterdir()
    sound = path.read_bytes()
    middle = len(sound) // 2
    rest = bytes([sound[middle] ^ 1]) + sound[middle + 1 :] if damage == "changed" else b""
    path.write_bytes(damaged := sound[:middle] + rest)
    program(DOUBLED).check_returncode()
    anew = path.read_bytes()  # PoCL does not always write the same bytes
    assert anew != damaged
    program(DOUBLED).check_returncode()
    assert path.read_bytes() == anew  # sound, or it would have been compiled once more


@pytest.mark.slow
def test_another_program_is_not_taken_for_the_kept_one(program: Program, tmp_path: Path) -> None:
    program(DOUBLED).check_returncode()
    program(DOUBLED.replace("2 *", "3 *").replace("== 2", "== 3")).check_returncode()
    assert len(list((tmp_path / "programs").iterdir())) == 2


@pytest.mark.slow
def test_where_no_program_can_be_kept_it_is_compiled_each_time(program: Program) -> None:
    program(DOUBLED, EDGEDEPLOY_OPENCL_CACHE="/proc/none").check_returncode()


# Compiles a program of one kernel, and runs it.
DOUBLED = """
from support.opencl_devices import buffer, load_kernels
source = "__kernel void k(__global float* to) { to[get_global_id(0)] = 2 * exp(to[get_global_id(0)]); }"
kernels = load_kernels(source, k=["handle"])
output = tvm.runtime.tensor(np.zeros(64, "float32"), device=tvm.opencl(0))
kernels["k"](buffer(output), 1, 64)
assert (output.numpy() == 2).all()
"""


# What goes wrong with OpenCL is said in typed errors, and nothing waits for ever.

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
        tensor(np.zeros(3), tvm.opencl(7))


def test_a_kernel_that_does_not_build_is_shown_with_the_compilers_log(opencl: Any) -> None:
    kernels = load_kernels("__kernel void wrong(__global float* to) { to[0] = no_such_name; }", wrong=["handle"])
    output = tensor(np.zeros(1, "float32"), opencl)
    with pytest.raises(KernelBuildError, match=f"the kernels do not compile for {ONE_THREAD}") as caught:
        kernels["wrong"](buffer(output), 1, 1)
    assert "no_such_name" in str(caught.value.why)


@pytest.mark.slow
def test_a_kernel_that_the_program_lacks_is_named(opencl: Any) -> None:
    kernels = load_kernels("__kernel void other(__global float* to) { to[0] = 1; }", missing=["handle"])
    output = tensor(np.zeros(1, "float32"), opencl)
    with pytest.raises(OpenCLError, match="kernel missing"):
        kernels["missing"](buffer(output), 1, 1)


def test_a_work_group_beyond_the_device_is_refused_with_both_numbers(opencl: Any) -> None:
    kernels = load_kernels(ONE, one=["handle"])
    most = opencl.max_threads_per_block
    output = tensor(np.zeros(2 * most, "float32"), opencl)
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
    output = tensor(np.zeros(2, "int32"), opencl)
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
