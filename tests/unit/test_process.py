"""The command line as a process: it ends with a documented exit code, and tells nobody that it is used."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.caches import share_caches
from support.commands import generous, printed, started

import edgedeploy
from edgedeploy.errors import CompileError, MemoryExhaustedError, OutputError, ReaderGoneError

EDGEDEPLOY = [sys.executable, "-m", "edgedeploy"]


def slow(*values: object) -> list[object]:
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]


COMMANDS = ["--help", "models", *slow("boards --json", "build digits", "run digits", "demo digits", "doctor")]


def ended(command: str, folder: Path, redirection: str) -> tuple[int, str]:
    """The exit code of a command whose output a shell redirects, and what it says on standard error."""
    program = ["bash", "-c", f'"$@" {redirection}', "bash", *EDGEDEPLOY, *command.split()]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run(program, cwd=folder, **streams, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


# Standard streams


@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_or_closed_output_has_its_own_error(command: str, redirection: str, why: str, tmp_path: Path) -> None:
    code, said = ended(command, tmp_path, redirection)
    assert (code, f"cannot write standard output: {why}" in said) == (OutputError.exit_code, True), said


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_is_told_that_the_reader_of_standard_output_went_away(command: str, tmp_path: Path) -> None:
    code, said = ended(command, tmp_path, '| true; exit "${PIPESTATUS[0]}"')
    assert code == ReaderGoneError.exit_code
    assert "error" not in said


@pytest.mark.parametrize("redirection", ["2>/dev/full", *slow("2>&-", "<&-")])
@pytest.mark.parametrize("command", COMMANDS)
def test_messages_that_nobody_can_read_change_nothing(command: str, redirection: str, tmp_path: Path) -> None:
    assert ended(command, tmp_path, redirection)[0] == 0


def test_files_never_get_the_descriptor_of_a_closed_stream_nor_those_of_programs_that_are_started() -> None:
    opens = "import os; assert os.open('/dev/null', os.O_RDONLY) > 2"
    program = (
        f"from edgedeploy.base.streams import open_standard_streams; open_standard_streams(); {opens};"
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {opens!r}]))"
    )
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(["bash", "-c", f'"$@" {closed}', "bash", sys.executable, "-c", program], check=False)
        assert done.returncode == 0, closed


# Memory and room


@pytest.mark.parametrize("mebibytes", [150, *slow(100, 200, 300, 400, 500, 700, 1000)])
@pytest.mark.parametrize("command", ["build digits", "demo digits"])
def test_too_little_address_space_is_reported_before_a_crash(command: str, mebibytes: int, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    done = subprocess.run(
        [*EDGEDEPLOY, *command.split()], cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert done.returncode == MemoryExhaustedError.exit_code, done.stderr
    assert f"address space is {mebibytes} MiB" in done.stderr
    assert not list(tmp_path.iterdir())


def namespace(*options: str) -> list[str]:
    """The beginning of a command that may mount what nobody else sees; skip where there can be no such mounts."""
    words = ["unshare", "--mount", *options]
    refused = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if refused.returncode:
        pytest.skip(f"this needs namespaces: {refused.stderr.strip()}")
    return words


def mounted(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*namespace(), "bash", "-c", script, "bash", *EDGEDEPLOY]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_home_folder_that_may_only_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = mounted('mount -t tmpfs -o ro tmpfs home; HOME=$PWD/home "$@" run digits', tmp_path)
    assert done.returncode == OutputError.exit_code
    assert f"cannot write {tmp_path}/home/.cache" in done.stderr
    assert "Read-only file system" in done.stderr


FULL = "mkdir full; mount -t tmpfs -o size=64k tmpfs full; head -c 1M /dev/zero 2>/dev/null >full/zeros; "


@pytest.mark.slow
def test_a_full_folder_for_temporary_files_is_said(tmp_path: Path) -> None:
    done = mounted(FULL + 'TMPDIR=$PWD/full "$@" build digits', tmp_path)
    # Python takes another folder for its own files; a compiler may not.
    assert done.returncode in (0, OutputError.exit_code), done.stderr
    folders = ["/tmp", "/var/tmp", "/usr/tmp"]
    if any(Path(EDGEDEPLOY[0]).is_relative_to(each) for each in folders):
        pytest.skip("Python itself lies in a folder for temporary files")
    everywhere = (
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin; "
        f"for each in {' '.join(folders)}; do [ ! -d $each ] || mount --bind full $each; done; cd full; "
    )
    (tmp_path / "full").rmdir()
    done = mounted(FULL + everywhere + 'HOME=/ "$@" build digits', tmp_path)
    assert done.returncode == OutputError.exit_code, done.stderr
    assert "no usable folder for temporary files" in done.stderr
    assert "TMPDIR" in done.stderr


@pytest.mark.parametrize("size", ["24k", "40k", "1m"])
@pytest.mark.slow
def test_a_small_folder_for_temporary_files_is_said_and_left_empty(tmp_path: Path, size: str) -> None:
    script = f'mkdir small; mount -t tmpfs -o size={size} tmpfs small; TMPDIR=$PWD/small "$@" build digits --force; '
    done = mounted(script + "code=$?; ls small; exit $code", tmp_path)
    assert done.returncode == OutputError.exit_code, done.stderr
    assert "TMPDIR" in done.stderr
    assert "LLVM ERROR" not in done.stderr
    assert not re.search("^(edgedeploy-|tmp)", done.stdout, re.MULTILINE)


# The end of a process that compiles


def patched(program: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    begin = (
        "import runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which background jobs are started without
        f"sys.argv = ['edgedeploy', 'build', 'digits', '--force', *{options}]\n"
    )
    run = "\nrunpy.run_module('edgedeploy', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", begin + program + run]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert not list(folder.rglob("*"))
    return done


@pytest.mark.parametrize(
    ("end", "code", "reason"),
    [
        ("ctypes.string_at(0)", CompileError.exit_code, "it was ended by SIGSEGV, in pass remove-channels"),
        *slow(
            ("os.abort()", CompileError.exit_code, "it was ended by SIGABRT"),
            ("os._exit(1)", CompileError.exit_code, "it ended with code 1"),
            ("os.kill(os.getpid(), 9)", MemoryExhaustedError.exit_code, "it was ended by SIGKILL, as happens when"),
        ),
    ],
)
def test_a_compiler_that_crashes_is_named_with_what_it_did(end: str, code: int, reason: str, tmp_path: Path) -> None:
    program = f"""
import ctypes, os, tempfile
from edgedeploy.base import supervision
real = supervision.supervise
def instead():
    real()
    from edgedeploy.compile.passes import dead_channels
    dead_channels.remove_channels = lambda module: (tempfile.mkdtemp(prefix="edgedeploy-"), {end})
supervision.supervise = instead
"""
    done = patched(program, tmp_path, "--json")
    assert done.returncode == code, done.stderr
    said = json.loads(done.stdout)["error"]
    assert re.search("digits.onnx for .* cannot be compiled", said["what"])
    assert reason in said["why"]


# Ctrl-C


@pytest.mark.parametrize("module", ["typer", *slow("edgedeploy.building", "onnx", "tvm")])
def test_ctrl_c_while_a_module_is_imported_ends_with_130(module: str, tmp_path: Path) -> None:
    finder = f"""
class Finder:
    def find_spec(self, name, *arguments):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
    assert patched(finder, tmp_path).returncode == 130


TVM = "TVM makes an error of it"
SWALLOWED = {
    TVM: "import tvm_ffi; tvm_ffi.convert(lambda: signal.raise_signal(signal.SIGINT))()",
    "another error takes its place": """
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    raise ValueError("something else")
""",
    "nobody hears of it": """
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
""",
    "Python drops it": """
class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
Freed()
""",
}


@pytest.mark.parametrize("how", [TVM, *slow(*(how for how in SWALLOWED if how != TVM))])
def test_ctrl_c_that_a_library_swallows_ends_with_130(how: str, tmp_path: Path) -> None:
    program = f"""
from edgedeploy.compile.passes import dead_channels
real = dead_channels.remove_channels
def instead(module):
    exec({SWALLOWED[how]!r})
    return real(module)
dead_channels.remove_channels = instead
"""
    done = patched(program, tmp_path)
    assert done.returncode == 130, done.stderr
    assert not re.search("error|Traceback", done.stderr), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", ["local", "rpi4"])
def test_ctrl_c_at_any_moment_ends_with_130(board: str, tmp_path: Path) -> None:
    command = [*EDGEDEPLOY, "build", "digits", "--board", board]
    begin = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    for moment in range(26):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with started(sys.executable, "-c", begin, *command, cwd=tmp_path, start_new_session=True, **pipes) as process:
            try:
                process.wait(0.1 + moment * 0.12)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: compilers and linkers hear it, too
            _, said = process.communicate(timeout=generous(60))
        frames = re.findall(r'File "(.*?)", line \d+, in (\w+)', said)
        starting = said.startswith(("Fatal Python error: init_import_site", "Could not import runpy module"))
        if starting or ("<frozen runpy>", "_get_module_details") in frames:
            continue  # Python itself was still starting, or looking for edgedeploy
        if frames and all(file.startswith("<frozen ") for file, _ in frames):
            continue
        # Before Python listens, and after edgedeploy's own end, the signal itself ends the process: 130 to a shell.
        assert process.returncode in (0, 130, -signal.SIGINT), said
        assert process.returncode == 0 or "error" not in said
        assert "Traceback" not in said


def test_a_process_ends_well_after_reducers_were_registered() -> None:
    program = "from edgedeploy.compile.passes.legalisation import register_reducers; register_reducers()"
    printed(sys.executable, "-c", program, timeout=60)


# Nothing that edgedeploy uses tells anybody that it is used.

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "network_namespace.py"
# Where onnxruntime's telemetry keeps the id of the device, in the user's cache folder.
MAKERS_FOLDER = "Microsoft"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    share_caches(tmp_path / "home" / ".cache")
    return tmp_path / "home"


def cut_off(home: Path, *commands: list[str]) -> dict[str, Any]:
    """Run commands where every name that is looked up is written down."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_", "EDGEDEPLOY_"))}
    words = [*namespace("--net"), sys.executable, PROGRAM, json.dumps(commands)]
    return dict(json.loads(printed(*words, env={**kept, "HOME": str(home)}, cwd=home)))


def assert_silent(home: Path, *commands: str) -> None:
    said = cut_off(home, *([*EDGEDEPLOY, *command.split()] for command in commands))
    assert [code for code, _ in said["ended"]] == [0] * len(commands), said["ended"]
    assert said["asked"] == []
    assert not [path for path in home.rglob("*") if path.name in (MAKERS_FOLDER, "deviceid")]


def test_looking_up_a_name_is_noticed(home: Path) -> None:
    look_up = "import socket\ntry: socket.getaddrinfo('somebody.test', 443)\nexcept OSError: pass"
    assert "somebody.test" in cut_off(home, [sys.executable, "-c", look_up])["asked"]


def test_telemetry_is_off_before_onnxruntime_is_imported(home: Path) -> None:
    assert cut_off(home, [sys.executable, "-c", "import edgedeploy, onnxruntime"])["ended"] == [[0, ""]]
    assert not (home / ".cache" / MAKERS_FOLDER).exists()


def test_sessions_are_made_in_one_place_here_and_one_under_emulation_which_turn_it_off_as_well() -> None:
    sources = {path.name: path.read_text() for path in Path(edgedeploy.__file__).parent.rglob("*.py")}
    makers = sorted(name for name, text in sources.items() if "InferenceSession(" in text)
    assert makers == ["engine_program.py", "onnxruntime_session.py"]
    assert all("onnxruntime.disable_telemetry_events()" in sources[name] for name in makers)


@pytest.mark.compiles
def test_building_and_running_look_nothing_up(home: Path) -> None:
    assert_silent(home, "build digits", "run dist/local/digits.tar.gz", "demo digits --board local")


@pytest.mark.slow
@pytest.mark.compiles
def test_measuring_all_engines_looks_nothing_up(home: Path) -> None:
    # Uploads begin some seconds after the start: this takes longer than that.
    assert_silent(home, "bench digits --rounds 60 --json")


@pytest.mark.slow
@pytest.mark.compiles
def test_tuning_looks_nothing_up(home: Path) -> None:
    assert_silent(home, "tune digits --trials 4")
