"""Package archives: reproducible when written, and never trusted when read."""

from __future__ import annotations

import gzip
import json
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import add
from conftest import Command
from pydantic import ValidationError

from edgedeploy.errors import PackageError
from edgedeploy.heads import Head
from edgedeploy.package.archive import describe, manifest_bytes, read_manifest, read_package, write_package
from edgedeploy.package.manifest import Abi, Case, Check, Manifest, Member, Memory, SelfTest

CONTENTS = {"model.so": b"code" * 1000, "selftest/input-0.bin": b"\0" * 16, "selftest/output-0.bin": b"\1" * 8}


def manifest(contents: dict[str, bytes] = CONTENTS) -> Manifest:
    return Manifest(
        model="net",
        model_sha256="0" * 64,
        board="local",
        build_key="1" * 64,
        target={"kind": "llvm"},
        threads=2,
        versions={"edgedeploy": "0"},
        linker="native",
        inputs=[],
        outputs=[],
        abi=Abi(elf_class=64, machine="EM_X86_64", float_abi=None, glibc="2.28", libraries=[], cpu="x", features=[]),
        memory=Memory(workspace_bytes=64, scratch_bytes=0, constants_bytes=8),
        selftest=SelfTest(
            cases=[Case(name="random", inputs=[], outputs=[], usual=1e-4, relative=[], absolute=1e-6, spread=[])],
            reference="nobody",
        ),
        checked=Check(how="no"),
        files=describe(contents),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "net.tar.gz"
    write_package(path, manifest(), CONTENTS)
    assert read_package(path) == (manifest(), CONTENTS)
    assert read_manifest(path) == manifest()


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar.gz"
    write_package(first, manifest(), CONTENTS)
    write_package(second, manifest(), dict(reversed(CONTENTS.items())))
    assert first.read_bytes() == second.read_bytes()


def test_names_no_owner_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "net.tar.gz"
    write_package(path, manifest(), CONTENTS)
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["manifest.json", *sorted(CONTENTS)]
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}


Tamper = Callable[[tarfile.TarFile], None]


def promise_too_much(archive: tarfile.TarFile) -> None:
    """Files of 3 GiB, each of which is what the manifest says."""
    sizes = {f"file-{number}": Member(size=1 << 30, sha256="0" * 64) for number in range(3)}
    whole = manifest()
    add(archive, "manifest.json", manifest_bytes(whole.model_copy(update={"files": {**whole.files, **sizes}})))


def add_all(archive: tarfile.TarFile, contents: dict[str, bytes] = CONTENTS) -> None:
    add(archive, "manifest.json", manifest_bytes(manifest()))
    for name, content in contents.items():
        add(archive, name, content)


BOMBS: dict[str, Tamper] = {
    "a long name": lambda archive: add(archive, "name", bytes(64 << 20), kind=tarfile.GNUTYPE_LONGNAME),
    "an extended header": lambda archive: add(archive, "pax", bytes(64 << 20), kind=tarfile.XHDTYPE),
    "a huge manifest": lambda archive: add(archive, "manifest.json", bytes(64 << 20)),
    "a huge member": lambda archive: add_all(archive, {**CONTENTS, "model.so": bytes(64 << 20)}),
    "a manifest that promises too much": promise_too_much,
}

HOSTILE: dict[str, Tamper] = {
    "an absolute name": lambda archive: (add_all(archive), add(archive, "/etc/passwd", b"x"))[1],
    "a name that climbs out": lambda archive: (add_all(archive), add(archive, "../escape", b"x"))[1],
    "a symbolic link": lambda archive: (add_all(archive), add(archive, "model.so", kind=tarfile.SYMTYPE))[1],
    "a hard link": lambda archive: (add_all(archive), add(archive, "a", kind=tarfile.LNKTYPE))[1],
    "a device": lambda archive: (add_all(archive), add(archive, "sda", kind=tarfile.BLKTYPE))[1],
    "a character device": lambda archive: (add_all(archive), add(archive, "zero", kind=tarfile.CHRTYPE))[1],
    "a pipe": lambda archive: (add_all(archive), add(archive, "pipe", kind=tarfile.FIFOTYPE))[1],
    "a sparse file": lambda archive: (add_all(archive), add(archive, "hole", kind=tarfile.GNUTYPE_SPARSE))[1],
    "a folder": lambda archive: (add_all(archive), add(archive, "selftest", kind=tarfile.DIRTYPE))[1],
    "a member twice": lambda archive: (add_all(archive), add(archive, "model.so", CONTENTS["model.so"]))[1],
    "a changed member": lambda archive: add_all(archive, {**CONTENTS, "model.so": b"evil" * 1000}),
    "a longer member": lambda archive: add_all(archive, {**CONTENTS, "model.so": b"code" * 1001}),
    "a missing member": lambda archive: add_all(archive, {"model.so": CONTENTS["model.so"]}),
    "no manifest": lambda archive: add(archive, "model.so", b"code"),
    "a manifest that is no JSON": lambda archive: add(archive, "manifest.json", b"{"),
    "a manifest of another form": lambda archive: add(archive, "manifest.json", b"{}"),
    "nothing": lambda archive: None,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_refuses_an_archive_with(what: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        HOSTILE[what](archive)
    with pytest.raises(PackageError, match="not a sound package"):
        read_package(path)
    code, out, err = command("package", "verify", path)
    assert (code, out) == (8, "")
    assert "not a sound package" in err


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_before_it_is_unpacked(what: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        BOMBS[what](archive)
    tracemalloc.start()
    try:
        code, _, err = command("package", "verify", path)
        assert code == 8
        assert "not a sound package" in err
        # tarfile unpacks 10 kB at a time, which become 10 MB.
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_says_of_a_sound_package_what_it_is(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    write_package(path, manifest(), CONTENTS)
    assert "is sound: net for local, 3 files, 4,024 bytes" in command("package", "verify", path)[1]
    assert json.loads(command("package", "verify", path, "--json")[1])[0]["model"] == "net"


def test_shows_what_a_package_is_for_and_what_it_needs(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    write_package(path, manifest(), CONTENTS)
    code, out, _ = command("package", "show", path)
    assert code == 0
    rows = {line[:15].strip(): line[15:].strip() for line in out.splitlines() if line[:1].strip()}
    assert rows["model"] == "net"
    assert rows["threads"] == str(manifest().threads)
    assert manifest().linker in rows["linked by"]
    assert "model.so  4,000 bytes" in out
    assert json.loads(command("package", "show", path, "--json")[1]) == manifest().model_dump(mode="json")


def test_shows_what_the_networks_file_says_of_its_heads(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    heads = [Head(output="yolo_9", anchors=[(1, 2), (3, 4)], classes=80), Head(output="last", anchors=[(5, 6)])]
    write_package(path, manifest().model_copy(update={"heads": heads}), CONTENTS)
    out = command("package", "show", path)[1]
    assert "yolo_9  yolo, 2 anchors of 80 classes" in out
    assert "last  yolo, 1 anchors" in out


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_shows_nothing_of_what_is_no_package(content: bytes, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    path.write_bytes(content)
    code, out, err = command("package", "show", path)
    assert (code, out) == (8, "")
    assert "not a sound package" in err


def test_refuses_a_manifest_that_names_a_file_outside(tmp_path: Path) -> None:
    content = json.loads(manifest_bytes(manifest()))
    content["files"]["../escape"] = content["files"].pop("model.so")
    path = tmp_path / "net.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "manifest.json", json.dumps(content).encode())
    with pytest.raises(PackageError, match="files"):
        read_package(path)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_refuses_a_truncated_file(share: float, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.tar.gz", tmp_path / "cut.tar.gz"
    write_package(whole, manifest(), CONTENTS)
    cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
    with pytest.raises(PackageError):
        read_package(cut)


@pytest.mark.parametrize(
    "content", [b"", b"text", gzip.compress(b"not a tar archive" * 100)], ids=["nothing", "text", "gzip of text"]
)
def test_refuses_what_is_no_archive(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.tar.gz"
    path.write_bytes(content)
    with pytest.raises(PackageError):
        read_package(path)


def test_members_that_are_too_large_together_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "net.tar.gz"
    claims = {name: member.model_copy(update={"size": 400 << 20}) for name, member in manifest().files.items()}
    write_package(path, manifest().model_copy(update={"files": claims}), CONTENTS)
    for read in (read_manifest, read_package):
        with pytest.raises(PackageError, match="it holds 1,258,291,200 bytes"):
            read(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("files", {}),
        ("inputs", [{"name": "x", "shape": [1], "dtype": "no dtype"}]),
        ("inputs", [{"name": "x", "shape": [-1], "dtype": "float32"}]),
    ],
)
def test_refuses_a_manifest_that_cannot_be_true(field: str, value: object) -> None:
    content = json.loads(manifest_bytes(manifest()))
    with pytest.raises(ValidationError):
        Manifest.model_validate_json(json.dumps(content | {field: value}))
