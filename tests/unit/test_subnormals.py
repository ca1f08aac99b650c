"""Networks run without subnormal numbers, and leave the process as they found it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.networks import Graph
from support.patience import generous

from edgedeploy.runtime.subnormals import flushed_to_zero

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
    graph = Graph()
    data = graph.input("data", [400, 400])
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
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=generous(120), check=False)
    assert done.returncode == 0, done.stderr
