"""The agent's demo beside the host's: the same log, line for line, on the images of all demos that it serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agents import call, unpack
from support.demo_logs import assert_alike, masked

from edgedeploy.building import prepare
from edgedeploy.demo.program import Program
from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import DownloadError
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.vision.source import Shot

# Of one network, which is built for one size.
ALONE = [name for name in all_demos() if isinstance(DEMOS.load(name).fit, str) and not DEMOS.load(name).then]


def test_there_are_demos_that_the_agent_serves() -> None:
    assert {"classification", "landmark", "retinaface", "ultraface", "yolo-fastest", "yunet"} <= set(ALONE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_the_agents_log_is_the_hosts(
    name: str, agent: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
    program, board = Program.of(name), resolve("local")
    model = program.parts[0].model
    try:
        demo_image = program.image()
        package = unpack(prepare(model, board, use=find_use(model, name)).package_path, tmp_path / "package")
    except DownloadError as error:
        pytest.skip(str(error))
    with program.opened(Place(board)) as session:
        for image in [demo_image, *sorted((shared / "images").glob("*.jpg"))]:
            wanted = session.infer(Shot(0, image, read_image(image)), repeat=1).log()
            done = call(agent, "demo", package, "--image", image)
            assert done.returncode == 0, done.stderr.decode()
            assert_alike(masked(done.stdout.decode()).rstrip("\n"), masked("\n".join(wanted)))
