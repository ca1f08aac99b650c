"""Quantised networks: what their tensors are, which layers stay in float, and channels that are equalised before."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.networks import Graph, begun
from support.quantised_networks import constants, integers_of, producer, scale_of

from edgedeploy.errors import InputError, UnknownNameError, UnsupportedError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.quantised import Method
from edgedeploy.quantisation.agreement import Comparison, Noise, Runs, by_harm, compare, fewest_kept, worst_layers
from edgedeploy.quantisation.equalising import equalised
from edgedeploy.quantisation.making import Made, Settings, find_task, make
from edgedeploy.quantisation.preparing import Prepared, prepare
from edgedeploy.quantisation.quantising import calibrate, chosen, layers_of, quantise, without_inner_pairs
from edgedeploy.quantisation.samples import Samples, array_samples
from edgedeploy.zoo.source import Source

SHAPE = (1, 3, 12, 12)


def network(path: Path, opset: int = 13) -> Path:
    """Convolution with batch normalisation and ReLU, a depthwise one with SiLU, a sum, a mean, a product, a softmax."""
    graph = Graph(opset=opset)
    first = graph.conv(graph.input("data", list(SHAPE)), 3, 8, 3, pads=[1, 1, 1, 1])
    relu = graph.node("Relu", graph.batch_norm(first, 8))
    deep = graph.conv(relu, 8, 8, 3, group=8, pads=[1, 1, 1, 1])
    silu = graph.node("Mul", deep, graph.node("Sigmoid", deep))
    flat = graph.node("Flatten", graph.node("GlobalAveragePool", graph.node("Add", relu, silu)))
    return graph.save(path, graph.node("Softmax", graph.node("Gemm", flat, graph.normal(8, 5), graph.normal(5))))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    folder = written(tmp_path_factory.mktemp("inputs"), *({"data": array} for array in arrays()))
    return array_samples(folder, sorted(folder.glob("*.npz")), prepared_of(network(folder / "net.onnx")).inputs)


def arrays(count: int = 12) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.normal(0, 1, SHAPE).astype(np.float32) for _ in range(count)]


def written(folder: Path, *samples: dict[str, np.ndarray]) -> Path:
    folder.mkdir(exist_ok=True)
    for index, sample in enumerate(samples):
        np.savez(folder / f"{index}.npz", **sample)  # type: ignore[arg-type]
    return folder


def first(model: onnx.ModelProto, *operators: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type in operators)


def prepared_of(path: Path) -> Prepared:
    return prepare(Source.of(path, {}))


def made_of(path: Path, samples: Samples, **settings: object) -> Made:
    return make(find_task(str(path), samples.folder), Settings(**settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, samples: Samples) -> Made:
    """With pairs behind every operator."""
    return made_of(network(tmp_path_factory.mktemp("net") / "net.onnx"), samples, all_pairs=True)


def folded_weights(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of the first convolution with batch normalisation folded in, by its definition in float64."""
    model = onnx.load(path)
    weights = constants(model)
    conv, norm = first(model, "Conv"), first(model, "BatchNormalization")
    gamma, beta, mean, variance = (weights[name].astype(np.float64) for name in norm.input[1:])
    factor = gamma / np.sqrt(variance + 1e-5)
    return weights[conv.input[1]] * factor[:, None, None, None], (weights[conv.input[2]] - mean) * factor + beta


def test_weights_are_bytes_with_a_scale_per_channel_and_no_offset(made: Made, tmp_path: Path, samples: Samples) -> None:
    wanted, _ = folded_weights(network(tmp_path / "net.onnx"))
    values, scale, zero = integers_of(made.model, first(made.model, "Conv").input[1])
    assert (values.dtype, scale.dtype, zero.dtype) == (np.int8, np.float32, np.int8)
    assert scale.shape == zero.shape == (8,)
    assert not zero.any()
    np.testing.assert_allclose(scale, np.abs(wanted).max(axis=(1, 2, 3)) / 127, rtol=1e-5)
    # All of -127 to 127 is used: nothing is saved for products that saturate.
    np.testing.assert_array_equal(np.abs(values.astype(int)).max(axis=(1, 2, 3)), 127)
    steps = wanted / scale[:, None, None, None]
    assert np.abs(values - steps).max() < 0.51


def test_biases_are_32_bits_in_steps_of_the_sums(made: Made, tmp_path: Path) -> None:
    _, wanted = folded_weights(network(tmp_path / "net.onnx"))
    conv = first(made.model, "Conv")
    _, weight_scale, _ = integers_of(made.model, conv.input[1])
    values, scale, zero = integers_of(made.model, conv.input[2])
    data = scale_of(made.model, "data")
    assert (values.dtype, zero.dtype) == (np.int32, np.int32)
    np.testing.assert_allclose(scale, data[0] * weight_scale, rtol=1e-6)
    np.testing.assert_allclose(values * scale, wanted, atol=float(scale.max()))


def test_activations_are_bytes_over_the_range_of_the_samples(made: Made, tmp_path: Path, samples: Samples) -> None:
    """The ranges are those that onnxruntime's outputs have on the float network."""
    model = onnx.load(network(tmp_path / "net.onnx"))
    names = [node.output[0] for node in model.graph.node if node.op_type in ("Relu", "Mul", "Add")]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = cpu_session(model.SerializeToString(), optimised=False)
    found = [session.run(names, {"data": array}) for array in arrays()]
    for index, name in enumerate(names):
        low, high = (limit([values[index] for values in found]) for limit in (np.min, np.max))
        low, high = min(low, 0), max(high, 0)
        quantised = scale_of(made.model, name)
        assert quantised[0] == pytest.approx((high - low) / 255, rel=1e-4)
        assert quantised[1] == round(-low / quantised[0])
    assert scale_of(made.model, names[0])[1] == 0


def test_every_layer_reads_and_gives_quantised_tensors(made: Made) -> None:
    graph = made.model.graph
    layers = [node for node in graph.node if "Linear" not in node.op_type and node.op_type != "Softmax"]
    operators = "Conv Conv Sigmoid Mul Add GlobalAveragePool Flatten Gemm"
    assert [node.op_type for node in layers] == operators.split()
    for node in layers:
        for name in node.input:
            assert producer(made.model, name).op_type == "DequantizeLinear", (node.name, name)
        assert scale_of(made.model, node.output[0]), node.name


def meeting(path: Path, factor: float, *, limited: bool) -> Path:
    """A layer, and the pool of another with a ReLU or without, that meet in a concatenation."""
    graph = Graph(opset=13)
    data = graph.input("data", list(SHAPE))
    first, other = (graph.conv(data, 3, 8, 1) for _ in range(2))
    first = graph.node("Mul", graph.node("Relu", first), graph.weight(np.float32(factor)))
    other = graph.node("MaxPool", graph.node("Relu", other) if limited else other, kernel_shape=[1, 1])
    return graph.save(path, graph.conv(graph.node("Concat", first, other, axis=1), 16, 4, 1))


@pytest.mark.parametrize(
    ("factor", "limited", "shared"), [(3.0, True, True), (3.0, False, True), (30.0, False, False), (-3.0, True, False)]
)
def test_tensors_that_meet_share_a_scale_unless_that_costs_bits_or_a_limit(
    tmp_path: Path, samples: Samples, factor: float, limited: bool, shared: bool
) -> None:
    path = meeting(tmp_path / "net.onnx", factor, limited=limited)
    own, made = (made_of(path, samples, own_scales=wanted) for wanted in (True, False))
    for each, same in ((own, False), (made, shared)):
        concat, held = first(each.model, "Concat"), constants(each.model)
        parameters = {
            tuple(held[name].item() for name in producer(each.model, data).input[1:]) for data in concat.input
        }
        assert (parameters == {scale_of(each.model, concat.output[0])}) is same
    assert made.comparison.ratio_db > own.comparison.ratio_db - 3


def test_what_no_layer_follows_stays_in_float(made: Made) -> None:
    softmax = first(made.model, "Softmax")
    assert softmax.output[0] == made.model.graph.output[0].name
    assert scale_of(made.model, softmax.output[0]) is None


def test_boxes_and_scores_that_meet_at_the_end_do_not_share_a_scale(tmp_path: Path, samples: Samples) -> None:
    """Boxes in hundreds of pixels beside scores below one."""
    graph, data = begun(*SHAPE)
    boxes = graph.node("Mul", graph.conv(data, 3, 4, 1), graph.weight(np.float32(300)))
    scores = graph.node("Sigmoid", graph.conv(data, 3, 1, 1))
    path = graph.save(tmp_path / "net.onnx", graph.node("Concat", boxes, scores, axis=1))
    result = made_of(path, samples)
    before, after = (Runs(each)({"data": arrays(1)[0]}) for each in (onnx.load(path), result.model))
    [name] = before
    assert np.abs(before[name] - after[name])[:, 4:].max() < 0.05


def test_an_old_opset_is_raised_for_scales_of_channels(tmp_path: Path, samples: Samples) -> None:
    result = made_of(network(tmp_path / "net.onnx", opset=9), samples)
    assert [each.version for each in result.model.opset_import if not each.domain] == [13]
    assert result.comparison.agreement.value > 0.99


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_every_method_gives_a_network_that_agrees(tmp_path: Path, samples: Samples, method: Method) -> None:
    result = made_of(network(tmp_path / "net.onnx"), samples, method=method)
    assert result.record.method == method
    assert result.comparison.agreement.value > 0.98
    onnx.checker.check_model(result.model)


def test_percentiles_leave_out_what_is_far_from_all_else(tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.conv(graph.input("data", [1, 1, 600, 600]), 1, 1, 1))
    values = np.random.default_rng(0).uniform(-1, 1, (1, 1, 600, 600)).astype(np.float32)
    values[0, 0, 0, 0] = 1000
    inputs, scales = written(tmp_path / "inputs", {"data": values}), {}
    for method in ("minmax", "percentile"):
        scales[method] = scale_of(make(find_task(str(path), inputs), Settings(method=method)).model, "data")[0]
    assert scales["minmax"] == pytest.approx(1001 / 255, rel=1e-3)
    assert scales["percentile"] < scales["minmax"] / 1.5


def test_layers_that_are_kept_have_float_weights(tmp_path: Path, samples: Samples) -> None:
    result = made_of(network(tmp_path / "net.onnx"), samples, keep=["gemm*"])
    gemm = first(result.model, "Gemm")
    assert constants(result.model)[gemm.input[1]].dtype == np.float32
    assert [layer.operator for layer in result.kept] == ["Gemm"]
    assert result.record.kept == [gemm.name]
    convolutions = [node for node in result.model.graph.node if node.op_type == "Conv"]
    assert all(integers_of(result.model, node.input[1])[0].dtype == np.int8 for node in convolutions)


def test_a_network_with_all_layers_kept_is_the_float_network(tmp_path: Path, samples: Samples) -> None:
    result = made_of(network(tmp_path / "net.onnx"), samples, keep=["*"])
    assert not any("Linear" in node.op_type for node in result.model.graph.node)
    assert result.comparison.agreement.value == pytest.approx(1)


@pytest.mark.parametrize("name", ["gem", "conv99", "[", ""])
def test_a_layer_that_is_not_there_is_answered_with_near_names(tmp_path: Path, name: str) -> None:
    layers = layers_of(prepared_of(network(tmp_path / "net.onnx")).model)
    with pytest.raises(UnknownNameError, match="unknown layer"):
        chosen(layers, [name])


def test_layers_are_meant_by_name_output_or_pattern(tmp_path: Path) -> None:
    layers = layers_of(prepared_of(network(tmp_path / "net.onnx")).model)
    gemm = next(layer for layer in layers if layer.operator == "Gemm")
    assert chosen(layers, [gemm.name]) == chosen(layers, [gemm.output]) == chosen(layers, ["ge*"]) == [gemm]
    assert chosen(layers, ["*", gemm.name]) == layers


def unruly(path: Path) -> tuple[Path, str]:
    """A network of which one layer, whose output reaches from thousands to thousandths, is ruined by eight bits."""
    graph = Graph()
    data = graph.node("Relu", graph.conv(graph.input("data", list(SHAPE)), 3, 8, 3, pads=[1, 1, 1, 1]))
    factors = np.reshape([4000] + [1e-3] * 7, (1, 8, 1, 1))
    there, back = (graph.weight(each.astype(np.float32)) for each in (factors, 1 / factors))
    wide = graph.node("Mul", data, there)
    last = graph.conv(graph.node("Mul", wide, back), 8, 8, 3, pads=[1, 1, 1, 1])
    return graph.save(path, graph.node("GlobalAveragePool", last)), wide


def test_the_layers_that_hurt_most_stay_in_float_until_the_loss_is_small(tmp_path: Path, samples: Samples) -> None:
    path, wide = unruly(tmp_path / "net.onnx")
    without = made_of(path, samples)
    result = made_of(path, samples, max_loss=0.01)
    assert without.record.loss > 0.1
    assert result.record.loss <= 0.01
    assert wide in {layer.name for layer in result.kept}
    assert 0 < len(result.kept) < result.layers
    assert without.worst[0].ratio_db < 10 < result.worst[0].ratio_db


def test_nothing_more_is_kept_where_the_loss_is_small_enough(tmp_path: Path, samples: Samples) -> None:
    result = made_of(network(tmp_path / "net.onnx"), samples, max_loss=0.5, keep=["conv0"])
    assert [layer.name for layer in result.kept] == ["conv0"]


def test_a_loss_that_no_layer_causes_is_refused(tmp_path: Path, samples: Samples) -> None:
    with pytest.raises(InputError, match="the loss is above -1, no matter how many layers stay in float"):
        made_of(network(tmp_path / "net.onnx"), samples, max_loss=-1, keep=["*"])


def test_loops_are_ranked_by_the_noise_of_each_alone_for_its_work(tmp_path: Path, samples: Samples) -> None:
    model = prepared_of(network(tmp_path / "net.onnx")).model
    layers, ranges = layers_of(model), calibrate(model, samples, "minmax")
    ranked = by_harm(model, ranges, layers, samples)
    units = [["Conv"], ["Conv", "Sigmoid", "Mul", "Add"], ["GlobalAveragePool"], ["Gemm"]]  # the ReLU is the first's
    assert sorted([layer.operator for layer in unit] for unit in ranked) == sorted(units)
    places = 8 * 12 * 12  # an elementwise result costs as much as eight products
    works = [places * (8 + 3 * 9), places * (4 * 8 + 9), 8 * 8, 5 * (8 + 8)]
    harm = []
    for unit in ranked:
        alone = without_inner_pairs(quantise(model, ranges, unit), model)
        [noise] = compare(model, alone, samples.some(4), None).noise.values()
        work = works[units.index([layer.operator for layer in unit])]
        harm.append(noise.noise / (work + sum(works) / len(works)))
    assert harm == sorted(harm, reverse=True)


@pytest.mark.parametrize(("needed", "count"), [(0, 9), (1, 9), (2, 9), (5, 9), (8, 9), (9, 9), (1, 1), (None, 9)])
def test_as_few_layers_are_kept_as_will_do(needed: int | None, count: int) -> None:
    assert fewest_kept(lambda kept: float(needed is None or kept < needed), count, 0.5) == needed


def test_the_noise_of_layers_is_that_of_their_tensors(tmp_path: Path, samples: Samples) -> None:
    """Read by showing each tensor, and its dequantised counterpart, as an output of its own."""
    model = prepared_of(network(tmp_path / "net.onnx")).model
    layers, ranges = layers_of(model), calibrate(model, samples, "minmax")
    quantised = quantise(model, ranges, layers)
    worst = {each.layer.name: each.ratio_db for each in worst_layers(model, quantised, layers, samples.some(3))}
    add = next(layer for layer in layers if layer.operator == "Add")
    signal = noise = 0.0
    for sample in samples.some(3):
        shown = []
        for each, name in ((model, add.output), (quantised, f"{add.output}_DequantizeLinear_Output")):
            copy = onnx.ModelProto()
            copy.CopyFrom(each)
            copy.graph.output.append(onnx.ValueInfoProto(name=name))
            shown.append(cpu_session(copy.SerializeToString(), optimised=False).run([name], dict(sample.tensors))[0])
        signal += float(np.sum(shown[0].astype(np.float64) ** 2))
        noise += float(np.sum((shown[0].astype(np.float64) - shown[1]) ** 2))
    assert worst[add.name] == pytest.approx(10 * np.log10(signal / noise), abs=0.01)


TEN = np.full(100, 10.0)


@pytest.mark.parametrize(
    ("pairs", "ratio_db"),
    [
        ([], 200),
        ([(TEN, TEN + 1)], 20),
        ([(TEN, TEN + 1), (TEN, TEN)], 23.0103),
        ([(np.ones(4), np.ones(5))], 0),
        ([(np.ones(4, np.float32), np.array([1, np.nan, 1, 1], np.float32))], 0),
    ],
    ids=["none", "one", "two", "other sizes", "not a number"],
)
def test_signal_to_noise_is_the_ratio_of_powers(pairs: list[tuple[np.ndarray, np.ndarray]], ratio_db: float) -> None:
    noise = Noise()
    for pair in pairs:
        noise.add(*pair)
    assert noise.ratio_db == pytest.approx(ratio_db)


def test_what_is_quantised_already_is_refused(made: Made, tmp_path: Path) -> None:
    made.write(tmp_path / "net-int8.onnx")
    with pytest.raises(InputError, match="is quantised already"):
        prepared_of(tmp_path / "net-int8.onnx")


def test_a_package_that_the_quantiser_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutMlDtypes:
        """Imports onnxruntime's quantiser as its newer versions are where `ml_dtypes` is not installed."""

        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "onnxruntime.quantization":
                raise ModuleNotFoundError("No module named 'ml_dtypes'", name="ml_dtypes")

    for name in [each for each in sys.modules if each.startswith("onnxruntime.quantization")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [WithoutMlDtypes, *sys.meta_path])
    with pytest.raises(UnsupportedError, match="ml_dtypes") as raised:
        prepared_of(network(tmp_path / "net.onnx"))
    assert "pip install ml_dtypes" in raised.value.hints


def test_a_network_without_weights_has_nothing_to_quantise(tmp_path: Path, samples: Samples) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input("data", list(SHAPE))))
    with pytest.raises(UnsupportedError, match="nothing to quantise"):
        made_of(path, samples)


@pytest.mark.parametrize("last", [1e30, np.inf], ids=["beyond float32 inside the network", "no numbers"])
@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_values_that_are_infinite_or_no_numbers_are_said(tmp_path: Path, method: Method, last: float) -> None:
    graph = Graph()
    product = graph.node("MatMul", graph.input("data", [1, 4]), graph.normal(4, 4))
    path = graph.save(tmp_path / "net.onnx", graph.node("Tanh", graph.node("Mul", product, product)))
    written(tmp_path, *({"data": np.full((1, 4), value, np.float32)} for value in (1, last)))
    with pytest.raises(InputError, match="infinite or no numbers"):
        make(find_task(str(path), tmp_path), Settings(method))


@pytest.mark.parametrize("place", [5, 1000])
def test_inputs_that_the_network_cannot_compute_with_are_said(tmp_path: Path, place: int) -> None:
    graph, data = begun(1, 40)
    taken = graph.node("Gather", data, graph.input("place", [1], onnx.TensorProto.INT64), axis=1)
    product = graph.node("MatMul", data, graph.normal(40, 8))
    path = graph.save(tmp_path / "net.onnx", graph.node("Add", product, taken))
    written(tmp_path, *({"data": np.ones((1, 40), np.float32), "place": np.array([each])} for each in (place, 1000)))
    with pytest.raises(InputError, match="cannot compute with") as raised:
        make(find_task(str(path), tmp_path), Settings())
    assert "idx=1000" in str(raised.value)


def test_weights_of_a_product_have_a_scale_for_each_of_its_columns(tmp_path: Path, samples: Samples) -> None:
    graph = Graph()
    flat = graph.node("Flatten", graph.input("data", list(SHAPE)))
    weights = graph.normal(432, 6)
    path = graph.save(tmp_path / "net.onnx", graph.node("MatMul", flat, weights))
    result = made_of(path, samples)
    _, scale, _ = integers_of(result.model, first(result.model, "MatMul", "Gemm").input[1])
    stated = constants(onnx.load(path))[weights]
    np.testing.assert_allclose(scale, np.abs(stated).max(axis=0) / 127, rtol=1e-5)


# Channels are equalised before: outputs stay, and small channels get more of 256 levels.


# How much larger each of eight channels is than the smallest.
UNEVEN = np.geomspace(1, 64, 8)


def uneven(graph: Graph, data: str, channels: int) -> str:
    """A convolution to eight channels of very different ranges."""
    kernels = graph.random.normal(0, 0.3, (8, channels, 1, 1)) * UNEVEN[:, None, None, None]
    return graph.node("Conv", data, graph.weight(kernels.astype(np.float32)), graph.normal(8, scale=0.1))


def even(graph: Graph, data: str) -> str:
    """A convolution of eight channels whose small ones count as much as the large ones."""
    kernels = graph.random.normal(0, 0.3, (8, 8, 1, 1)) / UNEVEN[:, None, None]
    return graph.node("Conv", data, graph.weight(kernels.astype(np.float32)))


def depthwise(graph: Graph, data: str) -> str:
    kernels = graph.random.normal(0, 0.3, (8, 1, 3, 3)) / UNEVEN[:, None, None, None]
    return graph.node("Conv", data, graph.weight(kernels.astype(np.float32)), group=8, pads=[1] * 4)


def before_depthwise(graph: Graph, data: str) -> str:
    return depthwise(graph, graph.node("LeakyRelu", uneven(graph, data, 3), alpha=0.1))


def before_another(graph: Graph, data: str) -> str:
    return even(graph, graph.node("Relu", uneven(graph, data, 3)))


def beside_a_shortcut(graph: Graph, data: str) -> str:
    """Two layers of which the sum is read by two others, once behind a pool and a resize."""
    first = graph.node("PRelu", uneven(graph, data, 3), graph.weight(np.full((8, 1, 1), 0.2, np.float32)))
    total = graph.node("Add", first, uneven(graph, even(graph, first), 8))
    pooled = graph.node("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    scales = graph.weight(np.array([1, 1, 2, 2], np.float32))
    wide = graph.node("Resize", pooled, "", scales, mode="nearest")
    return graph.node("Add", even(graph, total), even(graph, wide))


Build = Callable[[Graph, str], str]


def saved(tmp_path: Path, build: Build) -> Path:
    graph = Graph()
    return graph.save(tmp_path / "net.onnx", build(graph, graph.input("data", list(SHAPE))))


@pytest.mark.parametrize("build", [before_depthwise, before_another, beside_a_shortcut])
def test_outputs_stay_and_eight_bits_cost_less(build: Build, tmp_path: Path, samples: Samples) -> None:
    model = prepared_of(saved(tmp_path, build)).model
    level = equalised(model, samples)
    assert level is not model
    for sample in samples:
        [found], [expected] = (Runs(each)(sample.tensors).values() for each in (level, model))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())

    def quantised(basis: object) -> Comparison:
        return compare(model, quantise(basis, calibrate(basis, samples, "minmax"), layers_of(model)), samples, None)

    assert quantised(level).ratio_db > quantised(model).ratio_db + 6


@pytest.mark.parametrize(
    "between",
    [
        lambda graph, data: graph.node("Sigmoid", data),
        lambda graph, data: graph.clip(data, 0, 6),
        lambda graph, data: graph.node("Add", graph.node("Relu", data), graph.normal(1, 8, 1, 1)),
        lambda graph, data: graph.node("Concat", data, data, axis=2),
        lambda graph, data: graph.node("Add", data, graph.node("Sigmoid", data)),
        lambda graph, data: graph.node("Transpose", data, perm=[0, 1, 3, 2]),
    ],
    ids=["sigmoid", "clip", "constant", "concat", "gate", "transpose"],
)
def test_factors_do_not_pass_what_is_no_factor_of_its_result(between: Build, tmp_path: Path, samples: Samples) -> None:
    path = saved(tmp_path, lambda graph, data: depthwise(graph, between(graph, uneven(graph, data, 3))))
    model = prepared_of(path).model
    assert equalised(model, samples) is model


def test_weights_of_two_layers_stay_as_they_are(tmp_path: Path, samples: Samples) -> None:
    def shared(graph: Graph, data: str) -> str:
        kernels = graph.normal(8, 8, 1, 1)
        return graph.node("Conv", graph.node("Conv", uneven(graph, data, 3), kernels), kernels)

    model = prepared_of(saved(tmp_path, shared)).model
    assert equalised(model, samples) is model


def test_a_channel_that_is_always_zero_stays_finite(tmp_path: Path, samples: Samples) -> None:
    def dead(graph: Graph, data: str) -> str:
        kernels = graph.random.normal(0, 1, (8, 3, 1, 1)).astype(np.float32)
        kernels[3] = 0
        return depthwise(graph, graph.node("Relu", graph.node("Conv", data, graph.weight(kernels))))

    model = prepared_of(saved(tmp_path, dead)).model
    [found] = Runs(equalised(model, samples))(next(iter(samples)).tensors).values()
    assert np.isfinite(found).all()


def test_the_record_says_whether_channels_were_equalised(tmp_path: Path, samples: Samples) -> None:
    for build, wanted in ((before_depthwise, True), (lambda graph, data: uneven(graph, data, 3), False)):
        made = make(find_task(str(saved(tmp_path, build)), samples.folder), Settings())
        assert made.record.equalised is wanted
        assert ("channels equalised" in made.record.lines()[0]) is wanted
