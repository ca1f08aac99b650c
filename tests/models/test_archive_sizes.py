"""Archives are hardly larger than the weights of their networks."""

from pathlib import Path

import pytest

from edgedeploy.building import build
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

pytestmark = [pytest.mark.compiles, pytest.mark.slow]

# Of ResNet-18 for ImageNet in float32, whose file in ONNX's model zoo has 46,820,737.
PARAMETERS = 11_689_512


@pytest.mark.parametrize("board", ["rpi4", "rpi5"])
def test_an_archive_has_at_most_1_1_times_the_bytes_of_the_weights(tmp_path: Path, board: str) -> None:
    source = find_source("resnet18", options=ImportOptions(weights="random"))
    built = build(source, resolve(board, {"precision": "single"}), tmp_path / "net.tar.gz", checks="none")
    assert built.path.stat().st_size <= 1.1 * 4 * PARAMETERS
    assert built.manifest.memory.constants_bytes > 3 * 4 * PARAMETERS  # what Winograd's convolutions make of them
