"""The entries that come with edgedeploy: complete, pinned, and as their sources state them."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.documents import read_document
from edgedeploy.errors import ConfigurationError, UnknownNameError
from edgedeploy.zoo.entry import ZooModel, label_sets, load_labels

ENTRIES = {path.stem: path for path in sorted((builtin_folder() / "models").glob("*.yaml"))}
MODELS = {name: read_document(path, ZooModel) for name, path in ENTRIES.items()}
FILES = [(name, file) for name, model in MODELS.items() for file in model.files]
SHARED = Path(os.environ.get("EDGEDEPLOY_SHARED") or Path(__file__).parents[3] / "shared")

NAMES = [
    "digits",
    "retinaface",
    "yolo-fastest-1.1",
    "landmark-106",
    "squeezenet_v1.1",
    "mobilenet_v1",
    "mobilenet_v1_0.25",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "pfld",
    "pfld-106-lite",
    "yunet",
    "yolo-lite-voc",
    "mnist",
    "resnet18-cifar10",
    "efficientnet-lite4",
    "ultraface-rfb-320",
    "tiny-yolov2",
    "tiny-yolov3",
    "yolov3",
]

needs_shared = pytest.mark.skipif(
    not (SHARED / "MANIFEST.tsv").is_file(), reason="the development material (EDGEDEPLOY_SHARED) is not here"
)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("name", NAMES)
def test_the_promised_networks_are_in_the_zoo(name: str) -> None:
    assert name in MODELS


@pytest.mark.parametrize("name", MODELS)
def test_every_label_set_named_exists(name: str) -> None:
    labels = MODELS[name].labels
    assert labels is None or load_labels(labels)


def test_every_download_is_pinned_to_a_commit() -> None:
    pinned = re.compile(r"https://(raw|media)\.githubusercontent\.com/(media/)?[^/]+/[^/]+/[0-9a-f]{40}/.+")
    assert [file.url for _, file in FILES if file.url and not pinned.fullmatch(file.url)] == []


def test_every_file_can_be_had_or_says_where_it_is_from() -> None:
    assert [(name, file.name) for name, file in FILES if not (file.has_download or file.bundled or file.note)] == []


def test_every_bundled_file_lies_beside_its_entry() -> None:
    assert [
        file.name for name, file in FILES if file.bundled and not (ENTRIES[name].parent / file.name).is_file()
    ] == []


def test_one_checksum_has_one_size() -> None:
    sizes: dict[str, set[int]] = {}
    for _, file in FILES:
        sizes.setdefault(file.sha256, set()).add(file.size)
    assert [digest for digest, found in sizes.items() if len(found) > 1] == []


def test_every_image_has_as_many_channels_as_its_input() -> None:
    for name, model in MODELS.items():
        if model.input.kind != "image":
            continue
        channels = model.input.shape[1 if model.input.layout == "NCHW" else 3]
        assert channels == (1 if model.input.colour == "GRAY" else 3), name


@needs_shared
def test_sizes_checksums_and_downloads_are_those_of_the_sources() -> None:
    stated = {}
    for row in table(SHARED / "MANIFEST.tsv"):
        url = f"https://raw.githubusercontent.com/{row['source_repo']}/{row['commit']}/{row['path_in_source']}"
        converted = row["path_in_source"].startswith("(")
        stated[row["sha256"]] = (int(row["bytes"]), None if converted else url)
    for row in table(SHARED / "reference" / "upstream_models.tsv"):
        url = f"https://media.githubusercontent.com/media/{row['repo']}/{row['commit']}/{row['path']}"
        stated[row["sha256"]] = (int(row["bytes"]), url)
    known = [file for _, file in FILES if not (file.bundled or file.wheel)]
    assert {file.name: (file.size, file.url) for file in known} == {file.name: stated[file.sha256] for file in known}


@needs_shared
def test_every_network_of_the_sources_has_an_entry() -> None:
    sources = [row["sha256"] for row in table(SHARED / "MANIFEST.tsv") if row["file"].startswith("models/")]
    sources += [row["sha256"] for row in table(SHARED / "reference" / "upstream_models.tsv")]
    assert set(sources) <= {file.sha256 for _, file in FILES}


@needs_shared
def test_inputs_and_outputs_are_those_of_the_onnx_files() -> None:
    import onnx

    paths = {path.name: path for path in (SHARED / "models").rglob("*.onnx")}
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


def test_a_label_set_of_the_working_folder_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "labels").mkdir(parents=True)
    (tmp_path / "models" / "labels" / "coco.txt").write_text("cat\ndog\n\n")
    monkeypatch.chdir(tmp_path)
    assert load_labels("coco") == ["cat", "dog"]


def test_a_label_file_can_be_given_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("cat\n")
    assert load_labels(str(tmp_path / "own.txt")) == ["cat"]


def test_an_unknown_label_set_is_answered_with_near_names() -> None:
    assert "coco" in label_sets()
    with pytest.raises(UnknownNameError, match=r"did you mean .*coco"):
        load_labels("cocco")


@pytest.mark.parametrize("content", ["", "cat\n\ndog\n"], ids=["empty", "a gap"])
def test_a_label_file_that_would_shift_classes_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "own.txt").write_text(content)
    with pytest.raises(ConfigurationError, match=r"own\.txt"):
        load_labels(str(tmp_path / "own.txt"))
