"""Every float ONNX network of the development material gives on emulated boards what it gives here.

The package for a board is pushed to a virtual one and run there by the board's agent. Its outputs are compared with
those of the agent of this machine, for the package of this machine, and with onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.agents import answer, unpack
from support.agreement import random_inputs
from support.shared_networks import FILES, SHAPES, is_quantised
from support.virtual_boards import Start

from edgedeploy.agent.build import agent_for
from edgedeploy.building import build
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.runtime.opening import Place, opened
from edgedeploy.selftest.tolerance import TOLERANCE
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import Source

FLOAT = [path for path in FILES if not is_quantised(path)]

Outputs = dict[str, np.ndarray]


class Here:
    """What a network gives on this machine for one input: by its agent, and by onnxruntime."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.source = Source.of(path, SHAPES.get(path.name, {}))
        network = read_onnx(path, self.source.shapes)
        self.inputs = random_inputs(network, 0)
        self.onnxruntime: Outputs = dict(network.reference(self.inputs))
        self.agent = self._run(folder)

    def _run(self, folder: Path) -> Outputs:
        package = unpack(build(self.source, resolve("local"), folder / "local.tar.gz").path, folder / "package")
        arguments = []
        for index, (name, array) in enumerate(self.inputs.items()):
            file = folder / f"input-{index}.bin"
            file.write_bytes(array.tobytes())
            arguments += ["--input", f"{name}={file}"]
        result = answer(
            agent_for(load_board("local")).path,
            *("run", package, *arguments, "--warmup", 0, "--output-dir", folder / "outputs"),
        )
        return {
            each["name"]: np.fromfile(each["file"], each["dtype"]).reshape(each["shape"]) for each in result["outputs"]
        }


@pytest.fixture(scope="module")
def here(_own_user_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Here]:
    made: dict[Path, Here] = {}

    def run(path: Path) -> Here:
        if path not in made:
            made[path] = Here(path, tmp_path_factory.mktemp(path.stem))
        return made[path]

    return run


def largest_difference(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf"])
@pytest.mark.parametrize("path", FLOAT, ids=lambda path: path.stem)
def test_an_emulated_boards_outputs_are_those_of_this_machine(
    here: Callable[[Path], Here], start: Start, path: Path, board: str, tmp_path: Path
) -> None:
    network = here(path)
    start(board)
    package = build(network.source, resolve(board), tmp_path / "network.tar.gz", checks="none").path
    with opened(package, Place(resolve(board), virtual=True)) as remote:
        found = remote.runner.run(network.inputs)
    relative, absolute = TOLERANCE
    assert list(found) == list(network.agent) == list(network.onnxruntime)
    worst = max(largest_difference(found[name], wanted) for name, wanted in network.agent.items())
    print(f"{path.stem} on {board}: {worst:.1e} from the agent here")  # pytest -rP shows it
    assert worst <= relative
    for name, wanted in network.onnxruntime.items():
        assert np.abs(found[name] - wanted).max() <= relative * np.abs(wanted).max() + absolute
