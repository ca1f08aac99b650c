"""Channels are equalised before a network is quantised: outputs stay, and small channels get more of 256 levels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.networks import Graph

from edgedeploy.quantisation.agreement import Comparison, Runs, compare
from edgedeploy.quantisation.equalising import equalised
from edgedeploy.quantisation.making import Settings, find_task, make
from edgedeploy.quantisation.preparing import Prepared, prepare
from edgedeploy.quantisation.quantising import calibrate, layers_of, quantise
from edgedeploy.quantisation.samples import Samples, array_samples
from edgedeploy.zoo.source import Source

SHAPE = (1, 3, 12, 12)

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


def saved(tmp_path: Path, build: Callable[[Graph, str], str]) -> Path:
    graph = Graph()
    return graph.save(tmp_path / "net.onnx", build(graph, graph.input("data", list(SHAPE))))


def prepared_of(path: Path) -> Prepared:
    return prepare(Source.of(path, {}))


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    random = np.random.default_rng(5)
    folder = tmp_path / "inputs"
    folder.mkdir()
    for number in range(12):
        np.savez(folder / f"{number}.npz", data=random.normal(0, 1, SHAPE).astype(np.float32))
    prepared = prepared_of(saved(tmp_path, before_another))
    return array_samples(folder, sorted(folder.glob("*.npz")), prepared.inputs)


@pytest.mark.parametrize("build", [before_depthwise, before_another, beside_a_shortcut])
def test_outputs_stay_and_eight_bits_cost_less(
    build: Callable[[Graph, str], str], tmp_path: Path, samples: Samples
) -> None:
    model = prepared_of(saved(tmp_path, build)).model
    level = equalised(model, samples)
    assert level is not model
    for sample in samples:
        [found], [expected] = (Runs(each)(sample.tensors).values() for each in (level, model))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())

    def quantised(basis: object) -> Comparison:
        return compare(model, quantise(basis, calibrate(basis, samples, "minmax"), layers_of(model)), samples, None)

    assert quantised(level).ratio_db > quantised(model).ratio_db + 6


def limited(graph: Graph, data: str) -> str:
    return graph.node("Clip", data, graph.weight(np.float32(0)), graph.weight(np.float32(6)))


@pytest.mark.parametrize(
    "between",
    [
        lambda graph, data: graph.node("Sigmoid", data),
        limited,
        lambda graph, data: graph.node("Add", graph.node("Relu", data), graph.normal(1, 8, 1, 1)),
        lambda graph, data: graph.node("Concat", data, data, axis=2),
        lambda graph, data: graph.node("Add", data, graph.node("Sigmoid", data)),
        lambda graph, data: graph.node("Transpose", data, perm=[0, 1, 3, 2]),
    ],
    ids=["sigmoid", "clip", "constant", "concat", "gate", "transpose"],
)
def test_factors_do_not_pass_what_is_no_factor_of_its_result(
    between: Callable[[Graph, str], str], tmp_path: Path, samples: Samples
) -> None:
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
