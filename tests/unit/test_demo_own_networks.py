"""Demos whose network is the user's: what its file says travels through the package to the results."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper, numpy_helper
from support.commands import refused

from edgedeploy.demo.spec import all_demos

YOURS = ["depth", "segmentation", "yolo"]


def save(
    path: Path, nodes: list[onnx.NodeProto], output: list[int | str], weights: dict[str, np.ndarray], **said: Any
) -> Path:
    """A network of nodes from `images` to `output0`, of 64 x 64 pixels unless its sides are open."""
    sides: list[int | str] = ["height", "width"] if said.pop("open_sides", False) else [64, 64]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, *sides])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, {key: str(value) for key, value in said.items()})
    onnx.save(model, path)
    return path


def tells_colours(path: Path, **said: Any) -> Path:
    """A detector of one place, (32, 32) with sides of 16 and 8, whose classes are red, green and blue: the means."""
    boxes = np.zeros((1, 4, 84), np.float32)
    boxes[0, :, 5] = [32, 32, 16, 8]
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["means"]),
        helper.make_node("Reshape", ["means", "flat"], ["column"]),
        helper.make_node("Mul", ["column", "place"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["output0"], axis=1),
    ]
    weights = {"flat": np.array([1, 3, 1]), "place": (boxes.any(axis=1, keepdims=True)).astype(np.float32)}
    names = {0: "red", 1: "green", 2: "blue"}
    weights["boxes"] = boxes
    return save(path, nodes, [1, 7, 84], weights, **{"task": "detect", "names": names, "stride": 32, **said})


def suppresses_itself(path: Path) -> Path:
    """As `tells_colours`, in rows of corners, score and class that the network itself has picked."""
    rows = np.zeros((3, 6), np.float32)
    rows[:, :4], rows[:, 5] = [24, 28, 40, 36], [0, 1, 2]
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["means"]),
        helper.make_node("Reshape", ["means", "column"], ["scores"]),
        helper.make_node("Mul", ["scores", "there"], ["scores_there"]),
        helper.make_node("Add", ["rows", "scores_there"], ["scored"]),
        helper.make_node("Reshape", ["means", "flat"], ["flat_means"]),
        helper.make_node("Greater", ["flat_means", "least"], ["high"]),
        helper.make_node("NonZero", ["high"], ["places"]),
        helper.make_node("Transpose", ["places"], ["indices"], perm=[1, 0]),
        helper.make_node("GatherND", ["scored", "indices"], ["found"]),
        helper.make_node("ScatterND", ["nothing", "indices", "found"], ["padded"]),
        helper.make_node("Reshape", ["padded", "batch"], ["output0"]),
    ]
    weights = {
        "column": np.array([3, 1]),
        "flat": np.array([3]),
        "batch": np.array([1, 3, 6]),
        "rows": rows,
        "there": np.float32([[0, 0, 0, 0, 1, 0]]),
        "least": np.float32(0.1),
        "nothing": np.zeros((3, 6), np.float32),
    }
    return save(path, nodes, [1, 3, 6], weights, task="detect", names={0: "red", 1: "green", 2: "blue"}, stride=32)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """128 x 128 pixels of nearly pure green."""
    image = np.zeros((128, 128, 3), np.uint8)
    image[...] = (0, 204, 51)
    cv2.imwrite(str(tmp_path / "green.png"), image)
    return tmp_path / "green.png"


@pytest.fixture
def demo(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command("demo", *arguments)


@pytest.mark.parametrize("name", YOURS)
def test_without_a_network_they_say_what_they_need(demo: Command, name: str) -> None:
    for more in ([], ["--weights", "random"]):
        code, out, err = demo(name, *more)
        assert (code, out) == (5, "")
        assert "stands for a network of your own" in err
        assert "--model FILE" in err
    assert "AGPL" in demo("yolo")[2]
    assert "yolo export model=yolo11n.pt format=onnx" in demo("yolo")[2]


def test_they_are_left_out_where_all_demos_are_shown() -> None:
    assert not set(YOURS) & {*all_demos(), *all_demos("random")}


def test_building_what_stands_for_them_is_refused(command: Command) -> None:
    assert "stands for a network of your own" in refused(command, 5, "build", "ultralytics", "--weights", "random")


def test_the_zoo_lists_them_as_yours(command: Command) -> None:
    entries = {each["name"]: each for each in json.loads(command("models", "--json")[1])}
    assert entries["ultralytics"]["state"] == "yours"


@pytest.mark.compiles
@pytest.mark.parametrize("open_sides", [False, True])
def test_classes_task_and_size_are_the_files_own(
    demo: Command, command: Command, tmp_path: Path, picture: Path, open_sides: bool
) -> None:
    model = tells_colours(tmp_path / "net.onnx", imgsz=[64, 64], open_sides=open_sides)
    code, out, err = demo("yolo", "--model", str(model), "--image", str(picture), "--board", "local", "--json")
    assert code == 0, err
    [found] = json.loads(out)["results"]
    assert (found["label"], found["class_id"]) == ("green", 1)
    assert found["score"] == pytest.approx(0.8, abs=1e-5)
    # The image is twice as large as the input.
    assert found["box"] == pytest.approx([48, 56, 80, 72])
    code, out, _ = demo(
        "yolo", "--model", str(model), "--image", str(picture), "--board", "local", "--save", "seen.png"
    )
    assert code == 0
    assert out.splitlines()[-2:] == ["detection num: 1", " 1:  80%, [  48,   56,   80,   72], green"]
    assert (cv2.imread("seen.png") != cv2.imread(str(picture)).repeat(3, axis=0).repeat(3, axis=1)).any()
    if not open_sides:
        assert command("build", str(model), "--board", "local")[0] == 0
        shown = json.loads(command("package", "show", "dist/local/net.tar.gz", "--json")[1])
        assert shown["metadata"]["names"] == "{0: 'red', 1: 'green', 2: 'blue'}"
        assert "task  detect" in command("package", "show", "dist/local/net.tar.gz")[1]


@pytest.mark.compiles
def test_networks_that_suppress_boxes_themselves(demo: Command, tmp_path: Path, picture: Path) -> None:
    network = suppresses_itself(tmp_path / "net.onnx")
    code, out, err = demo("yolo", "--model", str(network), "--image", str(picture), "--json")
    assert code == 0, err
    [box] = json.loads(out)["results"]
    assert (box["label"], box["box"]) == ("green", [48, 56, 80, 72])


@pytest.mark.compiles
def test_metadata_that_makes_no_sense_is_a_typed_error(demo: Command, tmp_path: Path, picture: Path) -> None:
    model = tells_colours(tmp_path / "net.onnx", names="{0: __import__('os')}")
    code, out, err = demo("yolo", "--model", str(model), "--image", str(picture), "--board", "local")
    assert (code, out) == (5, "")
    assert "the entry 'names' of the network's metadata cannot be read" in err


@pytest.mark.compiles
def test_segmentation_and_depth_of_a_network_that_returns_its_input(
    demo: Command, tmp_path: Path, picture: Path
) -> None:
    weights = {"factor": np.array([2], np.float32)}
    whole = save(
        tmp_path / "whole.onnx", [helper.make_node("Mul", ["images", "factor"], ["output0"])], [1, 3, 64, 64], weights
    )
    arguments = ["--image", str(picture), "--board", "local", "--json"]
    code, out, err = demo("segmentation", "--model", str(whole), *arguments)
    assert code == 0, err
    [found] = json.loads(out)["results"]
    assert (found["label"], found["class_id"]) == ("aeroplane", 1)  # VOC's class 1: green is the largest
    assert found["mask"] == {"size": [128, 128], "counts": [0, 128 * 128]}
    weights["axis"] = np.array([1])
    mean = helper.make_node("ReduceMean", ["images"], ["output0"], axes=[1])
    one = save(tmp_path / "one.onnx", [mean], [1, 1, 64, 64], {})
    code, out, err = demo("depth", "--model", str(one), *arguments, "--save", "depth.png")
    assert code == 0, err
    [found] = json.loads(out)["results"]
    expected = np.mean([(51 - 123.675) / 58.395, (204 - 116.28) / 57.12, (0 - 103.53) / 57.375])
    assert found["surface"] == pytest.approx(dict.fromkeys(("minimum", "median", "maximum"), expected), abs=1e-5)
    assert cv2.imread("depth.png").shape == (384, 384, 3)  # enlarged by three
