"""The wheel, used away from the checkout that it was built from: as a whole, and without the extra `build`."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from support.agents import digits_with_use
from support.commands import printed
from support.virtual_boards import Start, emptied

from edgedeploy.errors import NotInstalledError

DATA = "edgedeploy/_data/"

Command = Callable[..., str]

# Imported by Python's start after an editable install has put the checkout on the path.
WITHOUT_CHECKOUT = f"""\
import sys
sys.path[:] = [folder for folder in sys.path if folder not in ({str(ROOT)!r}, {str(ROOT) + os.sep!r})]
"""


@pytest.fixture(scope="module")
def python(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Python in an empty folder, with the installed wheel and without the checkout; gives standard output."""
    work, start, home = (tmp_path_factory.mktemp(name) for name in ("work", "start", "home"))
    (start / "sitecustomize.py").write_text(WITHOUT_CHECKOUT)
    (home / "cache").mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EDGEDEPLOY", "PYTHON"))}
    environment = inherited | {
        "PYTHONPATH": os.pathsep.join([str(target), str(start)]),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }

    return partial(printed, sys.executable, cwd=work, env=environment)


def test_it_carries_all_data_and_nothing_large_but_agents(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).infolist()
    members = {each.filename for each in files}
    data = [path for kind in ("boards", "toolchains", "demos", "models") for path in (ROOT / kind).glob("*.yaml")]
    data += [*(ROOT / "models/labels").glob("*.txt"), ROOT / "models/digits.onnx", ROOT / "models/digit.png"]
    assert {DATA + path.relative_to(ROOT).as_posix() for path in data} <= members
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "edgedeploy").rglob("*.html")}
    assert templates
    assert templates <= members
    largest = max((each for each in files if "/agents/" not in each.filename), key=lambda each: each.file_size)
    assert largest.file_size < 100_000, largest.filename


def test_the_agent_is_ready_and_one_of_other_sources_is_not_used(python: Command, target: Path) -> None:
    ask = "from edgedeploy.agent import build; from edgedeploy.target.board import load_board as load\n"
    agent = Path(python("-c", f"{ask}print(build.agent_for(load('local')).path)").strip())
    assert agent.is_relative_to(target)
    assert json.loads(printed(agent, "--version"))["build"].startswith(agent.name.rpartition("-")[2])
    source = target / DATA / "agent" / "facts.cc"
    before = source.read_text()
    ask += "print(build.built_agent(load('local')))"
    assert python("-c", ask) != "None\n"
    source.write_text(before + "// changed\n")
    try:
        assert python("-c", ask) == "None\n"
    finally:
        source.write_text(before)


def test_it_is_the_installed_package_that_runs(python: Command, target: Path) -> None:
    printed = python("-c", "import edgedeploy, json, sys; print(json.dumps([edgedeploy.__file__, sys.path]))")
    file, path = json.loads(printed)
    assert Path(file).is_relative_to(target)
    assert str(ROOT) not in path


def test_boards_and_models_are_found(python: Command, target: Path) -> None:
    boards = json.loads(python("-m", "edgedeploy", "boards", "--json"))
    assert {board["name"] for board in boards} == {path.stem for path in (ROOT / "boards").glob("*.yaml")}
    models = json.loads(python("-m", "edgedeploy", "models", "--json"))
    [digits] = [model for model in models if model["name"] == "digits"]
    assert digits["state"] == "bundled"
    assert Path(digits["files"][0]["path"]).is_relative_to(target)


def test_the_bundled_network_is_built_and_shown(python: Command) -> None:
    [built] = json.loads(python("-m", "edgedeploy", "build", "digits", "--json"))
    assert built["package"] == "dist/local/digits.tar.gz"
    assert built["checked"] == "here"
    assert json.loads(python("-m", "edgedeploy", "demo", "digits", "--json"))["results"][0]["label"] == "3"


@pytest.mark.slow
def test_tvm_has_opencl_devices_in_every_program_once_the_runtime_is_made(opencl: Any, python: Command) -> None:
    python("-c", "from edgedeploy.runtime.opencl import load; load()")
    ask = "import sys, tvm; print(tvm.opencl(0).device_name); assert 'edgedeploy.building' not in sys.modules"
    assert python("-W", "error", "-c", ask).strip() == opencl.device_name


# Without the extra `build`: what is built elsewhere is pushed, run and shown.

Edgedeploy = Callable[..., "subprocess.CompletedProcess[str]"]

# Python with nothing of its environment but the folders that come first among the arguments.
_START = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; from edgedeploy.__main__ import main; main()"


def required(distribution: Distribution, extra: str = "") -> Iterator[Distribution]:
    """What a distribution requires, whatever that requires among it."""
    for text in distribution.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found = Distribution.from_name(requirement.name)
            yield found
            yield from required(found)


@pytest.fixture(scope="module")
def site(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that `pip install edgedeploy` brings, as links to those that are installed here."""
    folder = tmp_path_factory.mktemp("site")
    [installed] = distributions(name="edgedeploy", path=[str(target)])
    for each in {found.name: found for found in required(installed)}.values():
        for file in each.files or []:
            name, place = file.parts[0], Path(str(each.locate_file(""))) / file.parts[0]
            if name not in ("..", "__pycache__") and not (folder / name).exists():
                (folder / name).symlink_to(place)
    return folder


@pytest.fixture
def edgedeploy(target: Path, site: Path, tmp_path: Path) -> Edgedeploy:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", "-c", _START, str(target), str(site), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    boards = ("local", "rpi4")
    return {board: digits_with_use(folder / board / "digits.tar.gz", board, checks="none") for board in boards}


def test_tvm_onnx_and_zig_are_not_there(site: Path) -> None:
    assert (site / "numpy").is_dir()
    assert not {"tvm", "tvm_ffi", "onnx", "onnxruntime", "ziglang"} & {path.name for path in site.iterdir()}


def test_packages_run_here_as_they_do_in_tvm(edgedeploy: Edgedeploy, packages: dict[str, Path]) -> None:
    shown = json.loads(edgedeploy("demo", str(packages["local"]), "--board", "local", "--json").stdout)
    assert shown["results"][0]["label"] == "3"
    assert shown["results"][0]["score"] == pytest.approx(0.998865, abs=1e-5)
    ran = json.loads(edgedeploy("run", str(packages["local"]), "--profile", "--json").stdout)
    assert ran["outputs"][0]["shape"] == [1, 10]
    assert ran["functions"]


def test_packages_are_pushed_and_shown(edgedeploy: Edgedeploy, packages: dict[str, Path], start: Start) -> None:
    emptied(start("rpi4"))
    [pushed] = json.loads(edgedeploy("push", str(packages["rpi4"]), "--board", "rpi4", "--virtual", "--json").stdout)
    assert pushed["selftest"]["passed"] is True
    shown = json.loads(edgedeploy("demo", str(packages["rpi4"]), "--board", "rpi4", "--virtual", "--json").stdout)
    assert shown["results"][0]["label"] == "3"
    listed = json.loads(edgedeploy("releases", "list", "--board", "rpi4", "--virtual", "--json").stdout)
    assert [each["id"] for each in listed] == [pushed["release"]]


_CALLS = """
import sys

sys.path[:0] = sys.argv[1:3]
import edgedeploy as ed

with ed.open(sys.argv[3], threads=1) as network:
    print(network.detect(sys.argv[4])[0].label)
for call in (ed.build, ed.open, lambda name: ed.bench([name]), lambda name: ed.quantize(name, "photos")):
    try:
        call("digits")
    except ed.EdgedeployError as error:
        print(type(error).__name__, *error.hints)
"""


def test_the_python_api_does_what_the_commands_do(target: Path, site: Path, packages: dict[str, Path]) -> None:
    image = ROOT / "models" / "digit.png"
    said = printed(sys.executable, "-I", "-S", "-c", _CALLS, target, site, packages["local"], image)
    assert said.splitlines() == ["3", *["NotInstalledError pip install 'edgedeploy[build]'"] * 4]


@pytest.mark.parametrize(
    "command", ["build digits", "demo digits", "bench digits", "tune digits", "models show digits --graph x.svg"]
)
def test_what_needs_the_extra_names_it(edgedeploy: Edgedeploy, command: str) -> None:
    done = edgedeploy("--json", *command.split(), code=NotInstalledError.exit_code)
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert error["try"] == ["pip install 'edgedeploy[build]'"]
    assert "not installed" in error["why"]


def test_the_doctor_finds_nothing_wrong(edgedeploy: Edgedeploy) -> None:
    said = edgedeploy("doctor").stdout
    assert "TVM: not applicable: it is not installed" in said
    assert "pip install 'edgedeploy[build]'" in said
