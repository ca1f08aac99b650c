"""Package archives: reproducible when written, and never trusted when read."""

import gzip
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from pydantic import BaseModel, ValidationError
from support.archives import add, bomb, entry, header
from support.commands import json_of, output_of
from support.packages import CONTENTS, FILE_NAMES, UNSOUND, changed, document, files_with, manifest, packed

from edgedeploy.building import build
from edgedeploy.errors import PackageError, UnsupportedError
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.model.heads import Head
from edgedeploy.model.tensors import Steps, TensorSpec
from edgedeploy.package.archive import manifest_bytes, read_manifest, read_package, write_package
from edgedeploy.package.entry import Case
from edgedeploy.package.manifest import Manifest, packageable
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    write_package(tmp_path / "sound.tar.gz", manifest(), CONTENTS)
    return tmp_path / "sound.tar.gz"


def test_what_is_written_is_read(sound: Path) -> None:
    assert read_package(sound) == (manifest(), CONTENTS)
    assert read_manifest(sound) == manifest()


def test_a_quantised_tensor_is_read_with_its_steps() -> None:
    spec = TensorSpec(name="x", shape=[16], dtype="int8", steps=Steps(scale=0.5, zero_point=-3))
    assert TensorSpec.model_validate_json(spec.model_dump_json()) == spec


def test_equal_contents_give_equal_bytes(sound: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.tar.gz"
    write_package(second, manifest(), dict(reversed(CONTENTS.items())))
    assert sound.read_bytes() == second.read_bytes()


def test_names_no_owner_and_no_time(sound: Path) -> None:
    with tarfile.open(sound) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["manifest.json", *sorted(CONTENTS)]
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}


def assert_unsound(path: Path, command: Command, what: str) -> None:
    """Neither the function nor the command takes a file for a package, and nothing of it is shown."""
    with pytest.raises(PackageError, match="not a sound package"):
        read_package(path)
    code, out, err = command("package", what, path)
    assert (code, out) == (8, "")
    assert "not a sound package" in err


def add_all(archive: tarfile.TarFile, contents: dict[str, bytes] = CONTENTS) -> None:
    add(archive, "manifest.json", manifest_bytes(manifest()))
    for name, content in contents.items():
        add(archive, name, content)


HOSTILE: dict[str, Callable[[tarfile.TarFile], None]] = {
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
    assert_unsound(path, command, "verify")


def claiming(sizes: dict[str, int]) -> bytes:
    """A manifest at the begin of an archive, with files of these sizes beside the others."""
    claims = {name: {"size": size, "sha256": "0" * 64} for name, size in sizes.items()}
    return entry(b"manifest.json", changed("files", {**document()["files"], **claims}))


BOMBS = {
    "a long name": header(b"x", 3 << 30, kind=b"L"),
    "an extended header": header(b"x", 3 << 30, kind=b"x"),
    "a huge manifest": header(b"manifest.json", 3 << 30),
    "a manifest that is larger than it says": entry(b"manifest.json", manifest_bytes(manifest())),
    "a file that is larger than the manifest says": claiming({}) + header(b"model.so", 3 << 30),
    "a file that is as large as the manifest says": claiming({"model.so": 3 << 30}) + header(b"model.so", 3 << 30),
    "files that are too large together": claiming({f"f{i}": 1 << 30 for i in range(3)}) + header(b"f0", 1 << 30),
    "a manifest of many faults": entry(b"manifest.json", changed("inputs", [1] * 150_000)),
    "a manifest of many faulty fields": entry(b"manifest.json", changed("inputs", [{}] * 150_000)),
    "a manifest of many files": entry(b"manifest.json", changed("files", {str(i): 1 for i in range(50_000)})),
    "a manifest of many lists": entry(b"manifest.json", changed("target", {str(i): [[]] for i in range(50_000)})),
}

VERDICTS = """
import json, sys
from pathlib import Path
from typing import Any
from support.archives import peak_bytes
from edgedeploy.building import build
from edgedeploy.errors import PackageError
from edgedeploy.package.archive import read_package

print(peak_bytes())
for path in sys.argv[2:]:
    try:
        read_package(Path(path), keep=None if sys.argv[1] == "all" else ())
        print(peak_bytes())
    except PackageError as error:
        print(peak_bytes(), error.cause)
"""


def verdicts(keep: str, paths: list[Path]) -> list[tuple[int, str]]:
    """What a process of its own says of packages, and by how much the most memory that it had has grown then."""
    program = [sys.executable, "-c", VERDICTS, keep, *map(str, paths)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True, env=environment)
    first, *lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return [(int(peak) - int(first[0]), why) for peak, _, why in lines]


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    paths = [bomb(tmp_path / name, begin, 3072) for name, begin in BOMBS.items()]
    assert max(path.stat().st_size for path in paths) < 4 << 20
    for path, (peak, why) in zip(paths, verdicts("all", paths), strict=True):
        assert "not a sound package" in why, path.name
        assert peak < 128 << 20, path.name
        assert path.name != "a huge manifest" or "it has 3,221,225,472 bytes, more than the 1,048,576" in why


def test_a_sound_package_takes_its_size_of_memory_and_to_verify_it_none(tmp_path: Path) -> None:
    """The zeros of a network that compress to next to nothing are a network all the same."""
    contents = {**CONTENTS, "model.so": bytes(128 << 20)}
    write_package(tmp_path / "net.tar.gz", manifest(contents), contents)
    [(peak, why)] = verdicts("all", [tmp_path / "net.tar.gz"])
    assert (why, peak < 160 << 20) == ("", True)
    [(peak, why)] = verdicts("nothing", [tmp_path / "net.tar.gz"])
    assert (why, peak < 16 << 20) == ("", True)


def test_says_of_a_sound_package_what_it_is(sound: Path, command: Command) -> None:
    assert "is sound: net for local, 3 files, 4,024 bytes" in command("package", "verify", sound)[1]
    assert json_of(command, "package", "verify", sound)[0]["model"] == "net"


def test_shows_what_a_package_is_for_and_what_it_needs(sound: Path, command: Command) -> None:
    out = output_of(command, "package", "show", sound)
    rows = {line[:15].strip(): line[15:].strip() for line in out.splitlines() if line[:1].strip()}
    assert rows["model"] == "net"
    assert rows["threads"] == str(manifest().threads)
    assert manifest().linker in rows["linked by"]
    assert "model.so  4,000 bytes" in out
    assert json_of(command, "package", "show", sound) == manifest().model_dump(mode="json", by_alias=True)


def test_shows_what_the_networks_file_says_of_its_heads(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    heads = [Head(output="yolo_9", anchors=[(1, 2), (3, 4)], classes=80), Head(output="last", anchors=[(5, 6)])]
    write_package(path, manifest().model_copy(update={"heads": heads}), CONTENTS)
    out = command("package", "show", path)[1]
    assert "yolo_9  yolo, 2 anchors of 80 classes" in out
    assert "last  yolo, 1 anchors" in out


@pytest.mark.parametrize(("name", "shown"), [("", "."), ("/", "/")])
def test_a_folder_is_said_to_be_none(command: Command, name: str, shown: str) -> None:
    for what in ("show", "verify"):
        code, out, err = command("package", what, name)
        assert (code, out) == (8, "")
        assert f"error: {shown} is a folder, not a package\n" in err


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_refuses_a_truncated_file(share: float, sound: Path) -> None:
    sound.write_bytes(sound.read_bytes()[: int(sound.stat().st_size * share)])
    with pytest.raises(PackageError):
        read_package(sound)


@pytest.mark.parametrize(
    "content", [b"", b"text", gzip.compress(b"not a tar archive" * 100)], ids=["nothing", "text", "gzip of text"]
)
def test_refuses_what_is_no_archive_and_shows_nothing_of_it(content: bytes, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    path.write_bytes(content)
    assert_unsound(path, command, "show")


@pytest.mark.parametrize("what", UNSOUND)
def test_refuses_a_manifest_with(what: str, tmp_path: Path, command: Command) -> None:
    field, value, why = UNSOUND[what]
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": changed(field, value), **CONTENTS})
    code, out, err = command("package", "verify", path)
    assert (code, out) == (8, "")
    assert why in " ".join(err.split())


@pytest.mark.parametrize("name", FILE_NAMES)
def test_refuses_a_file_that_no_board_could_have_beside_the_others(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": changed("files", files_with(name))})
    for read in (read_manifest, read_package):
        with pytest.raises(PackageError, match=re.escape(FILE_NAMES[name])):
            read(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"threads": 1, %s', "a field is given twice"),
        ('{"threads": 1e999, %s', "1e999 is not a number"),
        ('{"threads": 1%s, %%s' % ("0" * 400), "is not a number"),
        ('{"a": ' + "[" * 100_000 + ", %s", "nested too deeply"),
        ('{"a": "\\ud800", %s', "manifest.json: (document): Invalid JSON"),
        ("\ufeff{%s", "manifest.json"),
        ('{"unknown": 1, %s', "unknown: there is no such field"),
    ],
    ids=["a field twice", "a huge number", "a long number", "depth", "half a letter", "a mark", "an unknown field"],
)
def test_refuses_json_that_others_would_read_in_another_way(text: str, why: str, tmp_path: Path) -> None:
    content = (text % manifest_bytes(manifest()).decode().lstrip()[1:]).encode()
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": content, **CONTENTS})
    with pytest.raises(PackageError, match=re.escape(why)):
        read_package(path)


def test_files_that_are_too_large_together_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    files = document()["files"]
    files |= {f"f{i}": {"size": 400 << 20, "sha256": "0" * 64} for i in range(3)}
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": changed("files", files)})
    for read in (read_manifest, read_package):
        with pytest.raises(PackageError, match="it holds 1,258,295,224 bytes"):
            read(path)


@pytest.mark.parametrize(
    ("part", "fields", "why"),
    [
        (Manifest, {**document(), "model": "../x"}, "model: must match"),
        (Case, {**document()["selftest"]["cases"][0], "absolute": float("inf")}, "absolute: must be a finite"),
    ],
)
def test_what_no_package_can_hold_is_said_of_the_network(part: type[BaseModel], fields: Any, why: str) -> None:
    with pytest.raises(UnsupportedError, match=f"no package can hold net: {why}"), packageable("net"):
        part.model_validate(fields)


def test_faults_of_other_things_are_not_said_of_the_network() -> None:
    with pytest.raises(ValidationError), packageable("net"):
        Head.model_validate({})


# Of ResNet-18 for ImageNet in float32, whose file in ONNX's model zoo has 46,820,737.
PARAMETERS = 11_689_512


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("board", ["rpi4", "rpi5"])
def test_an_archive_has_at_most_1_1_times_the_bytes_of_the_weights(tmp_path: Path, board: str) -> None:
    source = find_source("resnet18", options=ImportOptions(weights="random"))
    built = build(source, resolve(board, {"precision": "single"}), tmp_path / "net.tar.gz", checks="none")
    assert built.path.stat().st_size <= 1.1 * 4 * PARAMETERS
    assert built.manifest.memory.constants_bytes > 3 * 4 * PARAMETERS  # what Winograd's convolutions make of them
