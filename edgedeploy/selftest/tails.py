"""A network's tail, held against the reference: on what the reference itself makes of the part before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.errors import NumericalError, PackageError
from edgedeploy.selftest.comparison import where_finite
from edgedeploy.selftest.tolerance import TOLERANCE, Recorded

if TYPE_CHECKING:
    from edgedeploy.network import Network


def check_tail(network: Network, cases: Mapping[str, Recorded]) -> None:
    """Refuse a tail that does not give what the reference gives for the whole network.

    Both begin with equal values, so that no box falls to the other side of a threshold. Inputs of which the compiled
    part makes values that are not finite are left out: programs order NaN each in its own way.
    """
    if network.cut_off is None:
        return
    for name, case in cases.items():
        if not all(np.isfinite(array).all() for array in case.outputs.values()):
            continue
        wanted = network.cut_off.reference(case.inputs)
        what = f"the end of {network.file} gives other outputs than {network.reference_name}"
        hints = ["that is a fault of edgedeploy: please report it with the file"]
        try:
            found = network.cut_off.tail.run({**case.inputs, **case.outputs})
        except PackageError as error:
            raise NumericalError(what, why=error.cause, hints=hints) from error
        for output, expected in wanted.items():
            if why := _difference(found[output], expected):
                raise NumericalError(what, why=f"output {output!r} for {name} inputs: {why}", hints=hints)


def _difference(found: np.ndarray, expected: np.ndarray) -> str | None:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    pair = where_finite(found, expected)
    if pair is None:
        return "other infinities or NaN"
    given, wanted = pair
    relative, absolute = TOLERANCE if expected.dtype.kind == "f" else (0.0, 0.0)
    difference, allowed = (
        np.abs(given - wanted).max(initial=0),
        relative * np.abs(wanted).max(initial=0) + absolute,
    )
    return None if difference <= allowed else f"it differs by {difference:g}, of which {allowed:g} is allowed"
