"""What `edgedeploy predict` reads, samples and sums up, on records that are made by hand; and what it refuses."""

import ctypes
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arm_engines_tables import BEGIN, BEGIN_OF_BYTES, BEGIN_OF_HALF, END, PUBLISHED, Row, page, tables
from conftest import Command
from cycles import NETWORKS
from published import NAMES as RUN_BY_NCNN
from support.commands import executable, output_of, printed, refusal, refused_alone

from edgedeploy.errors import InputError, OutputError, UnsupportedError
from edgedeploy.model.quantised import Half
from edgedeploy.predicting.peers import Key, PeerPrediction, PeerResult, PeerResults
from edgedeploy.predicting.prediction import Cycles, Executed, Prediction, executed, miss_costs, priced
from edgedeploy.predicting.record import (
    FEWEST,
    LEAD,
    MEASURED,
    MISSES,
    RUNTIME,
    Block,
    Mapping,
    Ownership,
    Record,
    exported_functions,
    owners,
    read_record,
    windows,
)
from edgedeploy.predicting.tools import NATIVE, Llvm, Means, Products, plain, products, recorder, recording_emulator
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.toolchain import c_compiler, link_shared, run_tool

NOP = bytes.fromhex("1f2003d5")
AGENT, LIBRARY, OTHER = Path("/agent"), Path("/net/model.so"), Path("/lib/libm.so.6")


def record_of(
    runs: Sequence[tuple[int, int]], lengths: Sequence[int], mappings: Sequence[Mapping] = (), library: Path = LIBRARY
) -> Record:
    blocks = [Block(place << 12, NOP * length) for place, length in enumerate(lengths)]
    return Record(blocks, np.array(runs, np.int64), mappings, AGENT, library)


@pytest.fixture
def llvm() -> Llvm:
    try:
        return Llvm.found()
    except UnsupportedError as error:
        pytest.skip(str(error))


def test_what_the_recorder_writes_is_read(tmp_path: Path) -> None:
    misses = " ".join(map(str, range(len(MISSES))))
    (tmp_path / "blocks").write_text(
        f"block 7 5500001000 {misses} 1f2003d51f2003d5\nblock 3 5500002000 {misses} c0035fd6\n"
        "file 5500000000 5500004000 1000 /a folder/model.so\n"
    )
    np.array([[7, 2], [3, 1], [7, 5]], np.uint32).tofile(tmp_path / "trace")
    record = read_record(tmp_path, agent=AGENT, library=LIBRARY)
    assert [(block.address, block.length) for block in record.blocks] == [(0x5500001000, 2), (0x5500002000, 1)]
    assert record.blocks[0].misses == tuple(range(len(MISSES)))
    assert record.runs.tolist() == [[0, 2], [1, 1], [0, 5]]
    assert record.instructions_of_runs.sum() == 2 * 2 + 1 + 2 * 5
    assert record.mappings == [Mapping(0x5500000000, 0x5500004000, 0x1000, Path("/a folder/model.so"))]


def test_an_agent_in_a_linked_folder_is_known_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "link").symlink_to("cache")
    agent = tmp_path / "cache/agent"
    none = " ".join("0" * len(MISSES))
    (tmp_path / "blocks").write_text(f"block 0 1000 {none} 1f2003d5\nfile 1000 2000 0 {agent}\n")
    np.array([[0, 1]], np.uint32).tofile(tmp_path / "trace")
    record = read_record(tmp_path, agent=tmp_path / "link/agent", library=LIBRARY)
    assert record.places() == [(record.agent, 0)]


def test_a_record_of_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "blocks").write_text("")
    (tmp_path / "trace").write_bytes(b"")
    with pytest.raises(UnsupportedError, match="nothing was recorded"):
        read_record(tmp_path, agent=AGENT, library=LIBRARY)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("fmla v0.4s, v1.4s, v2.s[3]", Products(floats=4)),
        ("fmls v0.2s, v1.2s, v2.2s", Products(floats=2)),
        ("fmla v0.8h, v1.8h, v2.h[0]", Products(halves=8)),
        ("fmls v0.4h, v1.4h, v2.4h", Products(halves=4)),
        ("fmadd h0, h1, h2, h3", Products(halves=1)),
        ("fmadd s0, s1, s2, s3", Products(floats=1)),
        ("fmul v0.4s, v1.4s, v2.4s", Products()),
        ("sdot v0.4s, v1.16b, v2.4b[1]", Products(integers=16)),
        ("smull v0.8h, v1.8b, v2.8b", Products(integers=8)),
        ("smlal2 v0.8h, v1.16b, v2.16b", Products(integers=8)),
        ("umlal v0.4s, v1.4h, v2.h[7]", Products(integers=4)),
        ("sadalp v0.4s, v1.8h", Products()),
        ("smull v0.2d, v1.2s, v2.2s", Products()),  # of 32 bits, as requantisation has it
        ("add v0.4s, v1.4s, v2.4s", Products()),
        ("nop", Products()),
    ],
)
def test_products_of_instructions(instruction: str, expected: Products) -> None:
    assert products(instruction) == expected


@pytest.mark.parametrize(
    "line", ["svc #0", "dmb ish", "mrs x0, TPIDR_EL0", "prfm pldl1keep, [x0]", "ldaddal w0, w1, [x2]"]
)
def test_what_has_no_cycles_in_models_is_a_nop(line: str) -> None:
    assert plain(line.replace(" ", "\t", 1)) == "nop"


def test_other_instructions_stay(llvm: Llvm) -> None:
    code = bytes.fromhex("20cc224e" + "c0035fd6" + "00000000")  # the last one is none
    assert llvm.disassembled([Block(0, code), Block(0, NOP)]) == [["fmla v0.4s, v1.4s, v2.4s", "ret", "nop"], ["nop"]]


def test_what_runs_belongs_to_the_function_that_was_entered_last(tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    (tmp_path / "model.c").write_text(
        "__attribute__((noinline)) static int body(int x) { return x * 3; }\n"
        'int fused(int x) __asm__("__tvm_ffi_fused_conv2d_relu_scheduled");\n'
        "int fused(int x) { return body(x) + 1; }\n"
        'int mean(int x) __asm__("__tvm_ffi_mean");\n'
        "int mean(int x) { return x / 4; }\n"
        "int other(int x) { return x; }\n"
    )
    link_shared([tmp_path / "model.c"], library, load_board("local"))
    entries = {name: offset for offset, name in exported_functions(library).items()}
    assert sorted(entries) == ["fused_conv2d_relu", "mean"]
    places = {"agent": 0x1000, "libm": 0x900000, "body": 0x100000 + max(entries.values()) + 64}
    places |= {"fused": 0x100000 + entries["fused_conv2d_relu"], "mean": 0x100000 + entries["mean"]}
    order = ["agent", "fused", "body", "libm", "body", "agent", "body", "agent", "libm", "mean", "libm", "fused"]
    names = list(places)
    blocks = [Block(address, NOP) for address in places.values()]
    runs = np.array([[names.index(name), 1] for name in order], np.int64)
    mappings = [Mapping(0x1000, 0x2000, 0, AGENT), Mapping(0x100000, 0x200000, 0, library)]
    record = Record(blocks, runs, [*mappings, Mapping(0x900000, 0xA00000, 0, OTHER)], AGENT, library)
    ownership = owners(record)
    fused, mean = "fused_conv2d_relu", "mean"
    assert [ownership.names[owner] for owner in ownership.runs] == [
        *[RUNTIME, fused, fused, fused, fused],
        *[RUNTIME, fused, RUNTIME, RUNTIME, mean, mean, fused],
    ]
    assert dict(zip(ownership.names, ownership.calls, strict=True)) == {RUNTIME: 0, fused: 2, mean: 1}


def test_windows_lie_at_even_distances_in_each_function() -> None:
    """Ten functions' turns of a loop of 20 instructions, and one of another function between them."""
    runs = [(0, 1000), (1, 7)] * 10
    record = record_of(runs, [20, 50])
    found = windows(record, Ownership(["a", "b"], np.array([0, 1] * 10), [10, 10]), 100)
    assert {owner: len(each) for owner, each in found.items()} == {0: 98, 1: FEWEST}
    for owner, each in found.items():
        for window in each:
            assert set(window.measured) == {owner}
            assert sum(record.lengths[list(window.measured)]) <= MEASURED + 50
            assert sum(record.lengths[list(window.lead)]) <= LEAD + 50
    whole = [window for window in found[0] if len(window.measured) == MEASURED // 20]
    assert len(whole) > 85  # others end where the function does


def test_a_window_leads_with_what_ran_before_it() -> None:
    record = record_of([(0, 30), (1, 1), (2, 1)], [20, 100, 400])
    last = windows(record, Ownership(["a", "b"], np.array([0, 0, 1]), [1, 1]), 1)[1][0]
    assert last.measured == (2,)
    assert last.lead == (0,) * 20 + (1,)


def test_cycles_are_those_of_llvms_model(llvm: Llvm) -> None:
    """A chain of multiply-adds takes the latency of its sums, independent ones as many as start in a cycle."""
    chain = ["fmla v0.4s, v30.4s, v31.4s"] * 1000
    spread = [f"fmla v{place % 16}.4s, v30.4s, v31.4s" for place in range(1000)]
    a72, a76 = (llvm.cycles([chain, spread], model) for model in ("cortex-a72", "neoverse-n1"))
    assert a72[1] == pytest.approx(1000, rel=0.02)
    assert a76[1] == pytest.approx(500, rel=0.02)  # in models before LLVM 19 as many as on Cortex-A72
    assert a72[0] > 2000 < a76[0] + 1000


def test_cycles_are_summed_up_by_function(llvm: Llvm) -> None:
    board = load_board("rpi4")
    core = board.core_model
    fmla = bytes.fromhex("20cc224e")
    counts = (100, 10, 7, *[0] * (len(MISSES) - 4), 3)
    body, other = Block(0x100, fmla * 40, counts), Block(0x200, NOP * 10)
    record = Record([other, body], np.array([[0, 50], [1, 100], [0, 50]], np.int64), [], AGENT, LIBRARY)
    ownership = Ownership([RUNTIME], np.zeros(3, np.int64), [0])
    prediction = priced(executed(record, ownership, core.llvm, llvm), board, core)
    [only] = prediction.functions
    assert only.name == RUNTIME
    assert (only.instructions, only.floats, only.integers) == (5000, 4 * 4000, 0)
    assert only.bound == 4000
    costs = core.l2
    assert only.cycles.caches == 100 * costs.foreseen + 10 * costs.random
    assert only.cycles.stores == 7 * costs.store + 3 * core.memory.written_back
    assert only.cycles.memory == 0
    # All three runs are loops: the first of a block is never foreseen, nor is one of more than 32 turns.
    assert only.cycles.branches == 3 * core.branch
    assert prediction.ms == prediction.cycles.total / 1.8e6
    assert prediction.misses["memory_written_back"] == 3


def test_costs_have_the_names_of_what_is_counted() -> None:
    for name, levels in (("rpi4", ("l2", "memory")), ("rpi5", ("l2", "l3", "memory"))):
        core = load_board(name).core_model
        assert set(miss_costs(core)) == {each for each in MISSES if each.startswith(levels)}


def test_boards_without_a_confirmed_model_are_refused(command: Command) -> None:
    for board in ("rpi3", "rpi-armhf", "visionfive2", "local", "nuc-opencl"):
        err = refused_alone(command, UnsupportedError.exit_code, "predict", "digits", "--board", board)
        assert f"no cycles are predicted for board {board}" in err
        assert "rpi4, rpi5" in err


def test_32_bit_arm_is_refused_for_what_llvm_makes_of_it(command: Command, llvm: Llvm) -> None:
    """Independent multiply-adds of four floats: the core starts one in a cycle, in either state."""
    err = refusal(command, UnsupportedError.exit_code, "predict", "digits", "--board", "rpi-armhf")
    assert "in 32-bit state LLVM's Cortex-A72 multiplies twice as many floats" in err
    options = [llvm.mca, "-mcpu=cortex-a72", "-iterations=100", "-instruction-info=0", "-resource-pressure=0"]
    cycles = {}
    for triple, features, line in (
        ("aarch64", "+neon", "fmla v{0}.4s, v14.4s, v15.4s\n"),
        ("armv7a-linux-gnueabihf", "+neon,+vfp4", "vmla.f32 q{0}, q14, q15\n"),
    ):
        text = "".join(line.format(register) for register in range(13))
        said = printed(*options, f"-mtriple={triple}", f"-mattr={features}", input=text)
        cycles[triple] = int(said.partition("Total Cycles:")[2].split()[0])
    assert cycles["aarch64"] == pytest.approx(1300, rel=0.03)
    assert cycles["armv7a-linux-gnueabihf"] == pytest.approx(650, rel=0.03)


def test_more_threads_than_the_board_has_cores_are_refused(command: Command) -> None:
    err = refusal(command, InputError.exit_code, "predict", "digits", "--board", "rpi4", "--threads", "5")
    assert "rpi4 has 4 cores, too few for 5 threads" in err


def function(name: str = "conv", core: float = 1e6, ends: int = 0, **misses: float) -> Executed:
    return Executed(name, 1, 10**6, core, 0.0, ends, 2 * 10**6, 0, dict.fromkeys(MISSES, 0.0) | misses)


def priced_on(board: str, executed: Executed, threads: int = 1) -> Prediction:
    profile = load_board(board)
    return priced([executed], profile, profile.core_model, threads)


def cycles_of(executed: Executed, threads: int, board: str = "rpi4") -> Cycles:
    return priced_on(board, executed, threads).cycles


def test_threads_share_the_arithmetic() -> None:
    assert cycles_of(function(ends=100), 4) == Cycles(core=1e6 / 4, branches=100 * 15 / 4)


def test_the_peak_of_half_precision_is_twice_that_of_single() -> None:
    single = function()
    half = replace(single, floats=0, halves=single.floats)
    assert priced_on("rpi5", half).of_peak == priced_on("rpi5", single).of_peak / 2 > 0


def test_waiting_for_a_cache_is_shared_where_each_core_has_its_own() -> None:
    """Cortex-A72 cores share the second cache; those of Cortex-A76 share the third."""
    second, third = function(l2_foreseen=1000.0), function(l3_random=1000.0)
    assert cycles_of(second, 4, "rpi4").caches == cycles_of(second, 1, "rpi4").caches > 0
    assert cycles_of(second, 4, "rpi5").caches == cycles_of(second, 1, "rpi5").caches / 4 > 0
    assert cycles_of(third, 4, "rpi5").caches == cycles_of(third, 1, "rpi5").caches > 0


def test_memory_passes_lines_on_no_quicker_than_it_can() -> None:
    """64 bytes at 5.5 GB/s are 20.9 cycles of 1.8 GHz, more than what a foreseen line costs one thread."""
    assert cycles_of(function(memory_foreseen=1000.0), 4).memory == pytest.approx(1000 * 64 * 1.8 / 5.5)
    assert cycles_of(function(memory_random=1000.0), 4).memory == pytest.approx(1000 * 120 / 4)
    assert cycles_of(function(memory_written_back=1000.0), 4).stores == pytest.approx(1000 * 64 * 1.8 / 5.5)


@pytest.mark.parametrize(
    "executed", [function(core=100.0, memory_foreseen=1000.0), function(RUNTIME)], ids=["a copy", "the runtime"]
)
def test_some_functions_take_as_long_with_threads_as_without(executed: Executed) -> None:
    assert cycles_of(executed, 4) == cycles_of(executed, 1)


def test_threads_have_the_peak_of_all_their_cores() -> None:
    alone, together = (priced_on("rpi4", function(), threads) for threads in (1, 4))
    assert together.of_peak == alone.of_peak == 0.5
    assert (alone.error, together.error) == (0.12, 0.25)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize("version", ["14.0.6", "16.0.6", "18.1.8"])
def test_models_that_take_an_a76_for_an_a57_are_refused(programs: Path, version: str) -> None:
    for name in ("llvm-mca", "llvm-mc"):
        executable(programs / name, f"echo Debian LLVM version {version}")
    with pytest.raises(UnsupportedError, match=f"llvm-mca is {version}; before 19") as refused:
        Llvm.found()
    assert refused.value.hints == ("apt-get install llvm-19",)
    for name in ("llvm-mca-19", "llvm-mc-19"):
        executable(programs / name, "echo Debian LLVM version 19.1.7")
    assert Llvm.found().version == "19.1.7"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "there is no qemu-aarch64"),
        ("echo qemu-aarch64 version 7.2.9", "takes no plugins"),
        ("echo qemu-aarch64 version 9.2.0 -plugin", "is QEMU 9.2"),
    ],
)
def test_emulators_that_do_not_take_the_recorder_are_refused(programs: Path, said: str | None, why: str) -> None:
    if said:
        executable(programs / "qemu-aarch64", said)
    with pytest.raises(UnsupportedError, match=why) as refused:
        recording_emulator(load_board("rpi4"))
    assert "qemu-user" in refused.value.hints[0]


def test_an_emulator_that_takes_it_is_found(programs: Path) -> None:
    executable(programs / "qemu-aarch64", "echo qemu-aarch64 version 7.2.9 -plugin")
    assert recording_emulator(load_board("rpi4")) == str(programs / "qemu-aarch64")


def test_the_recorder_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = recorder()
    times = first.stat().st_mtime_ns
    assert recorder() == first
    assert first.stat().st_mtime_ns == times


def test_the_doctor_says_what_predictions_lack(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if "llvm-mc" in name else found(name, *rest))
    _, out, _ = command("doctor", "--board", "rpi4")
    line = next(line for line in out.splitlines() if "predictions" in line)
    assert "not applicable" in line
    assert "llvm-mca 19" in line or "qemu" in line
    assert "apt-get install" in out.splitlines()[out.splitlines().index(line) + 1]


def test_help_names_the_command(command: Command) -> None:
    assert "predict" in output_of(command, "--help")


# The recorder's model of the data caches, in C, against one in Python that is written for plainness.

PROGRAM = Path(__file__).parents[1] / "support" / "cache_program.c"
# Bytes and ways of each level; the third may be missing.
PI_4 = ((32 << 10, 2), (1 << 20, 16), (0, 0))
PI_5 = ((64 << 10, 4), (512 << 10, 8), (2 << 20, 16))
TINY = ((512, 2), (2048, 4), (0, 0))
TINY_OF_THREE = ((256, 1), (1024, 2), (4096, 8))

Access = tuple[int, int, bool]  # instruction, address, whether it stores


class Level:
    """A cache of lines, of which the least recently used of a set goes."""

    def __init__(self, size: int, ways: int) -> None:
        self.ways = ways
        self.sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(size // 64 // ways)]

    def take(self, line: int, dirty: bool) -> tuple[bool, tuple[int, bool] | None]:
        """Whether the line is there, and the one that had to go with whether it was written to."""
        lines = self.sets[line % len(self.sets)]
        hit = line in lines
        gone = lines.popitem(last=False) if not hit and len(lines) == self.ways else None
        lines[line] = lines.pop(line, False) or dirty
        return hit, gone


def misses(sizes: Sequence[tuple[int, int]], accesses: Sequence[Access]) -> dict[str, int]:
    """What the accesses miss, by the rules that native/caches.h states."""
    l1, l2, l3 = (Level(*size) if size[0] else None for size in sizes)
    counts, last, strides = dict.fromkeys(MISSES, 0), dict[int, int](), dict[int, int]()
    streams, oldest = [0] * 16, 0

    def written_back(gone: tuple[int, bool] | None) -> None:
        counts["memory_written_back"] += bool(gone and gone[1] and not l3)

    for instruction, address, store in accesses:
        line = address // 64
        hit, gone = l1.take(line, store)
        if hit:
            continue
        if gone and gone[1]:
            written_back(l2.take(gone[0], True)[1])
        stride = line - last.get(instruction, 0)
        foreseen = last.get(instruction, 0) != 0 and stride == strides.get(instruction) and abs(stride) < 64
        last[instruction], strides[instruction] = line, stride
        beside = next((place for place, other in enumerate(streams) if abs(other - line) == 1), None)
        if beside is None:
            streams[oldest] = line
            oldest = (oldest + 1) % len(streams)
        else:
            streams[beside], foreseen = line, True
        hit, gone = l2.take(line, False)
        written_back(gone)
        level = "l2" if hit else "l3" if l3 and l3.take(line, False)[0] else "memory"
        counts[f"{level}_{'store' if store else 'foreseen' if foreseen else 'random'}"] += 1
    return counts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("caches") / "caches.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", "-shared", "-fPIC"]
    run_tool([*c_compiler(load_board("local")).command, *options, "-o", str(library), str(PROGRAM)])
    return ctypes.CDLL(str(library))


def counted(model: ctypes.CDLL, sizes: Sequence[tuple[int, int]], accesses: Sequence[Access]) -> dict[str, int]:
    given = np.array(accesses, np.uint64)
    counters = np.zeros(len(MISSES), np.uint64)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (np.array(sizes, np.uint64), given, counters)]
    number, instructions = ctypes.c_uint64(len(given)), ctypes.c_uint64(int(given[:, 0].max()) + 1)
    assert model.count_misses(*pointers[:2], number, instructions, pointers[2]) == 0
    return dict(zip(MISSES, counters.tolist(), strict=True))


@pytest.mark.parametrize("sizes", [TINY, TINY_OF_THREE, PI_4, PI_5], ids=["tiny", "tiny-l3", "pi-4", "pi-5"])
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_plain_model(model: ctypes.CDLL, sizes: Sequence[tuple[int, int]], seed: int) -> None:
    """Streams, strides, columns and random accesses, of loads and stores, mixed; more than the largest cache holds."""
    random = np.random.default_rng(seed)
    room = 3 * max(size for size, _ in sizes)
    accesses: list[Access] = []
    for _ in range(60):
        instruction, store = int(random.integers(0, 8)), bool(random.integers(0, 2))
        start, step = int(random.integers(4096, room)), int(random.choice([4, 16, 64, 128, 192, 4096, -64]))
        addresses = start + step * np.arange(300) if random.random() < 0.7 else random.integers(4096, room, 300)
        accesses += [(instruction, int(address) % room + 4096, store) for address in addresses]
    assert counted(model, sizes, accesses) == misses(sizes, accesses)
    assert sum(misses(sizes, accesses).values()) > 100


def test_what_fits_misses_once(model: ctypes.CDLL) -> None:
    pass_over = [(0, address, False) for address in range(1 << 20, (1 << 20) + (32 << 10), 16)]
    counts = counted(model, PI_4, pass_over * 3)
    assert sum(counts.values()) == 512
    assert counts["memory_foreseen"] == 511
    assert counts["memory_random"] == 1


def test_what_is_written_goes_back_to_memory_once(model: ctypes.CDLL) -> None:
    lines = (4 << 20) // 64
    writes = [(0, (1 << 24) + 64 * line, True) for line in range(lines)]
    counts = counted(model, PI_4, writes)
    assert counts["memory_store"] == lines
    # The rest is still in the caches: the second holds what the first gave up, and lines that the first has too.
    assert lines - ((1 << 20) + (32 << 10)) // 64 <= counts["memory_written_back"] <= lines - (1 << 20) // 64


def test_a_cache_without_room_for_a_line_is_refused(model: ctypes.CDLL) -> None:
    with pytest.raises(AssertionError):
        counted(model, ((64, 2), (0, 0), (0, 0)), [(0, 64, False)])


# What other engines execute is kept by all that it depends on; what waiting for memory costs comes later.


KEY = Key("ncnn", "1.0", "network", "cortex-a72", "1, LLVM 19.1.7")
EXECUTED = Executed("libncnn.so", 0, 1000, 500.0, 2.5, 3, 400, 0, dict.fromkeys(MISSES, 2.0))
RESULT = PeerResult(KEY, "mobilenet", "0" * 64, (EXECUTED,), 1e-6)


def test_what_was_added_is_found_by_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.jsonl"
    PeerResults(path).add(RESULT)
    unable = PeerResult(replace(KEY, engine="mnn"), "mobilenet", "1" * 64, left_out="its converter ended with code 1")
    PeerResults(path).add(unable)
    later = PeerResults(path)
    assert later.find(KEY) == RESULT
    assert later.find(unable.key) == unable


@pytest.mark.parametrize("field", ["engine", "version", "network", "core", "predictor"])
def test_what_depends_on_something_else_is_not_found(tmp_path: Path, field: str) -> None:
    results = PeerResults(tmp_path / "results.jsonl")
    results.add(RESULT)
    assert results.find(replace(KEY, **{field: "another"})) is None


def test_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    PeerResults(path).add(RESULT)
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    assert PeerResults(path).find(KEY) == RESULT
    PeerResults(path).add(replace(RESULT, key=replace(KEY, engine="mnn")))
    assert PeerResults(path).find(replace(KEY, engine="mnn"))


def test_tidying_keeps_the_newest_of_each(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = PeerResults(path)
    newer = replace(RESULT, key=replace(KEY, version="2.0"))
    other = replace(RESULT, key=replace(KEY, core="cortex-a76"))
    for each in (RESULT, newer, other):
        results.add(each)
    results.tidy()
    assert len(path.read_text().splitlines()) == 2
    later = PeerResults(path)
    assert [later.find(each.key) for each in (RESULT, newer, other)] == [None, newer, other]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        PeerResults(tmp_path / "file" / "results.jsonl").add(RESULT)


def test_costs_of_memory_are_the_profiles_of_today(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    PeerResults(path).add(RESULT)
    result = PeerResults(path).find(KEY)
    board, core = load_board("rpi4"), load_board("rpi4").core_model
    memory = core.memory.model_copy(update={"foreseen": 99})
    cheap = priced(result.executed, board, core).cycles
    dear = priced(result.executed, board, core.model_copy(update={"memory": memory})).cycles
    assert cheap.core == dear.core == EXECUTED.core
    assert dear.memory - cheap.memory == pytest.approx(2 * (99 - core.memory.foreseen))


def key_of(file: Path, inputs: dict[str, np.ndarray], board: Board, version: str = "1.0", llvm: str = "19.1.7") -> Key:
    assert board.core_model
    return Key.of("ncnn", version, file, inputs, board, Means(board.core_model, Llvm("mca", "mc", llvm)))


def test_a_key_changes_with_all_that_a_result_depends_on(tmp_path: Path) -> None:
    file, other = tmp_path / "net.onnx", tmp_path / "other.onnx"
    file.write_bytes(b"network")
    other.write_bytes(b"network of other weights")
    inputs = {"data": np.zeros((1, 3), np.float32)}
    rpi4, rpi5 = load_board("rpi4"), load_board("rpi5")
    small = rpi4.model_copy(update={"cache": rpi4.cache.model_copy(update={"l2_kib": 512})})
    keys = [
        key_of(file, inputs, rpi4),
        key_of(other, inputs, rpi4),
        key_of(file, {"data": np.ones((1, 3), np.float32)}, rpi4),
        key_of(file, {"data": np.zeros((3, 1), np.float32)}, rpi4),
        key_of(file, inputs, rpi5),
        key_of(file, inputs, small),
        key_of(file, inputs, rpi4, version="1.1"),
        key_of(file, inputs, rpi4, llvm="20.1.0"),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == key_of(file, dict(inputs), load_board("rpi4"))


# The tables of benchmarks/arm_engines.py say how networks compare, what is missing and why.


def takes(cycles: float) -> Prediction:
    board = load_board("rpi4")
    executed = Executed("all", 1, 1, cycles, 0.0, 0, 1, 0, dict.fromkeys(MISSES, 0.0))
    return priced([executed], board, board.core_model)


def peer(engine: str, cycles: float) -> PeerPrediction:
    return PeerPrediction(engine, "1.2.3", "0" * 64, takes(cycles), 0.0)


ROWS = [
    Row("mobilenet_v1", takes(100e6), [peer("ncnn", 125e6), peer("mnn", 80e6)]),
    Row("yunet", takes(10e6), [peer("ncnn", 20e6), PeerPrediction("litert", left_out="it reads .tflite files")]),
    Row("another", takes(10e6), [peer("ncnn", 5e6)]),
    Row("digits", takes(1e6), [PeerPrediction("litert", left_out="it reads .tflite files")]),
]


def cells(text: str, network: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {network} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_has_the_cycles_of_others_divided_by_ours() -> None:
    title = cells(tables({"rpi4": ROWS}, 1), "network")
    row = dict(zip(title, cells(tables({"rpi4": ROWS}, 1), "mobilenet_v1"), strict=True))
    assert (row["ncnn"], row["mnn"], row["litert"], row["edgedeploy / best"]) == ("1.25", "0.80", "", "1.25")
    assert row["edgedeploy, M cycles"] == "100.0"
    assert row["ms"] == "55.6"


def test_published_times_stand_beside_those_of_ncnn() -> None:
    for threads in (1, 4):
        row = cells(tables({"rpi4": ROWS}, threads), "mobilenet_v1")
        assert row[-2:] == ["69.4", f"{PUBLISHED['mobilenet']['rpi4'][threads]:.1f}"]
    assert cells(tables({"rpi4": ROWS}, 1), "yunet")[-2:] == ["11.1", ""]
    assert cells(tables({"rpi5": ROWS}, 4), "mobilenet_v1")[-1] == ""


def test_the_mean_is_that_of_development_networks_which_another_engine_runs() -> None:
    mean = cells(tables({"rpi4": ROWS}, 1), "geometric mean")
    assert mean[0] == "geometric mean of 2 development networks"
    assert f"{(1.25 * 0.5) ** 0.5:.2f}" in mean


def test_networks_of_bytes_stand_beside_themselves_in_single() -> None:
    rows = [
        Row("mobilenet_v1-int8", takes(50e6), [peer("onnxruntime", 100e6)], in_single=takes(100e6)),
        Row("mobilenet_v2_quant", takes(20e6), [peer("litert", 25e6)]),
    ]
    text = tables({"rpi4": rows}, 1)
    assert cells(text, "network")[-2:] == ["edgedeploy / best", "/ in single"]
    assert cells(text, "mobilenet_v1-int8")[-2:] == ["0.50", "0.50"]
    assert cells(text, "mobilenet_v2_quant")[-2:] == ["0.80", ""]
    assert cells(text, "geometric mean of 2 files")[-2:] == [f"{(0.5 * 0.8) ** 0.5:.2f}", ""]


def test_networks_in_half_precision_stand_beside_others_in_half_and_themselves_in_single() -> None:
    half = Half(layers=28, single=[], judged_by="pictures", expected=0.004, errors={"prob": 0.003}, tested=0.0)
    rows = [Row("mobilenet_v1", takes(20e6), [peer("ncnn-half", 25e6)], in_single=takes(40e6), half=half)]
    text = tables({"rpi5": rows}, 1)
    row = dict(zip(cells(text, "network"), cells(text, "mobilenet_v1"), strict=True))
    assert (row["ncnn-half"], row["edgedeploy / best"], row["/ in single"]) == ("1.25", "0.80", "0.50")
    assert (row["layers in half"], row["error"]) == ("28 of 28", "0.0040")
    assert (row["ncnn-half predicted, ms"], row["published, ms"]) == ("13.9", "20.3")


def test_who_is_left_out_is_said_once_with_the_reason() -> None:
    text = tables({"rpi4": ROWS, "rpi5": ROWS[1:2]}, 1)
    assert "- litert: it reads .tflite files: yunet (rpi4), digits (rpi4), yunet (rpi5)" in text
    assert "ncnn 1.2.3, mnn 1.2.3" in text


def test_a_page_keeps_all_that_is_not_the_tables() -> None:
    written = page(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert written == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert page(written, "newer") == written.replace("new", "newer")
    with pytest.raises(ValueError, match="lacks"):
        page("a page without marks", "new")


def test_the_page_of_predictions_has_a_place_for_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "predictions.md").read_text(encoding="utf-8")
    for begin in (BEGIN, BEGIN_OF_BYTES, BEGIN_OF_HALF):
        assert page(text, "the tables", begin).count("the tables") == text.count("the tables") + 1


def test_published_times_name_development_networks() -> None:
    assert {each["network"] for each in PUBLISHED.values() if "network" in each} < NETWORKS.keys()
    assert "yolo-fastest-1.1" not in RUN_BY_NCNN
    assert all({1, 4} == PUBLISHED[name]["rpi4"].keys() for name in PUBLISHED)
