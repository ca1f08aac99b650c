"""Demos with quantised networks see on this machine and on boards what they see in float."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import output_of
from support.plain_decoders import overlap_of
from support.virtual_boards import Start

from edgedeploy.quantisation.making import Settings, find_task, make

pytestmark = pytest.mark.slow

# Scores above are not lost by quantising; Yolo-Fastest loses three boxes of 0.53 and 0.54.
CERTAIN = 0.6

BOARDS = ["local", "rpi4", "rpi5", "rpi3", "rpi-armhf"]

Result = dict[str, Any]


@pytest.fixture
def see(board_command: Command, start: Start, shared_zoo: None) -> Callable[..., Any]:
    """What a demo sees on its own image: the objects that `--json` prints, by a network of its own or another one."""

    def run(demo: str, board: str = "local", model: Path | None = None) -> list[Result]:
        where = [] if board == "local" else ["--virtual"]
        if where:
            start(board)
        given = ["--model", model] if model else []
        seen = json.loads(output_of(board_command, "demo", demo, "--board", board, *where, *given, "--json"))
        assert seen["board"] == board
        return seen["results"]

    return run


@pytest.fixture(scope="module")
def quantised(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Networks of the zoo, quantised with all photographs of the development material."""

    @cache
    def file(model: str) -> Path:
        path = tmp_path_factory.mktemp("quantised") / f"{model}-int8.onnx"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
            make(find_task(model, shared / "images"), Settings(max_loss=1)).write(path)
        return path

    return file


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("demo", "model"), [("retinaface", "retinaface"), ("yolo-fastest", "yolo-fastest-1.1")])
def test_boxes_are_those_of_the_float_network(
    demo: str, model: str, board: str, see: Callable[..., list[Result]], quantised: Callable[[str], Path]
) -> None:
    wanted, found = see(demo), see(demo, board, quantised(model))
    certain = [each for each in wanted if each["score"] > CERTAIN]
    assert 2 <= len(certain) <= len(found) <= len(wanted)
    for each in certain:
        [same] = [other for other in found if overlap_of(each["box"], other["box"]) > 0.7]
        print(board, each["label"], each["score"], same["score"], overlap_of(each["box"], same["box"]))
        assert same["label"] == each["label"]
        assert same["score"] == pytest.approx(each["score"], abs=0.2)


@pytest.mark.parametrize("board", BOARDS)
def test_tensorflows_bytes_classify_as_its_floats(board: str, see: Callable[..., list[Result]], shared: Path) -> None:
    folder = shared / "models" / "mobilenet_v1"
    wanted = see("classification", model=folder / "mobilenet_v1_0.25_224_float.tflite")
    found = see("classification", board, folder / "mobilenet_v1_0.25_224_quant.tflite")
    print(
        board, [(each["label"], each["score"]) for each in wanted], [(each["label"], each["score"]) for each in found]
    )
    assert found[0]["label"] == wanted[0]["label"]
    assert found[0]["score"] == pytest.approx(wanted[0]["score"], abs=0.2)
