"""Networks and demos give on boards, emulated ones and ones with an OpenCL device, what they give here."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agents import answer, unpack
from support.agreement import FILES, SHAPES, assert_near, is_quantised, random_inputs
from support.virtual_boards import Start

from edgedeploy.agent.build import agent_for
from edgedeploy.building import build
from edgedeploy.demo.spec import all_demos
from edgedeploy.runtime.opening import Place, Runner, opened
from edgedeploy.runtime.session import Session
from edgedeploy.selftest.tolerance import TOLERANCE
from edgedeploy.target.board import load_board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import Source

# PoCL compiles a kernel for a second or two; agents for another architecture take minutes.
pytestmark = pytest.mark.slow

FLOAT = [path for path in FILES if not is_quantised(path)]

Outputs = dict[str, np.ndarray]


def source_of(path: Path) -> Source:
    return Source.of(path, SHAPES.get(path.name, {}))


class Here:
    """What a network gives on this machine for one input: by its agent, with its own package, and by onnxruntime."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.source = source_of(path)
        network = self.source.read()
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
        agent, outputs = agent_for(load_board("local")).path, folder / "outputs"
        result = answer(agent, "run", package, *arguments, "--warmup", 0, "--output-dir", outputs)
        return {
            each["name"]: np.fromfile(each["file"], each["dtype"]).reshape(each["shape"]) for each in result["outputs"]
        }


@pytest.fixture(scope="module")
def here(_own_user_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Here]:
    return cache(lambda path: Here(path, tmp_path_factory.mktemp(path.stem)))


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
    assert_near(found, network.agent, TOLERANCE[0])
    assert_near(found, network.onnxruntime, *TOLERANCE)


def assert_agrees(runner: Runner, source: Source) -> None:
    network = source.read()
    inputs = random_inputs(network, 7)
    assert OpenCL.tolerance[0] <= 1e-3
    assert_near(runner.run(inputs), network.reference(inputs), *OpenCL.tolerance)


@pytest.mark.parametrize("path", FLOAT, ids=lambda path: path.stem)
def test_outputs_agree_in_this_process(opencl: Any, path: Path, tmp_path: Path) -> None:
    source = source_of(path)
    built = build(source, resolve("local-opencl"), tmp_path / "net.tar.gz")
    assert built.error <= 1
    assert_agrees(Session.open(built.path), source)


@pytest.mark.parametrize("path", FLOAT, ids=lambda path: path.stem)
def test_outputs_agree_on_a_board(start: Start, path: Path, tmp_path: Path) -> None:
    source = source_of(path)
    start("nuc-opencl")
    built = build(source, resolve("nuc-opencl"), tmp_path / "net.tar.gz", checks="none")
    with opened(built.path, Place(resolve("nuc-opencl"), virtual=True)) as network:
        assert_agrees(network.runner, source)


# A device adds up in another order: a number may differ by this part of it, and by one in its last printed digit. Whole
# numbers are classes and counts, which may not, but for the positions of points, which are rounded.
RELATIVE = 1e-4

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

See = Callable[..., list[str]]


@pytest.fixture
def see(board_command: Command, shared_zoo: None) -> See:
    """The lines that a demo prints, but for those of times and of the board."""

    def lines(name: str, *options: str) -> list[str]:
        code, out, err = board_command("demo", name, *options)
        if code == 9:
            pytest.skip(f"the files of {name} are not at hand: {err}")
        assert code == 0, err
        return [line for line in out.splitlines() if not line.startswith(("Repeat ", "board"))]

    return lines


def assert_same(found: list[str], wanted: list[str]) -> None:
    """The same lines, with numbers that may differ as far as is said above."""
    assert [NUMBER.sub("#", line) for line in found] == [NUMBER.sub("#", line) for line in wanted]
    for line, other in zip(found, wanted, strict=True):
        for number, expected in zip(NUMBER.findall(line), NUMBER.findall(other), strict=True):
            digits = len(expected.partition(".")[2])
            exact = digits == 0 and "points" not in line
            allowed = 0.0 if exact else 1.001 * 10.0**-digits + RELATIVE * abs(float(expected))
            assert abs(float(number) - float(expected)) <= allowed, (line, other)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", all_demos())
def test_a_demo_sees_on_the_device_what_it_sees_on_the_cpu(opencl: Any, see: See, name: str) -> None:
    assert_same(see(name, "--board", "local-opencl"), see(name, "--board", "local"))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["retinaface", "yolo-fastest"])
def test_a_demo_sees_on_a_board_with_a_device_what_it_sees_here(start: Start, see: See, name: str) -> None:
    start("nuc-opencl")
    assert_same(see(name, "--board", "nuc-opencl", "--virtual"), see(name, "--board", "local"))
