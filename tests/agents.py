"""The agent for tests: built once for each content of its sources, and kept between runs of the tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import platformdirs
from patience import generous

from edgedeploy.agent.build import DEFAULT_TOOLCHAIN, Agent, build_executable
from edgedeploy.agent.recipe import agent_folder, own_sources
from edgedeploy.board import load_board
from edgedeploy.package.archive import manifest_bytes, read_package
from edgedeploy.package.manifest import MANIFEST_NAME

# The user's own, which is known before tests get folders of their own.
KEPT = platformdirs.user_cache_path()


def keep_agents(cache_home: Path) -> None:
    """Let a cache folder that tests use find what was compiled before, which is named by its content."""
    folder = cache_home / "edgedeploy"
    folder.mkdir(parents=True)
    for name in ("agents", "opencl-runtime"):
        kept = KEPT / "edgedeploy" / name
        kept.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(kept)


def build_probe() -> Agent:
    """The program that shows the agent's parts to the tests."""
    sources = [path for path in own_sources() if path.name != "main.cc"]
    probe = agent_folder() / "tests" / "probe.cc"
    return build_executable([*sources, probe], load_board("local"), DEFAULT_TOOLCHAIN, name="probe")


def unpack(archive: Path, folder: Path) -> Path:
    """The folder of a package, as the agent takes it."""
    manifest, contents = read_package(archive)
    for name, content in {**contents, MANIFEST_NAME: manifest_bytes(manifest)}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def call(agent: Path, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """One run of the agent."""
    command = [str(agent), *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=generous(300), check=False)


def answer(agent: Path, *arguments: object) -> Any:
    """The JSON that a run prints, which must succeed."""
    done = call(agent, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    [line] = done.stdout.decode().splitlines()
    return json.loads(line)
