"""Packages and programs for boards of other architectures: their systems accept them, and an emulator runs them."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agents import EMULATED, command_of, emulation_here, packaged
from support.commands import json_of, need, notes_of, output_of, printed, refused
from support.networks import Graph, tiny

from edgedeploy.building import build, prepare
from edgedeploy.cli.overrides import complete_cpu, complete_toolchain, complete_triple
from edgedeploy.compile import pipeline
from edgedeploy.compile.output import codegen
from edgedeploy.compile.pipeline import Compiled, compile_entries
from edgedeploy.errors import InputError, NumericalError, ToolchainError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.package.abi import read_abi
from edgedeploy.package.archive import read_manifest, read_package
from edgedeploy.package.manifest import Manifest
from edgedeploy.target import toolchain
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.target.toolchain import link_shared, run_tool, with_language, zig_triple
from edgedeploy.zoo.source import find_source


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


# What the command line says of the board's code and of what links it goes before the board's profile.


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return tiny(tmp_path / "net.onnx")


def built(net: Path, board: str, **overrides: object) -> Manifest:
    return build(find_source(str(net)), resolve(board, overrides), net.with_suffix(".tar.gz"), checks="none").manifest


def test_a_field_of_the_profile_is_replaced_and_the_others_stay() -> None:
    board, profile = resolve("rpi4", {"cpu": "cortex-a73"}).profile, load_board("rpi4")
    assert board.cpu == "cortex-a73"
    assert board.model_copy(update={"cpu": profile.cpu}) == profile


def test_another_toolchain_gets_none_of_the_profiles_compiler_options() -> None:
    clang = {"cross_compiler": ["clang"], "cross_compiler_options": ["--target=aarch64-linux-gnu"]}
    assert load_board("rpi4").overridden(clang).overridden({"toolchain": "zig"}) == load_board("rpi4")


@pytest.mark.parametrize(
    ("board", "overrides", "message"),
    [
        ("rpi4", {"triple": "aarch64-gnu"}, "not of the form"),
        ("rpi4", {"triple": "armv7a-unknown-linux-gnueabihf"}, "the board is aarch64"),
        ("rpi-armhf", {"triple": "armv7a-unknown-linux-gnueabi"}, "does not have the hard-float ABI"),
        ("rpi4", {"features": ["dotprod"]}, "features"),
    ],
)
def test_a_value_impossible_in_a_profile_is_refused(board: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(board, overrides)


def test_the_package_states_what_was_really_used(net: Path) -> None:
    manifest = built(net, "rpi4", cpu="cortex-a76", features=["+dotprod"])
    assert manifest.target["mcpu"] == manifest.abi.cpu == "cortex-a76"
    assert manifest.target["mattr"] == manifest.abi.features == ["+dotprod"]
    assert manifest.linker.startswith("zig: 'clang version ")
    assert manifest.linker.endswith("-target aarch64-linux-gnu.2.28")


def test_another_triple_of_the_same_architecture_reaches_compiler_and_linker(net: Path) -> None:
    manifest = built(net, "rpi-armhf", triple="armv8a-unknown-linux-gnueabihf", cpu="cortex-a53")
    assert manifest.target["mtriple"] == "armv8a-unknown-linux-gnueabihf"
    assert (manifest.abi.machine, manifest.abi.float_abi) == ("EM_ARM", "hard")


@pytest.mark.slow  # zig builds its C++ library for it
def test_zig_may_be_named_as_a_cross_compiler_in_several_words(command: Command, net: Path) -> None:
    options = ["--cross-compiler", f"{sys.executable} -m ziglang cc"]
    target = ["--cross-compiler-options", "-target aarch64-linux-gnu.2.28"]
    [said] = json_of(command, "build", net, "--board", "rpi4", *options, *target)
    assert said["linker"].endswith("-target aarch64-linux-gnu.2.28")
    assert (said["abi"]["machine"], said["target"]["mcpu"]) == ("EM_AARCH64", "cortex-a72")


@pytest.mark.parametrize(
    ("board", "compiler", "package", "machine"),
    [
        ("rpi4", "aarch64-linux-gnu-gcc", "g++-aarch64-linux-gnu", "EM_AARCH64"),
        ("rpi-armhf", "arm-linux-gnueabihf-gcc", "g++-arm-linux-gnueabihf", "EM_ARM"),
    ],
)
def test_cross_compilers_and_toolchains_link(net: Path, board: str, compiler: str, package: str, machine: str) -> None:
    need(compiler, package)
    by_name = built(net, board, cross_compiler=[compiler])
    toolchain = {"EM_AARCH64": "gnu-aarch64", "EM_ARM": "gnu-armhf"}[machine]
    as_toolchain = built(net, board, toolchain=toolchain)
    assert by_name.abi.machine == as_toolchain.abi.machine == machine
    assert by_name.linker.startswith(f"{compiler}: ")
    assert as_toolchain.linker.startswith(f"{toolchain}: ")
    assert by_name.linker.split(": ")[1] == as_toolchain.linker.split(": ")[1]
    assert "libgcc_s.so.1" not in as_toolchain.abi.libraries


def test_clang_links_with_options_of_its_own(net: Path) -> None:
    need("clang", "clang")
    need("ld.lld", "lld")
    need("aarch64-linux-gnu-gcc", "g++-aarch64-linux-gnu")
    options = ["--target=aarch64-linux-gnu", "-fuse-ld=lld"]
    manifest = built(net, "rpi4", cross_compiler=["clang"], cross_compiler_options=options)
    assert manifest.abi.machine == "EM_AARCH64"
    assert manifest.linker.endswith("clang --target=aarch64-linux-gnu -fuse-ld=lld")


def test_a_package_that_needs_a_newer_glibc_than_the_profile_has_is_pointed_out(command: Command, net: Path) -> None:
    need("aarch64-linux-gnu-gcc", "g++-aarch64-linux-gnu")
    err = notes_of(command, "build", net, "--board", "rpi4", "--toolchain", "gnu-aarch64")
    newest = read_manifest(Path("dist/rpi4/net.tar.gz")).abi.glibc
    if newest == "2.17":
        pytest.skip("this cross compiler's own C library is an old one")
    assert f"it needs glibc {newest}, the board's profile has 2.28" in err


def test_a_sysroot_is_where_libraries_come_from(net: Path, tmp_path: Path) -> None:
    need("aarch64-linux-gnu-gcc", "g++-aarch64-linux-gnu")
    folder = tmp_path / "root" / "usr" / "lib" / "aarch64-linux-gnu"
    folder.mkdir(parents=True)
    # A C library with two of the functions that every network's threads use.
    source = tmp_path / "libc.c"
    source.write_text(
        "void *calloc(unsigned long n, unsigned long size) { return 0; }\nint pthread_create(void) { return 1; }\n"
    )
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0"):
        options = ["-shared", "-nostdlib", f"-Wl,-soname,mine-{name}"]
        link = folder / f"{name.partition('.')[0]}.so"
        subprocess.run(["aarch64-linux-gnu-gcc", *options, "-o", link, source], check=True)
    manifest = built(net, "rpi4", toolchain="gnu-aarch64", sysroot=tmp_path / "root")
    assert manifest.abi.libraries
    assert all(library.startswith("mine-") for library in manifest.abi.libraries)
    assert f"--sysroot={tmp_path / 'root'}" in manifest.linker


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--mcpu", "cortex-a7x6"], 3, "did you mean cortex-a76"),
        (["--mcpu", ""], 3, "knows no CPU ''"),
        (["--mattr", "dotprod"], 7, "write +dotprod or -dotprod"),
        (["--mattr", "+"], 7, "write them as +dotprod,-lse"),
        (["--mattr", "++crc"], 7, "write +crc or -crc"),
        (["--mattr", "+crc +lse"], 7, "write them as +dotprod,-lse"),
        (["--mattr", "+dotprot"], 3, "dotprot' of aarch64"),
        (["--mattr", "-dotprot"], 3, "dotprot' of aarch64"),
        (["--mtriple", "aarch64-gnu"], 7, "not of the form"),
        (["--mtriple", "x86_64-unknown-linux-gnu"], 7, "the board is aarch64"),
        (["--mtriple", ""], 7, "not of the form"),
        (["--toolchain", "gnu-aarch"], 4, "did you mean gnu-aarch64"),
        (["--toolchain", "gnu-armhf"], 11, "it links for armv7a"),
        (["--toolchain", "gnu-armhf"], 11, "--toolchain zig"),
        (["--toolchain", "zig", "--cross-compiler", "gcc"], 7, "give one of them"),
        (["--cross-compiler", "/no/such/gcc"], 11, "no program /no/such/gcc"),
        (["--cross-compiler", ""], 7, "names no program"),
        (["--cross-compiler", "gcc '"], 7, "not quoted as in a shell"),
        (["--cross-compiler", "true"], 11, "toolchain 'true' does not make code"),
        (["--cross-compiler-options", "-no-such-option"], 11, "-no-such-option"),
        (["--cross-compiler-options", "'"], 7, "not quoted as in a shell"),
        (["--sysroot", "/no/such/folder"], 11, "the sysroot /no/such/folder does not exist"),
        (["--sysroot", "/etc/passwd"], 11, "the sysroot /etc/passwd does not exist"),
        (["--sysroot", "/etc"], 11, "/etc is not a sysroot"),
        (["--sysroot", ""], 11, "is not a sysroot"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_bad_value_compiles_nothing(command: Command, net: Path, options: list[str], code: int, message: str) -> None:
    err = refused(command, code, "build", net, "--board", "rpi4", *options)
    assert message in err
    assert "generate code" not in err
    assert not Path("dist").exists()


def test_a_compiler_for_this_machine_is_refused_for_another(net: Path) -> None:
    need("cc", "gcc")
    board = "rpi-armhf" if load_board("local").family != "arm" else "rpi4"
    with pytest.raises(ToolchainError, match="it makes code for"):
        built(net, board, cross_compiler=["cc"])


@pytest.mark.slow  # zig compiles the C library of an ABI that nothing else here has
def test_a_compiler_of_another_float_abi_is_refused(net: Path) -> None:
    zig, target = [sys.executable, "-m", "ziglang", "cc"], ["-target", "arm-linux-gnueabi.2.28"]
    with pytest.raises(ToolchainError, match="soft-float ABI"):
        built(net, "rpi-armhf", cross_compiler=zig, cross_compiler_options=target)


def test_a_package_with_other_settings_is_not_taken_for_the_one_that_is_asked_for(command: Command, net: Path) -> None:
    assert command("build", net, "--board", "local", "--mcpu", "native")[0] == 0
    assert prepare(str(net), resolve("local", {"features": []})).package_path == Path("dist/local/net.tar.gz")
    assert "dist/local/net.tar.gz is not used" in notes_of(command, "run", net, "--cross-compiler-options", "-O1")


@pytest.mark.parametrize("arguments", [("run", "net.tar.gz"), ("push", "--board", "rpi4", "--virtual")])
def test_a_package_cannot_be_built_otherwise_any_more(command: Command, net: Path, arguments: tuple[str, ...]) -> None:
    err = refused(command, 7, *arguments, "--mcpu", "cortex-a53")
    assert "built already" in err
    assert "start virtual board" not in err


@pytest.mark.parametrize(
    ("word", "c", "cxx"),
    [
        ("/usr/bin/aarch64-linux-gnu-gcc-12", "/usr/bin/aarch64-linux-gnu-gcc-12", "/usr/bin/aarch64-linux-gnu-g++-12"),
        ("clang", "clang", "clang++"),
        ("clang++-14", "clang-14", "clang++-14"),
        ("cc", "cc", "c++"),
        ("mycompiler", "mycompiler", "mycompiler"),
    ],
)
def test_the_drivers_of_one_compiler_are_known_by_name(word: str, c: str, cxx: str) -> None:
    assert with_language(["ccache", word], "c") == ["ccache", c]
    assert with_language(["ccache", word], "c++") == ["ccache", cxx]


def test_zig_finds_a_place_for_its_cache_without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    run_tool(["sh", "-c", 'test -d "$HOME"'])


def test_known_values_are_completed() -> None:
    assert complete_toolchain("gnu-a") == ["gnu-aarch64", "gnu-armhf"]
    assert "armv7a-unknown-linux-gnueabihf" in complete_triple("armv")

    context: Any = SimpleNamespace(params={"board": "rpi4", "mtriple": None})
    assert "cortex-a72" in complete_cpu(context, "cortex-a7")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "options", "compiler"),
    [
        ("rpi4", ["--toolchain", "gnu-aarch64"], "aarch64-linux-gnu"),
        ("rpi4", ["--mcpu", "cortex-a53", "--mattr", "+crc"], ""),
        ("rpi-armhf", ["--cross-compiler", "arm-linux-gnueabihf-gcc"], "arm-linux-gnueabihf"),
    ],
)
def test_what_was_built_with_overrides_passes_its_self_test_on_a_virtual_board(
    board_command: Command, board: str, options: list[str], compiler: str
) -> None:
    if compiler:
        need(f"{compiler}-gcc", f"g++-{compiler}")
    [said] = json_of(board_command, "build", "digits", "--board", board, *options, "--virtual")
    assert said["checked"] == "emulated"
    assert 0 <= said["error_of_tolerance"] < 1


# C++ of the user's own is built for a board by CMake, with the compilers that edgedeploy uses.

PROJECT = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.16)
project(hello C CXX)
add_library(greeting STATIC greeting.cc half.c)
add_executable(hello main.cc)
target_link_libraries(hello PRIVATE greeting)
""",
    "half.c": "int half(int x) { return x / 2; }\n",
    # Exceptions and strings: the C++ library is really needed.
    "greeting.cc": """\
#include <stdexcept>
#include <string>
extern "C" int half(int);
std::string greeting() {
  try {
    throw std::runtime_error("hello ");
  } catch (const std::exception &error) {
    return error.what() + std::to_string(half(84));
  }
}
""",
    "main.cc": """\
#include <iostream>
#include <string>
std::string greeting();
int main() { std::cout << greeting() << std::endl; }
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    need("cmake", "cmake")
    folder = tmp_path / "a project"
    folder.mkdir()
    for name, text in PROJECT.items():
        (folder / name).write_text(text)
    return folder


def made(project: Path, toolchain_file: Path) -> Path:
    output = project / "build"
    printed("cmake", "-S", project, "-B", output, f"-DCMAKE_TOOLCHAIN_FILE={toolchain_file}")
    printed("cmake", "--build", output)
    return output / "hello"


@pytest.mark.slow  # zig compiles its C++ library for each triple once
@pytest.mark.parametrize(("board", "machine"), [("rpi4", "EM_AARCH64"), ("rpi-armhf", "EM_ARM")])
def test_zig_programs_run_on_the_oldest_system(command: Command, project: Path, board: str, machine: str) -> None:
    file = project / "board.cmake"
    output_of(command, "toolchains", "cmake", board, "--output", file)
    profile = load_board(board)
    told = f"zig for {profile.triple}: at first use it builds its C and C++ libraries, for minutes"
    assert f'message(STATUS "{told}")' in file.read_text()
    program = made(project, file)
    abi = read_abi(program, profile)
    assert abi.machine == machine
    assert [int(part) for part in abi.glibc.split(".")] <= [int(part) for part in profile.glibc.split(".")]
    assert not [library for library in abi.libraries if "++" in library]
    assert printed(*emulation_here(load_board(board)), program) == "hello 42\n"


@pytest.mark.parametrize(
    ("board", "toolchain", "compiler", "machine"),
    [
        ("rpi4", "gnu-aarch64", "aarch64-linux-gnu-g++", "EM_AARCH64"),
        ("rpi-armhf", "gnu-armhf", "arm-linux-gnueabihf-g++", "EM_ARM"),
    ],
)
def test_debians_cross_compilers_build_programs_that_need_no_cxx_library(
    command: Command, project: Path, board: str, toolchain: str, compiler: str, machine: str
) -> None:
    need(compiler, f"g++-{compiler.removesuffix('-g++')}")
    file = project / "board.cmake"
    output_of(command, "toolchains", "cmake", board, "--toolchain", toolchain, "--output", file)
    program = made(project, file)
    abi = read_abi(program, load_board(board))
    assert abi.machine == machine
    assert not {"libstdc++.so.6", "libgcc_s.so.1"} & set(abi.libraries)
    assert printed(*emulation_here(load_board(board)), program) == "hello 42\n"


def test_the_native_compiler_builds_programs(command: Command, project: Path, caplog: pytest.LogCaptureFixture) -> None:
    toolchain._check.cache_clear()
    out = output_of(command, "-v", "toolchains", "cmake", "local")
    assert "CMAKE_SYSTEM_NAME" not in out
    # zig builds other libraries for what is stripped; CMake strips nothing, and would then be silent for minutes.
    tried = [call.split() for call in caplog.messages if "line.so" in call]
    assert len(tried) == 2
    assert not [call for call in tried if "-s" in call]
    (project / "local.cmake").write_text(out)
    assert printed(made(project, project / "local.cmake")) == "hello 42\n"


def test_overrides_go_into_the_file(command: Command, tmp_path: Path) -> None:
    need("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    (tmp_path / "a $root" / "usr").mkdir(parents=True)
    compiler = ["--cross-compiler", "aarch64-linux-gnu-gcc", "--cross-compiler-options", "-O1"]
    out = output_of(command, "toolchains", "cmake", "rpi4", *compiler, "--sysroot", tmp_path / "a $root")
    root = str(tmp_path / "a $root").replace("$", r"\$")
    assert f"""set(CMAKE_C_COMPILER "aarch64-linux-gnu-gcc" "'--sysroot={root}' -O1")""" in out
    assert f"""set(CMAKE_CXX_COMPILER "aarch64-linux-gnu-g++" "'--sysroot={root}' -O1")""" in out
    assert f'set(CMAKE_FIND_ROOT_PATH "{root}")' in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rpi44"], 4, "did you mean rpi4"),
        (["rpi4", "--toolchain", "gnu-armhf"], 11, "does not link for aarch64"),
        (["rpi4", "--cross-compiler", "/no/such/gcc"], 11, "no program /no/such/gcc"),
        (["rpi4", "--output", "/proc/no.cmake"], 10, "cannot write /proc/no.cmake"),
        (["rpi4", "--mcpu", "cortex-a53"], 2, "--mcpu"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_requests_are_refused(command: Command, arguments: list[str], code: int, message: str) -> None:
    found, out, err = command("toolchains", "cmake", *arguments)
    assert found == code, err
    assert message in err
    assert not out


def test_toolchains_list_how_to_get_them(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no: apt install g++-aarch64-linux-gnu" in output_of(command, "toolchains")
    assert '"name": "zig"' in command("toolchains", "--json")[1]
