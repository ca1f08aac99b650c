"""Scheduled functions that tests build and measure: sound ones, and all that can be wrong with one."""

from __future__ import annotations

from tvm.script import tirx as T  # noqa: N812  # the name that TVM's own scripts have it under


@T.prim_func
def doubling(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(64):
        y[i] = x[i] * T.float32(2)


@T.prim_func
def doubling_on_device(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for group in T.thread_binding(4, "blockIdx.x"):
        for item in T.thread_binding(16, "threadIdx.x"):
            y[group * 16 + item] = x[group * 16 + item] * T.float32(2)


@T.prim_func
def in_a_group_too_large(x: T.Buffer((65536,), "float32"), y: T.Buffer((65536,), "float32")):
    for group in T.thread_binding(1, "blockIdx.x"):
        for item in T.thread_binding(65536, "threadIdx.x"):
            y[group * 65536 + item] = x[group * 65536 + item]


@T.prim_func
def refused_by_the_driver(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for group in T.thread_binding(1, "blockIdx.x"):
        for item in T.thread_binding(64, "threadIdx.x"):
            y[group * 64 + item] = T.call_extern("float32", "no_such_function", x[item])


@T.prim_func
def endless_on_device(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for group in T.thread_binding(1, "blockIdx.x"):
        for item in T.thread_binding(64, "threadIdx.x"):
            for _ in range(1 << 44):
                y[group * 64 + item] = y[group * 64 + item] * T.float32(0.5) + x[item]


@T.prim_func
def exponential(x: T.Buffer((4096,), "float32"), y: T.Buffer((4096,), "float32")):
    for i in T.vectorized(4096):
        y[i] = T.exp(x[i])


@T.prim_func
def parallel_sum(x: T.Buffer((64, 16384), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.parallel(64):
        for j in range(16384):
            y[i] = y[i] + x[i, j]


@T.prim_func
def serial_sum(x: T.Buffer((4096,), "float32"), y: T.Buffer((1,), "float32")):
    for i in range(4096):
        y[0] = y[0] + x[i]


@T.prim_func
def serial_sum_16(x: T.Buffer((65536,), "float32"), y: T.Buffer((1,), "float32")):
    for i in range(65536):
        y[0] = y[0] + x[i]


@T.prim_func
def waiting_in_parallel(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.parallel(8):
        T.evaluate(T.call_extern("int32", "usleep", 5000))
        y[i] = x[i]


@T.prim_func
def gathering(x: T.Buffer((64,), "float32"), indices: T.Buffer((8,), "int32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        y[i] = x[indices[i]]


@T.prim_func
def endless(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for _ in range(1 << 44):
        y[0] = y[0] * T.float32(0.5) + x[0]


@T.prim_func
def crashing(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    T.evaluate(T.call_extern("void", "abort"))


@T.prim_func
def raising(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    T.evaluate(T.tvm_call_packed("no.such.function", x.data))


@T.prim_func
def unlinkable(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(64):
        y[i] = T.call_pure_extern("float32", "no_such_function", x[i])


@T.prim_func
def endless_to_compile(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in T.unroll(1 << 20):
        y[i % 64] = y[(i * 7 + 3) % 64] + x[i % 64]


@T.prim_func
def uncompilable(x: T.Buffer((64,), "float64"), y: T.Buffer((64,), "float64")):
    for i in range(64):
        y[i] = T.q_multiply_shift(x[i], x[i], x[i], x[i])


@T.prim_func
def of_any_size(n: T.int32, x_data: T.handle):
    x = T.match_buffer(x_data, (n,), "float32")
    for i in range(n):
        x[i] = T.float32(0)


@T.prim_func
def reading_weights(
    x: T.Buffer((16,), "float32"), w: T.Buffer((128, 64, 16), "float32"), y: T.Buffer((16,), "float32")
):
    # Each place is known only when the value before it is there, and is in another page. Triangular numbers take each
    # page once, in steps that no prefetcher foresees.
    y[0] = x[0]
    for i in range(64):
        for j in range(128):
            y[0] = w[j * (j + 1) // 2 % 128, i, T.Cast("int32", y[0] * T.float32(0.0001))]
