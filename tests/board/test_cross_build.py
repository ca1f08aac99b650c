"""Packages for boards of other architectures hold code that their systems accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Command
from support.agents import packaged
from support.networks import tiny

from edgedeploy.target.board import load_board
from edgedeploy.target.toolchain import zig_triple


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
    assert floor is not None
    newest = [int(part) for part in (abi.glibc or "0").split(".")]
    assert newest <= [int(part) for part in floor.split(".")]


def test_a_package_for_another_architecture_is_not_run_here(command: Command, tmp_path: Path) -> None:
    code, _, err = command("run", packaged(tiny(tmp_path / "net.onnx"), "rpi-armhf").path)
    assert code == 8
    assert "EM_ARM" in err


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


def test_a_toolchain_for_another_architecture_is_refused(command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    code, _, err = command("build", net, "--board", "rpi4", "--toolchain", "gnu-armhf")
    assert code == 11
    assert "--toolchain zig" in err


def test_a_missing_toolchain_names_packages(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = command("build", tiny(tmp_path / "net.onnx"), "--board", "rpi4", "--toolchain", "gnu-aarch64")
    assert code == 11
    assert "apt install g++-aarch64-linux-gnu" in err


def test_a_linker_that_fails_is_shown_with_its_command_line(command: Command, tmp_path: Path) -> None:
    toolchain = tmp_path / "broken.yaml"
    toolchain.write_text("description: fails\nlinkers: [[sh, -c, 'echo no such library >&2; exit 3']]\ninstall: none\n")
    code, _, err = command("build", tiny(tmp_path / "net.onnx"), "--toolchain", toolchain)
    assert code == 11
    assert "exit code 3: sh -c" in err
    assert "no such library" in err
    assert not Path("dist/local/net.tar.gz").exists()
