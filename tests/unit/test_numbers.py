"""Numbers: what follows from the names of element types, and that networks run without subnormal numbers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from support.commands import generous, printed
from support.networks import begun

from edgedeploy.compile.ir.types import FLOAT32, LayerTypes, bits_of, bytes_of, is_floating, lanes_for, unit_roundoff
from edgedeploy.runtime.subnormals import flushed_to_zero
from edgedeploy.target.board import load_board

NAMES = ["bool", "float16", "float32", "float64", *(f"{kind}{8 << n}" for kind in ("int", "uint") for n in range(4))]


@pytest.mark.parametrize("dtype", NAMES)
def test_sizes_and_roundings_are_those_of_numpy(dtype: str) -> None:
    known = np.dtype(dtype)
    assert bytes_of(dtype) == known.itemsize
    assert bits_of(dtype) == 8 * known.itemsize
    assert is_floating(dtype) is (known.kind == "f")
    assert unit_roundoff(dtype) == (np.finfo(known).eps / 2 if known.kind == "f" else 0)


@pytest.mark.parametrize(
    ("board", "lanes"),
    [
        ("rpi4", {"float32": 4, "float16": 8, "bfloat16": 8, "int8": 16, "int32": 4, "float64": 2}),  # 128 bits
        ("nuc-opencl", {"float32": 8, "float16": 16, "uint8": 32, "int64": 4}),  # 256 bits
    ],
)
def test_a_register_holds_as_many_values_as_their_type_lets_it(board: str, lanes: dict[str, int]) -> None:
    assert {dtype: lanes_for(load_board(board), dtype) for dtype in lanes} == lanes


def test_a_layer_s_types_are_stated_one_by_one() -> None:
    assert LayerTypes("float32", "float32", "float32", "float32") == LayerTypes.uniform("float32") == FLOAT32
    assert LayerTypes("uint8", "int8", "int32", "int32").accumulator == "int32"


@pytest.mark.parametrize("dtype", ["", "float", "float12", "int4x2", "string", "handle"])
def test_what_is_no_element_type_is_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="invalid element type"):
        LayerTypes.uniform(dtype)
    with pytest.raises(ValueError, match=r"invalid element type|unknown rounding"):
        unit_roundoff(dtype)


TINY = np.full(8, 1e-20, np.float32)


def product() -> float:
    return float((TINY * TINY).max())


def test_a_product_too_small_becomes_zero_only_inside() -> None:
    assert product() > 0
    with flushed_to_zero():
        assert product() == 0
    assert product() > 0


def test_the_mode_is_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError), flushed_to_zero():
        raise RuntimeError
    assert product() > 0


def test_all_threads_of_a_network_flush(tmp_path: Path) -> None:
    graph, data = begun(400, 400)
    net = graph.save(tmp_path / "net.onnx", graph.node("Mul", data, graph.weight(np.full((1, 400), 1e-20, np.float32))))
    # In a process of its own: here, the threads may have been started by another test.
    program = f"""
import numpy as np
from edgedeploy.building import prepare
from edgedeploy.target.resolved import resolve
runner = prepare({str(net)!r}, resolve("local")).open()
[product] = runner.run({{"data": np.full((400, 400), 1e-20, np.float32)}}).values()
assert not product.any(), product
tiny = np.full(8, 1e-20, np.float32)
assert (tiny * tiny).all()
"""
    printed(sys.executable, "-c", program, timeout=generous(120))
