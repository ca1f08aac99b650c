"""The ONNX project's own tests, as benchmarks/onnx_tests.py runs them and docs/operators.md states them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("onnx_tests", ROOT / "benchmarks" / "onnx_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["onnx_tests"] = module  # which dataclasses look up
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as for a script that is called
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module


SCRIPT = _script()


def test_a_table_counts_outcomes_by_operator() -> None:
    results = [
        SCRIPT.Result(f"test_{index}", "Abs", 13, False, outcome, "", index < 2)
        for index, outcome in enumerate(["pass", "pass", "refused", "crash"])
    ]
    assert "| Abs | 4 | 2 |  |  | 1 |  | 1 | 2 |" in SCRIPT.page(results).splitlines()


def test_a_worker_that_crashes_or_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def instead(test: object) -> tuple[str, str]:
        if test == "kill":
            import os

            os.kill(os.getpid(), 9)
        if test == "hang":
            import time

            time.sleep(60)
        return "pass", ""

    class Case(str):
        name = operator = "Abs"
        opset, expanded = 13, False

    monkeypatch.setattr(SCRIPT, "by_onnxruntime", lambda test: True)
    monkeypatch.setattr(SCRIPT, "by_edgedeploy", instead)
    monkeypatch.setattr(SCRIPT, "DEADLINE_S", 2.0)
    results = SCRIPT.run([Case("kill"), Case("ok"), Case("hang"), Case("ok")], 1)
    assert [result.outcome for result in results] == ["crash", "pass", "crash", "pass"]


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
    bad = [result for result in results if result["outcome"] in ("wrong", "untyped", "crash")]
    assert not bad
    assert sum(result["outcome"] == "pass" and result["onnxruntime"] for result in results) >= int(stated[1])
