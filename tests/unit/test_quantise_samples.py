"""What networks are calibrated with: images at any depth, videos, arrays; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.films import write_film

from edgedeploy.base.progress import Progress
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.quantisation.samples import Samples, evenly, find_samples
from edgedeploy.vision.geometry import Frame

INPUT = TensorSpec(name="data", shape=[1, 4], dtype="float32")
OTHER = TensorSpec(name="state", shape=[2], dtype="float32")


class Notes(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


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


def test_of_many_images_some_are_taken_evenly(tmp_path: Path) -> None:
    for index in range(20):
        write_image(tmp_path / f"{index:02}.png", index)
    notes = Notes()
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
    notes = Notes()
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


def test_a_single_image_is_one_sample(tmp_path: Path) -> None:
    assert levels(found(write_image(tmp_path / "one.png", 3))) == [3]


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
    [sample] = find_samples(tmp_path, [INPUT, OTHER], None, 10)
    assert sample.tensors.keys() == {"data", "state"}


def empty(folder: Path) -> Path:
    return folder


def text_only(folder: Path) -> Path:
    (folder / "song.wav").write_bytes(b"RIFF")
    return folder


def missing(folder: Path) -> Path:
    return folder / "none"


def text_file(folder: Path) -> Path:
    (folder / "a.txt").write_text("text")
    return folder / "a.txt"


@pytest.mark.parametrize("make", [empty, text_only, missing, text_file])
def test_where_there_is_nothing_to_calibrate_with_it_is_said(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(InputError) as raised:
        found(make(tmp_path))
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
