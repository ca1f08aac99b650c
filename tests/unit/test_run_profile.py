"""`run --profile`: the time of each function, beside what it does."""

import json
from pathlib import Path

import pytest
from conftest import Command
from support.commands import output_of
from support.networks import tiny

from edgedeploy.errors import PackageError
from edgedeploy.package.archive import describe, read_package, write_package
from edgedeploy.package.members import WORK_NAME, FunctionWork, read_work
from edgedeploy.runtime.profile import RUNTIME, profiled
from edgedeploy.target.board import load_board

# A convolution of 3x3 from 3 to 8 channels on 8x8 pixels, with bias and ReLU.
PRODUCTS = 8 * 8 * 8 * 3 * 3 * 3
BYTES = 4 * (3 * 8 * 8 + 8 * 3 * 3 * 3 + 8 + 8 * 8 * 8)


@pytest.fixture
def package(command: Command, tmp_path: Path) -> Path:
    assert command("build", tiny(tmp_path / "net.onnx"), "--output", tmp_path)[0] == 0
    return tmp_path / "net.tar.gz"


def work(function: str, kind: str = "float32", operations: int = 0, size: int = 0) -> FunctionWork:
    return FunctionWork(function=function, calls=1, template="x", type=kind, operations=operations, bytes=size)


@pytest.mark.compiles
def test_each_function_is_printed_with_its_share_of_the_time_and_what_it_does(command: Command, package: Path) -> None:
    out = output_of(command, "run", package, "--profile", "--json", "--repeat", "3")
    functions = json.loads(out)["functions"]
    assert sum(each["share"] for each in functions) == pytest.approx(1)
    assert [each["ms"] for each in functions] == sorted((each["ms"] for each in functions), reverse=True)
    [layer] = [each for each in functions if each.get("operations", 0) >= 2 * PRODUCTS]
    assert (layer["calls"], layer["type"]) == (1, "float32")
    assert layer["operations"] <= 2 * PRODUCTS + 2 * 8 * 8 * 8  # bias and ReLU
    assert BYTES <= layer["bytes"] <= 2 * BYTES  # weights are packed for whole vectors
    assert layer["gflops"] == pytest.approx(layer["operations"] / layer["ms"] / 1e6)
    assert layer["gigabytes_per_second"] == pytest.approx(layer["bytes"] / layer["ms"] / 1e6)
    assert RUNTIME in {each["function"] for each in functions}
    assert not any(each["function"].endswith("_scheduled") for each in functions)
    table = command("run", package, "--profile")[1]
    assert layer["function"] in table
    assert "GFLOP/s" in table


def test_the_share_of_the_peak_is_that_of_all_cores_at_the_clock_of_the_profile() -> None:
    board = load_board("rpi4")  # 4 products of floats in a cycle, at 1800 MHz
    core = board.core_model
    times = {"conv_scheduled": [9.0, 1.0, 1.5], "int_scheduled": [1.0], "vm.builtin.alloc_tensor": [0.25, 0.75]}
    operations = 2 * 4 * 1_800_000  # what one core does in a millisecond
    integers = round(2 * core.byte_products * core.clock_mhz * 1000)
    done = [work("conv_scheduled", operations=operations, size=3_000_000), work("int_scheduled", "int8", integers)]
    first, second, runtime = profiled(times, done, board, threads=2)
    assert (first.function, first.ms, first.of_peak) == ("conv", 1.5, pytest.approx(1 / 3))
    assert (first.gflops, first.gigabytes) == (pytest.approx(9.6), pytest.approx(2.0))
    assert second.of_peak == pytest.approx(1 / 2)
    assert (runtime.function, runtime.ms, runtime.work) == (RUNTIME, 0.5, None)
    assert runtime.as_dict() == {"function": RUNTIME, "ms": 0.5, "share": pytest.approx(0.5 / 3)}
    assert profiled(times, done, load_board("local"), threads=2)[0].of_peak is None


@pytest.mark.compiles
def test_packages_of_earlier_versions_have_times_alone(command: Command, package: Path, tmp_path: Path) -> None:
    manifest, contents = read_package(package)
    del contents[WORK_NAME]
    earlier = tmp_path / "earlier.tar.gz"
    write_package(earlier, manifest.model_copy(update={"files": describe(contents)}), contents)
    assert read_work(earlier) == []
    out = output_of(command, "run", earlier, "--profile", "--json")
    assert all(each.keys() == {"function", "ms", "share"} for each in json.loads(out)["functions"])


@pytest.mark.compiles
@pytest.mark.parametrize("content", [b"{", b"[1]", b'[{"function": "f", "calls": -1}]', b"[" * 100_000])
def test_a_damaged_list_of_functions_is_said(package: Path, tmp_path: Path, content: bytes) -> None:
    manifest, contents = read_package(package)
    contents[WORK_NAME] = content
    write_package(tmp_path / "bad.tar.gz", manifest.model_copy(update={"files": describe(contents)}), contents)
    with pytest.raises(PackageError, match=WORK_NAME):
        read_work(tmp_path / "bad.tar.gz")
