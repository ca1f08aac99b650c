"""TensorFlow Lite's LSTMs over sequences give LiteRT's values when they are compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.running import outputs_of
from support.tflite_networks import lstm

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ModelError
from edgedeploy.frontends.tflite import FORMAT
from edgedeploy.target.board import load_board


@pytest.mark.compiles
@pytest.mark.parametrize(
    "settings",
    [
        {},
        # Of several sequences that begin with the batch, LiteRT 2.3 gives other values in each run.
        {"both": True, "batch": 1},
        pytest.param({"both": True, "merged": False, "time_major": True}, marks=pytest.mark.slow),
        {"coupled": True, "peepholes": True},
        pytest.param({"coupled": True}, marks=pytest.mark.slow),
        pytest.param({"peepholes": True, "cell_clip": 0.3}, marks=pytest.mark.slow),
    ],
    ids=lambda settings: " ".join(settings) or "plain",
)
def test_an_lstm_gives_litert_values(settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(lstm(**settings))
    network = FORMAT.read([path], {})
    random = np.random.default_rng(0)
    inputs = {spec.name: random.standard_normal(spec.shape).astype(np.float32) for spec in network.inputs}
    found = outputs_of(compile_network(network, load_board("local")), inputs)
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-6)


def test_an_lstm_that_projects_its_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(lstm(projected=True))
    with pytest.raises(ModelError, match="an LSTM projects its state"):
        FORMAT.read([path], {})
