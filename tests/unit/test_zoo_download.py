"""Downloads, from a real server on the loopback interface that misbehaves on demand; and `edgedeploy models`."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from conftest import Command
from support.commands import generous, json_of, notes_of, output_of, put, refused
from support.profiles import write_entry

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.cli.options import complete_model
from edgedeploy.errors import DownloadError, OutputError
from edgedeploy.zoo.download import Patience, download, part_of

CONTENT = bytes(range(256)) * 1024
BLOCKS = 80 * 1024
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HASTE = Patience(connect=5, read=5, attempts=3, pause=0.01)
ONCE = Patience(connect=5, read=0.3, attempts=1)

pytestmark = pytest.mark.timeout(600)


class Server(ThreadingHTTPServer):
    """Answers each request with the next of `answers`, then as a good server with ranges."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Callable[[Handler], None]] = []
        self.ranges: list[str | None] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/net.onnx"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
        answer = self.server.answers.pop(0) if self.server.answers else whole_or_range
        answer(self)

    def reply(self, status: int, body: bytes = b"", **headers: str | int) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": len(body)} | headers).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def whole_or_range(handler: Handler) -> None:
    asked = handler.headers["Range"]
    if asked is None:
        return handler.reply(200, CONTENT)
    start = int(asked.removeprefix("bytes=").removesuffix("-"))
    where = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
    return handler.reply(206, CONTENT[start:], Content_Range=where)


def cut(handler: Handler) -> None:
    handler.reply(200, CONTENT[:BLOCKS], Content_Length=len(CONTENT))


def stall(handler: Handler) -> None:
    cut(handler)
    handler.server.closing.wait(generous(20))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield server
        server.closing.set()
        server.shutdown()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "net.onnx"


def get(server: Server, target: Path, patience: Patience = HASTE, progress: Progress = SILENT) -> None:
    download(server.url, target, size=len(CONTENT), sha256=SHA256, progress=progress, patience=patience)


def answer(status: int, body: bytes = b"", **headers: str | int) -> Callable[[Handler], None]:
    return lambda handler: handler.reply(status, body, **headers)


REST, OTHER = "bytes=1000-", f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"
TRANSFERS: dict[str, tuple[int | None, list[Callable[[Handler], None]], list[str | None]]] = {
    "nothing was there": (None, [], [None]),
    "a partial file is resumed": (1000, [], [REST]),
    "a complete partial file needs no connection": (len(CONTENT), [], []),
    "a server without ranges starts over": (1000, [answer(200, CONTENT)], [REST]),
    "a range that is refused starts over": (1000, [answer(416, b"x" * 50, Content_Range="")], [REST, None]),
    "another range starts over": (1000, [answer(206, b"x" * 50, Content_Range=OTHER)], [REST, None]),
    **{
        f"a range of {said[:20]} starts over": (1000, [answer(206, b"x" * 50, Content_Range=said)], [REST, None])
        for said in ("nonsense", "bytes 1000-2/\xb2", f"bytes 1000-1/{'9' * 5000}", f"bytes {'9' * 5000}-1/*")
    },
    "a connection that breaks is resumed within the call": (None, [cut], [None, f"bytes={BLOCKS}-"]),
    "a server that is busy is tried again": (None, [answer(503)], [None, None]),
}


@pytest.mark.parametrize("case", TRANSFERS)
def test_a_file_arrives_whole_and_nothing_else_is_left(server: Server, target: Path, case: str) -> None:
    part, answers, ranges = TRANSFERS[case]
    if part is not None:
        put(part_of(target), CONTENT[:part])
    server.answers = [*answers]
    for _ in range(2):  # what is there is not asked for again
        get(server, target)
        assert server.ranges == ranges
        assert target.read_bytes() == CONTENT
        assert list(target.parent.iterdir()) == [target]


def test_a_range_of_a_file_of_another_size_is_refused(server: Server, target: Path) -> None:
    put(part_of(target), CONTENT[:1000])
    server.answers = [answer(206, b"x", Content_Range="bytes 1000-1000/1001")]
    with pytest.raises(DownloadError, match="1,001 bytes"):
        get(server, target)


def test_a_transfer_that_keeps_breaking_is_kept_for_the_next_call(server: Server, target: Path) -> None:
    server.answers = [cut]
    with pytest.raises(DownloadError, match="goes on after 81,920 of") as caught:
        get(server, target, ONCE)
    assert caught.value.exit_code == 9
    assert not target.exists()
    get(server, target)
    assert server.ranges == [None, f"bytes={BLOCKS}-"]
    assert target.read_bytes() == CONTENT


def test_a_stalled_connection_is_given_up(server: Server, target: Path) -> None:
    server.answers = [stall]
    with pytest.raises(DownloadError, match=r"stalled: no data for 0\.3 s"):
        get(server, target, ONCE)
    assert part_of(target).read_bytes() == CONTENT[:BLOCKS]


def test_an_interrupt_keeps_what_has_come(server: Server, target: Path) -> None:
    impatient = MagicMock(spec=Progress)
    impatient.transfer.return_value.__enter__.return_value.side_effect = KeyboardInterrupt
    impatient.transfer.return_value.__exit__.return_value = False
    with pytest.raises(KeyboardInterrupt):
        get(server, target, progress=impatient)
    part = part_of(target).read_bytes()
    assert part
    assert CONTENT.startswith(part)
    assert not target.exists()


NO_ADDRESSES = ("http://[bad", "http://127.0.0.1:99999/x", "http://a..b/x", "http://\xad/x")


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "1, 2"])
def test_a_length_that_is_none_is_passed_over(server: Server, target: Path, length: str) -> None:
    server.answers = [answer(200, CONTENT, Content_Length=length, Connection="close")]
    with suppress(DownloadError):
        get(server, target)
    get(server, target)
    assert target.read_bytes() == CONTENT


def test_tokens_of_addresses_are_never_printed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_entry("own", CONTENT, url=f"{server.url}?token=secret")
    server.answers = [answer(302, Location=f"{server.url.replace('//', '//me:secret@')}?sig=secret"), answer(404)]
    words = [sys.executable, "-m", "edgedeploy", "-vv", "models", "pull", "own"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=generous(60), check=False)
    assert done.returncode == 9
    assert "Traceback" in done.stderr
    assert "GET /net.onnx HTTP" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while not handler.server.closing.is_set():
            handler.wfile.write(CONTENT)
    except OSError:
        handler.close_connection = True


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (answer(200, bytes(len(CONTENT))), f"should be {SHA256}"),
        (answer(200, CONTENT + b"more"), "262,148 bytes, but 262,144 are expected"),
        (endless, "more than the 262,144 bytes"),
        (answer(404), "404 Not Found"),
        (answer(302, Location=Path("/etc/hostname").as_uri()), "neither http nor https"),
        *((answer(302, Location=address), "neither http nor https") for address in NO_ADDRESSES),
    ],
    ids=["other content", "announced larger", "without a length", "missing", "redirect to a local file", *NO_ADDRESSES],
)
def test_wrong_files_are_refused(server: Server, target: Path, given: Callable[[Handler], None], message: str) -> None:
    server.answers = [given]
    with pytest.raises(DownloadError, match=message):
        get(server, target)
    assert len(server.ranges) == 1
    assert list(target.parent.iterdir()) == []


def test_a_server_that_is_not_there_is_named_plainly(server: Server, target: Path) -> None:
    address = server.url.replace(f":{server.server_port}/", ":9/")
    with pytest.raises(DownloadError, match="Connection refused"):
        download(address, target, size=1, sha256=SHA256, patience=ONCE)


def test_two_that_want_the_same_file_take_turns(server: Server, target: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(get, [server] * 4, [target] * 4))
    assert target.read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_a_folder_that_cannot_be_made_is_an_output_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(OutputError, match="cannot write"):
        get(server, tmp_path / "cache" / "net.onnx")


# `edgedeploy models`, run as a user runs it.


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


def test_pull_downloads_verify_finds_damage_and_rm_removes(models: Command, server: Server) -> None:
    entry(url=server.url)
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


def test_what_is_done_with_networks_is_told_as_json(models: Command, server: Server) -> None:
    entry(url=server.url)
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


def test_pull_tries_the_others_when_one_fails(models: Command, server: Server) -> None:
    entry("toy", url=server.url)
    entry("other", b"nothing like it", url=server.url)
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
    models: Command, server: Server
) -> None:
    entry("public", url=server.url)
    document = entry("converted", b"the same weights in another format", note="converted from toy.tmfile")
    err = refused(models, 9, "pull", "converted")
    assert "it has no download: converted from toy.tmfile" in err
    assert "EDGEDEPLOY_MODELS" in err
    document.write_text(document.read_text() + "same_as: public\n")
    assert "taking public, of the same weights" in notes_of(models, "pull", "converted")
    assert states(models)["public"] == "cached"
