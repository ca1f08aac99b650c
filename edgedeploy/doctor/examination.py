"""All checks, and how they run: each as soon as the checks that it needs are good, within time limits."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.doctor import board, host, opencl, packages
from edgedeploy.doctor.case import Case
from edgedeploy.doctor.check import Check, Finding, Result, State, failed, failure, not_applicable
from edgedeploy.errors import EdgedeployError
from edgedeploy.target.hosts import busyness

LIMIT_S = 30.0

# In the order of the report.
CHECKS: tuple[Check, ...] = tuple(
    each for module in (packages, host, board, opencl) for each in vars(module).values() if isinstance(each, Check)
)

_GOOD = (State.OK, State.WARNING)


def examine(
    case: Case, checks: Sequence[Check], *, limit_s: float = LIMIT_S, progress: Progress = SILENT
) -> list[Result]:
    """Run the checks that apply; their results are in the same order.

    A check that exceeds its limit has failed, and its thread is left behind. Limits are for an idle machine. The checks
    that one needs may be missing or not apply.
    """
    applying = [check for check in checks if check.applies(case)]
    names = {check.name for check in applying}
    busy = busyness()
    deadline = time.monotonic() + limit_s * busy
    waiting, running = list(applying), dict[str, tuple[Check, float]]()
    answers: queue.Queue[tuple[Check, Finding | Exception]] = queue.Queue()
    results: dict[str, Result] = {}
    causes: dict[str, str] = {}  # of a check that does not run, the check to correct first

    def ask(check: Check) -> None:
        try:
            answers.put((check, check.look(case)))
        except EdgedeployError as error:
            answers.put((check, failure(error)))
        except OSError as error:
            answers.put((check, failed(str(error))))
        except Exception as error:
            answers.put((check, error))

    def end_of(check: Check, started: float) -> float:
        return min(started + check.limit_s * busy, deadline)

    with progress.steps(f"examine {case.name}", len(applying)) as advance:

        def conclude(check: Check, finding: Finding) -> None:
            _, started = running.pop(check.name, (check, time.monotonic()))
            results[check.name] = Result(check, finding, time.monotonic() - started)
            advance()

        while waiting or running:
            for check in [each for each in waiting if (names & set(each.needs)) <= results.keys()]:
                waiting.remove(check)
                bad = [name for name in check.needs if name in names and results[name].finding.state not in _GOOD]
                if bad:
                    causes[check.name] = causes.get(bad[0], bad[0])
                    conclude(check, not_applicable(f"not looked at, because of {causes[check.name]}"))
                    continue
                running[check.name] = (check, time.monotonic())
                # A check that hangs must not keep the program from ending.
                threading.Thread(target=ask, args=(check,), daemon=True).start()
            if not running:
                continue
            first = min(end_of(*each) for each in running.values())
            try:
                check, answer = answers.get(timeout=max(first - time.monotonic(), 0))
            except queue.Empty:
                now = time.monotonic()
                for check, started in [each for each in running.values() if end_of(*each) <= now]:
                    conclude(check, failed(f"no answer within {now - started:.0f} s", check.if_stuck))
                continue
            if isinstance(answer, Exception):
                raise answer
            if check.name in running:  # else it comes too late
                conclude(check, answer)
    return [results[check.name] for check in applying]
