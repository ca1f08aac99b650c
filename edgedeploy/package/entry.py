"""One entry of a package in its manifest: inputs, outputs, the tail, and the self-test."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from edgedeploy.base.documents import Listed, Record
from edgedeploy.model.tensors import DTYPES, TensorSpec

# No board has memory for a larger tensor; numpy 1 supports no more dimensions.
MAXIMUM_TENSOR = 1 << 30
MAXIMUM_RANK = 32

# Plain relative names of at most one folder, which stay inside the package; an archive's header has 100 bytes for them.
MemberName = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$", max_length=100)]
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def bytes_of(spec: TensorSpec, least: int = 0) -> int:
    """The size of a tensor, each of whose sizes counts as at least `least`."""
    return math.prod(max(size, least) for size in spec.shape) * np.dtype(spec.dtype).itemsize


def _checked(specs: list[TensorSpec], least: int = 0) -> list[TensorSpec]:
    """Check inputs or outputs, whose sizes may be `least` or more."""
    for spec in specs:
        if spec.dtype not in DTYPES:
            raise ValueError(f"{spec.name!r} is of {spec.dtype}, which is none of {', '.join(DTYPES)}")
        if len(spec.shape) > MAXIMUM_RANK:
            raise ValueError(f"{spec.name!r} has {len(spec.shape)} dimensions, more than {MAXIMUM_RANK}")
        if not all(least <= size <= MAXIMUM_TENSOR for size in spec.shape):
            raise ValueError(f"the shape of {spec.name!r} is {spec.shape}")
        if bytes_of(spec, least=1) > MAXIMUM_TENSOR:
            raise ValueError(f"{spec.name!r} is larger than {MAXIMUM_TENSOR:,} bytes")
    return specs


Tensors = Annotated[Listed[TensorSpec], AfterValidator(_checked)]
# Sizes of -1 depend on the data.
OpenTensors = Annotated[Listed[TensorSpec], Field(min_length=1), AfterValidator(partial(_checked, least=-1))]


Measure = Literal["largest", "rms", "rows"]
_BASES: dict[Measure, str] = {
    "largest": "its largest value",
    "rms": "its values' root mean square",
    "rows": "its largest value, in half of its rows",
}


class Case(Record):
    """Inputs, and the outputs that a correct run gives: |difference| <= relative * max|expected| + absolute.

    Outputs in `rms` are compared by root mean squares: rms(difference) <= relative * rms(expected) + absolute. Of those
    in `rows`, half of the rows must agree with some row.
    """

    name: str  # the kind of inputs, such as `random`
    inputs: Listed[MemberName]  # members with the raw little-endian values, in the network's order; `outputs` as well
    outputs: Listed[MemberName]
    usual: Tolerance  # the relative tolerance of an output that rounding changes little
    relative: Listed[Tolerance]  # the tolerance of each output
    absolute: Tolerance  # the additional tolerance for outputs close to zero
    # The effect of rounding on each output, as a fraction like `relative`: the difference between other kernels of the
    # reference and it. None if unknown.
    spread: Listed[Tolerance | None]
    rms: Listed[str] = []
    rows: Listed[str] = []

    def measure(self, output: str) -> Measure:
        """How an output is compared."""
        return "rms" if output in self.rms else "rows" if output in self.rows else "largest"

    def basis(self, output: str) -> str:
        """What an output's tolerance is a fraction of, in words."""
        return _BASES[self.measure(output)]


class SelfTest(Record):
    """How a package checks itself."""

    cases: Annotated[Listed[Case], Field(min_length=1)]
    reference: str  # the program that gave the expected outputs
    spread_to: str | None = None  # its other kernels, for the spread; None if there were none

    @property
    def relative(self) -> float:
        """The widest of all relative tolerances."""
        return max(relative for case in self.cases for relative in case.relative)

    def raised(self, outputs: list[TensorSpec], *, quantised: bool = False, half: float | None = None) -> list[str]:
        """Raised tolerances and their reasons, in lines for people.

        Args:
            quantised: outputs may differ by two steps.
            half: the expected error by half precision, a fraction of an output's largest value; None without it.
        """
        lines = []
        for case in self.cases:
            for spec, relative, spread in zip(outputs, case.relative, case.spread, strict=True):
                if relative > case.usual:
                    reasons = [f"half precision is expected to change it by {half:.2g}"] if half is not None else []
                    reasons += ["the network selects its rows by TopK"] if spec.name in case.rows else []
                    reasons += ["two steps of its integers"] if quantised or not (spread or reasons) else []
                    reasons += [f"{self.spread_to} differs by {spread:g}, by rounding alone"] if spread else []
                    where = f"of {case.basis(spec.name)} for {case.name} inputs"
                    lines.append(f"{spec.name} may differ by {relative:g} {where}: {'; '.join(reasons)}")
        return lines


class TailMember(Record):
    """The tail after the compiled part of the network; see `tail`."""

    file: MemberName
    outputs: OpenTensors  # of the network, in order; a size of -1 depends on the data


class Entry(Record):
    """A network for other shapes of its inputs, with the same weights in the same library."""

    function: Annotated[str, Field(pattern=r"^main(_[1-9][0-9]{0,2})?$")]
    inputs: Tensors
    outputs: Tensors
    tail: TailMember | None = None
    selftest: SelfTest

    @property
    def results(self) -> list[TensorSpec]:
        """The network's outputs: those of its tail, if any."""
        return self.tail.outputs if self.tail else self.outputs

    @property
    def members(self) -> set[str]:
        """Names of its members."""
        cases = self.selftest.cases
        tails = {self.tail.file} if self.tail else set()
        return tails | {name for case in cases for name in case.inputs + case.outputs}
