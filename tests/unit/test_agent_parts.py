"""Parts of the agent, held against other programs: Python, numpy, and OpenCV, whose images it reads alike."""

import hashlib
import json
import random
import statistics
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import call, need_what_it_lacks
from support.commands import Notebook
from support.fuzzing import somewhere
from support.packages import FILE_NAMES, UNSOUND, changed, document, files_with, full_document, manifest

from edgedeploy.agent import build as agent_build
from edgedeploy.agent import shipped
from edgedeploy.agent.build import Product, agent_for, build_product
from edgedeploy.agent.recipe import AGENT
from edgedeploy.errors import InputError
from edgedeploy.package.archive import manifest_bytes
from edgedeploy.package.manifest import parse_manifest
from edgedeploy.target.board import load_board
from edgedeploy.vision.image import read_image

pytestmark = pytest.mark.compiles


def parsed(probe: Path, documents: list[bytes], part: str = "json") -> list[str]:
    done = call(probe, part, stdin=b"".join(document.hex().encode() + b"\n" for document in documents))
    assert done.returncode == 0, done.stderr.decode()
    need_what_it_lacks(done.stdout.decode())
    lines = done.stdout.decode().split("\n")[:-1]
    assert len(lines) == len(documents)
    return lines


class Watched(Notebook):
    """Keeps the names of stages."""

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        self.lines.append(title)
        yield

    def note(self, text: str) -> None:
        self.lines.append(text.removesuffix(" (cached for later runs)").partition(",")[0])


def test_each_part_of_a_build_that_takes_long_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_CACHE", str(tmp_path))  # nothing is built before
    product = Product("part.so", [AGENT / "sha256.cc"], ["-shared", "-s"], units=[])
    triple, watched = load_board("local").triple, Watched()
    assert build_product(product, load_board("local"), progress=watched).path.is_file()
    assert watched.lines == [
        f"building part.so for {triple}",
        "try zig (at first use it builds its C and C++ libraries, for minutes)",
        "compiling sha256.cc",
        f"link part.so for {triple} (can take zig minutes at first)",
    ]
    assert watched.counts == {f"compile part.so for {triple}": (1, 1)}


@pytest.mark.parametrize("carried", [False, True], ids=["checkout", "wheel"])
def test_compiling_an_agent_names_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: bool) -> None:
    monkeypatch.setenv("EDGEDEPLOY_CACHE", str(tmp_path))  # nothing is built before
    monkeypatch.setattr(shipped, "there_are", lambda: carried)
    monkeypatch.setattr(shipped, "find", lambda *_: None)
    monkeypatch.setattr(agent_build, "_make", lambda target, *_: target.touch())
    watched = Watched()
    for _ in range(2):
        agent_for(load_board("local"), progress=watched)
    assert watched.lines[1:] == ["a wheel has the agents of all profiles built in: make wheel"] * (not carried)


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@settings(max_examples=20, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=20))
def test_json_comes_back_as_it_was(probe: Path, values: list[object]) -> None:
    for dumped in ({"ensure_ascii": True}, {"ensure_ascii": False, "indent": 1}):
        texts = [json.dumps(value, **dumped).encode() for value in values]
        for value, line in zip(values, parsed(probe, texts), strict=True):
            assert json.loads(line) == value


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"{", b"[1,]", b"{,}", b'{"a":1,}', b"[1 2]", b"1 1", b"nul", b"True", b"'a'", b"{a:1}"),
        *(b"01", b"+1", b".5", b"1.", b"1e", b"-", b"0x1", b"NaN", b"Infinity", b"1e999", b"-1e999"),
        *(b'"', b'"\x01"', b'"\\x"', b'"\\u12"', b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\u0041"'),
        *(b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b"\xef\xbb\xbf1"),
        *(b"--1", b"1-2", b"-01", b"1.e2", b"1 .5", b"tr1ue", b"[1:2]", b"-Infinity", b'{"a":1 2}', b"]", b'"a\\'),
        *(b'{"a": 1, "\\u0061": 2}', b'[{}, {"b": [1], "a": {"c": 1, "c": 1}}]', b"[" * 33 + b"]" * 33),
        *(b'{"a": 1, "a": 2}', b"[" * 34 + b"]" * 34, b"[" * 100_000, b'{"a":' * 50_000, b"// x\n1", b"\x001"),
    ],
)
def test_what_is_not_json_is_refused(probe: Path, text: bytes) -> None:
    assert parsed(probe, [text])[0].startswith("refused: byte ")


def test_json_may_be_nested_32_deep(probe: Path) -> None:
    deep = b"[" * 32 + b"1" + b"]" * 32
    assert parsed(probe, [deep]) == [deep.decode()]


def test_damaged_manifests_are_refused_or_sound_but_never_crash(probe: Path) -> None:
    generator = random.Random(7)
    sound = manifest_bytes(manifest())
    assert parsed(probe, [sound], "manifest") == ["net"]
    damaged = []
    for _ in range(3000):
        text = bytearray(sound)
        for _ in range(generator.randint(1, 4)):
            at, kind = generator.randrange(len(text)), generator.randrange(3)
            if kind == 0:
                text[at] = generator.randrange(256)
            elif kind == 1:
                del text[at : at + generator.randint(1, 30)]
            else:
                text[at:at] = generator.choice([b"-1", b"99999999999999999999", b"[", b"{", b'"', b"null", b"../"])
        damaged.append(bytes(text))
    assert any(line.startswith("refused") for line in parsed(probe, damaged, "manifest"))


def test_a_manifest_that_edgedeploy_takes_is_one_that_the_agent_takes(probe: Path) -> None:
    """What `package verify` calls sound, no board refuses for its manifest."""
    generator = random.Random(8)
    strange: list[Any] = [None, True, 0, 1, -1, 2**31, 2**63, 1e-3, -0.5, 1e300]
    strange += ["", "x", "../x", "agent", [], [[[[[[1]]]]]], {}, [4]]
    taken = []
    for _ in range(3000):
        content = document()
        for _ in range(generator.randint(1, 2)):
            node, key = somewhere(content, generator)
            if isinstance(node, dict) and generator.random() < 0.2:
                node[generator.choice(["agent", "a/b", "model.so/x", "selftest", "x"])] = node.pop(key)
            else:
                node[key] = generator.choice(strange)
        with suppress(ValueError):
            taken.append(manifest_bytes(parse_manifest(json.dumps(content).encode())))
    assert len(taken) > 100
    assert not [line for line in parsed(probe, taken, "manifest") if line.startswith("refused")]


# What the agent does not read.
UNREAD = (
    *("model_sha256", "target", "versions", "linker", "build_key", "tuning_records", "disabled_passes", "set_inputs"),
    *("memory", "checked", "quantisation", "half", "elf_class", "float_abi", "libraries", "cpu", "features"),
    *("below", "usual", "spread", "spread_to", ("usage", "input", "name"), ("usage", "input", "kind")),
)


def is_manifest(text: bytes) -> bool:
    """Whether edgedeploy takes it."""
    with suppress(ValueError):
        return bool(parse_manifest(text))
    return False


def retyped(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """A document with one value of another type, and the path of that, for each value and type."""
    members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(members):
        for inner, _ in [*retyped(value, (*path, key))]:
            yield inner, node
        for other in (str(value), value == 1, [value], {"x": value}, 1.5, float(value) if type(value) is int else None):
            node[key] = other
            yield (*path, key), node
        node[key] = value


def test_what_is_of_another_type_is_refused_by_both(probe: Path) -> None:
    content = full_document()
    assert parsed(probe, [json.dumps(content).encode()], "manifest") == ["net"]
    assert parse_manifest(json.dumps(content).encode())
    cases = [(path, json.dumps(content).encode()) for path, _ in retyped(content)]
    assert len(cases) > 500
    for (path, text), line in zip(cases, parsed(probe, [text for _, text in cases], "manifest"), strict=True):
        is_sound, is_refused = is_manifest(text), line.startswith("refused")
        is_read = path[:3] not in UNREAD and not any(each in UNREAD for each in path)
        assert is_refused != is_sound or not (is_read or is_refused), (path, line, text)


@pytest.mark.parametrize("field", ["model", "weights", "x\x1b]0;\x9b\u202e"])
def test_what_the_agent_says_of_a_manifest_moves_no_cursor(probe: Path, field: str) -> None:
    said = said_of(probe, changed(field, "\x1b[31m\x9b2J\u202e\x07x\ny"))
    assert said.startswith("refused")
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
    assert "\\x1b" in said


def said_of(probe: Path, manifest: bytes) -> str:
    """What the agent says of one manifest, in as many lines as the names in that have."""
    return call(probe, "manifest", stdin=manifest.hex().encode() + b"\n").stdout.decode()


# What concerns those alone who build packages, or what the agent does not read.
OTHERS = ("targ", "more threads", "two cases", "a version", "more files")


@pytest.mark.parametrize("what", [what for what in UNSOUND if not any(other in what for other in OTHERS)])
def test_the_agent_refuses_a_manifest_with(probe: Path, what: str) -> None:
    field, value, _ = UNSOUND[what]
    assert said_of(probe, changed(field, value)).startswith("refused")


OUTSIDE = ("a/../b", ".", "..", "a//b", "A", "", "a/", ".a")


@pytest.mark.parametrize("name", [*FILE_NAMES, *OUTSIDE], ids=repr)
def test_the_agent_refuses_a_file_that_cannot_lie_beside_the_others(probe: Path, name: str) -> None:
    said = said_of(probe, changed("files", files_with(name)))
    assert "is not a file name" in said or "there can be no file" in said


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_003])
def test_sha256_is_hashlibs(probe: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert call(probe, "sha256", stdin=content).stdout.decode() == hashlib.sha256(content).hexdigest()


def test_narrowing_to_float16_rounds_as_numpy_does(probe: Path) -> None:
    patterns = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    near = np.concatenate([halves, np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(-np.inf))])
    middle = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    values = np.concatenate([patterns.view(np.float32), near, middle])
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore", invalid="ignore"):
            wide = values.astype(dtype)
            wanted = wide.astype(np.float16)
        found = np.frombuffer(call(probe, f"{wide.dtype}-to-float16", stdin=wide.tobytes()).stdout, np.float16)
        np.testing.assert_array_equal(found, wanted)


def test_widening_float16_is_exact(probe: Path) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = np.frombuffer(call(probe, "float16-to-float32", stdin=halves.tobytes()).stdout, np.float32)
    np.testing.assert_array_equal(found, halves.astype(np.float32))


@pytest.mark.parametrize("runs", [[1.5], [3.0, 1.0], [2.0, 9.0, 4.0, 4.5]])
def test_statistics_are_those_of_python(probe: Path, runs: list[float]) -> None:
    found = json.loads(call(probe, "statistics", stdin=" ".join(map(str, runs)).encode()).stdout)
    assert found["runs_ms"] == runs
    assert (found["min_ms"], found["max_ms"]) == (min(runs), max(runs))
    assert found["median_ms"] == pytest.approx(statistics.median(runs))
    assert found["mean_ms"] == pytest.approx(statistics.fmean(runs))
    assert found["std_ms"] == pytest.approx(statistics.pstdev(runs))


@pytest.mark.parametrize(
    ("have", "needed", "enough"),
    [("2.31", "2.28", "1"), ("2.28", "2.28", "1"), ("2.4", "2.28", "0"), ("2.36", "2.4", "1"), ("3.0", "2.40", "1")],
)
def test_versions_are_compared_part_by_part(probe: Path, have: str, needed: str, enough: str) -> None:
    assert call(probe, "version-is-at-least", have, needed).stdout.decode() == enough


def test_uploaded_files_stay_in_the_work_folder(probe: Path) -> None:
    names = [b"lib.so", b"../lib.so", b"/etc/cron.d/x", b"..", b"a/..", b"", b"a/"]
    lines = parsed(probe, names, "work-path")
    assert lines[:3] == ["/work/lib.so", "/work/lib.so", "/work/x"]
    assert all(line.startswith("refused") for line in lines[3:])


# Image files as the agent reads them on a board, held against OpenCV.

GENERATOR = np.random.default_rng(7)
SMOOTH = cv2.resize(GENERATOR.integers(0, 256, (9, 13, 3), np.uint8), (197, 133), interpolation=cv2.INTER_CUBIC)
GREY = SMOOTH[:, :, 1]
WIDE = GENERATOR.integers(0, 2**16, (20, 30, 3), np.uint16)
TRANSPARENT = np.dstack([SMOOTH, GREY])


def encoded(suffix: str, image: np.ndarray, *settings: int) -> bytes:
    done, content = cv2.imencode(suffix, image, list(settings))
    assert done
    return content.tobytes()


def tiff(orientation: int, order: str = "<") -> bytes:
    """EXIF data of two tags, the second of which is the orientation."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    width = struct.pack(order + "HHII", 0x0100, 4, 1, 640)
    turned = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return head + struct.pack(order + "H", 2) + width + turned + bytes(4)


def turned_jpeg(orientation: int, order: str = "<") -> bytes:
    content = encoded(".jpg", SMOOTH)
    exif = b"Exif\0\0" + tiff(orientation, order)
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + content[2:]


def turned_png(orientation: int) -> bytes:
    content, exif = encoded(".png", SMOOTH), b"eXIf" + tiff(orientation)
    chunk = struct.pack(">I", len(exif) - 4) + exif + struct.pack(">I", zlib.crc32(exif))
    return content[:33] + chunk + content[33:]  # after the header


def interlaced_png() -> bytes:
    """Eight rows of eight pixels of 16 levels of grey, in the seven passes of Adam7."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    levels = GREY[:8, :8] >> 4
    content = b""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    for y, x, down, right in passes:
        for row in levels[y::down, x::right]:
            pairs = np.pad(row, (0, len(row) % 2)).reshape(-1, 2)
            content += bytes([0, *(pairs[:, 0] * 16 + pairs[:, 1]).tolist()])
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 4, 0, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


SAMPLINGS = [getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{each}") for each in (444, 422, 420, 440)]
FILES = {
    **{
        f"jpeg {sampling:x} {'progressive' if progressive else 'baseline'}": encoded(
            ".jpg", SMOOTH, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive
        )
        for sampling in SAMPLINGS
        for progressive in (0, 1)
    },
    "jpeg grey": encoded(".jpg", GREY),
    "jpeg of restarts": encoded(".jpg", SMOOTH, cv2.IMWRITE_JPEG_RST_INTERVAL, 3),
    **{f"jpeg turned {each}": turned_jpeg(each) for each in range(10)},
    "jpeg turned, big end": turned_jpeg(6, ">"),
    "png": encoded(".png", SMOOTH),
    "png grey": encoded(".png", GREY),
    "png black and white": encoded(".png", GREY, cv2.IMWRITE_PNG_BILEVEL, 1),
    "png transparent": encoded(".png", TRANSPARENT),
    "png of 16 bits": encoded(".png", WIDE),
    "png interlaced": interlaced_png(),
    "png turned": turned_png(6),
    "bmp": encoded(".bmp", SMOOTH),
    "bmp with a palette": encoded(".bmp", GREY),
    "bmp of 32 bits": encoded(".bmp", TRANSPARENT),
    "ppm": encoded(".ppm", SMOOTH),
    "pgm": encoded(".pgm", GREY),
    "ppm with a comment": b"P6 # of a pixel\n1\t1\n255\n\x01\x02\x03",
}


def seen(probe: Path, contents: list[bytes]) -> list[str]:
    """For each content the size and the hash of its pixels, or why it is refused."""
    return parsed(probe, contents, "image")


def by_opencv(content: bytes) -> str | None:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    return image if image is None else described(image)


def described(image: np.ndarray) -> str:
    return f"{image.shape[0]} {image.shape[1]} {hashlib.sha256(image.tobytes()).hexdigest()}"


def test_pixels_are_those_of_opencv_bit_for_bit(probe: Path) -> None:
    found = dict(zip(FILES, seen(probe, list(FILES.values())), strict=True))
    assert found == {name: by_opencv(content) for name, content in FILES.items()}


def test_photographs_have_the_pixels_that_opencv_decodes(probe: Path, shared: Path) -> None:
    contents = [path.read_bytes() for path in sorted((shared / "images").glob("*.jpg"))]
    assert len(contents) > 10
    assert seen(probe, contents) == [by_opencv(content) for content in contents]


JPEG, PNG = encoded(".jpg", SMOOTH), FILES["png"]


def with_size(jpeg: bytes, height: int, width: int) -> bytes:
    """A JPEG that says that it is of another size."""
    place = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:place] + struct.pack(">HH", height, width) + jpeg[place + 4 :]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"hello", "JPEG, PNG, BMP, PPM and PGM are read"),
        (JPEG[: len(JPEG) // 2], "it ends too early"),
        (JPEG[:-2], "it ends too early"),
        (JPEG[:30], "it ends too early"),
        (with_size(JPEG, 65500, 65500), "too large"),
        (with_size(JPEG, 0, 5), "cannot decode"),
        (PNG[: len(PNG) // 2], "it ends too early"),
        (PNG[:200] + b"\xff" + PNG[201:], "cannot decode"),
        (PNG[:16] + struct.pack(">I", 1 << 30) + PNG[20:], "cannot decode"),
        (b"P6 100000 100000 255\n", "too large"),
        (b"P6 2 2 255\n\0\0\0", "it ends too early"),
        (b"P5 2 2 65535\n" + bytes(8), "255 levels"),
        (b"P6 0 2 255\n", "not positive"),
        (FILES["bmp"][:100], "it ends too early"),
        (FILES["bmp"][:18] + struct.pack("<ii", 1 << 30, 1 << 30) + FILES["bmp"][26:], "too large"),
        (FILES["bmp"][:28] + b"\x01" + FILES["bmp"][29:], "1 bits"),
    ],
)
def test_what_is_damaged_or_too_large_is_refused(probe: Path, content: bytes, why: str) -> None:
    [line] = seen(probe, [content])
    assert line.startswith("refused: ")
    assert why in line


def of_scans(count: int, scan: bytes = b"") -> bytes:
    """A progressive JPEG with so many scans, of which the last ones are all the same."""
    content = encoded(".jpg", SMOOTH, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    before, last = content[: content.rindex(b"\xff\xda")], content[content.rindex(b"\xff\xda") : -2]
    return before + (scan or last) * (count - before.count(b"\xff\xda")) + content[-2:]


# A comment of what would be scans elsewhere.
COMMENT = b"\xff\xfe" + struct.pack(">H", 2 + 2 * 500) + b"\xff\xda" * 500


def test_a_jpeg_of_more_scans_than_programs_write_is_refused_by_the_agent_and_here(probe: Path, tmp_path: Path) -> None:
    for content, is_read in (
        (of_scans(10), True),
        (JPEG[:2] + COMMENT + JPEG[2:], True),
        (of_scans(101), False),
        (of_scans(8000), False),
        (of_scans(101, b"\xff\xff\xff\xda\0\x08\1\1\0\0\x3f\0\xff\xd0\xff\0"), False),
        (JPEG[:2] + COMMENT + of_scans(101)[2:], False),
    ):
        (tmp_path / "image.jpg").write_bytes(content)
        [line] = seen(probe, [content])
        if is_read:
            assert line == described(read_image(tmp_path / "image.jpg"))
        else:
            assert "it has too many scans" in line
            with pytest.raises(InputError, match="it has too many scans"):
                read_image(tmp_path / "image.jpg")


def test_no_damage_ends_the_agent(probe: Path) -> None:
    """Bytes at random places of sound files are changed: what comes is an image or a refusal."""
    generator = random.Random(3)
    small = cv2.resize(SMOOTH, (40, 24))
    sound = [encoded(suffix, small) for suffix in (".jpg", ".png", ".bmp", ".ppm")]
    sound += [turned_jpeg(3), encoded(".jpg", small, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)]
    changed = []
    for content in sound * 60:
        damaged = bytearray(content)
        for _ in range(generator.randint(1, 8)):
            # Mostly in headers, where sizes stand.
            place = generator.randrange(min(len(damaged), generator.choice([64, 700, 10**9])))
            damaged[place] = generator.randrange(256)
        changed.append(bytes(damaged))
    lines = seen(probe, changed)
    assert any(line.startswith("refused") for line in lines)
    assert any(not line.startswith("refused") for line in lines)


def test_a_jpeg_is_written_as_opencv_writes_it(probe: Path) -> None:
    height, width = SMOOTH.shape[:2]
    done = call(probe, "jpeg", 90, stdin=f"{height} {width}\n".encode() + SMOOTH.tobytes())
    assert done.stdout == encoded(".jpg", SMOOTH, cv2.IMWRITE_JPEG_QUALITY, 90)
