"""TensorFlow Lite's LSTMs over sequences give LiteRT's values when they are compiled."""

from pathlib import Path
from typing import Any

import pytest
from support.agreement import assert_matches_reference, random_inputs
from support.tflite_recurrent import lstm

from edgedeploy.errors import ModelError
from edgedeploy.frontends.tflite import FORMAT


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
    assert_matches_reference(network, random_inputs(network, seed=0), atol=1e-6)


def test_an_lstm_that_projects_its_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(lstm(projected=True))
    with pytest.raises(ModelError, match="an LSTM projects its state"):
        FORMAT.read([path], {})
