"""Parts of the agent, held against other programs: Python's json, hashlib and statistics, numpy."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import TOOLCHAINS, build_probe, call, known_toolchain
from support.notebook import Notebook
from support.packages import FILE_NAMES, UNSOUND, changed, document, files_with, full_document, manifest

from edgedeploy.agent import build as agent_build
from edgedeploy.agent import shipped
from edgedeploy.agent.build import Product, agent_for, build_product
from edgedeploy.agent.recipe import agent_folder
from edgedeploy.package.archive import manifest_bytes
from edgedeploy.package.manifest import parse_manifest
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module", params=TOOLCHAINS)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with known_toolchain(request.param, tmp_path_factory.mktemp("probe")):
        yield build_probe(request.param).path


def parsed(probe: Path, documents: list[bytes], part: str = "json") -> list[str]:
    done = call(probe, part, stdin=b"".join(document.hex().encode() + b"\n" for document in documents))
    assert done.returncode == 0
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
        self.lines.append(text.partition(",")[0])


def test_each_part_of_a_build_that_takes_long_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_CACHE", str(tmp_path))  # nothing is built before
    product = Product("part.so", [agent_folder() / "sha256.cc"], ["-shared", "-s"], units=[])
    board, watched = load_board("local"), Watched()
    assert build_product(product, board, progress=watched).path.is_file()
    triple = board.triple
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
    said = ["a wheel has the agents of all profiles built in: make wheel"]
    assert watched.lines[1:] == ([] if carried else said)


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
            node: Any = content
            while True:
                key = generator.choice(list(node) if isinstance(node, dict) else range(len(node)))
                if not isinstance(node[key], dict | list) or not node[key] or generator.random() < 0.2:
                    break
                node = node[key]
            other = generator.choice(strange)
            if isinstance(node, dict) and generator.random() < 0.2:
                node[generator.choice(["agent", "a/b", "model.so/x", "selftest", "x"])] = node.pop(key)
            else:
                node[key] = other
        text = json.dumps(content).encode()
        with suppress(ValueError):
            taken.append(manifest_bytes(parse_manifest(text)))
    assert len(taken) > 100
    assert not [line for line in parsed(probe, taken, "manifest") if line.startswith("refused")]


# What the agent does not read.
UNREAD = (
    *("model_sha256", "target", "versions", "linker", "build_key", "tuning_records", "disabled_passes", "set_inputs"),
    *("memory", "checked", "quantisation", "elf_class", "float_abi", "libraries", "cpu", "features"),
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
    assert "is no name of a file" in said or "there can be no file" in said


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_003])
def test_sha256_is_hashlibs(probe: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert call(probe, "sha256", stdin=content).stdout.decode() == hashlib.sha256(content).hexdigest()


def test_narrowing_to_float16_rounds_as_numpy_does(probe: Path) -> None:
    generator = np.random.default_rng(0)
    patterns = generator.integers(0, 2**32, 200_000, dtype=np.uint32)
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
