"""Quantisation that is spelled out by elementwise operators is found again, and nothing else is taken for it."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from edgedeploy.compile.integers.quantisation import has_quantisation, recognise, spell_out
from edgedeploy.compile.ir.expressions import constant


def module(shape: list[int], dtype: str, write: Callable[..., relax.Expr]) -> tvm.IRModule:
    build, data = relax.BlockBuilder(), relax.Var("data", relax.TensorType(shape, dtype))
    with build.function("main", [data]):
        with build.dataflow():
            output = build.emit_output(write(build, data))
        build.emit_func_output(output)
    return build.get()


@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_what_is_spelled_out_is_found_again(dtype: str, zero_point: int) -> None:
    def pair(build: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        steps = constant(np.float32(0.1)), constant(np.int32(zero_point))
        return relax.op.dequantize(build.emit(relax.op.quantize(data, *steps, out_dtype=dtype)), *steps)

    pairs = module([2, 3], "float32", pair)
    spelled = spell_out(pairs)
    assert not has_quantisation(spelled)
    assert tvm_ffi.structural_equal(recognise(spelled), pairs)


def test_a_product_that_adds_a_dimension_is_no_dequantisation() -> None:
    def product(build: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        return relax.op.multiply(build.emit(relax.op.astype(data, "float32")), constant(np.float32([[[0.1]]])))

    before = module([2, 3], "uint8", product)
    after = recognise(before)
    assert tvm_ffi.structural_equal(after, before)
    assert [int(size) for size in after["main"].body.body.ty.shape] == [1, 2, 3]
