"""What errors say, to readers of the command line and to callers of the Python API."""

import ast
import inspect
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Command

import edgedeploy as ed
from edgedeploy.errors import InputError, ToolchainError, ending, last_line
from edgedeploy.keywords import _KEYWORDS, _WORDS, in_python
from edgedeploy.target.board import Board as Profile
from edgedeploy.target.toolchain import run_tool

# Options that library code names and for which the API has nothing: of commands that are no calls.
_COMMANDS_ALONE = {
    "--enable", "--graph", "--image", "--key", "--labels", "--mean", "--model", "--name", "--port", "--preset",
    "--save", "--std", "--system", "--tuner", "--systemd", "--upgrade", "--wav",
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("name one with --board", "name one with board=..."),
        ("say where it is with --host USER@HOST", 'say where it is with host="USER@HOST"'),
        ("--virtual does not go with --host", "virtual=True does not go with host=..."),
        ("give --input-shape x:1,3,8,8, its sizes", 'give shapes={"x": [1, 3, 8, 8]}, its sizes'),
        ("fix it: --set sr=16000", 'fix it: options=edgedeploy.ImportOptions(values={"sr": 16000})'),
        ("fix it: --set sizes=1,2", 'fix it: options=edgedeploy.ImportOptions(values={"sizes": [1,2]})'),
        ("use --toolchain zig, which links", 'use overrides={"toolchain": "zig"}, which links'),
        ("--against needs a network", "against=... needs a network"),
        ("give --against ncnn,mnn", 'give against=["ncnn", "mnn"]'),
        ("allow more with --max-loss 0.02", "allow more with max_loss=0.02"),
        # Command lines, and what the API has no keyword for, stay.
        ("name a demo: `edgedeploy demo --board x` lists them", "name a demo: `edgedeploy demo --board x` lists them"),
        ("write one: edgedeploy bench M --host a > b", "write one: edgedeploy bench M --host a > b"),
        ("give --wav FILE", "give --wav FILE"),
        ("cc --sysroot=/x", "cc --sysroot=/x"),
    ],
)
def test_options_are_keywords_for_a_caller_of_python(said: str, read: str) -> None:
    assert in_python(said) == read


def test_an_errors_text_has_what_why_and_hints_in_pythons_words(command: Command) -> None:
    error = InputError("no board", why="--board is missing", hints=["name one with --board", "edgedeploy boards"])
    assert str(error) == "no board: board=... is missing\n  try: name one with board=...\n  try: edgedeploy boards"
    assert error.cause == last_line(error) == "no board: --board is missing"
    with pytest.raises(InputError) as raised:
        ed.connect("local")
    assert 'host="USER@HOST"' in str(raised.value)
    assert "--" not in str(raised.value)
    assert "try: say where it is with --host USER@HOST" in command("push", "digits", "--board", "local")[2]


def test_what_a_compiler_said_stays_as_it_is() -> None:
    error = ToolchainError("it failed", why="unknown option --device x\nunknown option --output y")
    assert str(error) == "it failed: unknown option --device x\nunknown option --output y"


def test_keywords_are_those_of_the_api() -> None:
    calls = [getattr(ed, name) for name in ("bench", "build", "connect", "open", "predict", "quantize", "tune")]
    calls += [ed.Board.push, ed.Board.activate, ed.ImportOptions]
    there = {name for call in calls for name in inspect.signature(call).parameters}
    for option, (written, _) in _KEYWORDS.items():
        for name in re.findall(r"(\w+)=", written):
            assert name in there, option
        if field := re.search(r'overrides=\{\{"(\w+)"', written):
            assert field[1] in {*Profile.model_fields, "device"}, option  # of the first of `devices`


def test_every_option_that_a_message_names_has_a_keyword_or_belongs_to_a_command_alone() -> None:
    named = set(_options_in_messages())
    assert {"--board", "--host", "--input-shape"} <= named
    assert named - _KEYWORDS.keys() == _COMMANDS_ALONE


def _options_in_messages() -> Iterator[str]:
    for path in (ROOT / "edgedeploy").rglob("*.py"):
        if path.is_relative_to(ROOT / "edgedeploy" / "cli"):
            continue
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Error"):
                for part in ast.walk(call):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield from (found["option"] for found in _WORDS.finditer(part.value) if found["option"])


def test_what_cannot_be_is_refused_before_minutes_of_work(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for work in ("edgedeploy.agent.library.build_product", "edgedeploy.remote.address.up"):
        monkeypatch.setattr(work, lambda *_, **__: pytest.fail("the work was begun"))
    Path("file").touch()
    assert command("library", "--board", "rpi4", "-o", "file/lib")[0] == 10
    assert command("push", "nosuch", "--board", "rpi4", "--virtual")[0] == 4
    assert command("push", "nosuch.tar.gz", "nosuch", "--board", "rpi4", "--virtual")[0] == 8


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "it ended with code 3"),
        (129 + 64, "it ended with code 193"),
        (-signal.SIGFPE, "it was ended by SIGFPE"),
        (128 + signal.SIGBUS, "it was ended by SIGBUS"),
        (-signal.SIGKILL, "it was ended by SIGKILL, as happens when memory runs out"),
        (128 + signal.SIGKILL, "it was ended by SIGKILL, as happens when memory runs out"),
    ],
)
def test_the_end_of_a_process_is_named_by_its_signal(code: int, said: str) -> None:
    assert ending(code) == said


def test_opencv_is_quiet_wherever_it_is_loaded_first() -> None:
    """It reads the environment when it is loaded; what is wrong is told by errors."""
    callers = [path for path in (ROOT / "edgedeploy").rglob("*.py") if "import cv2" in path.read_text(encoding="utf-8")]
    packages = {path.relative_to(ROOT / "edgedeploy").parts[0] for path in callers} - {"api"}
    for package in packages:
        assert "edgedeploy.base.opencv" in (ROOT / "edgedeploy" / package / "__init__.py").read_text(), package


def test_a_command_that_links_hundreds_of_files_is_shown_by_its_ends() -> None:
    objects = [f"/cache/objects/{index:064}.o" for index in range(100)]
    with pytest.raises(ToolchainError) as raised:
        run_tool(["sh", "-c", "echo wrong >&2; exit 3", *objects, "agent"])
    assert raised.value.what.startswith("the toolchain failed with exit code 3: sh -c 'echo wrong")
    assert raised.value.what.endswith(f"{objects[-1]} agent")
    assert len(raised.value.what) < 1000
