"""Hostile tuning records: whatever is in the files, the answer is records or one of our errors, soon and in little
memory."""

from __future__ import annotations

import json
import random
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgedeploy.tune.content import RUNS, TRIALS, Content
from edgedeploy.tune.database import RECORDS, WORKLOADS, record_line, trace_in
from edgedeploy.tune.proving import prover
from fuzzing import damaged, peak_of, survive
from tuning_records import TARGET, filled, header, product, scheduled, trial
from tvm.s_tir import Schedule

from edgedeploy.errors import EdgedeployError, RecordsError
from edgedeploy.tune.events import RunEnded
from edgedeploy.tune.exchange import export, import_records, merge, prune
from edgedeploy.tune.header import HEADER
from edgedeploy.tune.overview import overview
from edgedeploy.tune.records import Records

FILES = (HEADER, WORKLOADS, RECORDS, TRIALS, RUNS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of small records of every kind."""
    folder = filled(tmp_path_factory.mktemp("records"))
    with Records.open(folder, header()) as records:
        records.note(RunEnded(run="first", results=[], seconds=1.0))
    return {name: (folder / name).read_bytes() for name in FILES}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_bytes(files[name])
    return folder


def use(folder: Path, elsewhere: Path, case: int) -> None:
    """Read records, and do one of the things that are done with them; only our errors may come of it.

    Raises:
        RecordsError: they cannot be read.
    """

    def pack() -> None:
        export(folder, elsewhere / "a.tar.gz")
        import_records(elsewhere / "a.tar.gz", elsewhere / "new")

    def add() -> None:
        with Records.open(folder, header()) as records:
            records.add(product(32), trial(9, 1.0, module=product(32)))

    def look() -> None:
        with Records.open(folder) as records:
            for workload in records.workloads():
                records.trials(workload)
            records.best(product(32))
        overview(Content.read(folder).entries)

    survive(look)
    others = (pack, add, lambda: merge([folder], elsewhere / "merged"), lambda: prune(folder, 1))
    survive(others[case % len(others)])
    Records.open(folder)


def use_all(variants: Iterable[dict[str, bytes]], tmp_path: Path) -> int:
    """Use records in many variants; returns how often they could be used."""
    useful = 0
    for case, files in enumerate(variants):
        folder = written(tmp_path / f"{case % 8}", files)
        try:
            use(folder, tmp_path / "elsewhere" / f"{case % 50}", case)
            useful += 1
        except EdgedeployError:
            pass
    return useful


def damaged_variants(sound: dict[str, bytes], cases: int, seed: int) -> Iterator[dict[str, bytes]]:
    """Files of records, some of them damaged."""
    generator = np.random.default_rng(seed)
    for _ in range(cases):
        names = generator.choice(FILES, size=int(generator.integers(1, 3)), replace=False)
        yield {**sound, **{str(name): damaged(sound[str(name)], generator) for name in names}}


def test_damaged_files_end_in_our_errors(sound: dict[str, bytes], tmp_path: Path) -> None:
    useful = use_all(damaged_variants(sound, 200, seed=1), tmp_path)
    assert 20 < useful < 180  # what is torn is repaired, what is damaged refused


@pytest.mark.slow
def test_thousands_of_damaged_files_end_in_our_errors(sound: dict[str, bytes], tmp_path: Path) -> None:
    assert 500 < use_all(damaged_variants(sound, 5000, seed=2), tmp_path) < 4500


def values(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    if path:
        yield path
    if isinstance(value, list | dict):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from values(below, (*path, key))


STRANGE = [None, [], {}, "", "b0", "l2", '"', '"x"', True, -1, 0, 1.5, 1e300, 2**31, 2**63, -(2**63), "main", "\0", "é"]


def strange(value: Any, source: random.Random) -> Any:
    """A JSON value with some of its parts replaced, removed, doubled or put in each other's place."""
    changed = json.loads(json.dumps(value))
    for _ in range(source.randint(1, 3)):
        paths = list(values(changed))
        if not paths:
            break
        *way, last = source.choice(paths)
        node = changed
        for key in way:
            node = node[key]
        other = changed
        for key in source.choice(paths):
            other = other[key]
        match source.randrange(5):
            case 0:
                del node[last]
            case 1 if isinstance(node, list):
                node.insert(last, node[last])
            case 2:
                node[last] = json.loads(json.dumps(other))
            case 3 if type(node[last]) is int:
                node[last] = source.choice([0, 1, -1, 7, 2**31 - 1, 2**40])
            case _:
                node[last] = source.choice(STRANGE)
    return changed


def strange_variants(sound: dict[str, bytes], cases: int, seed: int) -> Iterator[dict[str, bytes]]:
    """Files of records with a line that is JSON but says something else."""
    source = random.Random(seed)
    for _ in range(cases):
        name = source.choice(FILES)
        lines = [sound[name]] if name == HEADER else sound[name].splitlines()
        chosen = source.randrange(len(lines))
        lines[chosen] = json.dumps(strange(json.loads(lines[chosen]), source)).encode()
        yield {**sound, name: b"".join(line + b"\n" for line in lines)}


def test_strange_files_end_in_our_errors(sound: dict[str, bytes], tmp_path: Path) -> None:
    assert 20 < use_all(strange_variants(sound, 200, seed=1), tmp_path) < 180


@pytest.mark.slow
def test_thousands_of_strange_files_end_in_our_errors(sound: dict[str, bytes], tmp_path: Path) -> None:
    assert 500 < use_all(strange_variants(sound, 5000, seed=2), tmp_path) < 4500


def test_damaged_archives_end_in_our_errors(sound: dict[str, bytes], tmp_path: Path) -> None:
    export(written(tmp_path / "a", sound), tmp_path / "a.tar.gz")
    packed = (tmp_path / "a.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "plain.tar.gz", "w:gz", compresslevel=0, format=tarfile.USTAR_FORMAT) as archive:
        for name in FILES:
            archive.add(tmp_path / "a" / name, name)
    plain = (tmp_path / "plain.tar.gz").read_bytes()
    generator = np.random.default_rng(3)
    for case in range(300):
        path = tmp_path / "damaged.tar.gz"
        path.write_bytes(damaged(plain if case % 2 else packed, generator))
        survive(lambda path=path: import_records(path, tmp_path / "new"))  # type: ignore[misc]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * (4 << 20),
        b"[" * (4 << 20) + b"\n",
        b"[0," + b"1," * (2 << 20) + b"1]\n",
        b'{"format":1,"seconds":[' + b"1," * (2 << 20) + b"1]}\n",
        b"9" * (4 << 20) + b"\n",
        b"\n" * (4 << 20),
        b'"' + b"\\u0000" * (1 << 19) + b'"\n',
    ],
    ids=["open", "deep", "long", "many", "huge", "empty", "escaped"],
)
def test_what_claims_a_lot_takes_little(sound: dict[str, bytes], tmp_path: Path, name: str, content: bytes) -> None:
    folder = written(tmp_path / "a", {**sound, name: content})
    most = 4 * len(content) + (4 << 20)
    assert peak_of(lambda: Content.read(folder)) < most
    assert peak_of(lambda: Records.open(folder)) < most


def apply_strange_traces(cases: int, seed: int) -> tuple[int, int]:
    """Apply traces that say something else; returns how many could be applied, and how many crashed the prover."""
    tiled = Schedule(product())
    rows = tiled.get_loops(tiled.get_sblock("C"))[0]
    tiled.split(rows, tiled.sample_perfect_tile(rows, 2, 64, [2, 8]))
    tiled.annotate(tiled.get_sblock("root"), "meta_schedule.parallel", 4)
    sound = [
        json.loads(record_line(0, product(), schedule.trace, [1e-3], TARGET))[1]
        for schedule in (tiled, scheduled(product()))
    ]
    source = random.Random(seed)
    applied = crashed = 0
    with ExitStack() as stack:
        helper = stack.enter_context(prover())
        for _ in range(cases):
            line = json.dumps([0, strange(source.choice(sound), source)]).encode()
            try:
                trace_in(line, product(), [1e-3], helper)
                applied += 1
            except RecordsError as error:
                if "crashes TVM" in str(error):
                    crashed += 1
                    stack.close()
                    helper = stack.enter_context(prover())
    return applied, crashed


def test_strange_traces_end_in_our_errors() -> None:
    applied, _ = apply_strange_traces(100, seed=1)
    assert 5 < applied < 95


@pytest.mark.slow
def test_thousands_of_strange_traces_end_in_our_errors() -> None:
    applied, crashed = apply_strange_traces(2000, seed=2)
    assert applied > 100
    assert crashed > 0  # or the other process is needed no more
