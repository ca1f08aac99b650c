"""Maps over an image: classes of pixels and depths, against numpy and OpenCV; masks as runs."""

import cv2
import numpy as np
import pytest

from edgedeploy.errors import InputError
from edgedeploy.vision.decoders.maps import Depth, Segmentation, on_image
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.preprocess import place
from edgedeploy.vision.results import Mask

STRETCHED = Frame((90, 150), (60, 80), (80 / 150, 60 / 90))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class TestOnImage:
    @pytest.mark.parametrize("rows", [60, 30, 120, 7])
    def test_a_map_of_a_stretched_image_is_resized_linearly(self, rows: int) -> None:
        values = random(rows, 80)
        assert np.array_equal(on_image(values, STRETCHED), cv2.resize(values, (150, 90)))

    def test_the_nearest_value_is_one_of_the_map(self) -> None:
        values = random(30, 40)
        assert np.array_equal(
            on_image(values, STRETCHED, nearest=True), cv2.resize(values, (150, 90), interpolation=cv2.INTER_NEAREST)
        )

    @pytest.mark.parametrize("size", [(480, 640), (640, 480), (333, 217), (50, 1000), (64, 64)])
    @pytest.mark.parametrize("fit", ["letterbox", "pad"])
    def test_what_lies_beside_the_image_is_left_out(self, size: tuple[int, int], fit: str) -> None:
        """A network that gives back its input gives back the image, but for what resizing changes."""
        rows, columns = np.mgrid[: size[0], : size[1]]
        image = np.stack([rows / size[0] * 200, columns / size[1] * 200, rows * 0 + 50], axis=-1).astype(np.uint8)
        pixels, frame = place(image, (256, 256), fit)  # type: ignore[arg-type]
        for channel in range(3):
            values = pixels[..., channel].astype(np.float32)
            for cells in (values, cv2.resize(values, (64, 64), interpolation=cv2.INTER_AREA)):
                found = on_image(cells, frame)
                assert found.shape == size
                inside = np.s_[8:-8, 8:-8]
                assert np.abs(found[inside] - image[inside][..., channel].astype(float)).mean() < 10

    def test_a_map_without_cells_is_refused(self) -> None:
        with pytest.raises(InputError, match="does not give what this demo reads"):
            on_image(np.zeros((0, 4), np.float32), STRETCHED)


class TestSegmentation:
    decoder = Segmentation(kind="segmentation")
    scores = random(1, 5, 60, 80)

    def test_each_pixel_has_the_class_whose_resized_score_is_the_highest(self) -> None:
        expected = np.stack([cv2.resize(each, (150, 90)) for each in self.scores[0]]).argmax(axis=0)
        assert np.array_equal(self.decoder.class_map({"out": self.scores}, STRETCHED), expected)

    def test_channels_may_come_last(self) -> None:
        last = self.decoder.model_copy(update={"layout": "NHWC"})
        found = last.class_map({"out": self.scores.transpose(0, 2, 3, 1)}, STRETCHED)
        assert np.array_equal(found, self.decoder.class_map({"out": self.scores}, STRETCHED))

    def test_classes_are_reported_with_their_pixels_the_largest_first_without_the_background(self) -> None:
        frame = Frame((4, 6), (4, 6), (1, 1))
        classes = np.zeros((4, 6), int)
        classes[0], classes[1:3, 1:3], classes[3, 0] = 2, 1, 7
        outputs = {"out": (classes == np.arange(8)[:, None, None]).astype(np.float32)[None]}
        found = self.decoder.model_copy(update={"background": 0}).decode(outputs, frame, ["ground", "cat", "sky"])
        assert [(each.label, each.class_id) for each in found] == [("sky", 2), ("cat", 1), ("7", 7)]
        for each in found:
            assert np.array_equal(each.mask.pixels(), classes == each.class_id)
        assert len(self.decoder.decode(outputs, frame, [])) == 4

    @pytest.mark.parametrize("shape", [(1, 60, 80), (1, 1, 60, 80)])
    @pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
    def test_whole_numbers_are_classes_already(self, shape: tuple[int, ...], dtype: str) -> None:
        classes = np.random.default_rng(1).integers(0, 200, (60, 80))
        found = self.decoder.class_map({"out": classes.reshape(shape).astype(dtype)}, STRETCHED)
        expected = cv2.resize(classes.astype(np.uint8), (150, 90), interpolation=cv2.INTER_NEAREST)
        assert np.array_equal(found, expected)

    def test_a_network_of_one_class_has_the_pixels_above_the_threshold(self) -> None:
        for threshold in (0.0, 0.5):
            decoder = self.decoder.model_copy(update={"threshold": threshold})
            found = decoder.class_map({"out": self.scores[:, :1]}, STRETCHED)
            assert np.array_equal(found == 0, cv2.resize(self.scores[0, 0], (150, 90)) > threshold)
            assert set(np.unique(found)) == {-1, 0}

    def test_values_that_no_number_stands_for_are_of_no_class(self) -> None:
        assert self.decoder.decode({"out": np.full((1, 3, 6, 8), np.nan, np.float32)}, STRETCHED, []) == []

    def test_other_outputs_are_refused(self) -> None:
        named = self.decoder.model_copy(update={"output": "aux"})
        with pytest.raises(InputError, match="does not give what this demo reads") as caught:
            named.decode({"out": self.scores}, STRETCHED, [])
        assert caught.value.why == "it has no output 'aux', only out"
        for shape in ((1, 1000), (2, 3, 6, 8), (1, 0, 6, 8), (1, 6, 8)):
            with pytest.raises(InputError, match="does not give what this demo reads"):
                self.decoder.decode({"out": np.zeros(shape, np.float32)}, STRETCHED, [])


class TestDepth:
    decoder = Depth(kind="depth")

    @pytest.mark.parametrize("shape", [(1, 1, 60, 80), (1, 60, 80)])
    def test_the_map_is_brought_to_the_images_size(self, shape: tuple[int, ...]) -> None:
        values = random(60, 80)
        [found] = self.decoder.decode({"depth": values.reshape(shape)}, STRETCHED, [])
        expected = cv2.resize(values, (150, 90))
        assert np.array_equal(found.surface.values, expected)
        said = (found.surface.minimum, found.surface.median, found.surface.maximum)
        assert said == pytest.approx((expected.min(), np.median(expected), expected.max()), abs=1e-6)
        assert found.label == "depth"

    def test_json_has_the_summary_of_a_surface_alone(self) -> None:
        [found] = self.decoder.decode({"depth": np.full((1, 6, 8), 2, np.float32)}, STRETCHED, [])
        assert found.model_dump(mode="json")["surface"] == {"minimum": 2.0, "median": 2.0, "maximum": 2.0}

    def test_without_a_finite_value_there_is_no_result(self) -> None:
        assert self.decoder.decode({"depth": np.full((1, 6, 8), np.nan, np.float32)}, STRETCHED, []) == []

    def test_other_outputs_are_refused(self) -> None:
        for shape in ((1, 1000), (1, 3, 6, 8), (2, 6, 8)):
            with pytest.raises(InputError, match="does not give what this demo reads"):
                self.decoder.decode({"o": np.zeros(shape, np.float32)}, STRETCHED, [])


class TestMask:
    def test_runs_are_columns_as_coco_has_them(self) -> None:
        # pycocotools' own example of the order: columns from the top, from left to right.
        pixels = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0]], bool)
        assert Mask.of(pixels, (0, 0), (3, 3)).counts == [2, 1, 1, 4, 1]
        assert Mask.of(np.ones((3, 3), bool), (0, 0), (3, 3)).counts == [0, 9]
        assert Mask.of(np.zeros((3, 3), bool), (0, 0), (3, 3)).counts == [9]

    def test_pixels_come_back(self) -> None:
        chance = np.random.default_rng(0)
        for _ in range(200):
            size = tuple(chance.integers(1, 12, 2).tolist())
            top, left = (int(chance.integers(0, side)) for side in size)
            bottom, right = (int(chance.integers(low, high + 1)) for low, high in zip((top, left), size, strict=True))
            expected = np.zeros(size, bool)
            expected[top:bottom, left:right] = chance.random((bottom - top, right - left)) < 0.6
            mask = Mask.of(expected[top:bottom, left:right], (left, top), size)
            assert np.array_equal(mask.pixels(), expected)
            assert mask.area == expected.sum()
            assert sum(mask.counts) == expected.size
            assert min(mask.counts[1:], default=1) > 0
