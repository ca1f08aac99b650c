"""`edgedeploy models show --graph`: layers with shapes and parameters, as Graphviz draws them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import Command
from support.networks import Graph

from edgedeploy.frontends.format import ImportOptions
from edgedeploy.zoo.drawing import grouped, layers
from edgedeploy.zoo.source import find_source

needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz (apt install graphviz)")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    graph = Graph()
    data = graph.input("data", [1, 3, 12, 10])
    first = graph.conv(data, 3, 8, 3, strides=[2, 2], pads=[1] * 4)
    return graph.save(tmp_path / "net.onnx", graph.node("Add", first, graph.node("Relu", first)))


def test_layers_have_shapes_parameters_and_what_sets_them_apart(net: Path) -> None:
    data, convolution, relu, add, output = layers(find_source(str(net)))
    assert data.shape == (1, 3, 12, 10)
    assert (convolution.operator, convolution.shape, convolution.parameters) == (
        "Conv",
        (1, 8, 6, 5),
        3 * 3 * 3 * 8 + 8,
    )
    assert convolution.details == "3x3, stride 2x2"
    assert relu.reads == convolution.writes
    assert set(add.reads) == {*convolution.writes, *relu.writes}
    assert output.reads == add.writes


def test_the_drawing_in_graphvizs_language_needs_no_graphviz(command: Command, net: Path) -> None:
    code, out, _ = command("models", "show", net, "--graph", "net.dot")
    assert (code, out) == (0, "net.dot: 5 layers\n")
    text = Path("net.dot").read_text()
    assert re.findall(r"(\d+) -> (\d+)", text) == [("0", "1"), ("1", "2"), ("1", "3"), ("2", "3"), ("3", "4")]
    assert "224 parameters" in text


def test_a_convolution_has_its_normalisation_and_activation_in_its_box(tmp_path: Path) -> None:
    graph = Graph()
    value = graph.conv(graph.input("data", [1, 3, 12, 10]), 3, 8, 3, pads=[1] * 4)
    shared = graph.node("Relu", value)
    path = graph.save(tmp_path / "net.onnx", graph.node("Add", shared, graph.node("Sigmoid", shared)))
    titles = [box.title for box in grouped(layers(find_source(str(path))))]
    assert titles == ["", "Conv + Relu 3x3", "Sigmoid", "Add", ""]


def test_silu_is_an_activation(tmp_path: Path) -> None:
    graph = Graph()
    value = graph.conv(graph.input("data", [1, 3, 12, 10]), 3, 8, 3, pads=[1] * 4)
    path = graph.save(tmp_path / "net.onnx", graph.node("Mul", value, graph.node("Sigmoid", value)))
    assert [box.title for box in grouped(layers(find_source(str(path))))] == ["", "Conv + SiLU 3x3", ""]


def test_a_block_that_follows_itself_has_one_box_whatever_its_shapes(tmp_path: Path) -> None:
    graph = Graph()
    value, channels = graph.input("data", [1, 3, 12, 10]), 3
    for width in (4, 5, 6):
        value = graph.node("Relu", graph.conv(value, channels, width, 3, pads=[1] * 4))
        value = graph.node("MaxPool", value, kernel_shape=[2, 2])
        channels = width
    found = layers(find_source(str(graph.save(tmp_path / "net.onnx", value))))
    first, block, last = grouped(found)
    assert (block.block, block.times) == (("Conv + Relu 3x3", "MaxPool 2x2"), 3)
    assert block.parameters == sum(layer.parameters for layer in found)
    assert (block.reads, block.writes, block.shape) == (first.writes, last.reads, last.shape)


def test_shapes_are_no_parameters(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("data", [1, 6])
    shape = graph.weight(np.array([2, 3], np.int64))
    path = graph.save(tmp_path / "net.onnx", graph.node("Reshape", data, shape))
    assert [layer.parameters for layer in layers(find_source(str(path)))] == [0, 0, 0]


@pytest.mark.quick("resnet18")
@needs_graphviz
@pytest.mark.parametrize("model", ["resnet18", "yolox-nano"])
def test_drawings_fit_a_page(command: Command, model: str) -> None:
    found = layers(find_source(model, options=ImportOptions(weights="random")))
    assert len(grouped(found)) < len(found) * 0.6
    assert command("models", "show", model, "--graph", "net.svg")[0] == 0
    width, height = map(int, re.findall(r'(?:width|height)="(\d+)pt"', Path("net.svg").read_text())[:2])
    assert width <= 595
    assert height <= 842  # A4 in points


@needs_graphviz
def test_images_are_drawn(command: Command) -> None:
    assert command("models", "show", "digits", "--graph", "net.svg")[0] == 0
    assert "parameters" in Path("net.svg").read_text()
    assert command("models", "show", "digits", "--graph", "net.png")[0] == 0
    image = cv2.imread("net.png")
    assert image is not None
    assert image.shape[0] > 300


@needs_graphviz
def test_names_may_hold_anything(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    name = 'quo"te\\ <b>&amp; [x] -> {y}; \n line'
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input(name, [1, 4])))
    assert command("models", "show", path, "--graph", "net.svg")[0] == 0
    assert "quo" in Path("net.svg").read_text()


def test_a_drawing_of_an_unknown_kind_is_refused(command: Command) -> None:
    code, _, err = command("models", "show", "digits", "--graph", "net.doc")
    assert code == 7
    assert ".svg" in err
    assert not Path("net.doc").exists()


def test_without_graphviz_the_message_says_what_to_install(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = command("models", "show", "digits", "--graph", "net.svg")
    assert code == 11
    assert "apt install graphviz" in err
