"""What `make` calls: the demo that is shown, and what a machine is told that lacks something."""

import ast
import fcntl
import importlib.util
import os
import pkgutil
import pty
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from conftest import ROOT
from support.commands import executable

from edgedeploy.errors import DownloadError
from edgedeploy.zoo.entry import MODELS, ZooModel
from edgedeploy.zoo.store import MIRRORS_VARIABLE

SCRIPTS = ROOT / "scripts"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    monkeypatch.delenv(MIRRORS_VARIABLE, raising=False)
    spec = importlib.util.spec_from_file_location("demo_script", SCRIPTS / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Played = Callable[..., int]


@pytest.fixture
def played(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Runs the script: its exit code where the demos end with some, here and on one virtual board after the other."""

    def run(*codes: int, names: tuple[str, ...] = ("digits",)) -> int:
        left = iter(codes)
        for name in ("require_means", "load_board", "emulation_of", "find"):
            monkeypatch.setattr(demo, name, lambda *_: None)
        monkeypatch.setattr(demo, "play", lambda *_: next(left))
        monkeypatch.setattr(demo, "subprocess", SimpleNamespace(run=lambda *_, **__: None))
        code = int(demo.main(names))
        assert not list(left)
        return code

    return run


@pytest.fixture
def there(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(demo, "pull_files", lambda name: None)
    return demo


def test_the_first_demo_that_has_its_files_is_shown(
    demo: ModuleType, played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pull_files(name: str) -> None:
        if name == "retinaface":
            raise DownloadError("no network")

    monkeypatch.setattr(demo, "pull_files", pull_files)
    assert played(0, 0, 0, names=("retinaface", "of-another-version", "wake-word", "digits")) == 0
    said = capsys.readouterr()
    shown = "This is the demo wake-word: its files are available."
    assert said.out.startswith(f"retinaface cannot be shown: no network\n\n{shown}\n")
    assert [line.split() for line in said.err.splitlines() if line][1:] == [
        ["retinaface", "unavailable"],
        ["wake-word", "shown"],
        ["wake-word", "on", "rpi4", "shown"],
        ["wake-word", "on", "rpi-armhf", "shown"],
    ]


def test_the_folder_of_the_picture_is_made(there: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(there, "PICTURE", tmp_path / "build" / "demo.png")
    monkeypatch.setattr(there, "play", lambda *options: 0 if there.PICTURE.parent.is_dir() else 10)
    there.show("digits")


def test_without_files_and_package_index_the_bundled_one_is_shown(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    assert played(0, 0, 0, names=("wake-word", "digits")) == 0
    said = capsys.readouterr().out
    assert "wake-word cannot be shown: cannot get melspectrogram.onnx: the wheel openwakeword 0.4.0 cannot be" in said
    assert "This is the demo digits" in said


def test_the_last_resort_needs_no_file_from_elsewhere(demo: ModuleType) -> None:
    demo.pull_files(demo.PREFERRED[-1])


def test_the_entry_of_the_same_weights_is_downloaded(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled: list[ZooModel] = []
    monkeypatch.setattr(demo, "pull", lambda model, **_: pulled.append(model))
    monkeypatch.setattr(demo, "fetch", lambda file, **_: None)
    demo.pull_files("retinaface")
    assert pulled == [MODELS.load("retinaface-tengine")]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("code", [9, 27])
def test_after_a_demo_that_lacks_something_the_next_is_shown(played: Played, code: int) -> None:
    assert played(code, 0, 0, 0, names=("ocr", "digits")) == 0
    assert played(code, code, names=("ocr", "digits")) == code


@pytest.mark.usefixtures("there")
def test_a_fault_hides_no_other_demo_or_board(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert played(6, 0, 0, 0, names=("ocr", "digits")) == 6
    assert played(0, 6, 0) == 6
    assert [line.split() for line in capsys.readouterr().err.splitlines() if line][-3:] == [
        ["digits", "shown"],
        ["digits", "on", "rpi4", "failed"],
        ["digits", "on", "rpi-armhf", "shown"],
    ]


@pytest.mark.usefixtures("there")
def test_boards_that_are_interrupted_or_impossible_are_left_out(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    for code, said in ((130, "are left out"), (18, "There can be no virtual boards here")):
        assert played(0, code) == 0
        assert said in capsys.readouterr().out
        assert played(0, 0, code) == 0
    assert played(130) == 130
    assert played(0, 0, 0) == 0


_MAKEFILE = f"""\
demo:
\t@{sys.executable} demo.py
after: demo
\t@echo make goes on
"""

# Shows a picture at once, and boards for ever.
_SCRIPT = f"""\
import importlib.util, subprocess, sys, time
spec = importlib.util.spec_from_file_location("demo_script", {str(SCRIPTS / "demo.py")!r})
demo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(demo)
demo.pull_files = lambda name: None
demo.play = lambda name, *options: print("the picture") or 0
demo.on_boards = lambda name: print("the boards", flush=True) or time.sleep(600)
with demo.own_interruptions():
    code = demo.main()
sys.exit(code)
"""


def at_a_terminal() -> None:
    """Standard input is the terminal that Ctrl-C comes from; it is not ignored, as in a shell's background jobs."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_skips_the_boards_and_make_goes_on(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(_MAKEFILE)
    (tmp_path / "demo.py").write_text(_SCRIPT)
    terminal, its = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), its)
    run = subprocess.Popen(["make", "after"], cwd=tmp_path, **streams, start_new_session=True, preexec_fn=at_a_terminal)
    os.close(its)
    said = b""
    with open(terminal, "r+b", buffering=0) as stream:  # noqa: PTH123  # a descriptor
        while b"the boards" not in said:
            said += stream.read(1024)
        stream.write(b"\x03")
        with suppress(OSError):  # the terminal's other side is gone
            while more := stream.read(1024):
                said += more
    assert run.wait() == 0
    assert b"The virtual boards are left out." in said
    assert b"make goes on" in said


def build_script(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """`scripts/build.sh a b c` of a checkout whose edgedeploy is this shell script."""
    executable(folder / ".venv/bin/python", f'echo "$@"\n{python}', "/bin/bash")
    (folder / "Makefile").write_text("setup:\n")
    (folder / "scripts").mkdir()
    script = shutil.copy(SCRIPTS / "build.sh", folder / "scripts")
    return subprocess.run([script, *"abc"], capture_output=True, text=True, check=False)


def test_all_demos_are_built_for_each_board_until_ctrl_c_and_those_that_failed_are_listed(tmp_path: Path) -> None:
    done = build_script(tmp_path, "case $* in *a) exit 9;; *c) exit 6;; esac")
    assert done.returncode == 9
    assert done.stdout.splitlines() == [f"-m edgedeploy build --all-demos --board {board}" for board in "abc"]
    assert done.stderr.splitlines() == ["failed for a (exit code 9)", "failed for c (exit code 6)"]
    done = build_script(tmp_path / "interrupted", "case $* in *b) exit 130;; esac")
    assert (done.returncode, len(done.stdout.splitlines())) == (130, 2)


def called(folder: Path, script: str, *arguments: object, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run a script as somebody who is not root, with these programs and the shell's own, and nothing else."""
    for name in ("bash", "dirname", "rm"):
        (folder / name).symlink_to(Path("/bin", name))
    for name, text in {"id": "echo 1000", **programs}.items():
        executable(folder / name, text, "/bin/bash")
    command = ["/bin/bash", str(SCRIPTS / script), *map(str, arguments)]
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


# Debian's python3 without python3-venv.
BARE = f'case $* in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac'


def test_a_user_without_what_makes_environments_is_told_the_package(tmp_path: Path) -> None:
    done = called(tmp_path, "setup.sh", "python3", tmp_path / "venv", python3=BARE)
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr
    assert "uv or virtualenv" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("program", ["uv", "virtualenv"])
def test_another_program_makes_the_environment_where_it_is_installed(program: str, tmp_path: Path) -> None:
    # Its last argument is the folder.
    made = 'folder="${@: -1}/bin"; /bin/mkdir -p "$folder"; /bin/cp "${0%/*}/pip" "$folder/python"'
    programs = {"python3": BARE, "pip": 'echo pip "$@"', program: made}
    done = called(tmp_path, "setup.sh", "python3", tmp_path / "venv", **programs)
    assert done.returncode == 0, done.stderr
    assert "pip -m pip install" in done.stdout


def test_who_is_not_root_is_told_what_is_left_out_and_how_to_have_it(tmp_path: Path) -> None:
    done = called(tmp_path, "system_packages.sh", "virtual-boards", "drawing", "opencl", "predictions")
    assert done.returncode == 0
    virtual, drawing, opencl, predictions = done.stdout.splitlines()
    assert "virtual boards (as root: apt-get install qemu-user-static" in virtual
    assert "drawing networks (as root: apt-get install graphviz)" in drawing
    assert "OpenCL (as root: apt-get install pocl-opencl-icd" in opencl
    assert "predicted cycles (as root: apt-get install qemu-user" in predictions


@pytest.mark.parametrize(
    ("subjects", "packages"), [(["drawing"], {"graphviz"}), ([], {"python3-venv", "openssh-client", "graphviz", "g++"})]
)
def test_packages_are_listed_and_not_installed(tmp_path: Path, subjects: list[str], packages: set[str]) -> None:
    done = called(tmp_path, "system_packages.sh", "--list", *subjects, sed='exec /bin/sed "$@"')
    assert packages <= set(done.stdout.split())
    assert subjects == [] or packages == set(done.stdout.split())


def test_the_page_for_contributors_names_every_package_that_root_installs() -> None:
    script = (SCRIPTS / "system_packages.sh").read_text()
    page = (SCRIPTS.parent / "CONTRIBUTING.md").read_text()
    for line in script.splitlines():
        if "packages=(" in line:
            assert line.partition("packages=(")[2].partition(")")[0] in page


@pytest.mark.parametrize(
    "file",
    sorted(each.relative_to(ROOT) for each in (*ROOT.glob("benchmarks/**/*.py"), *SCRIPTS.glob("*.py"))),
    ids=str,
)
def test_names_that_programs_import_from_the_package_are_there(file: Path) -> None:
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("edgedeploy."):
            for each in node.names:
                pkgutil.resolve_name(f"{node.module}.{each.name}")
