"""Small ncnn networks that tests write, and ncnn itself to run them."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FLOAT16, BFLOAT16, INT8, SCALED = 0x01306B47, 0x01348B83, 0x000D4B38, 0x0002C056


def plain(*arrays: object) -> bytes:
    """float32 values as biases are stored."""
    return b"".join(np.asarray(array, "<f4").tobytes() for array in arrays)


def tagged(array: object, tag: int = 0) -> bytes:
    """Weights as those of convolutions are stored: a tag, values, zeros up to four bytes."""
    values = np.asarray(array, "<f4")
    stored = {
        FLOAT16: lambda: values.astype("<f2").tobytes(),
        BFLOAT16: lambda: (values.view("<u4") >> 16).astype("<u2").tobytes(),
        INT8: lambda: values.astype("i1").tobytes(),
    }.get(tag, values.tobytes)()
    return struct.pack("<I", tag) + stored + bytes(-len(stored) % 4)


def table(values: Sequence[float], places: Sequence[int], tag: int = 1) -> bytes:
    """Weights as places in a table of 256 values."""
    filled = [*values, *[0.0] * (256 - len(values))]
    return struct.pack("<I256f", tag, *filled) + bytes(places) + bytes(-len(places) % 4)


def write(folder: Path, layers: Sequence[str], weights: bytes = b"", name: str = "net") -> Path:
    """Write both files, counts included; the path of the `.param`."""
    words = [line.split() for line in layers]
    blobs = sum(int(line[3]) for line in words)
    path = folder / f"{name}.param"
    path.write_text("\n".join(["7767517", f"{len(layers)} {blobs}", *layers]) + "\n")
    path.with_suffix(".bin").write_bytes(weights)
    return path


def run_in_ncnn(path: Path, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, np.ndarray]:
    """What ncnn makes of a network, in single precision; arrays without a batch."""
    import ncnn

    network = ncnn.Net()
    options = ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "winograd_convolution")
    for option in options:
        setattr(network.opt, f"use_{option}", False)
    network.opt.num_threads = 1
    assert network.load_param(str(path)) == 0
    assert network.load_model(str(path.with_suffix(".bin"))) == 0
    found = {}
    with network.create_extractor() as extractor:
        for name, array in inputs.items():
            whole = np.ascontiguousarray(array, np.float32)  # a matrix does not keep its memory alive
            extractor.input(name, ncnn.Mat(whole).clone())
        for name in outputs:
            code, matrix = extractor.extract(name)
            assert code == 0
            found[name] = np.array(matrix)
    return found


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


def one(layer: str, data: np.ndarray, *weights: bytes) -> Case:
    return Case(layer, [data], b"".join(weights))


def each(layer: str, data: np.ndarray, ways: str, *weights: bytes) -> list[Case]:
    """Layers that have some parameters in common, and differ in those between bars."""
    return [one(" ".join([layer, *way.split()]), data, *weights) for way in ways.split("|")]


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
    *each(
        "Convolution 0=3 1=3 6=108",
        IMAGE,
        """ | 2=2 3=1 4=2 14=1 15=1 16=3 12=1 13=2 | 3=2 4=-233 | 3=2 4=-234 | 4=1 18=2.5 | 9=1 | 9=2 -23310=1,0.1
        | 9=3 10=-1.0,2.0 | 9=4 | 9=5 | 9=6 -23310=2,0.2,0.4""",
        tagged(W33),
    ),
    one("Convolution 0=3 1=3 5=1 6=108", IMAGE, tagged(W33), plain(BIAS)),
    one("Convolution 0=2 1=1 5=1 6=12 9=1", VECTOR, tagged(W33[0, :2, :, :2].copy()), plain([1, 1])),
    one("ConvolutionDepthWise 0=4 1=3 4=1 5=1 6=36 7=4 9=1", IMAGE, tagged(DEPTHWISE), plain(FOUR[0])),
    one("ConvolutionDepthWise 0=8 1=1 11=3 6=48 7=2", IMAGE, tagged(W57)),
    *each(
        "Deconvolution 0=3 1=3 3=2 6=108",
        IMAGE,
        " | 2=2 4=1 15=0 14=0 16=2 9=1 | 4=-233 20=12 21=10 | 4=-234 20=12 21=10",
        tagged(UP),
    ),
    one("Deconvolution 0=3 1=3 3=2 4=1 5=1 6=108 18=1", IMAGE, tagged(UP), plain(BIAS)),
    one("DeconvolutionDepthWise 0=4 1=2 3=2 6=32 7=2", IMAGE, tagged(UP_GROUPS)),
    one("InnerProduct 0=7 2=840", IMAGE, tagged(DENSE)),
    one("InnerProduct 0=7 1=1 2=840 9=1", IMAGE, tagged(DENSE), plain([0.5] * 7)),
    one("InnerProduct 0=3 1=1 2=18", MATRIX, tagged(DENSE_ROWS), plain(BIAS)),
    # Pooling: the largest value, then the mean.
    *each(
        "Pooling 0=0", IMAGE, "1=3 2=2 | 1=2 2=2 | 1=3 2=2 3=1 5=1 | 1=3 2=2 5=2 | 1=3 2=2 5=3 | 4=1 | 7=1 8=2 18=-233"
    ),
    *each(
        "Pooling 0=1",
        IMAGE,
        "1=2 2=2 | 1=2 2=2 6=1 | 1=3 2=1 3=1 13=0 14=0 15=2 5=1 | 1=3 2=2 5=2 | 4=1 | 7=1 8=3 18=1",
    ),
    # Reductions.
    *(one(f"Reduction 0={kind} 1=0 -23303=2,1,-1 4={keep} 5=1", POSITIVE) for keep in (0, 1) for kind in range(11)),
    *each("Reduction", IMAGE, "0=3 | 0=3 4=1 | 0=0 1=0 2=2.0 -23303=1,0 5=1"),
    one("Reduction 0=3 1=0 -23303=2,1,-1 4=0 5=1", VOLUME),
    # Activations.
    *(one(kind, IMAGE) for kind in ("ReLU", "Sigmoid", "TanH", "Swish", "Mish", "HardSigmoid", "ELU", "SELU", "GELU")),
    *(one(kind, IMAGE) for kind in ("AbsVal", "BNLL", "Dropout", "Erf", "Softplus", "Flatten", "Noop")),
    *(
        one(layer, IMAGE)
        for layer in ("ReLU 0=0.1", "HardSwish 0=0.1666667", "GELU 0=1", "Dropout 0=0.5", "CELU 0=0.5")
    ),
    one("PReLU 0=4", IMAGE, plain(FOUR[0])),
    one("PReLU 0=1", IMAGE, plain([0.3])),
    one("PReLU 0=6", VECTOR, plain([1, 2, 3, 4, 5, 6])),
    *each("Clip", IMAGE, "0=0.0 1=1.5 | 0=-0.5 | 0=-3.402823e+38 1=0.5"),
    *each("GLU", IMAGE, "0=0 | 0=-1"),
    *(one(f"UnaryOp 0={kind}", IMAGE) for kind in (0, 1, 2, 3, 4, 7, 9, 10, 14, 16, 18)),
    *(one(f"UnaryOp 0={kind}", POSITIVE) for kind in (5, 6, 8, 15, 17)),
    *(one(f"UnaryOp 0={kind}", INSIDE) for kind in (11, 12, 13)),
    one("UnaryOp 0=18", np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])),
    one("Power 0=2.0 1=0.5 2=3.0", POSITIVE),
    *each("Exp", IMAGE, "1=0.5 2=0.25 | 0=2.0"),
    *each("Log", POSITIVE, "1=0.5 2=0.25 | 0=10.0"),
    # Arithmetic.
    *(Case(f"BinaryOp 0={kind}", [POSITIVE, POSITIVE[::-1].copy()]) for kind in range(10)),
    *each("BinaryOp 1=1", IMAGE, "0=0 2=0.7 | 0=7 2=0.7 | 0=9 2=2.0"),
    Case("BinaryOp 0=2", [IMAGE, FOUR[0]]),
    Case("BinaryOp 0=1", [FOUR[0], IMAGE]),
    *(
        Case("BinaryOp 0=0", [IMAGE, other])
        for other in (VECTOR, IMAGE[:, :, 0].copy(), IMAGE[:1, :, :1].copy(), np.float32([3]))
    ),
    Case("BinaryOp 0=0", [MATRIX, MATRIX[:, 0].copy()]),
    Case("BinaryOp 0=0", [VOLUME, numbers(2)]),
    Case("BinaryOp 0=2", [VOLUME, VOLUME[:, :, :1, :1].copy()]),
    *(Case(f"Eltwise 0={kind}", [IMAGE, OTHER, POSITIVE]) for kind in (0, 2)),
    *(Case(f"Eltwise 0=1{weights}", [IMAGE, OTHER]) for weights in ("", " -23301=2,0.5,-1.0")),
    # Products of matrices.
    *(Case("MatMul", [SQUARE, other]) for other in (MATRIX, IMAGE)),
    *(Case("MatMul", [data, VECTOR]) for data in (VECTOR, MATRIX, IMAGE)),
    *(Case("MatMul", [numbers(5), other]) for other in (MATRIX, IMAGE)),
    Case("MatMul", [VOLUME, numbers(2, 4, 6, 3)]),
    *(Case("MatMul 0=1", [IMAGE, other]) for other in (VECTOR, RIGHT, OTHER)),
    Case("MatMul 0=1", [MATRIX, RIGHT]),
    Case("MatMul 0=1", [VOLUME, IMAGE]),
    Case("Gemm 0=0.5 1=2.0", [SQUARE, MATRIX, VECTOR]),
    Case("Gemm 2=1 3=1", [LEFT.T.copy(), MATRIX.T.copy()]),
    Case("Gemm", [SQUARE, MATRIX, numbers(5, 1)]),
    one("Gemm 3=1 5=1 6=1 10=-1 8=7 9=6", MATRIX, tagged(RIGHT)),
    one("Gemm 3=1 5=1 6=1 10=4 8=7 9=6", MATRIX, tagged(RIGHT), tagged(numbers(7))),
    one("Gemm 5=1 6=1 10=3 7=5 8=7 9=6", MATRIX, tagged(numbers(6, 7)), tagged(numbers(5, 7))),
    one("Gemm 4=1 6=1 7=4 9=5 10=1 14=1", MATRIX, tagged(LEFT), tagged(numbers(4))),
    Case("SDPA", [QUERY, KEY, VALUE]),
    Case("SDPA 5=1 6=0.3", [QUERY, KEY, VALUE, numbers(3, 5)]),
    one("MultiHeadAttention 0=6 1=2 2=36", MATRIX, PROJECTIONS),
    Case("MultiHeadAttention 0=6 1=3 2=36 5=1", [MATRIX, RIGHT, numbers(5, 7)], PROJECTIONS),
    # Normalisation.
    *(one("LayerNorm 0=6 2=0", data) for data in (VECTOR, VOLUME)),
    one("LayerNorm 0=6 1=0.01", MATRIX, plain(numbers(6), numbers(6))),
    one("LayerNorm 0=30 1=0.00001", IMAGE, plain(numbers(30), numbers(30))),
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
    *each("Normalize 0=1 1=1 3=1", IMAGE, "2=5.0 4=0 9=1 | 2=200.0 4=1 9=2", plain([2])),
    one("LRN 1=3 2=2.0 3=0.5 4=1.5", IMAGE),
    *each("Softmax", IMAGE, " | 0=1 1=1 | 0=-1 1=1"),
    *(one(f"Softmax 0={axis} 1=1", data) for axis, data in ((0, VECTOR), (1, MATRIX), (3, VOLUME))),
    # Shapes.
    Case("Concat 0=0", [IMAGE, IMAGE[:2].copy()]),
    Case("Concat 0=-1", [IMAGE, IMAGE[:, :, :2].copy()]),
    Case("Concat 0=0", [VECTOR, VECTOR, FOUR[0]]),
    Case("Slice -23300=2,1,-233", [IMAGE], outputs=2),
    Case("Slice -23300=3,-233,-233,-233 1=2", [IMAGE], outputs=3),
    Case("Slice -23302=2,1,-2 1=1", [IMAGE], outputs=3),
    Case("Slice -23300=3,1,2,-233 1=1", [VOLUME], outputs=3),
    *each(
        "Crop",
        IMAGE,
        """0=1 1=2 2=1 3=4 4=2 5=2 | 0=1 3=-233 4=-233 5=-233 6=2 8=1 | -23309=2,1,-3 -23310=2,3,-1 -23311=2,0,2
        | -23309=1,1 -23310=1,-233 -23311=1,-1 | -23309=2,1,0 -23310=2,0,2 -23311=2,0,1""",
    ),
    *(Case(f"Crop{begin}", [IMAGE, numbers(4, 3, 2)]) for begin in ("", " 0=2 1=1")),
    *each("Padding", IMAGE, "0=1 1=2 2=3 3=4 5=0.5 | 0=1 1=2 2=3 3=4 4=1 | 0=1 1=2 2=3 3=4 4=2 | 7=1 8=2 5=0.5"),
    one("Padding 2=1 3=2", VECTOR),
    one("Padding 0=1 2=2", MATRIX),
    *each("Reshape", IMAGE, "0=-1 | 0=0 1=-1 | 0=0 1=-1 2=2 | 0=10 1=3 2=0 | 0=3 1=2 11=5 2=-1"),
    *each("Reshape", IMAGE, '6="0h,0w,0c" | 6="-1,0c"'),
    one("Reshape 0=-1 1=0", VOLUME),
    *(one(f"Permute 0={kind}", IMAGE) for kind in range(6)),
    one("Permute 0=1", MATRIX),
    *(one(f"Permute 0={kind}", VOLUME) for kind in range(24)),
    *each("Tile", IMAGE, "0=1 1=2 | -23302=4,1,2,1,3"),
    *each("Tile", MATRIX, "-23302=2,2,3 | -23302=3,2,1,3"),
    one("Squeeze 0=1 1=1 2=1", IMAGE[:, :1, :1].copy()),
    one("Squeeze 1=1", IMAGE[:1, :1].copy()),
    one("Squeeze -23303=2,0,-1", IMAGE[:1, :, :1].copy()),
    one("ExpandDims -23303=1,0", MATRIX),
    one("ExpandDims -23303=2,0,-1", VECTOR),
    one("ShuffleChannel 0=2", IMAGE),
    *each("ShuffleChannel 0=3", SIX, " | 1=1"),
    one("PixelShuffle 0=2", IMAGE),
    one("PixelShuffle 0=2 1=1", EIGHT),
    Case("Split", [IMAGE], outputs=3),
    # Resizing.
    *each("Interp 0=1", IMAGE, "1=2.0 2=3.0 | 3=3 4=4 | 1=1.5 2=0.5"),
    *each("Interp 0=2", IMAGE, "1=2.0 2=2.0 | 3=7 4=4 | 3=7 4=9 6=1"),
    one("Interp 0=1 1=2.0 2=3.0", VECTOR),
    Case("Interp 0=1 5=1", [IMAGE, numbers(1, 10, 12)]),
]


def by_name(case: Case) -> str:
    return f"{case.layer} on {' and '.join('x'.join(map(str, array.shape)) for array in case.inputs)}"
