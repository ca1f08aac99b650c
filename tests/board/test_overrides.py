"""What the command line says of the board's code and of what links it goes before the board's profile."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Command
from support.commands import json_of, need, notes_of, refused
from support.networks import tiny

from edgedeploy.building import build, prepare
from edgedeploy.cli.overrides import complete_cpu, complete_toolchain, complete_triple
from edgedeploy.errors import InputError, ToolchainError
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import Manifest
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.target.toolchain import run_tool, with_language
from edgedeploy.zoo.source import find_source


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
