"""ONNX's operators, and those of onnxruntime's own domain, give its values when they are compiled; ONNX's own tests."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_tests
import pytest
import tvm_ffi
from conftest import ROOT
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.agreement import assert_matches_reference, computed, network_of, random_inputs
from support.emulated import outputs_on
from support.networks import Graph, begun
from support.onnx_operators import CASES, Case

from edgedeploy.building import prepare
from edgedeploy.errors import InputError, ModelError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.fused import plain_attention
from edgedeploy.frontends.onnx.nodes import part_of
from edgedeploy.model.network import Network
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.runtime.session import Session
from edgedeploy.target.resolved import resolve

# Cases that are compiled as one network.
_TOGETHER = 40

_DTYPES = {"tensor(float)": "float32", "tensor(int32)": "int32"}


def _expected(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Seeded inputs of a model, and what onnxruntime makes of them."""
    session = cpu_session(model.SerializeToString())
    random = np.random.default_rng(0)
    inputs = {
        each.name: (random.standard_normal(each.shape) * (5 if "int" in each.type else 1)).astype(_DTYPES[each.type])
        for each in session.get_inputs()
    }
    return inputs, session.run(None, inputs)


def _compiled(network: Network, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return computed(network, {s.name: inputs[s.name] for s in network.inputs})


def _compare(found: list[np.ndarray], wanted: list[np.ndarray], opset: int) -> None:
    assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted], opset
    for array, expected in zip(found, wanted, strict=True):
        largest = np.abs(expected).max(initial=0)
        assert np.abs(array.astype(np.float64) - expected).max(initial=0) <= 1e-5 * largest + 1e-6, opset


def _beside_each_other(models: list[onnx.ModelProto]) -> onnx.ModelProto:
    """One model of several, whose values have names of their own."""
    whole = onnx.ModelProto()
    for number, model in enumerate(models):
        whole.MergeFrom(onnx.compose.add_prefix(model, f"{number} "))
    del whole.opset_import[len(models[0].opset_import) :]
    whole.graph.name = models[0].graph.name
    return whole


@cache
def _newest(opset: int, first: int) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """Of some cases at once, which are compiled as one network: their outputs, and onnxruntime's."""
    cases = [case for case in CASES if case.opsets[-1] == opset][first : first + _TOGETHER]
    models = [case.model(opset) for case in cases]
    expected = [_expected(model) for model in models]
    inputs = {f"{number} {name}": array for number, (each, _) in enumerate(expected) for name, array in each.items()}
    found = iter(_compiled(network_of(_beside_each_other(models)), inputs))
    return {
        case.name: ([next(found) for _ in wanted], wanted) for case, (_, wanted) in zip(cases, expected, strict=True)
    }


@pytest.mark.compiles
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_newest_form_of_an_operator_gives_onnxruntimes_values(case: Case) -> None:
    newest = case.opsets[-1]
    place = [each for each in CASES if each.opsets[-1] == newest].index(case)
    _compare(*_newest(newest, place - place % _TOGETHER)[case.name], newest)


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_opsets_form_of_an_operator_gives_onnxruntimes_values(case: Case) -> None:
    known: list[tuple[Network, list[np.ndarray]]] = []
    for opset in case.opsets:
        model = case.model(opset)
        inputs, wanted = _expected(model)
        network = network_of(model)
        # What is imported as the very same module need not be compiled again.
        found = next(
            (each for same, each in known if tvm_ffi.structural_equal(same.module, network.module, True)), None
        )
        if found is None:
            found = _compiled(network, inputs)
            known.append((network, found))
        _compare(found, wanted, opset)


def test_all_opsets_and_the_operators_of_common_networks_are_there() -> None:
    assert {opset for case in CASES for opset in case.opsets} == set(range(7, 22))
    built = {node.op_type for case in CASES for node in case.model(case.opsets[-1]).graph.node}
    common = (
        "BatchNormalization Clip Concat Conv ConvTranspose Flatten Gemm GlobalAveragePool HardSwish If MatMul MaxPool"
    )
    assert built >= {*common.split(), "Pad", "ReduceMean", "Reshape", "Resize", "Slice", "Softmax", "Split", "Upsample"}


# Attention, embeddings and deformable convolutions give onnxruntime's values.

RANDOM = np.random.default_rng(11)

# Batch, heads, rows, width; keys and values may have other heads and columns.
FOLDED, APART = [(2, 5, 24), (2, 7, 12), (2, 7, 12)], [(2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 3)]
PAST = [(2, 2, 3, 6)] * 2
GROUPED = {"q_num_heads": 4, "kv_num_heads": 2}

Kinds = Mapping[int, int]  # types of the inputs that are not float32, by their place
FLOATS: Kinds = {}


def saved(
    folder: Path, operator: str, shapes: list[Any], kinds: Kinds = FLOATS, opset: int = 13, outputs: int = 1, **how: Any
) -> Path:
    graph = Graph(opset=opset)
    given = [
        graph.input(f"given{place}", list(shape), kinds.get(place, TensorProto.FLOAT)) if shape else ""
        for place, shape in enumerate(shapes)
    ]
    graph.node(operator, *given, outputs=outputs, **how)
    made = graph.nodes[-1].output
    if operator.startswith("Skip"):
        made[1:3] = ["", ""]
    return graph.save(folder / "net.onnx", *filter(None, made))


def attention(folder: Path, shapes: list[Any], kinds: Kinds = FLOATS, outputs: int = 1, **settings: Any) -> Path:
    return saved(folder, "Attention", shapes, kinds, 23, outputs, **settings)


def check(path: Path) -> None:
    network = read_onnx(path)
    inputs = random_inputs(network, RANDOM)
    inputs |= {spec.name: RANDOM.random(spec.shape) < 0.7 for spec in network.inputs if spec.dtype == "bool"}
    assert_matches_reference(network, inputs, atol=1e-5)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("shapes", "attributes"),
    [
        (FOLDED, GROUPED),
        (FOLDED, {**GROUPED, "is_causal": 1}),
        (APART, {"scale": 0.3}),
        (APART, {"is_causal": 1}),
        ([*FOLDED, None, *PAST], {**GROUPED, "is_causal": 1, "outputs": 3}),
        ([*APART, (5, 7)], {}),
        ([*APART, (4, 5, 7)], {}),
        ([*APART, (2, 1, 5, 7)], {"kinds": {3: TensorProto.BOOL}, "is_causal": 1}),
        ([*FOLDED, (5, 10), *PAST], {**GROUPED, "kinds": {3: TensorProto.BOOL}, "outputs": 3}),
    ],
    ids=["folded", "folded causal", "apart", "apart causal", "past", "mask", "mask by head", "truths", "past truths"],
)
def test_attention_is_two_products_and_a_softmax(shapes: list[Any], attributes: dict[str, Any], tmp_path: Path) -> None:
    path = attention(tmp_path, shapes, **attributes)
    operators = [node.op_type for node in folded(onnx.load(path)).graph.node]
    beside = {"Add", "Concat", "Identity", "Reshape", "Transpose"} | {"Equal", "ReduceMax", "Where"}  # those of masks
    assert set(operators) - beside == {"MatMul", "Mul", "Softmax"}
    assert operators.count("MatMul") == 2
    check(path)


@pytest.mark.compiles
def test_rows_that_a_mask_hides_are_zeros(tmp_path: Path) -> None:
    network = read_onnx(attention(tmp_path, [*APART, (1, 1, 5, 7)], {3: TensorProto.BOOL}))
    inputs = random_inputs(network, RANDOM)
    inputs["given3"] = np.tri(5, 7, -1, dtype=bool).reshape(1, 1, 5, 7)
    [found] = computed(network, inputs)
    [wanted] = network.reference(inputs).values()
    assert not found[:, :, 0].any()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_attention_waits_until_the_type_of_its_mask_is_known() -> None:
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])
    shapes = {name: (TensorProto.FLOAT, [1, 2, 4, 8]) for name in ("q", "k", "v")}
    writers = {"Attention": plain_attention}
    assert part_of(node, 0, shapes, writers) is None
    nodes, _ = part_of(node, 0, {**shapes, "mask": (TensorProto.FLOAT, [4, 4])}, writers)
    assert "Softmax" in [each.op_type for each in nodes]


@pytest.mark.compiles
def test_attention_with_a_soft_cap_gives_onnxruntime_values(tmp_path: Path) -> None:
    check(attention(tmp_path, [*APART, (5, 7)], softcap=2.0))


@pytest.mark.compiles
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings_of_whole_heads_give_onnxruntime_values(interleaved: int, tmp_path: Path) -> None:
    graph, data = begun(1, 6, 24, opset=23)
    turns = RANDOM.standard_normal((1, 6, 4)).astype(np.float32)
    tables = [graph.weight(function(turns)) for function in (np.cos, np.sin)]
    normal = graph.node("RMSNormalization", data, graph.normal(24), axis=-1)
    made = graph.node("RotaryEmbedding", normal, *tables, num_heads=3, interleaved=interleaved)
    check(graph.save(tmp_path / "net.onnx", made))


@pytest.mark.compiles
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("whole", [False, True], ids=["plain", "mask and bias"])
def test_deformable_convolutions_give_onnxruntime_values(groups: int, whole: bool, tmp_path: Path) -> None:
    graph = Graph(opset=19)
    places = 3 * 2
    data, offsets = graph.input("data", [2, 4, 7, 8]), graph.input("offsets", [2, 2 * groups * places, 4, 8])
    rest = [graph.normal(6), graph.input("mask", [2, groups * places, 4, 8])] if whole else []
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 1], "dilations": [1, 2], "group": 2, "offset_group": groups}
    made = graph.node("DeformConv", data, graph.normal(6, 2, 3, 2), offsets, *rest, **attributes)
    check(graph.save(tmp_path / "net.onnx", made))


# Operators of onnxruntime's own domain, and what it writes into files of older opsets, give its values.

IMAGE, KERNELS = (2, 3, 6, 5), (4, 3, 3, 3)
ROWS, ROW = (2, 7, 8), (8,)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("FusedConv", [IMAGE, KERNELS, (4,)], {"activation": "Relu", "pads": [1] * 4, "kernel_shape": [3, 3]}),
        ("FusedConv", [IMAGE, KERNELS, (4,), (2, 4, 4, 3)], {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
        ("FusedConv", [IMAGE, KERNELS], {"activation": "LeakyRelu", "activation_params": [0.2]}),
        ("FusedConv", [IMAGE, KERNELS], {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
        ("FusedGemm", [(3, 5), (4, 5), (4,)], {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2}),
        ("FusedMatMul", [(2, 5, 3), (2, 4, 5)], {"transA": 1, "transB": 1, "alpha": 0.25}),
        ("Gelu", [ROWS], {}),
        ("BiasGelu", [ROWS, ROW], {}),
        ("FastGelu", [ROWS], {}),
        ("FastGelu", [ROWS, ROW], {}),
        ("SkipLayerNormalization", [ROWS, ROWS, ROW, ROW, ROW], {"epsilon": 1e-5}),
        ("SkipLayerNormalization", [ROWS, ROWS, ROW], {}),
        ("SkipSimplifiedLayerNormalization", [ROWS, ROWS, ROW, ROW], {"epsilon": 1e-5}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contrib_operators_agree(operator: str, shapes: list[Any], attributes: dict[str, Any], tmp_path: Path) -> None:
    outputs = 4 if operator.startswith("Skip") else 1
    check(saved(tmp_path, operator, shapes, outputs=outputs, domain="com.microsoft", **attributes))


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("operator", "shapes"), [("LayerNormalization", [ROWS, ROW, ROW]), ("SimplifiedLayerNormalization", [ROWS, ROW])]
)
def test_normalisation_is_known_in_files_of_older_opsets(operator: str, shapes: list[Any], tmp_path: Path) -> None:
    check(saved(tmp_path, operator, shapes, axis=-1, epsilon=1e-5))


def test_an_operator_that_asks_for_more_is_refused_by_name_and_domain(tmp_path: Path) -> None:
    path = saved(tmp_path, "FusedConv", [IMAGE, KERNELS], domain="com.microsoft", activation="Swish")
    said = r"operator com\.microsoft::FusedConv is not supported: node 'fusedconv0' needs it"
    with pytest.raises(ModelError, match=said):
        read_onnx(path)


# ONNX networks in bfloat16 are computed in float32.

NARROW, WIDE = TensorProto.BFLOAT16, TensorProto.FLOAT


def narrow(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.compiles
def test_weights_in_bfloat16_keep_their_values(tmp_path: Path) -> None:
    graph = Graph()
    weights, bias = (graph.node("Cast", graph.weight(narrow(*shape)), to=WIDE) for shape in ((32, 16), (16,)))
    made = graph.node("Add", graph.node("MatMul", graph.input("data", [4, 32]), weights), bias)
    path, data = graph.save(tmp_path / "net.onnx", made), RANDOM.standard_normal((4, 32)).astype(np.float32)
    [wanted] = cpu_session(path.read_bytes()).run(None, {"data": data})
    [found] = computed(read_onnx(path), {"data": data})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.compiles
def test_a_network_in_bfloat16_takes_and_gives_float32(tmp_path: Path) -> None:
    graph = Graph(opset=21)
    product = graph.node("MatMul", graph.input("data", [4, 32], NARROW), graph.weight(narrow(32, 16)))
    made = graph.node("Add", product, "c")
    graph.nodes.insert(0, helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(narrow(16))))
    rounded = graph.node("Cast", graph.node("Cast", made, to=WIDE), to=NARROW)
    model = graph.model(graph.node("Max", rounded, graph.node("CastLike", rounded, made)))
    onnx.save(model, tmp_path / "net.onnx")
    data = narrow(4, 32)
    [wanted] = ReferenceEvaluator(model).run(None, {"data": data})
    network = read_onnx(tmp_path / "net.onnx")
    [spec], [found] = network.inputs, computed(network, {"data": data.astype(np.float32)})
    assert (spec.dtype, found.dtype, found.shape) == ("float32", np.float32, wanted.shape)
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=0, atol=2**-6 * np.abs(found).max())


def test_a_malformed_weight_in_bfloat16_is_named(tmp_path: Path) -> None:
    graph = Graph(opset=21)
    model = graph.model(graph.node("Add", graph.input("data", [4], NARROW), graph.weight(narrow(4))))
    model.graph.initializer[0].raw_data = b"123"
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(ModelError, match="weight 'w0' is malformed"):
        read_onnx(tmp_path / "net.onnx")


# The ONNX project's own tests, as benchmarks/onnx_tests.py runs them and docs/operators.md states them.


def test_a_table_counts_outcomes_by_operator() -> None:
    results = [
        onnx_tests.Result(f"test_{index}", "Abs", 13, False, outcome, "", index < 2)
        for index, outcome in enumerate(["pass", "pass", "refused", "crash"])
    ]
    assert "| Abs | 4 | 2 |  |  | 1 |  | 1 | 2 |" in onnx_tests.page(results).splitlines()


@dataclass
class OnnxCase:
    operator: str
    name: str = ""
    opset: int = 13
    expanded: bool = False


def judge(case: OnnxCase) -> Iterator[object]:
    yield True
    if case.operator == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if case.operator == "hang":
        time.sleep(60)
    yield "pass", ""


@pytest.mark.slow
def test_a_worker_that_crashes_or_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_tests, "DEADLINE_S", 20.0)  # what a loaded machine needs to start a worker
    results = onnx_tests.run([OnnxCase(each) for each in ("kill", "ok", "hang", "ok")], 1, judge=judge)
    assert [result.outcome for result in results] == ["crash", "pass", "crash", "pass"]
    assert all(result.onnxruntime for result in results)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_as_many_cases_pass_as_the_page_says_and_none_is_wrong(tmp_path: Path) -> None:
    """Of opset 21 and older, without those that are expanded."""
    stated = re.search(
        r"^\| of these, those that onnxruntime passes \| \d+ \| (\d+) \|",
        (ROOT / "docs" / "operators.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert stated is not None
    file = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "onnx_tests.py"), "--no-expanded", "--newest", "21"]
    subprocess.run([*command, "--json", str(file)], check=True, timeout=7000, cwd=ROOT)
    results = json.loads(file.read_text(encoding="utf-8"))
    assert not [result for result in results if result["outcome"] in ("wrong", "untyped", "crash")]
    assert sum(result["outcome"] == "pass" and result["onnxruntime"] for result in results) >= int(stated[1])


# Floats and integers at their edges are as ONNX defines them: NaN, infinities, rounding, divisions, indices.

Computed = Callable[[str], list[np.ndarray]]

_NAN, _INF = np.nan, np.inf
_FLOATS = {
    "x": np.array([_NAN, 1, -2, _INF, -_INF, 0, 1e8, 0.3], np.float32),
    "y": np.array([1, _NAN, _INF, -_INF, 0, -2, 0.7, 1e8], np.float32),
}
_CONSTANTS = (
    "float zero = {0}, float one = {1}, float rounder = {12582912}, float least = {-1}, int64[4] image = {1, 1, 1, 8}"
)

_ACTIVATIONS = ("Celu", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sign")

# The type of an output, and nodes that make it, `z`, of x, y and the constants.
_OF_FLOATS = {
    # TVM would simplify these as if floats were real numbers.
    "equal to itself": ("bool", "z = Equal(x, x)"),
    "not equal to itself": ("bool", "e = Equal(x, x) z = Not(e)"),
    "chosen where it equals itself": ("float", "e = Equal(x, x) z = Where(e, x, one)"),
    "at most itself": ("bool", "z = LessOrEqual(x, x)"),
    "not less": ("bool", "l = Less(x, y) z = Not(l)"),
    "less or not": ("bool", "l = Less(x, y) m = LessOrEqual(y, x) z = Or(l, m)"),
    "less itself": ("float", "z = Sub(x, x)"),
    "times zero": ("float", "z = Mul(x, zero)"),
    "zero times": ("float", "z = Mul(zero, x)"),
    "by zero": ("float", "z = Div(x, zero)"),
    "zero by": ("float", "z = Div(zero, x)"),
    "rounded by a sum": ("float", "s = Add(x, rounder) z = Sub(s, rounder)"),
    "a sum less its term": ("float", "s = Add(x, y) z = Sub(s, x)"),
    # What keeps NaN.
    **{name: ("float", f"z = {name}(x)") for name in _ACTIVATIONS},
    "Clip": ("float", "z = Clip(x, least, one)"),
    "Clip from below": ("float", "m = Mul(x, zero) z = Clip(m, one)"),
    "Clip from above": ("float", "m = Mul(x, zero) z = Clip(m, , least)"),
    "Max with a constant": ("float", "z = Max(x, one)"),
    "Max with zero": ("float", "z = Max(zero, x)"),
    "Min with a constant": ("float", "z = Min(least, x)"),
    "Min with zero": ("float", "z = Min(x, zero)"),
}

_VALUES = np.arange(16, dtype=np.float32).reshape(4, 4)
_IMAGES = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
_BOXES = {"x": _IMAGES, "r": np.array([[0, 0, 2, 2], [1, 1, 3, 3]], np.float32)}

# Nodes, their inputs, and another one: what every program takes of it, and what it refuses.
_INTEGERS = {"n": [7, -7, 9]}
_REFUSED = {
    "division": ("z = Div(n, d)", _INTEGERS, "d", [-2, 2, -1], [1, 0, 2]),
    "modulo": ("z = Mod(n, d)", _INTEGERS, "d", [-2, 2, -1], [0, 1, 2]),
    "remainder": ("z = Mod <fmod: int = 1> (n, d)", _INTEGERS, "d", [-2, 2, -1], [1, 2, 0]),
    "Gather": ("z = Gather <axis: int = 1> (x, i)", {"x": _VALUES}, "i", [3, -4], [0, 4]),
    "GatherElements": ("z = GatherElements <axis: int = 1> (x, i)", {"x": _VALUES}, "i", [[3, -4]], [[-5, 0]]),
    "GatherND": ("z = GatherND (x, i)", {"x": _VALUES}, "i", [[3, -4]], [[3, 1 << 40]]),
    "ScatterElements": (
        *("z = ScatterElements <axis: int = 1> (x, i, u)", {"x": _VALUES, "u": _VALUES[:1, :2]}),
        *("i", [[3, -4]], [[0, 4]]),
    ),
    "ScatterND": (
        *('z = ScatterND <reduction: string = "add"> (x, i, u)', {"x": _VALUES, "u": _VALUES[:1]}),
        *("i", [[-1]], [[4]]),
    ),
    "RoiAlign": ("z = RoiAlign <sampling_ratio: int = 2> (x, r, i)", _BOXES, "i", [1, 0], [0, 2]),
    "MaxRoiPool": (
        *("z = MaxRoiPool <pooled_shape: ints = [2, 2]> (x, r)", {"x": _IMAGES}, "r"),
        *(np.float32([[1, 0, 0, 3, 3]]), np.float32([[np.nan, 0, 0, 3, 3]])),
    ),
}
_TYPES = {"float32": "float", "int8": "int8", "int32": "int32", "int64": "int64"}


def _saved(nodes: str, outputs: Mapping[str, str], inputs: Mapping[str, np.ndarray], path: Path) -> Path:
    """A network of some nodes, in ONNX's own text."""
    given = ", ".join(f"{_TYPES[str(each.dtype)]}{list(each.shape)} {name}" for name, each in inputs.items())
    made = ", ".join(f"{dtype} {name}" for name, dtype in outputs.items())
    header = f'<ir_version: 8, opset_import: ["": 17]> g ({given}) => ({made})'
    onnx.save(onnx.parser.parse_model(f"{header} <{_CONSTANTS}> {{ {nodes} }}"), path)
    return path


def _all_of(parts: Collection[tuple[str, str]], folder: Path) -> Network:
    """All of these types and nodes, each with an output."""
    nodes = [re.sub(r"\b([elmsz])\b", rf"\g<1>{place}", text) for place, (_, text) in enumerate(parts)]
    outputs = {f"z{place}": dtype for place, (dtype, _) in enumerate(parts)}
    return read_onnx(_saved(" ".join(nodes), outputs, _FLOATS, folder / "net.onnx"))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return _all_of(_OF_FLOATS.values(), tmp_path_factory.mktemp("floats"))


@pytest.fixture(scope="module")
def computed_on(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Computed:
    """What a board computes, in the order of `_OF_FLOATS`."""
    return cache(lambda board: outputs_on(board, network, _FLOATS, tmp_path_factory.mktemp(board)))


@pytest.mark.compiles
@pytest.mark.parametrize("name", _OF_FLOATS)
@pytest.mark.parametrize("board", ["local", "rpi4", "rpi-armhf"])
def test_floats_are_no_real_numbers(board: str, name: str, network: Network, computed_on: Computed) -> None:
    place = list(_OF_FLOATS).index(name)
    found, wanted = computed_on(board)[place], list(network.second_opinion(_FLOATS).values())[place]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6, equal_nan=True)


@pytest.mark.compiles
def test_64_bit_arm_keeps_nan_wherever_it_takes_extremes(tmp_path: Path) -> None:
    extremes = [
        "z = Max(x, y)",
        "z = Min(y, x)",
        "z = ReduceMax <axes: ints = [0]> (x)",
        "z = ReduceMin <axes: ints = [0]> (y)",
        "s = Reshape(x, image) z = MaxPool <kernel_shape: ints = [1, 2]> (s)",
    ]
    network = _all_of([("float", nodes) for nodes in extremes], tmp_path)
    x, y = _FLOATS["x"], _FLOATS["y"]
    wanted = [np.maximum(x, y), np.minimum(x, y), x.max(keepdims=True), y.min(keepdims=True), np.maximum(x[:-1], x[1:])]
    for array, expected in zip(outputs_on("rpi4", network, _FLOATS, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(array.ravel(), expected)


@pytest.mark.compiles
@pytest.mark.parametrize("name", _REFUSED)
def test_a_divisor_of_zero_and_an_index_beyond_its_axis_are_refused_at_run_time(name: str, tmp_path: Path) -> None:
    nodes, others, changed, taken, refused = _REFUSED[name]
    dtype = np.int32 if "n" in others else None
    given, bad = (
        {key: np.asarray(each, dtype) for key, each in {**others, changed: some}.items()} for some in (taken, refused)
    )
    path = _saved(nodes, {"z": "int32" if dtype else "float"}, given, tmp_path / "net.onnx")
    session = Session.open(prepare(str(path), resolve("local")).package_path)
    found, wanted = session.run(given)["z"], read_onnx(path).reference(given)["z"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with pytest.raises(InputError, match=r"integer division by zero in (Div|Mod)|index -?\d+ in \w+ is out of bounds"):
        session.run(bad)
    np.testing.assert_array_equal(session.run(given)["z"], found)


@pytest.mark.compiles
def test_no_word_of_tvm_s_says_that_indices_are_not_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([[0, 2], [1, 1]])}
    network = read_onnx(_saved("z = Gather <axis: int = 1> (x, n)", {"z": "float"}, given, tmp_path / "net.onnx"))
    [found] = computed(network, given)
    np.testing.assert_array_equal(found, given["x"][:, given["n"]])
    assert capfd.readouterr() == ("", "")


@pytest.mark.compiles
def test_the_least_integer_divided_by_minus_one_wraps(tmp_path: Path) -> None:
    """onnxruntime ends the process."""
    given = {"n": np.array([-128, -128, 7], np.int8), "d": np.array([-1, 3, -1], np.int8)}
    nodes = "z = Div(n, d) e = Mod(n, d) s = Mod <fmod: int = 1> (n, d)"
    network = read_onnx(_saved(nodes, dict.fromkeys("zes", "int8"), given, tmp_path / "net.onnx"))
    assert [each.tolist() for each in computed(network, given)] == [[-128, -42, -7], [0, 1, 0], [0, -2, 0]]
