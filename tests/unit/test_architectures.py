"""The architectures against what is published of them; their weights are random, but not their layers."""

import runpy
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from conftest import ROOT, Command
from support.commands import json_of, notes_of, output_of, refused

from edgedeploy.errors import ModelError
from edgedeploy.frontends.architectures import build
from edgedeploy.frontends.format import Converted, ImportOptions
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.zoo.entry import MODELS, Architecture, ZooModel
from edgedeploy.zoo.source import find_source

every = pytest.mark.parametrize("name", get_args(Architecture))
quick = pytest.mark.quick("mobilenet_v3_small", "nanodet-m", "resnet18", "yolox-nano")
RANDOM = ImportOptions(weights="random")

# Learned values: google/automl, efficientdet_arch_test.py; Keras's summary of YOLO v3 (its weights file holds 52,608
# statistics beside these); GluonCV's tables of ResNet-18 v1 and ResNet-50 v2, less the 9,600 and 45,574 statistics that
# they count; torchvision's tables, of Inception v3 less the classifier that helps in training alone; for the others the
# rounded numbers of the README files of YOLOX and NanoDet, in millions.
# Then multiply-adds for one image, in thousand millions, from the same places, EfficientDet's paper and torchvision's.
# Those of Darknet, YOLOX and NanoDet count them as two.
PUBLISHED = {
    "efficientdet-d0": (3_880_067, 2.5),
    "efficientdet-d1": (6_625_898, 6.1),
    "efficientdet-d2": (8_097_039, 11.0),
    "resnet18": (11_699_112 - 9_600, 1.81),
    "resnet50": (25_595_060 - 45_574, 4.09),
    "yolov3": (61_949_149, 65.86 / 2),
    "yolox-nano": (0.91, 1.08 / 2),
    "yolox-tiny": (5.06, 6.45 / 2),
    "nanodet-m": (0.95, 0.72 / 2),
    "convnext_tiny": (28_589_128, 4.456),
    "inception_v3": (27_161_264 - 3_326_696, 5.713),
    "mobilenet_v2": (3_504_872, 0.301),
    "mobilenet_v3_large": (5_483_032, 0.217),
    "mobilenet_v3_small": (2_542_856, 0.057),
    "resnet34": (21_797_672, 3.664),
    "resnet101": (44_549_160, 7.801),
    "vgg16": (138_357_544, 15.47),
}


@cache
def built(name: Architecture) -> Converted:
    return build(name)


def entry(name: Architecture) -> ZooModel:
    [found] = [model for model in map(MODELS.load, MODELS.names()) if model.architecture == name]
    return found


@cache
def inferred(name: Architecture) -> onnx.ModelProto:
    """With the shapes of all values."""
    return onnx.shape_inference.infer_shapes(built(name).model, strict_mode=True)


def sizes(name: Architecture) -> dict[str, int]:
    return {weight.name: int(np.prod(weight.dims)) for weight in built(name).model.graph.initializer}


def learned(name: Architecture) -> int:
    """Values that training changes: filters, biases, normalisation's scale and shift, factors of fusions."""
    found, constants, nodes = set(), sizes(name), built(name).model.graph.node
    least = 2 if any(node.op_type == "Erf" for node in nodes) else 1  # GELU has single numbers of its own
    for node in nodes:
        if node.op_type in ("Conv", "Gemm"):
            found |= set(node.input[1:])
        elif node.op_type in ("BatchNormalization", "LayerNormalization"):
            found |= set(node.input[1:3])
        elif node.op_type in ("MatMul", "Add", "Mul"):
            found |= {each for each in node.input if constants.get(each, 0) >= least}
    return sum(constants[each] for each in found)


@quick
@every
def test_it_has_as_many_parameters_and_does_as_much_work_as_published(name: Architecture) -> None:
    count, multiply_adds = PUBLISHED[name]
    assert count == (learned(name) if isinstance(count, int) else round(learned(name) / 1e6, 2))
    graph = inferred(name).graph
    values = {value.name: value.type.tensor_type.shape.dim for value in (*graph.value_info, *graph.output)}
    shapes = {name: [each.dim_value for each in dimensions] for name, dimensions in values.items()}
    constants = sizes(name)
    # The places of a map that the weights of a layer are applied to.
    places = {"Conv": slice(2, None), "MatMul": slice(1, -1), "Gemm": slice(1, 1)}
    work = sum(
        np.prod(shapes[node.output[0]][places[node.op_type]]) * constants[node.input[1]]
        for node in graph.node
        if node.op_type in places
    )
    # What is published counts this and that beside convolutions, and is rounded.
    assert work / 1e9 == pytest.approx(multiply_adds, rel=0.06)


@pytest.mark.slow
def test_yolo_v3_has_as_many_layers_as_published() -> None:
    """Darknet's configuration has 75 convolutions and 23 shortcuts among its 107 layers."""
    counts = Counter(node.op_type for node in built("yolov3").model.graph.node)
    assert counts["Conv"] == 75
    # All but the last ones of the three heads are normalised.
    assert (counts["BatchNormalization"], counts["Add"]) == (72, 23)


@quick
@every
def test_its_model_is_valid_and_is_what_the_zoo_says(name: Architecture) -> None:
    onnx.checker.check_model(inferred(name), full_check=True)
    graph, stated = inferred(name).graph, entry(name)
    [image] = graph.input
    assert image.name == stated.input.name
    assert [each.dim_value for each in image.type.tensor_type.shape.dim] == stated.input.shape
    assert [output.name for output in graph.output] == stated.outputs


@quick
@every
def test_on_an_image_its_activations_neither_vanish_nor_overflow(name: Architecture) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(inferred(name))
    watched = [node.output[0] for node in model.graph.node if node.op_type in ("Conv", "BatchNormalization")]
    known = {value.name: value for value in model.graph.value_info}
    model.graph.output.extend(known[each] for each in watched if each in known)
    session = cpu_session(model.SerializeToString())
    spec = entry(name).input
    rows, columns = np.mgrid[0 : spec.size[0], 0 : spec.size[1]]
    image = 127 + 60 * np.sin(rows / 17) + 60 * np.sin(columns / 29) + np.random.default_rng(0).normal(0, 8, spec.size)
    channels = zip(spec.mean, spec.scale, strict=True)
    tensor = np.stack([(image - mean) * scale for mean, scale in channels])[None].astype(np.float32)
    for node, values in zip(session.get_outputs(), session.run(None, {spec.name: tensor}), strict=True):
        assert np.isfinite(values).all(), node.name
        assert 1e-3 < values.std() < 1e4, node.name


@pytest.mark.cold_cache
def test_a_build_is_the_same_at_every_time() -> None:
    first, second = (build("nanodet-m").model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_yolo_v3_states_its_heads() -> None:
    heads = built("yolov3").heads
    found = [(head.output, head.classes, head.kind) for head in heads]
    assert found == [(f"stride{stride}", 80, "yolo") for stride in (32, 16, 8)]
    # The paper's clusters, from the smallest to the largest.
    widths = [anchor for head in reversed(heads) for anchor in head.anchors]
    assert widths == [(10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198), (373, 326)]


def test_without_random_weights_the_zoo_has_none(command: Command) -> None:
    with pytest.raises(ModelError, match="the zoo has no weights of yolox-nano") as caught:
        find_source("yolox-nano")
    assert "--weights random" in caught.value.hints[0]
    err = refused(command, 5, "run", "yolov3-tiny-darknet-cfg")
    assert "the zoo has no weights of yolov3-tiny-darknet-cfg" in err


@pytest.mark.compiles
def test_weights_that_are_part_of_a_networks_file_are_taken_and_the_user_is_told(command: Command) -> None:
    assert json_of(command, "demo", "digits", "--weights", "random")["weights"] == "file"
    said = notes_of(command, "demo", "digits", "--weights", "random")
    assert "digits: its weights are taken, as they are part of its ONNX file" in said


def test_where_the_zoo_has_files_too_random_weights_need_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
    source = find_source("resnet18", options=RANDOM)
    assert (source.file, source.options.weights) == (MODELS.find("resnet18"), "random")
    assert not list(tmp_path.iterdir())


def test_the_entry_is_the_file_that_describes_it() -> None:
    source = find_source("yolox-nano", options=RANDOM)
    assert source.file == MODELS.find("yolox-nano")
    assert source.shapes == {"images": [1, 3, 416, 416]}


def test_the_zoo_says_that_it_is_an_architecture(command: Command) -> None:
    out = output_of(command, "models")
    assert any(row.split()[0] == "yolox-nano" and row.split()[-1] == "architecture" for row in out.splitlines()[1:])
    assert "nothing to download" in notes_of(command, "models", "pull", "yolox-nano")


def test_it_is_drawn_without_weights(command: Command) -> None:
    assert "layers" in output_of(command, "models", "show", "nanodet-m", "--graph", "net.dot")


def test_it_is_written_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["architectures.py", "nanodet-m", str(tmp_path / "net.onnx")])
    runpy.run_path(str(ROOT / "benchmarks" / "networks" / "architectures.py"), run_name="__main__")
    assert onnx.load(tmp_path / "net.onnx") == built("nanodet-m").model
