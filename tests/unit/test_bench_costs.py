"""What `edgedeploy bench` tells of engines beside times: costs, profiles, energy; and engines beyond processors."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import Command
from support.commands import Notebook, json_of, output_of, printed, put, refused
from support.networks import Graph, begun, tiny
from support.virtual_boards import EARLIER, RAILS, vcgencmd
from test_bench import task

from edgedeploy.api import measuring
from edgedeploy.benchmarking import energy, engines
from edgedeploy.benchmarking.energy import PowerMeter
from edgedeploy.benchmarking.engines import cpu, nvidia, torch
from edgedeploy.benchmarking.engines.engine import CannotRunError, Task
from edgedeploy.benchmarking.measure import same_top1
from edgedeploy.benchmarking.networks import check_batch
from edgedeploy.benchmarking.report import Machine, Report, Row
from edgedeploy.benchmarking.tables import COLUMNS, columns_called, engine_table
from edgedeploy.benchmarking.turns import Costs, Turn
from edgedeploy.benchmarking.worker import EngineWorker
from edgedeploy.cli.bench import complete_columns
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.frontends.onnx import FORMAT
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.runtime.profile import FunctionProfile, profile_of_operators, profile_table
from edgedeploy.runtime.timing import EndToEnd, Timing
from edgedeploy.zoo.source import Source

pytestmark = pytest.mark.compiles

COSTS = Costs(compile_s=1.5, load_s=0.25, first_s=0.004, peak_bytes=50_000_000, size_bytes=2_000_000)


def row(engine: str, costs: Costs = COSTS, batch: int | None = 4) -> Row:
    times = EndToEnd(Timing((2.0, 1.0, 4.0)))
    return Row("net", engine, "1.0", "CPU", 2, times, 1.0, 1e-6, 0.1, True, batch, costs, (2.0, 2.5))


def report(*rows: Row) -> Report:
    return Report(Machine(cpu="Example", cores=2, os="Example"), "edgedeploy", "onnxruntime", 2, list(rows), [])


def test_percentiles_are_those_of_numpy() -> None:
    times = tuple(np.random.default_rng(0).random(57).tolist())
    assert Timing(times).p90_ms == pytest.approx(np.percentile(times, 90))
    assert Timing(times).p99_ms == pytest.approx(np.percentile(times, 99))
    assert Timing((3.0,)).p99_ms == 3.0


def test_every_column_says_what_an_engine_needed() -> None:
    titles, cells = engine_table(report(row("edgedeploy")), columns_called(["all"]))
    assert dict(zip(titles, cells, strict=True)) == {
        **{"model": "net (batch 4)", "engine": "edgedeploy", "median ms": "2.00", "compile s": "1.50"},
        **{"load s": "0.250", "peak MB": "50.0", "size MB": "2.00", "p99 ms": "3.96", "first ms": "4.00"},
        **{"per second": "2000", "deviation ms": "1.25", "mean ms": "2.33", "p90 ms": "3.60"},
        **{"difference": "1.0e-06", "same top-1": "yes"},
    }


def test_columns_are_shown_in_the_order_that_was_asked_for() -> None:
    [titles, _] = engine_table(report(row("edgedeploy")), columns_called(["size", "median", "size"]))
    assert titles == ["model", "engine", "size MB", "median ms"]


def test_a_column_that_nothing_is_known_of_is_left_out_and_one_cell_is_a_dash() -> None:
    nothing = replace(COSTS, compile_s=None, load_s=None)
    found = report(row("a", nothing), row("b", replace(nothing, load_s=2.0)))
    lines = engine_table(found, columns_called(["compile", "load"]))
    assert lines == [["model", "engine", "load s"], ["net (batch 4)", "a", "-"], ["net (batch 4)", "b", "2.00"]]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_terminal_is_shown_the_first_columns_that_fit(width: int) -> None:
    found = report(row("edgedeploy"), row("onnxruntime"))
    lines = engine_table(found, columns_called(None), width)
    lengths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    assert sum(lengths) + len(lengths) - 1 <= width
    assert lines[0] == engine_table(found, columns_called(None))[0][: len(lines[0])]
    assert lines[0][2] == "median ms"


@pytest.mark.parametrize(
    ("outputs", "reference", "same"),
    [
        ([[0.1, 0.9], [0.8, 0.2]], [[0.2, 0.8], [0.7, 0.3]], True),
        ([[0.1, 0.9], [0.2, 0.8]], [[0.2, 0.8], [0.7, 0.3]], False),
        ([[[[0.1]], [[0.9]]]], [[[[0.3]], [[0.4]]]], True),
        ([[[0.1, 0.9], [0.1, 0.9]]], [[[0.1, 0.9], [0.1, 0.9]]], None),
        ([[0.5]], [[0.5]], None),
    ],
    ids=["all images", "one of two", "1x1 maps", "a map of scores", "one value"],
)
def test_top_classes_are_compared(outputs: list[object], reference: list[object], same: bool | None) -> None:
    assert same_top1({"y": np.array(outputs)}, {"y": np.array(reference)}) is same


def with_reshape(path: Path, *shape: int, batch: int = 1) -> Path:
    """Four features of each image of 3 x 4 x 4, brought into a shape that the exporter wrote down."""
    graph = Graph()
    mean = graph.node("GlobalAveragePool", graph.conv(graph.input("data", [batch, 3, 4, 4]), 3, 4, 3))
    return graph.save(path, graph.node("Reshape", mean, graph.weight(np.array(shape, np.int64))))


def run(source: Source, images: np.ndarray) -> np.ndarray:
    model = FORMAT.convert(source.files, source.shapes).model
    [output] = cpu_session(model.SerializeToString()).run(None, {"data": images})
    return np.asarray(output)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((1, 4), (3, 4)),
        ((1, -1), (3, 4)),
        ((1, 2, 2), (3, 2, 2)),
        ((2, 2), (6, 2)),
        ((-1, 4), (3, 4)),
        ((0, 4), (3, 4)),
    ],
    ids=str,
)
def test_written_shapes_follow_the_batch(tmp_path: Path, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    alone = Source.of(with_reshape(tmp_path / "net.onnx", *shape), {})
    together = alone.with_further((), [3])
    images = np.random.default_rng(0).random((3, 3, 4, 4), np.float32)
    found = run(together, images)
    assert found.shape == wanted
    each = np.concatenate([run(alone, image[None]) for image in images])
    np.testing.assert_allclose(found, each, rtol=1e-5)


def test_a_file_for_several_images_is_changed_for_more_of_them(tmp_path: Path) -> None:
    source = Source.of(with_reshape(tmp_path / "net.onnx", 2, 4, batch=2), {})
    assert run(source.with_further((), [6]), np.ones((6, 3, 4, 4), np.float32)).shape == (6, 4)


def test_shapes_of_weights_and_open_batches_stay_as_they_are(tmp_path: Path) -> None:
    graph = Graph()
    bias = graph.node("Reshape", graph.normal(4), graph.weight(np.array([1, 4, 1, 1], np.int64)))
    summed = graph.node("Add", graph.conv(graph.input("data", [1, 3, 4, 4]), 3, 4, 1), bias)
    graph.save(tmp_path / "net.onnx", summed)
    source = Source.of(tmp_path / "net.onnx", {}).with_further((), [2])
    assert run(source, np.ones((2, 3, 4, 4), np.float32)).shape == (2, 4, 4, 4)

    sequence, rows = begun("length", 4)
    shape = sequence.weight(np.array([1, -1, 4], np.int64))
    sequence.save(tmp_path / "open.onnx", sequence.node("Reshape", rows, shape))
    source = Source.of(tmp_path / "open.onnx", {"data": [5, 4]})
    assert run(source, np.ones((5, 4), np.float32)).shape == (1, 5, 4)


def test_images_that_a_batch_would_mix_are_found_out(tmp_path: Path) -> None:
    """A mean over the first dimension is that of one image alone, and of all in a batch."""
    graph = Graph()
    mean = graph.node("ReduceMean", graph.input("data", [1, 3, 4, 4]), axes=[0], keepdims=1)
    graph.save(tmp_path / "net.onnx", graph.node("Add", mean, "data"))
    alone = Source.of(tmp_path / "net.onnx", {})
    with pytest.raises(InputError, match="change each other's results"):
        check_batch(alone, alone.with_further((), [4]))


@pytest.mark.slow  # each engine measures three networks
def test_networks_without_a_batch_are_named_and_the_others_measured(command: Command, tmp_path: Path) -> None:
    net, tied = tiny(tmp_path / "net.onnx"), Graph()
    whole = tied.node("Flatten", tied.input("data", [1, 3, 2, 2]), axis=0)
    tied.save(tmp_path / "tied.onnx", tied.node("MatMul", whole, tied.normal(12, 2)))
    options = ["--batch", "1,2", "--against", "onnxruntime", "--threads", 1, "--rounds", 1, "--json"]
    said = json.loads(output_of(command, "bench", net, tmp_path / "tied.onnx", *options))
    measured = {(each["model"], each["batch"]) for each in said["rows"]}
    assert measured == {("net", 1), ("net", 2), ("tied", 1)}
    skipped = {each["engine"]: each["models"] for each in said["skipped"]}
    assert skipped == {engine: ["tied (batch 2)"] for engine in ("edgedeploy", "onnxruntime")}
    assert all("cannot have a batch of 2" in each["reason"] for each in said["skipped"])
    [two] = [each for each in said["rows"] if (each["batch"], each["engine"]) == (2, "onnxruntime")]
    assert two["per_second"] == pytest.approx(2e3 / two["median_ms"])


def test_nothing_is_left_of_one_network_without_a_batch(command: Command, tmp_path: Path) -> None:
    tied = Graph()
    tied.save(tmp_path / "tied.onnx", tied.node("Add", tied.input("data", [1, 4]), tied.input("other", [3, 4])))
    options = ["--batch", "2", "--against", "onnxruntime"]
    assert "nothing to measure" in refused(command, 7, "bench", tmp_path / "tied.onnx", *options)


def test_ncnn_has_no_batch(tmp_path: Path) -> None:
    given = Task(tiny(tmp_path / "net.onnx"), tmp_path, {}, [], 1, tmp_path, batch=2)
    with pytest.raises(CannotRunError, match="no dimension for the batch"):
        cpu.convert_for_ncnn(given)


@pytest.mark.slow
def test_tuned_code_takes_turns_with_the_same_network_untuned(command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    output_of(command, "tune", net, "--trials", 2, "--output", tmp_path / "records")
    options = ["--against", "onnxruntime", "--threads", 1, "--rounds", 2]
    said = json_of(command, "bench", net, "--tuned", tmp_path / "records", *options)
    rows = {each["engine"]: each for each in said["rows"]}
    assert list(rows) == ["edgedeploy", "edgedeploy-untuned", "onnxruntime"]
    untuned = rows["edgedeploy-untuned"]
    assert untuned["ratio"] == pytest.approx(rows["edgedeploy"]["median_ms"] / untuned["median_ms"])
    assert untuned["max_rel_diff"] < 1e-5
    assert said["geometric_means"]["best"] == pytest.approx(rows["onnxruntime"]["ratio"])


@pytest.mark.slow
def test_a_note_says_what_is_left_out_for_people(tmp_path: Path) -> None:
    notes = Notebook()
    with_reshape(tmp_path / "net.onnx", 1, 4)
    tied = Graph()
    tied.save(tmp_path / "tied.onnx", tied.node("Flatten", tied.input("data", [1, 4]), axis=0))
    nets = [tmp_path / "net.onnx", tmp_path / "tied.onnx"]
    measuring.bench(nets, against=["onnxruntime"], threads=1, rounds=1, batches=[2], progress=notes)
    assert any(line.startswith("tied (batch 2) is left out") for line in notes.lines)


def test_the_columns_that_help_names_are_those_that_there_are() -> None:
    assert complete_columns("median,p9") == ["median,p99", "median,p90"]
    assert [name.strip() for name in COLUMNS] == complete_columns("")[:-1]


# Engines of `edgedeploy bench` beyond a package: a graphics processor, a compiler; and their profiles.

GPU = ["tensorrt", "onnxruntime-gpu"]


def test_engines_of_graphics_processors_and_compilers_are_measured_where_they_are_named() -> None:
    by_default = [engine.name for engine in engines.find_peers(None)]
    assert by_default[:6] == ["onnxruntime", "openvino", "ncnn", "mnn", "litert", "torch"]
    assert {*GPU, "torch-compile"}.isdisjoint(by_default)
    assert [engine.name for engine in engines.find_peers(GPU)] == GPU


@pytest.mark.skipif(nvidia.missing() is None, reason="there is a graphics processor here")
def test_without_a_graphics_processor_its_engines_are_left_out_with_the_reason() -> None:
    for engine in engines.find_peers(GPU):
        assert "no NVIDIA graphics processor" in str(engine.absence())


def test_with_a_driver_what_is_missing_is_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(nvidia, "_DEVICES", (str(tmp_path / "nvidiactl"),))
    absent = [replace(engine, distribution="no-such-package") for engine in (nvidia.TENSORRT, nvidia.ONNXRUNTIME_GPU)]
    assert ["edgedeploy[bench-gpu]" in str(engine.absence()) for engine in absent] == [True, True]


def test_a_module_of_another_package_is_not_the_engines_own() -> None:
    """onnxruntime and onnxruntime-gpu have one module."""
    assert cpu.ONNXRUNTIME.installed()
    assert not replace(cpu.ONNXRUNTIME, distribution="onnxruntime-of-nobody").installed()


def test_without_a_compiler_torch_compile_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs a C++ compiler" in str(torch.COMPILED.absence())
    assert "C++" not in str(torch.ENGINE.absence())


@pytest.mark.slow
@pytest.mark.skipif(torch.COMPILED.absence() is not None, reason="PyTorch or a compiler is not here")
def test_what_torch_compiles_gives_the_same_numbers_and_says_how_long_that_took(tmp_path: Path) -> None:
    given = task(tmp_path)
    with EngineWorker(torch.COMPILED, given) as worker, EngineWorker(torch.ENGINE, given) as plain:
        costs = worker.costs()
        assert costs.compile_s > costs.first_s
        assert plain.costs().compile_s is None
        [(_, found)], [(_, wanted)] = worker.outputs().items(), plain.outputs().items()
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


# `bench --profile`: the time by function of edgedeploy, and by operator of each engine that tells.


def nodes_of_onnxruntime(path: Path, folder: Path) -> dict[str, str]:
    """What onnxruntime's own rewriting makes of a network: operators by name of their nodes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "rewritten.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])  # noqa: TID251
    return {node.name: node.op_type for node in onnx.load(folder / "rewritten.onnx").graph.node}


def test_each_engine_says_what_its_functions_take(command: Command, tmp_path: Path) -> None:
    path, page = tiny(tmp_path / "net.onnx"), tmp_path / "page.html"
    against = ["--against", "onnxruntime,openvino,mnn,ncnn", "--rounds", "1", "--profile"]
    said = json_of(command, "bench", path, *against, "--report", page)
    rows = {row["engine"]: row for row in said["rows"]}
    assert "functions" not in rows.get("ncnn", {})
    functions = {name: row["functions"] for name, row in rows.items() if name != "ncnn"}
    assert {"edgedeploy", "onnxruntime"} <= set(functions)
    for found in functions.values():
        assert sum(each["share"] for each in found) == pytest.approx(1)
        assert [each["ms"] for each in found] == sorted((each["ms"] for each in found), reverse=True)
    assert any(each.get("operations") and each["bytes"] for each in functions["edgedeploy"])
    told = {each["function"]: each["type"] for each in functions["onnxruntime"]}
    assert told == nodes_of_onnxruntime(path, tmp_path)
    assert all(f"unctions of {name} on net" in page.read_text() for name in functions)


def test_the_terminal_shows_the_longest_and_the_sum_of_the_others() -> None:
    times = {f"layer {index}": ("Conv", [float(index), float(index)]) for index in range(1, 6)}
    found = profile_of_operators(times | {"unused": ("Add", [])})
    assert [each.function for each in found[:2]] == ["layer 5", "layer 4"]
    assert profile_table(found, 2) == [
        ["function", "type", "ms", "share"],
        ["layer 5", "Conv", "5.000", "33.3%"],
        ["layer 4", "Conv", "4.000", "26.7%"],
        ["3 others", "", "6.000", "40.0%"],
    ]
    assert profile_table([FunctionProfile("\x1b[31m", 1.0, 1.0, None, None, None)])[1][0] != "\x1b[31m"


# `bench --energy`: what a board's power is read from, and what an inference takes of it.


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A board without any source of power's figures, which is read three times in a moment."""
    for name, value in {"_SAMPLES": 3, "_PAUSE_S": 0.02, "_AFTER_S": 0.02, "_READING_S": 0.2}.items():
        monkeypatch.setattr(energy, name, value)
    put(tmp_path / "proc/uptime", "100.00 90.00\n")
    return tmp_path


def shell(script: str) -> str:
    return printed("sh", "-eu", "-c", script)


def firmware(root: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    vcgencmd(root / "bin", said)
    monkeypatch.setenv("PATH", str(root / "bin"), prepend=":")


@pytest.mark.parametrize("said", [RAILS, EARLIER])
def test_the_rails_of_a_pi_5_are_summed(root: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    firmware(root, monkeypatch, said)
    meter = PowerMeter(shell, str(root))
    assert (meter.source, meter.idle_watts) == ("rails", pytest.approx(0.1 * 3.3 + 1.5 * 0.8))


def test_a_sensor_in_the_supply_line_is_preferred(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    firmware(root, monkeypatch, RAILS)
    put(root / "sys/class/hwmon/hwmon0/name", "cpu_thermal\n")
    put(root / "sys/class/hwmon/hwmon2/name", "ina219\n")
    put(root / "sys/class/hwmon/hwmon2/power1_input", "4260000\n")
    meter = PowerMeter(shell, str(root))
    assert (meter.source, meter.idle_watts) == ("sensor", pytest.approx(4.26))


def test_counters_of_all_packages_count_while_they_grow(root: Path) -> None:
    # A second and 7 and 5 joules between readings; at the third one, a counter begins at zero again.
    for package, name in ((0, "package-0"), (1, "package-1"), (2, "psys")):
        put(root / f"sys/class/powercap/intel-rapl:{package}/name", f"{name}\n")
    counters = [root / f"sys/class/powercap/intel-rapl:{package}/energy_uj" for package in (0, 1, 2)]
    readings = [(100, 20_000_000, 1_000_000), (101, 27_000_000, 6_000_000), (102, 3_000_000, 11_000_000)]

    def board(script: str) -> str:
        texts = []
        for clock, first, second in readings:
            put(root / "proc/uptime", f"{clock}.00 1.00\n")
            for counter, value in zip(counters, (first, second, 9), strict=True):
                counter.write_text(f"{value}\n")
            texts.append(shell(script.replace("count=3", "count=1")))
        return texts[0] + "".join(text.partition("\n")[2] for text in texts[1:])

    meter = PowerMeter(board, str(root))
    assert (meter.source, meter.idle_watts) == ("counters", pytest.approx(12.0))


@pytest.mark.parametrize(
    "said", ["", "VDD_CORE_A current(7)=1.5A\n", 'error=2 error_msg="Invalid arguments"\n', "\x00"]
)
def test_a_board_that_does_not_tell_is_said_to(root: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    firmware(root, monkeypatch, said)
    with pytest.raises(UnsupportedError, match="does not say what power it takes") as raised:
        PowerMeter(shell, str(root))
    assert "INA219" in str(raised.value.hints)


class Sleeper:
    """Inferences of a length, which may be shorter than they were; meanwhile the board takes more."""

    device = "CPU"

    def __init__(self, sensor: Path, typical: float, actual: Callable[[], float]) -> None:
        self.sensor, self.typical, self.actual = sensor, typical, actual
        self.counts: list[int] = []

    def turn(self, warmup: int, count: int) -> Turn:
        self.counts.append(count)
        self.tell("6000000\n")
        length = self.actual()
        time.sleep(count * length)
        self.tell("2000000\n")
        return Turn([length] * count, None)

    def tell(self, said: str) -> None:
        """As a driver does: at no moment is there nothing to read."""
        put(self.sensor.parent / "next", said).replace(self.sensor)


@pytest.fixture
def sensor(root: Path) -> Path:
    put(root / "sys/class/hwmon/hwmon2/name", "ina226\n")
    return put(root / "sys/class/hwmon/hwmon2/power1_input", "2000000\n")


def test_an_inference_takes_the_power_during_it_for_as_long_as_it_lasts(root: Path, sensor: Path) -> None:
    found = PowerMeter(shell, str(root)).energy_of(Sleeper(sensor, 0.01, lambda: 0.01))
    assert (found.joules, found.watts, found.idle_watts) == (pytest.approx(0.06), pytest.approx(6), pytest.approx(2))
    assert not found.estimated


def test_a_turn_that_ends_before_power_is_read_is_repeated_with_more(root: Path, sensor: Path) -> None:
    lengths = count()
    sleeper = Sleeper(sensor, 0.01, lambda: 0.0001 if next(lengths) == 0 else 0.01)
    assert PowerMeter(shell, str(root)).energy_of(sleeper).watts == pytest.approx(6)
    assert sleeper.counts[1] == pytest.approx(2 * sleeper.counts[0], abs=1)


def test_an_engine_that_is_always_done_too_early_has_no_energy(root: Path, sensor: Path) -> None:
    before = threading.active_count()
    with pytest.raises(CannotRunError, match="before its power is read"):
        PowerMeter(shell, str(root)).energy_of(Sleeper(sensor, 0.01, lambda: 0.0))
    assert threading.active_count() == before


def test_a_machine_without_any_meter_is_told_before_anything_is_measured(command: Command) -> None:
    """Where it has one, energies of all engines are there, and said to be estimates or not."""
    code, out, err = command("bench", "digits", "--against", "onnxruntime", "--rounds", "1", "--energy")
    if code:
        assert (code, "does not say what power it takes" in err) == (12, True)
        assert "  measure " not in err
    else:
        assert "energy mJ" in out
        assert "energy is estimated by" in out or "energy is measured by" in out
