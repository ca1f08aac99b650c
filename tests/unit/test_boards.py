"""Board profiles and architectures: what they state, what targets come of them, and how faults are reported."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from conftest import Command
from support.agreement import network_of, random_inputs, results_of
from support.commands import output_of, put, refused
from support.networks import Graph
from support.profiles import x86

from edgedeploy.agent.build import built_agent
from edgedeploy.base.catalog import builtin_folder
from edgedeploy.compile.output.targets import check_target
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ConfigurationError, ToolchainError, UnknownNameError, VirtualBoardError
from edgedeploy.target.board import BOARDS, Vector, load_board
from edgedeploy.target.hosts import host_facts
from edgedeploy.target.toolchain import TOOLCHAINS
from edgedeploy.target.triples import architecture_of, architecture_of_elf, architectures, multiarch
from edgedeploy.virtual.emulation import emulation_of

PROFILE = """\
description: a board
triple: aarch64-unknown-linux-gnu
cpu: cortex-a72
cores: 4
vector: {bits: 128, registers: 32}
fma: {latency: 7, per_cycle: 1}
cache: {l1_kib: 32, l2_kib: 1024}
toolchain: zig
"""


def profile(folder: Path, old: str = "", new: str = "") -> Path:
    return put(folder / "board.yaml", PROFILE.replace(old, new) if old else PROFILE)


# Not those of whoever runs the tests.
BUNDLED = sorted(path.stem for path in (builtin_folder() / "boards").glob("*.yaml"))


def test_the_boards_of_the_documentation_are_there() -> None:
    assert {"local", "rpi5", "rpi4", "rpi3", "rpi-armhf", "nuc-opencl", "visionfive2"} <= set(BOARDS.names())


@pytest.mark.parametrize("name", BUNDLED)
def test_every_board_has_a_toolchain_that_exists_and_a_target_that_tvm_and_llvm_know(name: str) -> None:
    board = load_board(name)
    TOOLCHAINS.load(board.toolchain)
    assert tvm.target.Target(board.target()).kind.name == ("opencl" if name.endswith("-opencl") else "llvm")
    check_target(board)


@pytest.mark.parametrize(
    ("cpu", "bits"), [("x86-64-v3", 256), ("haswell", 256), ("skylake-avx512", 512), ("x86-64-v2", 128)]
)
def test_another_cpu_has_vectors_of_its_own(cpu: str, bits: int) -> None:
    for board in (load_board("nuc-opencl"), x86("znver4", 512)):
        vector = board.overridden({"cpu": cpu}).vector
        assert (vector.bits, vector.registers) == (bits, 32 if bits == 512 else 16)
        assert board.overridden({"cpu": cpu, "vector": {"bits": 128, "registers": 16}}).vector.bits == 128


def test_a_cpu_that_the_table_does_not_know_keeps_the_boards_vectors() -> None:
    board = x86("znver4", 512)
    assert board.overridden({"cpu": "tigerlake"}).vector == board.vector
    pi = load_board("rpi4")
    assert pi.overridden({"cpu": "cortex-a76"}).vector == pi.vector


def test_32_bit_arm_passes_floats_in_vector_registers() -> None:
    target = load_board("rpi-armhf").target()
    assert target["mfloat-abi"] == "hard"
    assert {"+neon", "+vfp4"} <= set(target["mattr"])
    assert target["mtriple"].count("-") == 3


def test_local_is_this_machine(own_cpu: None) -> None:
    board = load_board("local")
    assert board.runs_here
    assert board.cpu == host_facts()["cpu"] != "native"
    assert board.cores == len(os.sched_getaffinity(0))


def test_profiles_in_the_working_folder_precede_installed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boards").mkdir()
    profile(tmp_path / "boards").rename(tmp_path / "boards" / "rpi4.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_board("rpi4").description == "a board"


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("cores: 4", "cores: four", 4, "cores"),
        ("bits: 128", "bits: 100", 5, "vector.bits"),
        ("toolchain: zig", "tolchain: zig", 8, "tolchain"),
        ("toolchain: zig\n", "", 1, "toolchain"),
        ("cpu: cortex-a72", "cpu: cortex-a72\ncpu: cortex-a53", 4, "cpu"),
        ("cpu: cortex-a72", "cpu: [", 5, "not valid YAML"),
        ("cores: 4", "cores: 4\nhealth_check: ' '", 5, "health_check"),
        ("cores: 4", f"cores: 4\nhealth_check: {'x' * 10_001}", 5, "put longer ones into a script"),
        ("cores: 4", "cores: 4\nhealth_check: [a, b]", 5, "health_check"),
        ("cores: 4", "cores: 4\nhealth_check_s: 0", 5, "health_check_s"),
        ("aarch64-unknown-linux-gnu", "aarch64-gnu", 1, "not of the form"),
    ],
)
def test_faults_name_file_line_and_field(tmp_path: Path, old: str, new: str, line: int, field: str) -> None:
    path = profile(tmp_path, old, new)
    with pytest.raises(ConfigurationError, match=re.escape(f"{path}:{line}: ")) as raised:
        load_board(str(path))
    assert field in str(raised.value)


def test_an_unknown_board_answers_with_near_names() -> None:
    with pytest.raises(UnknownNameError, match="rpi4") as raised:
        load_board("rpo4")
    assert raised.value.exit_code == 4
    with pytest.raises(UnknownNameError):
        load_board("x" * 300)  # a name that no file can have


def test_show_prints_profile_and_target(command: Command) -> None:
    out = output_of(command, "boards", "show", "rpi4")
    assert "cortex-a72" in out
    assert '"mtriple": "aarch64-unknown-linux-gnu"' in out


def test_a_new_board_starts_as_a_copy_is_found_by_its_name_and_never_replaced(command: Command) -> None:
    assert command("boards", "new", "my-board", "--from", "rpi4")[0] == 0
    shown, original = json.loads(output_of(command, "boards", "show", "my-board", "--json")), load_board("rpi4")
    assert Path(shown["file"]).read_bytes() == (builtin_folder() / "boards" / "rpi4.yaml").read_bytes()
    assert shown["cpu"] == original.cpu
    assert "exists" in refused(command, 7, "boards", "new", "my-board", "--from", "rpi3")
    assert json.loads(command("boards", "show", "my-board", "--json")[1]) == shown


@pytest.mark.parametrize("name", ["../escape", "rpi 4", ""])
def test_a_new_board_needs_a_plain_name(command: Command, name: str) -> None:
    assert "cannot name a board" in refused(command, 7, "boards", "new", name, "--from", "rpi4")


def test_a_new_board_of_a_name_that_is_taken_says_which_one_is_used(command: Command) -> None:
    _, out, _ = command("boards", "new", "rpi4", "--from", "rpi3")
    assert f"there is another board rpi4 already; {BOARDS.find('rpi4')} is used" in out.replace("\n", "")
    assert load_board("rpi4").cpu == "cortex-a53"


@pytest.mark.parametrize(
    "content",
    [
        "? [a, b]\n: 1\n",
        "description: 2026-02-30\n",
        "&a [*a]\n",
        "[" * 3000,
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
    ],
    ids=["key that is a list", "impossible date", "holds itself", "deep", "aliases of aliases"],
)
def test_odd_yaml_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "board.yaml", content)
    with pytest.raises(ConfigurationError, match=r"board\.yaml"):
        load_board(str(path))


def test_boards_are_listed_for_scripts_and_a_broken_profile_hides_no_other(command: Command) -> None:
    Path("boards").mkdir()
    profile(Path("boards"), "cores: 4", "cores: four")
    code, out, err = command("boards", "--json")
    boards = {board["name"]: board for board in json.loads(out)}
    assert (code, boards["rpi4"]["vector"]) == (0, {"bits": 128, "registers": 32})
    assert "boards/board.yaml:4: cores" in err


def test_a_new_board_may_be_a_path_with_either_suffix(command: Command) -> None:
    for name in ("one.yaml", "two.yml"):
        assert command("boards", "new", name, "--from", "rpi4")[0] == 0
        assert command("boards", "show", name)[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("cpu: cortex-a72", "cpu: cortex-a7x2", "cortex-a72"),
        ("cores: 4", "cores: 4\nfeatures: [+nonsense]", "+nonsense"),
        ("aarch64-", "foo64-", "foo64-unknown-linux-gnu"),
    ],
)
def test_what_llvm_does_not_know_is_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        check_target(load_board(str(profile(tmp_path, old, new))))


# What depends on an architecture is a row of data.


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("aarch64-unknown-linux-gnu", "aarch64"),
        ("arm64", "aarch64"),
        ("armv7a-unknown-linux-gnueabihf", "arm"),
        ("armv7l", "arm"),
        ("arm", "arm"),
        ("amd64", "x86_64"),
        ("i386", "i686"),
        ("riscv64", "riscv64"),
        ("loongarch64-unknown-linux-gnu", "loongarch64"),
    ],
)
def test_an_architecture_has_one_name_for_what_different_tools_call_it(name: str, row: str) -> None:
    assert architecture_of(name).name == row


def test_no_two_rows_are_the_same_architecture_and_every_board_is_of_one_of_them() -> None:
    machines = [row.elf_machine for row in architectures()]
    assert len({*machines}) == len(machines)
    for row in architectures():
        assert architecture_of(row.name) == architecture_of_elf(str(row.elf_machine)) == row
    assert all(architecture_of(BOARDS.load(name).triple).elf_machine for name in BUNDLED)


def test_debian_names_folders_of_libraries_by_triples_of_three_parts() -> None:
    assert multiarch(load_board("rpi-armhf").triple) == "arm-linux-gnueabihf"
    assert multiarch(load_board("visionfive2").triple) == "riscv64-linux-gnu"


def test_an_architecture_that_the_table_lacks_has_no_agent_and_no_virtual_board() -> None:
    unknown = load_board("visionfive2").model_copy(update={"triple": "loongarch64-unknown-linux-gnu"})
    with pytest.raises(ToolchainError, match="no agent can be built for the architecture loongarch64"):
        built_agent(unknown)
    with pytest.raises(VirtualBoardError, match="supported are aarch64, arm, riscv64, x86_64"):
        emulation_of(unknown)


@pytest.mark.parametrize(
    "network",
    [
        lambda graph, data: graph.node("Conv", data, graph.normal(12, 8, 3, 3), pads=[1, 1, 1, 1]),
        lambda graph, data: graph.node("Conv", data, graph.normal(5, 8, 1, 1), strides=[2, 2]),
        lambda graph, data: graph.node("Conv", data, graph.normal(8, 1, 3, 3), group=8, pads=[1, 1, 1, 1]),
        lambda graph, data: graph.node("MatMul", graph.node("Flatten", data), graph.normal(8 * 144, 7)),
        lambda graph, data: graph.node("Softmax", data, axis=1),
        lambda graph, data: graph.node("ReduceMean", data, axes=[2, 3], keepdims=0),
        lambda graph, data: graph.node("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2]),
        lambda graph, data: graph.node("Tanh", graph.node("Transpose", data, perm=[0, 2, 3, 1])),
    ],
    ids=["3 x 3", "1 x 1", "depthwise", "product", "softmax", "mean along memory", "pooling", "activation"],
)
@pytest.mark.compiles
def test_the_templates_serve_machines_without_vector_unit(network: Callable[[Graph, str], str]) -> None:
    graph = Graph()
    read = network_of(graph, network(graph, graph.input("x", [1, 8, 12, 12])))
    board = load_board("local").model_copy(update={"vector": Vector(bits=32, registers=32)})
    [(found, wanted)] = results_of(compile_network(read, board), read, random_inputs(read))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert found.dtype == wanted.dtype
