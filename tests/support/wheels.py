"""The wheel as fixtures: built from this checkout, and installed into a folder; and what is left of other wheels."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import ROOT

from support.caches import KEPT
from support.commands import printed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` makes it, with the agents for this machine and one board."""
    folder, copy = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("checkout") / "edgedeploy"
    listed = printed("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, copy / name)
    ship = (sys.executable, ROOT / "scripts" / "ship_agents.py", copy / "build" / "agents", "local", "rpi4")
    printed(*ship, env={**os.environ, "XDG_CACHE_HOME": str(KEPT)})
    printed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, copy)
    [path] = folder.glob("edgedeploy-*.whl")
    return path


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel was installed into, and nothing else."""
    folder = tmp_path_factory.mktemp("target")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder)
    printed(*pip, wheel)
    return folder


def distribution(site: Path, name: str, version: str = "1.0", *lines: str, points: Sequence[str] = ()) -> None:
    """What pip leaves of a package: metadata with these lines more, and those of its entry points."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    said = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]
    (folder / "METADATA").write_text("\n".join(said))
    (folder / "entry_points.txt").write_text("\n".join(points))
