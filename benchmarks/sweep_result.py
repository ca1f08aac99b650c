"""What the sweep knows of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    """What became of a network.

    Attributes:
        name: the case's.
        outcome: `built`; `refused` by an error that says why, `caught` by the build's check, `untyped` by an error that
            none expected, or a `crash`; `not exported`.
        message: why it was not built.
        bytes: of its file.
        build_s: processor time of the build, in seconds.
        peak_mb: the most memory that the process had by the end of the build.
        ours_ms, onnxruntime_ms: medians of processor time; None where there is no measurement.
        ratio: ours divided by onnxruntime's, the median over all rounds.
        parallel_ratio: the same on several threads, by the clock; None where it was measured on one alone.
        to_legacy: ours divided by ours for the file of PyTorch's older exporter, the median over the same rounds; None
            for that file itself.
        difference: from onnxruntime's outputs, the largest divided by the largest of them.
        general, scalar: parts of the time that functions of the template `general` and fallbacks take.
        functions: of those, the ones that take most: name, template, whether it is a fallback, part of the time.
        operators: names of operators that the compiler calls slow, and why.
        unmeasured: why there is no measurement.
    """

    name: str
    outcome: str = "crash"
    message: str = ""
    bytes: int = 0
    build_s: float | None = None
    peak_mb: float | None = None
    ours_ms: float | None = None
    onnxruntime_ms: float | None = None
    ratio: float | None = None
    parallel_ratio: float | None = None
    to_legacy: float | None = None
    difference: float | None = None
    general: float | None = None
    scalar: float | None = None
    functions: Sequence[tuple[str, str | None, bool, float]] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    unmeasured: str = ""
