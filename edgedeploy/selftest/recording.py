"""The self-test of a package: the network's test inputs and the reference's outputs for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.errors import ModelError, NumericalError, last_line
from edgedeploy.model.tensors import Tensors
from edgedeploy.package.entry import Case, SelfTest
from edgedeploy.selftest.inputs import Inputs, edge_inputs, infinite_inputs, random_inputs
from edgedeploy.selftest.tolerance import Recorded, is_steady, steadiest, tolerance_of, usual_tolerance

if TYPE_CHECKING:
    from edgedeploy.model.network import Network
    from edgedeploy.target.board import Board

_TELLING = 0.25  # the share of an output's values that have to be finite, or not NaN, to be worth comparing


def recorded(network: Network) -> dict[str, Recorded]:
    """By name of each case of the self-test, inputs and the reference's outputs.

    There are `random` inputs; `edge`, of zeros, ones, large and negative values; and `infinite` ones. The last two are
    left out if the reference's outputs are not worth comparing, or depend on rounding too much.
    """
    refused: list[Exception] = []
    first = next(_inferences(network, random_inputs(network), refused), None)
    if first is None:
        [error, *_] = refused
        raise ModelError(f"{network.reference_name} cannot run {network.file}", why=last_line(error)) from error
    cases = {"random": Recorded.of(network, *first)}
    usual = _shares(cases["random"].outputs, np.isfinite)
    for name, candidates, counts in (
        ("edge", edge_inputs(network), np.isfinite),
        ("infinite", infinite_inputs(network), lambda values: ~np.isnan(values)),
    ):
        tried = []
        for inputs, outputs in _inferences(network, candidates, []):
            if all(share >= min(_TELLING, usual[output]) for output, share in _shares(outputs, counts).items()):
                tried.append(Recorded.of(network, inputs, outputs))
                if is_steady(network, tried[-1]):
                    break
        if best := steadiest(network, tried):
            cases[name] = best
    return cases


def self_test(
    network: Network, board: Board, cases: Mapping[str, Recorded], prefix: str = "", *, exact: bool = False
) -> tuple[SelfTest, dict[str, bytes]]:
    """The manifest's record of a self-test, and the members of the package that it names, which begin with a prefix.

    `exact` networks are computed in integers throughout.
    """
    records: list[Case] = []
    members: dict[str, bytes] = {}
    for name, case in cases.items():
        suffix = f"-{name}.bin" if records else ".bin"
        inputs, outputs = (
            {f"selftest/{prefix}{kind}-{i}{suffix}": tensors[spec.name] for i, spec in enumerate(specs)}
            for kind, specs, tensors in (
                ("input", network.inputs, case.inputs),
                ("output", network.outputs, case.outputs),
            )
        )
        usual, absolute = usual_tolerance(network, board, exact=exact)
        records.append(
            Case(
                name=name,
                inputs=list(inputs),
                outputs=list(outputs),
                usual=usual,
                relative=[tolerance_of(network, board, case, spec.name, exact=exact)[0] for spec in network.outputs],
                absolute=absolute,
                spread=[case.relative_spread(spec.name) for spec in network.outputs],
                rms=[] if exact else [name for name, measure in case.measures.items() if measure == "rms"],
                rows=[] if exact else [name for name, measure in case.measures.items() if measure == "rows"],
            )
        )
        members |= {member: array.tobytes() for member, array in (inputs | outputs).items()}
    others = network.other_kernels_name if any(case.spread for case in cases.values()) else None
    return SelfTest(cases=records, reference=network.reference_name, spread_to=others), members


def _inferences(
    network: Network, candidates: Iterable[Inputs], refused: list[Exception]
) -> Iterator[tuple[Inputs, Tensors]]:
    """The inputs that the reference runs, with its outputs; the errors of others are added to `refused`."""
    for inputs in candidates:
        try:
            outputs = _outputs(network, inputs)
        except NumericalError:
            raise
        except Exception as error:
            refused.append(error)
        else:
            yield inputs, outputs


def _outputs(network: Network, inputs: Inputs) -> dict[str, np.ndarray]:
    """The reference's outputs, in the order of the network's."""
    given = network.reference(inputs)
    outputs = {spec.name: np.asarray(given[spec.name]) for spec in network.outputs}
    for spec in network.outputs:
        if why := spec.misfit(outputs[spec.name]):
            raise NumericalError(
                f"{network.file} was imported with another output {spec.name!r} than {network.reference_name} gives",
                why=why,
                hints=["that is a fault of edgedeploy's import: please report it with the file"],
            )
    return outputs


def _shares(outputs: Tensors, counts: Callable[[np.ndarray], np.ndarray]) -> dict[str, float]:
    """By output, the share of its values that count."""
    return {name: float(counts(each.astype(np.float64)).mean()) if each.size else 1.0 for name, each in outputs.items()}
