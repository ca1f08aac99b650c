"""Runs the ONNX project's own tests of operators and writes docs/operators.md.

    python benchmarks/onnx_tests.py [--only PATTERN] [--processes N] [--json FILE [--resume]] [--output FILE]

The cases are those of `onnx.backend.test`: node, simple and PyTorch. Each is built for this machine and run as
`edgedeploy build` and `run` do it, and by onnxruntime. A case has a process of its own as long as it needs one: a
crash ends that process, and a case that takes too long or too much memory is ended.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from textwrap import fill
from typing import Any

import onnx
from onnx_cases import CONSTANTS, Test, cases, difference, inputs_of, with_constants
from results import read_results, write_results

from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.resolved import resolve

OUTCOMES = ("pass", "wrong", "caught", "refused", "untyped", "crash")

DEADLINE_S = 90.0  # of one case on a busy machine; most take less than one second
MEMORY_BYTES = 12 << 30  # of address space, of which libraries take several GB before anything is computed
NEWEST = 21  # opset whose cases the project's aim counts


@dataclass(frozen=True)
class Result:
    """What became of one case: here, with the message, and with onnxruntime."""

    name: str
    operator: str
    opset: int
    expanded: bool
    outcome: str
    message: str
    onnxruntime: bool


def by_onnxruntime(test: Test) -> bool:
    """Whether onnxruntime gives a case's outputs."""
    names = [value.name for value in inputs_of(test.model)]
    try:
        session = cpu_session(test.model.SerializeToString(), threads=1)
        return difference(test, session.run(None, dict(zip(names, test.inputs, strict=True)))) is None
    except Exception:
        return False


def by_edgedeploy(test: Test) -> tuple[str, str]:
    """What becomes of a case when it is built for this machine and run; the outcome and its message."""
    from edgedeploy.building import build
    from edgedeploy.errors import EdgedeployError, NumericalError
    from edgedeploy.runtime.session import Session
    from edgedeploy.zoo.source import find_source

    model, inputs = with_constants(test)
    with tempfile.TemporaryDirectory() as folder:
        file, package = Path(folder) / "case.onnx", Path(folder) / "case.tar.gz"
        onnx.save(model, file)
        try:
            build(find_source(str(file)), resolve("local"), package)
            found = Session.open(package, 1).run(inputs)
        except NumericalError as error:
            return "caught", error.cause
        except EdgedeployError as error:
            return "refused", " ".join([error.what, error.why or ""])
        except Exception as error:
            return "untyped", f"{type(error).__name__}: {error}"
    wrong = difference(test, list(found.values()))
    return ("wrong", wrong) if wrong else ("pass", "")


def judge(test: Test) -> Iterator[Any]:
    """Onnxruntime's result of a case first, then ours: should that end the process, the first is known."""
    yield by_onnxruntime(test)
    yield by_edgedeploy(test)


def prepare() -> None:
    """In a process that runs cases: limits, and what takes long to import."""
    import edgedeploy.building
    import edgedeploy.compile.pipeline
    import edgedeploy.frontends.onnx.importer  # noqa: F401

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")


def run(
    chosen: Sequence[Test],
    processes: int,
    seen: Callable[[Result], None] = lambda _: None,
    judge: Callable[[Test], Iterator[Any]] = judge,
) -> list[Result]:
    """Run all cases in some processes, each of which is replaced when it crashes or a case passes its deadline."""
    idle: SimpleQueue[Worker] = SimpleQueue()

    def one(test: Test) -> Result:
        worker, answers = idle.get(), list[Any]()
        try:
            for answer in worker.stream(judge, test, timeout_s=DEADLINE_S):
                answers.append(answer)
        except WorkerError as error:
            answers = [*(answers[:1] or [False]), ("crash", str(error))]
        finally:
            idle.put(worker)
        right, (outcome, message) = answers
        return Result(test.name, test.operator, test.opset, test.expanded, outcome, message[:500], right)

    results = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool, ExitStack() as stack:
        for number in range(processes):
            idle.put(stack.enter_context(Worker(prepare, Path(folder, f"{number}.txt"))))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        for result in pool.map(one, chosen):
            seen(result)
            results.append(result)
    return results


PAGE = """\
# Operators of ONNX

Written by `python benchmarks/onnx_tests.py --output docs/operators.md` on {date}, with onnx {onnx} and onnxruntime
{onnxruntime}.

The ONNX project has its own tests for every operator (`onnx.backend.test`: node, simple and PyTorch). This benchmark
builds each case for this machine like `edgedeploy build`, with its self-test, and runs it on the case's inputs. It
compares number, shapes, dtypes and values of the outputs, within the case's tolerance or a millionth of the largest
value, whichever is greater. Each case has {deadline:g} s and {memory} GB of address space.

Packages have tensors of fixed shapes. Inputs that are usually constants, such as the axes of a sum or the bounds of a
slice, therefore become constants with the case's values. By position, these are:

{constants}.

* **pass**: built, and all outputs are correct.
* **wrong**: built, but an output is wrong.
* **caught**: the build's own check found a difference from onnxruntime, and wrote no package.
* **refused**: an error names the unsupported part and the reason.
* **untyped**: an [undocumented](exit-codes.md) error.
* **crash**: the process ended, or took too long.

"Expanded" cases are operators replaced by ONNX's own definition from other operators. Opsets newer than
{newest} are supported operator by operator; otherwise the error names opset and operator.

{totals}

## By operator

All cases; the last column counts those that onnxruntime passes.

{table}

## Not supported

* Strings, sequences and optional values.
* Operators whose output size depends on values (NonMaxSuppression, NonZero, Unique), if nothing before them can be
  compiled; otherwise they become [a tail](tails.md).
* Training (Gradient, Adam...).
* Operators without a translation; the error names operator and node.
"""


def page(results: Sequence[Result]) -> str:
    """docs/operators.md for the results of all cases."""
    operators = sorted({result.operator for result in results})
    rows = {name: [result for result in results if result.operator == name] for name in operators}
    groups = {
        f"opset {NEWEST} and older": [each for each in results if each.opset <= NEWEST and not each.expanded],
        "of these, those that onnxruntime passes": [
            each for each in results if each.opset <= NEWEST and not each.expanded and each.onnxruntime
        ],
        f"newer than opset {NEWEST}": [each for each in results if each.opset > NEWEST and not each.expanded],
        "expanded": [each for each in results if each.expanded],
    }
    groups = {name: members for name, members in groups.items() if members}
    return PAGE.format(
        date=date.today().isoformat(),
        onnx=version("onnx"),
        onnxruntime=version("onnxruntime"),
        deadline=DEADLINE_S,
        memory=MEMORY_BYTES >> 30,
        constants=fill(", ".join(f"{name} {'/'.join(map(str, places))}" for name, places in CONSTANTS.items()), 120),
        newest=NEWEST,
        totals=_table("cases", groups),
        table=_table("operator", rows),
    )


def _table(title: str, groups: dict[str, list[Result]]) -> str:
    lines = [f"| {title} | count | {' | '.join(OUTCOMES)} | onnxruntime |", "|---|" + "--:|" * (len(OUTCOMES) + 2)]
    for name, results in groups.items():
        counts = Counter(result.outcome for result in results)
        cells = [str(counts[outcome] or "") for outcome in OUTCOMES]
        passed = sum(result.onnxruntime for result in results)
        lines.append(f"| {name} | {len(results)} | {' | '.join(cells)} | {passed} |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command line, run the cases, and write the page."""
    parser = argparse.ArgumentParser(description="Run the ONNX project's own tests and write docs/operators.md.")
    parser.add_argument("--only", metavar="PATTERN", help="a regular expression that names of cases are to match")
    parser.add_argument("--newest", type=int, default=10**6, help="leave out cases of newer opsets")
    parser.add_argument("--no-expanded", action="store_true", help="leave out operators written out as functions")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at once (all processors)")
    parser.add_argument("--json", type=Path, help="the results of all cases, written as they come")
    parser.add_argument("--resume", action="store_true", help="do not run again what the file of --json has")
    parser.add_argument("--output", type=Path, help="write the page, such as docs/operators.md")
    arguments = parser.parse_args()
    known = read_results(arguments.json, Result) if arguments.resume else []
    done = {result.name for result in known}
    chosen = [
        test
        for test in cases()
        if re.search(arguments.only or "", test.name)
        and test.opset <= arguments.newest
        and test.name not in done
        and not (arguments.no_expanded and test.expanded)
    ]

    def seen(result: Result) -> None:
        known.append(result)
        if arguments.json and len(known) % 20 == 0:
            write_results(arguments.json, known)
        if result.outcome != "pass":
            print(f"{result.outcome:8} {result.name} ({result.opset}): {result.message[:300]}", flush=True)

    run(chosen, arguments.processes, seen)
    results = sorted(known, key=lambda result: result.name)
    print(Counter(result.outcome for result in results))
    if arguments.output:
        arguments.output.write_text(page(results), encoding="utf-8")
    if arguments.json:
        write_results(arguments.json, results)


if __name__ == "__main__":
    sys.exit(main())
