"""ncnn's networks: how their files are read, what is refused, and that layers compute what ncnn computes."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from support.agreement import outputs_of, run_onnx
from support.commands import put
from support.fuzzing import damaged, damaged_text, peak_of, survive
from support.ncnn_files import (
    BFLOAT16,
    CASES,
    FLOAT16,
    INT8,
    SCALED,
    Case,
    by_name,
    plain,
    run_in_ncnn,
    table,
    tagged,
    write,
)

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import EdgedeployError, InputError, ModelError, OpenShapeError
from edgedeploy.frontends.format import ImportOptions, Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.ncnn import FORMAT
from edgedeploy.selftest.tolerance import TOLERANCE
from edgedeploy.target.board import load_board
from edgedeploy.zoo.source import Source

SIDE = 5
INPUT = f"Input data 0 1 data 0={SIDE} 1={SIDE} 2=3"
RELU = "ReLU relu 1 1 data relu"
CONVOLUTION = "Convolution conv 1 1 data conv 0=1 1=1 5=1 6=3"
WHOLE = tagged([1, 2, 3]) + plain([1])  # of this convolution
OF_BYTES = tagged([1, 2, 3], INT8)


def names(path: Path) -> tuple[list[str], list[str]]:
    """Inputs and outputs."""
    graph = FORMAT.convert(FORMAT.files(path), {}).model.graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def answer(path: Path, data: np.ndarray) -> list[np.ndarray]:
    model = FORMAT.convert(FORMAT.files(path), {"data": [1, *data.shape]}).model
    return list(run_onnx(model, data[None].astype(np.float32)).values())


def refused(
    path: Path, message: str, shapes: Shapes | None = None, kind: type[EdgedeployError] = ModelError
) -> EdgedeployError:
    with pytest.raises(kind, match=message) as raised:
        FORMAT.convert(FORMAT.files(path), shapes or {})
    return raised.value


class TestFormat:
    @pytest.mark.parametrize("suffix", [".param", ".bin"])
    def test_either_file_names_the_network(self, tmp_path: Path, suffix: str) -> None:
        path = write(tmp_path, [INPUT, RELU])
        found = describing(path.with_suffix(suffix))
        assert (found[0].name, found[1]) == ("ncnn", path)
        assert Source.of(path, {}).files == (path, path.with_suffix(".bin"))

    def test_missing_weights_say_where_they_should_be(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, RELU])
        path.with_suffix(".bin").unlink()
        with pytest.raises(ModelError, match=r"no .*net\.bin"):
            FORMAT.files(path)

    def test_the_binary_form_is_refused_with_what_to_use_instead(self, tmp_path: Path) -> None:
        path = put(tmp_path / "net.param.bin", (7767517).to_bytes(4, "little") + bytes(40))
        with pytest.raises(ModelError, match="binary form") as raised:
            Source.of(path, {})
        assert ".param file in text form" in raised.value.hints[0]
        with pytest.raises(ModelError, match="binary form"):
            FORMAT.convert([path, path], {})

    def test_other_text_is_none(self) -> None:
        assert not FORMAT.recognises(b"7767518\n1 1\n")
        assert not FORMAT.recognises(b"[net]\nwidth=7767517\n")
        assert FORMAT.recognises(b"7767517\r\n1 1\r\n")


class TestWeights:
    DATA = np.arange(3 * SIDE * SIDE, dtype=np.float32).reshape(3, SIDE, SIDE)

    @pytest.mark.parametrize(
        "stored",
        [*(tagged([0.5, -2, 4], tag) for tag in (0, SCALED, FLOAT16, BFLOAT16)), table([0.5, 7, -2, 4], [0, 2, 3])],
        ids=["float32", "scaled", "float16", "bfloat16", "places in a table of 256 values"],
    )
    def test_each_kind_of_storage_gives_its_values(self, tmp_path: Path, stored: bytes) -> None:
        # Three values of two bytes end in the middle of four; the bias after them is out of place if that is missed.
        [found] = answer(write(tmp_path, [INPUT, CONVOLUTION], stored + plain([1.25])), self.DATA)
        np.testing.assert_allclose(found[0, 0], np.tensordot([0.5, -2, 4], self.DATA, 1) + 1.25, rtol=1e-6)

    def test_half_precision_is_rounded_and_nothing_else_is(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, CONVOLUTION], tagged([1 / 3, 0, 0], FLOAT16) + plain([1 / 3]))
        [found] = answer(path, np.ones((3, SIDE, SIDE), np.float32))
        assert found[0, 0, 0, 0] == np.float32(np.float16(1 / 3)) + np.float32(1 / 3)

    @pytest.mark.parametrize(
        ("layer", "weights", "message"),
        [
            (CONVOLUTION, OF_BYTES + plain([1]), "8 bits without a scale.*'conv'"),
            (CONVOLUTION, tagged([1, np.nan, 3]) + plain([1]), "not numbers.*'conv'"),
            (CONVOLUTION, tagged([1, np.inf, 3]) + plain([1]), "not numbers.*'conv'"),
            (CONVOLUTION, tagged([1, 2, 3]) + plain([1, 2]), "does not fit the network: 4 bytes are left"),
            *((CONVOLUTION, WHOLE[:size], "not complete: layer 'conv' needs") for size in (0, 3, 4, 15, 16, 19)),
            (f"{CONVOLUTION} 8=3", OF_BYTES + plain([1], [1, 1]), r"'conv'.*parameter 8\) is 3"),
            (f"{CONVOLUTION} 8=1", OF_BYTES + plain([1], [1, 0]), "'conv'.*scales .* impossible"),
            (f"{CONVOLUTION} 8=1", OF_BYTES + plain([1], [np.nan, 1]), "'conv'.*scales .* impossible"),
            (f"{CONVOLUTION} 8=101", OF_BYTES + plain([1], [1, 1, -1]), "'conv'.*scales .* impossible"),
            (
                "BatchNorm norm 1 1 data norm 0=3",
                plain([1] * 3, [0] * 3, [1, -1, 1], [0] * 3),
                "'norm'.*variance is below zero",
            ),
            ("Convolution conv 1 1 data conv 0=1 1=9 6=243", tagged(np.ones(243)), "'conv'.*shape 1x-3x-3"),
        ],
    )
    def test_what_cannot_be_the_weights_names_the_layer(
        self, tmp_path: Path, layer: str, weights: bytes, message: str
    ) -> None:
        refused(write(tmp_path, [INPUT, layer], weights), message)

    def test_random_weights_need_no_file_and_are_the_same_each_time(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, CONVOLUTION, "BatchNorm norm 1 1 conv norm 0=1"])
        path.with_suffix(".bin").unlink()
        options = ImportOptions(weights="random")
        assert FORMAT.files(path, options) == [path]
        first, second = (FORMAT.convert([path], {}, options).model for _ in range(2))
        assert first == second
        [found] = run_onnx(first, np.ones((1, 3, SIDE, SIDE), np.float32)).values()
        assert np.isfinite(found).all()

    def test_more_random_weights_than_memory_are_refused_before_they_are_made(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, "InnerProduct dense 1 1 data dense 0=20000000 2=1500000000"])

        def convert() -> None:
            with pytest.raises(ModelError, match="too many weights"):
                FORMAT.convert([path], {}, ImportOptions(weights="random"))

        assert peak_of(convert) < 2**20


class TestNames:
    def test_blobs_keep_their_names_and_unread_ones_are_outputs(self, tmp_path: Path) -> None:
        layers = [
            INPUT,
            "Convolution conv 1 1 data first 0=1 1=1 6=3 9=5",
            "Split split 1 2 first left right",
            "ReLU relu 1 1 left relu",
            "Mish mish 1 1 right mish",
        ]
        graph = FORMAT.convert(FORMAT.files(write(tmp_path, layers, tagged([1, 2, 3]))), {}).model.graph
        assert [value.name for value in graph.output] == ["relu", "mish"]
        assert {"first", "relu", "mish"} <= {name for node in graph.node for name in node.output}

    @pytest.mark.parametrize(
        ("layers", "outputs"),
        [
            (
                ["Mish a 1 1 data a", "ReLU b 1 1 a tanh", "ReLU c 1 1 tanh softplus", "ReLU d 1 1 softplus mul"],
                ["mul"],
            ),
            (["Split split 1 3 data one two three", "ReLU relu 1 1 two relu"], ["relu"]),
            ([RELU, "Split split 1 2 relu one two"], ["one", "two"]),
            (["Split s 1 2 data a b", "ReLU r 1 1 a r", "Sigmoid g 1 1 b g", "Noop n 1 0 g"], ["r"]),
        ],
        ids=[
            *("blobs with names of what a layer before needs", "copies beside one that is read are none"),
            *("copies of which none is read", "what goes into a noop is none"),
        ],
    )
    def test_outputs_are_what_nobody_reads(self, tmp_path: Path, layers: list[str], outputs: list[str]) -> None:
        path = write(tmp_path, [INPUT, *layers])
        assert names(path) == (["data"], outputs)
        assert len(answer(path, np.ones((3, SIDE, SIDE)))) == len(outputs)

    def test_several_inputs_have_shapes_of_their_own(self, tmp_path: Path) -> None:
        layers = ["Input a 0 1 a 0=4", "Input b 0 1 b 0=4", "BinaryOp add 2 1 a b sum"]
        model = FORMAT.convert(FORMAT.files(write(tmp_path, layers)), {}).model
        shapes = [[axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in model.graph.input]
        assert shapes == [[1, 4], [1, 4]]


class TestShapes:
    OPEN = ["Input data 0 1 data", RELU]

    def input_shape(self, path: Path, shapes: Shapes) -> list[int]:
        [value] = FORMAT.convert(FORMAT.files(path), shapes).model.graph.input
        return [axis.dim_value for axis in value.type.tensor_type.shape.dim]

    @pytest.mark.parametrize("sizes", ["", " 0=0 1=0 2=3"])
    def test_an_input_without_a_shape_says_how_to_give_one(self, tmp_path: Path, sizes: str) -> None:
        path = write(tmp_path, [self.OPEN[0] + sizes, self.OPEN[1]])
        error = refused(path, "how large input 'data' is", kind=OpenShapeError)
        assert "--input-shape data:1,3,224,224" in error.hints[0]
        assert FORMAT.open_input(FORMAT.files(path), {}) == "data"

    def test_a_shape_is_taken_from_the_user_then_the_file(self, tmp_path: Path) -> None:
        assert self.input_shape(write(tmp_path, self.OPEN), {"data": [1, 3, 4, 6]}) == [1, 3, 4, 6]
        stated = write(tmp_path, [INPUT, self.OPEN[1]], name="stated")
        assert self.input_shape(stated, {}) == [1, 3, SIDE, SIDE]
        assert self.input_shape(stated, {"data": [1, 3, 4, 6]}) == [1, 3, 4, 6]

    @pytest.mark.parametrize(
        "shape", [[3, 4, 4], [2, 3, 4, 4], [1, 3, 0, 4], [1, 3, -1, 4], [1, 1, 1, 4, 4], [1], [1, 3, 2**20, 2**20]]
    )
    def test_a_shape_that_is_none_of_one_image_is_refused(self, tmp_path: Path, shape: list[int]) -> None:
        refused(write(tmp_path, [INPUT, RELU]), "does not fit", {"data": shape}, InputError)

    def test_a_shape_for_no_input_lists_the_inputs(self, tmp_path: Path) -> None:
        refused(write(tmp_path, self.OPEN), "its inputs: data", {"date": [1, 3, 8, 8]}, InputError)

    def test_weights_for_another_number_of_channels_name_the_layer(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, CONVOLUTION], tagged([1, 2, 3]) + plain([1]))
        error = refused(path, "line 4: Convolution layer 'conv'.* 3 weights, and 1x4x1x1", {"data": [1, 4, 8, 8]})
        assert error.hints == ("check the shape of the network's input",)


class TestRefusals:
    def test_the_first_unsupported_layer_is_named_with_its_line(self, tmp_path: Path) -> None:
        layers = [INPUT, RELU, "DetectionOutput boxes 1 1 relu boxes", "Proposal p 1 1 boxes p"]
        error = refused(write(tmp_path, layers), "DetectionOutput layers are not supported")
        assert "line 5: layer 'boxes'" in str(error)
        assert "cut the network before this line" in error.hints[0]

    def test_an_operator_that_pnnx_could_not_translate_is_named_as_such(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, "torch.topk topk 1 2 data values places"])
        assert "ncnn cannot run this layer either" in refused(path, "torch.topk layers are not supported").hints[0]

    def test_the_documentation_lists_the_layers_that_are_supported(self, tmp_path: Path) -> None:
        page = (Path(__file__).parents[2] / "docs" / "ncnn.md").read_text()
        listed = set(re.findall(r"`(\w+)`", page.partition("**Layers.**")[2].partition("Other layers")[0]))
        assert {case.layer.split()[0] for case in CASES} <= listed
        for kind in listed - {"Input"}:
            # A layer that is not supported would be refused for that.
            path = write(tmp_path, [INPUT, f"{kind} layer 1 1 data some 29=1"])
            refused(path, "nothing is known of its parameter 29")

    def test_hints_of_ncnns_tools_are_passed_over(self, tmp_path: Path) -> None:
        path = write(tmp_path, [INPUT, f"ReLU relu 1 1 data relu -23330=4,3,{SIDE},{SIDE},3 31=1"])
        assert names(path) == (["data"], ["relu"])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "second line"),
            ("2 2\n", "not complete"),
            ("2\n", "second line"),
            ("two 2\n", "second line"),
            (f"3 2\n{INPUT}\nReLU r 1 1 data r\n", "states 3 layers and 2 blobs, and has 2 and 2"),
            (f"2 1\n{INPUT}\nReLU r 1 1 data r\n", "states 2 layers and 1 blobs"),
            (f"2 2\n{INPUT}\nReLU r 1\n", "line 4: this is not a layer"),
            (f"2 2\n{INPUT}\nReLU r one 1 data r\n", "line 4: this is not a layer"),
            (f"2 2\n{INPUT}\nReLU r -1 1 data r\n", "line 4: this is not a layer"),
            (f"2 2\n{INPUT}\nReLU r 4000000000 1 data r\n", "line 4: this layer is not complete"),
            (f"2 2\n{INPUT}\nReLU r 1 1 dato r\n", "line 4.*reads blob 'dato', which no layer before it writes"),
            (f"2 2\n{INPUT}\nReLU r 1 1 r r\n", "line 4.*reads blob 'r'"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data data\n", "line 4.*writes blob 'data', which was written before"),
            (f"2 2\n{INPUT}\nReLU r 1 0 data\n", "'r'.*writes no blob"),
            (f"2 3\n{INPUT}\nReLU r 1 2 data r s\n", "should write 1 blobs and writes 2"),
            (f"2 2\n{INPUT}\nReLU r 0 1 r\n", "should read 1 blobs and reads 0"),
            (f"2 1\n{INPUT}\nNoop n 1 0 data\n", "no output"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r 0=0.1 7=3\n", "line 4: ReLU layer 'r'.*parameter 7, here 3"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r 0=x\n", "parameter 0 is 'x' and should be a number"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r 0=1e99\n", "'0=1e99' is not a parameter"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r 0=9999999999\n", "does not fit 32 bits"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r 40=1\n", "from 0 to 31"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r nothing\n", "'nothing' is not a parameter"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r 0=1 0=2\n", "parameter 0 is given twice"),
            (f"2 2\n{INPUT}\nReLU r 1 1 data r -23300=3,1,2\n", "a list of 3 should follow and has 2"),
            (f"2 2\n{INPUT}\nSoftmax r 1 1 data r 0=1\n", "counted otherwise"),
            (f"2 2\n{INPUT}\nSoftmax r 1 1 data r 0=3 1=1\n", "axis 3 of 3"),
            (f"2 2\n{INPUT}\nReduction r 1 1 data r 1=0 -23303=1,0\n", "counted otherwise"),
            (f"2 2\n{INPUT}\nPooling r 1 1 data r 1=1 2=4\n", ""),
            (f"2 2\n{INPUT}\nPooling r 1 1 data r 1=1 2=3\n", "window lies in the padding"),
            (f"2 2\n{INPUT}\nPooling r 1 1 data r 7=1 8=3\n", "windows of many sizes"),
            (f"2 2\n{INPUT}\nPadding r 1 1 data r 0=2147483647 2=2147483647\n", "would have the shape"),
            (f"2 2\n{INPUT}\nInterp r 1 1 data r 0=1 1=1e30 2=1e30\n", "is too large"),
            (f"2 2\n{INPUT}\nCrop r 1 1 data r 0=9 3=-233 4=-233 5=-233\n", "is outside of"),
            (f"2 2\n{INPUT}\nMatMul r 1 1 data r\n", "should read 2 blobs and reads 1"),
            (f"2 2\n{INPUT}\nGemm r 1 1 data r\n", "has 3 dimensions, and only 2"),
            (f"2 2\n{INPUT}\nGemm r 1 1 data r 18=1\n", "quantised"),
            (f"2 2\n{INPUT}\nLayerNorm r 1 1 data r 0=7\n", r"states 7 values .* \(3, 5, 5\)"),
            (f"2 2\n{INPUT}\nTile r 1 1 data r 1=0\n", "are not a blob"),
            (f"2 2\n{INPUT}\nReshape r 1 1 data r 6=*(0w,2)\n", "expression that cannot be imported"),
            (f"2 2\n{INPUT}\nSDPA r 1 1 data r 7=1\n", "caches keys and values"),
            (f"2 2\n{INPUT}\nMultiHeadAttention r 1 1 data r 0=6 1=4 2=36\n", "do not fit"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place(self, tmp_path: Path, text: str, message: str) -> None:
        path = write(tmp_path, [])
        path.write_text("7767517\n" + text)
        if message:
            refused(path, message)
        else:
            FORMAT.convert(FORMAT.files(path), {})


# Layers of ncnn, of floats and of 8 bits, compute what ncnn computes from the same files.

RANDOM = np.random.default_rng(11)
WIDTH, CHANNELS, OUTPUTS = 9, 8, 12
FEATURES = f"Input data 0 1 data 0={WIDTH} 1={WIDTH} 2={CHANNELS}"


def integers(*shape: int) -> np.ndarray:
    return RANDOM.integers(-127, 128, shape).astype(np.float32)


def image() -> np.ndarray:
    return RANDOM.uniform(-3, 3, (CHANNELS, WIDTH, WIDTH)).astype(np.float32)


def same(path: Path, name: str, step: float = 0.0) -> None:
    """Compare with ncnn: equal but for the rounding of its scales, or a few steps in a few values."""
    data = image()
    [wanted] = run_in_ncnn(path, {"data": data}, [name]).values()
    found = run_onnx(FORMAT.convert(FORMAT.files(path), {}).model, data[None])[name][0]
    assert found.shape == wanted.shape
    away = np.abs(found - wanted)
    close = 3e-4 * np.abs(wanted).max()
    assert away.max() <= max(step * 1.001, close)
    assert (away > close).mean() <= 0.02


def scales(count: int) -> np.ndarray:
    return RANDOM.uniform(150, 400, count).astype(np.float32)


def convolution(name: str, read: str, inputs: int, outputs: int, form: int) -> tuple[str, bytes]:
    line = f"Convolution {name} 1 1 {read} {name} 0={outputs} 1=3 4=1 5=1 6={outputs * inputs * 9} 8={form} 9=1"
    content = tagged(integers(outputs, inputs, 3, 3), INT8) + plain(RANDOM.standard_normal(outputs), scales(outputs))
    return line, content


@pytest.mark.parametrize("stored", ["int8", "float32"])
def test_convolutions(stored: str, tmp_path: Path) -> None:
    line, content = convolution("conv", "data", CHANNELS, OUTPUTS, 1)
    if stored == "float32":
        weights = RANDOM.standard_normal((OUTPUTS, CHANNELS, 3, 3)) * 0.2
        content = tagged(weights) + plain(RANDOM.standard_normal(OUTPUTS), scales(OUTPUTS))
    same(write(tmp_path, [FEATURES, line], content + plain([42.0])), "conv")


@pytest.mark.parametrize("form", [1, 2])
def test_depthwise_convolutions(form: int, tmp_path: Path) -> None:
    line = f"ConvolutionDepthWise deep 1 1 data deep 0={CHANNELS} 1=3 4=1 5=1 6={CHANNELS * 9} 7={CHANNELS} 8={form}"
    content = tagged(integers(CHANNELS, 3, 3), INT8) + plain(RANDOM.standard_normal(CHANNELS))
    path = write(tmp_path, [FEATURES, line], content + plain(scales(CHANNELS if form == 1 else 1), [42.0]))
    same(path, "deep")


def test_dense_layers(tmp_path: Path) -> None:
    count = CHANNELS * WIDTH * WIDTH
    line = f"InnerProduct dense 1 1 data dense 0={OUTPUTS} 1=1 2={OUTPUTS * count} 8=1"
    content = tagged(integers(OUTPUTS, count), INT8) + plain(RANDOM.standard_normal(OUTPUTS), scales(OUTPUTS), [42.0])
    same(write(tmp_path, [FEATURES, line], content), "dense")


def test_a_layer_may_round_its_output_for_the_next(tmp_path: Path) -> None:
    first, content = convolution("first", "data", CHANNELS, OUTPUTS, 101)
    second, more = convolution("second", "first", OUTPUTS, 5, 1)
    # Of the second, the input's scale is that of the first's output.
    content += plain([42.0, 0.6]) + more + plain([0.6])
    path = write(tmp_path, [FEATURES, first, second], content)
    same(path, "second", step=4.0)
    model = FORMAT.convert(FORMAT.files(path), {}).model
    assert [node.op_type for node in model.graph.node].count("QuantizeLinear") == 2


def test_weights_stay_integers_with_a_scale_of_each_output(tmp_path: Path) -> None:
    line = "InnerProduct dense 1 1 data dense 0=2 1=0 2=6 8=1"
    data = "Input data 0 1 data 0=3"
    path = write(tmp_path, [data, line], tagged([[1, -2, 3], [0, 0, 0]], INT8) + plain([50.0, 0.0], [10.0]))
    model = FORMAT.convert(FORMAT.files(path), {}).model
    [held] = [array for array in map(numpy_helper.to_array, model.graph.initializer) if array.shape == (2, 3)]
    assert (held.dtype, held.tolist()) == (np.int8, [[1, -2, 3], [0, 0, 0]])
    # A scale of zero stands for weights that are all zero; 20 is more than 127 steps of 0.1.
    [found] = run_onnx(model, np.array([[0.26, 20.0, -0.5]], np.float32)).values()
    np.testing.assert_allclose(found, [[(0.3 - 2 * 12.7 - 3 * 0.5) / 50, 0]], rtol=1e-5)


def test_random_weights_of_a_quantised_network_do_not_vanish(tmp_path: Path) -> None:
    line, _ = convolution("conv", "data", CHANNELS, OUTPUTS, 101)
    model = FORMAT.convert([write(tmp_path, [FEATURES, line])], {}, ImportOptions(weights="random")).model
    [found] = run_onnx(model, image()[None]).values()
    assert len(np.unique(found)) > 20


@pytest.mark.compiles
def test_a_compiled_network_computes_what_onnxruntime_does(tmp_path: Path) -> None:
    first, content = convolution("first", "data", CHANNELS, OUTPUTS, 101)
    network = FORMAT.read(FORMAT.files(write(tmp_path, [FEATURES, first], content + plain([42.0, 0.6]))), {})
    assert network.quantised
    inputs = {"data": image()[None]}
    [found] = outputs_of(compile_network(network, load_board("local")), inputs)
    [wanted] = network.reference(inputs).values()
    assert np.abs(found - wanted).max() <= 1.001 / 0.6
    assert (np.abs(found - wanted) > 1e-3).mean() <= 0.01


@pytest.mark.compiles
@pytest.mark.parametrize("form", [1, 101])
def test_values_at_a_half_go_away_from_zero_as_in_ncnn(form: int, tmp_path: Path) -> None:
    """Scales and values are powers of two, so that many of them lie at a half exactly; all results are equal."""

    def halving(name: str, read: str, inputs: int, outputs: int, form: int) -> tuple[str, bytes]:
        line, _ = convolution(name, read, inputs, outputs, form)
        bias = RANDOM.integers(-64, 65, outputs) / 16
        return line, tagged(integers(outputs, inputs, 3, 3), INT8) + plain(bias, np.full(outputs, 256.0))

    first, content = halving("first", "data", CHANNELS, OUTPUTS, form)
    second, more = halving("second", "first", OUTPUTS, 5, 1)
    content += plain([16.0]) + (plain([2.0]) if form > 100 else b"") + more + plain([2.0])
    path = write(tmp_path, [FEATURES, first, second], content)
    network = FORMAT.read(FORMAT.files(path), {})
    data = (RANDOM.integers(-100, 101, (CHANNELS, WIDTH, WIDTH)) / 32).astype(np.float32)
    [wanted] = run_in_ncnn(path, {"data": data}, ["second"]).values()
    [found] = outputs_of(compile_network(network, load_board("local")), {"data": data[None]})
    np.testing.assert_array_equal(found[0], wanted)


# Layers of ncnn's networks compute what ncnn computes, and compiled what onnxruntime does.


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_layer_computes_what_ncnn_computes(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    model = FORMAT.convert(FORMAT.files(path), case.shapes).model
    found = run_onnx(model, *(array[None] for array in case.tensors.values()))
    assert list(found) == case.names
    for array, wanted in zip(found.values(), run_in_ncnn(path, case.tensors, case.names).values(), strict=True):
        assert array.shape[1:] == wanted.shape
        np.testing.assert_allclose(array[0], wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_compiled_layer_computes_what_onnxruntime_does(case: Case, tmp_path: Path) -> None:
    network = FORMAT.read(FORMAT.files(case.write(tmp_path)), case.shapes)
    inputs = {name: array[None] for name, array in case.tensors.items()}
    found = outputs_of(compile_network(network, load_board("local")), inputs)
    relative, absolute = TOLERANCE
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute


# Damaged and hostile files end in an error of ours, soon, and without the memory that they ask for.

# A network that has something of everything, so that damage to one layer meets others.
CHAIN = [
    "Input data 0 1 data 0=16 1=16 2=3",
    "Convolution first 1 1 data first 0=8 1=3 3=2 4=1 5=1 6=216 9=1",
    "Split copies 1 3 first one two three",
    "ConvolutionDepthWise second 1 1 one second 0=8 1=3 4=1 5=1 6=72 7=8 9=2 -23310=1,0.1",
    "Pooling pool 1 1 two pool 0=0 1=3 2=1 3=1 5=1",
    "Concat both 2 1 second pool both",
    "Interp larger 1 1 both larger 0=1 1=2.0 2=2.0",
    "Crop part 2 1 larger both part",
    "ShuffleChannel shuffle 1 1 part shuffle 0=2",
    "Reshape rows 1 1 shuffle rows 0=0 1=-1 2=2",
    "Softmax prob 1 1 rows prob",
    "Reduction mean 1 1 three mean 0=3 1=0 -23303=2,1,2 5=1",
    "InnerProduct dense 1 1 mean dense 0=4 1=1 2=32",
]
CHAIN_WEIGHTS = tagged(np.ones(216), FLOAT16) + plain([0] * 8) + tagged(np.ones(72)) + plain([0] * 8)
CHAIN_WEIGHTS += tagged([1] * 32) + plain([0] * 4)

HOSTILE = ["0", "-1", "1", "2", "-233", "-234", "2147483647", "-2147483648", "4294967296", "1e30", "-1e30", "1e999"]
HOSTILE += ["0.0", "nan", "x", "", "9" * 5000, "3,1,2", "1,1", "65536", "0x10", "1.5", "-23300=2147483647,1"]

VALUE = re.compile(rb"(?<==)\S+")

Sound = tuple[bytes, bytes, Shapes]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Sound]:
    """Networks that can be imported, the chain first: text, weights, shapes of inputs."""
    folder = tmp_path_factory.mktemp("sound")
    chain = write(folder, CHAIN, CHAIN_WEIGHTS)
    FORMAT.convert(FORMAT.files(chain), {})
    networks: list[Sound] = [(chain.read_bytes(), CHAIN_WEIGHTS, {})]
    for case in CASES:
        path = case.write(folder)
        networks.append((path.read_bytes(), path.with_suffix(".bin").read_bytes(), case.shapes))
    return networks


def convert(folder: Path, text: bytes, weights: bytes, shapes: Shapes) -> None:
    path = put(folder / "net.param", text)
    path.with_suffix(".bin").write_bytes(weights)
    FORMAT.convert([path, path.with_suffix(".bin")], shapes)


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 500), pytest.param(2, 20_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_files_end_in_an_error_of_ours(sound: list[Sound], tmp_path: Path, seed: int, count: int) -> None:
    random, refused = np.random.default_rng(seed), 0
    for _ in range(count):
        text, weights, shapes = sound[max(0, int(random.integers(-40, len(sound))))]
        if random.random() < 0.75:
            text = damaged_text(text, random, HOSTILE)
        else:
            weights = damaged(weights, random)
        refused += not survive(partial(convert, tmp_path, text, weights, shapes), seconds=2)
    assert refused > count / 2


def test_hostile_counts_take_no_memory(sound: list[Sound], tmp_path: Path) -> None:
    """Each parameter of each network once becomes the largest number."""
    for text, weights, shapes in sound:
        for found in VALUE.finditer(text):
            changed = text[: found.start()] + b"2147483647" + text[found.end() :]
            taken = peak_of(partial(convert, tmp_path, changed, weights, shapes))
            assert taken < 4 * (len(text) + len(weights)) + 2**20, changed


def test_long_texts_take_time_in_proportion(tmp_path: Path) -> None:
    """Many layers, many outputs of one layer, and one name for all of them."""
    relus = [f"ReLU same 1 1 b{index} b{index + 1}" for index in range(20_000)]
    many = write(tmp_path, ["Input in 0 1 b0 0=4", *relus], name="many")
    outputs = " ".join(f"o{index}" for index in range(20_000))
    parts = f"Slice same 1 20000 a {outputs} -23300=20000," + ",".join(["-233"] * 20_000)
    wide = write(tmp_path, ["Input in 0 1 a 0=20000", parts], name="wide")
    for path in (many, wide):
        assert survive(partial(FORMAT.convert, FORMAT.files(path), {}), seconds=10)
