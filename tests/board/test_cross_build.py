"""Packages for boards of other architectures: their systems accept the code, and an emulator checks its values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agents import EMULATED, command_of, packaged
from support.commands import json_of, output_of, refused
from support.networks import Graph, tiny

from edgedeploy.compile import pipeline
from edgedeploy.compile.output import codegen
from edgedeploy.compile.pipeline import Compiled, compile_entries
from edgedeploy.errors import NumericalError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.package.archive import read_package
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.toolchain import link_shared, zig_triple


@pytest.mark.parametrize(
    ("board", "machine", "elf_class", "float_abi"),
    [
        ("rpi3", "EM_AARCH64", 64, None),
        ("rpi4", "EM_AARCH64", 64, None),
        ("rpi5", "EM_AARCH64", 64, None),
        ("rpi-armhf", "EM_ARM", 32, "hard"),
        ("visionfive2", "EM_RISCV", 64, "hard"),
    ],
)
def test_code_fits_the_board(tmp_path: Path, board: str, machine: str, elf_class: int, float_abi: str | None) -> None:
    abi = packaged(tiny(tmp_path / "net.onnx"), board).manifest.abi
    assert (abi.machine, abi.elf_class, abi.float_abi) == (machine, elf_class, float_abi)
    floor = load_board(board).glibc
    assert [int(part) for part in (abi.glibc or "0").split(".")] <= [int(part) for part in floor.split(".")]


def test_a_package_for_another_architecture_is_not_run_here(command: Command, tmp_path: Path) -> None:
    assert "EM_ARM" in refused(command, 8, "run", packaged(tiny(tmp_path / "net.onnx"), "rpi-armhf").path)


@pytest.mark.parametrize(
    ("board", "triple"),
    [
        ("rpi4", "aarch64-linux-gnu.2.28"),
        ("rpi-armhf", "arm-linux-gnueabihf.2.28"),
        ("visionfive2", "riscv64-linux-gnu.2.36"),
    ],
)
def test_triples_are_written_as_zig_writes_them(board: str, triple: str) -> None:
    assert zig_triple(load_board(board)) == triple


def test_a_missing_toolchain_names_packages(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = ("--board", "rpi4", "--toolchain", "gnu-aarch64")
    assert "apt install g++-aarch64-linux-gnu" in refused(command, 11, "build", tiny(tmp_path / "net.onnx"), *options)


def test_a_linker_that_fails_is_shown_with_its_command_line(command: Command, tmp_path: Path) -> None:
    toolchain = tmp_path / "broken.yaml"
    toolchain.write_text("description: fails\nlinkers: [[sh, -c, 'echo no such library >&2; exit 3']]\ninstall: none\n")
    err = refused(command, 11, "build", tiny(tmp_path / "net.onnx"), "--toolchain", toolchain)
    assert "exit code 3: sh -c" in err
    assert "no such library" in err
    assert not Path("dist/local/net.tar.gz").exists()


# Slow, as every test that needs an agent for another architecture: zig builds its C++ library for each first.


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.slow) for each in EMULATED])
def board(request: pytest.FixtureRequest) -> str:
    command_of(request.param)  # builds its agent
    return str(request.param)


def test_a_build_says_what_ran_the_boards_code(command: Command, tmp_path: Path, board: str) -> None:
    path = tiny(tmp_path / "net.onnx")
    [said] = json_of(command, "build", path, "--board", board)
    assert said["checked"] == "emulated"
    assert said["emulator"].startswith(f"qemu-{EMULATED[board]} ")
    assert 0 <= said["error_of_tolerance"] <= 1
    manifest, _ = read_package(Path(said["package"]))
    assert manifest.checked.line() == f"emulated ({said['emulator']})"
    assert f"checked: {manifest.checked.line()}" in output_of(command, "build", path, "--board", board)


def test_scalars_are_scalars_there(tmp_path: Path, board: str) -> None:
    graph = Graph()
    package = packaged(graph.save(tmp_path / "net.onnx", graph.node("Exp", graph.input("x", []))), board)
    assert package.manifest.checked.how == "emulated"
    assert package.manifest.outputs[0].shape == []


def test_code_with_wrong_values_is_not_written(tmp_path: Path, board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is imported rightly, and only what is compiled for the board is another one, of other weights."""

    def network(path: Path, weight: float) -> Path:
        graph = Graph()
        return graph.save(path, graph.node("Mul", graph.input("x", [4, 8]), graph.weight(np.full(8, weight, "f4"))))

    other = read_onnx(network(tmp_path / "other.onnx", 1.001))

    def compile_other(networks: list[tuple[Network, float]], of: Board, *rest: Any, **options: Any) -> Compiled:
        [(given, limit)] = networks
        return compile_entries([(given if of.runs_here else other, limit)], of, *rest, **options)

    monkeypatch.setattr(pipeline, "compile_entries", compile_other)
    path = network(tmp_path / "net.onnx", 1)
    with pytest.raises(NumericalError, match="inputs, under qemu"):
        packaged(path, board)
    assert not (tmp_path / "net.tar.gz").exists()


def test_code_that_crashes_there_is_an_error(tmp_path: Path, board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = tmp_path / "crash.c"
    crash.write_text("__attribute__((constructor)) static void crash(void) { __builtin_trap(); }\n")

    def link_with_it(objects: list[Path], output: Path, for_board: object) -> None:
        link_shared([*objects, crash], output, load_board(board))

    monkeypatch.setattr(codegen, "link_shared", link_with_it)
    with pytest.raises(NumericalError, match="fails under qemu"):
        packaged(tiny(tmp_path / "net.onnx"), board)
    assert not (tmp_path / "net.tar.gz").exists()
