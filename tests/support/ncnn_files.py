"""Small ncnn networks that tests write, and ncnn itself to run them."""

import struct
from collections.abc import Mapping, Sequence
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
