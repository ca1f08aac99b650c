"""The entries that come with edgedeploy: complete, pinned, and as their sources state them."""

import csv
import re
import shutil
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import onnx
import pytest
from conftest import Command
from support import quantised_networks
from support.commands import put, refusal
from support.networks import Graph, begun

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.documents import read_document
from edgedeploy.base.files import sha256_of
from edgedeploy.errors import ConfigurationError, UnknownNameError
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.zoo.drawing import grouped, layers
from edgedeploy.zoo.entry import ZooModel, label_sets, load_labels
from edgedeploy.zoo.source import find_source

ENTRIES = {path.stem: path for path in sorted((builtin_folder() / "models").glob("*.yaml"))}
MODELS = {name: read_document(path, ZooModel) for name, path in ENTRIES.items()}
FILES = [(name, file) for name, model in MODELS.items() for file in model.files]

NAMES = """
digits retinaface yolo-fastest-1.1 landmark-106 squeezenet_v1.1 mobilenet_v1 mobilenet_v1_0.25 mobilenet_v2 resnet18
resnet50 pfld pfld-106-lite yunet yolo-lite-voc mnist resnet18-cifar10 efficientnet-lite4 ultraface-rfb-320 tiny-yolov2
tiny-yolov3 yolov3
"""


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_promised_networks_are_in_the_zoo() -> None:
    assert set(NAMES.split()) <= MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_every_label_set_named_exists(name: str) -> None:
    labels = MODELS[name].labels
    assert labels is None or load_labels(labels)


def test_every_file_is_pinned_to_a_commit_lies_beside_its_entry_or_says_where_it_is_from() -> None:
    pinned = re.compile(r"https://(raw|media)\.githubusercontent\.com/(media/)?[^/]+/[^/]+/[0-9a-f]{40}/.+")
    assert [file.url for _, file in FILES if file.url and not pinned.fullmatch(file.url)] == []
    assert [file.name for key, file in FILES if file.bundled and not (ENTRIES[key].parent / file.name).is_file()] == []
    assert [(name, file.name) for name, file in FILES if not (file.has_download or file.bundled or file.note)] == []


def test_one_checksum_has_one_size() -> None:
    sizes = {(file.sha256, file.size) for _, file in FILES}
    assert len(sizes) == len({digest for digest, _ in sizes})


def test_every_image_has_as_many_channels_as_its_input() -> None:
    for name, model in MODELS.items():
        if model.input.kind != "image":
            continue
        channels = model.input.shape[1 if model.input.layout == "NCHW" else 3]
        assert channels == (1 if model.input.colour == "GRAY" else 3), name


def test_files_are_those_of_the_sources_with_their_sizes_checksums_and_downloads(shared: Path) -> None:
    stated = {}
    networks = set()
    for row in table(shared / "MANIFEST.tsv"):
        url = f"https://raw.githubusercontent.com/{row['source_repo']}/{row['commit']}/{row['path_in_source']}"
        converted = row["path_in_source"].startswith("(")
        stated[row["sha256"]] = (int(row["bytes"]), None if converted else url)
        if row["file"].startswith("models/"):
            networks.add(row["sha256"])
    for row in table(shared / "reference" / "upstream_models.tsv"):
        url = f"https://media.githubusercontent.com/media/{row['repo']}/{row['commit']}/{row['path']}"
        stated[row["sha256"]] = (int(row["bytes"]), url)
        networks.add(row["sha256"])
    known = [file for _, file in FILES if not (file.bundled or file.wheel)]
    assert {file.name: (file.size, file.url) for file in known} == {file.name: stated[file.sha256] for file in known}
    assert networks <= {file.sha256 for _, file in FILES}, "every network has an entry"


def test_inputs_and_outputs_are_those_of_the_onnx_files(shared: Path) -> None:
    paths = {path.name: path for path in (shared / "models").rglob("*.onnx")}
    for name, model in MODELS.items():
        path = paths.get(model.files[0].name) if model.files else None
        if path is None:
            continue
        graph = onnx.load(path, load_external_data=False).graph
        weights = {weight.name for weight in graph.initializer}
        (data,) = [value for value in graph.input if value.name not in weights]
        assert data.name == model.input.name, name
        for stated, axis in zip(model.input.shape, data.type.tensor_type.shape.dim, strict=True):
            assert axis.dim_value in (0, stated), name
        assert [value.name for value in graph.output] == model.outputs, name


@pytest.mark.parametrize(
    ("name", "count", "first", "last"),
    [
        ("coco", 80, "person", "toothbrush"),
        ("voc", 20, "aeroplane", "tvmonitor"),
        ("imagenet", 1000, "tench, Tinca tinca", "toilet tissue, toilet paper, bathroom tissue"),
        ("imagenet-1001", 1001, "background", "toilet tissue, toilet paper, bathroom tissue"),
        ("digits", 10, "0", "9"),
        ("cifar10", 10, "airplane", "truck"),
    ],
)
def test_label_sets_have_all_names_in_order(name: str, count: int, first: str, last: str) -> None:
    labels = load_labels(name)
    assert (len(labels), labels[0], labels[-1]) == (count, first, last)


def test_labels_of_the_working_folder_go_first_or_are_given_by_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "models" / "labels" / "coco.txt", "cat\ndog\n\n")
    monkeypatch.chdir(tmp_path)
    assert load_labels("coco") == load_labels(str(path)) == ["cat", "dog"]


def test_an_unknown_label_set_is_answered_with_near_names() -> None:
    assert "coco" in label_sets()
    with pytest.raises(UnknownNameError, match=r"did you mean .*coco"):
        load_labels("cocco")


@pytest.mark.parametrize("content", ["", "cat\n\ndog\n"], ids=["empty", "a gap"])
def test_a_label_file_that_would_shift_classes_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "own.txt").write_text(content)
    with pytest.raises(ConfigurationError, match=r"own\.txt"):
        load_labels(str(tmp_path / "own.txt"))


# `edgedeploy models show --graph`: layers with shapes and parameters, as Graphviz draws them.

needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz (apt install graphviz)")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    graph = Graph()
    first = graph.conv(graph.input("data", [1, 3, 12, 10]), 3, 8, 3, strides=[2, 2], pads=[1] * 4)
    return graph.save(tmp_path / "net.onnx", graph.node("Add", first, graph.node("Relu", first)))


def titles(path: Path) -> list[str]:
    return [box.title for box in grouped(layers(find_source(str(path))))]


def test_layers_have_shapes_parameters_and_what_sets_them_apart(net: Path) -> None:
    data, conv, relu, add, output = layers(find_source(str(net)))
    assert data.shape == (1, 3, 12, 10)
    assert (conv.operator, conv.shape, conv.parameters) == ("Conv", (1, 8, 6, 5), 3 * 3 * 3 * 8 + 8)
    assert conv.details == "3x3, stride 2x2"
    assert relu.reads == conv.writes
    assert set(add.reads) == {*conv.writes, *relu.writes}
    assert output.reads == add.writes


def test_the_drawing_in_graphvizs_language_needs_no_graphviz(command: Command, net: Path) -> None:
    code, out, _ = command("models", "show", net, "--graph", "net.dot")
    assert (code, out) == (0, "net.dot: 5 layers\n")
    text = Path("net.dot").read_text()
    assert re.findall(r"(\d+) -> (\d+)", text) == [("0", "1"), ("1", "2"), ("1", "3"), ("2", "3"), ("3", "4")]
    assert "224 parameters" in text


def test_a_convolution_has_its_activation_in_its_box(tmp_path: Path) -> None:
    graph = Graph()
    value = graph.conv(graph.input("data", [1, 3, 12, 10]), 3, 8, 3, pads=[1] * 4)
    silu = graph.save(tmp_path / "silu.onnx", graph.node("Mul", value, graph.node("Sigmoid", value)))
    assert titles(silu) == ["", "Conv + SiLU 3x3", ""]
    shared = graph.node("Relu", value)
    relu = graph.save(tmp_path / "relu.onnx", graph.node("Add", shared, graph.node("Sigmoid", shared)))
    assert titles(relu) == ["", "Conv + Relu 3x3", "Sigmoid", "Add", ""]


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
    graph, data = begun(1, 6)
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
def test_images_are_drawn_whatever_names_hold(command: Command, tmp_path: Path) -> None:
    assert command("models", "show", "digits", "--graph", "net.svg")[0] == 0
    assert "parameters" in Path("net.svg").read_text()
    assert command("models", "show", "digits", "--graph", "net.png")[0] == 0
    assert cv2.imread("net.png").shape[0] > 300
    graph = Graph()
    name = 'quo"te\\ <b>&amp; [x] -> {y}; \n line'
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input(name, [1, 4])))
    assert command("models", "show", path, "--graph", "net.svg")[0] == 0
    assert "quo" in Path("net.svg").read_text()


def test_no_drawing_is_made_of_an_unknown_kind_or_without_graphviz(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ".svg" in refusal(command, 7, "models", "show", "digits", "--graph", "net.doc")
    assert not Path("net.doc").exists()
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt install graphviz" in refusal(command, 11, "models", "show", "digits", "--graph", "net.svg")


# The bundled network: what its entry says of it is true.

FOLDER = builtin_folder() / "models"
ENTRY = MODELS["digits"]
MODEL = FOLDER / ENTRY.files[0].name


@pytest.fixture(scope="module")
def training() -> ModuleType:
    return quantised_networks.training()


def test_the_entry_describes_the_file_that_is_there() -> None:
    assert ENTRY.files[0].bundled
    assert (ENTRY.files[0].size, ENTRY.files[0].sha256) == (MODEL.stat().st_size, sha256_of(MODEL))
    assert ENTRY.files[0].size < 100_000


def test_the_network_is_as_accurate_on_a_fifth_of_each_class_as_the_entry_says(training: ModuleType) -> None:
    stated = re.search(r"([\d.]+)% right on (\d+) held-out", ENTRY.description)
    images, classes = training.load()
    test = training.held_out(classes)
    share = training.accuracy(MODEL, images[test], classes[test])
    # One digit may fall to the other side by the arithmetic of another processor.
    assert abs(share - float(stated[1]) / 100) < 1.5 / int(stated[2])
    assert int(stated[2]) == test.sum()
    assert share >= 0.97
    for digit in range(10):
        assert 0.19 < test[classes == digit].mean() <= 0.2


def test_the_gradients_are_those_of_the_loss(training: ModuleType) -> None:
    random = np.random.default_rng(1)
    parameters = training.initial(random)
    x = random.random((3, 1, training.SIZE, training.SIZE)).astype(np.float32)
    classes = np.array([1, 5, 9])

    def loss() -> float:
        y = x.astype(np.float64)
        for name, _, filters, stride in training.CONVOLUTIONS:
            rows = training.patches(y, stride)
            y = rows @ parameters[f"{name}.weight"].reshape(filters, -1).T.astype(np.float64)
            y = np.maximum(y + parameters[f"{name}.bias"], 0).transpose(0, 3, 1, 2)
        logits = y.reshape(3, -1) @ parameters["dense.weight"].T.astype(np.float64) + parameters["dense.bias"]
        return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(3), classes]))

    slopes = training.gradients(parameters, x, classes)
    for name in parameters:
        index = np.unravel_index(np.abs(slopes[name]).argmax(), slopes[name].shape)
        kept = parameters[name][index]
        parameters[name][index] = kept + 1e-3
        above = loss()
        parameters[name][index] = kept - 1e-3
        below = loss()
        parameters[name][index] = kept
        # The loss has kinks, where a ReLU opens within the step.
        assert slopes[name][index] == pytest.approx((above - below) / 2e-3, rel=0.05), name


def test_the_bundled_image_is_recognised() -> None:
    image = cv2.imread(str(FOLDER / "digit.png"), cv2.IMREAD_GRAYSCALE)
    assert min(image.shape) > max(ENTRY.input.size)
    height, width = ENTRY.input.size
    data = (cv2.resize(image, (width, height)) - ENTRY.input.mean[0]) * ENTRY.input.scale[0]
    (prob,) = cpu_session(MODEL).run(ENTRY.outputs, {ENTRY.input.name: data.astype(np.float32)[None, None]})
    assert prob.argmax() == 3
    assert prob.max() > 0.9


def test_the_bundled_image_is_the_one_that_the_script_draws(training: ModuleType) -> None:
    image = cv2.imread(str(FOLDER / "digit.png"), cv2.IMREAD_GRAYSCALE)
    assert np.abs(image.astype(int) - training.draw_three()).max() <= 8
