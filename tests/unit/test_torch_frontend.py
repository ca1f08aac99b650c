"""PyTorch's exported programs: what is recognised, what they compute, what is refused; nothing in a file is run."""

import io
import json
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from support.agreement import computed, random_inputs, results_of
from support.fuzzing import damaged, survive

from edgedeploy.compile.ir.expressions import constant_value, is_call, parts_of
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ModelError, NotInstalledError
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.torch import FORMAT, plain_archive
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board
from edgedeploy.vision.decoders.yolo import Yolox
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import read_image


class _PyTorch:
    """PyTorch, which is imported where a test needs it; without it the test is skipped."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what pytest looks for as it collects
            raise AttributeError(name)
        warnings.simplefilter("ignore")  # it warns of itself; pytest undoes this after each test
        reason = "PyTorch is not installed: pip install 'edgedeploy[torch]'"
        return getattr(pytest.importorskip("torch", reason=reason), name)


torch = _PyTorch()

PARTS, CONSTANTS = "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"
WEIGHTS = {"config": {"w": {"path_name": "weight_0", "use_pickle": False}}}
GRAPH = {"graph_module": {"graph": {"nodes": [{"target": "torch.ops.aten.relu.default"}]}}, "guards_code": ["1/0"]}


def archive(path: Path, **replaced: object) -> Path:
    """An archive with the parts of an exported program, some of which are replaced (or left out, by None)."""
    parts: dict[str, Any] = {
        "models/model.json": json.dumps(GRAPH),
        PARTS: json.dumps(WEIGHTS),
        "data/weights/weight_0": bytes(64),
        CONSTANTS: '{"config": {}}',
        "data/sample_inputs/model.pt": b"a pickle that nobody reads",
        "archive_format": "pt2",
        "archive_version": "0",
        "byteorder": "little",
        **replaced,
    }
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in parts.items():
            if content is not None:
                opened.writestr(f"net/{name}", content)
    return path


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name.partition("/")[2]: opened.read(name) for name in opened.namelist()}


def test_an_archive_is_recognised_by_its_content(tmp_path: Path) -> None:
    assert describing(archive(tmp_path / "without a suffix"))[0] is FORMAT


def test_pytorch_is_given_neither_pickles_nor_python(tmp_path: Path) -> None:
    path = archive(tmp_path / "net.pt2")
    kept = members(plain_archive(path, path.read_bytes()))
    assert kept["data/sample_inputs/model.pt"] == b""
    assert json.loads(kept["models/model.json"])["guards_code"] == []
    assert kept["data/weights/weight_0"] == bytes(64)


@pytest.mark.parametrize("content", [pickle.dumps({"a": 1}), pickle.dumps([1], protocol=2), None])
def test_pickles_and_torchscript_are_refused_with_the_way_to_export(tmp_path: Path, content: bytes | None) -> None:
    path = archive(tmp_path / "net.pt", **{"models/model.json": None, "data.pkl": pickle.dumps(1), "code/a.py": ""})
    if content:
        path.write_bytes(content)
    with pytest.raises(ModelError, match="pickle or a TorchScript") as raised:
        FORMAT.read([path], {})
    assert "torch.export.save(torch.export.export(" in raised.value.hints[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data/aotinductor/model/code.so", b"\x7fELF", "holds more than a network"),
        ("data/constants/custom_obj_0", b"", "holds more than a network"),
        (CONSTANTS, '{"config": {"c": {"path_name": "opaque_obj_0"}}}', "not a plain tensor"),
        (PARTS, '{"config": {"w": {"path_name": "weight_0", "use_pickle": true}}}', "not a plain tensor"),
        (PARTS, None, "not a complete exported program"),
        ("models/model.json", None, "not a complete exported program"),
        ("models/model.json", "[" * 100_000, "not a complete exported program"),
        ("models/model.json", '{"a":' * 300 + "1" + "}" * 300, "nested too deeply"),
        ("models/model.json", '{"target": "torch.load"}', "operator torch.load is not supported"),
        ("models/model.json", '{"target": "torch.ops.aten.relu.__globals__.x"}', "is not supported"),
        ("models/model.json", '{"target": "torch.ops.aten.save.default"}', "aten.save.default is not supported"),
        ("models/model.json", '{"target": "torch.ops.aten.from_file.default"}', "from_file.default is not supported"),
        ("models/model.json", '{"sizes": [{"expr_str": "__import__(1)"}]}', "dimensions that are not fixed"),
        ("models/model.json", '{"sizes": [{"expr_str": "Symbol(\'s0\', integer=True)"}]}', "that are not fixed"),
        ("models/model.json", '{"sizes": [{"expr_str": "Symbol(\'u0\')*__import__(1)"}]}', "that are not fixed"),
        ("data/weights/weight_0", bytes(100), "not a complete exported program"),
    ],
)
def test_whatever_could_run_or_lies_is_refused(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = archive(tmp_path / "net.pt2", **{name: content})
    data = path.read_bytes()
    if name.endswith("weight_0"):
        data = data[: len(data) // 2]
    with pytest.raises(ModelError, match=message):
        plain_archive(path, data)


def test_an_archive_that_unpacks_to_much_more_than_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("net/data/weights/weight_0", bytes(32 << 20))
    with pytest.raises(ModelError, match="much more than its size"):
        FORMAT.read([path], {})


def absent(package: str) -> str:
    raise metadata.PackageNotFoundError(package)


def test_without_pytorch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(NotInstalledError, match="torch is needed") as raised:
        FORMAT.read([archive(tmp_path / "net.pt2")], {})
    assert "edgedeploy[torch]" in raised.value.hints[0]


def _damage(count: int, seed: int, folder: Path) -> list[Callable[[], bytes]]:
    random = np.random.default_rng(seed)
    whole = archive(folder / "whole.pt2").read_bytes()
    graph = json.dumps(GRAPH).encode()
    return [
        (lambda: damaged(whole, random))
        if index % 2
        else (lambda: archive(folder / "meddled.pt2", **{"models/model.json": damaged(graph, random)}).read_bytes())
        for index in range(count)
    ]


@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_archives_end_in_errors_of_ours(tmp_path: Path, count: int) -> None:
    for content in _damage(count, count, tmp_path):
        survive(lambda content=content: plain_archive(tmp_path / "net.pt2", content()))


def _saved(path: Path, network: Any, *inputs: Any) -> Path:
    torch.export.save(torch.export.export(network.eval(), inputs), str(path))
    return path


def _exported(path: Path, forward: Callable[..., Any], image: Any, **buffers: Any) -> Path:
    """The network of a function of an image and of buffers."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in buffers.items():
                self.register_buffer(name, tensor)

        def forward(self, image: Any) -> Any:
            return forward(image, **{name: getattr(self, name) for name in buffers})

    return _saved(path, Network(), image)


def _small(path: Path) -> Path:
    nn, functional = torch.nn, torch.nn.functional

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
            self.each = nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.mixed, self.dense = nn.Conv2d(16, 8, 1), nn.Linear(8, 5)

        def forward(self, image: Any) -> Any:
            first = functional.relu(self.norm(self.first(image)))
            second = functional.silu(self.each(first)) + first
            mixed = functional.hardswish(self.mixed(torch.cat([second, first], 1)))
            small = functional.max_pool2d(mixed, 2)
            large = functional.interpolate(small, scale_factor=2, mode="nearest")
            large = large + functional.interpolate(small, size=(16, 16), mode="bilinear", align_corners=False)
            return self.dense(functional.adaptive_avg_pool2d(large, 1).flatten(1)), large

    torch.manual_seed(0)
    return _saved(path, Small(), torch.randn(1, 3, 32, 32))


def test_an_exported_network_gives_pytorchs_values(tmp_path: Path) -> None:
    path = _small(tmp_path / "net.pt2")
    network = describing(path)[0].read([path], {})
    inputs = {"image": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}
    found = computed(network, inputs)
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert np.abs(array - wanted).max() <= 1e-5 * np.abs(wanted).max()
    before, doubles = network.reference(inputs), network.other_kernels[0](inputs)
    for name, wanted in before.items():
        assert doubles[name].dtype == np.float64
        assert 0 < np.abs(doubles[name] - wanted).max() <= 1e-5 * np.abs(wanted).max()
    for name, again in network.reference(inputs).items():
        np.testing.assert_array_equal(again, before[name])


def test_quantised_operators_become_pairs_with_the_programs_integers(tmp_path: Path) -> None:
    of = torch.ops.quantized_decomposed
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # which defines these operators

    stored = np.random.default_rng(2).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)

    def rounded(image: Any, stored: Any, scales: Any, zeros: Any) -> Any:
        levels = (1 / 32, 120, 10, 250, torch.uint8)
        data = of.dequantize_per_tensor(of.quantize_per_tensor(image, *levels), *levels)
        weights = of.dequantize_per_channel(stored, scales, zeros, 0, -127, 127, torch.int8)
        return torch.nn.functional.conv2d(data, weights)

    buffers = {"stored": torch.from_numpy(stored), "zeros": torch.zeros(8, dtype=torch.int64)}
    buffers["scales"] = torch.linspace(0.01, 0.02, 8, dtype=torch.float64)
    path = _exported(tmp_path / "net.pt2", rounded, torch.randn(1, 3, 9, 9), **buffers)
    network = describing(path)[0].read([path], {})
    assert network.quantised
    assert not network.other_kernels
    parts = parts_of(network.module["main"])
    data, weights = (each for each in parts if is_call(each, "relax.dequantize"))
    data, weights = (weights, data) if constant_value(data.args[0]) is not None else (data, weights)
    np.testing.assert_array_equal(constant_value(weights.args[0]), stored)
    assert (weights.attrs.axis, str(weights.args[2].ty.dtype)) == (0, "int8")
    assert (float(constant_value(data.args[1])), int(constant_value(data.args[2]))) == (1 / 32, 120)
    inputs = {"image": np.random.default_rng(0).standard_normal((1, 3, 9, 9)).astype(np.float32) * 3}
    [found] = computed(network, inputs)
    [wanted] = network.reference(inputs).values()
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.fixture
def image() -> Any:
    torch.manual_seed(0)
    return torch.randn(2, 4, 9, 10)


def _without_gradients(a: Any) -> Any:
    with torch.no_grad():
        doubled = a * 2
    with torch.autocast("cpu", enabled=False):
        return doubled @ a.transpose(-1, -2)


def _in_bfloat16(a: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = a @ a.transpose(-1, -2)
    return product.float()


def _masked_attention(a: Any) -> Any:
    with torch.no_grad():
        mask = torch.ones(9, 9, dtype=torch.bool).tril()
        return torch.nn.functional.scaled_dot_product_attention(a, a, a, attn_mask=mask)


def _put(a: Any, place: Any, values: Any) -> Any:
    written = a.clone()
    written[place] = values
    return written


def _pooled(name: str, *arguments: Any, **settings: Any) -> Callable[..., Any]:
    return lambda *tensors: getattr(torch.nn.functional, name)(*tensors, *arguments, **settings)


def _whole(a: Any) -> Any:
    return (a * 8).long()


# By what they show: functions of an image.
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "one index, counted from the end": lambda a: a[:, :, torch.tensor([1, -2])],
    "two indices in the middle": lambda a: a[:, torch.tensor([0, 1]), torch.tensor([2, -3])],
    "two indices at the end": lambda a: a[..., torch.tensor([1, 2]), torch.tensor([3, 4])],
    "two indices apart": lambda a: a[torch.tensor([0, 1]), :, torch.tensor([1, 2])],
    "a matrix and a list apart": lambda a: a[:, torch.tensor([0, 2])[:, None], :, torch.tensor([1, 2, -1])],
    "indices that are computed": lambda a: a[:, _whole(a)[0, 0, 0].clamp(-4, 3), :, _whole(a)[0, 1, 0].clamp(-10, 9)],
    "a list written": lambda a: _put(a, (slice(None), torch.tensor([0, -1])), 0.0),
    "two lists apart written": lambda a: _put(
        a, (torch.tensor([0, 1]), slice(None), torch.tensor([2, -1])), a[0, 0, 0, :10]
    ),
    "a mask written": lambda a: _put(a, a > 0, -1.0),
    "a mask of the outer axes written": lambda a: _put(a, a[:, :, 0, 0] > 0, a[0, 0].clone()),
    "a list added to": lambda a: a.index_add(1, torch.tensor([0, 2, 0]), a[:, :3]),
    "sums divided by another number": _pooled("avg_pool2d", 3, 2, 1, ceil_mode=True, divisor_override=4),
    "sums of volumes divided": _pooled("avg_pool3d", 2, divisor_override=3),
    "where maxima lie": _pooled("max_pool2d", 3, 2, 1, return_indices=True),
    "where maxima lie with gaps": _pooled("max_pool2d", 3, 2, 1, 2, ceil_mode=True, return_indices=True),
    "where the first of equal maxima lies": lambda a: _pooled("max_pool2d", 3, return_indices=True)(a.round()),
    "maxima put back": lambda a: _pooled("max_unpool2d", 2)(*_pooled("max_pool2d", 2, return_indices=True)(a)),
    "adaptive maxima": _pooled("adaptive_max_pool2d", (4, 7)),
    "adaptive maxima of windows of one size": _pooled("adaptive_max_pool2d", (3, 5), return_indices=True),
    "one maximum": _pooled("adaptive_max_pool2d", 1),
    "integers divided to integers": lambda a: _whole(a) // 2,
    "integers divided and cut": lambda a: torch.div(_whole(a), 2, rounding_mode="trunc"),
    "integers plus a number that is none": lambda a: _whole(a) + 0.5,
    "integers compared with a number that is none": lambda a: _whole(a) > 1.5,
    "integers compared with others": lambda a: _whole(a) < (a * 4).int(),
    "integers limited by numbers that are none": lambda a: _whole(a).clamp(0.5, 2),
    "extremes of some axes": lambda a: (a.amax((1, -1)), a.amin(2, keepdim=True)),
    "booleans added": lambda a: (a > 0) + (a > -1),
    "a factor of what is added": lambda a: torch.add(_whole(a), a, alpha=3),
    "regions without gradients and casts": _without_gradients,
    "attention with a mask in a region": _masked_attention,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_pytorchs_values(tmp_path: Path, name: str, image: Any) -> None:
    forward = OPERATORS[name]
    network = FORMAT.read([_exported(tmp_path / "net.pt2", forward, image)], {})
    found = computed(network, {network.inputs[0].name: image.numpy()})
    wanted = forward(image)
    for array, tensor in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        assert (array.shape, array.dtype) == (tensor.numpy().shape, tensor.numpy().dtype)
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-5, atol=1e-5)


def test_the_check_in_float64_does_without_the_casts_of_a_region(tmp_path: Path, image: Any) -> None:
    network = FORMAT.read([_exported(tmp_path / "net.pt2", _in_bfloat16, image)], {})
    inputs = {network.inputs[0].name: image.numpy()}
    [rounded], [exact] = network.reference(inputs).values(), network.other_kernels[0](inputs).values()
    np.testing.assert_allclose(exact, (image.double() @ image.double().transpose(-1, -2)).numpy())
    assert 1e-4 < np.abs(rounded - exact).max() < 0.1


def _times(image: Any, number: Any) -> Any:
    return image * image.new_full((4, 1), number.item())


SIDES = (1 << 16, 1 << 15)
TOO_LARGE = ("constants of the network fill the memory: operator", "")
# Functions of an image and a buffer, what the error says, and its hint or reason.
REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "a changed buffer": (lambda a, count: a * count.add_(1), "changes its buffer 'count'", ""),
    "arange": (lambda a, _: a + torch.arange(1 << 31).amax(), *TOO_LARGE),
    "expand": (lambda a, _: a + (torch.ones(1, 1).expand(*SIDES) * 2).amax(), *TOO_LARGE),
    "full": (lambda a, _: a + torch.full(SIDES, 0.5).amax(), *TOO_LARGE),
    "repeat": (lambda a, _: a + torch.ones(1, 1).repeat(*SIDES).amax(), *TOO_LARGE),
    "places of adaptive maxima that share values": (
        lambda a, _: _pooled("adaptive_max_pool2d", 4, return_indices=True)(a),
        *("adaptive pooling gives the places of its maxima", "torch.onnx.export"),
    ),
    "numbers that are read from inputs": (
        lambda a, _: _times(a[:, :, :4], a.flatten()[1]), "a number depends on the network's input", "'image'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_refused(tmp_path: Path, name: str, image: Any) -> None:
    forward, message, more = REFUSED[name]
    path = _exported(tmp_path / "net.pt2", lambda image, count: forward(image, count), image, count=torch.zeros(1))
    with pytest.raises(ModelError, match=message) as raised:
        describing(path)[0].read([path], {})
    assert more in f"{raised.value.why} {raised.value.hints}"


class _Malicious:
    """Whoever unpickles it makes a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return open, (str(self.trace), "w")


def test_code_in_sample_inputs_is_not_run_although_pytorch_would(tmp_path: Path) -> None:
    stream = io.BytesIO()
    torch.save((_Malicious(tmp_path / "trace"),), stream)
    parts = members(_small(tmp_path / "net.pt2").read_bytes())
    path = archive(tmp_path / "evil.pt2", **{**parts, "data/sample_inputs/model.pt": stream.getvalue()})
    assert FORMAT.read([path], {}).inputs[0].shape == [1, 3, 32, 32]
    assert not (tmp_path / "trace").exists()


def test_numbers_that_are_read_from_buffers_are_constants(tmp_path: Path) -> None:
    """As Ultralytics' heads read strides."""
    image, strides = torch.ones(1, 3, 4, 5), torch.tensor([8.0, 16.0])
    path = _exported(tmp_path / "net.pt2", lambda image, strides: _times(image, strides[1]), image, strides=strides)
    network, inputs = FORMAT.read([path], {}), {"image": image.numpy()}
    [found] = computed(network, inputs)
    np.testing.assert_array_equal(found, 16 * inputs["image"])
    np.testing.assert_array_equal(*network.reference(inputs).values(), found)


def test_what_a_number_is_computed_from_is_computed_once(tmp_path: Path) -> None:
    def doubled(image: Any, number: Any) -> Any:
        for _ in range(64):  # each sum reads the one before twice
            number = number + number
        return _times(image, number)

    one = torch.ones(1, dtype=torch.float64)
    path = _exported(tmp_path / "net.pt2", doubled, torch.randn(1, 3, 4, 5), number=one)
    assert FORMAT.read([path], {}).outputs[0].shape == [1, 3, 4, 5]


# LSTM, GRU and RNN.

STEPS, BATCH, FEATURES, HIDDEN = 7, 3, 10, 20


def _recurrent(path: Path, kind: str, states: bool, settings: dict[str, Any]) -> Path:
    """A recurrent layer and a dense one; the states are inputs and outputs, or zeros that nobody reads."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(torch.nn, kind)(FEATURES, HIDDEN, **settings)
            columns = settings.get("proj_size") or HIDDEN * (1 + settings.get("bidirectional", False))
            self.dense = torch.nn.Linear(columns, 5)

        def forward(self, data: Any, *states: Any) -> Any:
            if not states:
                return self.dense(self.layer(data)[0])
            every, last = self.layer(data, states if kind == "LSTM" else states[0])
            return (self.dense(every), *(last if kind == "LSTM" else [last]))

    torch.manual_seed(0)
    data = torch.randn(*([BATCH, STEPS] if settings.get("batch_first") else [STEPS, BATCH]), FEATURES)
    rows = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
    count = (2 if kind == "LSTM" else 1) if states else 0
    begun = [torch.randn(rows, BATCH, HIDDEN) for _ in range(count)]
    return _saved(path, Network(), data, *begun)


TWO_IN_BOTH = {"num_layers": 2, "bidirectional": True}


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("kind", "states", "settings"),
    [
        ("LSTM", True, TWO_IN_BOTH),
        ("GRU", False, {**TWO_IN_BOTH, "batch_first": True}),
        pytest.param("GRU", True, {"bias": False}, marks=pytest.mark.slow),
        pytest.param("LSTM", False, {"bias": False, "batch_first": True}, marks=pytest.mark.slow),
        pytest.param("RNN", True, {}, marks=pytest.mark.slow),
        pytest.param("RNN", False, {"nonlinearity": "relu", **TWO_IN_BOTH}, marks=pytest.mark.slow),
    ],
)
def test_recurrent_layers_agree_with_pytorch(kind: str, states: bool, settings: dict[str, Any], tmp_path: Path) -> None:
    network = FORMAT.read([_recurrent(tmp_path / "net.pt2", kind, states, settings)], {})
    compiled = compile_network(network, load_board("local"))
    for array, expected in results_of(compiled, network, random_inputs(network, seed=0)):
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-6)
    loops = [entry for entry in compiled.functions.values() if entry.template == "recurrence"]
    assert [entry.packing is not None for entry in loops] == [True]  # constant weights; layers that are alike share it


def test_a_projected_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a recurrent layer projects its state"):
        FORMAT.read([_recurrent(tmp_path / "net.pt2", "LSTM", False, {"proj_size": 7})], {})


# The example of the tutorial: what draws its images, and what trains its network.

EXAMPLE = ROOT / "examples" / "torch"


def test_the_picture_is_the_one_that_the_script_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLE / "images.py"], cwd=tmp_path, check=True)
    drawn, kept = read_image(tmp_path / "desk.jpg"), read_image(EXAMPLE / "desk.jpg")
    assert np.abs(drawn.astype(int) - kept).mean() < 1
    assert len(list((tmp_path / "photos").iterdir())) == 40


def seen(network: Path) -> dict[int, list[int]]:
    image = read_image(EXAMPLE / "desk.jpg")[2::4, 2::4, ::-1].astype(np.float32) / 255
    [cells] = cpu_session(network).run(None, {"image": image.transpose(2, 0, 1)[None]})
    decoder = Yolox(kind="yolox", output="cells", strides=[8], threshold=0.5, iou_threshold=0.5)
    found = decoder.decode({"cells": cells}, Frame((96, 96), (96, 96), (1, 1)), [])
    return {each.class_id: [round(side) for side in each.box or ()] for each in found}


# What images.py drew: 0 is a circle, 1 a square, 2 a triangle.
DRAWN = {2: [4, 41, 42, 79], 1: [24, 16, 44, 36], 0: [47, 11, 75, 39]}


def agrees(found: dict[int, list[int]]) -> bool:
    return found.keys() == DRAWN.keys() and all(
        max(abs(a - b) for a, b in zip(found[kind], box, strict=True)) <= 4 for kind, box in DRAWN.items()
    )


def test_the_network_that_lies_there_sees_what_was_drawn() -> None:
    assert agrees(seen(EXAMPLE / "shapes.onnx"))


@pytest.mark.slow
def test_the_network_is_trained_in_a_minute(tmp_path: Path) -> None:
    for module in ("torch", "onnxscript"):
        pytest.importorskip(module, reason=f"the example is trained with {module}, which is not installed")
    subprocess.run([sys.executable, EXAMPLE / "train.py"], cwd=tmp_path, check=True)
    assert agrees(seen(tmp_path / "shapes.onnx"))
