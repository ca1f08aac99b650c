"""Agents transform weights when they load a package, and give what those transformed when it was built give."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agents import answer, call, command_of, packaged, request, unpack
from support.networks import Graph

from edgedeploy.agent.build import agent_for
from edgedeploy.compile.output import packing
from edgedeploy.target.board import load_board

Manifest = dict[str, Any]


def layers(path: Path) -> Path:
    graph = Graph()
    first = graph.conv(graph.input("data", [1, 32, 24, 24]), 32, 64, 3, pads=[1] * 4)
    return graph.save(path, graph.conv(graph.node("Relu", first), 64, 64, 3, pads=[1] * 4))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    built = packaged(layers(folder / "net.onnx"))
    assert len(built.manifest.transformed) == 2
    return unpack(built.path, folder / "package")


@pytest.mark.parametrize(
    "board",
    # Agents of others are built for it alone.
    ["local", "rpi4", *(pytest.param(each, marks=pytest.mark.slow) for each in ("rpi-armhf", "visionfive2"))],
)
def test_outputs_match_build_time_weights(tmp_path: Path, board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *options = command_of(board)
    (tmp_path / "in.bin").write_bytes(np.random.default_rng(3).standard_normal(32 * 24 * 24).astype("<f4").tobytes())
    outputs = []
    for when, least in (("loaded", packing.LEAST_GROWTH), ("built", 1 << 30)):
        monkeypatch.setattr(packing, "LEAST_GROWTH", least)
        (tmp_path / when).mkdir()
        built = packaged(layers(tmp_path / when / "net.onnx"), board)
        assert bool(built.manifest.transformed) == (when == "loaded")
        folder = unpack(built.path, tmp_path / when / "package")
        given = ["run", folder, "--input", f"data={tmp_path / 'in.bin'}", "--output-dir", tmp_path / when / "out"]
        [output] = answer(Path(program), *options, *given)["outputs"]
        outputs.append(Path(output["file"]).read_bytes())
    assert outputs[0] == outputs[1]


def test_an_agent_that_serves_runs_measures_and_profiles(package: Path) -> None:
    data = np.ones((1, 32, 24, 24), np.float32).tobytes()
    requests = [request(each, data) for each in ("measure", "profile")]
    done = call(agent(), "serve", package, stdin=b"".join([*requests, request("quit")]))
    assert done.returncode == 0, done.stderr
    ready, measured, profiled, _ = map(json.loads, done.stdout.splitlines())
    assert ready["load_ms"] > 0
    assert measured["ok"]
    assert profiled["functions"]
    assert not any("transform" in name for name in profiled["functions"])  # no part of an inference


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"shape": [3, 3, 64, 32]}, "is not of the size of"),
        ({"shape": [1 << 40]}, "an impossible shape"),
        ({"shape": [-1]}, "an impossible shape"),
        ({"shape": [1 << 20, 1 << 20]}, "is larger than 1 GiB"),
        ({"name": "weights/9.bin"}, "lists no file 'weights/9.bin'"),
        ({"name": "../net.onnx"}, "lists no file '../net.onnx'"),
        ({"shape": [64, 64, 9]}, "cannot be loaded"),  # the library's function takes another
        ({"dtype": "int32"}, "cannot be loaded"),
    ],
)
def test_manifests_with_false_weights_fail(tmp_path: Path, package: Path, damage: dict[str, object], said: str) -> None:
    assert said in refused(package, tmp_path / "package", lambda manifest: manifest["transformed"][-1].update(damage))


def test_weights_that_are_too_many_or_missing_are_refused(tmp_path: Path, package: Path) -> None:
    def doubled(manifest: Manifest) -> None:
        manifest["transformed"] *= 2

    assert "cannot be loaded" in refused(package, tmp_path / "many", doubled)
    # Nothing is transformed then, and the network is called with too few.
    assert "the inference failed" in refused(package, tmp_path / "none", lambda manifest: manifest.pop("transformed"))


def agent() -> Path:
    return agent_for(load_board("local")).path


def refused(package: Path, folder: Path, damage: Callable[[Manifest], object]) -> str:
    """What the agent says of a copy of a package whose manifest was damaged."""
    shutil.copytree(package, folder)
    manifest = json.loads((package / "manifest.json").read_text())
    damage(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done = call(agent(), "run", folder, "--fill", "ones")
    message = done.stderr.decode()
    assert done.returncode in (1, 8), message  # it ends by itself
    assert message.startswith("agent: ")
    return message
