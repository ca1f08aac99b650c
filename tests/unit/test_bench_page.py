"""The page about a benchmark: its charts, its tables, and what a hostile name can do to it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from conftest import Command
from test_bench_costs import COSTS, report, row

from edgedeploy.benchmarking.page import compile_and_run, medians, page, spreads
from edgedeploy.benchmarking.report import Report, Skipped
from edgedeploy.benchmarking.turns import Costs
from edgedeploy.errors import OutputError, UnsupportedError

HOSTILE = "</script><script>alert(1)</script>\u202e"


@pytest.fixture
def found() -> Report:
    return report(row("edgedeploy"), row("onnxruntime", Costs(load_s=1.0)), row("edgedeploy", COSTS, 16))


def embedded(text: str) -> object:
    [said] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    return json.loads(said)


def test_there_is_a_bar_for_each_engine_on_each_network_and_batch(found: Report) -> None:
    drawn = medians(found)
    assert drawn is not None
    assert re.findall("<title>(.*?)</title>", drawn) == [
        "edgedeploy on net (batch 4): 2.00 ms",
        "edgedeploy on net (batch 16): 2.00 ms",
        "onnxruntime on net (batch 4): 2.00 ms",
    ]
    assert "net (batch 16)" in drawn


def test_engines_that_compile_stand_with_both_times(found: Report) -> None:
    drawn = compile_and_run(found)
    assert drawn is not None
    assert "edgedeploy on net (batch 4): 1.50 s, then 2.00 ms" in drawn
    assert "onnxruntime on" not in drawn
    for rows in ([row("onnxruntime", Costs())], [row("edgedeploy"), row("onnxruntime", Costs())]):
        assert compile_and_run(report(*rows)) is None  # one point alone says no more than the table


def test_there_is_a_box_for_each_engine(found: Report) -> None:
    drawn = spreads(found, "net (batch 4)")
    assert drawn.count('class="box"') == 2
    assert "onnxruntime: 2.00 ms of 3 inferences" in drawn


def test_the_page_says_all_that_the_report_holds(found: Report) -> None:
    text = page(found)
    assert embedded(text) == json.loads(json.dumps(found.to_dict()))
    assert "In geometric means, edgedeploy takes 1.00 of the time of onnxruntime" in text
    for said in ("Example", "2 rounds", "net (batch 16)", "take turns", "onnxruntime 1.0 on CPU"):
        assert said in text
    assert text.count("<svg") == 4


def test_a_hostile_name_stays_text(found: Report) -> None:
    bad = report(*found.rows, row(HOSTILE))
    bad.skipped.append(Skipped("ncnn", [HOSTILE], HOSTILE))
    bad.skipped.append(Skipped("mnn", ["net"], f"`pip install {HOSTILE}` brings it"))
    text = page(bad)
    assert "<code>pip install &lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "`" not in text.partition('<script type="application/json"')[0]
    assert "<script>" not in text
    assert "\u202e" not in text
    assert json.loads(json.dumps(embedded(text))) == json.loads(json.dumps(bad.to_dict()))


def test_a_report_without_any_other_engine_has_a_page() -> None:
    assert "No other engine was measured" in page(report(row("edgedeploy", Costs())))


def test_an_unwritable_page_is_refused_first(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, _, err = command("bench", "digits", "--report", tmp_path / "no folder" / "out.html")
    assert code == OutputError.exit_code
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = command("bench", "digits", "--report", tmp_path / "out.html")
    assert (code, "edgedeploy[report]" in err) == (UnsupportedError.exit_code, True), err
