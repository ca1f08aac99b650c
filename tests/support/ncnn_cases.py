"""Layers of ncnn's networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.ncnn_files import plain, tagged, write

RANDOM = np.random.default_rng(7)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.3, 3, shape).astype(np.float32)


IMAGE, MATRIX, VECTOR = numbers(4, 5, 6), numbers(5, 6), numbers(6)
POSITIVE = positive(4, 5, 6)
INSIDE = RANDOM.uniform(-0.9, 0.9, (4, 5, 6)).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A layer, by kind and parameters, of inputs without a batch; `weights` is its part of the file."""

    layer: str
    inputs: Sequence[np.ndarray]
    weights: bytes = b""
    outputs: int = 1

    @property
    def names(self) -> list[str]:
        return [f"out{index}" for index in range(self.outputs)]

    def write(self, folder: Path) -> Path:
        kind, *parameters = self.layer.split()
        names = [f"in{index}" for index in range(len(self.inputs))]
        counts = [str(len(names)), str(self.outputs)]
        layers = [f"Input {name} 0 1 {name}" for name in names]
        return write(
            folder, [*layers, " ".join([kind, "tested", *counts, *names, *self.names, *parameters])], self.weights
        )

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        return {f"in{index}": array for index, array in enumerate(self.inputs)}

    @property
    def shapes(self) -> dict[str, list[int]]:
        return {name: [1, *array.shape] for name, array in self.tensors.items()}


def one(layer: str, data: np.ndarray, weights: bytes = b"") -> Case:
    return Case(layer, [data], weights)


W33, W57 = numbers(3, 4, 3, 3), numbers(8, 2, 3, 1)
DEPTHWISE = numbers(4, 1, 3, 3)
UP, UP_GROUPS = numbers(3, 4, 3, 3), numbers(4, 2, 2, 2)
BIAS = numbers(3)
DENSE, DENSE_ROWS = numbers(7, 120), numbers(3, 6)
FOUR = [numbers(4), numbers(4), positive(4), numbers(4)]
VOLUME, SQUARE = numbers(2, 4, 5, 6), numbers(5, 5)
QUERY, KEY, VALUE = numbers(2, 3, 6), numbers(2, 5, 6), numbers(2, 5, 4)
LEFT, RIGHT = numbers(4, 5), numbers(7, 6)
PROJECTIONS = b"".join(tagged(numbers(6, inputs)) + plain(numbers(6)) for inputs in (6, 6, 6, 6))
OTHER, SIX, EIGHT = numbers(4, 5, 6), numbers(6, 1, 2), numbers(8, 1, 1)

CASES = [
    # Convolutions.
    one("Convolution 0=3 1=3 6=108", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 5=1 6=108", IMAGE, tagged(W33) + plain(BIAS)),
    one("Convolution 0=3 1=3 2=2 3=1 4=2 14=1 15=1 16=3 12=1 13=2 6=108", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 3=2 4=-233 6=108", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 3=2 4=-234 6=108", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 4=1 6=108 18=2.5", IMAGE, tagged(W33)),
    one("Convolution 0=2 1=1 5=1 6=12 9=1", VECTOR, tagged(W33[0, :2, :, :2].copy()) + plain([1, 1])),
    one("Convolution 0=3 1=3 6=108 9=1", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=2 -23310=1,0.1", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=3 10=-1.0,2.0", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=4", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=5", IMAGE, tagged(W33)),
    one("Convolution 0=3 1=3 6=108 9=6 -23310=2,0.2,0.4", IMAGE, tagged(W33)),
    one("ConvolutionDepthWise 0=4 1=3 4=1 5=1 6=36 7=4 9=1", IMAGE, tagged(DEPTHWISE) + plain(FOUR[0])),
    one("ConvolutionDepthWise 0=8 1=1 11=3 6=48 7=2", IMAGE, tagged(W57)),
    one("Deconvolution 0=3 1=3 3=2 6=108", IMAGE, tagged(UP)),
    one("Deconvolution 0=3 1=3 3=2 4=1 5=1 6=108 18=1", IMAGE, tagged(UP) + plain(BIAS)),
    one("Deconvolution 0=3 1=3 2=2 3=2 4=1 15=0 14=0 16=2 6=108 9=1", IMAGE, tagged(UP)),
    one("Deconvolution 0=3 1=3 3=2 4=-233 20=12 21=10 6=108", IMAGE, tagged(UP)),
    one("Deconvolution 0=3 1=3 3=2 4=-234 20=12 21=10 6=108", IMAGE, tagged(UP)),
    one("DeconvolutionDepthWise 0=4 1=2 3=2 6=32 7=2", IMAGE, tagged(UP_GROUPS)),
    one("InnerProduct 0=7 2=840", IMAGE, tagged(DENSE)),
    one("InnerProduct 0=7 1=1 2=840 9=1", IMAGE, tagged(DENSE) + plain([0.5] * 7)),
    one("InnerProduct 0=3 1=1 2=18", MATRIX, tagged(DENSE_ROWS) + plain(BIAS)),
    # Pooling.
    one("Pooling 0=0 1=3 2=2", IMAGE),
    one("Pooling 0=0 1=2 2=2", IMAGE),
    one("Pooling 0=1 1=2 2=2", IMAGE),
    one("Pooling 0=1 1=2 2=2 6=1", IMAGE),
    one("Pooling 0=0 1=3 2=2 3=1 5=1", IMAGE),
    one("Pooling 0=1 1=3 2=1 3=1 13=0 14=0 15=2 5=1", IMAGE),
    one("Pooling 0=0 1=3 2=2 5=2", IMAGE),
    one("Pooling 0=0 1=3 2=2 5=3", IMAGE),
    one("Pooling 0=1 1=3 2=2 5=2", IMAGE),
    one("Pooling 0=1 4=1", IMAGE),
    one("Pooling 0=0 4=1", IMAGE),
    one("Pooling 0=1 7=1 8=3 18=1", IMAGE),
    one("Pooling 0=0 7=1 8=2 18=-233", IMAGE),
    # Reductions.
    *(one(f"Reduction 0={kind} 1=0 -23303=2,1,-1 4={keep} 5=1", POSITIVE) for keep in (0, 1) for kind in range(11)),
    one("Reduction 0=3", IMAGE),
    one("Reduction 0=3 4=1", IMAGE),
    one("Reduction 0=0 1=0 2=2.0 -23303=1,0 5=1", IMAGE),
    # Activations.
    *(one(kind, IMAGE) for kind in ("ReLU", "Sigmoid", "TanH", "Swish", "Mish", "HardSigmoid", "ELU", "SELU", "GELU")),
    *(one(kind, IMAGE) for kind in ("AbsVal", "BNLL", "Dropout", "Erf", "Softplus", "Flatten", "Noop")),
    one("ReLU 0=0.1", IMAGE),
    one("PReLU 0=4", IMAGE, plain(FOUR[0])),
    one("PReLU 0=1", IMAGE, plain([0.3])),
    one("PReLU 0=6", VECTOR, plain([1, 2, 3, 4, 5, 6])),
    one("Clip 0=0.0 1=1.5", IMAGE),
    one("Clip 0=-0.5", IMAGE),
    one("Clip 0=-3.402823e+38 1=0.5", IMAGE),
    one("HardSwish 0=0.1666667", IMAGE),
    one("GELU 0=1", IMAGE),
    one("Dropout 0=0.5", IMAGE),
    *(one(f"UnaryOp 0={kind}", IMAGE) for kind in (0, 1, 2, 3, 4, 7, 9, 10, 14, 16, 18)),
    *(one(f"UnaryOp 0={kind}", POSITIVE) for kind in (5, 6, 8, 15, 17)),
    *(one(f"UnaryOp 0={kind}", INSIDE) for kind in (11, 12, 13)),
    one("UnaryOp 0=18", np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])),
    one("Power 0=2.0 1=0.5 2=3.0", POSITIVE),
    one("Exp 1=0.5 2=0.25", IMAGE),
    one("Exp 0=2.0", IMAGE),
    one("Log 1=0.5 2=0.25", POSITIVE),
    one("Log 0=10.0", POSITIVE),
    # Arithmetic.
    *(Case(f"BinaryOp 0={kind}", [POSITIVE, POSITIVE[::-1].copy()]) for kind in range(10)),
    one("BinaryOp 0=0 1=1 2=0.7", IMAGE),
    one("BinaryOp 0=7 1=1 2=0.7", IMAGE),
    one("BinaryOp 0=9 1=1 2=2.0", IMAGE),
    Case("BinaryOp 0=2", [IMAGE, FOUR[0]]),
    Case("BinaryOp 0=1", [FOUR[0], IMAGE]),
    Case("BinaryOp 0=0", [IMAGE, VECTOR]),
    Case("BinaryOp 0=0", [IMAGE, IMAGE[:, :, 0].copy()]),
    Case("BinaryOp 0=0", [IMAGE, IMAGE[:1, :, :1].copy()]),
    Case("BinaryOp 0=0", [MATRIX, MATRIX[:, 0].copy()]),
    Case("BinaryOp 0=0", [IMAGE, np.float32([3])]),
    Case("Eltwise 0=0", [IMAGE, OTHER, POSITIVE]),
    Case("Eltwise 0=1", [IMAGE, OTHER]),
    Case("Eltwise 0=1 -23301=2,0.5,-1.0", [IMAGE, OTHER]),
    Case("Eltwise 0=2", [IMAGE, OTHER, POSITIVE]),
    one("CELU 0=0.5", IMAGE),
    one("GLU 0=0", IMAGE),
    one("GLU 0=-1", IMAGE),
    Case("BinaryOp 0=0", [VOLUME, numbers(2)]),
    Case("BinaryOp 0=2", [VOLUME, VOLUME[:, :, :1, :1].copy()]),
    # Products of matrices.
    Case("MatMul", [SQUARE, MATRIX]),
    Case("MatMul 0=1", [MATRIX, RIGHT]),
    Case("MatMul", [VECTOR, VECTOR]),
    Case("MatMul", [numbers(5), MATRIX]),
    Case("MatMul", [MATRIX, VECTOR]),
    Case("MatMul", [numbers(5), IMAGE]),
    Case("MatMul", [IMAGE, VECTOR]),
    Case("MatMul 0=1", [IMAGE, VECTOR]),
    Case("MatMul", [SQUARE, IMAGE]),
    Case("MatMul 0=1", [IMAGE, RIGHT]),
    Case("MatMul 0=1", [IMAGE, OTHER]),
    Case("MatMul", [VOLUME, numbers(2, 4, 6, 3)]),
    Case("MatMul 0=1", [VOLUME, IMAGE]),
    Case("Gemm 0=0.5 1=2.0", [SQUARE, MATRIX, VECTOR]),
    Case("Gemm 2=1 3=1", [LEFT.T.copy(), MATRIX.T.copy()]),
    Case("Gemm", [SQUARE, MATRIX, numbers(5, 1)]),
    one("Gemm 3=1 5=1 6=1 10=-1 8=7 9=6", MATRIX, tagged(RIGHT)),
    one("Gemm 3=1 5=1 6=1 10=4 8=7 9=6", MATRIX, tagged(RIGHT) + tagged(numbers(7))),
    one("Gemm 5=1 6=1 10=3 7=5 8=7 9=6", MATRIX, tagged(numbers(6, 7)) + tagged(numbers(5, 7))),
    one("Gemm 4=1 6=1 7=4 9=5 10=1 14=1", MATRIX, tagged(LEFT) + tagged(numbers(4))),
    Case("SDPA", [QUERY, KEY, VALUE]),
    Case("SDPA 5=1 6=0.3", [QUERY, KEY, VALUE, numbers(3, 5)]),
    one("MultiHeadAttention 0=6 1=2 2=36", MATRIX, PROJECTIONS),
    Case("MultiHeadAttention 0=6 1=3 2=36 5=1", [MATRIX, RIGHT, numbers(5, 7)], PROJECTIONS),
    # Normalisation.
    one("LayerNorm 0=6 1=0.01", MATRIX, plain(numbers(6), numbers(6))),
    one("LayerNorm 0=6 2=0", VECTOR),
    one("LayerNorm 0=30 1=0.00001", IMAGE, plain(numbers(30), numbers(30))),
    one("LayerNorm 0=6 2=0", VOLUME),
    one("RMSNorm 0=6 1=0.01", IMAGE, plain(numbers(6))),
    one("GroupNorm 0=2 1=4 2=0.01", IMAGE, plain(numbers(4), numbers(4))),
    one("GroupNorm 0=2 1=4 3=0", FOUR[0]),
    one("BatchNorm 0=4 1=0.01", IMAGE, plain(*FOUR)),
    one("BatchNorm 0=4", FOUR[3], plain(*FOUR)),
    one("Scale 0=4", IMAGE, plain(FOUR[0])),
    one("Scale 0=4 1=1", IMAGE, plain(FOUR[0], FOUR[1])),
    one("Scale 0=5 1=1", MATRIX, plain(np.arange(5), [1] * 5)),
    Case("Scale 0=-233", [IMAGE, FOUR[0]]),
    one("Bias 0=4", IMAGE, plain(FOUR[0])),
    one("InstanceNorm 0=4 1=0.01", IMAGE, plain(FOUR[0], FOUR[1])),
    one("InstanceNorm 0=0 2=0", IMAGE),
    one("Normalize 0=0 1=0 2=0.01 3=4 4=1", IMAGE, plain(FOUR[0])),
    one("Normalize 0=1 1=1 2=5.0 3=1 4=0 9=1", IMAGE, plain([2])),
    one("Normalize 0=1 1=1 2=200.0 3=1 4=1 9=2", IMAGE, plain([2])),
    one("LRN 1=3 2=2.0 3=0.5 4=1.5", IMAGE),
    one("Softmax", IMAGE),
    one("Softmax 0=1 1=1", IMAGE),
    one("Softmax 0=-1 1=1", IMAGE),
    one("Softmax 0=1 1=1", MATRIX),
    one("Softmax 0=0 1=1", VECTOR),
    # Shapes.
    Case("Concat 0=0", [IMAGE, IMAGE[:2].copy()]),
    Case("Concat 0=-1", [IMAGE, IMAGE[:, :, :2].copy()]),
    Case("Concat 0=0", [VECTOR, VECTOR, FOUR[0]]),
    Case("Slice -23300=2,1,-233", [IMAGE], outputs=2),
    Case("Slice -23300=3,-233,-233,-233 1=2", [IMAGE], outputs=3),
    Case("Slice -23302=2,1,-2 1=1", [IMAGE], outputs=3),
    one("Crop 0=1 1=2 2=1 3=4 4=2 5=2", IMAGE),
    one("Crop 0=1 3=-233 4=-233 5=-233 6=2 8=1", IMAGE),
    one("Crop -23309=2,1,-3 -23310=2,3,-1 -23311=2,0,2", IMAGE),
    one("Crop -23309=1,1 -23310=1,-233 -23311=1,-1", IMAGE),
    one("Crop -23309=2,1,0 -23310=2,0,2 -23311=2,0,1", IMAGE),
    Case("Crop", [IMAGE, numbers(4, 3, 2)]),
    Case("Crop 0=2 1=1", [IMAGE, numbers(4, 3, 2)]),
    one("Padding 0=1 1=2 2=3 3=4 5=0.5", IMAGE),
    one("Padding 0=1 1=2 2=3 3=4 4=1", IMAGE),
    one("Padding 0=1 1=2 2=3 3=4 4=2", IMAGE),
    one("Padding 7=1 8=2 5=0.5", IMAGE),
    one("Padding 2=1 3=2", VECTOR),
    one("Padding 0=1 2=2", MATRIX),
    one("Reshape 0=-1", IMAGE),
    one("Reshape 0=0 1=-1", IMAGE),
    one("Reshape 0=0 1=-1 2=2", IMAGE),
    one("Reshape 0=10 1=3 2=0", IMAGE),
    *(one(f"Permute 0={kind}", IMAGE) for kind in range(6)),
    one("Permute 0=1", MATRIX),
    *(one(f"Permute 0={kind}", VOLUME) for kind in range(24)),
    one("Reshape 0=3 1=2 11=5 2=-1", IMAGE),
    one('Reshape 6="0h,0w,0c"', IMAGE),
    one('Reshape 6="-1,0c"', IMAGE),
    one("Reshape 0=-1 1=0", VOLUME),
    one("Tile 0=1 1=2", IMAGE),
    one("Tile -23302=2,2,3", MATRIX),
    one("Tile -23302=3,2,1,3", MATRIX),
    one("Tile -23302=4,1,2,1,3", IMAGE),
    one("Softmax 0=3 1=1", VOLUME),
    Case("Slice -23300=3,1,2,-233 1=1", [VOLUME], outputs=3),
    one("Reduction 0=3 1=0 -23303=2,1,-1 4=0 5=1", VOLUME),
    one("Squeeze 0=1 1=1 2=1", IMAGE[:, :1, :1].copy()),
    one("Squeeze 1=1", IMAGE[:1, :1].copy()),
    one("Squeeze -23303=2,0,-1", IMAGE[:1, :, :1].copy()),
    one("ExpandDims -23303=1,0", MATRIX),
    one("ExpandDims -23303=2,0,-1", VECTOR),
    one("ShuffleChannel 0=2", IMAGE),
    one("ShuffleChannel 0=3", SIX),
    one("ShuffleChannel 0=3 1=1", SIX),
    one("PixelShuffle 0=2", IMAGE),
    one("PixelShuffle 0=2 1=1", EIGHT),
    Case("Split", [IMAGE], outputs=3),
    # Resizing.
    one("Interp 0=1 1=2.0 2=3.0", IMAGE),
    one("Interp 0=1 3=3 4=4", IMAGE),
    one("Interp 0=1 1=1.5 2=0.5", IMAGE),
    one("Interp 0=2 1=2.0 2=2.0", IMAGE),
    one("Interp 0=2 3=7 4=4", IMAGE),
    one("Interp 0=2 3=7 4=9 6=1", IMAGE),
    one("Interp 0=1 1=2.0 2=3.0", VECTOR),
    Case("Interp 0=1 5=1", [IMAGE, numbers(1, 10, 12)]),
]


def by_name(case: Case) -> str:
    return f"{case.layer} on {' and '.join('x'.join(map(str, array.shape)) for array in case.inputs)}"
