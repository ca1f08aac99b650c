"""Charts and pages in general: reproducible, quiet, and no text becomes markup."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgedeploy.errors import UnsupportedError
from edgedeploy.report import require_report
from edgedeploy.report.charts import alone, chart
from edgedeploy.report.page import html, render
from edgedeploy.tuning.report.page import write_report

HOSTILE = "</title></svg><script>$x^2$\u202e"

DRAW = """
import sys
from edgedeploy.report.charts import chart

with chart("a line") as made:
    made.axes.plot([0, 1], [1, 2], label="漢字")
print(made.svg)
assert "matplotlib.pyplot" not in sys.modules
"""


def test_without_the_extra_an_early_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require_report()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError) as raised:
        write_report(tmp_path / "records that there are not", tmp_path / "report.html")
    assert "Matplotlib" in str(raised.value)
    assert raised.value.hints == ("pip install 'edgedeploy[report]'",)


def test_a_chart_depends_on_its_data_alone_and_says_nothing_on_standard_error(tmp_path: Path) -> None:
    """A user's settings, a font cache that cannot be kept and letters that no font has change nothing."""
    (tmp_path / "matplotlibrc").write_text("axes.grid: False\nlines.linewidth: 9\nno.such.setting: 1\n")
    drawn = []
    for settings in ({}, {"MPLCONFIGDIR": "/proc/nothing", "MATPLOTLIBRC": str(tmp_path), "MPLBACKEND": "tkagg"}):
        command = [sys.executable, "-c", DRAW]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        drawn.append(done.stdout)
    assert drawn[0] == drawn[1]
    assert "<date" not in drawn[0]


def test_foreign_text_in_a_chart_stays_text() -> None:
    with chart(HOSTILE) as made:
        [line] = made.axes.plot([0, 1, 2], [1, 2, 3], "o", label=HOSTILE)
        made.tell(line, "mark", [HOSTILE, "second", "third"])
    shown = HOSTILE.replace("\u202e", r"\u202e")
    root = ElementTree.fromstring(made.svg)
    assert [title.text for title in root.iter("title")] == [shown, "second", "third"]
    assert shown in [text.text for text in root.iter("text")]
    assert not list(root.iter("script"))
    assert "\u202e" not in made.svg
    assert ElementTree.fromstring(alone(made.svg)).tag == "{http://www.w3.org/2000/svg}svg", "a file of its own"


def test_foreign_text_in_a_template_is_escaped_and_printable_and_html_is_neither() -> None:
    header = {HOSTILE: HOSTILE, "chart": html("<b>1</b>")}
    page = render("edgedeploy.tuning.report", "tuning.html", title=HOSTILE, header=header, titles=[], networks=[])
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.count(r"&lt;/title&gt;&lt;/svg&gt;&lt;script&gt;$x^2$\u202e") == 4
    assert "<b>1</b>" in page
