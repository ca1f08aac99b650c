"""Command lines of tvmc: each of its options is one of ours, or is answered with what to type."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from conftest import ROOT, Command
from support.commands import output_of, refused
from support.networks import tiny

from edgedeploy.cli import _options_of, app
from edgedeploy.cli.tvmc import ANSWERS, COMMANDS, answer_of, translated

PAGE = (ROOT / "docs" / "from-tvmc.md").read_text(encoding="utf-8")

# The options of tvmc in TVM 0.12 to 0.19, as its help lists them, but for those of single passes of code generators.
TVMC = {
    "compile": """--cross-compiler --cross-compiler-options --desired-layout --desired-layout-ops --disabled-pass
        --dump-code --dump-offloads --executor --input-shapes --instruments --model-format --module-name --opt-level
        --output-format -f --pass-config --runtime --target --target-llvm-mcpu --target-llvm-mattr
        --target-llvm-mtriple --target-llvm-device --executor-graph-link-params --runtime-cpp-system-lib
        --target-host --tuning-records""",
    "run": """--device --end-to-end --fill-mode --inputs --input-shapes --model-format --npz-keys --number --options
        --outputs --print-time --print-top --profile --project-dir --repeat --rpc-key --rpc-tracker""",
    "tune": """--build-timeout --cache-line-bytes --desired-layout --desired-layout-ops --early-stopping
        --enable-autoscheduler --hostname --include-simple-tasks --input-shapes --log-estimated-latency
        --max-local-memory-per-block --max-shared-memory-per-block --max-threads-per-block --max-vthread-extent
        --min-repeat-ms --model-format --num-cores --number --output --parallel --port --prior-records --repeat
        --rpc-key --rpc-tracker --target --target-host --tasks --timeout --trials --tuner --tuning-records
        --vector-unit-bytes --warp-size""",
}
EACH = [(name, option) for name, options in TVMC.items() for option in options.split()]


@pytest.mark.parametrize(("name", "option"), EACH)
def test_every_option_of_tvmc_is_ours_or_is_answered_and_stands_on_the_page(name: str, option: str) -> None:
    command = COMMANDS[name]
    ours = option in _options_of(command)
    assert ours is not (answer_of(command, option) is not None)
    section = PAGE.split(f"## tvmc {name}\n")[1].split("\n## ")[0]
    group = re.sub(r"(--target|--executor|--runtime)-.*", r"\1-...", option)
    assert f"`{option}`" in section or f"`{group}`" in section


def test_every_answer_is_to_an_option_of_tvmc() -> None:
    listed = {(COMMANDS[name], option) for name, option in EACH}
    assert {(command, option) for command, answers in ANSWERS.items() for option in answers} <= listed


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("compile net.onnx", "build net.onnx"),
        ("compile net.onnx --target llvm", "build net.onnx"),
        (
            "compile net.onnx --target 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon,+crc -device=a'",
            "build net.onnx --board rpi4 --mattr=+neon,+crc",
        ),
        ("compile net.onnx --target 'llvm -mtriple=aarch64-linux-gnu'", "build net.onnx --board rpi3"),
        (
            "compile net.onnx --target 'llvm -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a53 -mattr=+neon'",
            "build net.onnx --board rpi-armhf --mcpu=cortex-a53 --mattr=+neon",
        ),
        ("build net.onnx --target-llvm-mcpu cortex-a72", "build net.onnx --board rpi4"),
        ("build net.onnx --target-llvm-mcpu cortex-a55 -b rpi5", "build net.onnx --mcpu=cortex-a55 -b rpi5"),
        (
            "build --input-shapes 'data:[1,3,224,224] mask:[1, 8]' net.onnx",
            "build --input-shape data:1,3,224,224 --input-shape mask:1,8 net.onnx",
        ),
        ("build net.onnx --dump-code relay,tir,ll,asm", "build net.onnx --dump passes,ir,ll,asm"),
        ("build net.onnx --opt-level=3 --pass-config relay.x=1 -b rpi4", "build net.onnx -b rpi4"),
        ("build net.onnx -o net.tar --force", "build net.onnx --force"),
        ("build net.onnx --output=net.tar", "build net.onnx"),
        ("run net.tar.gz --end-to-end --print-time", "run net.tar.gz --print-time"),
        ("run net.tar.gz --rpc-tracker 10.0.0.1:9090 --rpc-key pi", "run net.tar.gz"),
        ("tune net.onnx --tuner xgb-rank --trials 5", "tune net.onnx --tuner xgb --trials 5"),
        ("tune net.onnx --tuner=xgb_knob", "tune net.onnx --tuner xgb"),
        ("tune net.onnx --prior-records old --warp-size 32", "tune net.onnx --tuning-records old"),
    ],
)
def test_a_command_line_of_tvmc_is_answered_with_ours(command: Command, typed: str, wanted: str) -> None:
    code, out, err = command(*shlex.split(typed))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == f"  try: edgedeploy {wanted}"


@pytest.mark.compiles
@pytest.mark.parametrize(
    "typed",
    [
        "compile net.onnx --target 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72'",
        "compile net.onnx --target 'llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon' --input-shapes data:[1,3,8,8]",
        "compile net.onnx --target 'llvm -mcpu=cortex-a72' --opt-level 3",
        "compile net.onnx --target llvm --dump-code tir,asm --output net.tar",
    ],
)
def test_the_answer_works(command: Command, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny(tmp_path / "net.onnx")
    _, _, err = command(*shlex.split(typed))
    output_of(command, *shlex.split(err.splitlines()[-1].removeprefix("  try: edgedeploy ")), "--no-check")


@pytest.mark.parametrize(
    "typed",
    ["build net.onnx -o dist", "run digits --print-time", "tune net.onnx --tuner xgb", "models list", "", "doctor"],
)
def test_our_own_command_lines_are_left_alone(typed: str) -> None:
    assert translated(shlex.split(typed), _options_of) is None


def test_the_answer_is_json_where_json_is_asked_for(command: Command) -> None:
    code, out, _ = command("build", "digits", "--opt-level", 3, "--json")
    said = json.loads(out)["error"]
    assert (code, said["code"], said["try"]) == (2, 2, ["edgedeploy build digits"])


def test_commands_on_the_page_are_ours() -> None:
    known = typer.main.get_command(app).commands
    assert set(re.findall(r"`edgedeploy (\w+)", PAGE)) <= set(known)


@pytest.mark.compiles
def test_an_image_goes_through_a_network_to_its_label(command: Command, tmp_path: Path) -> None:
    digit = ROOT / "models" / "digit.png"
    given, found = tmp_path / "in.npz", tmp_path / "out.npz"
    (tmp_path / "digits.txt").write_text("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine")
    output_of(command, "image", "to-npz", digit, "--model", "digits", "-o", given)
    output_of(command, "run", "digits", "--inputs", given, "--outputs", found)
    with np.load(found) as named:
        [(name, logits)] = named.items()
    output_of(command, "run", "digits", "--inputs", given, "--outputs", found, "--npz-keys", "tvmc")
    with np.load(found) as numbered:
        assert (name, [*numbered]) == ("prob", ["output_0"])
        np.testing.assert_array_equal(numbered["output_0"], logits)
    shown = ["labels", found, "--labels", tmp_path / "digits.txt", "--no-softmax", "--top", 2]
    first, second = output_of(command, *shown).splitlines()
    assert first.split()[1:] == ["3", "three"]
    assert float(first.split()[0]) == pytest.approx(0.998865, abs=1e-4)
    said = json.loads(output_of(command, *shown, "--json"))
    assert [each["label"] for each in said] == ["three", second.split()[-1]]


def test_scores_are_made_probabilities(command: Command, tmp_path: Path) -> None:
    np.savez(tmp_path / "out.npz", logits=np.array([[1.0, 3.0, 2.0]], np.float32), other=np.zeros((2, 2)))
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    said = json.loads(output_of(command, "labels", tmp_path / "out.npz", "--labels", tmp_path / "names.txt", "--json"))
    wanted = np.exp([3.0, 2.0, 1.0]) / np.exp([1.0, 2.0, 3.0]).sum()
    assert [each["value"] for each in said] == pytest.approx(wanted.tolist())
    assert [each["label"] for each in said] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--output", "no"], 7, "it has logits, other"),
        (["--output", "other"], 7, "not one score for each class"),
        (["--labels", "no-such-set"], 4, "no-such-set"),
        (["--top", "0"], 2, "--top"),
    ],
)
def test_outputs_without_classes_are_refused(
    command: Command, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    np.savez(tmp_path / "out.npz", logits=np.ones((1, 3)), other=np.zeros((2, 2)))
    assert message in refused(command, code, "labels", tmp_path / "out.npz", *options)


def test_an_image_is_written_as_the_zoo_says(command: Command, tmp_path: Path) -> None:
    digit = ROOT / "models" / "digit.png"
    options = ["--model", "resnet50", "--name", "input", "--fit", "cover", "-o", tmp_path / "in.npz"]
    assert "input: float32[1, 3, 224, 224]" in output_of(command, "image", "to-npz", digit, *options)
    with np.load(tmp_path / "in.npz") as content:
        [name] = content.files
        assert (name, content[name].shape, content[name].dtype) == ("input", (1, 3, 224, 224), np.float32)
        assert -2.2 < content[name].min() < content[name].max() < 2.7
    err = refused(command, 7, "image", "to-npz", digit, "--model", "silero-vad", "-o", tmp_path / "in.npz")
    assert "takes no images" in err
