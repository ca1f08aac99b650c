"""`edgedeploy quantize`, and what becomes of the networks that it writes."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from conftest import Command
from support import packages
from support.commands import output_of, put, refusal
from support.darknet_interpreter import Recorder, interpret
from support.networks import Graph, tiny

from edgedeploy.demo.spec import DEMOS
from edgedeploy.demo.usage import Part
from edgedeploy.errors import InaccurateReleaseError
from edgedeploy.model.heads import Head
from edgedeploy.model.quantised import KEY, Accuracy, Agreement, Half, Quantisation, recorded
from edgedeploy.package.archive import read_manifest, write_package
from edgedeploy.package.manifest import Manifest, parse_manifest
from edgedeploy.quantisation.making import find_task, quantised_source
from edgedeploy.release.gate import AccuracyRule
from edgedeploy.release.push import push
from edgedeploy.target.board import BOARDS, load_board
from edgedeploy.zoo.entry import MODELS, known_file
from edgedeploy.zoo.source import Source


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for index in range(12):
        cv2.imwrite(str(tmp_path / "photos" / f"{index}.png"), random.integers(0, 256, (20, 20, 3), np.uint8))
    return tmp_path / "photos"


def metadata_of(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def test_the_bundled_network_is_as_accurate_in_bytes(command: Command, digits: Path) -> None:
    folders = ["--calibrate", digits / "seen", "--evaluate", digits / "new"]
    said = json.loads(output_of(command, "quantize", "digits", *folders, "--json"))
    accuracy = said["quantisation"]["accuracy"]
    # What models/digits.yaml states of the float network, to a digit that falls to the other side.
    assert accuracy["before"] == pytest.approx(0.9887, abs=1.5 / 355)
    assert accuracy["after"] >= accuracy["before"] - 0.01
    assert (accuracy["of"], accuracy["samples"]) == ("top-1", 355)
    assert said["accuracy"]["after"]["top-5"] >= accuracy["after"]
    assert said["quantisation"]["agreement"]["of"] == "top-1"
    assert said["quantisation"]["agreement"]["value"] >= 0.98
    assert said["quantisation"]["samples"] == 60
    assert said["signal_to_noise_db"]["prob"] > 20
    ratios = [each["signal_to_noise_db"] for each in said["worst_layers"]]
    assert ratios == sorted(ratios)
    written = Path("digits-int8.onnx")
    assert said["output"] == str(written)
    assert said["bytes"] == written.stat().st_size < 0.45 * said["bytes_before"]
    onnx.checker.check_model(onnx.load(written), full_check=True)
    assert json.loads(metadata_of(written)[KEY])["accuracy"] == accuracy
    again = json.loads(output_of(command, "quantize", "digits", "--calibrate", digits / "seen", "--json"))
    assert again["quantisation"]["agreement"] == said["quantisation"]["agreement"]


def test_people_are_told_the_same(command: Command, digits: Path) -> None:
    output = output_of(command, "quantize", "digits", "--calibrate", digits / "seen", "-o", "small.onnx")
    for part in ("worst layers", "signal to noise, dB", "conv1", "minmax over 60 samples", "small.onnx", "top-1"):
        assert part in output
    assert Path("small.onnx").is_file()


def test_few_images_are_warned_of(command: Command, photos: Path, tmp_path: Path) -> None:
    for path in sorted(photos.iterdir())[9:]:
        path.unlink()
    code, _, said = command("quantize", "digits", "--calibrate", photos)
    assert (code, "9 samples are few" in said) == (0, True), said


def test_a_file_is_fed_as_a_demos_network(command: Command, photos: Path, tmp_path: Path) -> None:
    network = tiny(tmp_path / "mine.onnx")
    output = output_of(command, "quantize", network, "--calibrate", photos, "--demo", "classification", "--json")
    assert json.loads(output)["quantisation"]["agreement"]["of"] == "top-1"
    assert metadata_of(Path("mine-int8.onnx"))["edgedeploy.entry"] == "squeezenet_v1.1-onnx"


def test_a_quantised_network_says_itself_whose_input_it_has(command: Command, digits: Path) -> None:
    output_of(command, "quantize", "digits", "--calibrate", digits / "seen")
    part = Part.of(DEMOS.load("classification"), "digits-int8.onnx")
    assert part.entry.input.colour == "GRAY"
    assert part.labels == [str(digit) for digit in range(10)]


@pytest.mark.parametrize("entry", ["openwakeword-alexa", "../../etc/passwd", "no such entry"])
def test_a_file_that_claims_to_be_fed_with_sounds_is_fed_as_the_demos_network(tmp_path: Path, entry: str) -> None:
    model = onnx.load(tiny(tmp_path / "net.onnx"))
    model.metadata_props.add(key="edgedeploy.entry", value=entry)
    onnx.save(model, tmp_path / "net.onnx")
    stage = DEMOS.load("classification").stages[0]
    assert Part.of(stage, str(tmp_path / "net.onnx")).entry_name == stage.model


def test_a_copied_zoo_file_is_known_beside_broken_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "copied.onnx"
    shutil.copy(MODELS.find("digits").parent / "digits.onnx", file)
    put(Path("models/a-broken-one.yaml"), "task: 5\n")
    assert known_file(file, MODELS.load("digits").task) == "digits"
    assert known_file(file, "detection") is None


WRONG: list[tuple[list[str], int, str]] = [
    (["--calibrate", "none"], 7, "there is no folder"),
    (["--calibrate", "empty"], 7, "there is no image"),
    (["--calibrate", "words"], 7, "there is no image"),
    (["--calibrate", "photos", "-o", "none/net.onnx"], 10, "not a folder"),
    (["--calibrate", "photos", "-o", "photos"], 10, "folder"),
    (["--calibrate", "photos", "-o", "/proc/net.onnx"], 10, "cannot write"),
    (["--calibrate", "photos", "--demo", "clasification"], 4, "classification"),
    (["--calibrate", "photos", "--demo", "wake-word"], 4, "unknown demo"),
    (["--calibrate", "photos", "--demo", "yunet"], 7, "has no output"),
    (["--calibrate", "photos", "--evaluate", "none"], 7, "there is no folder"),
    (["--calibrate", "photos", "--evaluate", "photos"], 7, "no label"),
    (["--calibrate", "photos", "--evaluate", "words"], 7, "there is no image"),
    (["--calibrate", "photos", "--method", "mean"], 2, "minmax"),
    (["--calibrate", "photos", "--method", ""], 2, "minmax"),
    (["--calibrate", "photos", "--method", "MINMAX "], 2, "minmax"),
    (["--calibrate", "photos", "--images", "0"], 2, "--images"),
    (["--calibrate", "photos", "--images", "-4"], 2, "--images"),
    (["--calibrate", "photos", "--images", "many"], 2, "whole number"),
    (["--calibrate", "photos", "--keep", "conv9"], 4, "conv1"),
    (["--calibrate", "photos", "--keep", ""], 4, "unknown layer"),
    (["--calibrate", "photos", "--keep", "conv1", "--keep", "x*"], 4, "unknown layer"),
    (["--calibrate", "photos", "--auto", "--max-loss", "1.5"], 2, "--max-loss"),
    (["--calibrate", "photos", "--auto", "--max-loss", "-1"], 2, "--max-loss"),
    (["--calibrate", "photos", "--input-shape", "data"], 7, "not a shape"),
    (["--calibrate", "photos", "--input-shape", "picture:1,1,16,16"], 7, "no input"),
    (["--calibrate", "photos", "--input-shape", "data:1,3,16,16"], 7, ""),
    (["--calibrate", "photos", "--epsilon", "2"], 2, "--epsilon"),
    ([], 2, "--calibrate"),
]


@pytest.mark.parametrize(("options", "code", "part"), WRONG, ids=[" ".join(each[0]) or "none" for each in WRONG])
def test_a_wrong_call_writes_nothing(command: Command, photos: Path, options: list[str], code: int, part: str) -> None:
    here = Path.cwd()
    photos.rename(here / "photos")
    (here / "empty").mkdir()
    put(here / "words" / "a.txt", "words")
    ended, output, said = command("quantize", "digits", *options)
    assert ended == code, said
    assert part in said
    assert not output
    assert not list(here.rglob("*.onnx"))


@pytest.mark.parametrize(
    ("network", "code", "parts"),
    [
        ("digitz", 4, ["digits"]),
        ("none.onnx", 5, ["there is no file"]),
        ("nanodet-m", 5, ["no weights"]),
        ("words.onnx", 5, ["not a network"]),
        ("net.tflite", 12, ["TensorFlow", "converter"]),
    ],
)
def test_unsuitable_networks_are_named(
    command: Command, photos: Path, network: str, code: int, parts: list[str]
) -> None:
    Path("words.onnx").write_text("words, and nothing but words")
    Path("net.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    said = refusal(command, code, "quantize", network, "--calibrate", photos, "--demo", "classification")
    assert all(part in said for part in parts)


def test_an_interrupted_run_leaves_no_file(command: Command, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Path, content: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(content[: len(content) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    assert command("quantize", "digits", "--calibrate", photos)[0] == 130
    assert list(Path.cwd().iterdir()) == []


def test_the_float_network_is_not_replaced(command: Command, photos: Path) -> None:
    network = tiny(Path("net.onnx"))
    before = network.read_bytes()
    assert "is the float network itself" in refusal(
        command, 7, "quantize", network, "--calibrate", photos, "--demo", "classification", "-o", "./net.onnx"
    )
    assert network.read_bytes() == before


def test_heads_of_a_darknet_network_stand_in_the_file(command: Command, photos: Path, tmp_path: Path) -> None:
    config = """[net] width=32 height=32 channels=3
[convolutional] filters=8 size=3 stride=4 pad=1 activation=leaky
[convolutional] filters=14 size=1 activation=linear
[yolo] mask=0,1 anchors=4,5,6,7 classes=2 num=2
""".replace(" ", "\n")
    (tmp_path / "net.cfg").write_text(config)
    recorder = Recorder()
    interpret(config, np.zeros((3, 32, 32), np.float32), recorder.take)
    recorder.save(tmp_path / "net.weights")
    output_of(command, "quantize", tmp_path / "net.cfg", "--calibrate", photos, "--demo", "yolov3-tiny")
    converted = Source.of(Path("net-int8.onnx"), {}).read()
    [head] = converted.heads
    assert head == Head(output=converted.outputs[0].name, anchors=[(4, 5), (6, 7)], classes=2)
    assert converted.quantised


@pytest.mark.compiles
@pytest.mark.cold_cache
def test_a_build_quantises_on_the_way_and_keeps_what_it_made(command: Command, digits: Path) -> None:
    code, output, said = command("build", "digits", "--quantize", digits / "seen")
    assert code == 0, said
    assert "quantised: minmax over 60 samples" in output
    assert "quantising digits (cached for later runs)" in said
    package = Path("dist/local/digits-int8.tar.gz")
    first = read_manifest(package)
    assert first.model == "digits-int8"
    assert first.quantisation.agreement.value >= 0.98
    assert not first.metadata
    assert "agreement with the float network" in output_of(command, "package", "show", package)
    [again] = json.loads(output_of(command, "build", "digits", "--quantize", digits / "seen", "--json"))
    assert again["quantisation"]["agreement"] == first.quantisation.agreement.model_dump()
    assert read_manifest(package).build_key == first.build_key
    # A float network, for comparison.
    output_of(command, "build", "digits")
    assert read_manifest(Path("dist/local/digits.tar.gz")).quantisation is None


def test_other_images_make_another_network(command: Command, digits: Path, photos: Path) -> None:
    sources = [quantised_source(find_task("digits", folder)) for folder in (digits / "seen", photos, digits / "seen")]
    assert [source.name for source in sources] == ["digits-int8"] * 3
    assert sources[0].files == sources[2].files
    assert sources[0].sha256 != sources[1].sha256


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["digits", "mnist", "--quantize", "photos"], "needs one model"),
        (["digits", "--quantize", "photos", "--batch", "1,2"], "networks with one shape"),
        (["yolov3", "--quantize", "photos", "--weights", "random"], "networks with one shape"),
        (["digits", "mnist", "--demo", "digits"], "one model"),
        (["digits", "--quantize", "none"], "there is no folder"),
    ],
)
def test_builds_say_what_does_not_go_with_quantising(command: Command, options: list[str], part: str) -> None:
    assert part in refusal(command, 7, "build", *options)


ACCURATE = Quantisation(
    method="minmax",
    samples=100,
    agreement=Agreement(of="top-1", value=0.9, samples=100),
    accuracy=Accuracy(of="top-1", before=0.75, after=0.74, samples=1000),
)
AGREEING = ACCURATE.model_copy(update={"accuracy": None})
FOREIGN = Quantisation()
HALF = Half(layers=3, single=[], judged_by="pictures", expected=0.0, errors={}, tested=0.0, accuracy=ACCURATE.accuracy)
UNEVALUATED = HALF.model_copy(update={"accuracy": None})


def manifest(known: Quantisation | Half | None) -> Manifest:
    return packages.manifest().model_copy(update={"half" if isinstance(known, Half) else "quantisation": known})


TOO_LOW, FLOAT = "net is not accurate enough", "it is a float network"


@pytest.mark.parametrize(
    ("known", "rule", "said"),
    [
        (ACCURATE, AccuracyRule(), None),
        (FOREIGN, AccuracyRule(), None),
        (None, AccuracyRule(), None),
        (ACCURATE, AccuracyRule(minimum=0.74), None),
        (ACCURATE, AccuracyRule(minimum=0.745), TOO_LOW),
        (ACCURATE, AccuracyRule(minimum=0.9), r"accuracy is 74\.00%, and 90\.00% is asked for"),
        (AGREEING, AccuracyRule(minimum=0.9), None),
        (AGREEING, AccuracyRule(minimum=0.91), TOO_LOW),
        (FOREIGN, AccuracyRule(minimum=0.0), TOO_LOW),
        (None, AccuracyRule(minimum=0.0), FLOAT),
        (ACCURATE, AccuracyRule(max_loss=0.01), None),
        (ACCURATE, AccuracyRule(max_loss=0.009), TOO_LOW),
        (ACCURATE, AccuracyRule(max_loss=0.005), r"fell by 1\.00%, and 0\.50% is allowed"),
        (AGREEING, AccuracyRule(max_loss=0.1), None),
        (AGREEING, AccuracyRule(max_loss=0.09), TOO_LOW),
        (AGREEING, AccuracyRule(max_loss=0.05), r"agreement with the float network is 90\.00%: it lost 10\.00%"),
        (FOREIGN, AccuracyRule(max_loss=1.0), TOO_LOW),
        (None, AccuracyRule(max_loss=0.0), None),
        (HALF, AccuracyRule(minimum=0.74, max_loss=0.01), None),
        (HALF, AccuracyRule(minimum=0.745), TOO_LOW),
        (HALF, AccuracyRule(max_loss=0.009), TOO_LOW),
        (UNEVALUATED, AccuracyRule(minimum=0.0), FLOAT),
        (UNEVALUATED, AccuracyRule(max_loss=0.0), None),
    ],
)
def test_releases_pass_whose_record_is_good_enough(
    known: Quantisation | Half | None, rule: AccuracyRule, said: str | None
) -> None:
    if said is None:
        rule.check(manifest(known))
        return
    with pytest.raises(InaccurateReleaseError, match=said) as raised:
        rule.check(manifest(known))
    assert raised.value.exit_code == 25
    assert "nothing was sent" in str(raised.value)


def test_a_refused_release_sends_nothing(tmp_path: Path) -> None:
    write_package(tmp_path / "net.tar.gz", manifest(AGREEING), packages.CONTENTS)
    release: Any = SimpleNamespace(manifest=read_manifest(tmp_path / "net.tar.gz"), model="net")
    connection: Any = SimpleNamespace(sent=0)  # of which nothing else is asked
    for dry_run in (False, True):
        with pytest.raises(InaccurateReleaseError):
            push(connection, release, dry_run=dry_run, accuracy=AccuracyRule(max_loss=0.05))


def test_what_a_growing_accuracy_lost_is_nothing() -> None:
    better = ACCURATE.model_copy(update={"accuracy": Accuracy(of="top-1", before=0.7, after=0.8, samples=10)})
    assert better.loss == 0


@pytest.mark.parametrize("count", [10, 25, 100])
def test_a_loss_of_exactly_what_is_allowed_passes(count: int) -> None:
    for lost in range(1, count):
        agreement = Agreement(of="top-1", value=(count - lost) / count, samples=count)
        accuracy = Accuracy(of="top-1", before=1.0, after=(count - lost) / count, samples=count)
        for fields in ({"agreement": agreement}, {"accuracy": accuracy}):
            known = Quantisation(method="minmax", samples=count, **fields)  # type: ignore[arg-type]
            allowed = round(lost / count, 9)
            AccuracyRule(max_loss=allowed).check(manifest(known))
            with pytest.raises(InaccurateReleaseError):
                AccuracyRule(max_loss=allowed - 1e-6).check(manifest(known))


def test_the_record_of_a_file_is_read_and_one_that_is_not_sound_is_none() -> None:
    assert recorded({KEY: ACCURATE.model_dump_json()}, quantised=True) == ACCURATE
    assert recorded({}, quantised=False) is None
    unsound = ["", "{}x", '{"method": "magic"}', '{"samples": -1}', '{"agreement": {"of": "top-1", "value": 2}}']
    for text in (*unsound, '{"samples": 1%s}' % ("0" * 400)):
        assert recorded({KEY: text}, quantised=True) == FOREIGN
    assert recorded({}, quantised=True) == FOREIGN
    assert FOREIGN.lines() == ["by another program; its accuracy is not recorded"]


def test_what_releases_are_refused_by_is_shown_whoever_recorded_it() -> None:
    other = AGREEING.model_copy(update={"method": None})
    assert other.lines() == ["by another program", "agreement with the float network: 90.00% (top-1, 100 samples)"]


def test_manifests_with_a_record_are_read_back_and_unsound_ones_refused() -> None:
    assert parse_manifest(json.dumps(manifest(ACCURATE).written()).encode()).quantisation == ACCURATE
    for value in ({"method": "magic"}, {"accuracy": {"of": "top-1", "before": 2}}, 5, {"more": 1}):
        with pytest.raises(ValueError, match="quantisation"):
            parse_manifest(json.dumps({**manifest(ACCURATE).written(), "quantisation": value}).encode())


def test_a_profile_may_say_how_much_may_be_lost(command: Command) -> None:
    Path("boards").mkdir()
    path, text = Path("boards/strict.yaml"), BOARDS.find("rpi4").read_text(encoding="utf-8")
    path.write_text(f"{text}max_accuracy_loss: 0.02\n")
    assert load_board("strict").max_accuracy_loss == 0.02
    for wrong in ("-0.1", "2", "much"):
        path.write_text(f"{text}max_accuracy_loss: {wrong}\n")
        assert "max_accuracy_loss" in refusal(command, 3, "boards", "show", "strict")


def test_push_takes_a_share(command: Command) -> None:
    for wrong in ("2", "-1", "good"):
        assert "--min-accuracy" in refusal(command, 2, "push", "digits", "--min-accuracy", wrong)


def test_networks_that_take_no_images_are_calibrated_with_arrays(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    product = graph.node("MatMul", graph.input("frames", [1, 40]), graph.normal(40, 8))
    network = graph.save(tmp_path / "sounds.onnx", graph.node("Tanh", product))
    (tmp_path / "inputs").mkdir()
    for index in range(10):
        values = np.random.default_rng(index).normal(0, 1, (1, 40)).astype(np.float32)
        np.savez(tmp_path / "inputs" / f"{index}.npz", frames=values)
    output = output_of(command, "quantize", network, "--calibrate", tmp_path / "inputs", "--json")
    agreement = json.loads(output)["quantisation"]["agreement"]
    assert (agreement["of"], agreement["samples"]) == ("outputs", 10)
    assert agreement["value"] > 0.999
    assert "--evaluate needs" in refusal(
        command, 7, "quantize", network, "--calibrate", tmp_path / "inputs", "--evaluate", tmp_path
    )
