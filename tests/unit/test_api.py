"""The Python API on this machine: what a command does, one call does."""

import json
import re
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from conftest import ROOT, Command
from PIL import Image
from support.commands import printed
from support.networks import Graph, tiny

import edgedeploy as ed
from edgedeploy.api.networks import Detections
from edgedeploy.api.tuning import Tuned
from edgedeploy.demo.program import Detector
from edgedeploy.errors import InputError, PackageError, UnknownNameError, UnsupportedError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.records.schema import RunEnded, TaskResult
from edgedeploy.release.push import Pushed
from edgedeploy.runtime.timing import Timing
from edgedeploy.target.facts import Facts
from edgedeploy.vision.draw import draw_enlarged
from edgedeploy.vision.image import read_image
from edgedeploy.vision.results import Detection

DIGIT = ROOT / "models" / "digit.png"

# What takes long to import, of which importing edgedeploy imports nothing.
_SLOW = {"numpy", "tvm", "onnx", "onnxruntime", "cv2", "pydantic", "paramiko", "typer", "rich", "yaml"}


@pytest.fixture
def here(command: Command) -> None:
    """An empty working folder, and empty user folders."""


@pytest.fixture
def digits(here: None) -> ed.Package:
    return ed.build("digits", check=False)


def test_importing_it_imports_nothing_large() -> None:
    ask = "import sys; before = set(sys.modules); import edgedeploy; print(*(set(sys.modules) - before))"
    imported = printed(sys.executable, "-c", ask, env={"PYTHONPATH": str(ROOT)}).split()
    assert not {name.partition(".")[0] for name in imported} & _SLOW
    assert sorted(name for name in imported if name.startswith("edgedeploy")) == ["edgedeploy", "edgedeploy.version"]


def test_every_public_name_can_be_had() -> None:
    for name in ed.__all__:
        assert getattr(ed, name) is not None
    assert sorted(ed.__all__) == sorted({"__version__", *ed._PUBLIC})
    assert dir(ed) == sorted(ed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ed.nothing  # noqa: B018


@pytest.mark.compiles
def test_a_package_says_what_it_is_and_is_built_once(here: None, tmp_path: Path) -> None:
    path = tiny(tmp_path / "net.onnx")
    package = ed.build(path)
    assert package.path == Path("dist/local/net.tar.gz")
    assert (package.name, package.manifest.checked.how) == ("net", "here")
    assert max(map(len, map(repr, (package, package.manifest, package.built)))) < 200
    written = package.path.stat().st_mtime_ns
    again = ed.build(path)
    assert again.path.stat().st_mtime_ns == written
    assert again.manifest == package.manifest
    assert again.explain() == package.explain()  # compiled again, since it is not kept
    assert package.explain()["functions"]
    ed.build(path, force=True)
    assert package.path.stat().st_mtime_ns != written
    assert json.loads(json.dumps(package.to_dict()))["manifest"]["model"] == "net"


@pytest.mark.compiles
@pytest.mark.cold_cache
def test_what_was_built_unchecked_is_built_again_for_a_checked_package(digits: ed.Package) -> None:
    assert digits.manifest.checked.how == "no"
    assert ed.build("digits").manifest.checked.how == "here"
    assert ed.build("digits", check=False).manifest.checked.how == "here"  # which is there now


@pytest.mark.compiles
def test_a_damaged_package_is_built_again(digits: ed.Package) -> None:
    content = bytearray(digits.path.read_bytes())
    content[-40:-20] = bytes(20)
    digits.path.write_bytes(content)
    ed.build("digits", check=False)
    with ed.open(digits.path) as network:
        assert network.inputs


@pytest.mark.compiles
def test_other_settings_make_another_package(digits: ed.Package) -> None:
    key = digits.manifest.build_key
    assert ed.build("digits", check=False, disabled_passes=["pad-channels"]).manifest.build_key != key
    assert ed.build("digits", check=False, overrides={"cpu": "x86-64-v2"}).manifest.target["mcpu"] == "x86-64-v2"


@pytest.mark.compiles
def test_a_package_is_not_built_in_another_way_nor_explained_from_its_archive(digits: ed.Package) -> None:
    for said in ({"shapes": {"data": [1, 1, 16, 16]}}, {"demo": "digits"}):
        with pytest.raises(InputError, match="it is built already"):
            ed.open(digits, **said)
    with pytest.raises(UnsupportedError, match="does not record how its functions were built"):
        ed.Package(digits.path).explain()


def test_what_is_no_package_is_refused_when_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "net.tar.gz").write_bytes(b"nothing")
    with pytest.raises(PackageError, match=r"net\.tar\.gz"):
        ed.Package(tmp_path / "net.tar.gz").manifest  # noqa: B018


@pytest.mark.compiles
def test_outputs_are_those_of_onnxruntime(here: None) -> None:
    network = ed.open("digits")
    [spec] = network.inputs
    data = np.random.default_rng(0).random(spec.shape, np.float32)
    [wanted] = cpu_session(ROOT / "models" / "digits.onnx").run(None, {"data": data})
    for outputs in (network(data), network({"data": data}), network.run({"data": data}), network(data.tolist())):
        np.testing.assert_allclose(outputs["prob"], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.compiles
def test_several_inputs_are_taken_in_their_order(here: None, tmp_path: Path) -> None:
    graph = Graph()
    first, second = graph.input("first", [2, 3]), graph.input("second", [3, 2])
    path = graph.save(tmp_path / "two.onnx", graph.node("MatMul", first, second))
    with ed.open(path) as network:
        a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
        [product] = network(a, b).values()
        np.testing.assert_allclose(product, a @ b)
        with pytest.raises(InputError, match="takes 2 arrays, not 1: its inputs: first, second"):
            network(a)


@pytest.mark.compiles
def test_an_input_may_have_several_shapes(here: None, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "free.onnx", graph.conv(graph.input("data", [1, 3, "h", "w"]), 3, 8, 3))
    with ed.open(path, shapes=[{"data": [1, 3, 8, 8]}, {"data": [1, 3, 12, 8]}]) as network:
        for height in (8, 12):
            [output] = network(np.ones((1, 3, height, 8), np.float32)).values()
            assert output.shape[2] >= height - 2


@pytest.mark.compiles
def test_detects_as_the_package_says_whatever_an_image_is_given_as(digits: ed.Package) -> None:
    wanted = Detector(digits.path).detect(read_image(DIGIT))
    grey = Image.open(DIGIT)
    with ed.open(digits) as network:
        for image in (str(DIGIT), DIGIT, cv2.imread(str(DIGIT)), cv2.imread(str(DIGIT), cv2.IMREAD_GRAYSCALE), grey):
            found = network.detect(image)
            assert list(found) == wanted
    assert found[0].label == "3"
    assert found[:2].found == tuple(wanted[:2])
    assert len(found) == 5
    assert json.loads(json.dumps(found.to_dict()))[0]["label"] == "3"
    assert found.draw().shape == cv2.imread(str(DIGIT)).shape
    assert (found.draw() != found.image).any()
    found.save("seen.png")
    np.testing.assert_array_equal(read_image(Path("seen.png")), draw_enlarged(found.image, found.found))


@pytest.mark.compiles
def test_what_a_network_cannot_take_is_refused(digits: ed.Package) -> None:
    with ed.open(digits) as network:
        for call, given, why in (
            (network, np.zeros((1, 3, 4), np.float32), "has shape 1x3x4: the network was built for 1x1x16x16"),
            (network, np.full((1, 1, 16, 16), "x"), "has dtype <U1"),
            (network.detect, np.zeros((1, 3, 16, 16), np.uint8), "1x3x16x16 is not an image"),
            (network.detect, np.zeros((16, 16, 3), np.float32), "of float32 is not an image"),
            (network.detect, np.zeros((0, 16, 3), np.uint8), "is not an image"),
            (network.detect, b"bytes", "bytes is not an image"),
            (network.detect, "no/such.png", "there is no image"),
        ):
            with pytest.raises(InputError, match=why):
                call(given)
    network.close()
    with pytest.raises(InputError, match="digits was closed"):
        network(np.zeros((1, 1, 16, 16), np.float32))


@pytest.mark.compiles
def test_a_network_of_no_demo_detects_nothing(here: None, tmp_path: Path) -> None:
    with ed.open(tiny(tmp_path / "net.onnx")) as network, pytest.raises(InputError, match="does not say how images"):
        network.detect(DIGIT)


@pytest.mark.compiles
def test_a_network_of_ones_own_is_shown_images_as_a_demo_that_is_named(here: None) -> None:
    Path("mine.onnx").write_bytes((ROOT / "models" / "digits.onnx").read_bytes())
    with ed.open("mine.onnx", demo="digits") as network:
        assert network.detect(DIGIT)[0].label == "3"


@pytest.mark.compiles
def test_times_are_taken_as_often_as_is_asked(digits: ed.Package) -> None:
    with ed.open(digits, threads=1) as network:
        timing = network.time(repeat=7, number=2)
        assert len(timing.runs_ms) == 7
        assert timing.to_dict()["min_ms"] == timing.min_ms > 0
        assert network.threads == 1
        assert network.to_dict()["inputs"] == [{"name": "data", "shape": [1, 1, 16, 16], "dtype": "float32"}]
        assert network.memory() == {}


def test_errors_are_the_typed_ones(here: None) -> None:
    with pytest.raises(UnknownNameError, match="digits"):
        ed.open("digit")
    with pytest.raises(UnknownNameError, match="rpi4"):
        ed.build("digits", board="rpi44")
    with pytest.raises(InputError, match="no board is named"):
        ed.connect()
    with pytest.raises(InputError, match="is this machine"):
        ed.connect("local")
    with pytest.raises(UnknownNameError, match="onnxruntime"):
        ed.bench(["digits"], against=["onnxruntim"])
    assert issubclass(UnknownNameError, ed.EdgedeployError)


def test_results_are_shown_in_a_line(here: None, tmp_path: Path) -> None:
    """In an interactive session; `to_dict()` has all of them."""
    about = {"lib.so": 9}, 1234, 2.25, Facts(), {"outputs": [1] * 999}
    pushed = Pushed("digits", "20260102T030405Z-1", "pushed", *about)
    assert repr(pushed) == "<edgedeploy.Pushed digits 20260102T030405Z-1: pushed, 1,234 bytes sent, 2.2 s>"
    task = TaskResult(number=0, name="a", workload="b", weight=1, default_ms=2, best_ms=1, trials=3, failures=0)
    tuned = Tuned("digits", tmp_path, RunEnded(run="r", results=[task] * 99, before_ms=2.0, seconds=3))
    assert repr(tuned) == f"<edgedeploy.Tuned digits: 2.000 ms before, not measured after; records in {tmp_path}>"
    assert repr(Timing((1.0, 2.0, 4.0))) == "<edgedeploy.Timing of 3: median 2.000 ms, min 1.000 ms>"
    cat = Detection(label="cat", class_id=0, score=0.9, box=(1, 2, 3.4, 4), points=((0.0, 0.0),) * 468)
    seven = Detections(np.zeros((2, 2, 3), np.uint8), (cat,) * 7)
    assert repr(seven) == f"<edgedeploy.Detections of 7: {', '.join(['cat 0.90 [1, 2, 3, 4]'] * 5)}, 2 more>"


@pytest.mark.compiles
def test_measures_beside_another_engine(here: None) -> None:
    report = ed.bench(["digits"], against=["onnxruntime"], threads=1, rounds=1)
    shown = r"<edgedeploy.Report, medians of 1 rounds\n  digits: edgedeploy [\d.]+ ms, onnxruntime [\d.]+ ms>"
    assert re.fullmatch(shown, repr(report))
    assert [row["engine"] for row in report.to_dict()["rows"]] == ["edgedeploy", "onnxruntime"]


@pytest.mark.compiles
def test_quantises_with_arrays_and_says_what_that_cost(here: None, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.conv(graph.input("data", [1, 3, 16, 16]), 3, 8, 3))
    (tmp_path / "arrays").mkdir()
    for seed in range(20):
        values = np.random.default_rng(seed).random((1, 3, 16, 16), np.float32)
        np.savez(tmp_path / "arrays" / f"{seed}.npz", data=values)
    made = ed.quantize(path, tmp_path / "arrays")
    assert made.path == Path("net-int8.onnx")
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(made.path).graph.node}
    assert made.to_dict()["bytes"] == made.path.stat().st_size
    assert repr(made) == f"<edgedeploy.Quantised net-int8.onnx: {made.bytes:,} bytes, loss {made.loss:g}>"
    with pytest.raises(InputError, match="the float network itself"):
        ed.quantize(path, tmp_path / "arrays", output=path)


@pytest.mark.compiles
def test_builds_what_is_quantised_on_the_way(here: None, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for seed in range(20):
        image = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)
        cv2.imwrite(str(folder / f"{seed}.png"), image)
    assert ed.build("digits", quantize=folder).manifest.quantisation
    again = ed.build("digits", quantize=folder)
    assert again.built
    assert again.built.compiled is None  # it was not built again
