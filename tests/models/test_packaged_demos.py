"""Packages of demos' networks detect, by what they say of themselves, what the demos detect."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgedeploy.building import prepare
from edgedeploy.demo.packaged import Detector
from edgedeploy.demo.program import Program
from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import DownloadError
from edgedeploy.resolved import resolve
from edgedeploy.runtime.opening import Place
from edgedeploy.vision.image import read_image
from edgedeploy.vision.source import Shot

# Of networks of several sizes a package has one.
ONE_SIZE = [name for name in all_demos() if isinstance(DEMOS.load(name).fit, str)]


@pytest.mark.parametrize("name", ONE_SIZE)
def test_a_package_alone_detects_what_its_demo_does(name: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
    program, board = Program.of(name), resolve("local")
    model = program.parts[0].model
    try:
        image = read_image(program.image())
        package = prepare(model, board, use=find_use(model)).package_path
        with program.opened(Place(board)) as session:
            wanted = session.infer(Shot(0, program.image(), image), repeat=0).outcome.detections
    except DownloadError as error:
        pytest.skip(str(error))
    assert Detector(package).detect(image) == wanted
    assert wanted
