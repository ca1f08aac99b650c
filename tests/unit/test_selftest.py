"""Self-tests: what a package is tested with, how outputs are compared, and what a build so finds."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.agents import packaged
from support.commands import output_of, refusal
from support.networks import Graph, tiny
from tvm import relax

from edgedeploy.errors import NumericalError, PackageError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.frontends.onnx.importer import TRANSLATIONS
from edgedeploy.frontends.translation import Builder
from edgedeploy.package.archive import read_package, write_package
from edgedeploy.package.entry import Case
from edgedeploy.runtime.session import Session
from edgedeploy.selftest import checking
from edgedeploy.selftest.recording import recorded
from edgedeploy.selftest.tolerance import Recorded, fractions

pytestmark = pytest.mark.compiles

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def cases_of(path: Path) -> dict[str, Recorded]:
    return recorded(read_onnx(path))


def written(make: Callable[[Graph], str]) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        graph = Graph()
        return graph.save(path, make(graph))

    return write


is_infinite = written(lambda graph: graph.node("IsInf", graph.input("x", [4, 6]), detect_negative=0))
largest = written(lambda graph: graph.node("ReduceMax", graph.input("x", [4, 6]), axes=[1]))
squeezed = written(lambda graph: graph.node("Squeeze", graph.input("x", [1, 4, 1]), graph.weight(np.array([2]))))
gathered = written(lambda graph: graph.node("Gather", graph.normal(5, 3), graph.input("i", [2, 8], INT64)))
softmax = written(lambda graph: graph.node("Softmax", graph.input("x", [8, 5])))
largest_of_all = written(lambda graph: graph.node("GlobalMaxPool", graph.input("x", [1, 4, 7, 8])))
strides_beyond_the_kernel = written(
    lambda graph: graph.conv(graph.input("x", [1, 1, 17, 18]), 1, 1, 3, auto_pad="SAME_UPPER", strides=[10, 10])
)


@written
def one_hot(graph: Graph) -> str:
    depth, values = graph.weight(np.array(6)), graph.weight(np.array([0, 1], np.float32))
    return graph.node("OneHot", graph.input("i", [8], INT64), depth, values)


@written
def as_large_as_before(graph: Graph) -> str:
    scales = graph.weight(np.array([1, 1, 1.1, 1.1], np.float32))
    return graph.node("Resize", graph.input("x", [1, 2, 6, 9]), "", scales, mode="linear")


@written
def masked_attention(graph: Graph) -> str:
    """Softmax of what a mask lets pass; equal shares in rows where it lets nothing, whose maximum is -inf."""
    lowest = graph.weight(np.array(-np.inf, np.float32))
    scores = graph.node("Where", graph.input("mask", [6, 6], BOOL), graph.input("x", [6, 6]), lowest)
    most = graph.node("ReduceMax", scores, axes=[1])
    nothing = graph.node("Equal", most, lowest)
    shift = graph.node("Where", nothing, graph.weight(np.array(0, np.float32)), most)
    shares = graph.node("Exp", graph.node("Sub", scores, shift))
    total = graph.node("Max", graph.node("ReduceSum", shares, keepdims=1), graph.weight(np.array(1e-9, np.float32)))
    equal = graph.weight(np.full((1, 6), 1 / 6, np.float32))
    return graph.node("Where", nothing, equal, graph.node("Div", shares, total))


def starting_at_the_lowest_float(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    found = build.reduce("max", inputs[0], list(attr["axes"]), keepdims=bool(attr.get("keepdims", 1)))
    return build.maximum(found, np.finfo(np.float32).min)


def without_its_maximum(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    shares = build.exp(inputs[0])
    return build.divide(shares, build.reduce("sum", shares, [-1], keepdims=True))


def in_its_depth(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    return build.cast(build.equal(build.expand_dims(inputs[0], axis=-1), np.arange(6)), "float32")


# Mistakes of translations, each of a kind that random inputs do not show.
MISTAKES: dict[str, tuple[Callable[[Path], Path], str, Callable[..., Any], str]] = {
    "either infinity": (is_infinite, "IsInf", lambda _, inputs, __: relax.op.isinf(inputs[0]), "for infinite inputs"),
    "a maximum that is finite": (largest, "ReduceMax", starting_at_the_lowest_float, "for infinite inputs"),
    "a mask that is all": (masked_attention, "ReduceMax", starting_at_the_lowest_float, "for edge inputs"),
    "indices from the end": (
        *(gathered, "Gather", lambda _, inputs, __: relax.op.take(inputs[0], inputs[1], 0, mode="clip")),
        "for edge inputs",
    ),
    "a one from the end": (one_hot, "OneHot", in_its_depth, "for edge inputs"),
    "exp of large values": (softmax, "Softmax", without_its_maximum, "for edge inputs"),
    "what a third program confirms": (
        *(softmax, "Softmax", without_its_maximum),
        r"the reference evaluator of onnx \S+ agrees with onnxruntime",
    ),
    "another shape": (
        *(squeezed, "Squeeze", lambda _, inputs, __: relax.op.reshape(inputs[0], [4, 1])),
        "it is 1x4 of float32, not 4x1 of float32",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_build_finds_a_wrong_operator(tmp_path: Path, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, operator, wrong, said = MISTAKES[mistake]
    path = write(tmp_path / "net.onnx")
    monkeypatch.setitem(TRANSLATIONS, operator, wrong)
    with pytest.raises(NumericalError, match=said):
        packaged(path)
    assert not path.with_suffix(".tar.gz").exists()


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("Conv", r"onnx \S+ differs from onnxruntime \S+ in operator Conv of node '\w+'"),
        ("Neg", r"agrees with onnxruntime \S+ about each operator that is small enough to ask about \(1\)"),
    ],
)
def test_of_large_networks_a_third_program_is_asked_about_each_small_operator(
    tmp_path: Path, operator: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph()
    large = graph.conv(graph.input("x", [1, 8, 47, 48]), 8, 8, 3, pads=[1, 1, 1, 1])
    strided = graph.conv(large, 8, 2, 3, auto_pad="SAME_UPPER", strides=[10, 10])
    made = strided if operator == "Conv" else graph.node("Neg", large)
    monkeypatch.setattr(checking, "MOST_GFLOP_OF_SECOND_OPINION", 1e-3)
    monkeypatch.setitem(TRANSLATIONS, "Neg", lambda _, inputs, __: relax.op.abs(inputs[0]))
    with pytest.raises(NumericalError) as refused:
        packaged(graph.save(tmp_path / "net.onnx", made))
    assert re.search(said, str(refused.value.why))


@pytest.mark.parametrize(
    "write",
    [strides_beyond_the_kernel, largest_of_all, as_large_as_before],
    ids=["strides_beyond_the_kernel", "largest_of_all", "as_large_as_before"],
)
def test_a_third_program_decides_between_reference_and_code(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """onnxruntime 1.32 is wrong about these; where it is right, it stays the reference."""
    manifest, contents = read_package(packaged(write(tmp_path / "net.onnx")).path)
    assert manifest.checked.how == "here"
    assert manifest.selftest.reference.startswith(("the reference evaluator of onnx", "onnxruntime"))
    case = manifest.selftest.cases[0]
    [taken], [expected] = ([contents[name] for name in names] for names in (case.inputs, case.outputs))
    evaluator = ReferenceEvaluator(str(tmp_path / "net.onnx"))
    given = np.frombuffer(taken, np.float32).reshape(manifest.inputs[0].shape)
    [wanted] = evaluator.run(None, {"x": given})
    np.testing.assert_allclose(np.frombuffer(expected, np.float32), wanted.ravel(), rtol=1e-5)


@pytest.mark.parametrize("write", [gathered, one_hot], ids=["gathered", "one_hot"])
def test_sound_networks_pass(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    package = packaged(write(tmp_path / "net.onnx"))
    assert [case.name for case in package.manifest.selftest.cases][:2] == ["random", "edge"]
    assert package.error <= 1


def test_indices_lie_in_their_table_and_reach_both_ends(tmp_path: Path) -> None:
    cases = cases_of(gathered(tmp_path / "net.onnx"))
    assert set(np.unique(cases["random"].inputs["i"])) <= set(range(5))
    assert set(np.unique(cases["edge"].inputs["i"])) == {0, 4, -1, -5}


def test_random_inputs_of_a_package_lie_in_their_tables_too(command: Command, tmp_path: Path) -> None:
    path = gathered(tmp_path / "net.onnx")
    package = packaged(path)
    assert package.manifest.inputs[0].below == 5
    table = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    for mode in ("random", "ones"):
        output_of(command, "run", package.path, "--fill-mode", mode, "--outputs", "out.npz")
        [rows] = dict(np.load("out.npz")).values()
        assert {tuple(row) for row in rows.reshape(-1, 3)} <= {tuple(row) for row in table}


def test_an_index_is_followed_through_other_operators(tmp_path: Path) -> None:
    graph = Graph()
    near = graph.node("Unsqueeze", graph.input("i", [4], TensorProto.INT32), graph.weight(np.array([0])))
    taken = graph.node("GatherElements", graph.normal(3, 4), graph.node("Cast", near, to=INT64), axis=0)
    cases = cases_of(graph.save(tmp_path / "net.onnx", taken))
    assert {int(value) for value in np.unique(cases["edge"].inputs["i"])} == {0, 2, -1, -3}


def test_places_to_write_to_are_not_named_twice(tmp_path: Path) -> None:
    graph = Graph()
    places, updates = graph.input("i", [4, 1], INT64), graph.input("u", [4, 3])
    path = graph.save(tmp_path / "net.onnx", graph.node("ScatterND", graph.normal(5, 3), places, updates))
    for case in cases_of(path).values():
        assert len(np.unique(case.inputs["i"] % 5)) == 4


def test_what_overflows_in_the_reference_is_left_out(tmp_path: Path) -> None:
    cases = cases_of(written(lambda graph: graph.node("Exp", graph.input("x", [6, 8])))(tmp_path / "net.onnx"))
    assert np.isfinite(cases["edge"].outputs["exp0"]).mean() >= 0.25
    assert set(np.unique(cases["edge"].inputs["x"])) >= {0.0, 1.0}


def test_networks_of_products_are_not_given_infinities(tmp_path: Path) -> None:
    cases = cases_of(tiny(tmp_path / "net.onnx"))
    assert list(cases) == ["random", "edge"]
    assert np.abs(cases["edge"].inputs["data"]).max() <= 4


def test_no_integer_is_divided_by_zero(tmp_path: Path) -> None:
    graph = Graph()
    names = [graph.input(name, [8], INT64) for name in "ab"]
    path = graph.save(tmp_path / "net.onnx", graph.node("Div", *names))
    for case in cases_of(path).values():
        assert (case.inputs["b"] > 0).all()


WITHIN_A_HALF = Case(name="random", inputs=[], outputs=[], usual=0, relative=[0], absolute=0.5, spread=[None])


@pytest.mark.parametrize(
    ("found", "expected", "sound"),
    [
        ([1.0, np.inf, -np.inf, np.nan], [1.0, np.inf, -np.inf, np.nan], True),
        ([1.25, np.inf], [1.0, np.inf], True),
        ([1.0, -np.inf], [1.0, np.inf], False),
        ([1.0, 3.4e38], [1.0, np.inf], False),
        ([1.0, np.inf], [1.0, 2.0], False),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([], [], True),
    ],
)
def test_infinities_and_nans_agree_with_the_same_alone(found: list[float], expected: list[float], sound: bool) -> None:
    given, wanted = {"y": np.array(found, np.float32)}, {"y": np.array(expected, np.float32)}
    assert (fractions(given, wanted, WITHIN_A_HALF)["y"] <= 1) is sound


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"shape": [1, 8]}, "it is 1x8x1x1 of float32, not 1x8 of float32"),
        ({"shape": [8, 1, 1, 1]}, "not 8x1x1x1"),
        ({"dtype": "int32"}, "not 1x8x1x1 of int32"),
    ],
)
def test_an_output_of_another_shape_or_dtype_is_refused(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    package = packaged(tiny(tmp_path / "net.onnx")).path
    manifest, contents = read_package(package)
    [output] = manifest.outputs
    write_package(package, manifest.model_copy(update={"outputs": [output.model_copy(update=changed)]}), contents)
    with pytest.raises(PackageError, match=named):
        Session.open(package).run({"data": np.ones((1, 3, 8, 8), np.float32)})


def scalars(path: Path) -> Path:
    """y = 2x, n = i + 1: all of rank 0."""
    graph = Graph()
    doubled = graph.node("Mul", graph.input("x", []), graph.weight(np.array(2, np.float32)))
    more = graph.node("Add", graph.input("i", [], INT64), graph.weight(np.array(1)))
    return graph.save(path, doubled, more)


def test_scalars_stay_scalars(command: Command, tmp_path: Path) -> None:
    output_of(command, "build", scalars(tmp_path / "net.onnx"))
    np.savez("in.npz", x=np.float32(1.5), i=np.int64(41))
    output_of(command, "run", "dist/local/net.tar.gz", "--inputs", "in.npz", "--outputs", "out.npz")
    found = np.load("out.npz")
    assert [(found[name].shape, found[name].item()) for name in found] == [((), 3.0), ((), 42)]
    assert command("run", "dist/local/net.tar.gz", "--repeat", "2", "--print-top", "1")[0] == 0
    np.savez("in.npz", x=np.zeros(1, np.float32), i=np.int64(41))
    err = refusal(command, 7, "run", "dist/local/net.tar.gz", "--inputs", "in.npz")
    assert "has shape 1" in err
    assert "a scalar" in err


@pytest.mark.cold_cache
def test_a_build_can_go_unchecked_and_says_so(command: Command, tmp_path: Path) -> None:
    assert "checked: no" in output_of(command, "build", tiny(tmp_path / "net.onnx"), "--no-check")
    [said] = json.loads(command("package", "show", "dist/local/net.tar.gz", "--json")[1].join("[]"))
    assert said["checked"] == {"how": "no", "emulator": None}


def test_without_an_emulator_it_is_compiled_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if "qemu" in name else found(name, *rest))
    package = packaged(softmax(tmp_path / "net.onnx"), "rpi4")
    assert package.manifest.checked.how == "compiled for this machine"
    assert package.manifest.abi.machine == "EM_AARCH64"
    assert package.error is not None
    monkeypatch.setitem(TRANSLATIONS, "Softmax", without_its_maximum)
    path = softmax(tmp_path / "wrong.onnx")
    with pytest.raises(NumericalError, match="for edge inputs"):
        packaged(path, "rpi4")
    assert not path.with_suffix(".tar.gz").exists()


@pytest.mark.slow
def test_long_work_is_not_emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.selftest.checking.MOST_EMULATED_GFLOP", 1e-9)
    assert packaged(tiny(tmp_path / "net.onnx"), "rpi4").manifest.checked.how == "compiled for this machine"


def test_a_manifest_of_another_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    package = packaged(tiny(tmp_path / "net.onnx")).path
    manifest, contents = read_package(package)
    write_package(package, manifest.model_copy(update={"format": 5}), contents)
    with pytest.raises(PackageError, match="another version of edgedeploy wrote it: this one reads format 1, not 5"):
        read_package(package)
