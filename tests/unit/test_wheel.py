"""The wheel, used away from the checkout that it was built from."""

import json
import os
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from support.commands import printed

pytestmark = pytest.mark.compiles

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
