"""Floats and integers at their edges are as ONNX defines them: NaN, infinities, rounding, divisions, indices."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from support.agreement import computed
from support.emulated import outputs_on

from edgedeploy.building import prepare
from edgedeploy.errors import InputError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.runtime.session import Session
from edgedeploy.target.resolved import resolve

pytestmark = pytest.mark.compiles

Computed = Callable[[str], list[np.ndarray]]

_NAN, _INF = np.nan, np.inf
_FLOATS = {
    "x": np.array([_NAN, 1, -2, _INF, -_INF, 0, 1e8, 0.3], np.float32),
    "y": np.array([1, _NAN, _INF, -_INF, 0, -2, 0.7, 1e8], np.float32),
}
_CONSTANTS = (
    "float zero = {0}, float one = {1}, float rounder = {12582912}, float least = {-1}, int64[4] image = {1, 1, 1, 8}"
)

_ACTIVATIONS = ("Celu", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sign")

# The type of an output, and nodes that make it, `z`, of x, y and the constants.
_OF_FLOATS = {
    # TVM would simplify these as if floats were real numbers.
    "equal to itself": ("bool", "z = Equal(x, x)"),
    "not equal to itself": ("bool", "e = Equal(x, x) z = Not(e)"),
    "chosen where it equals itself": ("float", "e = Equal(x, x) z = Where(e, x, one)"),
    "at most itself": ("bool", "z = LessOrEqual(x, x)"),
    "not less": ("bool", "l = Less(x, y) z = Not(l)"),
    "less or not": ("bool", "l = Less(x, y) m = LessOrEqual(y, x) z = Or(l, m)"),
    "less itself": ("float", "z = Sub(x, x)"),
    "times zero": ("float", "z = Mul(x, zero)"),
    "zero times": ("float", "z = Mul(zero, x)"),
    "by zero": ("float", "z = Div(x, zero)"),
    "zero by": ("float", "z = Div(zero, x)"),
    "rounded by a sum": ("float", "s = Add(x, rounder) z = Sub(s, rounder)"),
    "a sum less its term": ("float", "s = Add(x, y) z = Sub(s, x)"),
    # What keeps NaN.
    **{name: ("float", f"z = {name}(x)") for name in _ACTIVATIONS},
    "Clip": ("float", "z = Clip(x, least, one)"),
    "Clip from below": ("float", "m = Mul(x, zero) z = Clip(m, one)"),
    "Clip from above": ("float", "m = Mul(x, zero) z = Clip(m, , least)"),
    "Max with a constant": ("float", "z = Max(x, one)"),
    "Max with zero": ("float", "z = Max(zero, x)"),
    "Min with a constant": ("float", "z = Min(least, x)"),
    "Min with zero": ("float", "z = Min(x, zero)"),
}

_VALUES = np.arange(16, dtype=np.float32).reshape(4, 4)
_IMAGES = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
_BOXES = {"x": _IMAGES, "r": np.array([[0, 0, 2, 2], [1, 1, 3, 3]], np.float32)}

# Nodes, their inputs, and another one: what every program takes of it, and what it refuses.
_INTEGERS = {"n": [7, -7, 9]}
_REFUSED = {
    "division": ("z = Div(n, d)", _INTEGERS, "d", [-2, 2, -1], [1, 0, 2]),
    "modulo": ("z = Mod(n, d)", _INTEGERS, "d", [-2, 2, -1], [0, 1, 2]),
    "remainder": ("z = Mod <fmod: int = 1> (n, d)", _INTEGERS, "d", [-2, 2, -1], [1, 2, 0]),
    "Gather": ("z = Gather <axis: int = 1> (x, i)", {"x": _VALUES}, "i", [3, -4], [0, 4]),
    "GatherElements": ("z = GatherElements <axis: int = 1> (x, i)", {"x": _VALUES}, "i", [[3, -4]], [[-5, 0]]),
    "GatherND": ("z = GatherND (x, i)", {"x": _VALUES}, "i", [[3, -4]], [[3, 1 << 40]]),
    "ScatterElements": (
        *("z = ScatterElements <axis: int = 1> (x, i, u)", {"x": _VALUES, "u": _VALUES[:1, :2]}),
        *("i", [[3, -4]], [[0, 4]]),
    ),
    "ScatterND": (
        *('z = ScatterND <reduction: string = "add"> (x, i, u)', {"x": _VALUES, "u": _VALUES[:1]}),
        *("i", [[-1]], [[4]]),
    ),
    "RoiAlign": ("z = RoiAlign <sampling_ratio: int = 2> (x, r, i)", _BOXES, "i", [1, 0], [0, 2]),
    "MaxRoiPool": (
        *("z = MaxRoiPool <pooled_shape: ints = [2, 2]> (x, r)", {"x": _IMAGES}, "r"),
        *(np.float32([[1, 0, 0, 3, 3]]), np.float32([[np.nan, 0, 0, 3, 3]])),
    ),
}
_TYPES = {"float32": "float", "int8": "int8", "int32": "int32", "int64": "int64"}


def _saved(nodes: str, outputs: Mapping[str, str], inputs: Mapping[str, np.ndarray], path: Path) -> Path:
    """A network of some nodes, in ONNX's own text."""
    given = ", ".join(f"{_TYPES[str(each.dtype)]}{list(each.shape)} {name}" for name, each in inputs.items())
    made = ", ".join(f"{dtype} {name}" for name, dtype in outputs.items())
    header = f'<ir_version: 8, opset_import: ["": 17]> g ({given}) => ({made})'
    onnx.save(onnx.parser.parse_model(f"{header} <{_CONSTANTS}> {{ {nodes} }}"), path)
    return path


def _network_of(parts: Collection[tuple[str, str]], folder: Path) -> Network:
    """All of these types and nodes, each with an output."""
    nodes = [re.sub(r"\b([elmsz])\b", rf"\g<1>{place}", text) for place, (_, text) in enumerate(parts)]
    outputs = {f"z{place}": dtype for place, (dtype, _) in enumerate(parts)}
    return read_onnx(_saved(" ".join(nodes), outputs, _FLOATS, folder / "net.onnx"))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return _network_of(_OF_FLOATS.values(), tmp_path_factory.mktemp("floats"))


@pytest.fixture(scope="module")
def computed_on(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Computed:
    """What a board computes, in the order of `_OF_FLOATS`."""
    return cache(lambda board: outputs_on(board, network, _FLOATS, tmp_path_factory.mktemp(board)))


@pytest.mark.parametrize("name", _OF_FLOATS)
@pytest.mark.parametrize("board", ["local", "rpi4", "rpi-armhf"])
def test_floats_are_no_real_numbers(board: str, name: str, network: Network, computed_on: Computed) -> None:
    place = list(_OF_FLOATS).index(name)
    found, wanted = computed_on(board)[place], list(network.second_opinion(_FLOATS).values())[place]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6, equal_nan=True)


def test_64_bit_arm_keeps_nan_wherever_it_takes_extremes(tmp_path: Path) -> None:
    extremes = [
        "z = Max(x, y)",
        "z = Min(y, x)",
        "z = ReduceMax <axes: ints = [0]> (x)",
        "z = ReduceMin <axes: ints = [0]> (y)",
        "s = Reshape(x, image) z = MaxPool <kernel_shape: ints = [1, 2]> (s)",
    ]
    network = _network_of([("float", nodes) for nodes in extremes], tmp_path)
    x, y = _FLOATS["x"], _FLOATS["y"]
    wanted = [np.maximum(x, y), np.minimum(x, y), x.max(keepdims=True), y.min(keepdims=True), np.maximum(x[:-1], x[1:])]
    for array, expected in zip(outputs_on("rpi4", network, _FLOATS, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(array.ravel(), expected)


@pytest.mark.parametrize("name", _REFUSED)
def test_a_divisor_of_zero_and_an_index_beyond_its_axis_are_refused_at_run_time(name: str, tmp_path: Path) -> None:
    nodes, others, changed, taken, refused = _REFUSED[name]
    dtype = np.int32 if "n" in others else None
    given, bad = (
        {key: np.asarray(each, dtype) for key, each in {**others, changed: some}.items()} for some in (taken, refused)
    )
    path = _saved(nodes, {"z": "int32" if dtype else "float"}, given, tmp_path / "net.onnx")
    session = Session.open(prepare(str(path), resolve("local")).package_path)
    found, wanted = session.run(given)["z"], read_onnx(path).reference(given)["z"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with pytest.raises(InputError, match=r"integer division by zero in (Div|Mod)|index -?\d+ in \w+ is out of bounds"):
        session.run(bad)
    np.testing.assert_array_equal(session.run(given)["z"], found)


def test_no_word_of_tvm_s_says_that_indices_are_not_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([[0, 2], [1, 1]])}
    network = read_onnx(_saved("z = Gather <axis: int = 1> (x, n)", {"z": "float"}, given, tmp_path / "net.onnx"))
    [found] = computed(network, given)
    np.testing.assert_array_equal(found, given["x"][:, given["n"]])
    assert capfd.readouterr() == ("", "")


def test_the_least_integer_divided_by_minus_one_wraps(tmp_path: Path) -> None:
    """onnxruntime ends the process."""
    given = {"n": np.array([-128, -128, 7], np.int8), "d": np.array([-1, 3, -1], np.int8)}
    nodes = "z = Div(n, d) e = Mod(n, d) s = Mod <fmod: int = 1> (n, d)"
    network = read_onnx(_saved(nodes, dict.fromkeys("zes", "int8"), given, tmp_path / "net.onnx"))
    assert [each.tolist() for each in computed(network, given)] == [[-128, -42, -7], [0, 1, 0], [0, -2, 0]]
