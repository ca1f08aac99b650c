"""`edgedeploy models`, run as a user runs it."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import output_of, refused
from support.profiles import write_entry

from edgedeploy.cli.options import complete_model

CONTENT = b"weights"


class Shell:
    """A working folder with one entry of its own, and the command line in it."""

    def __init__(self, folder: Path, command: Command, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._command, self.patch = folder, command, patch
        (folder / "models").mkdir()

    def entry(self, name: str = "toy", content: bytes = CONTENT, **origin: str) -> Path:
        return write_entry(name, content, name="toy.onnx", **(origin or {"note": "made by hand"}))

    def mirror(self) -> Path:
        (self.folder / "mirror").mkdir()
        (self.folder / "mirror" / "toy.onnx").write_bytes(CONTENT)
        self.patch.setenv("EDGEDEPLOY_MODELS", str(self.folder / "mirror"))
        return self.folder / "mirror" / "toy.onnx"

    def run(self, *arguments: str) -> tuple[int, str, str]:
        return self._command("models", *arguments)

    def said(self, *arguments: str) -> str:
        return output_of(self.run, *arguments)

    def refused(self, code: int, *arguments: str) -> str:
        return refused(self.run, code, *arguments)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json")[1])

    def states(self) -> dict[str, Any]:
        return {entry["name"]: entry["state"] for entry in self.json()}


@pytest.fixture
def shell(command: Command, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(Path.cwd(), command, monkeypatch)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server with the toy's file."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "toy.onnx").write_bytes(CONTENT)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield f"http://127.0.0.1:{server.server_port}/toy.onnx"
        server.shutdown()


def test_the_listing_says_where_files_lie(shell: Shell) -> None:
    shell.entry()
    states = shell.states()
    assert (states["digits"], states["toy"], states["resnet50"]) == ("bundled", "absent", "absent")
    shell.mirror()
    assert shell.states()["toy"] == "mirror"


def test_the_table_has_name_task_size_and_state_and_a_broken_entry_hides_no_other(shell: Shell) -> None:
    (shell.folder / "models" / "broken.yaml").write_text("task: [")
    code, out, err = shell.run()
    assert (code, "warning" in err, "broken.yaml" in err) == (0, True, True)
    rows = [row.split() for row in out.splitlines()]
    assert ["retinaface", "face", "detection", "1.8", "MB", "absent"] in rows
    assert "digits" in out


def test_a_mirror_that_is_not_there_is_an_error(shell: Shell) -> None:
    shell.patch.setenv("EDGEDEPLOY_MODELS", "/does/not/exist")
    assert "EDGEDEPLOY_MODELS names /does/not/exist" in shell.refused(3)


def test_show_gives_the_entry_and_its_files_and_near_names_of_an_unknown_one(shell: Shell) -> None:
    content = shell.json("show", "digits")
    assert content["input"]["colour"] == "GRAY"
    assert content["files"][0]["state"] == "bundled"
    text = shell.said("show", "digits")
    assert "licence: Apache-2.0" in text
    assert "digits.onnx: bundled, " in text
    assert "retinaface" in shell.refused(4, "show", "retina-face")


def test_pull_downloads_verify_finds_damage_and_rm_removes(shell: Shell, address: str) -> None:
    shell.entry(url=address)
    code, out, _ = shell.run("verify", "toy")
    assert (code, "toy: absent: toy.onnx" in out) == (9, True)
    path = Path(shell.said("pull", "toy").split(": ", 1)[1].strip())
    assert path.read_bytes() == CONTENT
    assert shell.states()["toy"] == "cached"
    assert "toy: ok, cached" in shell.said("verify", "toy")
    path.write_bytes(CONTENT[::-1])
    code, out, _ = shell.run("verify")
    assert (code, f"toy: DAMAGED, cached: {path}" in out) == (9, True)
    shell.said("pull", "toy")
    assert path.read_bytes() == CONTENT
    assert "removed from the cache" in shell.said("rm", "toy")
    assert not path.exists()


def test_what_is_done_with_networks_is_told_as_json(shell: Shell, address: str, tmp_path: Path) -> None:
    shell.entry(url=address)
    [pulled] = shell.json("pull", "toy")
    [file] = pulled["files"]
    assert (pulled["name"], Path(file).read_bytes()) == ("toy", CONTENT)
    [sound] = shell.json("verify", "toy")
    assert sound == {"name": "toy", "file": "toy.onnx", "state": "ok", "path": file, "place": "cached"}
    Path(file).write_bytes(CONTENT[::-1])
    assert "1 file is damaged or absent" in shell.refused(9, "verify", "toy", "--json")
    assert [each["state"] for each in shell.json("verify", "toy")] == ["damaged"]
    [removed] = shell.json("rm", "toy")
    assert removed == {"name": "toy", "file": "toy.onnx", "removed": True, "stays": []}
    code, out, _ = shell.run("verify", "toy", "--json")
    assert (code, json.loads(out)[0]["state"]) == (9, "absent")


def test_pull_tries_the_others_when_one_fails(shell: Shell, address: str) -> None:
    shell.entry("toy", url=address)
    shell.entry("other", b"nothing like it", url=address)
    assert "1 of 2 models could not be downloaded" in shell.refused(9, "pull", "other", "toy")
    assert shell.states()["toy"] == "cached"


@pytest.mark.parametrize("arguments", [[], ["digits", "--all"]], ids=["nothing", "both"])
def test_pull_wants_names_or_all(shell: Shell, arguments: list[str]) -> None:
    shell.refused(7, "pull", *arguments)


def test_rm_of_a_model_in_a_mirror_leaves_it_and_says_so(shell: Shell) -> None:
    shell.entry()
    path = shell.mirror()
    out = shell.said("rm", "toy", "digits")
    assert f"toy.onnx: nothing removed, it is not in the cache; the copy in a mirror stays: {path}" in out
    assert "the bundled copy stays" in out
    assert path.exists()


def test_names_are_completed() -> None:
    assert "retinaface" in complete_model("retina")
    assert complete_model("no-such-model") == []


def test_a_network_without_a_download_is_taken_from_the_entry_of_the_same_weights(shell: Shell, address: str) -> None:
    shell.entry("public", url=address)
    document = shell.entry("converted", b"the same weights in another format", note="converted from toy.tmfile")
    err = shell.refused(9, "pull", "converted")
    assert "it has no download: converted from toy.tmfile" in err
    assert "EDGEDEPLOY_MODELS" in err
    document.write_text(document.read_text() + "same_as: public\n")
    code, _, err = shell.run("pull", "converted")
    assert (code, "taking public, of the same weights" in err) == (0, True)
    assert shell.states()["public"] == "cached"
