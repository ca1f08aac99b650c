"""Layers of bytes whose products are summed up in float32: what they give, and when they are chosen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cpus import need_cpu
from support.layer_runs import random_case, results
from unit.test_integer_layers import BOARDS, layers, window

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.configuration import Depthwise, Steps, Winograd
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, DepthwiseConvolution


def types(name: str, weights: str = "int8") -> LayerTypes:
    return LayerTypes(host_of(BOARDS[name]).activation_type, weights, "int32", "int32")


def convolution(name: str, pixels: int, inputs: int, outputs: int, **others: Any) -> Convolution:
    fields: dict[str, Any] = {"types": types(name), "constant": True, "window": window(3, 3), **others}
    kernel = fields["window"].kernel
    return Convolution(data=(1, pixels, pixels, inputs), weights=(*kernel, inputs, outputs), **fields)


def depthwise(name: str, pixels: int, channels: int, *, kernel: int = 3, stride: int = 1) -> DepthwiseConvolution:
    shapes = {"data": (1, pixels, pixels, channels), "weights": (kernel, kernel, 1, channels)}
    around = window(kernel, 3, stride=stride)
    return DepthwiseConvolution(**shapes, types=types(name), constant=True, window=around)


def in_floats(layer: AnyAnchorOp, name: str) -> Any:
    """The quickest form with sums in float32."""
    strategy = host_of(BOARDS[name]).strategy(layer)
    return strategy.families[1].default()


def form(layer: AnyAnchorOp, name: str) -> str:
    """What a board computes a layer in by default: `steps`, `winograd`, or `depthwise` with its type of sums."""
    chosen = host_of(BOARDS[name]).strategy(layer).default()
    floats = " in floats" if isinstance(chosen, Depthwise) and chosen.floats else ""
    return chosen.form + floats


WITH_FLOATS = ["cascadelake", "skylake-avx512", "haswell", "x86-64", "rpi5", "rpi4", "rpi3"]


@pytest.mark.compiles
@pytest.mark.parametrize("name", WITH_FLOATS)
@pytest.mark.parametrize(
    ("kernel", "stride"),
    [(3, 1), pytest.param(3, 2, marks=pytest.mark.slow), pytest.param(5, 1, marks=pytest.mark.slow)],
)
def test_depthwise_sums_are_exact(tmp_path: Path, name: str, kernel: int, stride: int) -> None:
    need_cpu(BOARDS[name])
    layer = depthwise(name, 11, 32, kernel=kernel, stride=stride)
    case = random_case(layer, layer.types.data)
    found, _ = results(case, BOARDS[name], in_floats(layer, name), tmp_path)
    assert found.dtype == case.expected.dtype
    assert np.array_equal(found, case.expected)


@pytest.mark.compiles
@pytest.mark.parametrize("name", WITH_FLOATS)
def test_winograds_sums_are_rounded_and_results_hardly_ever_another_byte(tmp_path: Path, name: str) -> None:
    need_cpu(BOARDS[name])
    layer = convolution(name, 14, 64, 32)
    case = random_case(layer, layer.types.data)
    found, _ = results(case, BOARDS[name], in_floats(layer, name), tmp_path)
    apart = np.abs(found.astype(int) - case.expected)
    assert found.dtype == case.expected.dtype
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 1e-3 * apart.size


@pytest.mark.parametrize(
    ("size", "chosen", "names"),
    [
        ((28, 128, 128), "steps", ["cascadelake", "alderlake", "rpi5", "rpi-armhf"]),
        ((28, 128, 128), "winograd", ["skylake-avx512", "haswell", "rpi4", "rpi3"]),
        # Few channels are not worth transforms.
        ((10, 16, 8), "steps", ["skylake-avx512", "haswell", "rpi4", "rpi3"]),
    ],
)
def test_3x3_convolutions_take_the_form_with_the_least_estimate(
    size: tuple[int, int, int], chosen: str, names: list[str]
) -> None:
    assert {name: form(convolution(name, *size), name) for name in names} == dict.fromkeys(names, chosen)


@pytest.mark.parametrize("name", WITH_FLOATS)
@pytest.mark.parametrize(
    "others",
    [{"window": window(1, 0)}, {"window": window(3, 0, stride=2)}, {"types": None}],
    ids=["1x1", "strided", "wide weights"],
)
def test_other_convolutions_have_sums_of_integers_alone(name: str, others: dict[str, Any]) -> None:
    if "types" in others:
        others = {"types": types(name, "int16")}
    strategy = host_of(BOARDS[name]).strategy(convolution(name, 28, 128, 128, **others))
    assert {type(each) for each in strategy.candidates()} == {Steps}


@pytest.mark.parametrize(
    ("stride", "chosen", "names"),
    [
        (1, "columns", ["cascadelake", "rpi5"]),
        (2, "columns", ["cascadelake"]),
        (1, "depthwise", ["skylake-avx512", "rpi4", "rpi3", "rpi-armhf"]),
        (1, "depthwise in floats", ["haswell"]),
        (2, "depthwise", ["haswell"]),  # four times as many bytes are copied for each result
    ],
)
def test_depthwise_convolutions_take_the_form_with_the_least_estimate(
    stride: int, chosen: str, names: list[str]
) -> None:
    found = {name: form(depthwise(name, 56, 128, stride=stride), name) for name in names}
    assert found == dict.fromkeys(names, chosen)


def test_kernels_whose_sums_float32_does_not_hold_are_left_to_integers() -> None:
    strategy = host_of(BOARDS["haswell"]).strategy(depthwise("haswell", 40, 32, kernel=23))
    assert not any(each.floats for each in strategy.candidates() if isinstance(each, Depthwise))


@pytest.mark.parametrize("name", [*BOARDS])
def test_the_default_is_one_of_the_configurations_and_all_of_them_fit(name: str) -> None:
    for layer in layers(BOARDS[name]).values():
        strategy = host_of(BOARDS[name]).strategy(layer)
        assert strategy.fits(strategy.default())
        assert all(map(strategy.fits, strategy.candidates()))


def test_tuning_may_try_both() -> None:
    wide, single = of_haswell()
    assert {type(each) for each in wide.candidates()} == {Steps, Winograd}
    assert {each.floats for each in single.candidates()} == {False, True}


def of_haswell() -> list[Any]:
    """The strategies of a convolution and of a depthwise one."""
    layers = (convolution("haswell", 14, 64, 64), depthwise("haswell", 14, 32))
    return [host_of(BOARDS["haswell"]).strategy(layer) for layer in layers]


def test_each_form_says_how_exact_it_is() -> None:
    rounding = [[each.rounding(choice) > 0 for choice in each.alternatives()] for each in of_haswell()]
    # Steps, then F(2x2) and F(4x4); integers, then floats.
    assert rounding == [[False, True, True], [False, False]]
