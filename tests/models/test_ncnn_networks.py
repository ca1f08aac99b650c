"""ncnn's published networks against ncnn itself, against their ONNX counterparts, and through a build."""

import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import numpy_helper
from support.agreement import assert_near, outputs_of, run_onnx
from support.commands import output_of
from support.demo_runs import pixels_for
from support.ncnn_files import INT8, plain, run_in_ncnn, tagged, write
from support.quantised_networks import constants

from edgedeploy.building import prepare
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.ncnn import FORMAT
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import find_source

NETWORKS = ["squeezenet_v1.1", "squeezenet_v1.1-ncnn", "retinaface-ncnn"]


@pytest.fixture(autouse=True)
def _from_the_shared_folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", str(shared / "models"))


def imported(name: str) -> onnx.ModelProto:
    source = find_source(name)
    return source.format.convert(source.files, source.shapes).model


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_have_the_names_that_the_zoo_states(name: str) -> None:
    assert [output.name for output in imported(name).graph.output] == MODELS.load(name).outputs


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_those_of_ncnn(name: str) -> None:
    inputs = pixels_for(name)
    found = run_onnx(imported(name), *inputs.values())
    wanted = run_in_ncnn(find_source(name).file, {key: array[0] for key, array in inputs.items()}, list(found))
    assert_near(found, {key: array[None] for key, array in wanted.items()}, 1e-4)


def test_squeezenet_is_its_onnx_counterpart_with_the_padding_that_ncnns_file_states(shared: Path) -> None:
    model = onnx.load(shared / "models/squeezenet_v1.1/squeezenet_v1.1_227.onnx")
    [last] = [node for node in model.graph.node if node.name == "conv10"]
    [pads] = [attribute for attribute in last.attribute if attribute.name == "pads"]
    assert list(pads.ints) == [0, 0, 0, 0]
    assert "conv10_relu_conv10 0=1000 1=1 4=1 " in find_source("squeezenet_v1.1").file.read_text()
    pads.ints[:] = [1, 1, 1, 1]
    inputs = pixels_for("squeezenet_v1.1")
    assert_near(run_onnx(imported("squeezenet_v1.1"), *inputs.values()), run_onnx(model, *inputs.values()), 1e-5)


def test_retinaface_is_its_onnx_counterpart_with_weights_cut_to_half_precision(shared: Path) -> None:
    model = onnx.load(shared / "models/retinaface/retinaface_mnet25_316x474.onnx")
    inputs = pixels_for("retinaface-ncnn")
    found = run_onnx(imported("retinaface-ncnn"), *inputs.values())
    cut_to_half_precision(model)
    assert_near(found, run_onnx(model, *inputs.values()), 2e-3)


def cut_to_half_precision(model: onnx.ModelProto) -> None:
    """Weights times the scale of batch normalisation after them, without the bits that float16 has not.

    So ncnn's tools made them: they do not round. What normalisation is left has the scale one.
    """
    weights = {weight.name: weight for weight in model.graph.initializer}
    readers = {node.input[0]: node for node in model.graph.node if node.op_type == "BatchNormalization"}

    def replace(name: str, values: np.ndarray) -> None:
        weights[name].CopyFrom(numpy_helper.from_array(values.astype(np.float32), name))

    for node in (node for node in model.graph.node if node.op_type == "Conv"):
        filters = numpy_helper.to_array(weights[node.input[1]]).astype(float)
        norm = readers.get(node.output[0])
        if norm is not None:
            scale, shift, mean, variance = (numpy_helper.to_array(weights[name]) for name in norm.input[1:])
            [epsilon] = [attribute.f for attribute in norm.attribute if attribute.name == "epsilon"]
            factor = scale / np.sqrt(variance.astype(float) + epsilon)
            filters *= factor[:, None, None, None]
            before = numpy_helper.to_array(weights[node.input[2]]) if len(node.input) > 2 else 0.0
            if len(node.input) > 2:
                replace(node.input[2], np.zeros_like(mean))
            for name, values in zip(
                norm.input[1:],
                (np.ones_like(mean), shift + (before - mean) * factor, 0 * mean, np.full_like(mean, 1 - epsilon)),
                strict=True,
            ):
                replace(name, values)
        half = filters.astype(np.float16)
        too_far = np.abs(half.astype(float)) > np.abs(filters)
        replace(node.input[1], np.where(too_far, np.nextafter(half, np.float16(0)), half))


def test_a_network_of_the_zoo_is_built_and_gives_ncnns_outputs() -> None:
    inputs = pixels_for("squeezenet_v1.1-ncnn")
    prepared = prepare("squeezenet_v1.1-ncnn", resolve("local"))
    found = prepared.open(1).run(inputs)
    wanted = run_in_ncnn(prepared.source.file, {"data": inputs["data"][0]}, ["prob"])
    assert_near(found, {"prob": wanted["prob"][None]}, 1e-4)


def test_an_open_input_takes_the_demos_size(command: Command, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", str(shared / "images"))
    file = shared / "models/retinaface/mnet.25-opt.param"
    out = output_of(command, "demo", "retinaface", "--model", file)
    assert "detected face num: 4" in out
    assert len(re.findall(r"^BOX (1\.00|0\.9[89]):", out, re.MULTILINE)) == 4


def _blob(layer: Sequence[str]) -> str:
    return layer[4].split("_splitncnn_")[0]


def quantised(source: Path, folder: Path, images: Sequence[np.ndarray]) -> Path:
    """SqueezeNet with convolutions of 8 bits, as ncnn2int8 makes them, by the largest values of some images."""
    model = FORMAT.convert(FORMAT.files(source), {}).model
    lines = source.read_text().splitlines()[2:]
    layers = [line.split() for line in lines]
    # Copies have no value of their own in the model.
    read = sorted({_blob(words) for words in layers if words[0] == "Convolution"})
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in read if name != "data")
    largest = {"data": max(np.abs(image).max() for image in images)}
    for image in images:
        for name, array in run_onnx(model, image).items():
            largest[name] = max(largest.get(name, 0), np.abs(array).max())
    held, weights = constants(model), b""
    kernels = ([held[name] for name in node.input[1:]] for node in model.graph.node if node.op_type == "Conv")
    for number, words in enumerate(layers):
        if words[0] != "Convolution":
            continue
        values, bias = next(kernels)
        values = values.reshape(len(bias), -1)
        scales = 127 / np.abs(values).max(axis=1)
        weights += tagged(np.rint(values * scales[:, None]), INT8) + plain(bias, scales, [127 / largest[_blob(words)]])
        lines[number] += " 8=1"
    return write(folder, lines, weights)


def test_squeezenet_of_8_bits_agrees_with_ncnn(shared: Path, tmp_path: Path) -> None:
    pictures = [cv2.imread(str(path)) for path in sorted((shared / "images" / "imagenet").rglob("*.[jJ]*"))[:16]]
    images = [
        (cv2.resize(each, (227, 227)).astype(np.float32) - np.array([104, 117, 123], np.float32)).transpose(2, 0, 1)
        for each in pictures
    ]
    source = shared / "models" / "squeezenet_v1.1" / "squeezenet_v1.1.param"
    path = quantised(source, tmp_path, [each[None] for each in images])
    network = FORMAT.read(FORMAT.files(path), {})
    assert network.quantised
    compiled = compile_network(network, load_board("local"))
    same, same_as_float = 0, 0
    for image in images:
        [found] = outputs_of(compiled, {"data": image[None]})
        [wanted] = run_in_ncnn(path, {"data": image}, ["prob"]).values()
        [in_float] = run_in_ncnn(source, {"data": image}, ["prob"]).values()
        assert np.abs(found.ravel() - wanted.ravel()).max() < 0.05
        same += int(found.argmax() == wanted.argmax())
        same_as_float += int(found.argmax() == in_float.argmax())
    assert same >= len(images) - 1
    assert same_as_float >= len(images) - 3
