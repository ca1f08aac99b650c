"""Packages say how their networks are used; by that alone they detect what the demos detect."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from conftest import Command
from support.commands import output_of, refusal
from support.networks import tiny
from support.packages import changed

from edgedeploy.build_key import build_key
from edgedeploy.building import prepare
from edgedeploy.demo.packaged import Detector, look_of
from edgedeploy.demo.program import Program
from edgedeploy.demo.spec import DEMOS
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import InputError
from edgedeploy.model.metadata import ENTRY
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import parse_manifest
from edgedeploy.runtime.opening import Place
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.vision.source import Shot
from edgedeploy.zoo.source import find_source


@pytest.mark.compiles
def test_a_package_alone_detects_what_its_demo_does() -> None:
    program = Program.of("digits")
    shot = Shot(0, program.image(), read_image(program.image()))
    with program.opened(Place(resolve("local"))) as session:
        wanted = session.infer(shot).outcome.detections
    package = prepare("digits", resolve("local"), use=find_use("digits")).package_path
    assert Detector(package).detect(shot.image) == wanted
    assert len(wanted) == 5


@pytest.mark.parametrize("name", [name for name in DEMOS.names() if name != "yolo"])
def test_what_is_written_of_a_demo_is_read_as_the_same_decoder_and_fit(name: str) -> None:
    for stage in DEMOS.load(name).stages:
        try:
            use = find_use(stage.model, name)
        except Exception as error:  # a network of the user's own
            assert "of your own" in str(error)  # noqa: PT017
            continue
        manifest = parse_manifest(changed("usage", use.usage.model_dump(mode="json")))
        read = look_of(manifest, Path("net.tar.gz"))
        assert (read.stage.decoder, read.stage.fit) == (stage.decoder, stage.fit)
        assert (read.labels, list(read.outputs)) == (use.part.labels, list(use.part.outputs))
        assert stage.log in (read.stage.log, None)


def test_a_file_that_was_quantised_of_a_network_is_used_as_that_is(tmp_path: Path) -> None:
    model = onnx.load(find_source("digits").file)
    onnx.helper.set_model_props(model, {ENTRY: "digits"})  # as `edgedeploy quantize` writes it
    onnx.save(model, tmp_path / "smaller.onnx")
    use = find_use(str(tmp_path / "smaller.onnx"))
    assert (use.demo, use.part.model, use.asked) == ("digits", str(tmp_path / "smaller.onnx"), False)
    assert use.usage == find_use("digits").usage
    onnx.helper.set_model_props(model, {ENTRY: "of another zoo"})
    onnx.save(model, tmp_path / "other.onnx")
    assert find_use(str(tmp_path / "other.onnx")) is None


def test_the_use_is_that_of_a_demo_with_no_other_network() -> None:
    assert (find_use("retinaface").demo, find_use("retinaface").number) == ("retinaface", 1)
    assert (find_use("landmark-106", "facepipe").usage.stage) == 2
    assert find_use("mobilenet_v1").usage.decoder["kind"] == "classification"
    assert find_use("silero-vad") is None


def test_the_use_is_part_of_the_build_key() -> None:
    source, board, use = find_source("digits"), load_board("local"), find_use("digits")
    other = use.usage.model_copy(update={"labels": ["nought"]})
    assert len({build_key(source, board, usage=usage) for usage in (None, use.usage, other)}) == 3


@pytest.mark.compiles
def test_a_network_of_another_shape_than_a_demo_takes_has_no_use(command: Command, tmp_path: Path) -> None:
    output_of(command, "build", "digits", "--batch", "2", "--output", "two")
    assert read_manifest(Path("two/digits.tar.gz")).usage is None
    with pytest.raises(InputError, match="does not say how images become its input"):
        Detector(Path("two/digits.tar.gz"))
    err = refusal(command, 7, "build", "digits", "--batch", "2", "--demo", "digits")
    assert "is not an image as this demo makes it" in err
    path = tiny(tmp_path / "net.onnx")
    assert "the network's input" in refusal(command, 7, "build", path, "--demo", "digits")
    output_of(command, "build", path)
    assert read_manifest(Path("dist/local/net.tar.gz")).usage is None


@pytest.mark.compiles
def test_show_states_the_use_of_a_package(command: Command) -> None:
    output_of(command, "build", "digits")
    show = ("package", "show", "dist/local/digits.tar.gz")
    shown = " ".join(output_of(command, *show).split())
    assert "as of the demo digits" in shown
    assert "images: stretch, GRAY, NCHW, less 0, times 0.00392157 results: classification" in shown
    usage = json.loads(output_of(command, *show, "--json"))["usage"]
    assert usage["decoder"] == {"kind": "classification", "top": 5}


@pytest.mark.compiles
@pytest.mark.cold_cache
def test_classes_do_not_get_others_names(command: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The demo's own network has a thousand, this one eight."""
    output_of(command, "build", tiny(tmp_path / "net.onnx"), "--demo", "classification")
    assert "net.onnx gives 8 classes, and the demo has names of 1000: numbers are shown" in caplog.text
    assert read_manifest(Path("dist/local/net.tar.gz")).usage.labels == []


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("decoder", {"top": 5}, "it has no kind"),
        ("fit", {"kind": [[[[[[[[[1]]]]]]]]]}, "it has no kind"),
        ("decoder", {"kind": "classification", "top": [[[[[[[[[1]]]]]]]]]}, "nested too deeply"),
        ("stage", 0, "above 0"),
        ("surplus", 1, "there is no such field"),
    ],
)
def test_a_use_that_makes_no_sense_is_refused(field: str, value: Any, why: str) -> None:
    usage = find_use("digits").usage.model_dump(mode="json")
    with pytest.raises(ValueError, match=why):
        parse_manifest(changed("usage", {**usage, field: value}))


def test_a_package_of_a_later_decoder_can_be_read_but_not_be_used_here() -> None:
    usage = {**find_use("digits").usage.model_dump(mode="json"), "decoder": {"kind": "of-tomorrow"}}
    found = parse_manifest(changed("usage", usage))
    with pytest.raises(InputError, match="does not know") as raised:
        look_of(found, Path("net.tar.gz"))
    assert "of-tomorrow" in str(raised.value.why)
