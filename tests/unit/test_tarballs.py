"""Archives: the same under every Python, refused by their headers, and never in memory as a whole."""

import gzip
import io
import json
import random
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support import archives
from support.archives import END, bomb, entry, header, pythons
from support.commands import printed, put

from edgedeploy.base import tarballs
from edgedeploy.base.tarballs import DamagedArchiveError, opened_archive, write_archive

FILES = {"manifest.json": b"{}", "model.so": b"code" * 1000, "selftest/input-0.bin": bytes(512), "empty": b""}

MODEL = entry(b"model.so", b"code" * 200)

# What is read, and what is refused, with a part of the reason. Each begins or ends with a sound file.
SOUND = {
    "a file": MODEL + END,
    "GNU tar's magic": entry(b"model.so", b"code" * 200, magic=b"ustar  \0") + END,
    "the old type of plain files": entry(b"model.so", b"code" * 200, kind=b"\0") + END,
    "an owner": entry(b"model.so", b"code" * 200, uid=b"0001750\0", mtime=b"14700000000\0") + END,
    "numbers with spaces": entry(b"model.so", b"code" * 200, size=b"       1440 ") + END,
    "a whole record": MODEL + END + bytes(10_240),
}
REFUSED = {
    "a pipe": (MODEL + header(b"pipe", kind=b"6"), "'pipe' is not a plain file"),
    "a symbolic link": (MODEL + header(b"link", kind=b"2", link=b"/etc/passwd"), "'link' is not a plain file"),
    "a hard link": (MODEL + header(b"link", kind=b"1", link=b"model.so"), "'link' is not a plain file"),
    "a device": (MODEL + header(b"sda", kind=b"4"), "'sda' is not a plain file"),
    "a character device": (MODEL + header(b"null", kind=b"3"), "'null' is not a plain file"),
    "a folder": (MODEL + header(b"folder", kind=b"5"), "'folder' is not a plain file"),
    "a folder of old": (MODEL + header(b"folder/", kind=b"\0"), "'folder/' is not a plain file"),
    "a contiguous file": (MODEL + header(b"file", kind=b"7"), "'file' is not a plain file"),
    "a sparse file": (MODEL + header(b"hole", kind=b"S"), "'hole' is not a plain file"),
    "a kind of its own": (MODEL + header(b"file", kind=b"Z"), "'file' is not a plain file"),
    "an extended header": (entry(b"pax", b"16 path=model.so", kind=b"x") + MODEL, "'pax' is not a plain file"),
    "a global header": (entry(b"pax", b"16 path=model.so", kind=b"g") + MODEL, "'pax' is not a plain file"),
    "a long name": (entry(b"././@LongLink", b"model.so\0", kind=b"L") + MODEL, "'././@LongLink' is not a plain file"),
    "a long link": (entry(b"././@LongLink", b"model.so\0", kind=b"K") + MODEL, "'././@LongLink' is not a plain file"),
    "a name in two parts": (header(b"model.so", prefix=b"..") + END, "is longer than 100 bytes"),
    "a name of no letters": (header(b"\xff\xfe") + END, "a file with the name"),
    "a size in binary": (header(b"x", b"\x80" + bytes(10) + b"\1") + END, "an invalid number"),
    "a size below zero": (header(b"x", b"-0000000001\0") + END, "an invalid number"),
    "a size of other digits": (header(b"x", b"00000000009\0") + END, "an invalid number"),
    "a size in two parts": (header(b"x", b"1\0002\0003\0\0\0\0\0\0\0") + END, "an invalid number"),
    "no size": (header(b"x", bytes(12)) + END, "an invalid number"),
    "a size with a sign": (header(b"x", b"+0000000001\0") + END, "an invalid number"),
    "a size with an underscore": (header(b"x", b"0000000_001\0") + END, "an invalid number"),
    "another sum": (header(b"x", sum=b"000001\0 ") + END, "a damaged or unsupported header"),
    "no sum": (header(b"x", sum=bytes(8)) + END, "an invalid number"),
    "no magic": (header(b"x", magic=bytes(8)) + END, "a damaged or unsupported header"),
    "another magic": (header(b"x", magic=b"ustar\x0001") + END, "a damaged or unsupported header"),
    "nothing": (b"", "it ends too early"),
    "no end": (MODEL, "it ends too early"),
    "half an end": (MODEL + bytes(512), "it does not end"),
    "half a header": (MODEL + header(b"x")[:100], "it ends too early"),
    "half a file": (MODEL[:700], "it ends too early"),
    "a file without its filling": (header(b"x", 4) + b"code", "it ends too early"),
    "a file after the end": (MODEL + END + entry(b"x", b"") + END, "it does not end"),
    "something after the end": (MODEL + END + bytes(500) + b"x", "it does not end"),
}
BOMBS = {
    "a long name of gigabytes": header(b"x", 3 << 30, kind=b"L"),
    "an extended header of gigabytes": header(b"x", 3 << 30, kind=b"x"),
    "a global header of gigabytes": header(b"x", 3 << 30, kind=b"g"),
    "a file that is cut off": header(b"x", (3 << 30) + 1),
    "gigabytes after the end": MODEL + END,
    "a link of gigabytes": header(b"x", 3 << 30, kind=b"2"),
}


def packed(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


def read(path: Path) -> dict[str, bytes]:
    with opened_archive(path) as entries:
        return {each.name: each.content() for each in entries}


@pytest.fixture(scope="module")
def all_archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("archives")
    paths = [packed(folder / name, content) for name, content in SOUND.items()]
    paths += [packed(folder / name, content) for name, (content, _) in REFUSED.items()]
    # The one that is to be read through, for as long as that takes, has 64 MiB.
    sizes = {name: 64 if name == "a file that is cut off" else 3072 for name in BOMBS}
    return paths + [bomb(folder / name, begin, sizes[name]) for name, begin in BOMBS.items()]


@pytest.mark.parametrize("python", pythons(), ids=str)
def test_verdicts_are_the_same_under_every_python(python: Path, all_archives: list[Path]) -> None:
    program = [python, "-E", "-m", archives.__name__, tarballs.__file__, *all_archives]
    said = json.loads(printed(*program, cwd=Path(archives.__file__).parents[1]))
    verdicts: dict[str, Any] = said["verdicts"]
    assert all(verdicts[name] == [["model.so", 800]] for name in SOUND), verdicts
    for name, (_, why) in REFUSED.items():
        assert why in verdicts[name], name
    assert all(isinstance(verdicts[name], str) for name in BOMBS)
    assert said["memory"] < 24 << 20, "no archive is kept, whatever it unpacks to"


def test_what_is_written_is_read_here_and_by_others(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write_archive(path, FILES)
    assert read(path) == FILES
    with tarfile.open(path) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        assert {name: stream.read() for name, stream in members.items() if stream} == FILES


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_pythons_tarfile_writes_is_read(tmp_path: Path, form: int) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=form) as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size, member.uname = len(content), "somebody"
            archive.addfile(member, io.BytesIO(content))
    assert read(tmp_path / "a.tar.gz") == FILES


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")
@pytest.mark.parametrize("form", ["ustar", "gnu", "pax"])
def test_what_tar_writes_of_plain_files_is_read_or_refused(tmp_path: Path, form: str) -> None:
    for name, content in FILES.items():
        put(tmp_path / name, content)
    printed("tar", "-C", tmp_path, f"--format={form}", "-czf", tmp_path / "a.tar.gz", *FILES)
    if form == "pax":  # times of files are in extended headers
        with pytest.raises(DamagedArchiveError, match="is not a plain file"):
            read(tmp_path / "a.tar.gz")
    else:
        assert read(tmp_path / "a.tar.gz") == FILES


def test_content_that_is_not_read_is_passed_over_and_errors_meanwhile_are_not_the_archives(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar.gz", {"a": bytes(1000), "b": bytes(1 << 20), "c": b"here", "d": b"too"})
    seen = {}
    with opened_archive(tmp_path / "a.tar.gz") as entries:
        for each in entries:
            if each.name == "b":
                next(each.pieces())
            elif each.name != "a":
                seen[each.name] = each.content()
    assert seen == {"c": b"here", "d": b"too"}
    with pytest.raises(OSError, match="disk"), opened_archive(tmp_path / "a.tar.gz"):
        raise OSError("the disk is full")


def test_what_is_read_of_damaged_headers_is_what_tarfile_reads(tmp_path: Path) -> None:
    """No header means one file here and another elsewhere, in programs that check packages or show them."""
    source = random.Random(1)
    taken = 0
    for _ in range(1000):
        block = bytearray(header(b"selftest/input-0.bin", 600, mtime=b"14700000000\0"))
        for _ in range(source.randint(1, 3)):
            start = source.choice([0, 20, 100, 124, 130, 135, 148, 156, 157, 257, 263, 345, 500, source.randrange(512)])
            block[start] = source.choice([0, 32, 47, 48, 55, 120, 128, 255, source.randrange(256)])
        if source.random() < 0.9:
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
        content = bytes(block) + bytes(range(200)) * 3 + bytes(424) + entry(b"last", b"x") + END
        try:
            ours = read(packed(tmp_path / "a.tar.gz", content))
        except DamagedArchiveError:
            continue
        taken += 1
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                theirs = {member.name: archive.extractfile(member) for member in archive}
                found = {name: stream.read() for name, stream in theirs.items() if stream}
        except tarfile.ReadError:  # a time or an owner that is no number
            continue
        # tarfile ends a name at its first zero; such a name is nobody's here.
        assert ours == found or "\0" in "".join(ours)
    assert 100 < taken < 900


def test_needs_nothing_but_the_standard_library() -> None:
    printed(sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({tarballs.__file__!r})")
