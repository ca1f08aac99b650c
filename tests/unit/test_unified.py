"""What importers write in several ways becomes the same operators, with the same values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from support.agreement import computed, convolved
from tvm import relax

from edgedeploy.compile.integers.quantisation import has_quantisation, recognise, spell_out
from edgedeploy.compile.ir.expressions import constant, parts_of
from edgedeploy.compile.ir.optraits import operator_name
from edgedeploy.compile.passes.unify import decompose, unify
from edgedeploy.frontends.importing import specifications
from edgedeploy.model.network import Network

DATA = np.random.default_rng(0).standard_normal((1, 4, 3, 5)).astype(np.float32)
COLUMN = np.float32([1, 2, 3, 4])
KERNEL = np.random.default_rng(2).standard_normal((6, 4, 3, 2)).astype(np.float32)


def module_of(
    make: Callable[[relax.BlockBuilder, Any], Any], shape: tuple[int, ...] = DATA.shape, dtype: str = "float32"
) -> tvm.IRModule:
    build, data = relax.BlockBuilder(), relax.Var("data", relax.TensorType(shape, dtype))
    with build.function("main", [data]):
        with build.dataflow():
            result = build.emit_output(make(build, data))
        build.emit_func_output(result)
    return build.get()


def operators(module: tvm.IRModule) -> list[str]:
    return [name for part in parts_of(module["main"]) if (name := operator_name(part))]


def result_of(module: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    given, returned = specifications(Path("net"), module["main"], ["data"], ["y"])
    network = Network(Path("net"), module, given, returned, False, lambda tensors: {}, "none")
    return computed(network, {"data": data})[0]


def normalisation(build: relax.BlockBuilder, data: Any) -> Any:
    parts = [constant(each) for each in (COLUMN, -COLUMN, COLUMN / 4, COLUMN / 2)]
    return relax.TupleGetItem(build.emit(relax.op.nn.batch_norm(data, *parts, axis=1, epsilon=1e-3, training=False)), 0)


@pytest.mark.compiles
@pytest.mark.parametrize("shape", [(2, 4, 6), (1, 4, 3, 5), (1, 4, 2, 3, 2)])
def test_batch_normalisation_is_one_product_and_one_sum(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    module = module_of(normalisation, shape)
    assert operators(decompose(module)) == ["multiply", "add"]
    column = COLUMN.reshape([-1] + [1] * (len(shape) - 2))
    expected = (data - column / 4) / np.sqrt(column / 2 + 1e-3) * column - column
    np.testing.assert_allclose(result_of(module, data), expected, rtol=1e-5, atol=1e-5)


CASES: dict[str, tuple[Callable[[relax.BlockBuilder, Any], Any], list[str], Callable[[np.ndarray], np.ndarray]]] = {
    "x - c": (lambda build, x: relax.op.subtract(x, constant(3.0, "float32")), ["add"], lambda x: x - 3),
    "x / c": (lambda build, x: relax.op.divide(x, constant(6.0, "float32")), ["multiply"], lambda x: x / 6),
    "c - x": (
        lambda build, x: relax.op.subtract(constant(3.0, "float32"), x), ["subtract"], lambda x: 3 - x
    ),
    "axes from the end": (
        lambda build, x: relax.op.squeeze(build.emit(relax.op.expand_dims(x, [-2])), [-2]), ["reshape"], lambda x: x
    ),
    "adaptive mean": (
        lambda build, x: relax.op.nn.adaptive_avg_pool2d(x, 1), ["mean"], lambda x: x.mean((2, 3), keepdims=True)
    ),
    "to its own shape": (
        lambda build, x: relax.op.exp(build.emit(relax.op.broadcast_to(x, DATA.shape))), ["exp"], np.exp
    ),
    "two transposes": (
        lambda build, x: relax.op.permute_dims(build.emit(relax.op.permute_dims(x, [0, 2, 3, 1])), [0, 2, 1, 3]),
        ["permute_dims"],
        lambda x: x.transpose(0, 3, 2, 1),
    ),
    "a stack of one matrix": (
        lambda build, x: relax.op.matmul(x, constant(np.arange(10, dtype=np.float32).reshape(1, 5, 2))),
        ["matmul"],
        lambda x: x @ np.arange(10, dtype=np.float32).reshape(5, 2),
    ),
}  # fmt: skip


@pytest.mark.compiles
@pytest.mark.parametrize("case", CASES)
def test_operators_are_written_in_one_way_with_the_same_values(case: str) -> None:
    make, expected, wanted = CASES[case]
    module = module_of(make)
    assert operators(unify(module)) in (expected, [*expected, "reshape"])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(result_of(module, DATA), wanted(DATA), rtol=1e-5, atol=1e-6)


@pytest.mark.compiles
@pytest.mark.parametrize(
    "whole",
    [relax.op.floor, relax.op.trunc, lambda quotient: relax.op.astype(quotient, "int32")],
    ids=["floor", "trunc", "integer"],
)
def test_rows_of_pixels_are_those_of_an_exact_quotient(whole: Callable[[Any], Any]) -> None:
    width, pixels = np.float32(41), np.arange(41 * 41, dtype=np.float32).reshape(1, -1)
    assert (np.floor(pixels * (1 / width)) != np.floor(pixels / width)).any()
    module = module_of(lambda build, x: whole(build.emit(relax.op.divide(x, constant(width, "float32")))), pixels.shape)
    assert "divide" in operators(unify(module))
    np.testing.assert_array_equal(result_of(module, pixels), np.floor(pixels / width))


def _in_a_rim(value: float, mode: str = "constant") -> Callable[[relax.BlockBuilder, Any], Any]:
    def make(build: relax.BlockBuilder, data: Any) -> Any:
        padded = build.emit(relax.op.nn.pad(data, [0, 0, 0, 0, 1, 0, 2, 1], mode, value))
        return relax.op.nn.conv2d(padded, constant(KERNEL), strides=[2, 1], padding=[0, 1, 1, 0])

    return make


@pytest.mark.compiles
def test_a_convolution_of_an_image_in_a_rim_of_zeros_has_that_padding() -> None:
    module = module_of(_in_a_rim(0))
    unified = unify(module)
    assert operators(unified) == ["nn.conv2d"]
    [convolution] = [part for part in parts_of(unified["main"]) if operator_name(part)]
    assert [int(each) for each in convolution.attrs.padding] == [1, 3, 1, 1]
    wanted = convolved(DATA, KERNEL, pads=(1, 3, 1, 1), stride=(2, 1))
    np.testing.assert_allclose(result_of(module, DATA), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("value", "mode"), [(1, "constant"), (0, "reflect")])
def test_other_rims_stay(value: float, mode: str) -> None:
    assert operators(unify(module_of(_in_a_rim(value, mode)))) == ["nn.pad", "nn.conv2d"]


# Quantisation that is spelled out by elementwise operators is found again, and nothing else is taken for it.


@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_what_is_spelled_out_is_found_again(dtype: str, zero_point: int) -> None:
    def pair(build: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        steps = constant(np.float32(0.1)), constant(np.int32(zero_point))
        return relax.op.dequantize(build.emit(relax.op.quantize(data, *steps, out_dtype=dtype)), *steps)

    pairs = module_of(pair, (2, 3))
    spelled = spell_out(pairs)
    assert not has_quantisation(spelled)
    assert tvm_ffi.structural_equal(recognise(spelled), pairs)


def test_a_product_that_adds_a_dimension_is_no_dequantisation() -> None:
    def product(build: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        return relax.op.multiply(build.emit(relax.op.astype(data, "float32")), constant(np.float32([[[0.1]]])))

    before = module_of(product, (2, 3), "uint8")
    after = recognise(before)
    assert tvm_ffi.structural_equal(after, before)
    assert [int(size) for size in after["main"].body.body.ty.shape] == [1, 2, 3]
