"""Chooses the layers of a network that compute in half precision, by trials on this machine.

A trial holds each layer in both precisions, and a switch for each (`compile.passes.half_precision`). It is compiled
once, and run with many settings: half precision is emulated here, with the roundings of the board's arithmetic.
"""

from __future__ import annotations

import math
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import CompileError, InputError, UnsupportedError
from edgedeploy.model.quantised import Accuracy, Half, JudgedBy, Kept
from edgedeploy.model.tensors import Tensors
from edgedeploy.package.entry import Measure
from edgedeploy.runtime.subnormals import flushed_to_zero
from edgedeploy.selftest.inputs import picture_inputs
from edgedeploy.selftest.tolerance import Recorded, relative_error, tolerance_in
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.hosts import host_features, missing_features

if TYPE_CHECKING:
    from edgedeploy.compile.passes.half_precision import Layer, Trial
    from edgedeploy.model.network import Network
    from edgedeploy.package.usage import Usage

# The arithmetic of the runs that find the influence of layers, and the fewest runs; several layers of larger networks
# are switched together.
_MOST_GFLOP, _FEWEST_RUNS = 200.0, 16

# What trials are compiled for if this machine runs it: the choice should be the same wherever a package is built.
_USUAL_CPU = {"cpu": "haswell", "cores": 4}


Run = Callable[[Tensors], Mapping[str, np.ndarray]]


class Judge(Protocol):
    """What judges the choice of layers in place of made-up pictures, and how accurate the network is."""

    def identity(self) -> str:
        """A hash of all that it judges by."""

    def inputs(self, network: Network, progress: Progress) -> Sequence[Tensors]:
        """Inputs of a network; none for made-up pictures."""

    def accuracy(self, network: Network, single: Run, half: Run, progress: Progress) -> Accuracy | None:
        """The accuracy of a network whose compiled part runs in single and in half precision, if it is asked for."""


class Example(Protocol):
    """A demo's own image, whose results stay those of single precision: `demo.usage.Example`."""

    @property
    def inputs(self) -> Tensors:
        """The network's inputs."""

    def same(self, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
        """Whether the compiled part's outputs in two precisions give the same results."""


def chooses(board: Board) -> bool:
    """Whether layers for a board may be in half precision, and the build chooses which."""
    return board.precision == "auto" and _lack(board, "auto") is None


def with_half(
    network: Network,
    board: Board,
    # Of the self-test; the values of layers must stay in range for them, and they judge outputs unless the `usage` says
    # how pictures become the network's input.
    cases: Mapping[str, Recorded],
    disabled_passes: Collection[str] = (),
    progress: Progress = SILENT,
    *,
    usage: Usage | None = None,
    judge: Judge | None = None,
    example: Example | None = None,
) -> Network:
    """A network with layers in half precision, as a board's profile asks for; by `auto` with weights alone if the CPU
    has no such arithmetic.

    `half` stands for all layers whose values stay in range; `auto` for as many of these as keep the outputs within the
    tolerance of half precision, and the results of an `example` as they are. If the profile asks for nothing, networks
    whose files are in half precision are built as by `auto`, and others in single. Refuses `half` if the CPU has no
    such arithmetic, the network is quantised, or the pass is disabled; and a judge who has nothing to judge.
    """
    wanted = board.precision or ("auto" if judge or _is_in_half(network) else "single")
    if wanted == "single" and judge is None:
        return network
    single = "single precision is asked for" if wanted == "single" else None
    made, why = None, single or _lack(board, wanted) or _obstacle(network, disabled_passes) or ""
    if not why:
        from edgedeploy.compile.pipeline import trial

        made = trial(network, board, disabled_passes)
        if not made.layers:
            lack = _lack(board, "half")
            why = f"{lack}, and no product waits for its weights" if lack else "it has no convolutions or products"
    if made is None or why:
        if judge:
            hint = "leave out --calibrate and --evaluate, or build it for a CPU with half precision: docs/precision.md"
            raise InputError(f"{network.file.name} has no layers in half precision to judge", why=why, hints=[hint])
        if wanted == "half":
            raise _refused(network.file.name, why)
        if board.precision and not network.quantised:
            progress.note(f"{network.file.name} is built in single precision: {why}")
        return network
    with progress.stage("try half precision"):
        tests = [case.inputs for name, case in cases.items() if name != "infinite"]
        given = judge.inputs(network, progress) if judge else ()
        pictures = picture_inputs(network, usage.input) if usage and not usage.camera and not given else []
        try:
            measures = next(iter(cases.values())).measures
            search = _Search(made, tests, given or pictures, None if given else example, measures)
        except CompileError as error:
            if wanted == "half" or judge:
                raise
            progress.note(f"{network.file.name} is built in single precision: no trial of half: {error.why}")
            return network
        shown: JudgedBy = "pictures and the demo's image" if example else "pictures" if pictures else "test inputs"
        half = search.chosen(wanted == "half", "given inputs" if given else shown)
    # Not the trial, whose margin of values some of the judge's images may exceed.
    compiled = cache(lambda: _compiled(replace(network, half=half), disabled_passes))
    if judge and (accuracy := judge.accuracy(network, search.single(), lambda inputs: compiled()(inputs), progress)):
        half = half.model_copy(update={"accuracy": accuracy})
    return replace(network, half=half)


def _obstacle(network: Network, disabled_passes: Collection[str]) -> str | None:
    from edgedeploy.compile.passes.half_precision import COMPUTE_IN_HALF

    if COMPUTE_IN_HALF.name in disabled_passes:
        return f"the pass {COMPUTE_IN_HALF.name} is disabled"
    return "it is quantised" if network.quantised else None


def check_precision(board: Board) -> None:
    """Refuse a board whose profile asks for half precision without having it."""
    if board.precision == "half" and (why := _lack(board, "half")):
        raise _refused("networks", why)


def _refused(what: str, why: str) -> UnsupportedError:
    hints = ["build in single precision: --precision single", "let the build choose: --precision auto"]
    return UnsupportedError(f"{what} cannot be built in half precision", why=why, hints=hints)


def _lack(board: Board, wanted: str) -> str | None:
    """Why no network has layers in half precision on a board; `auto` is content with their weights."""
    from edgedeploy.compile.backends import computes_in_half, host_of

    if computes_in_half(board) or (wanted == "auto" and not board.device and host_of(board).widens_half):
        return None
    what = f"its {board.device.backend} device is not known to have" if board.device else f"{board.cpu} has no"
    return f"{what} arithmetic in half precision"


def _is_in_half(network: Network) -> bool:
    from edgedeploy.compile.ir.expressions import bindings_of
    from edgedeploy.compile.passes.half_precision import HALF, is_layer, precision_of

    values = [each.value for each in bindings_of(network.module["main"])]
    return any(is_layer(each) and precision_of(each) == HALF for each in values)


def _compiled(network: Network, disabled_passes: Collection[str] | None = None) -> Run:
    """A function that runs a network on this machine; that of a trial unless passes are named."""
    import tvm
    from tvm import relax

    from edgedeploy.compile.output.codegen import link
    from edgedeploy.compile.pipeline import compile_network, compile_trial

    here = load_board("local")
    if not missing_features(str(_USUAL_CPU["cpu"]), host_features()):
        here = here.overridden(_USUAL_CPU)
    if disabled_passes is None:
        compiled = compile_trial(network, here)
    else:
        compiled = compile_network(network, here, disabled_passes=disabled_passes)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        library = Path(folder) / "trial.so"
        link(compiled.code, library, here)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())

    def run(inputs: Tensors) -> dict[str, np.ndarray]:
        with flushed_to_zero():
            returned = machine["main"](*(tvm.runtime.tensor(inputs[spec.name]) for spec in network.inputs))
        arrays = [returned] if hasattr(returned, "numpy") else returned
        return {spec.name: array.numpy() for spec, array in zip(network.outputs, arrays, strict=True)}

    return run


class _Search:
    """The runs of a trial: for the self-test's inputs, and for others, which judge outputs if there are any.

    Layers are named by their numbers. Errors are fractions of an output's largest value, in arrays with one for each
    input.
    """

    def __init__(
        self,
        trial: Trial,
        tests: Sequence[Tensors],
        others: Sequence[Tensors],
        example: Example | None,
        measures: Mapping[str, Measure],
    ) -> None:
        others = [*others, example.inputs] if example else others
        self._example, self._measures = example, measures
        self._layers: Sequence[Layer] = trial.layers
        self._every = frozenset(range(len(trial.layers)))
        *self._network_outputs, self._peaks = (spec.name for spec in trial.network.outputs)
        self._switches, self._weights = trial.switches, trial.weights
        self._inputs, self._infer = [*tests, *others], _compiled(trial.network)
        self._tests = slice(len(tests))
        self._judges = slice(len(tests), None) if others else self._tests
        self._exact = self._run(self._every)

    def single(self) -> Run:
        return lambda inputs: self._outputs(self._inferred(self._every, inputs))

    def chosen(self, every: bool, judged_by: JudgedBy) -> Half:
        """The layers in half precision: `every` one whose values stay in range, or those that change outputs little."""
        usual, _ = tolerance_in(["float16"])
        single = dict(self._out_of_range)
        single |= {} if every else self._most_influential(usual)
        expected, errors = self._expected(single), self._errors(single)
        places = self._weights or range(len(self._layers))
        return Half(
            layers=len(self._layers),
            single=[
                Kept(number=places[each], layer=self._layers[each].description, why=single[each])
                for each in sorted(single)
            ],
            weights=[places[each] for each in sorted(self._every.difference(single))] if self._weights else [],
            judged_by=judged_by,
            expected=expected[self._judges].max(),
            errors=dict(zip(self._network_outputs, errors[self._judges].max(axis=0).tolist(), strict=True)),
            tested=max(expected[self._tests].max(), errors[self._tests].max()),
        )

    @cached_property
    def _out_of_range(self) -> dict[int, str]:
        """The layers that leave the range of half precision, and why they stay in single.

        The run in single precision has the peaks of all layers. Values that other operators store may leave it too.
        """
        peaks = np.array([outputs[self._peaks] for outputs in self._exact])
        found = {each for each in self._every if not np.isfinite(peaks[:, each]).all()}
        found |= self._leaving(sorted(self._every - found))
        return dict.fromkeys(found, "its values come near the largest number of half precision")

    def _leaving(self, layers: Sequence[int]) -> set[int]:
        """Those of some layers that leave the range if no others are in half precision."""
        if np.isfinite(self._errors(self._every.difference(layers))).all():
            return set()
        if len(layers) == 1:
            return {*layers}
        middle = len(layers) // 2
        return self._leaving(layers[:middle]) | self._leaving(layers[middle:])

    def _most_influential(self, limit: float) -> dict[int, str]:
        """As few layers as leave an error within a limit, and why they stay in single precision.

        First come those with the most influence for the time that half precision saves; those that turn out not to be
        needed leave again, long ones first.
        """
        influence = {group: float(errors[self._judges].max()) for group, errors in self._influence.items()}
        operations = {group: sum(self._layers[number].operations for number in group) for group in influence}
        ordered = sorted(influence, key=lambda group: -(influence[group] ** 2) / operations[group])

        def fits(groups: Collection[tuple[int, ...]]) -> bool:
            single = {*self._out_of_range, *(number for group in groups for number in group)}
            computed = (compute(single)[self._judges].max() for compute in (self._expected, self._errors))
            return all(error <= limit for error in computed) and self._shows_the_same(single)

        enough = bisect_left(range(len(ordered)), True, key=lambda count: fits(ordered[:count]))
        kept = set(ordered[:enough])
        for group in sorted(kept, key=lambda group: -operations[group]):
            if fits(kept - {group}):
                kept.remove(group)
        return {
            number: f"half precision changes outputs by {influence[group]:.2g} of their largest value"
            for group in kept
            for number in group
        }

    def _shows_the_same(self, single: Collection[int]) -> bool:
        """Whether the example's results are those of single precision."""
        if self._example is None:
            return True
        found = self._inferred(single, self._example.inputs)
        return self._example.same(self._outputs(self._exact[-1]), self._outputs(found))

    @cached_property
    def _influence(self) -> dict[tuple[int, ...], np.ndarray]:
        """By layers that are switched together, the errors if only they are in half precision.

        Of networks with too many layers to run for each, groups with much influence are divided.
        """
        gflop = sum(layer.operations for layer in self._layers) * len(self._inputs) / 1e9
        left = sorted(self._every.difference(self._out_of_range))
        runs = max(_FEWEST_RUNS, math.floor(_MOST_GFLOP / gflop))
        together = 1 if runs >= len(left) else math.ceil(2 * len(left) / runs)
        begun = [tuple(left[begin : begin + together]) for begin in range(0, len(left), together)]
        found = {group: self._influence_of(group) for group in begun}
        for _ in range((runs - len(found)) // 2):
            several = [group for group in found if len(group) > 1]
            if not several:
                break
            group = max(several, key=lambda each: found[each].max())
            del found[group]
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                found[half] = self._influence_of(half)
        return found

    def _influence_of(self, group: Collection[int]) -> np.ndarray:
        return self._errors(self._every.difference(group)).max(axis=1)

    def _expected(self, single: Collection[int]) -> np.ndarray:
        """The errors if all layers but some are in half precision, as sums of independent errors.

        They depend less on chance than those of a single run.
        """
        parts = [errors for group, errors in self._influence.items() if not set(group) <= set(single)]
        return np.sqrt(np.sum(np.square([np.zeros(len(self._inputs)), *parts]), axis=0))

    def _errors(self, single: Collection[int]) -> np.ndarray:
        """The errors of a run, inputs x outputs; infinite if a layer in half precision leaves its range."""
        on, names = sorted(self._every.difference(single)), self._network_outputs
        errors = []
        for found, exact in zip(self._run(single), self._exact, strict=True):
            in_range = np.isfinite(found[self._peaks][on]).all()
            of = ((found[name], exact[name], self._measures.get(name, "largest")) for name in names)
            errors.append([relative_error(*each) if in_range else math.inf for each in of])
        return np.array(errors)

    def _outputs(self, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The network's own outputs of a run, without the peaks."""
        return {name: found[name] for name in self._network_outputs}

    def _run(self, single: Collection[int]) -> list[Mapping[str, np.ndarray]]:
        return [self._inferred(single, inputs) for inputs in self._inputs]

    def _inferred(self, single: Collection[int], inputs: Tensors) -> Mapping[str, np.ndarray]:
        switches = {name: np.array([not layers.issubset(single)]) for name, layers in self._switches.items()}
        return self._infer({**inputs, **switches})
