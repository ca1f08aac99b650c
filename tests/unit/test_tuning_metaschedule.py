"""TVM's own space: candidates once each, by a seed; from records exactly what was measured, and right numbers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm
from networks import Graph
from running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import InputError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.tune.best import tuned_by
from edgedeploy.tune.database import workload_hash
from edgedeploy.tune.header import Header
from edgedeploy.tune.records import Records
from edgedeploy.tune.run import Options
from edgedeploy.tune.spaces import Candidate, Space, model_for, space_for
from edgedeploy.tune.task import Task, all_tasks_of, tasks_of
from edgedeploy.tune.trial import Trial

# The quick tests have `edgedeploy tune` as a whole, in test_tuning.py.
pytestmark = pytest.mark.slow

TUNERS = ["xgb", "ga", "random"]
BOARD = load_board("local")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a depthwise one, a pooling, a dense layer and a softmax."""
    graph = Graph()
    value = graph.input("data", [1, 3, 16, 16])
    value = graph.node("Relu", graph.conv(value, 3, 16, 3, pads=[1, 1, 1, 1]))
    value = graph.node("Relu", graph.conv(value, 16, 16, 3, pads=[1, 1, 1, 1], group=16))
    value = graph.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    value = graph.node("Flatten", graph.node("GlobalAveragePool", graph.conv(value, 16, 24, 1)))
    value = graph.node("Gemm", value, graph.normal(24, 10), graph.normal(10))
    return graph.save(tmp_path_factory.mktemp("net") / "net.onnx", graph.node("Softmax", value))


@pytest.fixture(scope="module")
def tasks(network: Path) -> list[Task]:
    return all_tasks_of(read_onnx(network), BOARD)


def task_of(tasks: list[Task], name: str) -> Task:
    return next(task for task in tasks if name in task.name)


@pytest.fixture
def convolution(tasks: list[Task]) -> Task:
    return tasks[0]


@pytest.fixture
def pooling(tasks: list[Task]) -> Task:
    return task_of(tasks, "max_pool")


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records.open(tmp_path / "records", Header.of("local", BOARD.target()))


def space_of(task: Task, tuner: str = "random", records: Records | None = None, seed: int = 0) -> Space:
    return space_for("metaschedule", task, tuner, model_for("metaschedule", tuner, seed), records, seed=seed)


def record(records: Records, candidate: Candidate, number: int, seconds: float | None, *, final: bool = False) -> Trial:
    """Record a trial as a run does."""
    configuration = candidate.configuration
    trial = Trial(
        time=datetime(2026, 5, 4, 12, 0, number, tzinfo=timezone.utc),
        run="run",
        task=candidate.task.name,
        workload=candidate.task.key,
        number=number,
        space="metaschedule",
        configuration=configuration.model_dump(mode="json") if configuration else None,
        scheduled=candidate.key if candidate.schedule else None,
        seconds=[seconds] if seconds else [],
        failure=None if seconds else "timeout",
        final=final,
    )
    records.add(candidate.task.workload, trial, candidate.schedule.trace if candidate.schedule else None)
    return trial


def hash_of(function: tvm.tirx.PrimFunc) -> str:
    return workload_hash(tvm.IRModule({"main": function}))


def cost(candidate: Candidate) -> float:
    """A time that no board took: the number of loops that the function has, in milliseconds."""
    return candidate.function.script().count("for ") / 1000


def test_its_tasks_are_functions_without_a_layer_too(network: Path, tasks: list[Task]) -> None:
    layers = tasks_of(read_onnx(network), BOARD)
    assert {task.key for task in layers} < {task.key for task in tasks}
    assert any("max_pool" in task.name for task in tasks)
    assert any("softmax" in task.name for task in tasks)


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_default_comes_first_and_then_each_function_once(tuner: str, convolution: Task) -> None:
    space = space_of(convolution, tuner)
    assert space.size is None
    proposed: list[Candidate] = []
    for _ in range(3):
        batch = space.propose(12)
        assert len(batch) == 12
        space.learn((each, cost(each)) for each in batch)
        proposed += batch
    assert proposed[0] == space.default
    untuned = convolution.scheduled(convolution.candidates[0])
    assert hash_of(proposed[0].function) == hash_of(untuned)
    assert all(each.schedule is not None for each in proposed[1:])
    assert len({hash_of(each.function) for each in proposed}) == 36


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_seed_decides_what_is_proposed(tuner: str, convolution: Task) -> None:
    def proposed(seed: int) -> list[str]:
        space = space_of(convolution, tuner, seed=seed)
        first = space.propose(16)
        space.learn((each, cost(each)) for each in first)
        return [each.key for each in [*first, *space.propose(16)]]

    np.random.seed(1)  # TVM's models draw from these numbers, which are not theirs
    expected = np.random.random()
    np.random.seed(1)
    once = proposed(3)
    assert np.random.random() == expected
    assert proposed(3) == once
    assert proposed(4) != once


@pytest.mark.parametrize("tuner", TUNERS)
def test_a_small_space_comes_to_an_end(tuner: str, pooling: Task) -> None:
    space = space_of(pooling, tuner)
    tried: list[Candidate] = []
    while batch := space.propose(16):
        space.learn((each, cost(each)) for each in batch)
        tried += batch
        assert len(tried) < 200
    assert tried[0] == space.default
    assert len(set(tried)) == len(tried) > 1


def test_a_model_that_learns_finds_quicker_ones_than_chance(convolution: Task) -> None:
    def best_after(tuner: str, trials: int) -> float:
        space, costs = space_of(convolution, tuner), []
        while len(costs) < trials:
            batch = space.propose(16)[: trials - len(costs)]
            results = [(each, cost(each)) for each in batch if each.schedule]
            space.learn(results)
            costs += [seconds for _, seconds in results]
        return float(np.mean(sorted(costs[-32:])))

    assert best_after("xgb", 96) < 0.9 * best_after("random", 96)


def test_there_is_no_list_of_it_to_go_through() -> None:
    with pytest.raises(InputError, match="gridsearch does not go with --space metaschedule"):
        Options(space="metaschedule", tuner="gridsearch")


@pytest.mark.parametrize("tuner", TUNERS)
def test_it_prints_nothing_and_writes_no_files(
    tuner: str, tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for task in tasks:
        space = space_of(task, tuner)
        space.learn((each, cost(each)) for each in space.propose(4))
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_from_records_without_what_was_tried(convolution: Task, records: Records) -> None:
    begun = space_of(convolution)
    first = begun.propose(24)
    trials = [record(records, each, n, None if n % 5 == 3 else cost(each)) for n, each in enumerate(first)]
    resumed = space_of(convolution, records=records)
    known = [resumed.of(trial) for trial in trials]
    assert known == first
    for before, now, trial in zip(first, known, trials, strict=True):
        assert now is not None
        if trial.seconds:
            assert hash_of(now.function) == hash_of(before.function)
    resumed.learn((each, trial.median_s) for each, trial in zip(known, trials, strict=True) if each)
    assert not set(resumed.propose(24)) & set(first)


def test_evolution_begins_with_the_best_that_records_have(convolution: Task, records: Records) -> None:
    begun = space_of(convolution)
    quick, *slow = begun.propose(17)[1:]
    trials = [record(records, each, number, 1.0) for number, each in enumerate(slow)]
    trials.append(record(records, quick, 17, 1e-6))
    resumed = space_of(convolution, "ga", records=records)
    resumed.learn((each, trial.median_s) for trial in trials if (each := resumed.of(trial)))
    database = resumed._database  # type: ignore[attr-defined]
    [best] = database.get_top_k(resumed._workload, 1)  # type: ignore[attr-defined]
    assert quick.schedule is not None
    assert best.trace.as_python() == quick.schedule.trace.as_python()
    assert len(database) == 16


def test_the_best_of_other_records_are_tried_first(convolution: Task, records: Records) -> None:
    elsewhere = space_of(convolution, seed=1).propose(8)
    for number, candidate in enumerate(elsewhere):
        record(records, candidate, number, float(8 - number))
    space = space_for("metaschedule", convolution, "random", None, others=[records], seed=2)
    proposed = space.propose(12)
    assert proposed[0] == space.default
    assert proposed[1:8] == elsewhere[:0:-1]
    assert not set(proposed[8:]) & set(elsewhere)


def chosen_from(records: Records) -> Callable[[tvm.IRModule], object]:
    with Records.open(records.folder) as opened:
        return tuned_by(opened)


def test_a_build_takes_exactly_the_function_that_was_measured(tasks: list[Task], records: Records) -> None:
    for task in tasks:
        measured = space_of(task).propose(4)
        for number, candidate in enumerate(measured):
            record(records, candidate, number, 1.0 if candidate is measured[-1] else 2.0)
    tuned = chosen_from(records)
    for task in tasks:
        found, measured = tuned(task.workload), space_of(task).propose(4)[-1]
        assert isinstance(found, tvm.tirx.PrimFunc)
        assert hash_of(found) == hash_of(measured.function)


def test_where_the_default_won_a_build_takes_it(tasks: list[Task], records: Records) -> None:
    for task in tasks:
        default, other = space_of(task).propose(2)
        record(records, default, 0, 2.0)
        record(records, other, 1, 1.0)
        record(records, default, 2, 1.0, final=True)
    tuned = chosen_from(records)
    for task in tasks:
        assert tuned(task.workload) == (task.candidates[0] if task.group else None)


@pytest.mark.parametrize("seed", range(3))
def test_a_network_of_its_functions_computes_the_same(seed: int, network: Path, tasks: list[Task]) -> None:
    chosen = {task.key: space_of(task, seed=seed).propose(2)[-1] for task in tasks}
    compiled = compile_network(
        read_onnx(network), BOARD, tuned=lambda workload: chosen[workload_hash(workload)].function
    )
    assert set(compiled.templates.values()) == {"metaschedule"}
    data = np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype(np.float32)
    [expected] = onnxruntime.InferenceSession(network).run(None, {"data": data})
    [actual] = outputs_of(compiled, {"data": data})
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
