"""Searches propose each candidate once, the default first, and find good ones sooner than chance does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from statistics import mean
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from support.agreement import network_of
from support.commands import Notebook
from support.networks import Graph, three_convolutions
from support.tuning_records import result, trial_of

from edgedeploy import building
from edgedeploy.compile.backends import known_configuration
from edgedeploy.compile.backends.cpu.configuration import Direct
from edgedeploy.compile.configuration import Configuration, untuned
from edgedeploy.compile.output.packing import scheduled_name
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.records.schema import Trial
from edgedeploy.runtime.opening import Place
from edgedeploy.runtime.timing import Timing
from edgedeploy.selftest.recording import recorded as recording
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.tuning import finals as comparison
from edgedeploy.tuning.finals import Finals
from edgedeploy.tuning.search import LEAST_RESULTS, TUNERS, CostModel, features, search_for
from edgedeploy.tuning.task import Task, selected, tasks_of
from edgedeploy.zoo.source import find_source


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    graph = Graph()
    value = three_convolutions(graph, 56, 32)
    value = graph.node("Relu", graph.conv(value, 32, 64, 3, pads=[1, 1, 1, 1], strides=[2, 2]))
    return tasks_of(network_of(graph, value), load_board("local"))


@pytest.fixture
def task(tasks: list[Task]) -> Task:
    return tasks[0]


def time_of(configuration: Configuration) -> float:
    """A landscape with one best place, far from what the board's model prefers: seconds."""
    if not isinstance(configuration, Direct):
        return 6.0
    tile = configuration.tile
    away = abs(tile.columns - 5) / 4 + abs(tile.rows - 3) + abs(tile.channels - 16) / 16
    return 1 + away + configuration.order.slices


def model_for(tuner: str) -> CostModel | None:
    return CostModel() if tuner == "xgb" else None


def best_after(tuner: str, task: Task, trials: int, seed: int, cost: Callable[[Configuration], float]) -> float:
    search = search_for(tuner, task, model_for(tuner), seed=seed)
    tried: list[Configuration] = []
    while len(tried) < trials and (batch := search.propose(16)):
        search.learn([(each, cost(each)) for each in batch])
        tried += batch
    assert len(set(tried)) == len(tried)
    return min(map(cost, tried))


def test_a_time_of_nothing_is_no_rate(task: Task) -> None:
    """Records that lie, or a clock that is coarse, may hold one."""
    model = CostModel()
    model.learn(task, [(each, 0.0) for each in task.candidates[:LEAST_RESULTS]])
    assert model.predict(task, task.candidates[:1]) == [pytest.approx(0.0, abs=1e-6)]


def test_the_cost_model_sees_every_number_of_a_candidate(task: Task) -> None:
    candidate = next(each for each in task.candidates if isinstance(each, Direct))
    seen = features(task, candidate)
    for name, value in candidate.genes.items():
        field, _, part = name.partition(".")
        inner = replace(getattr(candidate, field), **{part: value + 1}) if part else value + 1
        assert not np.array_equal(features(task, candidate.model_copy(update={field: inner})), seen), name


def test_a_candidate_that_the_cost_model_cannot_tell_apart_is_refused(task: Task) -> None:
    class Deeper(Direct):
        unrolled: int = 1

    candidate = Deeper(**dict(next(each for each in task.candidates if isinstance(each, Direct))))
    with pytest.raises(ValueError, match="no gene unrolled of Deeper"):
        CostModel().learn(task, [(candidate, 1.0)])


def test_tasks_are_functions_with_layers_each_once_those_with_most_work_first(tasks: list[Task]) -> None:
    assert [task.weight for task in tasks] == [2, 1, 1]
    work = [task.mflop * task.weight for task in tasks]
    assert work == sorted(work, reverse=True)
    # 2 operations x 56 x 56 pixels x 9 elements x 32 x 32 channels
    assert tasks[0].mflop == pytest.approx(2 * 56 * 56 * 9 * 32 * 32 / 1e6)


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_default_comes_first_and_every_candidate_once(task: Task, tuner: str) -> None:
    search = search_for(tuner, task, model_for(tuner))
    assert search.propose(16)[0] == task.candidates[0]
    found = []
    while batch := search.propose(64):
        search.learn([(each, time_of(each)) for each in batch])
        found += batch
    assert sorted(map(str, found)) == sorted(map(str, task.candidates))
    assert len(set(found)) == len(task.candidates)
    assert len(set(search_for(tuner, task, model_for(tuner)).propose(2))) == 2, "before anything is known"


@pytest.mark.parametrize("tuner", TUNERS)
def test_what_other_records_prefer_comes_right_after_the_default(task: Task, tuner: str) -> None:
    default, slower, liked, failed = (task.candidates[number] for number in (0, 7, 70, 40))
    known = [(slower, 2.0), (failed, None), (liked, 1.0)]
    assert search_for(tuner, task, model_for(tuner), known).propose(8)[:3] == [default, liked, slower]


@pytest.mark.slow
@pytest.mark.parametrize("tuner", ["xgb", "ga"])
def test_searches_that_learn_beat_chance(task: Task, tuner: str) -> None:
    seeds = range(4)
    learnt = mean(best_after(tuner, task, 96, seed, time_of) for seed in seeds)
    assert learnt < mean(best_after("random", task, 96, seed, time_of) for seed in seeds)


def test_failures_are_not_proposed_again_and_stop_no_search(task: Task) -> None:
    search = search_for("ga", task, None)
    failed = search.propose(16)
    search.learn([(each, None) for each in failed])
    assert not set(search.propose(16)) & set(failed)


def test_what_one_task_teaches_helps_with_the_next(tasks: list[Task]) -> None:
    model = CostModel()
    assert model.predict(tasks[0], tasks[0].candidates[:4]) is None  # nothing is known
    model.learn(tasks[0], [(each, time_of(each)) for each in tasks[0].candidates[::3]])
    others = [each for each in tasks[1].candidates if isinstance(each, Direct)]
    scores = model.predict(tasks[1], others)
    preferred = sorted(range(len(others)), key=lambda index: -scores[index])[:20]
    assert mean(time_of(others[index]) for index in preferred) < mean(map(time_of, others))


def test_the_same_seed_gives_the_same_search(task: Task) -> None:
    assert best_after("ga", task, 48, 5, time_of) == best_after("ga", task, 48, 5, time_of)


@pytest.mark.parametrize(
    ("text", "numbers"), [("all", [0, 1, 2]), ("1", [1]), ("0,2", [0, 2]), ("1-2", [1, 2]), ("2,0-1", [0, 1, 2])]
)
def test_tasks_are_chosen_by_numbers_and_ranges(tasks: list[Task], text: str, numbers: list[int]) -> None:
    assert [task.number for task in selected(tasks, text)] == numbers


@pytest.mark.parametrize("text", ["", "x", "3", "0-3", "-1", "1-", "2-1", "0;1", "0-99999999999999"])
def test_what_names_no_tasks_is_refused(tasks: list[Task], text: str) -> None:
    with pytest.raises(InputError, match="names no tasks"):
        selected(tasks, text)


# Finals in the network: each variant has other finalists, and what is fastest there is what builds take.

Recorded = list[Trial]


@pytest.fixture(scope="module")
def two_tasks() -> list[Task]:
    graph = Graph()
    return tasks_of(network_of(graph, three_convolutions(graph, 32, 16)), load_board("local"))


@pytest.fixture
def recorded() -> Recorded:
    return []


@pytest.fixture
def finals(two_tasks: list[Task], recorded: Recorded) -> Finals:
    """The first task has two finalists beside its default, the second one."""
    found = Finals("run", two_tasks, recorded.append)
    for task, count in zip(two_tasks, (3, 2), strict=True):
        found.finalists[task.key] = [
            (each, trial_of(task, number, 1.0, run="run", final=True))
            for number, each in enumerate(task.candidates[:count])
        ]
        found.results[task.key] = result(workload=task.key, weight=task.weight, default_ms=1.0, best_ms=0.5)
    return found


def configurations(trials: Recorded) -> list[Configuration | None]:
    return [known_configuration(trial.configuration) for trial in trials]


def times_of(two_tasks: list[Task], *seconds: tuple[float, float]) -> list[dict[str, float]]:
    """For each variant the times of the two tasks' functions in one inference."""
    names = [scheduled_name(task.names[0]) for task in two_tasks]
    return [dict(zip(names, each, strict=True)) for each in seconds]


def test_variants_have_every_finalist_and_begin_with_the_defaults(
    finals: Finals, two_tasks: list[Task], recorded: Recorded
) -> None:
    found = [[variant(task.workload) for task in two_tasks] for variant in finals.variants()]
    first, second = two_tasks
    assert found == [
        [first.candidates[0], second.candidates[0]],
        [first.candidates[1], second.candidates[1]],
        [first.candidates[2], None],  # a build without records: the default again
    ]
    assert Finals("without finalists", two_tasks, recorded.append).variants() == []


def test_the_fastest_is_recorded_beside_the_default_until_it_is_withdrawn(
    finals: Finals, two_tasks: list[Task], recorded: Recorded
) -> None:
    finals.settle(times_of(two_tasks, (0.004, 0.001), (0.003, 0.0009), (0.002, 0.001)))
    first, second = two_tasks
    assert first.weight == 2
    results = finals.results[first.key], finals.results[second.key]
    assert [(each.default_ms, each.best_ms) for each in results] == [(2.0, 1.0), (1.0, 0.9)]
    assert results[0].configuration == first.candidates[2].model_dump(mode="json")
    assert configurations(recorded) == [
        first.candidates[0], first.candidates[2], second.candidates[0], second.candidates[1]
    ]  # fmt: skip
    assert [trial.seconds for trial in recorded] == [[0.002], [0.001], [0.001], [0.0009]]
    assert {trial.run for trial in recorded} == {"run-network"}
    recorded.clear()
    finals.withdraw()
    assert configurations(recorded) == [task.candidates[0] for task in two_tasks]
    assert {trial.run for trial in recorded} == {"run-withdrawn"}
    assert all(result.speed_up == 1 for result in finals.results.values())


def test_a_gain_that_may_be_chance_is_none(finals: Finals, two_tasks: list[Task], recorded: Recorded) -> None:
    finals.settle(times_of(two_tasks, (0.004, 0.001), (0.00396, 0.00099), (0.00395, 0.002)))
    assert configurations(recorded) == [task.candidates[0] for task in two_tasks]
    assert all(result.default_ms == result.best_ms for result in finals.results.values())


@pytest.mark.compiles
def test_all_variants_share_one_inference_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    references = []
    monkeypatch.setattr(building, "recorded", lambda network: references.append(network) or recording(network))
    compared = comparison.Comparison(find_source("digits"), Place(resolve("local")), Notebook(), lambda: False)
    times = compared.function_times_s([untuned, untuned])
    assert all(seconds > 0 for each in times for seconds in each.values())
    assert compared.inference_times_ms([untuned]) is not None
    assert len(references) == 1


def test_each_step_in_the_network_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [TensorSpec(name="data", shape=[1], dtype="float32")]
    built = SimpleNamespace(path=None, manifest=SimpleNamespace(inputs=inputs))
    running = Mock(inputs=inputs)
    running.runner.measure.return_value = Timing((1000.0,))
    running.runner.function_times.return_value = {"conv": [1000.0]}
    monkeypatch.setattr(comparison.Referenced, "of", lambda source: None)
    monkeypatch.setattr("edgedeploy.building.Plan.build", lambda *_, **__: built)
    opened = nullcontext(lambda packages: [running] * len(packages))
    monkeypatch.setattr(comparison, "opening", lambda *_, **__: opened)
    told = Notebook()
    compared = comparison.Comparison(SimpleNamespace(name="net"), Place(resolve("local")), told, lambda: False)
    assert compared.function_times_s([untuned] * 3) == [{"conv": 1.0}] * 3
    rounds = comparison.ROUNDS
    assert told.counts == {
        "build net in 3 ways": (3, 3),
        "try each of 3 ways": (3, 3),
        "measure net in 3 ways, interleaved": (3 * rounds, 3 * rounds),
    }
    assert compared.inference_times_ms([untuned] * 2) == [1000.0] * 2
    assert told.counts["measure net in 2 ways, interleaved"] == (2 * rounds, 2 * rounds)
