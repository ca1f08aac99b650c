"""Train the bundled network: handwritten digits, a small convolutional network, in plain numpy.

    pip install 'edgedeploy[train]' && python models/train/digits.py

The data are the 1797 digits of 13 writers that scikit-learn carries (UCI "Optical Recognition of Handwritten
Digits", CC BY 4.0). One in five of each class is held out: it takes no part in training, nor in choosing
anything. The script writes `digits.onnx`, `digits.yaml` with the accuracy on the held-out digits, and
`digit.png`, an image that is drawn here and belongs to no data set. It takes half a minute on one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from edgedeploy.base.files import replacing, sha256_of

FOLDER = Path(__file__).resolve().parent.parent
SIZE = 16
EPOCHS = 40
BATCH = 64
LEARNING_RATE = 2e-3

Array = npt.NDArray[np.float32]
Parameters = dict[str, Array]

# name, channels in, channels out, stride; each 3x3, padded by 1, followed by a ReLU
CONVOLUTIONS = [("conv1", 1, 8, 1), ("conv2", 8, 16, 2), ("conv3", 16, 32, 2)]
FEATURES = 32 * (SIZE // 4) ** 2


def load() -> tuple[Array, npt.NDArray[np.int64]]:
    """Images [n, SIZE, SIZE], light strokes (255) on a dark ground (0), and their classes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = [cv2.resize(image * (255 / 16), (SIZE, SIZE), interpolation=cv2.INTER_LINEAR) for image in digits.images]
    return np.asarray(images, np.float32), digits.target.astype(np.int64)


def held_out(classes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which samples are for testing only: every fifth of each class, so that the share is the same in all."""
    chosen = np.zeros(len(classes), bool)
    for digit in range(10):
        chosen[np.flatnonzero(classes == digit)[4::5]] = True
    return chosen


def normalise(images: Array) -> Array:
    """Network inputs [n, 1, SIZE, SIZE], in 0 to 1."""
    return images[:, None] / np.float32(255)


def augment(images: Array, random: np.random.Generator) -> Array:
    """Each image turned, scaled, sheared and shifted a little, with strokes of another brightness."""
    centre = (SIZE - 1) / 2
    moved = np.empty_like(images)
    for index, image in enumerate(images):
        angle, scale, shear = random.uniform(-0.2, 0.2), random.uniform(0.85, 1.15), random.uniform(-0.15, 0.15)
        turn = np.array([[np.cos(angle), -np.sin(angle) + shear], [np.sin(angle), np.cos(angle)]]) * scale
        shift = centre - turn @ [centre, centre] + random.uniform(-1.5, 1.5, 2)
        moved[index] = cv2.warpAffine(image, np.column_stack([turn, shift]), (SIZE, SIZE), flags=cv2.INTER_LINEAR)
    return moved * random.uniform(0.7, 1.0, (len(images), 1, 1)).astype(np.float32)


def initial(random: np.random.Generator) -> Parameters:
    """He initialisation."""
    parameters: Parameters = {}
    for name, channels, filters, _ in CONVOLUTIONS:
        deviation = np.sqrt(2 / (channels * 9))
        parameters[f"{name}.weight"] = random.normal(0, deviation, (filters, channels, 3, 3)).astype(np.float32)
        parameters[f"{name}.bias"] = np.zeros(filters, np.float32)
    parameters["dense.weight"] = random.normal(0, np.sqrt(1 / FEATURES), (10, FEATURES)).astype(np.float32)
    parameters["dense.bias"] = np.zeros(10, np.float32)
    return parameters


def patches(x: Array, stride: int) -> Array:
    """The 3x3 neighbourhoods of a padded [n, c, h, w] as rows [n, h / stride, w / stride, c * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(*windows.shape[:1], *windows.shape[2:4], -1)


def unpatch(rows: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The transpose of `patches`: what each neighbourhood says of a pixel, summed."""
    count, channels, height, width = shape
    padded = np.zeros((count, channels, height + 2, width + 2), np.float32)
    windows = rows.reshape(*rows.shape[:3], channels, 3, 3).transpose(0, 3, 1, 2, 4, 5)
    for y in range(3):
        for x in range(3):
            padded[:, :, y : y + height : stride, x : x + width : stride] += windows[..., y, x]
    return padded[:, :, 1:-1, 1:-1]


def gradients(parameters: Parameters, x: Array, classes: npt.NDArray[np.int64]) -> Parameters:
    """The gradients of the mean cross-entropy: one pass forward, one pass back."""
    tape = []
    for name, _, filters, stride in CONVOLUTIONS:
        rows = patches(x, stride)
        weight = parameters[f"{name}.weight"].reshape(filters, -1)
        activation = np.maximum(rows @ weight.T + parameters[f"{name}.bias"], 0).transpose(0, 3, 1, 2)
        tape.append((name, x.shape, stride, rows, weight, activation))
        x = activation
    features = x.reshape(len(x), -1)
    logits = features @ parameters["dense.weight"].T + parameters["dense.bias"]
    slope = np.exp(logits - logits.max(axis=1, keepdims=True))
    slope /= slope.sum(axis=1, keepdims=True)
    slope[np.arange(len(x)), classes] -= 1
    slope /= len(x)

    result: Parameters = {"dense.weight": slope.T @ features, "dense.bias": slope.sum(axis=0)}
    back = (slope @ parameters["dense.weight"]).reshape(x.shape)
    for name, shape, stride, rows, weight, activation in reversed(tape):
        flat = (back * (activation > 0)).transpose(0, 2, 3, 1)
        columns = flat.reshape(-1, flat.shape[-1])
        result[f"{name}.weight"] = (columns.T @ rows.reshape(len(columns), -1)).reshape(-1, shape[1], 3, 3)
        result[f"{name}.bias"] = columns.sum(axis=0)
        back = unpatch(flat @ weight, shape, stride)
    return result


def batches(count: int, random: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    """All samples once, in random order."""
    order = random.permutation(count)
    for start in range(0, count, BATCH):
        yield order[start : start + BATCH]


def train(images: Array, classes: npt.NDArray[np.int64], seed: int = 0) -> Parameters:
    """Adam with a cosine schedule."""
    random = np.random.default_rng(seed)
    parameters = initial(random)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    step = 0
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        for batch in batches(len(images), random):
            step += 1
            slopes = gradients(parameters, normalise(augment(images[batch], random)), classes[batch])
            for name, slope in slopes.items():
                first[name] = 0.9 * first[name] + 0.1 * slope
                second[name] = 0.999 * second[name] + 0.001 * slope**2
                mean = first[name] / (1 - 0.9**step)
                spread = np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8
                parameters[name] = (parameters[name] - rate * mean / spread).astype(np.float32)
    return parameters


def export(parameters: Parameters, path: Path) -> None:
    """Write the network as ONNX, opset 13: input `data` [1, 1, SIZE, SIZE], output `prob` [1, 10]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, name = [], "data"
    for layer, _, _, stride in CONVOLUTIONS:
        weights = [f"{layer}.weight", f"{layer}.bias"]
        attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [stride, stride]}
        nodes.append(helper.make_node("Conv", [name, *weights], [layer], layer, **attributes))
        name = f"{layer}.relu"
        nodes.append(helper.make_node("Relu", [layer], [name], name))
    nodes.append(helper.make_node("Flatten", [name], ["features"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["features", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1))
    nodes.append(helper.make_node("Softmax", ["logits"], ["prob"], "softmax", axis=1))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, key) for key, value in parameters.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="edgedeploy")
    model.ir_version = 8  # the version of opset 13's time, which older readers accept
    onnx.checker.check_model(model)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def accuracy(model: Path, images: Array, classes: npt.NDArray[np.int64]) -> float:
    """The share of `images` that the ONNX file puts into the right class."""
    from edgedeploy.model.onnxruntime_session import cpu_session

    session = cpu_session(model)
    found = [session.run(None, {"data": x[None]})[0].argmax() for x in normalise(images)]
    return float(np.mean(np.asarray(found) == classes))


def draw_three(side: int = 160) -> npt.NDArray[np.uint8]:
    """A 3 as a pen might write it: two open bows of light strokes on a dark grey ground."""
    canvas = np.full((side, side), 24, np.uint8)
    unit = side / 160

    def bow(centre: tuple[float, float], axes: tuple[float, float], begin: float, end: float) -> list[list[float]]:
        turn = np.radians(np.linspace(begin, end, 40))
        x = centre[0] + axes[0] * np.cos(turn)
        y = centre[1] + axes[1] * np.sin(turn)
        return np.column_stack([x, y]).tolist()

    line = bow((80, 48), (31, 29), 205, 440) + bow((79, 107), (36, 32), 278, 505)
    points = np.round(np.asarray(line) * unit * 16).astype(np.int32)  # 4 fractional bits
    cv2.polylines(canvas, [points], False, 236, round(15 * unit), cv2.LINE_AA, 4)
    return cv2.GaussianBlur(canvas, (0, 0), 1.2 * unit)


def describe(model: Path, share: float, tested: int) -> str:
    """The zoo entry."""
    return f"""\
# Written by train/digits.py.
task: classification
description: >-
  Handwritten digits, a small convolutional network trained by edgedeploy itself;
  {share:.2%} right on {tested} held-out digits
licence: Apache-2.0
files:
  - name: {model.name}
    sha256: "{sha256_of(model)}"
    size: {model.stat().st_size}
    bundled: true
input:
  # One digit that fills the image, light strokes on a dark ground, as in MNIST. For dark ink on light paper
  # give mean [255.0] and scale [{-1 / 255!r}], which turns light into dark.
  name: data
  shape: [1, 1, {SIZE}, {SIZE}]
  layout: NCHW
  colour: GRAY
  mean: [0.0]
  scale: [{1 / 255!r}]
outputs: [prob]
labels: digits
"""


def main() -> None:
    """Train, test and write the files."""
    images, classes = load()
    test = held_out(classes)
    model = FOLDER / "digits.onnx"
    export(train(images[~test], classes[~test]), model)
    share = accuracy(model, images[test], classes[test])
    with replacing(FOLDER / "digits.yaml") as temporary:
        temporary.write_text(describe(model, share, int(test.sum())), encoding="utf-8")
    with replacing(FOLDER / "digit.png") as temporary:
        cv2.imwrite(str(temporary), draw_three())
    print(f"{share:.2%} of {test.sum()} held-out digits, {model.stat().st_size} bytes")


if __name__ == "__main__":
    main()
