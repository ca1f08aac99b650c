"""Nothing that edgedeploy uses tells anybody that it is used."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.caches import share_caches
from support.commands import printed

import edgedeploy

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "network_namespace.py"
# Where onnxruntime's telemetry keeps the id of the device, in the user's cache folder.
MAKERS_FOLDER = "Microsoft"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    share_caches(tmp_path / "home" / ".cache")
    return tmp_path / "home"


def cut_off(home: Path, *commands: list[str]) -> dict[str, Any]:
    """Run commands where every name that is looked up is written down; skip where there can be no such place."""
    namespace = ["unshare", "--net", "--mount"]
    refused = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if refused.returncode:
        pytest.skip(f"this needs namespaces: {refused.stderr.strip()}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_", "EDGEDEPLOY_"))}
    words = [*namespace, sys.executable, PROGRAM, json.dumps(commands)]
    return dict(json.loads(printed(*words, env={**kept, "HOME": str(home)}, cwd=home)))


def assert_silent(home: Path, *commands: str) -> None:
    said = cut_off(home, *([sys.executable, "-m", "edgedeploy", *command.split()] for command in commands))
    assert [code for code, _ in said["ended"]] == [0] * len(commands), said["ended"]
    assert said["asked"] == []
    assert not [path for path in home.rglob("*") if path.name in (MAKERS_FOLDER, "deviceid")]


def test_looking_up_a_name_is_noticed(home: Path) -> None:
    look_up = "import socket\ntry: socket.getaddrinfo('somebody.test', 443)\nexcept OSError: pass"
    assert "somebody.test" in cut_off(home, [sys.executable, "-c", look_up])["asked"]


def test_telemetry_is_off_before_onnxruntime_is_imported(home: Path) -> None:
    assert cut_off(home, [sys.executable, "-c", "import edgedeploy, onnxruntime"])["ended"] == [[0, ""]]
    assert not (home / ".cache" / MAKERS_FOLDER).exists()


def test_sessions_are_made_in_one_place_here_and_one_under_emulation_which_turn_it_off_as_well() -> None:
    sources = {path.name: path.read_text() for path in Path(edgedeploy.__file__).parent.rglob("*.py")}
    makers = sorted(name for name, text in sources.items() if "InferenceSession(" in text)
    assert makers == ["engine_program.py", "onnxruntime_session.py"]
    assert all("onnxruntime.disable_telemetry_events()" in sources[name] for name in makers)


@pytest.mark.compiles
def test_building_and_running_look_nothing_up(home: Path) -> None:
    assert_silent(home, "build digits", "run dist/local/digits.tar.gz", "demo digits --board local")


@pytest.mark.slow
@pytest.mark.compiles
def test_measuring_all_engines_looks_nothing_up(home: Path) -> None:
    # Uploads begin some seconds after the start: this takes longer than that.
    assert_silent(home, "bench digits --rounds 60 --json")


@pytest.mark.slow
@pytest.mark.compiles
def test_tuning_looks_nothing_up(home: Path) -> None:
    assert_silent(home, "tune digits --trials 4")
