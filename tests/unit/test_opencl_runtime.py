"""TVM's runtime for OpenCL, on PoCL's devices: memory, copies, kernels, streams, times."""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from support.opencl_devices import ALL_THREADS, ONE_THREAD, Program, buffer, load_kernels
from tvm import te

from edgedeploy.runtime import opencl as runtime
from edgedeploy.runtime.opencl import kernel_seconds

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
