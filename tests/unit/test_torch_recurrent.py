"""PyTorch's LSTM, GRU and RNN give PyTorch's values when they are compiled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agreement import random_inputs, results_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ModelError
from edgedeploy.frontends.torch import FORMAT
from edgedeploy.target.board import load_board

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'edgedeploy[torch]'")

STEPS, BATCH, FEATURES, HIDDEN = 7, 3, 10, 20


def exported(path: Path, kind: str, states: bool, settings: dict[str, Any]) -> Path:
    """A recurrent layer and a dense one; the states are inputs and outputs, or zeros that nobody reads."""

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(FEATURES, HIDDEN, **settings)
            columns = settings.get("proj_size") or HIDDEN * (1 + settings.get("bidirectional", False))
            self.dense = torch.nn.Linear(columns, 5)

        def forward(self, data: Any, *states: Any) -> Any:
            if not states:
                return self.dense(self.layer(data)[0])
            every, last = self.layer(data, states if kind == "LSTM" else states[0])
            return (self.dense(every), *(last if kind == "LSTM" else [last]))

    torch.manual_seed(0)
    data = torch.randn(*([BATCH, STEPS] if settings.get("batch_first") else [STEPS, BATCH]), FEATURES)
    rows = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
    count = (2 if kind == "LSTM" else 1) if states else 0
    begun = [torch.randn(rows, BATCH, HIDDEN) for _ in range(count)]
    torch.export.save(torch.export.export(Network().eval(), (data, *begun)), str(path))
    return path


TWO_IN_BOTH = {"num_layers": 2, "bidirectional": True}


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "states", "settings"),
    [
        ("LSTM", True, TWO_IN_BOTH),
        ("GRU", False, {**TWO_IN_BOTH, "batch_first": True}),
        pytest.param("GRU", True, {"bias": False}, marks=pytest.mark.slow),
        pytest.param("LSTM", False, {"bias": False, "batch_first": True}, marks=pytest.mark.slow),
        pytest.param("RNN", True, {}, marks=pytest.mark.slow),
        pytest.param("RNN", False, {"nonlinearity": "relu", **TWO_IN_BOTH}, marks=pytest.mark.slow),
    ],
)
def test_recurrent_layers_agree_with_pytorch(kind: str, states: bool, settings: dict[str, Any], tmp_path: Path) -> None:
    network = FORMAT.read([exported(tmp_path / "net.pt2", kind, states, settings)], {})
    compiled = compile_network(network, load_board("local"))
    for array, expected in results_of(compiled, network, random_inputs(network, seed=0)):
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-6)
    loops = [entry for entry in compiled.functions.values() if entry.template == "recurrence"]
    assert [entry.packing is not None for entry in loops] == [True]  # constant weights; layers that are alike share it


@pytest.mark.filterwarnings("ignore")
def test_a_projected_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a recurrent layer projects its state"):
        FORMAT.read([exported(tmp_path / "net.pt2", "LSTM", False, {"proj_size": 7})], {})
