"""Finals in the network: each variant has other finalists, and what is fastest there is what builds take."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
from support.networks import Graph, three_convolutions
from support.notebook import Notebook
from support.tuning_records import result, trial_of

from edgedeploy import building
from edgedeploy.compile.backends import known_configuration
from edgedeploy.compile.configuration import Configuration, untuned
from edgedeploy.compile.output.packing import scheduled_name
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.records.trial import Trial
from edgedeploy.runtime.opening import Place
from edgedeploy.runtime.timing import Timing
from edgedeploy.selftest.recording import recorded as recording
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.tuning import finals as comparison
from edgedeploy.tuning.finals import Finals
from edgedeploy.tuning.task import Task, tasks_of
from edgedeploy.zoo.source import Source, find_source

pytestmark = pytest.mark.compiles

Recorded = list[Trial]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    graph = Graph()
    path: Path = graph.save(tmp_path_factory.mktemp("net") / "net.onnx", three_convolutions(graph, 32, 16))
    return tasks_of(read_onnx(path), load_board("local"))


@pytest.fixture
def recorded() -> Recorded:
    return []


@pytest.fixture
def finals(tasks: list[Task], recorded: Recorded) -> Finals:
    """The first task has two finalists beside its default, the second one."""
    found = Finals("run", tasks, recorded.append)
    for task, count in zip(tasks, (3, 2), strict=True):
        found.finalists[task.key] = [
            (each, trial_of(task, number, 1.0, run="run", final=True))
            for number, each in enumerate(task.candidates[:count])
        ]
        found.results[task.key] = result(workload=task.key, weight=task.weight, default_ms=1.0, best_ms=0.5)
    return found


def configurations(trials: Recorded) -> list[Configuration | None]:
    return [known_configuration(trial.configuration) for trial in trials]


def times_of(tasks: list[Task], *seconds: tuple[float, float]) -> list[dict[str, float]]:
    """For each variant the times of the two tasks' functions in one inference."""
    names = [scheduled_name(task.names[0]) for task in tasks]
    return [dict(zip(names, each, strict=True)) for each in seconds]


def test_variants_have_every_finalist_and_begin_with_the_defaults(finals: Finals, tasks: list[Task]) -> None:
    found = [[variant(task.workload) for task in tasks] for variant in finals.variants()]
    first, second = tasks
    assert found == [
        [first.candidates[0], second.candidates[0]],
        [first.candidates[1], second.candidates[1]],
        [first.candidates[2], None],  # a build without records: the default again
    ]


def test_the_fastest_is_recorded_beside_the_default(finals: Finals, tasks: list[Task], recorded: Recorded) -> None:
    finals.settle(times_of(tasks, (0.004, 0.001), (0.003, 0.0009), (0.002, 0.001)))
    first, second = tasks
    assert first.weight == 2
    results = finals.results[first.key], finals.results[second.key]
    assert [(each.default_ms, each.best_ms) for each in results] == [(2.0, 1.0), (1.0, 0.9)]
    assert results[0].configuration == first.candidates[2].model_dump(mode="json")
    assert configurations(recorded) == [
        first.candidates[0], first.candidates[2], second.candidates[0], second.candidates[1]
    ]  # fmt: skip
    assert [trial.seconds for trial in recorded] == [[0.002], [0.001], [0.001], [0.0009]]
    assert {trial.run for trial in recorded} == {"run-network"}


def test_a_gain_that_may_be_chance_is_none(finals: Finals, tasks: list[Task], recorded: Recorded) -> None:
    finals.settle(times_of(tasks, (0.004, 0.001), (0.00396, 0.00099), (0.00395, 0.002)))
    assert configurations(recorded) == [task.candidates[0] for task in tasks]
    assert all(result.default_ms == result.best_ms for result in finals.results.values())


def test_a_withdrawal_leaves_the_defaults(finals: Finals, tasks: list[Task], recorded: Recorded) -> None:
    finals.settle(times_of(tasks, (0.004, 0.001), (0.003, 0.0009), (0.002, 0.001)))
    before = len(recorded)
    finals.withdraw()
    assert configurations(recorded[before:]) == [task.candidates[0] for task in tasks]
    assert {trial.run for trial in recorded[before:]} == {"run-withdrawn"}
    assert all(result.speed_up == 1 for result in finals.results.values())


def test_a_run_without_finalists_has_no_variants(tasks: list[Task]) -> None:
    assert Finals("run", tasks, lambda trial: None).variants() == []


def test_all_variants_share_one_inference_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    references = []
    monkeypatch.setattr(building, "recorded", lambda network: references.append(network) or recording(network))
    compared = comparison.Comparison(find_source("digits"), Place(resolve("local")), Notebook(), lambda: False)
    times = compared.function_times_s([untuned, untuned])
    assert all(seconds > 0 for each in times for seconds in each.values())
    assert compared.inference_times_ms([untuned]) is not None
    assert len(references) == 1


class Running:
    inputs: ClassVar[list[TensorSpec]] = [TensorSpec(name="data", shape=[1], dtype="float32")]

    @property
    def runner(self) -> Running:
        return self

    def measure(self, tensors: Tensors, *, repeat: int, warmup: int) -> Timing:
        return Timing((1000.0,))

    def function_times(self, tensors: Tensors, *, repeat: int, warmup: int) -> dict[str, list[float]]:
        return {"conv": [1000.0]}


def test_each_step_in_the_network_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    built = SimpleNamespace(path=None, manifest=SimpleNamespace(inputs=Running.inputs))
    monkeypatch.setattr(comparison.Referenced, "of", lambda source: None)
    monkeypatch.setattr(comparison, "build", lambda *_, **__: built)
    monkeypatch.setattr(
        comparison, "opened_together", lambda packages, *_, **__: nullcontext([Running() for _ in packages])
    )
    told = Notebook()
    source = cast(Source, SimpleNamespace(name="net"))
    compared = comparison.Comparison(source, Place(resolve("local")), told, lambda: False)
    assert compared.function_times_s([untuned] * 3) == [{"conv": 1.0}] * 3
    rounds = comparison.ROUNDS
    assert told.counts == {
        "build net in 3 ways": (3, 3),
        "try each of 3 ways": (3, 3),
        "measure net in 3 ways, interleaved": (3 * rounds, 3 * rounds),
    }
    assert compared.inference_times_ms([untuned] * 2) == [1000.0] * 2
    assert told.counts["measure net in 2 ways, interleaved"] == (2 * rounds, 2 * rounds)
