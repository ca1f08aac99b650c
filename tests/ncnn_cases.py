"""Layers of ncnn's networks, and what numpy says that they compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ncnn_files import plain, tagged, write
from plain_layers import convolution, linear, pooling, sigmoid, softmax, transposed_convolution

RANDOM = np.random.default_rng(7)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.3, 3, shape).astype(np.float32)


PICTURE, MATRIX, VECTOR = numbers(4, 5, 6), numbers(5, 6), numbers(6)
POSITIVE = positive(4, 5, 6)
INSIDE = RANDOM.uniform(-0.9, 0.9, (4, 5, 6)).astype(np.float32)


def spread(values: np.ndarray) -> np.ndarray:
    return values[:, None, None]


@dataclass(frozen=True)
class Case:
    """A layer between inputs and outputs.

    Attributes:
        layer: its kind and parameters.
        inputs: arrays, without a batch.
        expected: its outputs.
        weights: its part of the file.
    """

    layer: str
    inputs: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]
    weights: bytes = b""

    def write(self, folder: Path) -> Path:
        kind, *parameters = self.layer.split()
        names = [f"in{index}" for index in range(len(self.inputs))]
        results = [f"out{index}" for index in range(len(self.expected))]
        counts = [str(len(names)), str(len(results))]
        layers = [f"Input {name} 0 1 {name}" for name in names]
        return write(
            folder, [*layers, " ".join([kind, "tested", *counts, *names, *results, *parameters])], self.weights
        )

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        return {f"in{index}": array for index, array in enumerate(self.inputs)}

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {name: [1, *array.shape] for name, array in self.tensors.items()}


def one(layer: str, data: np.ndarray, expected: np.ndarray, weights: bytes = b"") -> Case:
    return Case(layer, [data], [expected], weights)


X = PICTURE.astype(float)
W33, W57 = numbers(3, 4, 3, 3), numbers(8, 2, 3, 1)
DEPTHWISE = numbers(4, 1, 3, 3)
UP, UP_GROUPS = numbers(3, 4, 3, 3), numbers(4, 2, 2, 2)
BIAS = numbers(3)
C33 = convolution(X, W33)
DENSE, DENSE_ROWS = numbers(7, 120), numbers(3, 6)
FOUR = [numbers(4), numbers(4), positive(4), numbers(4)]
OTHER, SIX, EIGHT = numbers(4, 5, 6), numbers(6, 1, 2), numbers(8, 1, 1)

CASES = [
    # Convolutions.
    one("Convolution 0=3 1=3 6=108", PICTURE, C33, tagged(W33)),
    one("Convolution 0=3 1=3 5=1 6=108", PICTURE, C33 + spread(BIAS), tagged(W33) + plain(BIAS)),
    one(
        "Convolution 0=3 1=3 2=2 3=1 4=2 14=1 15=1 16=3 12=1 13=2 6=108",
        PICTURE,
        convolution(X, W33, stride=(2, 1), gap=(1, 2), pads=(1, 2, 3, 1)),
        tagged(W33),
    ),
    one(
        "Convolution 0=3 1=3 3=2 4=-233 6=108",
        PICTURE,
        convolution(X, W33, stride=(2, 2), pads=(1, 0, 1, 1)),
        tagged(W33),
    ),
    one(
        "Convolution 0=3 1=3 3=2 4=-234 6=108",
        PICTURE,
        convolution(X, W33, stride=(2, 2), pads=(1, 1, 1, 0)),
        tagged(W33),
    ),
    one("Convolution 0=3 1=3 4=1 6=108 18=2.5", PICTURE, convolution(X, W33, pads=(1,) * 4, value=2.5), tagged(W33)),
    one(
        "Convolution 0=2 1=1 5=1 6=12 9=1",
        VECTOR,
        np.maximum(W33[0, :2, :, :2].reshape(2, 6) @ VECTOR + 1, 0),
        tagged(W33[0, :2, :, :2].copy()) + plain([1, 1]),
    ),
    one("Convolution 0=3 1=3 6=108 9=1", PICTURE, np.maximum(C33, 0), tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=2 -23310=1,0.1", PICTURE, np.where(C33 < 0, C33 * 0.1, C33), tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=3 10=-1.0,2.0", PICTURE, C33.clip(-1, 2), tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=4", PICTURE, sigmoid(C33), tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=5", PICTURE, C33 * np.tanh(np.log1p(np.exp(C33))), tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=6 -23310=2,0.2,0.4", PICTURE, C33 * (C33 * 0.2 + 0.4).clip(0, 1), tagged(W33)),
    one(
        "ConvolutionDepthWise 0=4 1=3 4=1 5=1 6=36 7=4 9=1",
        PICTURE,
        np.maximum(convolution(X, DEPTHWISE, pads=(1,) * 4, groups=4) + spread(FOUR[0]), 0),
        tagged(DEPTHWISE) + plain(FOUR[0]),
    ),
    one("ConvolutionDepthWise 0=8 1=1 11=3 6=48 7=2", PICTURE, convolution(X, W57, groups=2), tagged(W57)),
    one("Deconvolution 0=3 1=3 3=2 6=108", PICTURE, transposed_convolution(X, UP, stride=2), tagged(UP)),
    one(
        "Deconvolution 0=3 1=3 3=2 4=1 5=1 6=108 18=1",
        PICTURE,
        transposed_convolution(X, UP, stride=2, more=1)[:, 1:-1, 1:-1] + spread(BIAS),
        tagged(UP) + plain(BIAS),
    ),
    one(
        "Deconvolution 0=3 1=3 2=2 3=2 4=1 15=0 14=0 16=2 6=108 9=1",
        PICTURE,
        np.maximum(transposed_convolution(X, UP, stride=2, gap=2)[:, :-2, 1:], 0),
        tagged(UP),
    ),
    one(
        "Deconvolution 0=3 1=3 3=2 4=-233 20=12 21=10 6=108",
        PICTURE,
        transposed_convolution(X, UP, stride=2)[:, :-1, :-1],
        tagged(UP),
    ),
    one(
        "Deconvolution 0=3 1=3 3=2 4=-234 20=12 21=10 6=108",
        PICTURE,
        transposed_convolution(X, UP, stride=2)[:, 1:, 1:],
        tagged(UP),
    ),
    one(
        "DeconvolutionDepthWise 0=4 1=2 3=2 6=32 7=2",
        PICTURE,
        transposed_convolution(X, UP_GROUPS, stride=2, groups=2),
        tagged(UP_GROUPS),
    ),
    one("InnerProduct 0=7 2=840", PICTURE, DENSE @ X.ravel(), tagged(DENSE)),
    one(
        "InnerProduct 0=7 1=1 2=840 9=1",
        PICTURE,
        np.maximum(DENSE @ X.ravel() + 0.5, 0),
        tagged(DENSE) + plain([0.5] * 7),
    ),
    one("InnerProduct 0=3 1=1 2=18", MATRIX, MATRIX @ DENSE_ROWS.T + BIAS, tagged(DENSE_ROWS) + plain(BIAS)),
    # Pooling.
    one("Pooling 0=0 1=3 2=2", PICTURE, pooling(X, np.nanmax, 3, 2, (0, 0, 0, 1))),
    one("Pooling 0=0 1=2 2=2", PICTURE, pooling(X, np.nanmax, 2, 2, (0, 0, 1, 0))),
    one("Pooling 0=1 1=2 2=2", PICTURE, pooling(X, np.nanmean, 2, 2, (0, 0, 1, 0))),
    one("Pooling 0=1 1=2 2=2 6=1", PICTURE, pooling(X, np.mean, 2, 2, (0, 0, 1, 0), outside=0)),
    one("Pooling 0=0 1=3 2=2 3=1 5=1", PICTURE, pooling(X, np.nanmax, 3, 2, (1, 1, 1, 1))),
    one("Pooling 0=1 1=3 2=1 3=1 13=0 14=0 15=2 5=1", PICTURE, pooling(X, np.nanmean, 3, 1, (0, 1, 2, 0))),
    one("Pooling 0=0 1=3 2=2 5=2", PICTURE, pooling(X, np.nanmax, 3, 2, (1, 0, 1, 1))),
    one("Pooling 0=0 1=3 2=2 5=3", PICTURE, pooling(X, np.nanmax, 3, 2, (1, 1, 1, 0))),
    one("Pooling 0=1 1=3 2=2 5=2", PICTURE, pooling(X, np.mean, 3, 2, (1, 0, 1, 1), outside=0)),
    one("Pooling 0=1 4=1", PICTURE, X.mean((1, 2))),
    one("Pooling 0=0 4=1", PICTURE, X.max((1, 2))),
    one("Pooling 0=1 7=1 8=3 18=1", PICTURE, X.reshape(4, 1, 5, 3, 2).mean((2, 4))),
    one("Pooling 0=0 7=1 8=2 18=-233", PICTURE, X.reshape(4, 5, 2, 3).max(3)),
    # Reductions.
    *(
        one(f"Reduction 0={kind} 1=0 -23303=2,1,-1 4={keep} 5=1", POSITIVE, of(POSITIVE.astype(float), (1, 2), keep))
        for keep in (0, 1)
        for kind, of in enumerate(
            [
                lambda x, axes, keep: x.sum(axes, keepdims=bool(keep)),
                lambda x, axes, keep: np.abs(x).sum(axes, keepdims=bool(keep)),
                lambda x, axes, keep: (x**2).sum(axes, keepdims=bool(keep)),
                lambda x, axes, keep: x.mean(axes, keepdims=bool(keep)),
                lambda x, axes, keep: x.max(axes, keepdims=bool(keep)),
                lambda x, axes, keep: x.min(axes, keepdims=bool(keep)),
                lambda x, axes, keep: x.prod(axes, keepdims=bool(keep)),
                lambda x, axes, keep: np.abs(x).sum(axes, keepdims=bool(keep)),
                lambda x, axes, keep: np.sqrt((x**2).sum(axes, keepdims=bool(keep))),
                lambda x, axes, keep: np.log(x.sum(axes, keepdims=bool(keep))),
                lambda x, axes, keep: np.log(np.exp(x).sum(axes, keepdims=bool(keep))),
            ]
        )
    ),
    one("Reduction 0=3", PICTURE, X.mean(keepdims=True).ravel()),
    one("Reduction 0=3 4=1", PICTURE, X.mean(keepdims=True)),
    one("Reduction 0=0 1=0 2=2.0 -23303=1,0 5=1", PICTURE, 2 * X.sum(0)),
    # Activations.
    one("ReLU", PICTURE, np.maximum(X, 0)),
    one("ReLU 0=0.1", PICTURE, np.where(X < 0, X * 0.1, X)),
    one("PReLU 0=4", PICTURE, np.where(X < 0, X * spread(FOUR[0]), X), plain(FOUR[0])),
    one("PReLU 0=1", PICTURE, np.where(X < 0, X * 0.3, X), plain([0.3])),
    one("PReLU 0=6", VECTOR, np.where(VECTOR < 0, VECTOR * [1, 2, 3, 4, 5, 6], VECTOR), plain([1, 2, 3, 4, 5, 6])),
    one("Clip 0=0.0 1=1.5", PICTURE, X.clip(0, 1.5)),
    one("Clip 0=-0.5", PICTURE, X.clip(-0.5, None)),
    one("Clip 0=-3.402823e+38 1=0.5", PICTURE, X.clip(None, 0.5)),
    one("Sigmoid", PICTURE, sigmoid(X)),
    one("TanH", PICTURE, np.tanh(X)),
    one("Swish", PICTURE, X * sigmoid(X)),
    one("Mish", PICTURE, X * np.tanh(np.log1p(np.exp(X)))),
    one("HardSigmoid", PICTURE, (X * 0.2 + 0.5).clip(0, 1)),
    one("HardSwish 0=0.1666667", PICTURE, X * (X / 6 + 0.5).clip(0, 1)),
    one("ELU", PICTURE, np.where(X < 0, 0.1 * (np.exp(X) - 1), X)),
    one("SELU", PICTURE, 1.050700987 * np.where(X < 0, 1.67326324 * (np.exp(X) - 1), X)),
    one("GELU", PICTURE, X * np.vectorize(lambda x: 0.5 + 0.5 * math.erf(x / math.sqrt(2)))(X)),
    one("GELU 0=1", PICTURE, X * (0.5 + 0.5 * np.tanh(0.79788452 * (X + 0.044715 * X**3)))),
    one("AbsVal", PICTURE, np.abs(X)),
    one("BNLL", PICTURE, np.log1p(np.exp(X))),
    one("Dropout", PICTURE, X),
    one("Dropout 0=0.5", PICTURE, X * 0.5),
    *(
        one(f"UnaryOp 0={kind}", data, of(data.astype(float)))
        for kind, (data, of) in enumerate(
            [
                (PICTURE, np.abs),
                (PICTURE, np.negative),
                (PICTURE, np.floor),
                (PICTURE, np.ceil),
                (PICTURE, np.square),
                (POSITIVE, np.sqrt),
                (POSITIVE, lambda x: 1 / np.sqrt(x)),
                (PICTURE, np.exp),
                (POSITIVE, np.log),
                (PICTURE, np.sin),
                (PICTURE, np.cos),
                (INSIDE, np.tan),
                (INSIDE, np.arcsin),
                (INSIDE, np.arccos),
                (PICTURE, np.arctan),
                (POSITIVE, np.reciprocal),
                (PICTURE, np.tanh),
                (POSITIVE, np.log10),
                (PICTURE, np.round),
            ]
        )
    ),
    one("UnaryOp 0=18", np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]), np.float32([-2, -2, 0, 0, 2, 2])),
    one("Power 0=2.0 1=0.5 2=3.0", POSITIVE, (3 + 0.5 * POSITIVE.astype(float)) ** 2),
    one("Exp 1=0.5 2=0.25", PICTURE, np.exp(0.25 + 0.5 * X)),
    one("Exp 0=2.0", PICTURE, 2**X),
    one("Log 1=0.5 2=0.25", POSITIVE, np.log(0.25 + 0.5 * POSITIVE)),
    one("Log 0=10.0", POSITIVE, np.log10(POSITIVE)),
    # Arithmetic.
    *(
        Case(f"BinaryOp 0={kind}", [POSITIVE, POSITIVE[::-1].copy()], [of(POSITIVE, POSITIVE[::-1])])
        for kind, of in enumerate(
            [
                np.add,
                np.subtract,
                np.multiply,
                np.divide,
                np.maximum,
                np.minimum,
                np.power,
                lambda a, b: b - a,
                lambda a, b: b / a,
                lambda a, b: b**a,
            ]
        )
    ),
    one("BinaryOp 0=0 1=1 2=0.7", PICTURE, X + 0.7),
    one("BinaryOp 0=7 1=1 2=0.7", PICTURE, 0.7 - X),
    one("BinaryOp 0=9 1=1 2=2.0", PICTURE, 2**X),
    Case("BinaryOp 0=2", [PICTURE, FOUR[0]], [X * spread(FOUR[0])]),
    Case("BinaryOp 0=1", [FOUR[0], PICTURE], [spread(FOUR[0]) - X]),
    Case("BinaryOp 0=0", [PICTURE, VECTOR], [X + VECTOR]),
    Case("BinaryOp 0=0", [PICTURE, X[:, :, 0].astype(np.float32)], [X + X[:, :, :1]]),
    Case("BinaryOp 0=0", [PICTURE, X[:1, :, :1].astype(np.float32)], [X + X[:1, :, :1]]),
    Case("BinaryOp 0=0", [MATRIX, MATRIX[:, 0].copy()], [MATRIX + MATRIX[:, :1]]),
    Case("BinaryOp 0=0", [PICTURE, np.float32([3])], [X + 3]),
    Case("Eltwise 0=0", [PICTURE, OTHER, POSITIVE], [X * OTHER * POSITIVE]),
    Case("Eltwise 0=1", [PICTURE, OTHER], [X + OTHER]),
    Case("Eltwise 0=1 -23301=2,0.5,-1.0", [PICTURE, OTHER], [0.5 * X - OTHER]),
    Case("Eltwise 0=2", [PICTURE, OTHER, POSITIVE], [np.maximum(np.maximum(X, OTHER), POSITIVE)]),
    # Normalisation.
    one(
        "BatchNorm 0=4 1=0.01",
        PICTURE,
        (X - spread(FOUR[1])) / np.sqrt(spread(FOUR[2]) + 0.01) * spread(FOUR[0]) + spread(FOUR[3]),
        plain(*FOUR),
    ),
    one("BatchNorm 0=4", FOUR[3], (FOUR[3] - FOUR[1]) / np.sqrt(FOUR[2]) * FOUR[0] + FOUR[3], plain(*FOUR)),
    one("Scale 0=4", PICTURE, X * spread(FOUR[0]), plain(FOUR[0])),
    one("Scale 0=4 1=1", PICTURE, X * spread(FOUR[0]) + spread(FOUR[1]), plain(FOUR[0], FOUR[1])),
    one("Scale 0=5 1=1", MATRIX, MATRIX * np.arange(5)[:, None] + 1, plain(np.arange(5), [1] * 5)),
    Case("Scale 0=-233", [PICTURE, FOUR[0]], [X * spread(FOUR[0])]),
    one("Bias 0=4", PICTURE, X + spread(FOUR[0]), plain(FOUR[0])),
    one(
        "InstanceNorm 0=4 1=0.01",
        PICTURE,
        (X - X.mean((1, 2), keepdims=True)) / np.sqrt(X.var((1, 2), keepdims=True) + 0.01) * spread(FOUR[0])
        + spread(FOUR[1]),
        plain(FOUR[0], FOUR[1]),
    ),
    one(
        "InstanceNorm 0=0 2=0",
        PICTURE,
        (X - X.mean((1, 2), keepdims=True)) / np.sqrt(X.var((1, 2), keepdims=True) + 0.001),
    ),
    one(
        "Normalize 0=0 1=0 2=0.01 3=4 4=1",
        PICTURE,
        X / np.sqrt((X**2).sum(0) + 0.01) * spread(FOUR[0]),
        plain(FOUR[0]),
    ),
    one(
        "Normalize 0=1 1=1 2=5.0 3=1 4=0 9=1",
        PICTURE,
        X / np.maximum(np.sqrt((X**2).sum((1, 2), keepdims=True)), 5) * 2,
        plain([2]),
    ),
    one("Normalize 0=1 1=1 2=200.0 3=1 4=1 9=2", PICTURE, X / np.sqrt(max((X**2).sum(), 200)) * 2, plain([2])),
    one(
        "LRN 1=3 2=2.0 3=0.5 4=1.5",
        PICTURE,
        X / (1.5 + 2 / 3 * np.stack([(X[max(c - 1, 0) : c + 2] ** 2).sum(0) for c in range(4)])) ** 0.5,
    ),
    one("Softmax", PICTURE, softmax(X, 0)),
    one("Softmax 0=1 1=1", PICTURE, softmax(X, 1)),
    one("Softmax 0=-1 1=1", PICTURE, softmax(X, 2)),
    one("Softmax 0=1 1=1", MATRIX, softmax(MATRIX, 1)),
    one("Softmax 0=0 1=1", VECTOR, softmax(VECTOR, 0)),
    # Shapes.
    Case("Concat 0=0", [PICTURE, PICTURE[:2].copy()], [np.concatenate([X, X[:2]])]),
    Case("Concat 0=-1", [PICTURE, PICTURE[:, :, :2].copy()], [np.concatenate([X, X[:, :, :2]], 2)]),
    Case("Concat 0=0", [VECTOR, VECTOR, FOUR[0]], [np.concatenate([VECTOR, VECTOR, FOUR[0]])]),
    Case("Slice -23300=2,1,-233", [PICTURE], [X[:1], X[1:]]),
    Case("Slice -23300=3,-233,-233,-233 1=2", [PICTURE], [X[:, :, :2], X[:, :, 2:4], X[:, :, 4:]]),
    Case("Slice -23302=2,1,-2 1=1", [PICTURE], [X[:, :1], X[:, 1:3], X[:, 3:]]),
    one("Crop 0=1 1=2 2=1 3=4 4=2 5=2", PICTURE, X[1:3, 2:4, 1:5]),
    one("Crop 0=1 3=-233 4=-233 5=-233 6=2 8=1", PICTURE, X[:3, :, 1:4]),
    one("Crop -23309=2,1,-3 -23310=2,3,-1 -23311=2,0,2", PICTURE, X[1:3, :, 3:5]),
    one("Crop -23309=1,1 -23310=1,-233 -23311=1,-1", PICTURE, X[:, :, 1:]),
    one("Crop -23309=2,1,0 -23310=2,0,2 -23311=2,0,1", PICTURE, X[1:, :2]),
    Case("Crop", [PICTURE, numbers(4, 3, 2)], [X[:, :3, :2]]),
    Case("Crop 0=2 1=1", [PICTURE, numbers(4, 3, 2)], [X[:, 1:4, 2:4]]),
    one("Padding 0=1 1=2 2=3 3=4 5=0.5", PICTURE, np.pad(X, [(0, 0), (1, 2), (3, 4)], constant_values=0.5)),
    one("Padding 0=1 1=2 2=3 3=4 4=1", PICTURE, np.pad(X, [(0, 0), (1, 2), (3, 4)], "edge")),
    one("Padding 0=1 1=2 2=3 3=4 4=2", PICTURE, np.pad(X, [(0, 0), (1, 2), (3, 4)], "reflect")),
    one("Padding 7=1 8=2 5=0.5", PICTURE, np.pad(X, [(1, 2), (0, 0), (0, 0)], constant_values=0.5)),
    one("Padding 2=1 3=2", VECTOR, np.pad(VECTOR, (1, 2))),
    one("Padding 0=1 2=2", MATRIX, np.pad(MATRIX, [(1, 0), (2, 0)])),
    one("Reshape 0=-1", PICTURE, X.ravel()),
    one("Reshape 0=0 1=-1", PICTURE, X.reshape(20, 6)),
    one("Reshape 0=0 1=-1 2=2", PICTURE, X.reshape(2, 10, 6)),
    one("Reshape 0=10 1=3 2=0", PICTURE, X.reshape(4, 3, 10)),
    *(
        one(f"Permute 0={kind}", PICTURE, X.transpose(order))
        for kind, order in enumerate([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
    ),
    one("Permute 0=1", MATRIX, MATRIX.T),
    one("Flatten", PICTURE, X.ravel()),
    one("Squeeze 0=1 1=1 2=1", PICTURE[:, :1, :1].copy(), X[:, 0, 0]),
    one("Squeeze 1=1", PICTURE[:1, :1].copy(), X[:1, 0]),
    one("Squeeze -23303=2,0,-1", PICTURE[:1, :, :1].copy(), X[0, :, 0]),
    one("ExpandDims -23303=1,0", MATRIX, MATRIX[None]),
    one("ExpandDims -23303=2,0,-1", VECTOR, VECTOR[None, :, None]),
    one("ShuffleChannel 0=2", PICTURE, X[[0, 2, 1, 3]]),
    one("ShuffleChannel 0=3", SIX, SIX[[0, 2, 4, 1, 3, 5]]),
    one("ShuffleChannel 0=3 1=1", SIX, SIX[[0, 3, 1, 4, 2, 5]]),
    one("PixelShuffle 0=2", PICTURE, X.reshape(2, 2, 5, 6).transpose(2, 0, 3, 1).reshape(1, 10, 12)),
    one("PixelShuffle 0=2 1=1", EIGHT, EIGHT[:, 0, 0].reshape(2, 2, 2).transpose(2, 0, 1)),
    Case("Split", [PICTURE], [X, X, X]),
    one("Noop", PICTURE, X),
    # Resizing.
    one("Interp 0=1 1=2.0 2=3.0", PICTURE, X.repeat(2, 1).repeat(3, 2)),
    one("Interp 0=1 3=3 4=4", PICTURE, X[:, [0, 1, 3]][:, :, [0, 1, 3, 4]]),
    one("Interp 0=1 1=1.5 2=0.5", PICTURE, X[:, [0, 0, 1, 2, 2, 3, 4]][:, :, [0, 2, 4]]),
    one("Interp 0=2 1=2.0 2=2.0", PICTURE, linear(X, 10, 12)),
    one("Interp 0=2 3=7 4=4", PICTURE, linear(X, 7, 4)),
    one("Interp 0=2 3=7 4=9 6=1", PICTURE, linear(X, 7, 9, corners=True)),
    one("Interp 0=1 1=2.0 2=3.0", VECTOR, np.broadcast_to(spread(VECTOR), (6, 2, 3))),
    Case("Interp 0=1 5=1", [PICTURE, numbers(1, 10, 12)], [X.repeat(2, 1).repeat(2, 2)]),
]


def by_name(case: Case) -> str:
    return f"{case.layer} on {' and '.join('x'.join(map(str, array.shape)) for array in case.inputs)}"
