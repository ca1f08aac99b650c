"""Where the zoo's files are found, and what is said when they are not."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from edgedeploy.errors import DownloadError
from edgedeploy.package.usage import ModelInput
from edgedeploy.zoo import store
from edgedeploy.zoo.download import Patience
from edgedeploy.zoo.entry import ZooFile, ZooModel

CONTENT = b"the weights of a network"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zoo").mkdir()
    return tmp_path / "zoo"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mirror" / "deep").mkdir(parents=True)
    monkeypatch.setenv("EDGEDEPLOY_MODELS", str(tmp_path / "mirror"))
    return tmp_path / "mirror"


def zoo_file(**fields: Any) -> ZooFile:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return ZooFile(**({"name": "net.onnx", "sha256": digest, "size": len(CONTENT)} | fields))


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_file_beside_the_document_counts_only_if_it_is_said_to_be_bundled(folder: Path) -> None:
    path = put(folder / "net.onnx")
    assert store.fetch(zoo_file(bundled=True), folder=folder) == path
    assert store.locate(zoo_file(), folder) is None


def test_a_changed_bundled_file_says_what_to_state_where(folder: Path) -> None:
    """A network that was trained again is no damaged download."""
    content = b"trained again"
    path = put(folder / "net.onnx", content)
    with pytest.raises(DownloadError, match=str(path)):
        store.fetch(zoo_file(bundled=True), folder=folder)
    document = put(folder / "mine.yaml", f"files: [{{sha256: {zoo_file().sha256}}}]".encode())
    with pytest.raises(DownloadError) as raised:
        store.fetch(zoo_file(bundled=True), folder=folder)
    assert raised.value.what == f"{path} is not the file that {document} describes"
    assert f'state in {document}: sha256: "{hashlib.sha256(content).hexdigest()}", size: 13' in raised.value.hints[0]
    assert "EDGEDEPLOY_MODELS" not in str(raised.value)
    path.unlink()
    with pytest.raises(DownloadError, match="there is no file"):
        store.fetch(zoo_file(bundled=True), folder=folder)


def test_a_mirror_is_searched_by_content_whatever_the_name(folder: Path, mirror: Path) -> None:
    put(mirror / "net.onnx", CONTENT[::-1])
    path = put(mirror / "deep" / "renamed.bin")
    assert store.locate(zoo_file(), folder) == path


def test_a_mirror_goes_before_the_cache(folder: Path, mirror: Path) -> None:
    put(store.cache_path(zoo_file()))
    path = put(mirror / "net.onnx")
    assert store.locate(zoo_file(), folder) == path
    assert [copy.place for copy in store.copies(zoo_file(), folder)] == ["mirror", "cached"]


def test_mirrors_may_be_several(folder: Path, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "second" / "net.onnx")
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{mirror}{os.pathsep}{path.parent}")
    assert store.locate(zoo_file(), folder) == path


@pytest.mark.timeout(300)
def test_a_symbolic_link_in_a_circle_ends(folder: Path, mirror: Path) -> None:
    (mirror / "deep" / "back").symlink_to(mirror)
    (mirror / "dangling").symlink_to(mirror / "nothing")
    os.mkfifo(mirror / "pipe")
    path = put(mirror / "deep" / "net.onnx")
    assert store.locate(zoo_file(), folder) == path


def test_a_file_put_into_the_cache_by_hand_is_found_until_it_is_damaged(folder: Path) -> None:
    path = put(store.cache_path(zoo_file()))
    assert store.locate(zoo_file(), folder) == path
    put(path, CONTENT[::-1])
    os.utime(path, ns=(0, 0))
    assert store.locate(zoo_file(), folder) is None
    assert [copy.sound for copy in store.copies(zoo_file(), folder)] == [False]


def test_what_cannot_be_had_is_described_with_all_that_helps(folder: Path) -> None:
    file = zoo_file(note="converted from a Caffe model")
    with pytest.raises(DownloadError) as caught:
        store.fetch(file, folder=folder)
    told = " ".join([str(caught.value), *caught.value.hints])
    for part in ("net.onnx", "has no download: converted from a Caffe model", file.sha256, "EDGEDEPLOY_MODELS"):
        assert part in told
    assert str(store.cache_path(file)) in told


def test_an_address_is_told_without_its_secrets(folder: Path) -> None:
    file = zoo_file(url="http://me:hunter2@127.0.0.1:9/net.onnx?token=hunter2")
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9/net\.onnx: ") as caught:
        store.fetch(file, folder=folder, patience=Patience(connect=2, attempts=1))
    assert "hunter2" not in str(caught.value)


def test_remove_takes_the_cached_file_and_its_partial_only(folder: Path, mirror: Path) -> None:
    kept = put(mirror / "net.onnx")
    cached = put(store.cache_path(zoo_file()))
    put(cached.with_name("net.onnx.part"))
    assert store.remove(zoo_file())
    assert not cached.parent.exists()
    assert kept.exists()
    assert not store.remove(zoo_file())


def test_pull_gives_all_files_in_order_and_verify_finds_them(folder: Path) -> None:
    second = b"second"
    files = [zoo_file(), zoo_file(sha256=hashlib.sha256(second).hexdigest(), size=len(second))]
    paths = [put(store.cache_path(files[0])), put(store.cache_path(files[1]), second)]
    assert [path.name for path in paths] == ["net.onnx"] * 2, "files of one name lie side by side"
    model = ZooModel(
        task="test", description="", licence="", files=files, input=ModelInput(name="data", shape=[1, 3, 8, 8])
    )
    assert store.pull(model, folder=folder) == paths
    assert all(copy.sound for found in store.verify(model, folder).values() for copy in found)
