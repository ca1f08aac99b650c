"""`edgedeploy bench`: statistics, turns, reports, and a real measurement of the bundled network."""

import json
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import ROOT, Command
from support.commands import Notebook, becomes, generous, json_of, output_of, put, refused
from support.networks import Graph, tiny
from support.tflite_networks import small

from edgedeploy.base.progress import SILENT
from edgedeploy.benchmarking import engines, networks, report, tables
from edgedeploy.benchmarking.engines import cpu
from edgedeploy.benchmarking.engines.engine import CannotRunError, Task
from edgedeploy.benchmarking.measure import compare
from edgedeploy.benchmarking.report import Machine
from edgedeploy.benchmarking.turns import Turn, calls_per_turn, take_turns, timing
from edgedeploy.benchmarking.worker import EngineWorker
from edgedeploy.errors import DownloadError, PackageError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.runtime.timing import EndToEnd, Timing

pytestmark = pytest.mark.compiles


class Recorder:
    """Takes turns of one inference, writes down when, and fails in the turn that it is told to fail in."""

    def __init__(self, name: str, log: list[str], fails_in: int | None = None) -> None:
        self.name, self.log, self.fails_in = name, log, fails_in
        self.typical, self.device = 0.01, "CPU"
        self.counts: list[int] = []

    def turn(self, warmup: int, count: int) -> Turn:
        assert warmup >= 1
        if self.log.count(self.name) + 1 == self.fails_in:
            raise CannotRunError("told to")
        self.log.append(self.name)
        self.counts.append(count)
        return Turn([self.typical] * count, 1.0)


def row(model: str, name: str, ms: float, ratio: float, relative: float = 0.0, absolute: float = 0.1) -> report.Row:
    times = EndToEnd(Timing((ms, 0.9 * ms, 1.4 * ms)))
    return report.Row(model, name, "1.0", "CPU", 2, times, ratio, relative, absolute)


@pytest.fixture
def found() -> report.Report:
    """A report by hand: two networks, three engines, of which one ran one network only."""
    return report.Report(
        machine=Machine(cpu="Example CPU", cores=2, os="Example 1, Linux 6", load=0.25),
        ours="edgedeploy",
        reference="onnxruntime",
        rounds=5,
        rows=[
            row("small", "edgedeploy", 0.5, 1.0, 1e-6),
            row("small", "onnxruntime", 1.0, 0.5),
            row("small", "ncnn", 0.25, 2.0, 0.01),
            row("large", "edgedeploy", 160.0, 1.0, 2e-6),
            row("large", "onnxruntime", 80.0, 2.0),
        ],
        skipped=[report.Skipped("ncnn", ["large"], "it has no Loop")],
    )


def test_engines_take_turns_one_after_the_other() -> None:
    log: list[str] = []
    turns = take_turns({name: Recorder(name, log) for name in "abc"}, 3, lambda *_: None)
    assert log == list("abcabcabc")
    assert {name: len(taken) for name, taken in turns.items()} == {"a": 3, "b": 3, "c": 3}


def test_an_engine_that_fails_on_the_way_is_left_out_and_the_others_go_on() -> None:
    log: list[str] = []
    failed: list[str] = []
    players = {"a": Recorder("a", log), "b": Recorder("b", log, fails_in=2), "c": Recorder("c", log)}
    turns = take_turns(players, 3, lambda name, _: failed.append(name))
    assert log == list("abcacac")
    assert failed == ["b"]
    assert list(turns) == ["a", "c"]


@pytest.mark.parametrize(("seconds", "calls"), [(0.05, 2), (0.01, 10), (10.0, 1), (1e-6, 200), (0.0, 200)])
def test_a_turn_times_about_a_tenth_of_a_second_of_inferences(seconds: float, calls: int) -> None:
    assert calls_per_turn(seconds) == calls


def test_times_are_those_of_all_inferences_of_all_turns() -> None:
    found = timing([Turn([0.001, 0.002], 1.0), Turn([0.003, 0.100, 0.004], 1.0)])
    assert found.total.runs_ms == pytest.approx((1, 2, 3, 100, 4))
    assert found.total.median_ms == pytest.approx(3)
    assert found.kernels is None


def test_what_kernels_took_is_kept_beside_the_times_from_end_to_end() -> None:
    found = timing([Turn([0.003], 1.0, [0.001]), Turn([0.004, 0.005], 1.0, [0.002, 0.003])])
    assert found.kernels.runs_ms == pytest.approx((1, 2, 3))


@pytest.mark.parametrize(("runs", "shares"), [(600, [60] * 10), (23, [3] * 3 + [2] * 7), (4, [1] * 4), (1, [1])])
def test_inferences_that_are_counted_are_spread_over_the_rounds(runs: int, shares: list[int]) -> None:
    player = Recorder("a", [])
    ended: list[None] = []
    turns = take_turns({"a": player}, 10, lambda *_: None, runs=runs, done=lambda: ended.append(None))
    assert player.counts == shares
    assert sum(len(turn.seconds) for turn in turns["a"]) == runs
    assert len(ended) == len(shares)


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert report.geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert report.geometric_mean([2.0, 4.0, 8.0]) == pytest.approx(4.0)


def test_the_difference_is_that_of_the_worst_output_relative_to_its_largest_value() -> None:
    reference = {"large": np.array([[-100.0, 50.0]]), "small": np.array([0.1, 0.2])}
    outputs = {"large": np.array([[-101.0, 50.0]]), "small": np.array([0.1, 0.204])}
    found = compare(outputs, reference)
    assert (found.relative, found.absolute) == pytest.approx((0.02, 0.004))


def test_dimensions_of_one_may_be_missing_in_outputs() -> None:
    assert compare({"y": np.ones((2, 3))}, {"y": np.ones((1, 2, 3))}).relative == 0.0


def test_infinities_agree_with_the_same_alone() -> None:
    reference = {"y": np.array([1, np.inf, -np.inf, np.nan])}
    assert compare({"y": np.array([1.5, np.inf, -np.inf, np.nan])}, reference).absolute == 0.5
    with pytest.raises(CannotRunError, match="infinities or NaN"):
        compare({"y": np.array([1, np.inf, np.inf, np.nan])}, reference)


def test_outputs_of_zeros_only_differ_by_nothing() -> None:
    assert compare({"y": np.zeros(3)}, {"y": np.zeros(3)}).relative == 0.0


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "no output 'y'"),
        ({"y": np.ones(4)}, "4 values instead of 3"),
        ({"y": np.array([1, np.nan, 1])}, "infinities or NaN"),
    ],
    ids=["missing", "another size", "not numbers"],
)
def test_outputs_that_cannot_be_compared_are_refused(outputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CannotRunError, match=message):
        compare(outputs, {"y": np.ones(3)})


def test_means_are_over_the_networks_that_an_engine_ran(found: report.Report) -> None:
    assert found.geometric_means() == pytest.approx({"onnxruntime": 1.0, "ncnn": 2.0, "best": 2.0})


def test_the_table_names_the_fastest_engine_and_ends_with_the_means(found: report.Report) -> None:
    assert tables.time_table(found) == [
        ["model", "edgedeploy ms", "onnxruntime ms (ratio)", "ncnn ms (ratio)", "ratio to the best"],
        ["small", "0.500", "1.00 (0.50)", "0.250 (2.00)", "2.00 (ncnn)"],
        ["large", "160", "80.0 (2.00)", "-", "2.00 (onnxruntime)"],
        ["geometric mean", "", "1.00", "2.00", "2.00"],
    ]


def test_markdown_tells_machine_times_differences_and_what_was_skipped(found: report.Report) -> None:
    text = tables.as_markdown(found)
    assert "Example CPU, 2 cores, Example 1, Linux 6" in text
    assert "| small | 0.500 | 1.00 (0.50) | 0.250 (2.00) | 2.00 (ncnn) |" in text
    assert "| small | 1.0e-06 | 1.0e-02 |" in text
    assert "- ncnn was not measured on large: it has no Loop" in text
    found_tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(found_tables) == 3
    for table in found_tables:
        assert len({line.count("|") for line in table}) == 1


def test_an_engine_whose_outputs_are_others_is_pointed_out(found: report.Report) -> None:
    [line] = [line for line in report.notes(found) if "outputs differ" in line]
    assert line.startswith("ncnn on small")


def test_a_difference_in_an_output_that_is_nearly_zero_is_no_alarm(found: report.Report) -> None:
    lines = report.notes(replace(found, rows=[replace(each, max_abs_diff=9e-8) for each in found.rows]))
    assert not [line for line in lines if "other work" in line]
    assert "ncnn on small: the relative difference is that of an output which is nearly zero" in lines[-1]


def test_means_and_deviations_stand_side_by_side_with_what_kernels_took(found: report.Report) -> None:
    """Of 2, 4 and 9 the mean is 5 and the standard deviation the root of 26/3."""
    ours, theirs, *rest = found.rows
    times = EndToEnd(Timing((2.0, 4.0, 9.0)), Timing((1.0, 1.0, 4.0)))
    rows = [replace(ours, times=times, device="Example GPU"), replace(theirs, times=EndToEnd(times.total)), *rest]
    counted = replace(found, runs=3, rows=rows)
    titles, small, large = tables.spread_table(counted)
    assert titles == ["model", "edgedeploy kernels", "edgedeploy", "onnxruntime", "ncnn"]
    assert small[:4] == ["small", "2.00 ± 1.41", "5.00 ± 2.94", "5.00 ± 2.94"]
    assert (large[1], large[4]) == ("-", "-")
    text = tables.as_markdown(counted)
    assert "mean ± standard deviation of 3 runs" in text
    assert "3 runs of each in 3 rounds" in text
    assert "edgedeploy 1.0 on Example GPU" in text
    assert "onnxruntime 1.0 on CPU" in text


def test_kernels_are_not_spoken_of_where_there_are_none(found: report.Report) -> None:
    text = tables.as_markdown(replace(found, runs=3))
    assert "mean ± standard deviation of 3 runs:" in text
    assert "kernels" not in text


def test_without_counted_runs_means_are_not_printed(found: report.Report) -> None:
    assert "±" not in tables.as_markdown(found)
    assert "medians of 5 rounds; edgedeploy 1.0, onnxruntime 1.0" in report.heading(found)


def test_a_network_that_failed_is_named_with_its_cause(found: report.Report) -> None:
    failed = replace(found, failed={"broken.onnx": PackageError("it is empty")})
    assert "broken.onnx was not measured: it is empty" in report.notes(failed)


def test_random_weights_are_pointed_out(found: report.Report) -> None:
    assert report.notes(replace(found, random_weights=["small"]))[0].startswith("weights are random in small")
    assert not any("random" in line for line in report.notes(found))


def test_json_has_the_fields_that_scripts_rely_on(found: report.Report) -> None:
    written = json.loads(json.dumps(found.to_dict()))
    assert written["machine"] == {"cpu": "Example CPU", "cores": 2, "os": "Example 1, Linux 6", "load": 0.25}
    assert written["rows"][2] == {
        **{"model": "small", "engine": "ncnn", "version": "1.0", "device": "CPU", "threads": 2, "runs": 3},
        **{"min_ms": 0.225, "median_ms": 0.25, "mean_ms": pytest.approx(0.275), "max_ms": 0.35, "turns_ms": []},
        **{"std_ms": pytest.approx(0.0540, abs=1e-4), "p90_ms": pytest.approx(0.33), "p99_ms": pytest.approx(0.348)},
        **{"per_second": pytest.approx(4000), "ratio": 2.0, "max_rel_diff": 0.01, "max_abs_diff": 0.1},
        **dict.fromkeys(["batch", "compile_s", "load_s", "first_s", "peak_bytes", "size_bytes", "same_top1"]),
    }
    assert written["geometric_means"]["best"] == pytest.approx(2.0)
    assert written["skipped"] == [{"engine": "ncnn", "models": ["large"], "reason": "it has no Loop"}]


def entry(folder: Path, *lines: str) -> Path:
    """An entry of the zoo whose file is nowhere to be had."""
    file = "{name: net.onnx, size: 1000, sha256: '" + 64 * "0" + "'}"
    text = ["task: detection", "description: a network", "licence: none", f"files: [{file}]", *lines]
    return put(folder / "net.yaml", "\n".join([*text, "input: {name: data, shape: [1, 3, 320, 320]}"]))


def test_a_network_that_is_not_in_reach_is_measured_with_random_weights(tmp_path: Path) -> None:
    notes = Notebook()
    found = networks.source_to_measure(str(entry(tmp_path, "architecture: nanodet-m")), None, notes, AS_THE_FILE_SAYS)
    assert found.options.weights == "random"
    assert found.format.name == "architecture"
    assert ["measured with random weights" in line for line in notes.lines] == [True]


def test_a_network_without_any_file_is_measured_with_random_weights() -> None:
    found = networks.source_to_measure("convnext_tiny", None, SILENT, AS_THE_FILE_SAYS)
    assert (found.options.weights, found.format.name) == ("random", "architecture")


def test_a_network_that_nobody_can_write_is_not(tmp_path: Path) -> None:
    with pytest.raises(DownloadError):
        networks.source_to_measure(str(entry(tmp_path)), None, SILENT, AS_THE_FILE_SAYS)


def test_the_bundled_network_is_measured_and_compared(command: Command, tmp_path: Path) -> None:
    options = ["--threads", 1, "--rounds", 2, "--runs", 7, "--report", tmp_path / "out.html"]
    printed = json_of(command, "bench", "digits", "--against", "onnxruntime,mnn", *options)
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    [embedded] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    assert json.loads(embedded) == printed
    assert printed["machine"]["cpu"]
    assert printed["machine"]["cores"] >= 1
    rows = {entry["engine"]: entry for entry in printed["rows"]}
    assert [name for name in rows if name != "mnn"] == ["edgedeploy", "onnxruntime"]
    assert {(each["model"], each["batch"], each["threads"]) for each in rows.values()} == {("digits", None, 1)}
    assert printed["runs"] == 7
    for each in rows.values():
        assert (each["runs"], len(each["turns_ms"]), each["device"]) == (7, 2, "CPU")
        assert 0 < each["min_ms"] <= each["mean_ms"] <= each["max_ms"]
        assert each["median_ms"] <= each["p90_ms"] <= each["p99_ms"] <= each["max_ms"]
        assert each["same_top1"] is True
        assert each["load_s"] > 0
        assert each["first_s"] > 0
        assert each["peak_bytes"] > 10e6  # Python alone takes that
    assert rows["onnxruntime"]["version"] == onnxruntime.__version__
    ours, theirs = rows["edgedeploy"], rows["onnxruntime"]
    assert theirs["compile_s"] is None
    assert theirs["size_bytes"] == (ROOT / "models" / "digits.onnx").stat().st_size
    assert ours["compile_s"] > 0
    assert ours["size_bytes"] > theirs["size_bytes"]
    if "mnn" in rows:
        assert rows["mnn"]["compile_s"] > 0
        assert rows["mnn"]["size_bytes"] > 0
    assert ours["ratio"] == 1.0
    assert theirs["ratio"] == pytest.approx(ours["median_ms"] / theirs["median_ms"])
    assert theirs["max_rel_diff"] == 0.0
    assert 0 < ours["max_rel_diff"] < 1e-4
    others = {name: each["ratio"] for name, each in rows.items() if name != "edgedeploy"}
    assert printed["geometric_means"] == pytest.approx({**others, "best": max(others.values())})


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs are started without
from edgedeploy.cli import main

if __name__ == "__main__":
    sys.argv = ["edgedeploy", "bench", sys.argv[1], "--against", "onnxruntime", "--threads", "1", "--runs", "1000000"]
    main()
"""


@pytest.mark.slow
def test_ctrl_c_ends_it_and_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "interruptible.py").write_text(INTERRUPTIBLE)
    command = [sys.executable, str(tmp_path / "interruptible.py"), str(tiny(tmp_path / "net.onnx"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as bench:
        for line in bench.stderr:
            if line.startswith("  measure net"):
                break
        children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text().split()
        assert len(children) >= 2
        time.sleep(0.3)
        bench.send_signal(signal.SIGINT)
        assert bench.wait(generous(20)) == 130
    # Python's own process for what children share ends a moment after it.
    assert becomes(lambda: not [pid for pid in children if Path(f"/proc/{pid}").exists()])


# What Debian 13's glibc says of the library of MNN's converter for Python 3.13.
REFUSED_BY_GLIBC = "cannot enable executable stack"


def test_every_other_engine_that_is_installed_gives_the_same_numbers(command: Command) -> None:
    others = ["openvino", "ncnn", "mnn", "torch"]
    options = ["--against", ",".join(others), "--threads", 1, "--rounds", 1]
    printed = json_of(command, "bench", "digits", *options)
    measured = {entry["engine"] for entry in printed["rows"]}
    left_out = {entry["engine"]: entry["reason"] for entry in printed["skipped"]}
    assert measured == {"edgedeploy", *others} - set(left_out)
    expected = "installed", "pnnx", REFUSED_BY_GLIBC
    assert all(any(word in reason for word in expected) for reason in left_out.values()), left_out
    assert all(entry["max_rel_diff"] < 1e-4 for entry in printed["rows"])


def test_a_missing_engine_is_named_and_omitted(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = replace(cpu.MNN, module="no_such_module")
    monkeypatch.setattr(engines, "PEERS", [absent if each is cpu.MNN else each for each in engines.PEERS])
    monkeypatch.setitem(engines._BY_NAME, "mnn", absent)
    net = tiny(tmp_path / "net.onnx")
    code, out, err = command("bench", net, "--against", "mnn,onnxruntime", "--threads", 1, "--rounds", 1)
    assert code == 0
    assert "mnn is left out: it is not installed" in err
    assert "torch" not in err
    assert "pip install 'edgedeploy[bench]'" in err
    assert "mnn was not measured on net" in out
    assert "onnxruntime ms" in out
    assert re.search(r"^net +[\d.]+ +[\d.]+ \([\d.]+\) +[\d.]+ \(onnxruntime\)", out, re.MULTILINE)
    assert "largest difference from the outputs of onnxruntime" in out


@pytest.mark.slow
@pytest.mark.skipif(not cpu.LITERT.installed(), reason="LiteRT is not installed")
def test_markdown_names_an_engine_that_reads_other_files_with_the_reason(command: Command, tmp_path: Path) -> None:
    options = ["--against", "onnxruntime,litert", "--threads", 1, "--rounds", 1, "--markdown"]
    out = output_of(command, "bench", tiny(tmp_path / "net.onnx"), *options)
    assert "| model | edgedeploy ms | onnxruntime ms (ratio) | ratio to the best |" in out
    assert "- litert was not measured on net: it reads .tflite files, and the network is a .onnx file" in out


@pytest.mark.skipif(not cpu.LITERT.installed(), reason="LiteRT is not installed")
def test_networks_of_tensorflow_lite_are_measured_against_litert(command: Command, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(small())
    options = ["--against", "litert,onnxruntime", "--threads", 1, "--rounds", 1]
    printed = json_of(command, "bench", tmp_path / "net.tflite", *options)
    assert printed["reference"] == "litert"
    assert [entry["engine"] for entry in printed["rows"]] == ["edgedeploy", "litert"]
    assert printed["rows"][0]["max_rel_diff"] < 1e-5
    reason = "it reads .onnx files, and the network is a .tflite file"
    assert printed["skipped"] == [{"engine": "onnxruntime", "models": ["net"], "reason": reason}]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["digits", "--against", "onxruntime"], 4, "did you mean onnxruntime"),
        (["digits", "--against", "onnxruntime,tensorrt9"], 4, "unknown engine 'tensorrt9'"),
        (["digits", "--against", ","], 7, "no engine"),
        (["digit"], 4, "digits"),
        (["absent.onnx"], 5, "there is no file"),
        (["digits", "--threads", "0"], 2, "--threads"),
        (["digits", "--threads", "4096"], 7, "processors"),
        (["digits", "--rounds", "0"], 2, "--rounds"),
        (["digits", "--runs", "0"], 2, "--runs"),
        (["digits", "--runs", "many"], 2, "--runs"),
        (["digits", "--board", "rpi4", "--virtual", "--host", "pi@10.0.0.7"], 7, "--virtual does not go with --host"),
        (["digits", "--board", "rpi4", "--host", "pi:secret@10.0.0.7"], 7, "it contains a password"),
        (["digits", "--host", "virtual:no-such-board"], 4, "no-such-board"),
        (["digits", "--json", "--markdown"], 7, "one of them"),
        (["digits", "--batch", "1,0"], 7, "not a list of batch sizes"),
        (["digits", "--columns", "median,speed"], 4, "unknown column 'speed'"),
        (["digits", "--tuned", "no-such-records"], 4, "no-such-records"),
        (["digits", "mnist", "--input-shape", "data:1,1,16,16"], 7, "one model"),
        (["--rounds", "3"], 2, "MODEL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_requests_are_refused_unmeasured(command: Command, arguments: list[str], code: int, message: str) -> None:
    found, out, err = command("bench", *arguments)
    assert (found, message in err) == (code, True), err
    assert "  measure " not in err
    if "--json" in arguments:
        assert json.loads(out)["error"]["code"] == code
    else:
        assert not out


def task(folder: Path) -> Task:
    """One network for one engine; edgedeploy's package is not needed for others."""
    file = tiny(folder / "net.onnx")
    (folder / "scratch").mkdir()
    inputs = {"data": np.ones((1, 3, 8, 8), np.float32)}
    return Task(file, folder / "absent.tar.gz", inputs, ["globalaveragepool2"], 1, folder / "scratch")


def test_a_worker_keeps_its_engine_ready(tmp_path: Path) -> None:
    given = task(tmp_path)
    with EngineWorker(engines.REFERENCE, given) as worker:
        assert worker.typical > 0
        assert len(worker.turn(1, 4).seconds) == 4
        [expected] = cpu_session(given.file).run(None, given.inputs)
        np.testing.assert_array_equal(worker.outputs()["globalaveragepool2"], expected)


def test_an_engine_that_crashes_says_so(tmp_path: Path) -> None:
    with EngineWorker(engines.REFERENCE, task(tmp_path)) as worker:
        [process] = multiprocessing.active_children()
        os.kill(process.pid, signal.SIGSEGV)
        process.join()  # between two turns
        with pytest.raises(CannotRunError, match="SIGSEGV"):
            worker.turn(1, 1)


def test_an_engine_that_cannot_read_a_network_gives_its_reason(tmp_path: Path) -> None:
    given = task(tmp_path)
    graph = Graph()
    graph.save(given.file, graph.node("NoSuchOperator", graph.input("data", [1, 3, 8, 8])))
    with pytest.raises(CannotRunError, match="NoSuchOperator"):
        EngineWorker(engines.REFERENCE, given)


def test_what_keeps_edgedeploy_itself_from_running_is_known(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match=r"absent\.tar\.gz") as caught:
        EngineWorker(engines.OURS, task(tmp_path))
    assert isinstance(caught.value.__cause__, PackageError)


def test_a_package_that_is_not_for_this_machine_is_that_and_no_fault_of_the_compiler(command: Command) -> None:
    other = "rpi-armhf" if platform.machine() == "aarch64" else "rpi4"
    err = refused(command, 8, "bench", "digits", "--board", other, "--host", "local", "--against", "onnxruntime")
    assert f"built for board '{other}' and does not run on this machine" in err


@pytest.mark.skipif(not cpu.MNN.installed(), reason="MNN is not installed")
def test_mnn_is_used_without_its_tools_which_install_packages(tmp_path: Path) -> None:
    assert "MNN.tools" not in cpu._MNN_CONVERTER
    given = task(tmp_path)
    try:
        with EngineWorker(cpu.MNN, given) as worker:
            assert worker.turn(1, 1).seconds
    except CannotRunError as error:
        if REFUSED_BY_GLIBC in str(error):
            pytest.skip(str(error))
        raise
    assert (given.folder / "network.mnn").is_file()
    assert b"pip install" not in (given.folder / "output.txt").read_bytes()
