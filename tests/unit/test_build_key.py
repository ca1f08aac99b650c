"""What packages are kept under: another key wherever another package could come out."""

import importlib.metadata
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import executable, printed, put
from support.networks import tiny

from edgedeploy import build_key as keys
from edgedeploy.build_key import MAKES_PACKAGES, building_files
from edgedeploy.building import build
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.package.usage import Usage
from edgedeploy.target import toolchain
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.target.toolchain import c_compiler
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import Source, find_source


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of edgedeploy's own files, which keys are taken of."""
    folder = tmp_path / "edgedeploy"
    shutil.copytree(keys.folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(keys, "folder", lambda: folder)
    return folder


@pytest.fixture
def network(tmp_path: Path) -> Source:
    return find_source(str(tiny(tmp_path / "net.onnx")))


def key(network: Source, board: str = "local") -> str:
    """The key as another process would find it."""
    for cached in (keys.code_digest, keys.versions, toolchain._versions):
        cached.cache_clear()
    return keys.build_key(network, load_board(board))


@pytest.mark.compiles
def test_a_package_of_something_else_says_what_differs(network: Source, tmp_path: Path) -> None:
    board = resolve("local")
    manifest = build(network, board, tmp_path / "net.tar.gz", checks="none").manifest
    [said] = keys.differences(manifest, network, board)
    assert said == "it was built by other code of edgedeploy, or with other fields of the board's profile"
    for said, source, other in (
        ("it was built for board local", network, resolve("rpi4")),
        ("its target's mcpu is", network, resolve("local", {"cpu": "x86-64-v2"})),
        ("it was built from another file", find_source("digits"), board),
        ("it has 1 shapes of inputs, not 2", replace(network, further=({},)), board),
        ("its weights are those of the file", replace(network, options=ImportOptions(weights="random")), board),
    ):
        assert said in "; ".join(keys.differences(manifest, source, other))
    assert keys.differences(manifest, network, board, disabled_passes=["a"]) == ["passes that were left out: none"]
    usage = Usage(demo="digits", input=MODELS.load("digits").input, fit="stretch", decoder={"kind": "x"}, log="y")
    of_demo = manifest.model_copy(update={"usage": usage})
    assert keys.differences(of_demo, network, board) == ["it was built for the demo digits"]
    [said] = keys.differences(manifest, network, board, usage=usage)
    assert said == "it does not record the use of the network that its zoo entry states"


def test_a_file_named_as_a_users_entry_has_a_package_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny(tmp_path / "mine.onnx")
    assert find_source("mine.onnx").name == "mine"
    put(tmp_path / "models" / "mine.yaml", MODELS.find("digits").read_text())
    assert find_source("mine.onnx").name == "mine.onnx"


@pytest.mark.parametrize(
    "name",
    [
        "compile/new.py",
        *("target/board.py", "building.py", "build_key.py", "compile/backends/cpu/schedules/dense.py"),
        *("frontends/onnx/nodes.py", "model/heads.py", "target/opencl/profile.py", "package/abi.py"),
        *("vision/frames.py", "package/manifest.py", "runtime/arrays.py", "compile/native/thread_pool.c"),
        *("compile/native/tvm.h", "selftest/tolerance.py", "target/toolchain.py", "records/best.py", "zoo/entry.py"),
    ],
)
def test_changed_and_new_code_makes_another_key(sources: Path, network: Source, name: str) -> None:
    before = key(network)
    assert key(network) == before
    with (sources / name).open("a") as stream:
        stream.write("" if name == "compile/new.py" else "\n")
    assert key(network) != before


@pytest.mark.parametrize(
    "name",
    ["agent/build.py", "cli/run.py", "doctor/check.py", "errors.py", "base/text.py", "vision/draw.py", "zoo/store.py"],
)
def test_what_makes_no_package_leaves_the_key(sources: Path, network: Source, name: str) -> None:
    before = key(network)
    (sources / name).write_text("")
    assert key(network) == before


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [({"description": "another"}, True), ({"health_check": "true", "health_check_s": 5}, True), ({"cores": 99}, False)],
    ids=["what it says for people", "how a release is looked after", "what decides code"],
)
def test_some_fields_of_a_profile_leave_the_key(network: Source, fields: dict[str, object], is_same: bool) -> None:
    board = load_board("local")
    changed = board.model_copy(update=fields)
    assert (keys.build_key(network, changed) == keys.build_key(network, board)) is is_same


def test_what_makes_packages_is_there() -> None:
    assert [name for name in MAKES_PACKAGES if not (keys.folder() / name).exists()] == []


# What builds load although packages do not depend on it: reading settings and data files, keeping and writing files,
# messages, the agent, and records, whose content is in the key.
BYSTANDERS = {
    ".": "__init__ errors keywords",
    "agent": "__init__ build edgedeploy_runtime recipe shipped",
    "base": "__init__ cache catalog closing extras files opencv plugins programs progress settings streams"
    " supervision text workers",
    "records": "__init__ database lines schema",
    "runtime": "__init__ opencl opening session timing",
    "virtual": "__init__ emulation",
    "zoo": "__init__ download store wheel",
}

LOADED = """
import sys
from pathlib import Path
from edgedeploy.building import build
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

for board in ("local", "rpi4"):
    build(find_source(sys.argv[1]), resolve(board), Path(sys.argv[2]) / f"{board}.tar.gz")
for module in list(sys.modules.values()):
    if module.__name__.partition(".")[0] == "edgedeploy" and getattr(module, "__file__", None):
        print(module.__file__)
"""


def test_each_module_that_a_build_loads_is_known_to_decide_or_not(tmp_path: Path) -> None:
    program = (sys.executable, "-c", LOADED, tiny(tmp_path / "net.onnx"), tmp_path)
    loaded = {Path(line) for line in printed(*program, timeout=300, cwd=tmp_path).splitlines()}
    assert len(loaded) > 50
    bystanders = {keys.folder() / place / f"{name}.py" for place, names in BYSTANDERS.items() for name in names.split()}
    assert sorted(map(str, loaded - set(building_files(keys.folder())) - bystanders)) == []


@pytest.mark.parametrize("package", ["apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onnxruntime"])
def test_other_package_versions_make_other_keys(network: Source, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, version = key(network), importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == package else version(name))
    assert key(network) != before
    monkeypatch.undo()
    assert key(network) == before


COMPILER = """case "$1" in
  --version) echo "cc (Somebody) 12.2.0" ;;
  -Wl,--version) echo "{linker}" ;;
esac"""


@pytest.mark.parametrize(("before", "after"), [("zig ld 0.15.1", "zig ld 0.15.2"), ("GNU ld 2.40", "LLD 20.1.2")])
def test_another_linker_makes_another_key(
    network: Source, before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The versions of zig differ in nothing but what its linker says."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = []
    for linker in (before, after, before):
        executable(tmp_path / "cc", COMPILER.format(linker=linker))
        found.append(key(network))
    assert found[0] == found[2] != found[1]


def test_the_identity_of_zigs_driver_is_of_its_own_version() -> None:
    assert importlib.metadata.version("ziglang") in c_compiler(load_board("rpi4")).identity


def test_a_compiler_whose_linker_states_no_version_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "cc", 'test "$1" = --version && echo "cc 1"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    toolchain._versions.cache_clear()
    assert "cc 1" in c_compiler(load_board("local")).identity
    toolchain._versions.cache_clear()
