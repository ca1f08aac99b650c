"""Half precision: what computes in it, how its sums round, and which layers are chosen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, numpy_helper
from support.agreement import assert_agrees, assert_near, computed, network_of, random_inputs
from support.commands import Notebook, json_of, output_of, refusal
from support.emulated import outputs_on
from support.networks import Graph, begun
from support.opencl_devices import kernels_of

from edgedeploy.base.progress import Progress
from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu import CpuBackend, winograd
from edgedeploy.compile.backends.cpu.configuration import Winograd
from edgedeploy.compile.output.explain import functions
from edgedeploy.compile.passes.half_precision import GROWTH, LARGEST, MARGIN
from edgedeploy.compile.pipeline import compile_network, lower_network, optimise
from edgedeploy.demo import usage
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import CompileError, DownloadError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.model.quantised import Half, Kept
from edgedeploy.model.tensors import Tensors
from edgedeploy.runtime.opencl import device_named
from edgedeploy.selftest import precision
from edgedeploy.selftest.inputs import picture_inputs
from edgedeploy.selftest.precision import with_half
from edgedeploy.selftest.recording import recorded
from edgedeploy.selftest.tolerance import tolerance_of
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.opencl.device import devices_here
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

pytestmark = pytest.mark.compiles

# The largest relative error of one rounding, half of 2^-10.
ROUNDOFF = 2.0**-11


def in_half(network: Network, *single: int) -> Network:
    """A network whose layers all compute in half precision, but for those of these numbers."""
    kept = [Kept(number=number, layer="a layer", why="the test asks for it") for number in single]
    half = Half(layers=100, single=kept, judged_by="test inputs", expected=0.0, errors={}, tested=0.0)
    return replace(network, half=half)


def types_of(network: Network, board: str = "rpi5") -> dict[str, str]:
    """By function, the type of the data that it reads."""
    lowered = lower_network(network, load_board(board))
    return {each["function"]: each["type"] for each in functions(lowered)}


def chain() -> tuple[Graph, str]:
    """Three layers with activations and a softmax, and their output."""
    graph, data = begun(1, 16, 8, 8)
    first = graph.node("Relu", graph.conv(data, 16, 32, 3, pads=[1, 1, 1, 1]))
    second = graph.node("Relu", graph.conv(first, 32, 32, 3, pads=[1, 1, 1, 1], group=32))
    mean = graph.node("GlobalAveragePool", graph.conv(second, 32, 24, 1))
    return graph, graph.node("Softmax", graph.node("Flatten", mean), axis=1)


class TestTypes:
    def test_layers_read_half_and_a_softmax_single(self) -> None:
        types = types_of(in_half(network_of(*chain())))
        assert [dtype for name, dtype in types.items() if "conv2d" in name] == ["float16"] * 3
        assert types["softmax"] == "float32"

    def test_a_layer_that_is_kept_reads_single(self) -> None:
        types = types_of(in_half(network_of(*chain()), 1))
        assert {name.partition("_add")[0]: dtype for name, dtype in types.items() if "conv2d" in name} == {
            "fused_conv2d_nchw": "float16",
            "fused_depthwise_conv2d": "float32",
            "fused_conv2d": "float16",
        }

    def test_inputs_and_outputs_stay_as_the_file_has_them(self) -> None:
        graph, data = begun(1, 8, 6, 6)
        network = in_half(network_of(graph, graph.conv(data, 8, 8, 1)))
        main = lower_network(network, load_board("rpi5")).module["main"]
        assert [str(each.ty.dtype) for each in main.params] == ["float32"]
        assert str(main.ret_ty.dtype) == "float32"

    def test_no_layer_is_in_half_unless_it_was_chosen(self) -> None:
        assert set(types_of(network_of(*chain())).values()) == {"float32"}


class TestSums:
    """A half holds whole numbers up to 2048: one more added to that is lost."""

    @pytest.mark.parametrize("terms", [2049, 4096, 4608])
    def test_a_long_sum_of_ones_loses_none(self, terms: int) -> None:
        kernel = 3 if terms % 9 == 0 else 1
        inputs = terms // kernel**2
        graph, data = begun(1, inputs, kernel, kernel)
        weights = graph.weight(np.ones((8, inputs, kernel, kernel), np.float32))
        network = in_half(network_of(graph, graph.node("Conv", data, weights)))
        [result] = computed(network, {"data": np.ones((1, inputs, kernel, kernel), np.float32)})
        # Beyond 2048 only sums of even numbers are exact, as those of parts of an even number of ones are.
        assert np.abs(result - terms).max() <= (0 if terms % 64 == 0 else 2)

    @pytest.mark.parametrize("board", ["rpi5", "local"])
    @pytest.mark.parametrize("layer", ["convolution", "depthwise", "product", "first"])
    def test_errors_are_those_of_short_sums(self, layer: str, board: str, tmp_path: Path) -> None:
        graph = Graph(seed=3)
        if layer == "product":
            terms, shape = 512, [4, 512]
            result = graph.node("MatMul", graph.input("data", shape), graph.normal(512, 40))
        else:
            convolutions = {"convolution": (64, 48, 1), "depthwise": (48, 48, 48), "first": (3, 16, 1)}
            channels, outputs, group = convolutions[layer]
            shape, terms = [1, channels, 9, 11], channels // group * 9
            data = graph.input("data", shape)
            result = graph.conv(data, channels, outputs, 3, bias=False, pads=[1, 1, 1, 1], group=group)
        network = network_of(graph, result)
        inputs = random_inputs(network)
        [found] = outputs_on(board, in_half(network), inputs, tmp_path)
        # What the same operands give without rounding sums, and the sum of the sizes of all products.
        data = _halved(inputs["data"])
        exact = network_of(_with_weights(graph, _halved), result).reference({"data": data})
        absolute = _with_weights(graph, lambda array: np.abs(_halved(array)))
        sizes = network_of(absolute, result).reference({"data": np.abs(data)})
        # Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2: each term of a sum in two
        # levels passes through the additions of one of each; a product is rounded, too, where it is not fused.
        additions = min(terms, 64) + terms // 32 + 2
        bound = additions * ROUNDOFF * sizes[result]
        assert found.shape == exact[result].shape
        assert (np.abs(found - exact[result]) <= bound).all()
        assert np.abs(found - exact[result]).max() > 0  # it is half precision

    def test_sums_over_kernel_elements_that_may_be_padding_are_right(self, tmp_path: Path) -> None:
        """Most elements of a kernel on so few pixels meet nothing but padding."""
        graph, data = begun(1, 128, 4, 4)
        result = graph.node("Conv", data, graph.normal(32, 128, 1, 9), pads=[0, 4, 0, 4])
        network = network_of(graph, result)
        inputs = random_inputs(network)
        [found] = outputs_on("rpi5", in_half(network), inputs, tmp_path)
        assert_near({result: found}, network.reference(inputs), 1e-2)

    @pytest.mark.parametrize("board", ["rpi5", "local"])
    def test_winograd_rounds_as_much_as_is_estimated(self, board: str, tmp_path: Path) -> None:
        graph, data = begun(1, 64, 28, 28)
        result = graph.conv(data, 64, 64, 3, bias=False, pads=[1, 1, 1, 1])
        network, profile = network_of(graph, result), load_board(board)
        lowered = lower_network(in_half(network), profile)
        [(name, group)] = optimise(in_half(network), profile).groups.items()
        chosen = lowered.functions[f"{name}_scheduled"].configuration
        assert isinstance(chosen, Winograd)
        assert chosen.size == 4
        inputs = random_inputs(network)
        [found] = outputs_on(board, in_half(network), inputs, tmp_path)
        exact = network_of(_with_weights(graph, _halved), result).reference({"data": _halved(inputs["data"])})[result]
        estimate = math.sqrt(
            host_of(profile).strategy(group.layer).rounding(chosen) * np.mean(exact.astype(np.float64) ** 2)
        )
        error = math.sqrt(np.mean((found - exact).astype(np.float64) ** 2))
        assert estimate / 2 <= error <= 2 * estimate

    def test_infinities_and_nan_pass(self) -> None:
        graph, data = begun(1, 8, 2, 2)
        weights = graph.weight(np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1))
        network = in_half(network_of(graph, graph.node("Relu", graph.node("Conv", data, weights))))
        image = np.ones((1, 8, 2, 2), np.float32)
        image[0, 3] = np.nan
        [result] = computed(network, {"data": image})
        assert np.isnan(result).all()  # each filter multiplies it by zero


class TestAfterTheSum:
    @pytest.mark.parametrize("board", ["rpi5", "rpi4", "local"])
    @pytest.mark.parametrize(("name", "error", "relative"), [("sigmoid", 2.0**-10, 0), ("gelu", 0.0012, 2 * ROUNDOFF)])
    def test_activations_of_all_halves_are_right(
        self, name: str, error: float, relative: float, board: str, tmp_path: Path
    ) -> None:
        """GELU doubles its input before it halves it, within the range that `MARGIN` leaves.

        A Raspberry Pi 4 lacks half arithmetic, as may the CPU beside a device that has it.
        """
        every = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(1, 8, 64, 128)
        values = every.astype(np.float64)
        with np.errstate(over="ignore"):
            exact = 1 / (1 + np.exp(-values))
        if name == "gelu":
            every = np.where(np.abs(values) <= LARGEST / MARGIN, every, np.float16(0))
            values = every.astype(np.float64)
            exact = values / 2 * (1 + np.vectorize(math.erf)(values * 2**-0.5))
        graph, data = begun(*every.shape)
        passed = graph.node("Conv", data, graph.weight(np.ones((8, 1, 1, 1), np.float32)), group=8)
        result = gelu(graph, passed) if name == "gelu" else graph.node("Sigmoid", passed)
        network = in_half(network_of(graph, result))
        [found] = outputs_on(board, network, {"data": every.astype(np.float32)}, tmp_path)
        np.testing.assert_allclose(found, exact, rtol=relative, atol=error, equal_nan=True)
        assert (found == _halved(found))[~np.isnan(exact)].all()

    @pytest.mark.parametrize("function", ["sigmoid", "erf"])
    def test_silu_and_gelu_compute_in_half_from_the_sum_on(self, function: str) -> None:
        graph, data = begun(1, 16, 8, 8)
        first = {"sigmoid": silu, "erf": gelu}[function](graph, graph.conv(data, 16, 16, 1))
        network = in_half(network_of(graph, graph.conv(first, 16, 16, 1)))
        module = lower_network(network, load_board("rpi5")).module
        [text] = [each.script() for variable, each in module.functions.items() if function in variable.name_hint]
        assert "float16" in text
        assert "float32" not in text

    def test_attention_gathers_halves(self) -> None:
        graph, data = begun(1, 16, 32)
        heads = graph.reshape(graph.node("MatMul", data, graph.normal(32, 96)), 16, 3, 32)
        parts = [graph.node("Gather", heads, graph.weight(np.array(each)), axis=1) for each in range(3)]
        query, key, value = parts
        weights = graph.node("MatMul", query, graph.node("Transpose", key, perm=[1, 0]))
        types = types_of(in_half(network_of(graph, graph.node("MatMul", weights, value))))
        assert {kind for name, kind in types.items() if "take" in name} == {"float16"}

    @pytest.mark.parametrize("board", ["rpi5", "local"])
    def test_a_bias_keeps_what_half_precision_rounds_off(self, board: str, tmp_path: Path) -> None:
        graph, data = begun(1, 8, 4, 4)
        bias = np.float32(1 / 3)
        weights = graph.weight(np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1))
        result = graph.node("Conv", data, weights, graph.weight(np.full(8, bias)))
        network = in_half(network_of(graph, result))
        inputs = {"data": np.full((1, 8, 4, 4), -np.float32(np.float16(bias)))}
        [found] = outputs_on(board, network, inputs, tmp_path)
        np.testing.assert_allclose(found, bias - np.float32(np.float16(bias)), rtol=ROUNDOFF)

    @pytest.mark.parametrize(("mode", "dtype"), [("nearest", "float16"), ("linear", "float32")])
    def test_nearest_neighbours_are_moved_as_halves_and_others_computed_in_single(self, mode: str, dtype: str) -> None:
        graph, data = begun(1, 8, 4, 4)
        larger = graph.doubled(graph.conv(data, 8, 8, 1), mode)
        types = types_of(in_half(network_of(graph, graph.conv(larger, 8, 8, 1))))
        assert [kind for name, kind in types.items() if "resize" in name] == [dtype]


def _with_weights(graph: Graph, change: Callable[[np.ndarray], np.ndarray]) -> Graph:
    other = Graph()
    other.nodes, other.inputs = graph.nodes, graph.inputs
    other.weights = [numpy_helper.from_array(change(numpy_helper.to_array(each)), each.name) for each in graph.weights]
    return other


def _halved(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def with_choice(network: Network, wanted: str = "auto", board: str = "rpi5", **options: Any) -> Network:
    return with_half(network, resolve(board, {"precision": wanted}).profile, recorded(network), **options)


def chosen(network: Network, wanted: str = "auto", **options: Any) -> Half:
    """Which layers are in half precision; some must be."""
    half = with_choice(network, wanted, **options).half
    assert half is not None
    return half


def assert_right(network: Network, half: Half) -> None:
    inputs = random_inputs(network)
    [found], [expected] = computed(replace(network, half=half), inputs), network.reference(inputs).values()
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 1e-2 * np.abs(expected).max()


def nearly_nothing(graph: Graph, data: str) -> str:
    """The difference of two layers that are nearly the same, which rounding changes by as much."""
    weights = graph.random.standard_normal((16, 16, 1, 1)).astype(np.float32)
    nearly = weights * (1 + 1e-3 * graph.random.standard_normal(weights.shape)).astype(np.float32)
    return graph.node("Sub", *(graph.node("Conv", data, graph.weight(each)) for each in (weights, nearly)))


class TestChoice:
    def test_all_layers_of_an_ordinary_network_are_in_half(self) -> None:
        half = chosen(network_of(*chain()))
        assert (half.layers, half.single) == (3, [])
        assert 0 < max(half.errors.values()) < 4e-3

    @pytest.mark.parametrize("precision", ["auto", "half"])
    def test_a_layer_whose_values_leave_the_range_stays_in_single(self, precision: str) -> None:
        graph, data = begun(1, 8, 6, 6)
        near = graph.conv(data, 8, 8, 1)
        large = graph.node("Conv", near, graph.normal(8, 8, 1, 1, scale=1e5))
        small = graph.node("Conv", large, graph.normal(8, 8, 1, 1, scale=1e-5))
        network = network_of(graph, small)
        half = chosen(network, precision)
        assert "largest number of half precision" in {each.number: each.why for each in half.single}[1]
        assert half.single[0].layer.startswith("1 x 1 convolution, 8 to 8 channels")
        assert_right(network, half)

    @pytest.mark.parametrize("kernel", [1, 3])
    def test_the_stated_error_is_that_of_the_boards_code(self, kernel: int, tmp_path: Path) -> None:
        """Sums of 1152 terms round by more than data and weights do; so do Winograd's transforms."""
        graph, data = begun(1, 128 if kernel == 3 else 1152, 14, 14)
        pads = [kernel // 2] * 4
        network = network_of(graph, graph.conv(data, 128 if kernel == 3 else 1152, 64, kernel, bias=False, pads=pads))
        half = chosen(network, "half")
        worst = 0.0
        for case in recorded(network).values():
            [found] = outputs_on("rpi5", replace(network, half=half), case.inputs, tmp_path)
            [expected] = case.outputs.values()
            worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
        assert worst / 2 <= half.tested <= 2 * worst
        assert half.tested > 2 * ROUNDOFF

    def test_transformed_data_leave_the_range_before_data_do(self) -> None:
        rows = max(np.abs(transform.inputs).sum(axis=1).max() for transform in winograd.TRANSFORMS.values())
        assert rows**2 <= GROWTH < 1.01 * rows**2
        graph, data = begun(1, 8, 6, 6)
        large = graph.node("Mul", data, graph.weight(np.array(3000.0, np.float32)))
        for kernel, kept in ((1, []), (3, [0])):
            weights = graph.normal(8, 8, kernel, kernel, scale=1e-3)
            result = graph.node("Conv", large, weights, pads=[kernel // 2] * 4)
            half = chosen(network_of(graph, graph.node("Relu", result)), "half")
            assert [each.number for each in half.single] == kept

    def test_layers_whose_rounding_matters_stay_in_single(self) -> None:
        graph, data = begun(1, 16, 6, 6)
        half = chosen(network_of(graph, graph.conv(nearly_nothing(graph, data), 16, 8, 1)))
        assert [each.number for each in half.single] == [0, 1]
        assert all("half precision changes outputs by" in each.why for each in half.single)

    def test_of_many_layers_those_that_matter_are_found_in_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(precision, "_MOST_GFLOP", 0.0)
        graph, data = begun(1, 16, 6, 6)
        for _ in range(10):
            data = graph.conv(data, 16, 16, 1)
        data = nearly_nothing(graph, data)
        for _ in range(10):
            data = graph.conv(data, 16, 16, 1)
        half = chosen(network_of(graph, data))
        assert half.layers == 22
        kept = {each.number for each in half.single}
        assert kept >= {10, 11}
        assert len(kept) < 8

    def test_a_shortcut_beside_a_concatenation_can_be_tried(self) -> None:
        graph, data = begun(1, 16, 48, 48)
        first = graph.node("Split", silu(graph, graph.conv(data, 16, 32, 1)), outputs=2, axis=1)
        second = f"{first}_1"
        inner = silu(graph, graph.conv(second, 16, 8, 3, pads=[1] * 4))
        block = graph.node("Add", second, silu(graph, graph.conv(inner, 8, 16, 3, pads=[1] * 4)))
        half = chosen(network_of(graph, graph.conv(graph.node("Concat", first, second, block, axis=1), 48, 32, 1)))
        assert (half.layers, half.single) == (4, [])

    def test_a_trial_that_cannot_be_compiled_leaves_single_precision(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def failing(network: Network) -> None:
            raise CompileError("net", why="a fault")

        monkeypatch.setattr(precision, "_compiled", failing)
        network, progress = network_of(*chain()), Notebook()
        assert with_choice(network, progress=progress).half is None
        assert progress.lines == ["net.onnx is built in single precision: no trial of half: a fault"]
        with pytest.raises(CompileError, match="a fault"):
            chosen(network, "half")

    def test_pictures_judge_the_outputs_of_networks_that_take_pictures(self) -> None:
        use = find_use("digits")
        assert use is not None
        network, known = use.of(find_source("digits").read())
        half = chosen(network, usage=known)
        assert half.judged_by == "pictures"
        [picture, other] = (each["data"] for each in picture_inputs(network, use.part.input))
        assert picture.shape == tuple(network.inputs[0].shape)
        assert np.abs(picture - other).max() > 0
        without = chosen(network)
        assert without.judged_by == "test inputs"
        assert half.tested == without.tested

    def test_results_of_the_demos_image_stay_those_of_single_precision(self) -> None:
        network = network_of(*chain())

        @dataclass(frozen=True)
        class Near:
            """An image whose results differ if outputs do by more than is allowed, of the largest value."""

            inputs: Tensors
            allowed: float

            def same(self, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
                assert one.keys() == {spec.name for spec in network.outputs}
                return all(np.abs(one[each] - other[each]).max() <= self.allowed * one[each].max() for each in one)

        every = chosen(network, example=Near(random_inputs(network), 1.0))
        assert (every.judged_by, every.single) == ("pictures and the demo's image", [])
        image = Near(random_inputs(network), 0.5 * max(every.errors.values()))
        half = chosen(network, example=image)
        assert 0 < len(half.single) <= half.layers
        assert max(half.errors.values()) <= image.allowed
        assert chosen(network, "half", example=image).single == []

    def test_quantised_layers_are_left_alone(self) -> None:
        assert with_choice(replace(network_of(*chain()), quantised=True)).half is None

    def test_the_choice_is_the_same_every_time(self) -> None:
        network = network_of(*chain())
        assert chosen(network) == chosen(network)


def classifier(rows: int = 1, *, exact: bool = False) -> Network:
    """A convolution, and a product with 2 MiB of weights, which half precision may hold exactly."""
    graph, data = begun(rows, 64, 4, 4)
    weights = graph.random.standard_normal((1024, 512)).astype(np.float16 if exact else np.float32) / 32
    features = graph.node("Flatten", graph.conv(data, 64, 64, 1))
    return network_of(graph, graph.node("Gemm", features, graph.weight(weights.astype(np.float32)), graph.normal(512)))


def weights_of(network: Network, board: str, **changes: Any) -> str:
    """The type in which the weights of the product are stored."""
    lowered = lower_network(network, resolve(board, changes).profile)
    [[*parameters]] = [each.params for name, each in lowered.module.functions.items() if "matmul" in name.name_hint]
    [kind] = [each.ty for each in parameters if math.prod(each.ty.shape) >= 1024 * 512]
    return str(kind.dtype)


class TestWeights:
    """A product of few rows waits for its weights, of which twice as many come from memory in half precision."""

    def test_weights_that_half_precision_holds_are_stored_in_it_and_change_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = classifier(exact=True)
        assert weights_of(network, "rpi4") == "float16"
        inputs = random_inputs(network)
        [found] = outputs_on("rpi4", network, inputs, tmp_path)
        monkeypatch.setattr(CpuBackend, "with_half_weights", lambda *_: None)
        assert weights_of(network, "rpi4") == "float32"
        np.testing.assert_array_equal(found, *outputs_on("rpi4", network, inputs, tmp_path))

    def test_x86_widens_them_too(self) -> None:
        assert weights_of(classifier(exact=True), "local", cpu="haswell") == "float16"
        assert weights_of(classifier(exact=True), "local", cpu="x86-64-v2") == "float32"

    def test_others_are_stored_as_they_are(self) -> None:
        assert weights_of(classifier(), "rpi4") == "float32"

    @pytest.mark.parametrize(("rows", "board"), [(16, "rpi4"), (1, "rpi3"), (1, "rpi-armhf"), (1, "nuc-opencl")])
    def test_so_are_those_for_which_the_core_does_not_wait(self, rows: int, board: str) -> None:
        """It does more with each weight, takes longer to compute than the memory to deliver, or a device computes."""
        assert weights_of(classifier(rows, exact=True), board) == "float32"

    def test_auto_rounds_them_for_a_cpu_without_half_arithmetic(self, tmp_path: Path) -> None:
        network = with_choice(classifier(), board="rpi4")
        half = network.half
        assert half is not None
        assert (half.layers, half.weights, half.single) == (1, [1], [])
        assert half.lines()[0].startswith("1 of 1 large products read weights in half precision, which changes outputs")
        assert weights_of(network, "rpi4") == "float16"
        assert weights_of(replace(classifier(16), half=half), "rpi4") == "float32"  # an entry of another batch size
        [found], inputs = outputs_on("rpi4", network, random_inputs(network), tmp_path), random_inputs(network)
        [expected] = network.reference(inputs).values()
        assert 0 < np.abs(found - expected).max() <= 2 * half.error * np.abs(expected).max()
        assert half.error < ROUNDOFF
        case = recorded(network)["random"]
        relative, _ = tolerance_of(network, load_board("rpi4"), case, network.outputs[0].name)
        assert relative == pytest.approx(3 * half.tested, rel=0.1)  # more exact than layers in half precision are

    def test_weights_beyond_its_range_stay_in_single(self) -> None:
        graph = Graph()
        result = graph.node("MatMul", graph.input("data", [1, 1024]), graph.normal(1024, 512, scale=3e4))
        network = with_choice(network_of(graph, result), board="rpi4")
        assert network.half is not None
        assert [each.number for each in network.half.single] == [0]
        assert weights_of(network, "rpi4") == "float32"


# So many times weights are larger, so that sums reach 1e5, beyond 65504.
LARGE = 3e4


def attention(graph: Graph, tokens: str, count: int, channels: int) -> str:
    """Attention of one head, whose logits are large, too: its softmax takes one token and nothing of others."""
    query, key, value = (graph.node("MatMul", tokens, graph.normal(channels, channels)) for _ in range(3))
    turned = graph.node("Transpose", key, perm=[0, 2, 1])
    weights = graph.node("Softmax", graph.node("MatMul", query, turned), axis=-1)
    return graph.node("MatMul", graph.node("MatMul", weights, value), graph.normal(channels, channels, scale=LARGE))


def normalised(graph: Graph, data: str, channels: int) -> str:
    return graph.node("LayerNormalization", data, graph.normal(channels), graph.normal(channels), axis=-1)


def gelu(graph: Graph, data: str) -> str:
    half, one, root = (graph.weight(np.array(value, np.float32)) for value in (0.5, 1.0, 2**-0.5))
    tail = graph.node("Add", graph.node("Erf", graph.node("Mul", data, root)), one)
    return graph.node("Mul", graph.node("Mul", data, half), tail)


def perceptron(graph: Graph, data: str, channels: int) -> str:
    hidden = gelu(graph, graph.node("MatMul", data, graph.normal(channels, 2 * channels)))
    return graph.node("MatMul", hidden, graph.normal(2 * channels, channels, scale=LARGE))


def silu(graph: Graph, data: str) -> str:
    return graph.node("Mul", data, graph.node("Sigmoid", data))


def vit() -> tuple[Graph, str, str]:
    """A network, the name of large values in it, and its output."""
    graph = Graph(opset=17)
    tokens = graph.node("MatMul", graph.input("data", [1, 16, 32]), graph.normal(32, 32))
    tokens = graph.node("Add", tokens, attention(graph, normalised(graph, tokens, 32), 16, 32))
    tokens = graph.node("Add", tokens, perceptron(graph, normalised(graph, tokens, 32), 32))
    return graph, tokens, graph.node("MatMul", normalised(graph, tokens, 32), graph.normal(32, 10))


def swin() -> tuple[Graph, str, str]:
    graph = Graph(opset=17)
    data = graph.conv(graph.input("data", [1, 3, 16, 16]), 3, 24, 2, strides=[2, 2])
    parts = [graph.slice(data, 4, 99, axis=2), graph.slice(data, 0, 4, axis=2)]
    shifted = graph.reshape(graph.node("Concat", *parts, axis=2), 24, 2, 4, 2, 4)
    tokens = graph.reshape(graph.node("Transpose", shifted, perm=[1, 3, 2, 4, 0]), 4, 16, 24)
    tokens = graph.node("Add", tokens, attention(graph, normalised(graph, tokens, 24), 16, 24))
    return graph, tokens, graph.node("MatMul", normalised(graph, tokens, 24), graph.normal(24, 8))


def convnext() -> tuple[Graph, str, str]:
    graph = Graph(opset=17)
    data = graph.conv(graph.input("data", [1, 3, 24, 24]), 3, 24, 4, strides=[4, 4])
    wide = graph.conv(data, 24, 24, 7, pads=[3, 3, 3, 3], group=24)
    last = normalised(graph, graph.node("Transpose", wide, perm=[0, 2, 3, 1]), 24)
    block = graph.node("Transpose", perceptron(graph, last, 24), perm=[0, 3, 1, 2])
    sums = graph.node("Add", data, block)
    mean = graph.node("Flatten", graph.node("GlobalAveragePool", sums))
    return graph, sums, graph.node("MatMul", normalised(graph, mean, 24), graph.normal(24, 8))


def yolox() -> tuple[Graph, str, str]:
    graph = Graph(opset=17)
    data = silu(graph, graph.conv(graph.input("data", [1, 12, 16, 16]), 12, 16, 3, pads=[1, 1, 1, 1]))
    weights = graph.normal(16, 16, 3, 3, scale=LARGE)
    large = silu(graph, graph.node("Conv", data, weights, pads=[1, 1, 1, 1]))
    low = graph.node("MaxPool", large, kernel_shape=[2, 2], strides=[2, 2])
    high = graph.doubled(low, coordinate_transformation_mode="asymmetric")
    both = graph.node("Concat", high, data, axis=1)
    small = graph.node("Conv", both, graph.normal(8, 32, 1, 1, scale=0.1 / LARGE))
    return graph, large, graph.node("Sigmoid", graph.conv(silu(graph, small), 8, 6, 1))


@pytest.mark.parametrize("made", [vit, swin, convnext, yolox])
class TestRanges:
    """Values of 1e5, which half precision does not hold; ncnn gives NaN for such a network (its issue 6932)."""

    def test_networks_of_large_values_are_right(self, made: Callable[[], tuple[Graph, str, str]]) -> None:
        graph, large, result = made()
        network = network_of(graph, result)
        assert np.abs(network_of(graph, large).reference(random_inputs(network))[large]).max() > 1e5
        half = chosen(network)
        assert half.used
        assert any("largest number of half precision" in each.why for each in half.single)
        assert_right(network, half)

    def test_all_layers_that_can_be_in_half_leave_them_finite(self, made: Callable[[], tuple[Graph, str, str]]) -> None:
        graph, _, result = made()
        network = network_of(graph, result)
        [found] = computed(replace(network, half=chosen(network, "half")), random_inputs(network))
        assert np.isfinite(found).all()


def device(**fields: object) -> Board:
    """The profile of this machine's OpenCL device, if it had half precision."""
    entry = {"half": True, "little_work": 0, **fields}
    return resolve("local-opencl", {"device": entry, "precision": "auto"}).profile


def operators() -> tuple[Graph, list[str]]:
    """Operators of many kinds after a layer, which compute in half, or round to it what they computed in single."""
    graph, data = begun(1, 16, 8, 8)
    image = graph.conv(data, 16, 16, 1)
    other, bound = graph.node("Sigmoid", image), graph.weight(np.float32(0.5))
    rows = graph.reshape(image, 16, 64)
    small = graph.node("Greater", bound, image)
    return graph, [
        graph.node("MaxPool", image, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        graph.node("ReduceMin", image, axes=[2, 3]),
        graph.node("ReduceMean", image, axes=[2, 3]),
        graph.node("Softmax", rows, axis=1),
        graph.node("MatMul", rows, graph.node("Transpose", rows, perm=[1, 0])),
        graph.node("Concat", image, other, axis=1),
        graph.node("Where", small, image, graph.node("Neg", image)),
        graph.node("Cast", small, to=TensorProto.FLOAT),
        graph.node("Clip", image, graph.node("Neg", bound), bound),
        graph.node("PRelu", image, graph.normal(16, 1, 1)),
        graph.node("Max", image, other),
        graph.node("Div", image, graph.node("Add", other, bound)),
        *(graph.node(name, image) for name in ("Exp", "Erf", "Tanh", "HardSigmoid", "Softplus")),
        graph.node("Pow", other, graph.weight(np.float32(1.7))),
        graph.doubled(image),
        gelu(graph, image),
        silu(graph, image),
    ]


def layers() -> tuple[Graph, list[str]]:
    """Layers of each kind, with short and long sums."""
    graph, data = begun(1, 32, 9, 11)
    rows = graph.reshape(graph.conv(data, 32, 96, 3, group=32), 63, 96)
    return graph, [
        graph.conv(data, 32, 24, 3, pads=[1, 1, 1, 1], strides=[2, 2]),
        graph.conv(data, 32, 64, 1),
        graph.conv(data, 32, 32, 9, pads=[4, 4, 4, 4], group=32),
        graph.conv(graph.input("first", [1, 3, 33, 17]), 3, 16, 7, strides=[2, 2]),
        graph.node("MatMul", rows, graph.normal(96, 40)),
        graph.node("MatMul", rows, graph.node("Transpose", rows, perm=[1, 0])),
    ]


class TestDevices:
    @pytest.mark.parametrize("made", [operators, layers])
    def test_kernels_are_right(self, made: Callable[[], tuple[Graph, list[str]]], tmp_path: Path) -> None:
        """By clang, and by a device here if one has half precision."""
        graph, outputs = made()
        network = network_of(graph, *outputs)
        compiled = compile_network(in_half(network), device(vector=4))
        assert not compiled.on_cpu
        source = kernels_of(compiled, tmp_path)
        assert "vstore8(" in source
        assert "#pragma OPENCL EXTENSION cl_khr_fp16 : enable" in source
        if name := next((each.name for each in devices_here() if each.half), None):
            assert_agrees(compiled, network, 1e-2, device_named(name))

    @pytest.mark.parametrize("terms", [64, 128])
    def test_long_sums_consist_of_short_ones(self, terms: int, tmp_path: Path) -> None:
        graph, data = begun(1, terms, 4, 4)
        network = in_half(network_of(graph, graph.conv(data, terms, 16, 1)))
        source = kernels_of(compile_network(network, device()), tmp_path)
        assert ("_rf_local" in source) == (terms > 64)
        assert re.search(r"half\d+ conv2d\w*_local", source)

    def test_layers_are_chosen_for_a_device_with_it_alone(self) -> None:
        network = network_of(*chain())
        assert with_half(network, device(), recorded(network)).half == chosen(network)
        assert with_choice(network, board="nuc-opencl").half is None


# Boards without arithmetic in half precision, and why.
WITHOUT = {"rpi4": "cortex-a72 has no", "nuc-opencl": "its opencl device is not known to have"}

BUILD = "build", "digits", "--board", "rpi5"


class TestCommand:
    def test_a_package_says_what_is_in_half(self, command: Command) -> None:
        [built] = json_of(command, *BUILD, "--precision", "auto", "--force")
        assert built["half"]["layers"] > 0
        assert built["error_of_tolerance"] < 1
        shown = output_of(command, "package", "show", built["package"])
        assert "layers in half precision, which changes outputs by up to" in shown

    def test_explain_says_why_a_layer_is_in_single(self, command: Command, tmp_path: Path) -> None:
        graph, data = begun(1, 8, 6, 6)
        large = graph.node("Conv", data, graph.normal(8, 8, 1, 1, scale=1e6))
        path = graph.save(tmp_path / "net.onnx", graph.node("Conv", large, graph.normal(8, 8, 1, 1, scale=1e-6)))
        build = "build", path, "--board", "rpi5", "--precision", "half"
        explained = output_of(command, *build, "--explain", "--no-check")
        assert "in single precision" in explained
        assert "largest number of half precision" in " ".join(explained.split())

    @pytest.mark.parametrize("board", WITHOUT)
    def test_half_is_refused_without_its_arithmetic(self, command: Command, board: str) -> None:
        message = refusal(command, 12, "build", "digits", "--board", board, "--precision", "half")
        assert f"{WITHOUT[board]} arithmetic in half precision" in message
        assert "--precision single" in message

    def test_it_needs_its_pass(self, command: Command) -> None:
        build = *BUILD, "--disable-pass", "compute-in-half", "--no-check"
        assert "the pass compute-in-half is disabled" in refusal(command, 12, *build, "--precision", "half")
        said = refusal(command, 0, *build, "--precision", "auto")
        assert "is built in single precision: the pass compute-in-half is disabled" in said

    @pytest.mark.parametrize("board", WITHOUT)
    def test_auto_is_single_without_it(self, command: Command, board: str) -> None:
        code, out, err = command("build", "digits", "--board", board, "--precision", "auto", "--no-check")
        assert code == 0
        said = f"is built in single precision: {WITHOUT[board]} arithmetic in half precision"
        assert said in " ".join(err.split())
        assert "precision:" not in out


class TestJudges:
    def test_the_demos_image_judges_and_decides_the_package(
        self, command: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [built] = json_of(command, *BUILD, "--no-check")
        assert built["half"]["judged_by"] == "pictures and the demo's image"

        def fail(name: str, _: Progress) -> Path:
            raise DownloadError(f"cannot get the image of {name}")

        monkeypatch.setattr(usage, "demo_image", fail)
        code, out, err = command(*BUILD, "--no-check")
        assert code == 0
        assert "of their largest value for pictures\n" in out
        said = "the image of the demo digits does not judge half precision: cannot get the image of digits"
        assert said in " ".join(err.split())

    @pytest.mark.parametrize("options", [["--precision", "single"], ["--camera", "64x64:rgb"]])
    def test_the_demos_image_is_not_asked_for_where_nothing_depends_on_it(
        self, options: Sequence[str], monkeypatch: pytest.MonkeyPatch, command: Command
    ) -> None:
        monkeypatch.setattr(usage, "demo_image", lambda *_: pytest.fail("it was asked for"))
        output_of(command, *BUILD, "--no-check", *options)

    def test_given_images_judge_and_labelled_ones_state_the_accuracy(self, command: Command, digits: Path) -> None:
        folders = "--calibrate", digits / "seen", "--evaluate", digits / "new"
        [built] = json_of(command, *BUILD, "--no-check", "--force", *folders)
        assert built["half"]["judged_by"] == "given inputs"
        accuracy = built["half"]["accuracy"]
        # What models/digits.yaml states of the network in single precision, to a digit that falls to the other side.
        assert accuracy["before"] == pytest.approx(0.9887, abs=1.5 / 355)
        assert accuracy["after"] == pytest.approx(accuracy["before"], abs=1.5 / 355)
        assert (accuracy["of"], accuracy["samples"]) == ("top-1", 355)
        assert "(355 images)" in output_of(command, "package", "show", built["package"])

    def test_a_folder_that_is_missing_is_refused(self, command: Command) -> None:
        for option in ("--calibrate", "--evaluate"):
            assert "there is no folder none" in refusal(command, 7, *BUILD, option, "none")

    def test_they_need_half_precision(self, command: Command, digits: Path) -> None:
        build = "build", "digits", "--no-check", "--calibrate", digits / "seen", "--board"
        assert "cortex-a72 has no arithmetic in half precision" in refusal(command, 7, *build, "rpi4")
        single = refusal(command, 7, *build, "rpi5", "--precision", "single")
        assert "no layers in half precision to judge: single precision is asked for" in single

    def test_labelled_images_need_a_demo(self, command: Command, digits: Path, tmp_path: Path) -> None:
        graph, data = begun(1, 8, 6, 6)
        path = graph.save(tmp_path / "net.onnx", graph.conv(data, 8, 8, 1))
        build = "build", path, "--board", "rpi5", "--no-check", "--evaluate", digits / "new"
        assert "--evaluate needs to know how images become inputs" in refusal(command, 7, *build)


class TestFilesInHalf:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A network in half precision, from its inputs to its outputs."""
        graph, result = chain()
        model = graph.model(result)
        for weight in model.graph.initializer:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
        del model.graph.value_info[:]
        onnx.save(model, tmp_path / "net.onnx")
        return tmp_path / "net.onnx"

    def test_they_compute_in_single_on_a_cpu_without_half(self, path: Path) -> None:
        network = read_onnx(path)
        types = types_of(network, "rpi4")
        assert {dtype for name, dtype in types.items() if "conv2d" in name} == {"float32"}
        found, expected = computed(network, random_inputs(network)), network.reference(random_inputs(network))
        for one, other in zip(found, expected.values(), strict=True):
            assert one.dtype == np.float16
            assert np.abs(one - other).max() <= 2 * ROUNDOFF * np.abs(other).max()

    def test_they_compute_in_half_on_a_cpu_with_it(self, path: Path) -> None:
        network = read_onnx(path)
        half = with_half(network, load_board("rpi5"), recorded(network))
        assert half.half is not None
        assert [dtype for name, dtype in types_of(half).items() if "conv2d" in name] == ["float16"] * 3
