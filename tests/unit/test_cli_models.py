"""`edgedeploy models`, run as a user runs it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Command

CONTENT = b"weights"
ENTRY = """
task: classification
description: a toy
licence: none stated
files:
  - name: toy.onnx
    sha256: {sha256}
    size: {size}
    {origin}
input: {{name: data, shape: [1, 3, 8, 8]}}
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Shell:
    """A working folder with one entry of its own, and the command line in it."""

    def __init__(self, folder: Path, command: Command, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._command, self.patch = folder, command, patch
        (folder / "models").mkdir()

    def entry(self, name: str = "toy", origin: str = "note: made by hand", content: bytes = CONTENT) -> None:
        text = ENTRY.format(sha256=f'"{hashlib.sha256(content).hexdigest()}"', size=len(content), origin=origin)
        (self.folder / "models" / f"{name}.yaml").write_text(text)

    def mirror(self) -> Path:
        (self.folder / "mirror").mkdir()
        (self.folder / "mirror" / "toy.onnx").write_bytes(CONTENT)
        self.patch.setenv("EDGEDEPLOY_MODELS", str(self.folder / "mirror"))
        return self.folder / "mirror" / "toy.onnx"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(arguments, *self._command("models", *arguments))

    def states(self) -> dict[str, Any]:
        return {entry["name"]: entry["state"] for entry in json.loads(self.run("--json").stdout)}


@pytest.fixture
def shell(command: Command, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(Path.cwd(), command, monkeypatch)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A web server with the toy's file."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "toy.onnx").write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/toy.onnx"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_the_listing_says_where_files_lie(shell: Shell) -> None:
    shell.entry()
    states = shell.states()
    assert (states["digits"], states["toy"], states["resnet50"]) == ("bundled", "absent", "absent")
    shell.mirror()
    assert shell.states()["toy"] == "mirror"


def test_the_table_has_name_task_size_and_state(shell: Shell) -> None:
    done = shell.run()
    assert done.returncode == 0
    assert ["retinaface", "face", "detection", "1.8", "MB", "absent"] in [
        row.split() for row in done.stdout.splitlines()
    ]


def test_a_broken_entry_is_warned_of_and_hides_no_other(shell: Shell) -> None:
    (shell.folder / "models" / "broken.yaml").write_text("task: [")
    done = shell.run()
    assert done.returncode == 0
    assert "warning" in done.stderr
    assert "broken.yaml" in done.stderr
    assert "digits" in done.stdout


def test_a_mirror_that_is_not_there_is_an_error(shell: Shell) -> None:
    shell.patch.setenv("EDGEDEPLOY_MODELS", "/does/not/exist")
    done = shell.run()
    assert done.returncode == 3
    assert "EDGEDEPLOY_MODELS names /does/not/exist" in done.stderr


def test_show_gives_the_entry_and_its_files(shell: Shell) -> None:
    content = json.loads(shell.run("show", "digits", "--json").stdout)
    assert content["input"]["colour"] == "GRAY"
    assert content["files"][0]["state"] == "bundled"
    text = shell.run("show", "digits").stdout
    assert "licence: Apache-2.0" in text
    assert "digits.onnx: bundled, " in text


def test_an_unknown_name_is_answered_with_near_ones(shell: Shell) -> None:
    done = shell.run("show", "retina-face")
    assert done.returncode == 4
    assert "retinaface" in done.stderr


def test_pull_downloads_and_rm_removes(shell: Shell, address: str) -> None:
    shell.entry(origin=f"url: {address}")
    done = shell.run("pull", "toy")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.split(": ", 1)[1].strip())
    assert path.read_bytes() == CONTENT
    assert shell.states()["toy"] == "cached"
    assert "toy: ok, cached" in shell.run("verify", "toy").stdout

    assert "removed from the cache" in shell.run("rm", "toy").stdout
    assert not path.exists()


def test_what_is_done_with_networks_is_told_as_json(shell: Shell, address: str, tmp_path: Path) -> None:
    shell.entry(origin=f"url: {address}")
    [pulled] = json.loads(shell.run("pull", "toy", "--json").stdout)
    [file] = pulled["files"]
    assert (pulled["name"], Path(file).read_bytes()) == ("toy", CONTENT)
    [sound] = json.loads(shell.run("verify", "toy", "--json").stdout)
    assert sound == {"name": "toy", "file": "toy.onnx", "state": "ok", "path": file, "place": "cached"}
    Path(file).write_bytes(CONTENT[::-1])
    damaged = shell.run("verify", "toy", "--json")
    assert (damaged.returncode, [each["state"] for each in json.loads(damaged.stdout)]) == (9, ["damaged"])
    assert "1 file is damaged or absent" in damaged.stderr
    [removed] = json.loads(shell.run("rm", "toy", "--json").stdout)
    assert removed == {"name": "toy", "file": "toy.onnx", "removed": True, "stays": []}
    absent = shell.run("verify", "toy", "--json")
    assert (absent.returncode, json.loads(absent.stdout)[0]["state"]) == (9, "absent")


def test_pull_tries_the_others_when_one_fails(shell: Shell, address: str) -> None:
    shell.entry("toy", origin=f"url: {address}")
    shell.entry("other", origin=f"url: {address}", content=b"nothing like it")
    done = shell.run("pull", "other", "toy")
    assert done.returncode == 9
    assert "1 of 2 models could not be downloaded" in done.stderr
    assert shell.states()["toy"] == "cached"


def test_pull_of_what_has_no_download_says_where_to_put_it(shell: Shell) -> None:
    shell.entry()
    done = shell.run("pull", "toy")
    assert done.returncode == 9
    assert "it has no download: made by hand" in done.stderr
    assert "EDGEDEPLOY_MODELS" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["digits", "--all"]], ids=["nothing", "both"])
def test_pull_wants_names_or_all(shell: Shell, arguments: list[str]) -> None:
    assert shell.run("pull", *arguments).returncode == 7


def test_rm_of_a_model_in_a_mirror_leaves_it_and_says_so(shell: Shell) -> None:
    shell.entry()
    path = shell.mirror()
    done = shell.run("rm", "toy", "digits")
    assert done.returncode == 0
    assert f"toy.onnx: nothing removed, it is not in the cache; the copy in a mirror stays: {path}" in done.stdout
    assert "the bundled copy stays" in done.stdout
    assert path.exists()


def test_verify_finds_what_is_damaged(shell: Shell, address: str) -> None:
    shell.entry(origin=f"url: {address}")
    path = Path(shell.run("pull", "toy").stdout.split(": ", 1)[1].strip())
    path.write_bytes(CONTENT[::-1])
    done = shell.run("verify")
    assert done.returncode == 9
    assert f"toy: DAMAGED, cached: {path}" in done.stdout
    assert shell.run("pull", "toy").returncode == 0
    assert path.read_bytes() == CONTENT


def test_verify_of_a_named_model_that_is_absent_fails(shell: Shell) -> None:
    shell.entry()
    done = shell.run("verify", "toy")
    assert done.returncode == 9
    assert "toy: absent: toy.onnx" in done.stdout


def test_names_are_completed() -> None:
    from edgedeploy.cli.models import complete_model

    assert "retinaface" in complete_model("retina")
    assert complete_model("no-such-model") == []


def test_a_network_without_a_download_is_taken_from_the_entry_of_the_same_weights(shell: Shell, address: str) -> None:
    shell.entry("public", f"url: {address}")
    shell.entry("converted", "note: converted from toy.tmfile", content=b"the same weights in another format")
    assert shell.run("pull", "converted").returncode == 9
    document = shell.folder / "models" / "converted.yaml"
    document.write_text(document.read_text() + "same_as: public\n")
    done = shell.run("pull", "converted")
    assert done.returncode == 0
    assert "taking public, of the same weights" in done.stderr
    assert shell.states()["public"] == "cached"
