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
from support.commands import json_of, output_of, put, refused
from support.profiles import write_entry

from edgedeploy.cli.options import complete_model

CONTENT = b"weights"


@pytest.fixture
def models(command: Command) -> Command:
    """The command in a working folder of its own."""
    return partial(command, "models")


def entry(name: str = "toy", content: bytes = CONTENT, **origin: str) -> Path:
    return write_entry(name, content, name="toy.onnx", **(origin or {"note": "made by hand"}))


def mirror(monkeypatch: pytest.MonkeyPatch) -> Path:
    path = put(Path.cwd() / "mirror" / "toy.onnx", CONTENT)
    monkeypatch.setenv("EDGEDEPLOY_MODELS", str(path.parent))
    return path


def states(models: Command) -> dict[str, Any]:
    return {each["name"]: each["state"] for each in json_of(models)}


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server with the toy's file."""
    put(tmp_path / "www" / "toy.onnx", CONTENT)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield f"http://127.0.0.1:{server.server_port}/toy.onnx"
        server.shutdown()


def test_the_listing_says_where_files_lie(models: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    entry()
    found = states(models)
    assert (found["digits"], found["toy"], found["resnet50"]) == ("bundled", "absent", "absent")
    mirror(monkeypatch)
    assert states(models)["toy"] == "mirror"


def test_the_table_has_name_task_size_and_state_and_a_broken_entry_hides_no_other(models: Command) -> None:
    write_entry("broken", b"").write_text("task: [")
    code, out, err = models()
    assert (code, "warning" in err, "broken.yaml" in err) == (0, True, True)
    rows = [row.split() for row in out.splitlines()]
    assert ["retinaface", "face", "detection", "1.8", "MB", "absent"] in rows
    assert "digits" in out


def test_a_mirror_that_is_not_there_is_an_error(models: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", "/does/not/exist")
    assert "EDGEDEPLOY_MODELS names /does/not/exist" in refused(models, 3)


def test_show_gives_the_entry_and_its_files_and_near_names_of_an_unknown_one(models: Command) -> None:
    content = json_of(models, "show", "digits")
    assert content["input"]["colour"] == "GRAY"
    assert content["files"][0]["state"] == "bundled"
    text = output_of(models, "show", "digits")
    assert "licence: Apache-2.0" in text
    assert "digits.onnx: bundled, " in text
    assert "retinaface" in refused(models, 4, "show", "retina-face")


def test_pull_downloads_verify_finds_damage_and_rm_removes(models: Command, address: str) -> None:
    entry(url=address)
    code, out, _ = models("verify", "toy")
    assert (code, "toy: absent: toy.onnx" in out) == (9, True)
    path = Path(output_of(models, "pull", "toy").split(": ", 1)[1].strip())
    assert path.read_bytes() == CONTENT
    assert states(models)["toy"] == "cached"
    assert "toy: ok, cached" in output_of(models, "verify", "toy")
    path.write_bytes(CONTENT[::-1])
    code, out, _ = models("verify")
    assert (code, f"toy: DAMAGED, cached: {path}" in out) == (9, True)
    output_of(models, "pull", "toy")
    assert path.read_bytes() == CONTENT
    assert "removed from the cache" in output_of(models, "rm", "toy")
    assert not path.exists()


def test_what_is_done_with_networks_is_told_as_json(models: Command, address: str, tmp_path: Path) -> None:
    entry(url=address)
    [pulled] = json_of(models, "pull", "toy")
    [file] = pulled["files"]
    assert (pulled["name"], Path(file).read_bytes()) == ("toy", CONTENT)
    [sound] = json_of(models, "verify", "toy")
    assert sound == {"name": "toy", "file": "toy.onnx", "state": "ok", "path": file, "place": "cached"}
    Path(file).write_bytes(CONTENT[::-1])
    assert "1 file is damaged or absent" in refused(models, 9, "verify", "toy", "--json")
    assert [each["state"] for each in json.loads(models("verify", "toy", "--json")[1])] == ["damaged"]
    [removed] = json_of(models, "rm", "toy")
    assert removed == {"name": "toy", "file": "toy.onnx", "removed": True, "stays": []}
    code, out, _ = models("verify", "toy", "--json")
    assert (code, json.loads(out)[0]["state"]) == (9, "absent")


def test_pull_tries_the_others_when_one_fails(models: Command, address: str) -> None:
    entry("toy", url=address)
    entry("other", b"nothing like it", url=address)
    assert "1 of 2 models could not be downloaded" in refused(models, 9, "pull", "other", "toy")
    assert states(models)["toy"] == "cached"


@pytest.mark.parametrize("arguments", [[], ["digits", "--all"]], ids=["nothing", "both"])
def test_pull_wants_names_or_all(models: Command, arguments: list[str]) -> None:
    refused(models, 7, "pull", *arguments)


def test_rm_of_a_model_in_a_mirror_leaves_it_and_says_so(models: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    entry()
    path = mirror(monkeypatch)
    out = output_of(models, "rm", "toy", "digits")
    assert f"toy.onnx: nothing removed, it is not in the cache; the copy in a mirror stays: {path}" in out
    assert "the bundled copy stays" in out
    assert path.exists()


def test_names_are_completed() -> None:
    assert "retinaface" in complete_model("retina")
    assert complete_model("no-such-model") == []


def test_a_network_without_a_download_is_taken_from_the_entry_of_the_same_weights(
    models: Command, address: str
) -> None:
    entry("public", url=address)
    document = entry("converted", b"the same weights in another format", note="converted from toy.tmfile")
    err = refused(models, 9, "pull", "converted")
    assert "it has no download: converted from toy.tmfile" in err
    assert "EDGEDEPLOY_MODELS" in err
    document.write_text(document.read_text() + "same_as: public\n")
    code, _, err = models("pull", "converted")
    assert (code, "taking public, of the same weights" in err) == (0, True)
    assert states(models)["public"] == "cached"
