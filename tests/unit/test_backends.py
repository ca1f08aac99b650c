"""A backend is a folder and a line: the toy's builds, checks, runs and is tuned as those of edgedeploy are."""

import json
from pathlib import Path

import numpy as np
import pytest
import toy_backend
from conftest import Command
from support.commands import output_of
from support.networks import begun
from support.profiles import write_profile

from edgedeploy.compile.backends import known_configuration
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.runtime.session import Session
from edgedeploy.target import devices
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.task import tasks_of

pytestmark = pytest.mark.compiles


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A board with the toy, whose kind is known."""
    for name, kind in toy_backend.KIND.items():
        monkeypatch.setitem(devices.KINDS, name, kind)
    return write_profile(tmp_path, "local", devices=[{"backend": "toy"}])


@pytest.fixture
def network(tmp_path: Path) -> Path:
    graph, data = begun(1, 3, 16, 16)
    layer = graph.conv(data, 3, 8, 3)
    layer = graph.node("Relu", graph.node("Conv", layer, graph.normal(8, 1, 3, 3), group=8))
    pooled = graph.node("Flatten", graph.node("GlobalAveragePool", layer))
    return graph.save(tmp_path / "net.onnx", graph.node("Softmax", graph.node("Gemm", pooled, graph.normal(8, 4))))


def test_a_network_runs_on_a_third_backend_and_what_it_has_no_template_for_on_the_cpu(
    board: str, network: Path, command: Command, tmp_path: Path
) -> None:
    package = tmp_path / "built" / "net.tar.gz"
    out = output_of(command, "build", network, "--board", board, "-o", package.parent, "--explain", "--json")
    functions = json.loads(out)[0]["functions"]
    assert sum(each["template"] == "toy" for each in functions) == 3
    [softmax] = [each for each in functions if "softmax" in each["function"]]
    assert softmax["template"] == "general"
    assert "no schedule" in softmax["cpu"]
    session, known = Session.open(package), read_onnx(network)
    assert session.device_name is None
    data = {"data": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    [found], [wanted] = session.run(data).values(), known.reference(data).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_candidates_of_a_third_backend_are_built_and_read_again(board: str, network: Path, tmp_path: Path) -> None:
    resolved = resolve(board, {"device": {"unroll": True}}).profile
    with Builder(resolved, workers=1) as builder:
        for task in tasks_of(read_onnx(network), resolved):
            assert [each.unroll for each in task.candidates] == [True, False]
            assert all(known_configuration(each.model_dump()) == each for each in task.candidates)
            batch = builder.build(map(task.scheduled, task.candidates))
            assert [entry.error for entry in batch.entries] == [None, None]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"devices": [{"backend": "npu"}]}, "devices.0: backend: npu is none of: opencl"),
        ({"devices": [{"backend": "opencl", "vector": 3}]}, "devices.0: vector: must be 1, 2, 4, 8 or 16"),
        ({"opencl": {"device": "Intel"}}, r"is written `devices: \[\{backend: opencl, name: NAME"),
    ],
    ids=["an unknown kind", "a wrong field", "the old form"],
)
def test_a_wrong_device_in_a_profile_is_refused(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_board(write_profile(tmp_path, "local", **fields))


def test_what_no_device_has_cannot_be_overridden(board: str) -> None:
    with pytest.raises(InputError, match="there is no such field"):
        resolve(board, {"device": {"vector": 4}})
