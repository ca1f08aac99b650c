"""Charts, pages, numbers and foreign text: reproducible, no markup of others; and the page about tuning records."""

import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterable
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from time import process_time
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tuning_records import HOSTILE, START, Simulation, trial, trials_of, write_records

from edgedeploy.base.text import json_text, printable, significant
from edgedeploy.errors import OutputError, RecordsError, UnsupportedError
from edgedeploy.records.schema import Event, Measured, RunEnded, TaskEnded, Trial
from edgedeploy.report import html, render, require_report
from edgedeploy.report.charts import alone, chart
from edgedeploy.tuning.report.charts import convergence, temperatures
from edgedeploy.tuning.report.page import write_report

MARKUP = "</title></svg><script>$x^2$\u202e"

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
    for variables in ({}, {"MPLCONFIGDIR": "/proc/nothing", "MATPLOTLIBRC": str(tmp_path), "MPLBACKEND": "tkagg"}):
        command = [sys.executable, "-c", DRAW]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        drawn.append(done.stdout)
    assert drawn[0] == drawn[1]
    assert "<date" not in drawn[0]


def test_foreign_text_in_a_chart_stays_text() -> None:
    with chart(MARKUP) as made:
        [line] = made.axes.plot([0, 1, 2], [1, 2, 3], "o", label=MARKUP)
        made.tell(line, "mark", [MARKUP, "second", "third"])
    shown = MARKUP.replace("\u202e", r"\u202e")
    root = ElementTree.fromstring(made.svg)
    assert [title.text for title in root.iter("title")] == [shown, "second", "third"]
    assert shown in [text.text for text in root.iter("text")]
    assert not list(root.iter("script"))
    assert "\u202e" not in made.svg
    assert ElementTree.fromstring(alone(made.svg)).tag == "{http://www.w3.org/2000/svg}svg", "a file of its own"


def test_foreign_text_in_a_template_is_escaped_and_printable_and_html_is_neither() -> None:
    header = {MARKUP: MARKUP, "chart": html("<b>1</b>")}
    page = render("edgedeploy.tuning.report", "tuning.html", title=MARKUP, header=header, titles=[], networks=[])
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


# The page about tuning records: what it says, and what a hostile name can do to it.

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page as a tree, read by Python's parser of HTML, which is not the one that wrote it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._tree, self._open = ElementTree.TreeBuilder(), ["page"]
        self._tree.start("page", {})
        self.handle_data = self._tree.data
        self.feed(text)
        self.close()
        assert self._open == ["page"], "every element ends"
        self.root = self._tree.end("page")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tree.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self._tree.end(tag)
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._tree.end(tag)

    def all(self, tag: str, class_: str | None = None) -> list[Element]:
        return [each for each in self.root.iter(tag) if class_ is None or class_ in each.get("class", "").split()]

    def texts(self, tag: str) -> list[str]:
        return [_text(each) for each in self.all(tag)]


def _text(place: Element) -> str:
    return " ".join("".join(place.itertext()).split())


def _rows(table: Element) -> list[list[str]]:
    return [[_text(cell) for cell in row if cell.tag == "td"] for row in table.iter("tr")][1:]


def report(folder: Path, *runs: Iterable[Event], board: str = "rpi4") -> Page:
    """The page about records of these runs, which is written into `pages` in the folder."""
    records = write_records(folder / "records", *runs, board=board)
    return Page(write_report(records, folder / "pages" / "report.html").read_text(encoding="utf-8"))


def _trials(times: Iterable[float | None]) -> list[Trial]:
    return [trial(number, *([] if ms is None else [ms])) for number, ms in enumerate(times)]


def _marks(drawing: Element, kind: str) -> list[Element]:
    """The marks of a kind: those of a line that has any, or it."""
    groups = [each for each in drawing.iter("g") if each.get("class") == kind]
    return [mark for group in groups for mark in (list(group.iter("use")) or [group])]


def _told(drawing: Element, kind: str) -> list[str]:
    return [_text(mark[0]) for mark in _marks(drawing, kind)]


def _drawn(svg: str | None) -> Element:
    return ElementTree.fromstring(svg)


class TestConvergence:
    TIMES = (3.0, 4.0, None, 2.5, 2.75, None, 1.5, 3.5)

    @pytest.mark.parametrize("factor", [1, 1e-4, 1e4])
    def test_every_trial_has_a_mark_that_tells_its_time_the_quicker_the_lower(self, factor: float) -> None:
        times = [None if time is None else time * factor for time in self.TIMES]
        drawing = _drawn(convergence(_trials(times), None))
        timed = [(number, time) for number, time in enumerate(times) if time is not None]
        assert _told(drawing, "trial") == [f"trial {number}: {significant(time)} ms" for number, time in timed]
        marks = _marks(drawing, "trial")
        heights = [-float(mark.get("y", "")) for mark in marks]
        assert sorted(range(len(timed)), key=heights.__getitem__) == sorted(
            range(len(timed)), key=lambda index: timed[index][1]
        )
        across = [float(mark.get("x", "")) for mark in marks]
        assert across == sorted(across)

    def test_the_line_is_the_best_so_far_in_whatever_order_trials_came(self) -> None:
        drawing = _drawn(convergence(_trials(self.TIMES)[::-1], None))
        heights = {_text(mark[0]): float(mark.get("y", "")) for mark in _marks(drawing, "trial")}
        [path] = [each for line in _marks(drawing, "best") for each in line.iter("path")]
        steps = list(dict.fromkeys(float(y) for y in re.findall(r"[ML] \S+ (\S+)", path.get("d", ""))))
        assert steps == [heights[f"trial {number}: {self.TIMES[number]:.2f} ms"] for number in (0, 3, 6)]

    def test_failures_the_default_and_finals_have_marks_of_their_own(self) -> None:
        finals = [trial(3, 3.1, final=True), trial(3, 2, final=True)]
        drawing = _drawn(convergence([*_trials([3.0, 2.0, None]), *finals], 3.1))
        assert _told(drawing, "trial") == ["trial 0: 3.00 ms", "trial 1: 2.00 ms"]
        assert _told(drawing, "failure") == ["trial 2: build"]
        assert _told(drawing, "default") == ["untuned default: 3.10 ms"]
        assert _told(drawing, "final") == ["interleaved, at the end: 3.10 ms", "interleaved, at the end: 2.00 ms"]
        [failure] = _marks(drawing, "failure")
        assert all(float(failure.get("y", "")) < float(mark.get("y", "")) for mark in _marks(drawing, "final"))

    def test_without_a_success_there_is_nothing_to_draw(self) -> None:
        assert convergence(_trials([None, None]), None) is None
        assert convergence([], 3.0) is None

    @pytest.mark.parametrize(
        "times", [[2.0], [2.0] * 5, [1e-8, 1e14], [1e14, 1e14], [0.0, 1.0], [0.0199, 0.02]], ids=str
    )
    def test_one_trial_equal_ones_and_far_ends_can_be_drawn(self, times: list[float]) -> None:
        drawing = _drawn(convergence(_trials(times), None))
        assert len(_marks(drawing, "trial")) == len([time for time in times if time])

    @settings(max_examples=10, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 2**53 - 1), st.floats(0, 1e15, exclude_max=True)), min_size=1, max_size=8),
        st.none() | st.floats(0, 1e15, exclude_max=True),
    )
    def test_any_record_lies_within_the_drawing(self, points: list[tuple[int, float]], default: float | None) -> None:
        trials = [trial(0, ms).model_copy(update={"number": number}) for number, ms in points]
        svg = convergence(trials, default)
        if svg is None:
            assert all(time < 1e-8 for _, time in points)
            return
        drawing = _drawn(svg)
        _, _, width, height = map(float, drawing.get("viewBox", "").split())
        for mark in _marks(drawing, "trial"):
            assert 0 <= float(mark.get("x", "")) <= width
            assert 0 <= float(mark.get("y", "")) <= height
        assert len(list(drawing.iter("text"))) < 40


def _warm(temperature: float, **fields: object) -> Trial:
    """A trial on a board of this temperature, which slows itself down at 60 °C."""
    return trial(0, 1.0, conditions={"temperature_c": temperature, "throttled": temperature == 60}, **fields)


class TestTemperatures:
    def test_each_board_has_a_line_and_throttling_is_marked(self) -> None:
        warmth = {"a": [40.0, 50.0, 60.0], "b": [45.0, 46.0, 47.0]}
        trials = [
            _warm(temperature, host=host, time=START + timedelta(minutes=10 * step))
            for host, temperatures in warmth.items()
            for step, temperature in enumerate(temperatures)
        ]
        drawing = _drawn(temperatures(reversed(trials), ["a", "b"]))
        assert _told(drawing, "board") == [f"{host}: {each:.1f} °C" for host in warmth for each in warmth[host]]
        assert _told(drawing, "failure") == ["a slowed itself down at 60.0 °C"]
        assert {"min", "°C", "a", "b"} <= {_text(each) for each in drawing.iter("text")}

    def test_boards_that_tell_no_temperature_have_no_drawing(self) -> None:
        assert temperatures([trial(0, 1.0), trial(1, 1.0, conditions={})], ["local"]) is None

    def test_single_readings_of_many_boards_and_far_ends_of_the_calendar_are_drawn(self) -> None:
        boards = [str(board) for board in range(19)]
        ends = map(datetime.fromisoformat, ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
        single, far = [_warm(-5, host=board) for board in boards], [_warm(50, time=end) for end in ends]
        assert len(_marks(_drawn(temperatures(single, boards)), "board")) == 19
        assert len(_marks(_drawn(temperatures(far, ["local"])), "board")) == 2


EVENTS = Simulation().events()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report(tmp_path_factory.mktemp("usual"), EVENTS)


class TestPage:
    def test_it_needs_nothing_from_elsewhere_and_runs_nothing(self, usual: Page) -> None:
        assert not usual.all("script") + usual.all("link")
        names = [each.get("id") for each in usual.root.iter() if each.get("id")]
        assert len(set(names)) == len(names)
        for each in usual.root.iter():
            assert not {"src", "xlink:href"} & set(each.attrib)
            assert not [name for name in each.attrib if name.startswith("on")]
            if "href" in each.attrib:
                assert each.tag == "use"
                assert each.attrib["href"].removeprefix("#") in names
            assert set(re.findall(r"url\((.*?)\)", str(each.attrib))) <= {f"#{name}" for name in names}
        assert not [each for each in usual.texts("style") if re.search(r"url\(|@import", each)]
        [policy] = [meta for meta in usual.all("meta") if meta.get("http-equiv")]
        assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"

    def test_the_table_has_what_each_task_took_before_and_after(self, usual: Page) -> None:
        results = [event.result for event in EVENTS if isinstance(event, TaskEnded)]
        rows = _rows(usual.all("table")[0])
        assert rows[-1][0] == "all, by weight"
        for row, result in zip(rows[:-1], results, strict=True):
            assert row[0] == f"{result.number} {result.name}"
            default, best, gain, rate = (float(cell.rstrip("x")) for cell in (*row[2:5], row[7]))
            mflop = 10.0 * result.weight  # as the simulation has it
            expected = [result.default_ms, result.best_ms, result.default_ms / result.best_ms, mflop / result.best_ms]
            assert [default, best, gain, rate] == pytest.approx(expected, rel=6e-3)
            # Raspberry Pi 4 at 1.5 GHz: 4 cores x 4 lanes x 2 = 48 GFLOP/s
            assert float(row[8].rstrip("%")) == pytest.approx(100 * mflop / result.best_ms / 48, abs=0.51)
            assert row[5:7] == ["16", "2"]
        assert "One inference: 30.0 ms before, 20.0 ms after, 1.50x, interleaved." in usual.texts("p")
        assert any("48.0 GFLOP/s: 4 cores x 1500 MHz" in text for text in usual.texts("p"))

    def test_every_task_has_a_curve_with_a_mark_for_each_trial(self, usual: Page) -> None:
        figures = usual.all("figure")
        assert [_text(figure[0][0]) for figure in figures] == ["10 fused_conv2d", "11 fused_matmul", "12 fused_pool"]
        for figure in figures:
            [drawing] = figure.iter("svg")
            assert [len(_marks(drawing, kind)) for kind in ("trial", "failure", "final")] == [14, 2, 2]

    def test_failures_are_told_with_their_errors(self, tmp_path: Path) -> None:
        [table] = report(tmp_path, Simulation(names=["a"]).events()).all("table", "errors")
        [[kind, number, error]] = _rows(table)
        assert (kind, number) == ("timeout", "2")
        assert "took too long" in error

    def test_conditions_are_told_for_each_board(self, tmp_path: Path) -> None:
        page = report(tmp_path, Simulation(hosts=["pi@a", "pi@b"]).events())
        [table] = [each for each in page.all("table") if "governor" in _text(each)]
        # Trials measured again at the end count too, with the board's state at their time.
        assert [row[:3] for row in _rows(table)] == [["pi@a", "ondemand", "1500"], ["pi@b", "ondemand", "1500"]]
        assert _rows(table)[0][3] == "50.0 to 64.0"
        assert _rows(table)[1][4].startswith("3 of ")
        [run] = page.all("details", "run")
        [drawing] = run.iter("svg")
        assert {told.partition(":")[0] for told in _told(drawing, "board")} == {"pi@a", "pi@b"}

    def test_no_name_from_a_file_becomes_markup(self, tmp_path: Path) -> None:
        page = report(tmp_path, Simulation(names=[HOSTILE], model=HOSTILE, run=HOSTILE, hosts=[HOSTILE]).events())
        text = (tmp_path / "pages" / "report.html").read_text(encoding="utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)
        assert not page.all("script")
        shown = HOSTILE.replace("\x1b", r"\x1b").replace("\n", r"\n").replace("\u202e", r"\u202e")
        assert shown in page.texts("h2")
        assert any(shown in _text(figure) for figure in page.all("figure"))

    def test_networks_have_sections_and_tasks_that_two_share_are_in_both(self, tmp_path: Path) -> None:
        first, second = Simulation(), Simulation(model="digits", run="run-2", names=["a"])
        shared = second.begin().model_copy(update={"tasks": [*second.summaries(), first.summaries()[0]]})
        page = report(tmp_path, first.events(), [shared, *second.events()[1:]])
        assert page.texts("h2") == ["mobilenet_v1", "digits"]
        assert len(page.all("figure")) == 3 + 2

    def test_runs_that_go_on_where_another_stopped_are_one_curve(self, tmp_path: Path) -> None:
        cut = Simulation(names=["a"]).events()[:10]
        page = report(tmp_path, cut, Simulation(names=["a"], run="run-2", done=8, trials=28, seed=2).events())
        [figure] = page.all("figure")
        assert len(_marks(figure, "trial")) + len(_marks(figure, "failure")) == 8 + 20
        summaries = [text for text in page.texts("summary") if text.startswith("Run ")]
        assert summaries[0].endswith("cut off, or still running")
        assert summaries[1].endswith("done after 3 min 20 s")

    def test_a_run_that_was_killed_has_the_times_of_its_search(self, tmp_path: Path) -> None:
        second = next(place for place, event in enumerate(EVENTS) if isinstance(event, TaskEnded))
        page = report(tmp_path, EVENTS[: second + 8])
        rows = _rows(page.all("table")[0])
        times = [trial.median_s for trial in trials_of(EVENTS[second : second + 8])]
        expected = [times[0], min(time for time in times if time is not None)]
        assert [float(cell) / 1e3 for cell in rows[1][2:4]] == pytest.approx(expected, rel=6e-3)
        assert rows[2][2:7] == ["-", "-", "-", "0", "0"]
        assert {
            "Not finished, with times of the search alone: task 11, 12.",
            "No trial succeeded.",
            "One inference was not measured before and after.",
        } <= set(page.texts("p"))

    def test_an_interrupted_run_says_so(self, tmp_path: Path) -> None:
        page = report(tmp_path, [*EVENTS[:12], RunEnded(run="run-1", results=[], seconds=5, interrupted=True)])
        assert any(text.endswith("interrupted after 5 s") for text in page.texts("summary"))

    def test_records_without_trials_are_a_page_and_trials_of_no_run_too(self, tmp_path: Path) -> None:
        assert "Nothing was measured yet." in report(tmp_path).texts("p")
        page = report(tmp_path, [event for event in EVENTS if isinstance(event, Measured)])
        assert page.texts("h2") == ["Tasks of no run that is recorded"]
        assert len(page.all("figure")) == 3

    def test_a_board_that_tells_no_frequency_has_no_peak(self, tmp_path: Path) -> None:
        events = [
            event.model_copy(update={"trial": event.trial.model_copy(update={"conditions": None})})
            if isinstance(event, Measured)
            else event
            for event in Simulation(names=["a"]).events()
        ]
        page = report(tmp_path, events)
        assert "The peak is not known: no trial has the frequency of the board." in page.texts("p")
        assert _rows(page.all("table")[0])[0][8] == ""
        assert "No trial tells the temperature of its board." in page.texts("p")

    def test_a_board_without_a_profile_has_no_peak(self, tmp_path: Path) -> None:
        page = report(tmp_path, Simulation(names=["a"]).events(), board="attic")
        assert any(text.startswith("The peak is not known: ") and "attic" in text for text in page.texts("p"))

    def test_the_same_records_give_the_same_page(self, tmp_path: Path) -> None:
        report(tmp_path, Simulation(names=["a"]).events())
        first = (tmp_path / "pages" / "report.html").read_bytes()
        assert write_report(tmp_path / "records", tmp_path / "other.html").read_bytes() == first

    @pytest.mark.slow
    def test_many_trials_take_seconds(self, tmp_path: Path) -> None:
        events = Simulation(names=[f"task{number}" for number in range(20)], trials=500).events()
        begun = process_time()
        assert len(_marks(report(tmp_path, events).root, "trial")) > 8000
        assert process_time() - begun < 60


def test_a_folder_without_records_and_an_output_that_cannot_be_written_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="holds no tuning records"):
        write_report(tmp_path / "nothing", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(OutputError):
        write_report(write_records(tmp_path / "records", Simulation(names=["a"]).events()), tmp_path)
