"""C++ of the user's own is built for a board by CMake, with the compilers that edgedeploy uses."""

from pathlib import Path

import pytest
from conftest import Command
from support.agents import emulation_here
from support.commands import need, output_of, printed

from edgedeploy.package.abi import read_abi
from edgedeploy.target import toolchain
from edgedeploy.target.board import load_board

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


def build(project: Path, toolchain_file: Path) -> Path:
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
    program = build(project, file)
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
    program = build(project, file)
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
    assert printed(build(project, project / "local.cmake")) == "hello 42\n"


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
