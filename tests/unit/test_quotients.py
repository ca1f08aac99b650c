"""Rounded quotients by constants are computed without divisions, and are the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.layer_runs import run_function
from support.profiles import x86
from tvm import te, tirx
from tvm.s_tir import Schedule

from edgedeploy.compile.backends.cpu.quotients import reciprocal_for
from edgedeploy.target.board import load_board

SCALES = [0.0173, 1 / 3, 0.1, 0.22305499017238617, 1.0, 3.7e-4, 41.7, 1.9999999 / 512]
BOARDS = {**{name: load_board(name) for name in ("local", "rpi4", "rpi-armhf")}, "x86-64": x86("x86-64", 128)}


def numerators(scale: float, zero_point: int) -> np.ndarray:
    """Floats around all quotients that lie between two whole numbers, and far beyond; whole vectors of them."""
    halves = ((np.arange(-2, 257) + 0.5 - zero_point) * scale).astype(np.float32)
    around = (halves.view(np.int32)[:, np.newaxis] + np.arange(-6, 7, dtype=np.int32)).view(np.float32)
    beyond = np.array([np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-40, -1e-40], np.float32)
    found = np.concatenate([around.reshape(-1), beyond])
    return np.pad(found, (0, -len(found) % 16))


def quantised(values: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """As ONNX defines QuantizeLinear, in numpy's float32."""
    with np.errstate(over="ignore"):
        return np.clip(np.rint(values / np.float32(scale)) + zero_point, 0, 255).astype(np.uint8)


def quantiser(count: int, scale: float, zero_point: int, dtype: str = "uint8") -> tirx.PrimFunc:
    """The same as a vectorised function of so many values; of floats, the rounded ones without a zero point."""
    data = te.placeholder((count,), "float32", "data")
    low, high = (tirx.const(float(limit - zero_point), "float32") for limit in (0, 255))

    def value(place: tirx.Var) -> Any:
        quotient = tirx.div(data[place], tirx.const(scale, "float32"))
        rounded = tirx.nearbyint(tirx.min(tirx.max(quotient, low), high))
        if dtype == "float32":
            return rounded
        return (rounded + tirx.const(float(zero_point), "float32")).astype("uint8")

    schedule = Schedule(te.create_prim_func([data, te.compute((count,), value, name="quantised")]))
    [loop] = schedule.get_loops(schedule.get_sblock("quantised"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    return schedule.mod["main"]


@pytest.mark.parametrize("scale", SCALES)
def test_a_reciprocal_rounds_as_the_division_does(scale: float) -> None:
    """With float64 in the place of a fused multiply-add."""
    found = reciprocal_for(scale, -128, 127)
    values = np.random.default_rng(0).uniform(-140 * scale, 140 * scale, 1_000_000).astype(np.float32)
    small = (values * found.second).astype(np.float64)
    products = (values.astype(np.float64) * np.float64(found.first) + small).astype(np.float32)
    np.testing.assert_array_equal(np.rint(products), np.rint(values / np.float32(scale)))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, np.inf, np.nan, -1.0])
def test_there_is_no_reciprocal_of_what_is_no_ordinary_scale(scale: float) -> None:
    assert reciprocal_for(scale, 0, 255) is None


@pytest.mark.compiles
@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize(("scale", "zero_point"), [*zip(SCALES, [0, 3, 128, 131, 0, 255, 17, 128], strict=True)])
def test_values_near_integers_are_rounded_as_in_onnx(name: str, scale: float, zero_point: int, tmp_path: Path) -> None:
    values = numerators(scale, zero_point)
    function = quantiser(len(values), scale, zero_point)
    found, code = run_function(function, [values], np.zeros(values.shape, np.uint8), BOARDS[name], tmp_path)
    np.testing.assert_array_equal(found, quantised(values, scale, zero_point))
    assert any(word in code for word in ("divps", "fdiv", "vdiv")) is (name == "x86-64" and scale != 1.0)


@pytest.mark.compiles
@pytest.mark.parametrize("name", BOARDS)
def test_what_stays_in_float_is_rounded_too(name: str, tmp_path: Path) -> None:
    values = numerators(0.0173, 7)
    function = quantiser(len(values), 0.0173, 7, "float32")
    found, _ = run_function(function, [values], np.zeros(values.shape, np.float32), BOARDS[name], tmp_path)
    np.testing.assert_array_equal(found, quantised(values, 0.0173, 7).astype(np.float32) - 7)
