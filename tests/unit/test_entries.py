"""Packages with several entry points: one set of weights, several shapes of the inputs."""

import gc
import json
import weakref
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from support.agents import answer, call, request, unpack
from support.agreement import run_onnx
from support.commands import output_of
from support.networks import Graph, tiny
from support.packages import changed, document
from support.tflite_networks import small

from edgedeploy.build_key import build_key
from edgedeploy.building import build
from edgedeploy.cli.options import parse_batches, parse_entries, parse_shapes
from edgedeploy.errors import InputError, NumericalError, UnsupportedError
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.entry import Case, Entry
from edgedeploy.package.manifest import parse_manifest
from edgedeploy.runtime.session import Session
from edgedeploy.selftest.checking import _error
from edgedeploy.selftest.tolerance import Recorded
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

SHAPES = [(1, 3, 8, 8), (4, 3, 8, 8), (1, 3, 12, 12), (4, 3, 12, 12)]


def image(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).random(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer whose packed weights are the same for every size of the image, and one that is not."""
    graph = Graph()
    relu = graph.node("Relu", graph.conv(graph.input("x", ["n", 3, "h", "w"]), 3, 8, 3, pads=[1, 1, 1, 1]))
    mean = graph.node("Flatten", graph.node("GlobalAveragePool", relu))
    return graph.save(tmp_path_factory.mktemp("net") / "net.onnx", graph.node("MatMul", mean, graph.normal(8, 4000)))


@pytest.fixture(scope="module")
def package(network: Path) -> Path:
    source = find_source(str(network), {"x": [1, 3, 8, 8]}).with_further([{"x": [1, 3, 12, 12]}], [1, 4])
    return build(source, resolve("local", {}), network.with_name("net.tar.gz")).path


@pytest.mark.compiles
def test_each_entry_gives_what_onnxruntime_gives(network: Path, package: Path) -> None:
    session = Session.open(package)
    assert [tuple(each.inputs[0].shape) for each in session.of_each_entry()] == SHAPES
    for shape in SHAPES:
        [found] = session.run({"x": image(shape)}).values()
        [wanted] = run_onnx(network, image(shape)).values()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        fitting = session.fitting({"x": image(shape)})
        assert fitting.measure({"x": image(shape)}).min_ms > 0
        assert fitting.function_times({"x": image(shape)})


@pytest.mark.compiles
def test_threads_end_with_the_last_session_of_an_entry(package: Path) -> None:
    """Without the collector's help: nothing holds in a circle what has threads."""
    gc.disable()
    try:
        session = Session.open(package, 2)
        session.run({"x": image(SHAPES[1])})
        last = session.of_each_entry()[1]
        whole = weakref.ref(session)
        del session
        assert whole() is not None
        last.run({"x": image(SHAPES[1])})
        del last
        assert whole() is None
    finally:
        gc.enable()


@pytest.mark.compiles
def test_equal_weights_are_in_the_library_once(network: Path, package: Path, tmp_path: Path) -> None:
    source, board = find_source(str(network), {"x": [1, 3, 8, 8]}), resolve("local", {})
    two = build(source.with_further([{"x": [1, 3, 12, 12]}]), board, tmp_path / "two.tar.gz").manifest
    weights = 8 * 4000 * 4
    assert weights <= two.memory.constants_bytes < 1.5 * weights
    alone = build(source, board, tmp_path / "one.tar.gz").manifest
    assert two.files["model.so"].size - alone.files["model.so"].size < weights


@pytest.mark.compiles
def test_shapes_that_no_entry_takes_are_refused_with_those_that_exist(package: Path) -> None:
    with pytest.raises(InputError, match="the package has no entry for x 2x3x8x8") as raised:
        Session.open(package).run({"x": image((2, 3, 8, 8))})
    assert "x 1x3x8x8; x 4x3x8x8; x 1x3x12x12" in str(raised.value.why)
    with pytest.raises(InputError, match="unknown input 'y'"):
        Session.open(package).run({"y": image((1, 3, 8, 8))})


@pytest.mark.compiles
def test_the_self_test_covers_each_entry(package: Path) -> None:
    found = read_manifest(package)
    folder = unpack(package, package.parent / "unpacked")
    cases = [{case.name: recorded(folder, entry, case) for case in entry.selftest.cases} for entry in found.entries]
    contents = {"model.so": (folder / "model.so").read_bytes()}
    assert _error(found, contents, cases) <= 1
    for array in cases[-1]["random"].outputs.values():
        array += 1
    with pytest.raises(NumericalError, match="gives other outputs"):
        _error(found, contents, cases)


def recorded(folder: Path, entry: Entry, case: Case) -> Recorded:
    def read(specs: list[TensorSpec], names: list[str]) -> dict[str, np.ndarray]:
        files = zip(specs, names, strict=True)
        return {spec.name: np.fromfile(folder / name, spec.dtype).reshape(spec.shape) for spec, name in files}

    return Recorded(read(entry.inputs, case.inputs), read(entry.outputs, case.outputs), {})


@pytest.mark.compiles
def test_the_agent_runs_each_entry(agent: Path, package: Path, tmp_path: Path) -> None:
    folder = unpack(package, tmp_path / "net")
    tested = answer(agent, "selftest", folder)
    assert tested["passed"]
    assert {output["function"] for output in tested["outputs"]} == {"main", "main_1", "main_2", "main_3"}
    shape = SHAPES[3]
    image(shape).tofile(tmp_path / "x.bin")
    answer(agent, "run", folder, "--entry", "3", "--input", f"x={tmp_path / 'x.bin'}", "--output-dir", tmp_path / "out")
    [wanted] = Session.open(package).run({"x": image(shape)}).values()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out" / "output-0.bin", np.float32), wanted.ravel())
    first = image(SHAPES[0])
    asked = request("run", image(shape).tobytes(), entry=3) + request("run", first.tobytes())
    asked += request("run", b"", entry=4) + request("run", b"", entry=-1)
    said = BytesIO(call(agent, "serve", folder, stdin=asked).stdout)
    further = json.loads(said.readline())["further"]
    assert [entry["inputs"][0]["shape"] for entry in further] == [list(each) for each in SHAPES[1:]]
    [wanted_first] = Session.open(package).run({"x": first}).values()
    for output in (wanted, wanted_first):
        assert json.loads(said.readline())["bytes"] == output.nbytes
        np.testing.assert_array_equal(np.frombuffer(said.read(output.nbytes), np.float32), output.ravel())
    assert [json.loads(line)["error"] for line in said] == ["entry is out of range"] * 2


@pytest.mark.compiles
def test_the_command_takes_the_entry_that_fits(network: Path, command: Command) -> None:
    np.savez("in.npz", x=image((4, 3, 8, 8)))
    out = output_of(command, "run", network, "--input-shape", "x:1,3,8,8", "--batch", "1,4", "-i", "in.npz", "--json")
    assert json.loads(out)["outputs"][0]["shape"] == [4, 4000]


@pytest.mark.compiles
def test_package_show_lists_the_entries(package: Path, command: Command) -> None:
    out = output_of(command, "package", "show", package)
    assert "inputs, shape 2" in out
    assert "float32 [4, 3, 12, 12]" in out


def test_the_second_shape_of_an_input_belongs_to_the_second_entry() -> None:
    assert parse_entries(["a:1,2", "b:3", "a:4,5"]) == [{"a": [1, 2], "b": [3]}, {"a": [4, 5], "b": [3]}]
    assert parse_entries(None) == [{}]
    with pytest.raises(InputError, match="different numbers of shapes"):
        parse_entries(["a:1", "a:2", "b:1", "b:2", "b:3"])
    with pytest.raises(InputError, match="takes one shape for an input"):
        parse_shapes(["a:1", "a:2"])


def test_duplicate_or_too_many_shapes_are_refused_before_anything_is_built(network: Path, tmp_path: Path) -> None:
    source = find_source(str(network), {"x": [1, 3, 8, 8]})
    with pytest.raises(InputError, match="two entries have the same shapes"):
        source.with_further([{"x": [1, 3, 12, 12]}, {"x": [1, 3, 8, 8]}])
    with pytest.raises(InputError, match="two entries have the same shapes"):
        source.with_further([{"x": [4, 3, 8, 8]}], [1])
    with pytest.raises(UnsupportedError, match="a package cannot hold 33 shapes: the maximum is 32"):
        build(source.with_further([], range(1, 34)), resolve("local", {}), tmp_path / "net.tar.gz")


def test_batches_are_numbers_from_one() -> None:
    assert parse_batches("1,4") == [1, 4]
    assert parse_batches(None) == []
    for wrong in ("0", "1,x", "2,2", "1,"):
        with pytest.raises(InputError, match="not a list of batch sizes"):
            parse_batches(wrong)


def test_files_that_fix_their_shapes_have_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(small())
    with pytest.raises(InputError, match="has one batch size"):
        find_source(str(path)).with_further([], [1, 4])


def test_packages_of_other_shapes_have_other_keys(tmp_path: Path) -> None:
    source, board = find_source(str(tiny(tmp_path / "net.onnx"))), load_board("local")
    assert build_key(source, board) != build_key(source.with_further([{"data": [1, 3, 9, 9]}]), board)


def _entry(**fields: object) -> dict[str, object]:
    first = {field: document()[field] for field in ("inputs", "outputs", "selftest")}
    return {"function": "main_1", **first, **fields}


UNSOUND = {
    "two entries of one function": ([_entry(), _entry()], "two entries have one function"),
    "a function that is none of ours": ([_entry(function="system")], "function: must match"),
    "the first function again": ([_entry(function="main")], "two entries have one function"),
    "inputs without a test": ([_entry(inputs=[])], "another number of tensors"),
    "a tail that is not there": (
        [_entry(tail={"file": "tail.json", "outputs": [{"name": "y", "shape": [-1], "dtype": "float32"}]})],
        "files does not list tail.json",
    ),
    "too many": ([_entry(function=f"main_{place}") for place in range(1, 40)], "at most 31 items"),
}


@pytest.mark.parametrize(("further", "said"), UNSOUND.values(), ids=UNSOUND)
def test_unsound_entries_are_refused(further: list[dict[str, object]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_manifest(changed("further", further))
