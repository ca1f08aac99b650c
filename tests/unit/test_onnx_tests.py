"""The ONNX project's own tests, as benchmarks/onnx_tests.py runs them and docs/operators.md states them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx_tests
import pytest
from conftest import ROOT


def test_a_table_counts_outcomes_by_operator() -> None:
    results = [
        onnx_tests.Result(f"test_{index}", "Abs", 13, False, outcome, "", index < 2)
        for index, outcome in enumerate(["pass", "pass", "refused", "crash"])
    ]
    assert "| Abs | 4 | 2 |  |  | 1 |  | 1 | 2 |" in onnx_tests.page(results).splitlines()


@dataclass
class Case:
    operator: str
    name: str = ""
    opset: int = 13
    expanded: bool = False


def judge(case: Case) -> Iterator[object]:
    yield True
    if case.operator == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if case.operator == "hang":
        time.sleep(60)
    yield "pass", ""


@pytest.mark.slow
def test_a_worker_that_crashes_or_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_tests, "DEADLINE_S", 20.0)  # what a loaded machine needs to start a worker
    results = onnx_tests.run([Case(each) for each in ("kill", "ok", "hang", "ok")], 1, judge=judge)
    assert [result.outcome for result in results] == ["crash", "pass", "crash", "pass"]
    assert all(result.onnxruntime for result in results)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_as_many_cases_pass_as_the_page_says_and_none_is_wrong(tmp_path: Path) -> None:
    """Of opset 21 and older, without those that are expanded."""
    stated = re.search(
        r"^\| of these, those that onnxruntime passes \| \d+ \| (\d+) \|",
        (ROOT / "docs" / "operators.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert stated is not None
    file = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "onnx_tests.py"), "--no-expanded", "--newest", "21"]
    subprocess.run([*command, "--json", str(file)], check=True, timeout=7000, cwd=ROOT)
    results = json.loads(file.read_text(encoding="utf-8"))
    assert not [result for result in results if result["outcome"] in ("wrong", "untyped", "crash")]
    assert sum(result["outcome"] == "pass" and result["onnxruntime"] for result in results) >= int(stated[1])
