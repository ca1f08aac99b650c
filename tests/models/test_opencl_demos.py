"""Demos see on an OpenCL device what they see on the CPU, in this process and on a board."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.virtual_boards import Start

from edgedeploy.demo.spec import all_demos

# A device adds up in another order: a number may differ by this part of it, and by one in its last printed digit. Whole
# numbers are classes and counts, which may not, but for the positions of points, which are rounded.
RELATIVE = 1e-4

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

See = Callable[..., list[str]]


@pytest.fixture
def see(board_command: Command, shared: Path, monkeypatch: pytest.MonkeyPatch) -> See:
    """The lines that a demo prints, but for those of times and of the board."""
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")

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


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", all_demos())
def test_a_demo_sees_on_the_device_what_it_sees_on_the_cpu(opencl: Any, see: See, name: str) -> None:
    assert_same(see(name, "--board", "local-opencl"), see(name, "--board", "local"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["retinaface", "yolo-fastest"])
def test_a_demo_sees_on_a_board_with_a_device_what_it_sees_here(start: Start, see: See, name: str) -> None:
    start("nuc-opencl")
    assert_same(see(name, "--board", "nuc-opencl", "--virtual"), see(name, "--board", "local"))
