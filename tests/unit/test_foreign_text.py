"""What others wrote, in networks, packages and messages, is printed as text by every command."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper, numpy_helper
from rich.table import Table
from rich.text import Text
from support.commands import HOSTILE, SHOWN, assert_is_text, output_of

from edgedeploy.cli.console import ConsoleProgress, foreign, print_error, print_json, stderr, stdout
from edgedeploy.cli.terminal import Terminal
from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.failures import failure

pytestmark = pytest.mark.compiles


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A network each of whose names is hostile."""
    path = tmp_path / "net.onnx"
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), f"w{HOSTILE}")
    nodes = [
        helper.make_node("MatMul", [f"in{HOSTILE}", f"w{HOSTILE}"], [f"mid{HOSTILE}"], f"node{HOSTILE}"),
        helper.make_node("Relu", [f"mid{HOSTILE}"], [f"out{HOSTILE}"], f"relu{HOSTILE}"),
    ]
    ends = [helper.make_tensor_value_info(f"{name}{HOSTILE}", TensorProto.FLOAT, [2, 4]) for name in ("in", "out")]
    graph = helper.make_graph(nodes, f"graph{HOSTILE}", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


def text_of(command: Command, *words: object, codes: tuple[int, ...] = (0,)) -> str:
    """What a command says, which is text; it must end with one of the codes."""
    code, out, err = command(*words)
    assert code in codes, err
    assert_is_text(out, err)
    return out + err


def test_a_networks_names_are_text_when_it_is_built_shown_and_run(command: Command, network: Path) -> None:
    text_of(command, "build", network, "--explain")
    for words in (["package", "show"], ["package", "verify"], ["run", "--print-top", "2"]):
        said = text_of(command, *words, "dist/local/net.tar.gz")
        assert words == ["package", "verify"] or f"in{SHOWN}" in said
    out = output_of(command, "package", "show", "dist/local/net.tar.gz", "--json")
    assert json.loads(out)["inputs"][0]["name"] == f"in{HOSTILE}"
    assert_is_text(out)


@pytest.mark.slow
def test_a_networks_names_are_text_in_the_zoo(command: Command, network: Path, tmp_path: Path) -> None:
    for words in (
        ["models", "import", network, "--name", "mine"],
        ["models", "show", "mine"],
        ["models", "show", "mine", "--graph", tmp_path / "drawing.svg"],
        ["models"],
        ["bench", "mine", "--runs", "1", "--rounds", "1"],
        ["bench", "mine", "--runs", "1", "--rounds", "1", "--markdown"],
        ["tune", "mine", "--tasks", "list"],
    ):
        text_of(command, *words)


def test_a_networks_names_are_text_in_errors(command: Command, network: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", wrong=np.zeros((2, 4), np.float32))
    assert r"in\x1b[2J" in text_of(command, "run", network, "--inputs", tmp_path / "wrong.npz", codes=(7,))
    model = onnx.load(network)
    model.graph.node[0].op_type = f"Op{HOSTILE}"
    onnx.save(model, network)
    text_of(command, "build", network, codes=(5, 12))


@contextmanager
def changed_manifest(package: Path) -> Iterator[dict[str, object]]:
    """Write a package with another manifest."""
    with tarfile.open(package) as archive:
        members = [(info, archive.extractfile(info).read()) for info in archive]
    [manifest] = [json.loads(content) for info, content in members if info.name == "manifest.json"]
    yield manifest
    with tarfile.open(package, "w:gz") as archive:
        for info, old in members:
            content = json.dumps(manifest).encode() if info.name == "manifest.json" else old
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_a_packages_manifest_is_text(command: Command) -> None:
    assert command("build", "digits")[0] == 0
    package = Path("dist/local/digits.tar.gz")
    with changed_manifest(package) as manifest:
        manifest["linker"] = HOSTILE
        manifest["board"] = f"board{HOSTILE}"
        manifest["versions"] = {HOSTILE: HOSTILE}
        manifest["selftest"]["reference"] = f"reference{HOSTILE}"
        manifest["abi"]["cpu"] = HOSTILE
    for words in (["package", "show"], ["package", "verify"], ["run"]):
        code, out, err = command(*words, package)
        assert_is_text(out, err)
        assert SHOWN in out + err or code == 0
    assert json.loads(command("package", "show", package, "--json")[1])["linker"] == HOSTILE
    with changed_manifest(package) as manifest:
        manifest[HOSTILE] = HOSTILE
    text_of(command, "package", "show", package, codes=(8,))


def test_a_file_name_is_text_in_errors(command: Command, tmp_path: Path) -> None:
    for words in (["package", "show"], ["run"], ["build"], ["demo", "digits", "--image"]):
        code, out, err = command(*words, tmp_path / HOSTILE)
        assert code not in (0, 70), err
        assert_is_text(out, err)


def test_a_message_of_several_lines_makes_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(BoardConnectionError("it broke", why="said\n  try: rm -rf ~\nerror: \x1b[2J", hints=["look\nthere"]))
    assert capsys.readouterr().err == (
        "error: it broke: said\n  |   try: rm -rf ~\n  | error: \\x1b[2J\n  try: look\\nthere\n"
    )


def test_each_line_that_an_agent_said_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = failure(15, "the agent on pi ended", "agent: no memory\r\n\nagent: hence\tno \x1b[2Jtensors\n")
    lines = "the agent on pi ended: no memory\n  | hence   no \\x1b[2Jtensors\n"
    print_error(error)
    ConsoleProgress().note(f"waiting: {error}")
    assert capsys.readouterr().err == f"error: {lines}waiting: {lines}"


def test_what_libraries_log_is_text() -> None:
    program = f"""
import logging
from edgedeploy.cli.console import log
log(logging.INFO)
logging.getLogger("library").info("%s\\nsecond", {HOSTILE!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert_is_text(done.stdout, done.stderr, lines_of_text=True)
    assert done.stderr.endswith("\nsecond\n")


def test_an_error_within_edgedeploy_is_told_as_text(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("edgedeploy.virtual.board.running", fail)
    text_of(command, "virtual", "list", codes=(70,))


def test_all_that_a_console_takes_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))
    table.add_row(foreign(HOSTILE, HOSTILE))
    for console in (stdout(), stdout(wrap=True), stderr()):
        console.print(HOSTILE)
        console.print(HOSTILE, HOSTILE, sep="\n", style="bold")
        console.print(table)
    progress = ConsoleProgress()
    progress.note(HOSTILE)
    with progress.stage(HOSTILE), progress.steps(HOSTILE, 2), progress.transfer(HOSTILE, 2):
        pass
    printed = capsys.readouterr()
    assert_is_text(printed.out, printed.err, lines_of_text=True)


def test_bars_on_a_terminal_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, width=200, color_system=None)
    monkeypatch.setattr("edgedeploy.cli.console.stderr", lambda: console)
    progress = ConsoleProgress()
    with progress.stage(HOSTILE), progress.steps(HOSTILE, 2) as step:
        step()
        progress.note(HOSTILE)
    with progress.transfer(HOSTILE, 2) as advance:
        advance(1)
    assert "\x1b[2J" not in stream.getvalue()
    assert "\u202e" not in stream.getvalue()
    assert stream.getvalue().count(SHOWN) >= 4


def test_json_is_exact_and_holds_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    content = {"name": HOSTILE + "\x9b\x7f\u2028\ud800\U000e0001ü 卷"}
    print_json(content)
    out = capsys.readouterr().out
    assert json.loads(out) == content
    assert_is_text(out)
    assert "ü 卷" in out
