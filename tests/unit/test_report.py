"""What reports consist of: charts and pages, of which no text becomes markup, numbers, and foreign text."""

import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedeploy.base.text import json_text, printable, significant
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


# How numbers and foreign text are written for people.


def test_numbers_have_three_significant_digits_and_what_is_no_number_its_name() -> None:
    values = (0, 0.01234, 1.2345, 12.345, 123.45, 1234.5, -2)
    assert [*map(significant, values)] == ["0", "0.0123", "1.23", "12.3", "123", "1234", "-2.00"]
    assert [significant(float(name)) for name in ("inf", "nan")] == ["inf", "nan"]


@given(st.floats(1e-9, 1e9))
def test_at_most_half_of_the_third_digit_is_lost(value: float) -> None:
    assert float(significant(value)) == pytest.approx(value, rel=5.001e-3)


def test_json_has_null_for_what_is_no_number() -> None:
    nan, inf = float("nan"), float("inf")
    assert json_text({"a": [nan, (inf, -inf)], "b": 1e300, "c": {"d": nan}}) == (
        '{"a": [null, [null, null]], "b": 1e+300, "c": {"d": null}}'
    )


def test_text_that_can_be_printed_stays_and_what_would_move_a_cursor_or_turn_the_writing_is_escaped() -> None:
    assert printable("Faltung 3×3, 卷积 [bold]") == "Faltung 3×3, 卷积 [bold]"
    assert printable("a\x1b[2J\nb\u202ec\x9b\udc80\0") == r"a\x1b[2J\nb\u202ec\x9b\x80\x00"


@given(st.text(st.characters()))
def test_nothing_is_left_that_is_no_visible_sign_or_space(text: str) -> None:
    assert not {unicodedata.category(each)[0] for each in printable(text)} & {"C"}
