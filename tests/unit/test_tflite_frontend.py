"""TensorFlow Lite files: recognised, imported in NCHW, equal to LiteRT operator by operator; damaged ones refused."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from flatbuffers import flexbuffers
from support.agreement import assert_matches_reference, computed, outputs_of, random_inputs
from support.commands import put
from support.fuzzing import damaged, peak_of, survive
from support.tflite_networks import Steps, lstm, of_one, small, sparse
from tvm import relax
from unit.test_passes import module_of

from edgedeploy.compile.ir.expressions import constant_value, is_call, parts_of, shape_of
from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import InputError, ModelError, NotInstalledError
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.tflite import FORMAT
from edgedeploy.frontends.tflite.importer import in_nchw
from edgedeploy.model.network import Network
from edgedeploy.target.board import load_board


def imported(folder: Path, content: bytes) -> Network:
    return FORMAT.read([put(folder / "net.tflite", content)], {})


def network_file(folder: Path, **options: object) -> Path:
    return put(folder / "net.tflite", small(**options))  # type: ignore[arg-type]


def test_files_are_recognised_by_their_identifier(tmp_path: Path) -> None:
    assert describing(put(tmp_path / "net", b"\x1c\0\0\0TFL3" + bytes(40)))[0] is FORMAT


def test_litert_prints_nothing_between_the_lines_of_a_build(tmp_path: Path) -> None:
    """It would tell once in each process that it takes its usual kernels."""
    ask = "import sys; from pathlib import Path; from edgedeploy.frontends.tflite.reference import _interpreter as of\n"
    ask += "of(Path(sys.argv[1]).read_bytes(), delegates=True)"
    command = [sys.executable, "-c", ask, network_file(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.stdout, done.stderr) == (b"", b"")


def absent(package: str) -> str:
    raise metadata.PackageNotFoundError(package)


def test_without_its_packages_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(NotInstalledError, match="package tflite is needed") as raised:
        imported(tmp_path, b"\x1c\0\0\0TFL3")
    assert raised.value.hints == ("pip install 'edgedeploy[build]'",)


@pytest.mark.compiles
def test_a_network_gives_litert_s_values_under_its_own_names_without_a_transpose(tmp_path: Path) -> None:
    network = FORMAT.read([network_file(tmp_path)], {})
    assert [(spec.name, spec.shape) for spec in network.inputs] == [("image", [1, 8, 8, 3])]
    assert [(spec.name, spec.shape) for spec in network.outputs] == [("scores", [1, 1, 1, 8])]
    compiled = compile_network(network, load_board("local"))
    assert transposes(compiled) == {"edges": 0, "inside": 0}
    inputs = {"image": np.random.default_rng(1).standard_normal((1, 8, 8, 3)).astype(np.float32)}
    (found,), (wanted,) = outputs_of(compiled, inputs), network.reference(inputs).values()
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert network.reference_name.startswith("LiteRT ")
    [others] = network.other_kernels[0](inputs).values()
    assert 0 < np.abs(others - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_resize_of_nhwc_images_becomes_one_of_planes() -> None:
    def resized(builder: relax.BlockBuilder, image: relax.Expr) -> relax.Expr:
        return relax.op.image.resize2d(image, (8, 12), layout="NHWC", method="linear")

    script = in_nchw(module_of(resized, (1, 4, 6, 3))).script()
    assert 'layout="NCHW"' in script
    assert "R.Tensor((1, 8, 12, 3)" in script


def test_what_lies_between_convolutions_of_nhwc_images_needs_no_transpose() -> None:
    random = np.random.default_rng(0)

    def constant(*shape: int) -> relax.Expr:
        return relax.const(random.standard_normal(shape).astype(np.float32))

    def convolved(builder: relax.BlockBuilder, data: relax.Expr, channels: int) -> relax.Expr:
        weights = constant(3, 3, int(data.ty.shape[3]), channels)
        made = relax.op.nn.conv2d(data, weights, padding=1, data_layout="NHWC", kernel_layout="HWIO")
        return builder.emit(relax.op.add(builder.emit(made), constant(channels)))

    def between(builder: relax.BlockBuilder, image: relax.Expr) -> relax.Expr:
        data = builder.emit(relax.op.clip(convolved(builder, image, 16), 0, 6))
        data = builder.emit(relax.op.nn.pad(data, [0, 0, 1, 2, 3, 0, 0, 0]))
        data = builder.emit(relax.op.nn.prelu(data, constant(16), axis=3))
        data = builder.emit(relax.op.nn.max_pool2d(data, [2, 2], [2, 2], layout="NHWC"))
        gate = builder.emit(relax.op.sigmoid(builder.emit(relax.op.mean(data, [1, 2], keepdims=True))))
        data = builder.emit(relax.op.concat([data, builder.emit(relax.op.multiply(data, gate))], 3))
        data = builder.emit(relax.op.nn.leakyrelu(convolved(builder, data, 8), 0.1))
        return relax.op.mean(data, [1, 2])

    module = in_nchw(module_of(between, (1, 8, 12, 3)))
    network = Network(Path("net"), module, [], [], False, lambda inputs: {}, "nothing")
    assert transposes(lower_network(network, load_board("local"))) == {"edges": 0, "inside": 0}


@pytest.mark.parametrize("rows", [0, -1, 2**31 - 1])
def test_impossible_shapes_are_refused(tmp_path: Path, rows: int) -> None:
    with pytest.raises(ModelError, match="'image' has an impossible shape"):
        FORMAT.read([network_file(tmp_path, rows=rows)], {})


def test_shapes_are_those_of_the_file(tmp_path: Path) -> None:
    path = network_file(tmp_path)
    assert FORMAT.read([path], {"image": [1, 8, 8, 3]}).inputs[0].shape == [1, 8, 8, 3]
    with pytest.raises(InputError, match="cannot be changed"):
        FORMAT.read([path], {"image": [1, 16, 16, 3]})
    with pytest.raises(InputError, match="its inputs: image"):
        FORMAT.read([path], {"photo": [1, 8, 8, 3]})


@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_end_in_errors_of_ours(tmp_path: Path, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    whole = network_file(tmp_path).read_bytes()
    random = np.random.default_rng(count)
    for _ in range(count):
        path = put(tmp_path / "damaged.tflite", damaged(whole, random))
        survive(lambda path=path: FORMAT.read([path], {}))
    assert "BlockBuilder" not in capfd.readouterr().err


def test_damaged_files_take_no_memory(tmp_path: Path) -> None:
    whole = network_file(tmp_path).read_bytes()
    random = np.random.default_rng(5)
    FORMAT.read([network_file(tmp_path)], {})  # which imports TVM's frontend
    for _ in range(40):
        path = put(tmp_path / "damaged.tflite", damaged(whole, random))
        assert peak_of(lambda path=path: FORMAT.read([path], {})) < 8 << 20


# LSTMs over sequences.


@pytest.mark.compiles
@pytest.mark.parametrize(
    "settings",
    [
        {},
        # Of several sequences that begin with the batch, LiteRT 2.3 gives other values in each run.
        {"both": True, "batch": 1},
        pytest.param({"both": True, "merged": False, "time_major": True}, marks=pytest.mark.slow),
        {"coupled": True, "peepholes": True},
        pytest.param({"coupled": True}, marks=pytest.mark.slow),
        pytest.param({"peepholes": True, "cell_clip": 0.3}, marks=pytest.mark.slow),
    ],
    ids=lambda settings: " ".join(settings) or "plain",
)
def test_an_lstm_gives_litert_values(settings: dict[str, Any], tmp_path: Path) -> None:
    network = imported(tmp_path, lstm(**settings))
    assert_matches_reference(network, random_inputs(network, seed=0), atol=1e-6)


def test_an_lstm_that_projects_its_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="an LSTM projects its state"):
        imported(tmp_path, lstm(projected=True))


# Operators one by one give LiteRT's values; MediaPipe's custom ones what they are defined to be.

RANDOM = np.random.default_rng(7)
SAME, VALID, RELU, RELU6 = 0, 1, 1, 3


def values(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def check(folder: Path, content: bytes, *, inputs: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
    network = imported(folder, content)
    inputs = inputs or {spec.name: values(*spec.shape) for spec in network.inputs}
    found = computed(network, inputs)
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(array, wanted, rtol=0, atol=2e-6 * max(1, np.abs(wanted).max()))
    return found


def networks() -> Iterator[tuple[str, bytes]]:
    """A file of one operator for each of its uses."""
    for slopes in [(1, 1, 6), (6,), (1, 5, 1), (4, 5, 6)]:  # along any axes
        yield f"PRELU of {slopes}", of_one("PRELU", [(1, 4, 5, 6), values(*slopes)], [(1, 4, 5, 6)])
    for operator, size, mode in product(
        ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"],
        [(9, 8), (1, 8), (1, 1)],
        ["", "AlignCorners", "HalfPixelCenters"],
    ):
        given, options = [(1, 5, 4, 3), np.int32(size)], {mode: True} if mode else {}
        yield f"{operator} to {size} {mode}", of_one(operator, given, [(1, *size, 3)], options, version=3)
    for axis, batch, data, indices, output in [  # for each part of a batch
        (1, 1, (2, 3, 4), (2, 2), (2, 2, 4)),
        (2, 1, (2, 3, 4), (2, 5), (2, 3, 5)),
        (2, 2, (2, 3, 4, 2), (2, 3, 1), (2, 3, 1, 2)),
        (-1, -1, (2, 3, 4), (2, 2), (2, 3, 2)),
        (1, 0, (2, 3, 4), (2, 2), (2, 2, 2, 4)),
    ]:
        places = np.arange(np.prod(indices), dtype=np.int32).reshape(indices) % data[axis]
        options = {"Axis": axis, "BatchDims": batch}
        yield f"GATHER {axis} {batch} {data}", of_one("GATHER", [data, places], [output], options, version=5)
    yield "DEPTH_TO_SPACE", of_one("DEPTH_TO_SPACE", [(1, 3, 4, 12)], [(1, 6, 8, 3)], {"BlockSize": 2})
    for shape, kept, output in [
        ((2, 1, 6), False, (2, 4)),
        ((1, 1, 1, 6), False, (1, 4)),
        ((2, 3, 2), False, (2, 4)),
        ((2, 3, 6), True, (2, 3, 4)),
        ((3, 6), False, (3, 4)),
    ]:
        given, options = [shape, values(4, 6), values(4)], {"KeepNumDims": kept, "FusedActivationFunction": 1}
        yield f"FULLY_CONNECTED of {shape}", of_one("FULLY_CONNECTED", given, [output], options, version=5)
    for (padding, kernel, output), bias in product(
        [(SAME, 3, (8, 10)), (SAME, 3, (7, 9)), (SAME, 2, (8, 10)), (VALID, 3, (9, 11)), (VALID, 2, (8, 10))],
        [True, False],
    ):
        given = [np.int32([1, *output, 4]), values(4, kernel, kernel, 3), (1, 4, 5, 3), *([values(4)] if bias else [])]
        options = {"Padding": padding, "StrideH": 2, "StrideW": 2}
        name = f"TRANSPOSE_CONV {padding} {kernel} to {output}{'' if bias else ' without a bias'}"
        yield name, of_one("TRANSPOSE_CONV", given, [(1, *output, 4)], options, version=3)


def windows_and_weights() -> Iterator[tuple[str, bytes]]:
    for (body, start), (sizes, strides, padding) in product(
        {"MAXIMUM": -np.inf, "MINIMUM": np.inf, "ADD": 0.0}.items(),
        [
            ([1, 1, 2, 2], [1, 1, 2, 2], [0] * 8),
            ([1, 3, 2, 1], [1, 2, 1, 1], [0, 0, 1, 0, 0, 1, 0, 0]),
            ([1, 1, 2, 2, 2], [1, 1, 2, 2, 2], [0] * 10),
            ([2, 3], [1, 2], [0, 1, 1, 1]),
        ],
    ):
        shape = [1, 6, 7, 8, 6][: len(sizes)] if len(sizes) > 2 else [6, 7]
        rows = zip(shape, sizes, strides, padding[::2], padding[1::2], strict=True)
        made = [(size + before + after - window) // stride + 1 for size, window, stride, before, after in rows]
        vectors = {"WindowDimensions": sizes, "WindowStrides": strides, "Padding": padding}
        options = {name: np.array(vector, np.int64) for name, vector in vectors.items()}
        options |= {name: np.ones(len(sizes), np.int64) for name in ("BaseDilations", "WindowDilations")}
        given, options["BodySubgraphIndex"] = [shape, np.array(start, np.float32)], 1
        yield f"{body} of windows {sizes}", of_one("STABLEHLO_REDUCE_WINDOW", given, [made], options, body=body)
    for dtype, (title, count, *form) in product(
        ["float16", "float32"],
        [
            ("rows", 3, (3, 4), (0, 1), (), (3, ("Int32Vector", [0, 2, 2, 3], [0, 3, 1]))),
            ("columns", 4, (4, 3), (1, 0), (), (3, ("Uint8Vector", [0, 1, 3, 4], [2, 0, 3, 1]))),
            ("blocks", 18, (4, 6), (0, 1, 2, 3), (0, 1), (2, ("Uint16Vector", [0, 1, 3], [1, 0, 1]), 2, 3)),
            ("blocks of columns", 8, (2, 8), (0, 1, 2), (1,), (2, ("Uint8Vector", [0, 1, 2], [1, 0]), 4)),
        ],
    ):
        yield f"DENSIFY of {title} of {dtype}", sparse(values(count, dtype=dtype), *form)
    for shape in [(1, 7, 2), (1, 7, 3)]:
        yield f"TransformLandmarks of {shape}", of_one("TransformLandmarks", [shape, (1, 4, 4)], [shape], version=2)


NETWORKS = dict([*networks(), *windows_and_weights()])
REDUNDANT = ("MINIMUM", "ADD", "without a bias", "of float32")


@pytest.mark.compiles
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(content, id=name, marks=pytest.mark.slow if any(part in name for part in REDUNDANT) else ())
        for name, content in NETWORKS.items()
    ],
)
def test_an_operator_gives_litert_s_values(tmp_path: Path, content: bytes) -> None:
    check(tmp_path, content)


@pytest.mark.parametrize(
    "levels",
    [
        (3, ("Int32Vector", [0, 2, 2, 3], [0, 4, 1])),  # an index outside
        (3, ("Int32Vector", [0, 2, 2, 4], [0, 3, 1])),  # more than there are indices
        (3, ("Int32Vector", [0, 2], [0, 3])),
        (1_000_000, ("Int32Vector", [0, 2, 2, 3], [0, 3, 1])),
    ],
    ids=["index", "segments", "rows", "size"],
)
def test_sparse_weights_that_do_not_fit_are_refused(tmp_path: Path, levels: Any) -> None:
    with pytest.raises(ModelError, match=r"DENSIFY cannot be imported: node 'dense': sparse weights are malformed"):
        imported(tmp_path, sparse(values(3), (3, 4), (0, 1), (), levels))


def test_a_few_bytes_that_stand_for_huge_weights_are_refused(tmp_path: Path) -> None:
    side = 30_000
    with pytest.raises(ModelError, match="sparse weights of 900,000,000 values are not supported"):
        imported(tmp_path, sparse(values(3), (side, side), (0, 1), (), (side, side)))


SIDES = np.int32([2**16, 2**15])
ONE = np.float32([[1]])


@pytest.mark.parametrize(
    ("operator", "inputs", "options"),
    [
        ("BROADCAST_TO", [ONE, SIDES], {}),
        ("FILL", [SIDES, ONE[0, 0]], {}),
        ("ONE_HOT", [np.arange(2**15, dtype=np.int32), SIDES[0], ONE[0, 0], ONE[0, 0] - 1], {"Axis": -1}),
        ("RANGE", [np.int32(0), np.int32(2**30), np.int32(1)], {}),
        ("TILE", [ONE, SIDES], {}),
    ],
)
def test_huge_constants_are_refused(tmp_path: Path, operator: str, inputs: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"of the network fill the memory: operator \w+ makes [\d,]{13} bytes"):
        imported(tmp_path, of_one(operator, [np.asarray(each) for each in inputs], [(2, 2)], options))


def test_an_unknown_operator_is_named_with_its_node(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"operator FlexSpecial \(custom\) is not supported: node 'made0' needs it"):
        imported(tmp_path, of_one("FlexSpecial", [(1, 4)], [(1, 4)], custom=b""))
    with pytest.raises(ModelError, match=r"TransformLandmarks cannot be imported: node 'made0': version 1"):
        imported(tmp_path, of_one("TransformLandmarks", [(1, 4, 2), (1, 4, 4)], [(1, 4, 2)], custom=b""))


# MediaPipe's operators.


@pytest.mark.compiles
@pytest.mark.parametrize("size", [(4, 5), (3, 3)], ids=str)
def test_a_transposed_convolution_with_a_bias_is_that_of_litert(tmp_path: Path, size: tuple[int, int]) -> None:
    weights, bias = values(4, 2, 2, 3), values(4)
    output = (1, *(2 * length - length % 2 for length in size), 4)
    options = struct.pack("<3i", 1, 2, 2)
    ours = of_one("Convolution2DTransposeBias", [(1, *size, 3), weights, bias], [output], custom=options)
    data = values(1, *size, 3)
    [found] = check(tmp_path, ours, inputs={"given0": data})
    given = [np.array(output, np.int32), weights, (1, *size, 3), bias]
    fields = {"Padding": SAME, "StrideH": 2, "StrideW": 2}
    theirs = of_one("TRANSPOSE_CONV", given, [output], fields, version=3)
    [wanted] = imported(tmp_path, theirs).reference({"given2": data}).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.compiles
@pytest.mark.parametrize(("padding", "output"), [(1, (3, 4)), (2, (2, 3))], ids=["same", "valid"])
def test_pooling_gives_the_places_of_the_largest_values(tmp_path: Path, padding: int, output: tuple[int, int]) -> None:
    options = struct.pack("<6i", padding, 2, 2, 2, 2, 0)
    shapes, inputs = [(1, *output, 3)] * 2, {"given0": values(1, 5, 7, 3)}
    content = of_one("MaxPoolingWithArgmax2D", [(1, 5, 7, 3)], shapes, custom=options)
    largest, places = check(tmp_path, content, inputs=inputs)
    assert set(np.unique(np.floor(places))) <= {0, 1, 2, 3}
    fields = {"Padding": padding - 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    pool = of_one("MAX_POOL_2D", [(1, 5, 7, 3)], shapes[:1], fields)
    [wanted] = imported(tmp_path, pool).reference(inputs).values()
    np.testing.assert_array_equal(largest, wanted)
    assert largest.shape == places.shape == wanted.shape


@pytest.mark.compiles
def test_unpooling_puts_values_back_to_their_places(tmp_path: Path) -> None:
    options = struct.pack("<6i", 1, 2, 2, 2, 2, 0)
    places = RANDOM.integers(0, 4, (1, 3, 4, 5)) + np.float32(0.1)
    inputs = {"given0": values(1, 3, 4, 5), "given1": places.astype(np.float32)}
    content = of_one("MaxUnpooling2D", [(1, 3, 4, 5)] * 2, [(1, 6, 8, 5)], custom=options)
    [found] = check(tmp_path, content, inputs=inputs)
    assert np.count_nonzero(found) == 3 * 4 * 5


@pytest.mark.parametrize("side", [0, -1, 20_000])
def test_windows_and_crops_of_no_possible_size_are_refused(tmp_path: Path, side: int) -> None:
    windows = struct.pack("<6i", 1, *[max(side, 1)] * 2, side, side, 0)
    with pytest.raises(ModelError, match=r"windows of .* are not supported"):
        imported(tmp_path, of_one("MaxUnpooling2D", [(1, 3, 4, 5)] * 2, [(1, 6, 8, 5)], custom=windows))
    crop = crop_options(output_height=side, output_width=side)
    for operator, shapes in (
        ("Landmarks2TransformMatrix", [(1, 12, 3)]), ("TransformTensorBilinear", [(1, 8, 8, 3), (1, 4, 4)])
    ):  # fmt: skip
        with pytest.raises(ModelError, match=r"a crop of .* is not supported"):
            imported(tmp_path, of_one(operator, shapes, [(1, 4, 4)], custom=crop, version=2))


def crop_options(**changes: Any) -> bytes:
    sizes = {"output_height": 8, "output_width": 16}
    turn = {"left_rotation_idx": 2, "right_rotation_idx": 5, "target_rotation_radians": 0.3}
    return bytes(
        flexbuffers.Dumps({**sizes, **turn, "scale_x": 1.5, "scale_y": 1.25, "subset_idxs": [1, 2, 5, 7, 9], **changes})
    )


@pytest.mark.compiles
def test_a_crop_around_landmarks_holds_them_and_turns_them(tmp_path: Path) -> None:
    content = of_one("Landmarks2TransformMatrix", [(1, 12, 3)], [(1, 4, 4)], custom=crop_options(), version=2)
    landmarks = values(1, 12, 3) * 40 + 90
    [matrix] = check(tmp_path, content, inputs={"given0": landmarks})
    points = np.concatenate([landmarks[0, :, :2], np.zeros((12, 1)), np.ones((12, 1))], 1)
    subset = (points @ np.linalg.inv(matrix[0].astype(np.float64)).T)[:, :2][[1, 2, 5, 7, 9]]
    # The box around them fills the crop but for the enlargement, in its middle.
    np.testing.assert_allclose(subset.max(0) - subset.min(0), [16 / 1.5, 8 / 1.25], rtol=1e-4)
    np.testing.assert_allclose((subset.max(0) + subset.min(0)) / 2, [8, 4], rtol=1e-4)


def test_a_crop_around_landmarks_that_are_not_there_is_refused(tmp_path: Path) -> None:
    options = crop_options(subset_idxs=[1, 12])
    with pytest.raises(ModelError, match="landmarks that are not among its 12"):
        imported(tmp_path, of_one("Landmarks2TransformMatrix", [(1, 12, 3)], [(1, 4, 4)], custom=options, version=2))
    with pytest.raises(ModelError, match="its options are malformed"):
        imported(tmp_path, of_one("Landmarks2TransformMatrix", [(1, 12, 3)], [(1, 4, 4)], custom=b"no", version=2))


@pytest.mark.compiles
def test_an_image_is_sampled_at_the_places_that_a_matrix_gives(tmp_path: Path) -> None:
    options = bytes(flexbuffers.Dumps({"output_height": 5, "output_width": 6}))
    shapes = [(1, 9, 11, 4), (1, 4, 4)]
    content = of_one("TransformTensorBilinear", shapes, [(1, 5, 6, 4)], custom=options, version=2)
    matrix = np.eye(4, dtype=np.float32)[None]
    # Floats hold these places exactly: they are the same whether or not products are rounded before they are added.
    matrix[0, :2, :2], matrix[0, :2, 3] = [[1.375, 0.625], [-0.5, 1.75]], [1.25, 2.125]
    image = values(1, 9, 11, 4)
    [found] = check(tmp_path, content, inputs={"given0": image, "given1": matrix})
    assert (found == 0).any()  # outside of the image
    [same] = check(tmp_path, content, inputs={"given0": image, "given1": np.eye(4, dtype=np.float32)[None]})
    np.testing.assert_allclose(same, image[:, :5, :6], rtol=0, atol=1e-5)


# Quantised files: each operator as LiteRT computes it, within a step; weights stay integers.

IMAGE = (1, 6, 7, 8)


def integers(*shape: int, dtype: str = "int8", low: int = -127) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(max(limits.min, low), limits.max, shape, dtype, endpoint=True)


def check_steps(folder: Path, content: bytes, *, share: float = 0.03) -> Network:
    """Compare a compiled network with LiteRT: no value further than a step, and only a share of them off at all."""
    network = imported(folder, content)
    inputs = {
        spec.name: integers(*spec.shape, dtype=spec.dtype)
        if spec.dtype != "float32"
        else RANDOM.standard_normal(spec.shape).astype(np.float32)
        for spec in network.inputs
    }
    found = computed(network, inputs)
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
            continue
        away = np.abs(array.astype(int) - wanted.astype(int))
        assert away.max() <= 1
        assert (away > 0).mean() <= share
        assert len(np.unique(wanted)) > min(4, wanted.size // 2)  # of values that saturate nothing would be seen
    return network


def stored(network: Network) -> list[tuple[str, list[int], int]]:
    return [
        (str(each.args[0].ty.dtype), shape_of(each.args[0]), constant_value(each.args[1]).size)
        for each in parts_of(network.module["main"])
        if is_call(each, "relax.dequantize") and constant_value(each.args[0]) is not None
    ]


def steps_of(data: str, scales: int = 1, axis: int = 0) -> dict[str, Steps]:
    """Steps of a layer with weights, one for each channel or a single one; of uint8 with zero points everywhere."""
    of_weights: Any = np.linspace(0.01, 0.03, scales).tolist() if scales > 1 else 0.02
    bias = Steps("int32", (0.05 * np.asarray(of_weights)).tolist())
    if data == "uint8":
        others = {"given0": Steps(data, 0.05, 120), "given1": Steps(data, 0.02, 131), "made0": Steps(data, 0.2, 100)}
    else:
        weights = Steps(data, of_weights, 0, axis)
        others = {"given0": Steps(data, 0.05, -4), "given1": weights, "made0": Steps(data, 0.2, 5)}
    return {**others, "given2": bias}


def bias_of(channels: int) -> np.ndarray:
    return RANDOM.integers(-2000, 2000, channels, np.int32)


FILTER = {"Padding": SAME, "StrideH": 2, "StrideW": 1}
DEEP_FILTER = {"Padding": VALID, "StrideH": 1, "StrideW": 1}
# Operator, shapes of data, weights and result; and those in which the network keeps weights and bias.
CONVOLUTION = ("CONV_2D", IMAGE, (5, 3, 3, 8), (1, 3, 7, 5), [5, 8, 3, 3], [1, 5, 1, 1])
DEEP = ("DEPTHWISE_CONV_2D", IMAGE, (1, 3, 3, 8), (1, 4, 5, 8), [8, 1, 3, 3], [1, 8, 1, 1])
TWICE_DEEP = ("DEPTHWISE_CONV_2D", IMAGE, (1, 3, 3, 16), (1, 4, 5, 16), [16, 1, 3, 3], [1, 16, 1, 1])
DENSE = ("FULLY_CONNECTED", (3, 32), (10, 32), (3, 10), [32, 10], [10])


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("form", "layer", "options"),
    [
        ("per tensor", CONVOLUTION, FILTER),
        ("per channel", CONVOLUTION, {**FILTER, "FusedActivationFunction": RELU}),
        ("uint8", CONVOLUTION, {**FILTER, "FusedActivationFunction": RELU6}),
        ("per tensor", DEEP, {**DEEP_FILTER, "DepthMultiplier": 1}),
        ("per channel", TWICE_DEEP, {**DEEP_FILTER, "DepthMultiplier": 2}),
        ("uint8", DEEP, {**DEEP_FILTER, "DepthMultiplier": 1}),
        *((form, DENSE, {}) for form in ("per tensor", "per channel", "uint8")),
    ],
)
def test_layers_with_weights_are_those_of_litert(
    tmp_path: Path, form: str, layer: tuple[Any, ...], options: dict[str, Any]
) -> None:
    operator, data, weights, result, *kept = layer
    dtype, channels = "uint8" if form == "uint8" else "int8", result[-1]
    scales = channels if form == "per channel" else 1
    steps = steps_of(dtype, scales, axis=3 if operator == "DEPTHWISE_CONV_2D" else 0)
    inputs = [data, integers(*weights, dtype=dtype), bias_of(channels)]
    network = check_steps(tmp_path, of_one(operator, inputs, [result], options, version=4, steps=steps))
    assert sorted(stored(network)) == sorted([(dtype, kept[0], scales), ("int32", kept[1], scales)])
    assert network.quantised
    assert transposes(lower_network(network, load_board("local")))["inside"] == 0


@pytest.mark.compiles
@pytest.mark.parametrize("scales", [0.02, np.linspace(0.01, 0.03, 5)], ids=["per tensor", "per channel"])
def test_layers_of_int16_activations_are_those_of_litert(tmp_path: Path, scales: Any) -> None:
    """As the converter's "16x8" writes them: weights of int8, biases of int64, no zero points."""
    steps = {"given0": Steps("int16", 2e-4), "given1": Steps("int8", scales), "given2": Steps("int64", 2e-4 * scales)}
    inputs = [IMAGE, integers(5, 3, 3, 8), RANDOM.integers(-200_000, 200_000, 5, np.int64)]
    options = {**FILTER, "FusedActivationFunction": RELU}
    steps["made0"] = Steps("int16", 1e-3)
    check_steps(tmp_path, of_one("CONV_2D", inputs, [(1, 3, 7, 5)], options, version=3, steps=steps), share=0.15)


@pytest.mark.compiles
def test_transposed_convolutions_are_those_of_litert(tmp_path: Path) -> None:
    of_layer = steps_of("int8", 5)
    steps = {"given1": of_layer["given1"], "given2": of_layer["given0"], "given3": of_layer["given2"]}
    steps["made0"] = of_layer["made0"]
    inputs = [array(1, 12, 14, 5), integers(5, 3, 3, 8), IMAGE, bias_of(5)]
    options = {"Padding": SAME, "StrideH": 2, "StrideW": 2}
    check_steps(tmp_path, of_one("TRANSPOSE_CONV", inputs, [(1, 12, 14, 5)], options, version=3, steps=steps))


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# Of one input or several: name, inputs (shapes, or constants), shape of the output, options.
Case = tuple[str, Sequence[Any], Sequence[int], Mapping[str, Any]]
WINDOW = {"Padding": SAME, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2}
EACH: list[Case] = [
    ("ADD", [IMAGE, IMAGE], IMAGE, {"FusedActivationFunction": RELU}),
    ("SUB", [IMAGE, IMAGE], IMAGE, {}),
    ("MUL", [IMAGE, (1, 1, 1, 8)], IMAGE, {}),
    ("MEAN", [IMAGE, array(1, 2)], (1, 1, 1, 8), {"KeepDims": True}),
    ("PRELU", [IMAGE, "slopes"], IMAGE, {}),
    ("LEAKY_RELU", [IMAGE], IMAGE, {"Alpha": 0.2}),
    ("RELU", [IMAGE], IMAGE, {}),
    ("RELU6", [IMAGE], IMAGE, {}),
    ("HARD_SWISH", [IMAGE], IMAGE, {}),
    ("QUANTIZE", [IMAGE], IMAGE, {}),
]
# Those whose output has the steps of their input.
MOVING: list[Case] = [
    ("CONCATENATION", [IMAGE, IMAGE], (1, 6, 7, 16), {"Axis": 3}),
    ("AVERAGE_POOL_2D", [IMAGE], (1, 3, 4, 8), WINDOW),
    ("MAX_POOL_2D", [IMAGE], (1, 3, 4, 8), WINDOW),
    ("RESHAPE", [IMAGE, array(6, 56)], (6, 56), {"NewShape": [6, 56]}),
    ("SQUEEZE", [IMAGE], IMAGE[1:], {"SqueezeDims": [0]}),
    ("TRANSPOSE", [IMAGE, array(0, 2, 3, 1)], (1, 7, 8, 6), {}),
    ("PAD", [IMAGE, array(0, 0, 1, 2, 0, 3, 0, 0).reshape(4, 2)], (1, 9, 10, 8), {}),
    ("SLICE", [IMAGE, array(0, 1, 2, 3), array(1, 4, 3, 5)], (1, 4, 3, 5), {}),
    ("RESIZE_BILINEAR", [IMAGE, array(11, 9)], (1, 11, 9, 8), {"HalfPixelCenters": True}),
    ("RESIZE_NEAREST_NEIGHBOR", [IMAGE, array(11, 9)], (1, 11, 9, 8), {}),
    ("MAXIMUM", [IMAGE, IMAGE], IMAGE, {}),
    ("MINIMUM", [IMAGE, IMAGE], IMAGE, {}),
    ("PACK", [IMAGE, IMAGE], (1, 6, 2, 7, 8), {"ValuesCount": 2, "Axis": 2}),
    ("STRIDED_SLICE", [IMAGE, array(0, 1, 0, 0), array(1, 6, 7, 8), array(1, 2, 3, 1)], (1, 3, 3, 8), {}),
]


def of_case(case: Case, data: str, output: Any) -> bytes:
    name, inputs, shape, options = case
    middle = 0 if data == "int8" else 128
    steps = {"made0": output or Steps(data, 0.05, 10 + middle)}
    for place, each in enumerate(inputs):
        if not isinstance(each, np.ndarray):
            scale, zero_point = (0.05, 10) if output is None else (0.05 + 0.02 * place, -7)
            steps[f"given{place}"] = Steps(data, scale, zero_point + middle)
    held = [integers(1, 1, 8, dtype=data) if isinstance(each, str) else each for each in inputs]
    version = 1 if name in ("HARD_SWISH", "PRELU", "RESHAPE") else 2
    return of_one(name, held, [shape], options, version=version, steps=steps)


@pytest.mark.compiles
@pytest.mark.parametrize("data", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", EACH, ids=lambda case: case[0])
def test_operators_on_quantised_tensors_are_those_of_litert(tmp_path: Path, case: Case, data: str) -> None:
    # XNNPACK adds in fixed point, and a file's slopes are 16 bits there.
    check_steps(tmp_path, of_case(case, data, Steps(data, 0.08, 3 if data == "int8" else 120)), share=0.1)


@pytest.mark.compiles
@pytest.mark.parametrize("data", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", MOVING, ids=lambda case: case[0])
def test_operators_that_keep_the_steps_are_those_of_litert(tmp_path: Path, case: Case, data: str) -> None:
    # Averages lie halfway between two steps, and LiteRT rounds these up.
    check_steps(
        tmp_path, of_case(case, data, None), share=0.3 if case[0] in ("AVERAGE_POOL_2D", "RESIZE_BILINEAR") else 0.0
    )


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["SOFTMAX", "LOGISTIC", "TANH"])
def test_functions_have_the_steps_that_litert_wants(tmp_path: Path, name: str) -> None:
    output = Steps("int8", 1 / 128, 0) if name == "TANH" else Steps("int8", 1 / 256, -128)
    options = {"Beta": 1.0} if name == "SOFTMAX" else {}
    steps = {"given0": Steps("int8", 0.04, 3), "made0": output}
    check_steps(tmp_path, of_one(name, [(4, 9)], [(4, 9)], options, version=2, steps=steps), share=0.1)


@pytest.mark.compiles
def test_a_float_network_may_hold_quantised_tensors_in_between(tmp_path: Path) -> None:
    steps = {"given0": Steps("int8", 0.04, 3)}
    network = check_steps(tmp_path, of_one("DEQUANTIZE", [IMAGE], [IMAGE], version=2, steps=steps))
    assert (network.inputs[0].dtype, network.outputs[0].dtype) == ("int8", "float32")
    network = check_steps(tmp_path, of_one("QUANTIZE", [IMAGE], [IMAGE], steps={"made0": Steps("uint8", 0.02, 128)}))
    assert (network.inputs[0].dtype, network.outputs[0].dtype) == ("float32", "uint8")


@pytest.mark.compiles
def test_outputs_of_a_split_are_quantised_each(tmp_path: Path) -> None:
    steps = {name: Steps("int8", 0.05, 3) for name in ("given1", "made0", "made1")}
    inputs, shapes = [np.array(3, np.int32), IMAGE], [(1, 6, 7, 4)] * 2
    check_steps(tmp_path, of_one("SPLIT", inputs, shapes, {"NumSplits": 2}, version=2, steps=steps), share=0.0)


@pytest.mark.compiles
def test_products_of_two_activations_are_those_of_litert(tmp_path: Path) -> None:
    steps = {"given0": Steps("int8", 0.05, 3), "given1": Steps("int8", 0.02, -5), "made0": Steps("int8", 0.3, 1)}
    inputs = [(2, 5, 16), (2, 6, 16)]
    check_steps(tmp_path, of_one("BATCH_MATMUL", inputs, [(2, 5, 6)], {"AdjY": True}, version=3, steps=steps))


@pytest.mark.compiles
def test_a_reshape_takes_the_integers_as_they_are(tmp_path: Path) -> None:
    steps = {"given0": Steps("uint8", 0.05, 3), "made0": Steps("uint8", 0.25, 9)}
    check_steps(tmp_path, of_one("RESHAPE", [(4, 6), array(6, 4)], [(6, 4)], steps=steps), share=0.0)


@pytest.mark.compiles
def test_weights_alone_may_be_quantised(tmp_path: Path) -> None:
    """LiteRT quantises the activations of such a network on the fly; here they stay in float."""
    weights, bias = integers(10, 32), RANDOM.standard_normal(10).astype(np.float32)
    steps = {"given1": Steps("int8", 0.02)}
    network = imported(tmp_path, of_one("FULLY_CONNECTED", [(3, 32), weights, bias], [(3, 10)], version=3, steps=steps))
    data = {"given0": RANDOM.standard_normal((3, 32)).astype(np.float32)}
    (found,) = computed(network, data)
    exact = data["given0"] @ (weights.T * np.float32(0.02)) + bias
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    (wanted,) = network.reference(data).values()
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.compiles
def test_a_bias_has_the_scale_of_the_sums_whatever_the_file_says(tmp_path: Path) -> None:
    steps = {name: way for name, way in steps_of("int8").items() if name != "given2"}
    inputs = [(30, 32), integers(10, 32), bias_of(10)]
    check_steps(tmp_path, of_one("FULLY_CONNECTED", inputs, [(30, 10)], version=4, steps=steps))


def test_pairs_are_written_as_operators_of_relax_on_planes(tmp_path: Path) -> None:
    """What other frontends give, too: `relax.quantize` and `relax.dequantize` with scalars, in NCHW."""
    options = {"Padding": SAME, "StrideH": 1, "StrideW": 1}
    inputs = [IMAGE, integers(5, 3, 3, 8), bias_of(5)]
    content = of_one("CONV_2D", inputs, [(1, 6, 7, 5)], options, version=3, steps=steps_of("int8", 5))
    function = imported(tmp_path, content).module["main"]
    assert not any(is_call(each, "relax.round") for each in parts_of(function))
    [quantised] = [each for each in parts_of(function) if is_call(each, "relax.quantize")]
    assert isinstance(quantised, relax.Call)
    assert float(constant_value(quantised.args[1])) == pytest.approx(0.2)
    assert int(constant_value(quantised.args[2])) == 5
