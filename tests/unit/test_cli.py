"""The command line as a whole: it answers quickly, completes, takes some options everywhere, knows those of tvmc."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from conftest import ROOT, Command
from support.commands import generous, output_of, printed, refused, refused_alone
from support.networks import tiny

from edgedeploy import __version__, cli
from edgedeploy.base.text import printable
from edgedeploy.cli import _options_of, app
from edgedeploy.cli.console import ConsoleProgress, print_error, shown_progress
from edgedeploy.cli.global_options import GlobalOptions, InvalidColourError, set_global_options, split_global_options
from edgedeploy.cli.tvmc import ANSWERS, COMMANDS, answer_of, translated
from edgedeploy.errors import KernelBuildError

# typer itself brings pydantic where it is installed.
HEAVY = {"tvm", "numpy", "cv2", "onnx", "onnxruntime", "requests", "yaml", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["build", "--help"], ["demo", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = f"""
import sys, edgedeploy.cli
sys.argv[1:] = {arguments!r}
try: edgedeploy.cli.main()
except SystemExit: print('modules:', *sys.modules)"""
    modules = set(printed(sys.executable, "-c", program).rpartition("modules:")[2].split())
    assert "edgedeploy.cli.build" in modules
    assert not modules & HEAVY


def test_no_command_prints_help_that_begins_with_a_first_session(command: Command) -> None:
    code, out, err = command()
    assert (code, err) == (0, "")
    assert out == command("--help")[1]
    assert max(map(len, out.splitlines())) <= 80
    session = out.partition("A first session:\n")[2].partition("\n\n")[0].splitlines()
    assert len(session) == 4
    for line in session:
        program, *words = line.strip().partition("  ")[0].split()
        assert program == "edgedeploy"
        code, out, err = command(*words, "--help")
        assert (code, f"Usage: edgedeploy {words[0]}" in out) == (0, True), err


def test_the_help_lists_every_command_in_a_section_before_the_options(command: Command) -> None:
    out = command("--help")[1].partition("\nNetworks:\n")[2]
    for name in typer.main.get_command(app).commands:
        assert f"\n  {name} " in f"\n{out}"
    headings = [line for line in out.splitlines() if line.endswith(":")]
    assert headings == ["Boards:", "Speed:", "Files:", "About:", "Options:"]
    assert [line for line in out.splitlines() if line.endswith("...")] == []


def test_the_tree_of_commands_is_made_once(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = typer.main.get_command
    monkeypatch.setattr(typer.main, "get_command", lambda app: made.append(app) or make(app))
    cli._tree.cache_clear()
    command("help", "build")
    assert len(made) == 1


def commands_of(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, with their words."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands_of(each, *path, name)


def takes(command: Any, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def test_a_second_host_is_served_or_refused_and_never_taken_silently(command: Command) -> None:
    several = {("push",), ("tune", "models"), ("rpc", "server")}
    commands = {path for path, each in commands_of(typer.main.get_command(app)) if takes(each, "--host")}
    assert several < commands
    assert len(commands) > 10
    for path in commands - several:
        assert "this command takes one, and 2 were given" in refused(command, 2, *path, "--host", "a", "--host", "b")


def test_help_says_in_words_what_numbers_are_taken() -> None:
    records = {}
    for _, each in commands_of(cli._tree()):
        for parameter in each.params:
            names, said = parameter.get_help_record(typer.Context(each)) or ("", "")
            records[names.split()[0]] = said
            assert not re.search("x<=|x>=", said), (each.name, names)
    assert "0 takes any. From 0 to 65535." in records["--port"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld"], "No such command 'biuld'"),
        (["build", "--no-such-option"], "No such option: --no-such-option"),
        (["run"], "Missing argument"),
        (["run", "x", "--repeat", "0"], "Invalid value for '--repeat' / '-r': must be at least 1"),
        (["run", "x", "--repeat", "two"], "Invalid value for '--repeat' / '-r': must be a whole number"),
        (["build", "x", "--epsilon", "inf"], "Invalid value for '--epsilon': must be at most 1"),
        (["build", "x", "--epsilon", "x"], "Invalid value for '--epsilon': must be a number"),
        (["run", "x", "--number", str(10**22)], "Invalid value for '--number': must be at most 2147483647"),
        (["demo", "digits", "--log", "x"], "Invalid value for '--log': 'x' is not one of 'tengine', 'named'"),
    ],
)
def test_wrong_usage_exits_with_two(command: Command, arguments: list[str], said: str) -> None:
    code, _, err = command(*arguments)
    assert (code, "Usage" in err, said in err) == (2, True, True), err
    hint = f"edgedeploy help {arguments[0]}".removesuffix(" biuld")
    for words in (["--json", *arguments], [*arguments, "--json"]):
        code, out, err = command(*words)
        error = json.loads(out)["error"]
        assert (code, error["code"], error["try"], "Usage" in err) == (2, 2, [hint], True), err
        assert said in error["what"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("edgedeploy bui", "build"),
        ("edgedeploy boards show rpi-", "rpi-armhf"),
        ("edgedeploy build retinaf", "retinaface"),
        ("edgedeploy build --board rpi4 --toolchain gnu-a", "gnu-aarch64"),
        ("edgedeploy demo retin", "retinaface"),
    ],
)
def test_tab_completes(words: str, expected: str) -> None:
    environment = {"_EDGEDEPLOY_COMPLETE": "complete_bash", "PATH": os.environ["PATH"]}
    environment |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = "import sys; sys.argv[0] = 'edgedeploy'; from edgedeploy.cli import main; main()"
    assert expected in printed(sys.executable, "-c", program, env=environment, timeout=generous(60)).split()


def test_errors_show_what_drivers_and_boards_say_without_doing_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(KernelBuildError("no kernels\n1: \x1b[2J[red]wrong[/red]\n\t^"))
    assert capsys.readouterr().err == "error: no kernels: 1: \\x1b[2J[red]wrong[/red]\n  |         ^\n"


# Options that every command takes, wherever they stand; help, versions, and errors for scripts.


def of(line: str) -> tuple[GlobalOptions, str]:
    chosen, words = split_global_options(line.split(), typer.main.get_command(app))
    return chosen, " ".join(words)


@pytest.mark.parametrize(
    ("line", "chosen", "left"),
    [
        ("run digits", GlobalOptions(), "run digits"),
        ("-v run digits", GlobalOptions(verbosity=1), "run digits"),
        ("run digits -vv", GlobalOptions(verbosity=2), "run digits"),
        ("run -q digits -o out.npz", GlobalOptions(verbosity=-1), "run digits -o out.npz"),
        ("--no-progress --color never run digits", GlobalOptions(progress=False, colour="never"), "run digits"),
        ("run digits --color=always", GlobalOptions(colour="always"), "run digits"),
        ("--json run digits", GlobalOptions(json=True), "run --json digits"),
        ("--json releases list", GlobalOptions(json=True), "releases list --json"),
        ("tune digits --json", GlobalOptions(json=True), "tune --json digits"),
        ("models --json", GlobalOptions(json=True), "models --json"),
        ("service stop digits --json", GlobalOptions(json=True), "service stop digits"),
        # Not theirs.
        ("run -- -v", GlobalOptions(), "run -- -v"),
        ("build digits --cross-compiler-options -v", GlobalOptions(), "build digits --cross-compiler-options -v"),
        ("tune digits --cross-compiler-options -v", GlobalOptions(), "tune digits --cross-compiler-options -v"),
        ("-v virtual ssh rpi4 ls --json -v", GlobalOptions(verbosity=1), "virtual ssh rpi4 ls --json -v"),
        ("--version", GlobalOptions(), "--version"),
    ],
)
def test_they_are_taken_from_anywhere_and_nothing_else_is(line: str, chosen: GlobalOptions, left: str) -> None:
    assert of(line) == (chosen, left)


def test_help_and_versions_are_options_and_commands(command: Command) -> None:
    assert command("help", "releases", "list")[1] == command("releases", "list", "--help")[1]
    assert command("help")[1] == command("--help")[1]
    assert command("help", "nothing")[0] == 2
    assert command("--version") == (0, f"edgedeploy {__version__}\n", "")
    assert command("version")[1].splitlines()[0] == f"edgedeploy {__version__}"
    assert json.loads(command("version", "--json")[1])["edgedeploy"] == __version__


@pytest.mark.parametrize("line", ["--json run no-such-network", "run no-such-network --json"])
def test_errors_are_json_where_results_are(line: str, command: Command) -> None:
    code, out, err = command(*line.split())
    error = json.loads(out)["error"]
    assert code == error["code"] == 4
    assert error["what"] == "unknown model 'no-such-network'"
    assert error["try"] == ["list them all with `edgedeploy models`"]
    assert "error: unknown model" in err


# What they print is a manual, another program's, or goes on until it is ended.
WITHOUT_JSON = {"help", "virtual ssh", "rpc tracker", "rpc server"}
WITHOUT_JSON |= {"service logs", "service start", "service stop", "service uninstall"}


def test_results_are_told_as_json(command: Command) -> None:
    leaves = [found for found in commands_of(typer.main.get_command(app)) if not hasattr(found[1], "commands")]
    assert {" ".join(path) for path, each in leaves if not takes(each, "--json")} == WITHOUT_JSON
    told = json.loads(command("boards", "new", "mine.yaml", "--from", "rpi4", "--json")[1])
    assert told == {"name": "mine.yaml", "file": "mine.yaml", "from": "rpi4", "used": "mine.yaml"}
    told = json.loads(command("toolchains", "cmake", "local", "-o", "local.cmake", "--json")[1])
    assert told == {"board": "local", "file": "local.cmake", "text": Path("local.cmake").read_text()}


def test_exit_codes_stay_what_they_are_with_json(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.tar.gz").write_bytes(b"nothing")
    for arguments in (["package", "verify", tmp_path / "broken.tar.gz"], ["version"], ["no-such-command"]):
        assert command(*arguments, "--json")[0] == command(*arguments)[0]


def test_faults_of_ours_are_json_too(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.cli.print_result", lambda *_: 1 / 0)
    code, out, _ = command("version", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (70, 70)


def test_quiet_means_results_and_errors_alone(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    for chosen, lines in ((GlobalOptions(verbosity=-1), []), (GlobalOptions(progress=False), ["decided"])):
        set_global_options(chosen)
        progress = shown_progress()
        progress.note("decided")
        with progress.stage("work"), progress.steps("steps", 2) as step, progress.transfer("send", 10) as sent:
            step()
            sent(10)
        assert capsys.readouterr().err.splitlines() == lines
    assert command("-q", "run", "no-such-network")[2].startswith("error: ")


def test_colours_are_as_they_are_asked_for(command: Command) -> None:
    assert "\x1b[" not in command("run", "no-such-network")[2]
    assert "\x1b[1;31merror:" in command("run", "no-such-network", "--color", "always")[2]
    assert "\x1b[" not in command("run", "no-such-network", "--color", "never")[2]
    assert "--color takes auto, always, never, not 'pink'" in refused(command, 2, "run", "digits", "--color", "pink")
    with pytest.raises(InvalidColourError):
        of("run digits --color")


def test_long_work_prints_a_line_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ConsoleProgress(every_s=0.02)

    def lines_until(wanted: str) -> None:
        said = ""
        while wanted not in said:
            said += capsys.readouterr().err

    with progress.stage("link"):
        lines_until("  link: 0 s\n")
    with progress.steps("compile", 3) as step:
        step()
        lines_until("  compile: 1 of 3, about 0 s left, 0 s\n")
    with progress.transfer("send", 200) as advance:
        advance(50)
        lines_until("  send: 25%, 0 s\n")


def test_file_names_are_said_in_a_locale_without_their_letters(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    ask = [sys.executable, "-m", "edgedeploy", "run", "./zahlé".encode()]
    done = subprocess.run(ask, env=environment, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 5
    assert b"there is no file ./zahl\\xe9" in done.stderr
    assert b"udc" not in done.stderr
    assert printable("zahl\udcc3\udca9") == "zahlé"
    assert printable("zahl\udce9") == "zahl\\xe9"
    assert printable("zahl\ud800") == "zahl\\ud800"
    assert printable("\udc9b") == "\\x9b"


@pytest.mark.compiles
def test_a_folder_that_is_made_and_another_suffix_are_said(command: Command) -> None:
    _, _, err = command("build", "digits", "-o", "made")
    assert "creating the folder made for the packages" in err
    assert "creating the folder" not in command("build", "digits", "-o", "made")[2]
    assert "out.txt is a .npz file" in command("run", "digits", "-o", "out.txt")[2]
    assert "is a .npz file" not in command("run", "digits", "-o", "out.npz")[2]


@pytest.mark.compiles
def test_verbose_says_what_is_called(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    command("build", "digits", "--force", "--no-check")
    assert "calling " not in caplog.text
    command("-v", "build", "digits", "--force", "--no-check")
    assert "calling " in caplog.text


# Command lines of tvmc: each of its options is one of ours, or is answered with what to type.

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
    err = refused_alone(command, 2, *shlex.split(typed))
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
