"""TVM's own space: what MetaSchedule's rules make of a function, searched by MetaSchedule's strategies.

Only the choice of candidates is MetaSchedule's. They are built, measured and recorded like those of the templates; so
of MetaSchedule's parts there is neither a builder nor a runner, and results are handed on here: to its database in
memory, from which evolution begins, and to its cost model.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import tvm
from tvm.s_tir.meta_schedule import TuneContext, _ffi_api, postproc
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.cost_model import CostModel, RandomModel, XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.logging import get_logging_func
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.schedule_rule import ApplyCustomRule, ScheduleRule
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate, ReplayTrace, SearchStrategy
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
from typing_extensions import override

from edgedeploy.errors import CompileError, RecordsError, last_line
from edgedeploy.tune.records import Records
from edgedeploy.tune.search.model import imported_xgboost
from edgedeploy.tune.spaces.space import MOST_KNOWN, Candidate, Space
from edgedeploy.tune.task import Task
from edgedeploy.tune.trial import Trial

# Candidates that a strategy chooses at a time.
_BATCH = 16

# Schedules among which evolution chooses a batch. TVM takes 512 for batches of 64; each costs some 20 ms, five times.
_POPULATION = 4 * _BATCH

# XGBoost's predictions count from so many results on. TVM's own 100 are for runs of thousands of trials.
_LEAST_RESULTS = 2 * _BATCH

# A space is taken for exhausted when so many batches in turn held nothing new.
_FRUITLESS = 5

# TVM counts trials too; here others decide when a task ends.
_ENDLESS = 2**31 - 1


def model_of(tuner: str, seed: int) -> CostModel | None:
    """The cost model of all tasks of a run; None for a tuner that needs none.

    Raises:
        UnsupportedError: XGBoost is needed and not installed.
    """
    if tuner == "random":
        return None
    if tuner == "ga":
        with _randomness(np.random.RandomState(_positive(str(seed)))):
            return RandomModel(seed=_positive(str(seed)))  # it seeds NumPy's own numbers, too
    imported_xgboost()
    return XGBModel(config=XGBConfig(seed=_positive(str(seed)), nthread=1), num_warmup_samples=_LEAST_RESULTS)


class MetaScheduleSpace(Space):
    """The schedules that TVM's rules allow for a function, which nobody has counted."""

    def __init__(
        self, task: Task, model: CostModel | None, records: Records | None, others: Sequence[Records], seed: int
    ) -> None:
        """Prepare a search.

        Args:
            task: whose schedules they are.
            model: of `model_of`; without one, they are drawn at random.
            records: those that the search goes on from, if there are any.
            others: other records, whose best are tried first.
            seed: of random choices. What is proposed depends on it, on the records and on what was measured.
        """
        self.task, self.size = task, None
        measured = records.candidates(task.workload) if records else []
        # By identity: these are the very trials that `records` gives.
        self._measured = {id(best.trial): best for best in measured}
        self._model = model
        self._random = np.random.RandomState(_positive(f"{seed} {task.key} {len(measured)}"))
        self._database = MemoryDatabase()
        self._workload = self._database.commit_workload(task.workload)
        self._arguments = ArgInfo.from_prim_func(task.workload["main"])
        self._context = _context(task, _strategy(model), self._random)
        self._prepared = False
        self._taken: set[str] = set()
        self._waiting = deque([self.default, *_best_of(task, others)])

    @property
    @override
    def default(self) -> Candidate:
        if self.task.group is None:
            return Candidate("default", self.task)
        return Candidate.configured(self.task, self.task.candidates[0])

    @override
    def of(self, trial: Trial) -> Candidate | None:
        if best := self._measured.get(id(trial)):
            return Candidate.recorded(self.task, best)
        # One that failed counts, and is not tried again; nobody needs its schedule.
        return self.default if trial.scheduled is None else Candidate(trial.scheduled, self.task)

    @override
    def propose(self, count: int) -> list[Candidate]:
        chosen: list[Candidate] = []
        while len(chosen) < count and (self._waiting or self._generate()):
            candidate = self._waiting.popleft()
            if candidate.key not in self._taken:
                self._taken.add(candidate.key)
                chosen.append(candidate)
        return chosen

    @override
    def learn(self, results: Iterable[tuple[Candidate, float | None]]) -> None:
        measured, told = [], []
        for candidate, seconds in results:
            self._taken.add(candidate.key)
            if candidate.schedule is None:
                continue
            measured.append(MeasureCandidate(candidate.schedule, self._arguments))
            told.append(RunnerResult([seconds], None) if seconds else RunnerResult(None, "it failed"))
            if seconds:
                trace = candidate.schedule.trace
                target = self._context.target
                self._database.commit_tuning_record(
                    TuningRecord(trace, self._workload, [seconds], target, self._arguments)
                )
        if self._model and measured:
            self._model.update(self._context, measured, told)

    def _generate(self) -> bool:
        """Let the strategy choose candidates that wait to be proposed; whether it found any new ones."""
        for _ in range(_FRUITLESS):
            try:
                found = self._chosen()
            except Exception as error:  # TVM raises errors of many types
                raise CompileError(
                    f"MetaSchedule cannot schedule {self.task.name}",
                    why=last_line(error),
                    hints=["leave the task out: --tasks", "search edgedeploy's own space: --space templates"],
                ) from error
            candidates = [Candidate.scheduled(self.task, each.sch) for each in found or ()]
            self._waiting.extend(each for each in candidates if each.key not in self._taken)
            if self._waiting or found is None:
                break
        return bool(self._waiting)

    def _chosen(self) -> Sequence[MeasureCandidate] | None:
        """A batch of the strategy's; None if it finds no more."""
        with _randomness(self._random):
            if not self._prepared:
                designs = self._context.generate_design_space()
                self._context.pre_tuning(_ENDLESS, _BATCH, designs, self._database, self._model)
                self._prepared = True
            return self._context.generate_measure_candidates()


class _Context(TuneContext):
    """TVM's `TuneContext`, without the import of intrinsics for GPUs in its constructor: 40 s for nothing."""

    def __init__(
        self,
        workload: tvm.IRModule,
        target: tvm.target.Target,
        generator: PostOrderApply,
        strategy: SearchStrategy,
        seed: int,
    ) -> None:
        # One thread: with more, the seed would not decide what is chosen.
        self.__init_handle_by_constructor__(
            _ffi_api.TuneContext, workload, target, generator, strategy, "main", 1, seed, get_logging_func(_SILENT)
        )
        _ffi_api.TuneContextInitialize(self)


# MetaSchedule's messages are for its developers.
_SILENT = logging.getLogger(__name__)
_SILENT.setLevel(logging.CRITICAL + 1)


def _context(task: Task, strategy: SearchStrategy, randomness: np.random.RandomState) -> _Context:
    """What a strategy works in.

    The rules are those that TVM has for LLVM. Those for single CPUs add instructions on int8, which nothing here
    computes with. Left out are `ApplyCustomRule`, which looks for rules for poolings that TVM lacks, and
    `RewriteLayout`, whose constants would have to be re-laid outside the function.
    """
    generator = PostOrderApply(
        sch_rules=[rule for rule in ScheduleRule.create("llvm") if not isinstance(rule, ApplyCustomRule)],
        mutator_probs="llvm",
        postprocs=[
            postproc.DisallowDynamicLoop(),
            postproc.RewriteParallelVectorizeUnroll(),
            postproc.RewriteReductionBlock(),
        ],
    )
    target = tvm.target.Target(task.processor.board.cpu_target())
    return _Context(task.workload, target, generator, strategy, randomness.randint(1, _ENDLESS))


def _strategy(model: CostModel | None) -> SearchStrategy:
    if model is None:
        return ReplayTrace()
    return EvolutionarySearch(population_size=_POPULATION, init_min_unmeasured=_BATCH)


def _best_of(task: Task, others: Iterable[Records]) -> Iterator[Candidate]:
    """The best of other records, as far as this version can make them."""
    known = [best for records in others for best in records.candidates(task.workload)]
    for best in sorted(known, key=lambda best: best.trial.median_s or 0.0)[:MOST_KNOWN]:
        with suppress(RecordsError):
            if candidate := Candidate.recorded(task, best):
                yield candidate


def _positive(text: str) -> int:
    """A seed as TVM takes it, from 1 to 2^31 - 2."""
    return random.Random(text).randint(1, _ENDLESS - 1)


@contextmanager
def _randomness(own: np.random.RandomState) -> Iterator[None]:
    """Put one's own state in the place of NumPy's, which is what MetaSchedule's models draw from."""
    before = np.random.get_state()
    np.random.set_state(own.get_state())
    try:
        yield
    finally:
        own.set_state(np.random.get_state())
        np.random.set_state(before)
