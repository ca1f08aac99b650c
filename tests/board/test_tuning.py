"""`edgedeploy tune` as a whole: real boards over SSH or this machine, real measurements, and what befalls them."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Command
from support.commands import becomes, generous, json_of, notes_of, output_of, refused, started
from support.listeners import beyond_loopback
from support.networks import begun
from support.virtual_boards import Start, left_on, said

from edgedeploy.errors import BoardConnectionError, InputError, RecordsError, RpcError, UnknownNameError
from edgedeploy.package.archive import read_manifest
from edgedeploy.records.database import read_records
from edgedeploy.records.schema import default_folder
from edgedeploy.remote.address import address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.virtual.board import VirtualBoard, down

pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")

# Slow, but for the tests that say otherwise.
pytestmark = [pytest.mark.usefixtures("own_cpu"), pytest.mark.quick()]

Json = dict[str, Any]

# What a run may take after something broke for good, and what one takes to begin on a busy machine.
STOPS_S, BEGINS_S = 60, 120


@pytest.fixture
def network(tmp_path: Path) -> Path:
    graph, value = begun(1, 3, 32, 32)
    value = graph.node("Relu", graph.conv(value, 3, 16, 3, pads=[1, 1, 1, 1]))
    value = graph.node("Relu", graph.conv(value, 16, 32, 3, pads=[1, 1, 1, 1]))
    return graph.save(tmp_path / "three.onnx", graph.node("Relu", graph.conv(value, 32, 32, 1)))


class Run:
    """A run in a process of its own, and its events as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[Json] = []
        self._said: list[str] = []
        read = [(self.events, map(json.loads, process.stdout)), (self._said, process.stderr)]
        self._threads = [threading.Thread(target=kept.extend, args=(lines,), daemon=True) for kept, lines in read]
        for thread in self._threads:
            thread.start()

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event.get("event") == kind]  # an error is none

    def trials(self) -> list[Json]:
        return [event["trial"] for event in self.of("measured")]

    def wait_for(self, kind: str, count: int = 1) -> None:
        assert becomes(lambda: len(self.of(kind)) >= count or not self._threads[0].is_alive(), BEGINS_S)
        assert len(self.of(kind)) >= count, self.messages()

    def end(self, limit_s: float) -> int:
        code = self.process.wait(limit_s)
        for thread in self._threads:
            thread.join(5)
        return code

    def messages(self) -> str:
        return "".join(self._said)


@contextmanager
def running(*arguments: object, **variables: str) -> Iterator[Run]:
    command = [sys.executable, "-m", "edgedeploy", "tune", *map(str, arguments), "--json"]
    pipe, environment = subprocess.PIPE, {**os.environ, **variables}
    with started(*command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        yield Run(process)


def tuned(*arguments: object, limit_s: float = 300) -> Run:
    with running(*arguments) as run:
        assert run.end(limit_s) == 0, run.messages()
        return run


def holds(process: psutil.Process, *words: str) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return any(word in command for word in words)


def descendants() -> set[int]:
    """Processes of ours, but for those of virtual boards and the one that Python itself keeps for others."""
    children = psutil.Process().children(recursive=True)
    ours = (each for each in children if not holds(each, "multiprocessing.resource_tracker"))
    return {each.pid for each in ours if holds(each, "python", "agent rpc")}


@pytest.mark.quick("local")
@pytest.mark.parametrize("board", ["local", "rpi4", "rpi-armhf"])
def test_a_board_is_tuned_through_its_ssh_server_and_builds_use_what_was_found(
    board: str, start: Start, network: Path, board_command: Command, tmp_path: Path
) -> None:
    virtual = start(board, name=f"tune-{board}")
    records = tmp_path / "records"
    place = ("--board", board, "--host", f"virtual:{virtual.name}")
    before = descendants()
    with beyond_loopback() as beyond:
        run = tuned(network, *place, "--trials", 2, "-o", records, limit_s=500)
    assert beyond == set()
    assert left_on(virtual) == ""
    assert said(virtual, "cd ~/.local/share/edgedeploy && ls -d releases/*/* trials/*/*") == ""
    assert descendants() == before

    [ended] = run.of("run ended")
    assert len(ended["results"]) == 3
    assert [trial["failure"] for trial in run.trials()] == [None] * 6
    assert ended["before_ms"] is not None, run.of("note")
    assert ended["before_ms"] > 0
    assert ended["after_ms"] > 0
    for result in ended["results"]:
        assert 0 < result["best_ms"] <= result["default_ms"]
    kept = read_records(records).trials
    assert len({trial.workload for trial in kept}) == 3
    assert sum(not trial.final for trial in kept) == 6

    [built] = json_of(board_command, "build", network, "--board", board, "--tuning-records", records)
    assert read_manifest(Path(built["package"])).tuning_records == built["tuning_records"] is not None
    output_of(board_command, "push", built["package"], "--host", f"virtual:{virtual.name}")


def test_the_board_s_own_records_are_used_unless_others_are_named(
    network: Path, board_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output_of(board_command, "tune", network, "--trials", 4, "--tasks", "0", "--no-compare")
    assert default_folder("local").is_dir()
    hashes = {}
    for chosen in ([], ["--tuning-records", "none"], ["--tuning-records", default_folder("local")]):
        [built] = json_of(board_command, "build", network, *chosen, "-o", tmp_path / "out")
        hashes[str(chosen[-1:])] = built["tuning_records"]
    own, none, named = hashes.values()
    assert own == named is not None
    assert none is None
    # Where none was kept, one is built with them.
    monkeypatch.setenv("EDGEDEPLOY_CACHE", str(tmp_path / "cache"))
    assert "1 of 4 functions are as tuned" in notes_of(board_command, "run", network, "--print-time")


def test_a_second_run_goes_on_where_the_first_one_ended(network: Path, tmp_path: Path) -> None:
    arguments = (network, "--tasks", "0", "--tuner", "random", "--no-compare", "-o", tmp_path / "records")
    first = tuned(*arguments, "--trials", 6)
    assert tuned(*arguments, "--trials", 6).trials() == []
    more = tuned(*arguments, "--trials", 10)
    assert [trial["number"] for trial in more.trials()] == [6, 7, 8, 9]
    tried = [json.dumps(trial["configuration"], sort_keys=True) for run in (first, more) for trial in run.trials()]
    assert len(set(tried)) == 10
    assert [trial["number"] for trial in tuned(*arguments, "--trials", 6, "--no-resume").trials()] == list(range(6))


def test_another_model_begins_with_what_records_know_of_its_tasks(network: Path, tmp_path: Path) -> None:
    one_task = (network, "--tasks", "0", "--no-compare")
    first = tuned(*one_task, "--trials", 8, "-o", tmp_path / "first")
    best = min(first.trials(), key=lambda trial: sorted(trial["seconds"])[len(trial["seconds"]) // 2])
    second = tuned(*one_task, "--trials", 2, "-o", tmp_path / "second", "--tuning-records", tmp_path / "first")
    default, liked = (trial["configuration"] for trial in second.trials())
    assert default == first.trials()[0]["configuration"]
    assert liked == best["configuration"] or best["number"] == 0


# Long enough to be in the middle of it: 16 candidates, each measured for a sixth of a second.
LENGTHY = ("--min-repeat-ms", 50, "--repeat", 3, "--trials", 48, "--tasks", "0-1", "--no-compare")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_an_ended_run_leaves_nothing_running_and_resumes(how: signal.Signals, network: Path, tmp_path: Path) -> None:
    arguments, files = (network, "-o", tmp_path / "records", *LENGTHY), tmp_path / "files"
    files.mkdir()
    before = descendants()
    with beyond_loopback() as beyond, running(*arguments, TMPDIR=str(files)) as run:
        run.wait_for("measured", 16)
        time.sleep(4)  # the second batch is being built or measured
        started = descendants() - before
        run.process.send_signal(how)
        code = run.end(STOPS_S)
    assert beyond == set()
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert becomes(lambda: not any(map(psutil.pid_exists, started)), 30)
    assert becomes(lambda: not list(files.iterdir()))
    known = len(run.trials())
    resumed = tuned(*arguments)
    assert known - 16 <= 96 - len(resumed.trials()) <= known + 16
    assert {result["number"]: result["trials"] for result in resumed.of("run ended")[0]["results"]} == {0: 48, 1: 48}


def kill_agent(virtual: VirtualBoard, run: Run) -> None:
    said(virtual, "kill -9 $(grep -la '[r]pc.--work-dir' /proc/[0-9]*/cmdline | cut -d / -f 3)")


def kill_tracker(virtual: VirtualBoard | None, run: Run) -> int:
    killed = 0
    for process in of_run(run):
        with suppress(psutil.Error):
            listens = any(each.status == psutil.CONN_LISTEN for each in process.net_connections())
            if listens and holds(process, "spawn_main"):  # a worker; agents listen, too
                process.kill()
                killed += 1
    return killed


def of_run(run: Run) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(run.process.pid).children(recursive=True)
    return []


def kill_connection(virtual: VirtualBoard, run: Run) -> None:
    with Connection(address_of(virtual)) as connection:
        connection.open("kill -9 $(grep -la '^sshd[^ ]*: ' /proc/[0-9]*/cmdline | cut -d / -f 3)")
        time.sleep(1)


@pytest.mark.parametrize("break_it", [kill_agent, kill_tracker, kill_connection])
def test_a_run_survives_what_breaks(
    break_it: Callable[[VirtualBoard, Run], object], start: Start, network: Path, tmp_path: Path
) -> None:
    virtual = start("local", name="tune-faults")
    with running(network, "--host", f"virtual:{virtual.name}", "-o", tmp_path / "records", *LENGTHY) as run:
        run.wait_for("measured", 16)
        time.sleep(5)
        break_it(virtual, run)
        code = run.end(300)
    assert code == 0, run.messages()
    assert [trial["failure"] for trial in run.trials()] == [None] * 96
    assert left_on(virtual) == ""


@pytest.mark.parametrize("seed", range(3))
def test_a_tracker_may_be_killed_at_any_moment_and_again(seed: int, network: Path, tmp_path: Path) -> None:
    chance, killed = random.Random(seed), 0
    arguments = (network, "-o", tmp_path / "records", "--tasks", "0-1", "--trials", 48)
    with running(*arguments) as run:
        assert becomes(lambda: any(holds(each, "rpc --work-dir") for each in of_run(run)), BEGINS_S)
        while run.process.poll() is None and killed < 12:
            time.sleep(chance.uniform(0, 6))
            killed += kill_tracker(None, run)
        code = run.end(400)
    assert code == 0, run.messages()
    assert killed >= 3
    assert [trial["failure"] for trial in run.trials()] == [None] * 96
    assert not any("waiting for" in note["text"] for note in run.of("note"))  # no board was given up


def test_a_run_says_that_its_board_is_gone_and_resumes_with_it(start: Start, network: Path, tmp_path: Path) -> None:
    virtual = start("local", name="tune-gone")
    arguments = (network, "--host", "virtual:tune-gone", "-o", tmp_path / "records", *LENGTHY)
    with running(*arguments) as run:
        run.wait_for("measured", 16)
        time.sleep(4)
        down(virtual)
        gone = time.monotonic()
        code = run.end(2 * STOPS_S)
    assert code == BoardConnectionError.exit_code
    assert time.monotonic() - gone < generous(STOPS_S)
    assert "did not come back" in run.messages()
    start("local", name="tune-gone")
    resumed = tuned(*arguments)
    assert len(resumed.trials()) <= 96 - len(run.trials())
    assert {result["trials"] for result in resumed.of("run ended")[0]["results"]} == {48}


def test_several_hosts_share_the_work(start: Start, network: Path, tmp_path: Path) -> None:
    names = [start("local", name=name).name for name in ("tune-one", "tune-two")]
    hosts = [option for name in names for option in ("--host", f"virtual:{name}")]
    run = tuned(network, *hosts, "--trials", 16, "--tasks", "0", "--no-compare", "-o", tmp_path / "records")
    assert {trial["host"] for trial in run.trials()} == {f"virtual:{name}" for name in names}


@pytest.mark.quick("*")
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (("--rpc-tracker", "127.0.0.1:9"), RpcError, "no tracker answers at 127.0.0.1:9"),
        (("--rpc-tracker", "nonsense"), InputError, "is not an address of a tracker"),
        (("--rpc-key", "key"), InputError, "--rpc-key needs --rpc-tracker"),
        (("--rpc-tracker", "127.0.0.1:9", "--virtual"), InputError, "does not go with"),
        (("--tasks", "7"), InputError, "names no tasks"),
        (("--tuning-records", "nowhere"), UnknownNameError, "no tuning records for"),
        (("--set-governor", "no such;"), InputError, "cannot be the name of a governor"),
        (("--host", "nobody@127.0.0.1:9"), BoardConnectionError, "cannot be reached"),
    ],
)
def test_wrong_options_are_refused_at_once(
    wrong: tuple[str, ...], error: type[Exception], message: str, network: Path, board_command: Command
) -> None:
    began, before = time.monotonic(), descendants()
    assert message in refused(board_command, error.exit_code, "tune", network, *wrong)
    assert time.monotonic() - began < generous(15)
    assert descendants() == before


def test_records_of_another_board_are_not_mixed_in(network: Path, board_command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    output_of(board_command, "tune", network, "--trials", 1, "--tasks", "0", "--no-compare", "-o", folder)
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    tune = ("tune", network, "--mcpu", "x86-64-v2", "--trials", 1, "-o", folder)
    refused(board_command, RecordsError.exit_code, *tune)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
    build = ("build", network, "--mcpu", "x86-64-v2", "--tuning-records", folder)
    refused(board_command, RecordsError.exit_code, *build)


@pytest.mark.quick("*")
def test_tasks_are_listed_without_a_board(network: Path, board_command: Command) -> None:
    [tasks] = json_of(board_command, "tune", network, "--board", "rpi4", "--tasks", "list").values()
    assert [task["number"] for task in tasks] == [0, 1, 2]
    assert all(task["candidates"] > 1 and task["mflop"] > 0 for task in tasks)
