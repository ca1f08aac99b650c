"""What networks are calibrated with: images at any depth, videos, arrays; and what is refused."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.commands import Notebook
from support.recordings import write_film

from edgedeploy.demo.spec import DEMOS
from edgedeploy.demo.usage import ImageUse, Part, find_use
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.quantisation.evaluation import Truth, find_evaluation, mean_average_precision, of_all_scores
from edgedeploy.quantisation.samples import Samples, evenly, find_samples
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Box, Detection, matches, overlap, same_results

INPUT = TensorSpec(name="data", shape=[1, 4], dtype="float32")


def first_pixel(image: np.ndarray) -> tuple[Tensors, Frame]:
    height, width = image.shape[:2]
    return {"data": image[:1, :1].astype(np.float32)}, Frame((height, width), (1, 1), (1, 1))


def write_image(path: Path, grey: int = 100, size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((*size, 3), grey, np.uint8))
    return path


def found(path: Path, most: int = 100, **options: object) -> Samples:
    return find_samples(path, [INPUT], first_pixel, most, **options)  # type: ignore[arg-type]


def levels(samples: Samples) -> list[int]:
    return [round(float(sample.tensors["data"].ravel()[0])) for sample in samples]


def test_images_are_found_at_any_depth_but_not_in_hidden_folders(tmp_path: Path) -> None:
    for index, name in enumerate(["b.png", "a/x.png", "a/deep/er/y.bmp", ".hidden/z.png", ".z.png"]):
        write_image(tmp_path / name, index)
    (tmp_path / "notes.txt").write_text("no image")
    samples = found(tmp_path)
    assert levels(samples) == [2, 1, 0]
    assert levels(samples) == [2, 1, 0], "they can be gone through again"
    assert len(samples) == 3
    assert levels(found(tmp_path / "b.png")) == [0]


def test_of_many_images_some_are_taken_evenly(tmp_path: Path) -> None:
    for index in range(20):
        write_image(tmp_path / f"{index:02}.png", index)
    notes = Notebook()
    samples = found(tmp_path, 5, progress=notes)
    assert levels(samples) == [0, 4, 8, 12, 16]
    assert levels(samples.some(2)) == [0, 8]
    assert "5 of 20" in notes.lines[0]


@pytest.mark.parametrize(("count", "most"), [(0, 3), (1, 3), (3, 3), (4, 3), (1000, 7)])
def test_what_is_chosen_evenly_is_spread_and_no_more_than_asked(count: int, most: int) -> None:
    chosen = evenly(range(count), most)
    assert len(chosen) == min(count, most)
    gaps = np.diff(chosen)
    assert not gaps.size or gaps.max() - gaps.min() <= 1
    assert sorted(set(chosen)) == chosen


def test_damaged_images_are_passed_over_with_a_note(tmp_path: Path) -> None:
    write_image(tmp_path / "good.png", 7)
    content = write_image(tmp_path / "cut.png", size=(64, 64)).read_bytes()
    (tmp_path / "cut.png").write_bytes(content[:40])
    notes = Notebook()
    assert levels(found(tmp_path, progress=notes)) == [7]
    assert "passed over" in notes.lines[0]
    (tmp_path / "good.png").unlink()
    with pytest.raises(InputError, match="can be read"):
        found(tmp_path)


def test_a_video_gives_some_of_its_images(tmp_path: Path) -> None:
    film = write_film(tmp_path / "film.avi", [np.full((32, 32, 3), 10 * index, np.uint8) for index in range(20)])
    samples = found(film, 4)
    assert len(samples) == 4
    np.testing.assert_allclose(levels(samples), [0, 50, 100, 150], atol=4)
    np.testing.assert_allclose(levels(samples.some(2)), [0, 100], atol=4)


def test_arrays_are_taken_before_images_and_need_no_demo(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    np.savez(tmp_path / "b.npz", data=np.full((1, 4), 5, np.float32))
    np.save(tmp_path / "c.npy", np.full((1, 4), 6, np.float32))
    samples = find_samples(tmp_path, [INPUT], None, 10)
    assert levels(samples) == [5, 6]
    assert [sample.frame for sample in samples] == [None, None]


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"datum": np.zeros((1, 4), np.float32)}, "no array 'data'"),
        ({"data": np.zeros((2, 4), np.float32)}, "2x4"),
        ({"data": np.zeros((1, 4), np.float64)}, "float64"),
        ({"data": np.zeros((1, 4), np.float32), "more": np.zeros(1)}, "'more' that is not an input"),
        ({"data": np.array([[1, 2, np.nan, 3]], np.float32)}, "infinite or no numbers"),
        ({"data": np.array([[1, 2, -np.inf, 3]], np.float32)}, "infinite or no numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], why: str) -> None:
    np.savez(tmp_path / "in.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"in\.npz") as raised:
        list(find_samples(tmp_path, [INPUT], None, 10))
    assert why in str(raised.value)


@pytest.mark.parametrize("name", ["in.npz", "in.npy"])
@pytest.mark.parametrize("content", [b"no numbers", b"PK\3\4 but no archive", b""])
def test_damaged_arrays_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        list(find_samples(tmp_path, [INPUT], None, 10))


def test_several_arrays_are_no_npy_file(tmp_path: Path) -> None:
    with (tmp_path / "in.npy").open("wb") as stream:
        np.savez(stream, data=np.zeros((1, 4), np.float32))
    with pytest.raises(InputError, match=r"not a \.npy file"):
        list(find_samples(tmp_path, [INPUT], None, 10))


def test_arrays_of_several_inputs_are_all_needed(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", data=np.zeros((1, 4), np.float32), state=np.zeros(2, np.float32))
    [sample] = find_samples(tmp_path, [INPUT, TensorSpec(name="state", shape=[2], dtype="float32")], None, 10)
    assert sample.tensors.keys() == {"data", "state"}


@pytest.mark.parametrize(
    ("name", "content", "given"),
    [("", "", ""), ("song.wav", "RIFF", ""), ("", "", "none"), ("a.txt", "text", "a.txt")],
    ids=["empty", "text_only", "missing", "text_file"],
)
def test_a_folder_or_file_without_samples_is_refused(tmp_path: Path, name: str, content: str, given: str) -> None:
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as raised:
        found(tmp_path / given)
    assert raised.value.exit_code == 7
    assert raised.value.hints


def test_images_need_to_be_known_how_to_become_inputs(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    with pytest.raises(InputError, match="how images of") as raised:
        find_samples(tmp_path, [INPUT], None, 10)
    assert any("--demo" in hint for hint in raised.value.hints)
    with pytest.raises(InputError) as raised:
        find_samples(tmp_path, [INPUT], None, 10, network=Path("nets/flowers.onnx"))
    assert "`edgedeploy models import nets/flowers.onnx --name flowers`" in raised.value.hints[0]


def test_the_identity_is_that_of_the_contents(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", 1)
    before = found(tmp_path).identity()
    assert found(tmp_path).identity() == before
    write_image(tmp_path / "a.png", 2)
    assert found(tmp_path).identity() != before


# Accuracy on labelled images, and agreement of boxes.

LEFT, RIGHT = (0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 10.0)


def box(where: Box, score: float = 0.9, class_id: int = 0) -> Detection:
    return Detection(label=str(class_id), class_id=class_id, score=score, box=where)


def usage(demo: str, model: str | None = None) -> ImageUse:
    part = Part.of(DEMOS.load(demo), model)
    tensor = TensorSpec(name=part.entry.input.name, shape=part.entry.input.shape, dtype="float32")
    return ImageUse(**vars(part), tensor=tensor)


CLASSIFIER = usage("digits")
DETECTOR = usage("yolo-fastest")


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (LEFT, 1.0),
        (RIGHT, 0.0),
        ((0.0, 0.0, 10.0, 5.0), 0.5),
        ((5.0, 0.0, 15.0, 10.0), 1 / 3),
        ((2.0, 2.0, 4.0, 4.0), 0.04),
        ((10.0, 0.0, 20.0, 10.0), 0.0),
        ((3.0, 3.0, 3.0, 3.0), 0.0),
    ],
)
def test_overlap_is_intersection_over_union(other: Box, wanted: float) -> None:
    assert overlap(LEFT, other) == overlap(other, LEFT) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([box(LEFT)], [box(LEFT)], 1),
        ([box(LEFT)], [box(LEFT, class_id=1)], 0),
        ([box(LEFT), box(RIGHT)], [box(RIGHT), box(LEFT)], 2),
        ([box(LEFT), box((1.0, 0.0, 11.0, 10.0), 0.5)], [box(LEFT)], 1),
        ([box(LEFT)], [box((0.0, 0.0, 10.0, 5.0))], 1),
        ([box(LEFT)], [box((0.0, 0.0, 10.0, 4.9))], 0),
        ([], [box(LEFT)], 0),
    ],
    ids=["equal", "another class", "another order", "one partner each", "half", "less than half", "none"],
)
def test_boxes_agree_that_overlap_by_half(one: list[Detection], other: list[Detection], wanted: int) -> None:
    assert matches(one, other) == matches(other, one) == wanted


def of_class(class_id: int, label: str = "") -> Detection:
    return Detection(label=label, class_id=class_id, score=0.5)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([of_class(1), of_class(2)], [of_class(1), of_class(2)], True),
        ([of_class(1), of_class(2)], [of_class(2), of_class(1)], False),
        ([of_class(0, "text")], [of_class(0, "test")], False),
        ([of_class(1)], [], False),
        ([box(LEFT), box(RIGHT)], [box(RIGHT), box((0.0, 0.0, 10.0, 9.6))], True),
        ([box(LEFT)], [box((0.0, 0.0, 10.0, 9.4))], False),
        ([box(LEFT)], [box(LEFT), box(RIGHT)], False),
        ([], [], True),
    ],
    ids=["equal", "another order", "another text", "missing", "nearly the same boxes", "moved", "one more", "none"],
)
def test_results_are_the_same_in_classes_their_order_and_boxes(
    one: list[Detection], other: list[Detection], same: bool
) -> None:
    assert same_results(one, other) == same_results(other, one) == same


ONE, BOTH = [Truth(0, LEFT)], [Truth(0, LEFT), Truth(0, RIGHT)]
FAR = (50.0, 50.0, 60.0, 60.0)
CROWD = Truth(0, (15.0, 0.0, 100.0, 100.0), crowd=True)
CLASSES = [Truth(0, LEFT), Truth(3, RIGHT)]


@pytest.mark.parametrize(
    ("truths", "found", "wanted"),
    [
        # Four things, five boxes from best to worst: right, wrong, right, wrong, right. Precision is 1 up to a recall
        # of 1/4, 2/3 up to 2/4 and 3/5 up to 3/4: 26, 25 and 25 of COCO's 101 recalls.
        (
            [BOTH, BOTH],
            [[box(LEFT, 0.9), box(FAR, 0.8), box(RIGHT, 0.7)], [box(FAR, 0.6), box(LEFT, 0.5)]],
            (26 + 25 * 2 / 3 + 25 * 3 / 5) / 101,
        ),
        ([CLASSES], [[box(LEFT)]], 0.5),
        ([CLASSES], [[box(LEFT), box(RIGHT, class_id=3), box(LEFT, 0.1, 7)]], 1),
        ([ONE], [[box(LEFT, 0.5), box(LEFT, 0.9)]], 1),
        ([BOTH], [[box(LEFT), box(LEFT)]], 51 / 101),
        ([[*ONE, CROWD]], [[box(RIGHT, 0.95), box(LEFT, 0.9)]], 1),
        ([ONE], [[]], 0),
        ([[]], [[box(LEFT)]], 0),
    ],
    ids=[
        *("a worked example", "one of two classes", "a class that is not there", "a thing twice", "one of two things"),
        *("what lies in a crowd", "no boxes", "no things"),
    ],
)
def test_mean_average_precision(truths: list[list[Truth]], found: list[list[Detection]], wanted: float) -> None:
    assert mean_average_precision(truths, found) == pytest.approx(wanted)


def test_folders_are_named_after_classes_or_their_numbers(tmp_path: Path) -> None:
    imagenet = usage("classification", "squeezenet_v1.1")
    names = {"tench": 0, "Tinca_tinca": 0, "n01440764_tench": 0, "great-white-shark": 2, "17": 17}
    for name in names:
        write_image(tmp_path / name / "deeper" / "a.png")
    evaluation = find_evaluation(tmp_path, imagenet)
    assert evaluation.measure == "top-1"
    assert {file.relative_to(tmp_path).parts[0]: number for file, number in evaluation.images} == names


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unicorn/a.png", "no class has that name"),
        ("crane/a.png", "classes 134, 517"),
        ("1000/a.png", "no class"),
        ("a.png", "is in none of them"),
    ],
)
def test_folders_that_name_no_class_are_refused(tmp_path: Path, name: str, why: str) -> None:
    write_image(tmp_path / name)
    with pytest.raises(InputError, match=why):
        find_evaluation(tmp_path, usage("classification", "squeezenet_v1.1"))


def test_a_missing_or_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no image below"):
        find_evaluation(tmp_path, CLASSIFIER)
    with pytest.raises(InputError, match="there is no folder"):
        find_evaluation(tmp_path / "none", CLASSIFIER)


def coco(folder: Path, **changes: object) -> Path:
    write_image(folder / "images" / "a.png")
    document = {
        "info": {"year": 2026},
        "images": [{"id": 7, "file_name": "images/a.png", "width": 16, "height": 16}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 1, "bbox": [0, 0, 8, 8], "iscrowd": 1},
        ],
        "categories": [{"id": 18, "name": "dog", "supercategory": "animal"}, {"id": 1, "name": "Person"}],
        **changes,
    }
    (folder / "instances.json").write_text(json.dumps(document))
    return folder


def test_boxes_are_read_as_coco_writes_them(tmp_path: Path) -> None:
    evaluation = find_evaluation(coco(tmp_path), DETECTOR)
    assert evaluation.measure == "mAP@0.5"
    [(file, truths)] = evaluation.images
    assert file == tmp_path / "images" / "a.png"
    assert truths == [Truth(16, (1, 2, 4, 6)), Truth(0, (0, 0, 8, 8), crowd=True)]


def test_categories_of_a_network_without_names_are_numbers_or_the_only_one(tmp_path: Path) -> None:
    faces = usage("retinaface")
    only = [{"id": 18, "name": "anybody"}]
    annotations = [{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4]}]
    evaluation = find_evaluation(coco(tmp_path, categories=only, annotations=annotations), faces)
    assert [truth.class_id for _, truths in evaluation.images for truth in truths] == [0]
    numbered = [{"id": 18, "name": "3"}, {"id": 1, "name": "0"}]
    evaluation = find_evaluation(coco(tmp_path, categories=numbered), faces)
    assert [truth.class_id for _, truths in evaluation.images for truth in truths] == [3, 0]
    for name in ("dog", "9" * 5000):
        with pytest.raises(InputError, match="have no names"):
            find_evaluation(coco(tmp_path, categories=[{"id": 18, "name": name}, {"id": 1, "name": "0"}]), faces)


def test_hidden_files_say_nothing_of_boxes(tmp_path: Path) -> None:
    (tmp_path / "._instances.json").write_bytes(b"what macOS leaves beside a file")
    assert find_evaluation(coco(tmp_path), DETECTOR).measure == "mAP@0.5"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"annotations": [{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3]}]}, "bbox"),
        ({"images": []}, "images"),
        ({"categories": [{"id": 18, "name": "unicorn"}]}, "'unicorn' is not a class"),
        ({"annotations": [{"image_id": 8, "category_id": 18, "bbox": [1, 2, 3, 4]}]}, "does not list image 8"),
        ({"images": [{"id": 7, "file_name": "images/b.png"}]}, "there is no image"),
        ({"categories": 5}, "categories"),
        ({"annotations": []}, "has no box"),
        ({"annotations": [{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 1}]}, "has no box"),
    ],
)
def test_lists_of_boxes_that_are_not_sound_are_refused(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        find_evaluation(coco(tmp_path, **changes), DETECTOR)


def test_labels_must_suit_the_network(tmp_path: Path) -> None:
    write_image(tmp_path / "classes" / "dog" / "a.png")
    with pytest.raises(InputError, match=r"no \.json file"):
        find_evaluation(tmp_path / "classes", DETECTOR)
    with pytest.raises(InputError, match="classes of whole images"):
        find_evaluation(coco(tmp_path / "boxes"), CLASSIFIER)
    (tmp_path / "boxes" / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"2 \.json files"):
        find_evaluation(tmp_path / "boxes", DETECTOR)


def test_precision_is_measured_with_boxes_of_low_scores() -> None:
    assert of_all_scores(DETECTOR).stage.decoder.threshold == 0.01  # type: ignore[attr-defined]
    assert of_all_scores(CLASSIFIER) == CLASSIFIER


@pytest.mark.parametrize(
    ("model", "demo", "kind"),
    [
        ("digits", None, "classification"),
        ("mobilenet_v1", None, "classification"),
        ("retinaface", None, "retinaface"),
        ("yunet", "yunet", "yunet"),
        ("silero-vad", None, None),
        ("net.onnx", None, None),
    ],
)
def test_how_a_network_is_used_is_found_by_its_name(model: str, demo: str | None, kind: str | None) -> None:
    use = find_use(model, demo)
    part = use.part if use else None
    assert (part and part.stage.decoder.kind) == kind
    assert not part or part.entry_name == model
