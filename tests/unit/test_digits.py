"""The bundled network: what its entry says of it is true."""

import re
from types import ModuleType

import cv2
import numpy as np
import pytest
from support import quantised_files

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.documents import read_document
from edgedeploy.base.files import sha256_of
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.zoo.entry import ZooModel

FOLDER = builtin_folder() / "models"
ENTRY = read_document(FOLDER / "digits.yaml", ZooModel)
MODEL = FOLDER / ENTRY.files[0].name


@pytest.fixture(scope="module")
def training() -> ModuleType:
    return quantised_files.training()


def test_the_entry_describes_the_file_that_is_there() -> None:
    assert ENTRY.files[0].bundled
    assert (ENTRY.files[0].size, ENTRY.files[0].sha256) == (MODEL.stat().st_size, sha256_of(MODEL))
    assert ENTRY.files[0].size < 100_000


def test_the_network_is_as_accurate_on_held_out_digits_as_the_entry_says(training: ModuleType) -> None:
    stated = re.search(r"([\d.]+)% right on (\d+) held-out", ENTRY.description)
    images, classes = training.load()
    test = training.held_out(classes)
    share = training.accuracy(MODEL, images[test], classes[test])
    # One digit may fall to the other side by the arithmetic of another processor.
    assert abs(share - float(stated[1]) / 100) < 1.5 / int(stated[2])
    assert int(stated[2]) == test.sum()
    assert share >= 0.97


def test_the_held_out_digits_are_a_fifth_of_each_class(training: ModuleType) -> None:
    _, classes = training.load()
    test = training.held_out(classes)
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
