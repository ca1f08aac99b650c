"""The page about tuning records: what it says, where its points lie, what a hostile file can do to it."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from time import process_time
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_runs import BEGIN, HOSTILE, Simulation, trials_of, write_records

from edgedeploy.errors import EdgedeployError, OutputError, RecordsError
from edgedeploy.tune.events import Event, Measured, RunEnded, TaskEnded
from edgedeploy.tune.report import write_report
from edgedeploy.tune.report.axis import Axis
from edgedeploy.tune.report.charts import convergence, temperatures
from edgedeploy.tune.trial import Conditions, Trial

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page as a tree, read by Python's parser of HTML, which is not the one that wrote it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("page")
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], "every element ends"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = ElementTree.SubElement(self._open[-1], tag, {name: value or "" for name, value in attrs})
        if tag not in VOID:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        place = self._open[-1]
        if len(place):
            place[-1].tail = (place[-1].tail or "") + data
        else:
            place.text = (place.text or "") + data

    def all(self, tag: str, class_: str | None = None) -> list[Element]:
        return [each for each in self.root.iter(tag) if class_ is None or class_ in each.get("class", "").split()]

    def texts(self, tag: str) -> list[str]:
        return [_text(each) for each in self.all(tag)]


def _text(place: Element) -> str:
    return " ".join("".join(place.itertext()).split())


def _rows(table: Element) -> list[list[str]]:
    return [[_text(cell) for cell in row if cell.tag == "td"] for row in table.iter("tr")][1:]


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Page]:
    """Makes the page of records of some runs."""

    def make(*runs: Iterable[Event], board: str = "rpi4") -> Page:
        folder = write_records(tmp_path / "records", *runs, board=board)
        output = write_report(folder, tmp_path / "pages" / "report.html")
        return Page(output.read_text(encoding="utf-8"))

    return make


class Scales:
    """Turns places of a drawing into values, by the marks at its axes alone."""

    def __init__(self, drawing: Element, *, logarithmic: bool = False) -> None:
        texts = list(drawing.iter("text"))
        self._across = [(float(t.get("x", "")), float(t.text or "")) for t in texts if t.get("class") == "tick"]
        self._up = [(float(t.get("y", "")) - 4, float(t.text or "")) for t in texts if t.get("class") == "tick-up"]
        self._logarithmic = logarithmic

    def across(self, x: float) -> float:
        return self._line(self._across, x)

    def up(self, y: float) -> float:
        if not self._logarithmic:
            return self._line(self._up, y)
        return 10 ** self._line([(place, math.log10(value)) for place, value in self._up], y)

    @staticmethod
    def _line(marks: list[tuple[float, float]], place: float) -> float:
        (first, low), (last, high) = marks[0], marks[-1]
        return low + (place - first) / (last - first) * (high - low)


def _trial(number: int, ms: float | None, **fields: object) -> Trial:
    failed = {"failure": "crash", "error": "signal 11"} if ms is None else {"seconds": [ms / 1e3]}
    return Trial.model_validate(
        {"time": BEGIN, "run": "r", "task": "t", "workload": "w", "number": number, **failed, **fields}
    )


def _marks(drawing: Element, class_: str) -> list[Element]:
    return [each for each in drawing.iter() if class_ in each.get("class", "").split()]


def _corner(path: Element) -> tuple[float, float]:
    found = re.match(r"M([\d.]+) ([\d.]+)", path.get("d", ""))
    assert found
    return float(found[1]), float(found[2])


class TestConvergence:
    TIMES = (3.0, 4.0, None, 2.5, 2.75, None, 1.5, 3.5)
    BEST = (3.0, 3.0, 3.0, 2.5, 2.5, 2.5, 1.5, 1.5)

    @pytest.mark.parametrize("factor", [1, 1e-4, 1e4])
    def test_points_lie_where_the_numbers_say(self, factor: float) -> None:
        times = [None if time is None else time * factor for time in self.TIMES]
        drawing = convergence([_trial(number, time) for number, time in enumerate(times)], None)
        assert drawing is not None
        scales = Scales(drawing)
        points = {
            round(scales.across(float(mark.get("cx", "")))): scales.up(float(mark.get("cy", "")))
            for mark in _marks(drawing, "trial")
        }
        expected = {number: time for number, time in enumerate(times) if time is not None}
        assert points == pytest.approx(expected, rel=1e-3)

    def test_times_far_apart_lie_on_a_logarithmic_axis(self) -> None:
        times = [0.02, 5.0, 700.0, 0.011]
        drawing = convergence([_trial(number, time) for number, time in enumerate(times)], None)
        assert drawing is not None
        scales = Scales(drawing, logarithmic=True)
        assert [scales.up(float(mark.get("cy", ""))) for mark in _marks(drawing, "trial")] == pytest.approx(
            times, rel=0.01
        )

    @pytest.mark.parametrize("seed", range(3))
    def test_the_line_is_the_best_of_all_trials_before_in_whatever_order_they_came(self, seed: int) -> None:
        trials = [_trial(number, time) for number, time in enumerate(self.TIMES)]
        random.Random(seed).shuffle(trials)
        drawing = convergence(trials, None)
        assert drawing is not None
        scales = Scales(drawing)
        [line] = _marks(drawing, "best")
        x, y = _corner(line)
        corners = [(x, y)]
        for step, value in re.findall(r"([HV])([\d.]+)", line.get("d", "")):
            x, y = (float(value), y) if step == "H" else (x, float(value))
            corners.append((x, y))
        for number, best in enumerate(self.BEST):
            heights = [scales.up(y) for x, y in corners if scales.across(x) <= number + 0.01]
            assert heights[-1] == pytest.approx(best, rel=1e-3)

    def test_failures_are_crosses_above_the_times(self) -> None:
        drawing = convergence([_trial(number, time) for number, time in enumerate(self.TIMES)], None)
        assert drawing is not None
        crosses = _marks(drawing, "failure")
        scales = Scales(drawing)
        assert [round(scales.across(_corner(cross)[0] + 3.5)) for cross in crosses] == [2, 5]
        highest = min(float(mark.get("cy", "")) for mark in _marks(drawing, "trial"))
        assert all(_corner(cross)[1] + 7 < highest for cross in crosses)
        assert [_text(cross) for cross in crosses] == ["trial 2: crash", "trial 5: crash"]

    def test_the_default_is_a_line_and_finals_are_marks_of_their_own(self) -> None:
        trials = [_trial(0, 3.0), _trial(1, 2.0), _trial(2, 3.1, final=True), _trial(2, 2.1, final=True)]
        drawing = convergence(trials, 3.1)
        assert drawing is not None
        scales = Scales(drawing)
        [default] = _marks(drawing, "default")
        assert scales.up(_corner(default)[1]) == pytest.approx(3.1, rel=1e-3)
        finals = [scales.up(_corner(mark)[1] + 5) for mark in _marks(drawing, "final")]
        assert finals == pytest.approx([3.1, 2.1], rel=1e-3)
        assert len(_marks(drawing, "trial")) == 2

    def test_without_a_success_there_is_nothing_to_draw(self) -> None:
        assert convergence([_trial(0, None), _trial(1, None)], None) is None
        assert convergence([], 3.0) is None

    @given(
        st.lists(st.tuples(st.integers(0, 2**53 - 1), st.floats(0, 1e15, exclude_max=True)), min_size=1, max_size=8),
        st.none() | st.floats(0, 1e15, exclude_max=True),
    )
    def test_whatever_a_file_says_lies_within_the_drawing(
        self, points: list[tuple[int, float]], default: float | None
    ) -> None:
        drawing = convergence([_trial(number, time) for number, time in points], default)
        if drawing is None:
            assert all(time < 1e-8 for _, time in points)
            return
        for mark in _marks(drawing, "trial"):
            assert 0 <= float(mark.get("cx", "")) <= 560
            assert 0 <= float(mark.get("cy", "")) <= 250
        assert len(list(drawing.iter("text"))) < 30


@given(st.floats(1e-9, 1e15), st.floats(1e-9, 1e15))
def test_an_axis_has_a_few_round_marks_within(low: float, high: float) -> None:
    axis = Axis.over(sorted([low, high]), 0, 100)
    ticks = axis.ticks()
    assert len(ticks) <= 10
    assert all(-0.01 <= axis.place(value) <= 100.01 for value, _ in ticks)
    assert all(float(text) == pytest.approx(value, rel=1e-6, abs=1e-12) for value, text in ticks)
    assert axis.place(low) < axis.place(high) or low >= high


class TestTemperatures:
    def test_lines_lie_where_the_boards_said_and_throttling_is_marked(self) -> None:
        warmth = {"a": [40.0, 50.0, 60.0], "b": [45.0, 46.0, 47.0]}
        trials = [
            _trial(
                step,
                1.0,
                host=host,
                time=BEGIN + timedelta(minutes=10 * step),
                conditions=Conditions(temperature_c=temperature, throttled=temperature == 60).model_dump(),
            )
            for host, temperatures in warmth.items()
            for step, temperature in enumerate(temperatures)
        ]
        drawing = temperatures(reversed(trials), ["a", "b"])
        assert drawing is not None
        scales = Scales(drawing)
        for index, host in enumerate(warmth):
            [line] = _marks(drawing, f"board-{index}")
            places = re.findall(r"([\d.]+) ([\d.]+)", line.get("d", ""))
            assert _text(line) == host
            assert [scales.across(float(x)) for x, _ in places] == pytest.approx([0, 10, 20], abs=0.05)
            assert [scales.up(float(y)) for _, y in places] == pytest.approx(warmth[host], abs=0.1)
        [cross] = _marks(drawing, "failure")
        assert _text(cross) == "a slowed itself down at 60.0 °C"
        assert scales.up(_corner(cross)[1] + 3.5) == pytest.approx(60, abs=0.1)

    def test_boards_that_tell_no_temperature_have_no_drawing(self) -> None:
        assert temperatures([_trial(0, 1.0), _trial(1, 1.0, conditions={})], ["local"]) is None

    def test_a_single_reading_and_many_boards_can_be_drawn(self) -> None:
        trials = [_trial(0, 1.0, host=str(host), conditions={"temperature_c": -5.0}) for host in range(9)]
        drawing = temperatures(trials, [str(host) for host in range(9)])
        assert drawing is not None
        assert len(_marks(drawing, "board")) == 9
        assert len(_marks(drawing, "board-6")) == 3


class TestPage:
    def test_it_needs_nothing_from_elsewhere_and_runs_nothing(self, report: Callable[..., Page]) -> None:
        page = report(Simulation().events())
        assert not page.all("script")
        assert not page.all("link")
        for each in page.root.iter():
            assert not {"src", "href", "xlink:href"} & set(each.attrib)
            assert not [name for name in each.attrib if name.startswith("on")]
        assert not re.search(r"url\(|@import", _text(page.all("style")[0]))
        [policy] = [meta for meta in page.all("meta") if meta.get("http-equiv")]
        assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"

    def test_the_table_has_what_each_task_took_before_and_after(self, report: Callable[..., Page]) -> None:
        events = Simulation().events()
        page = report(events)
        results = [event.result for event in events if isinstance(event, TaskEnded)]
        rows = _rows(page.all("table")[0])
        assert rows[-1][0] == "all, by weight"
        for row, result in zip(rows[:-1], results, strict=True):
            assert row[0] == f"{result.number} {result.name}"
            assert result.default_ms is not None
            assert result.best_ms is not None
            default, best, gain, rate = (float(cell.rstrip("x")) for cell in (*row[2:5], row[7]))
            mflop = 10.0 * result.weight  # as the simulation has it
            expected = [result.default_ms, result.best_ms, result.default_ms / result.best_ms, mflop / result.best_ms]
            assert [default, best, gain, rate] == pytest.approx(expected, rel=6e-3)
            # Raspberry Pi 4 at 1.5 GHz: 4 cores x 4 lanes x 2 = 48 GFLOP/s
            assert float(row[8].rstrip("%")) == pytest.approx(100 * mflop / result.best_ms / 48, abs=0.51)
            assert row[5:7] == ["16", "2"]
        assert "One inference: 30.0 ms before, 20.0 ms after, 1.50x, measured in turns." in page.texts("p")
        assert any("48.0 GFLOP/s: 4 cores x 1500 MHz" in text for text in page.texts("p"))

    def test_every_task_has_a_curve_with_a_mark_for_each_trial(self, report: Callable[..., Page]) -> None:
        events = Simulation().events()
        page = report(events)
        figures = page.all("figure")
        assert [_text(figure[0][0]) for figure in figures] == ["10 fused_conv2d", "11 fused_matmul", "12 fused_pool"]
        for figure in figures:
            [drawing] = [svg for svg in figure.iter("svg") if "convergence" in svg.get("class", "")]
            assert len(_marks(drawing, "trial")) == 14
            assert len(_marks(drawing, "failure")) == 2
            assert len(_marks(drawing, "final")) == 2

    def test_failures_are_told_with_their_errors(self, report: Callable[..., Page]) -> None:
        page = report(Simulation(names=["a"]).events())
        [table] = page.all("table", "errors")
        [[kind, number, error]] = _rows(table)
        assert (kind, number) == ("timeout", "2")
        assert "took too long" in error

    def test_conditions_are_told_for_each_board(self, report: Callable[..., Page]) -> None:
        page = report(Simulation(hosts=["pi@a", "pi@b"]).events())
        [table] = [each for each in page.all("table") if "governor" in _text(each)]
        # Trials measured again at the end count too, with the board's state at their time.
        assert [row[:3] for row in _rows(table)] == [["pi@a", "ondemand", "1500"], ["pi@b", "ondemand", "1500"]]
        assert _rows(table)[0][3] == "50.0 to 64.0"
        assert _rows(table)[1][4].startswith("3 of ")
        [drawing] = page.all("svg", "temperatures")
        assert len(_marks(drawing, "board")) == 2

    def test_no_name_from_a_file_becomes_markup(self, report: Callable[..., Page], tmp_path: Path) -> None:
        run = Simulation(names=[HOSTILE], model=HOSTILE, run=HOSTILE, hosts=[HOSTILE])
        page = report(run.events())
        text = (tmp_path / "pages" / "report.html").read_text(encoding="utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)
        assert not page.all("script")
        shown = HOSTILE.replace("\x1b", r"\x1b").replace("\n", r"\n").replace("\u202e", r"\u202e")
        assert shown in page.texts("h2")
        assert any(shown in _text(figure) for figure in page.all("figure"))

    def test_networks_have_sections_and_tasks_that_two_share_are_in_both(self, report: Callable[..., Page]) -> None:
        first, second = Simulation(), Simulation(model="digits", run="run-2", names=["a"])
        shared = second.begin().model_copy(update={"tasks": [*second.summaries(), first.summaries()[0]]})
        page = report(first.events(), [shared, *second.events()[1:]])
        assert page.texts("h2") == ["mobilenet_v1", "digits"]
        assert len(page.all("figure")) == 3 + 2

    def test_runs_that_go_on_where_another_stopped_are_one_curve(self, report: Callable[..., Page]) -> None:
        first = Simulation(names=["a"])
        cut = first.events()[:10]
        later = Simulation(names=["a"], run="run-2", done=8, trials=28, seed=2)
        page = report(cut, later.events())
        [figure] = page.all("figure")
        assert len(_marks(figure, "trial")) + len(_marks(figure, "failure")) == 8 + 20
        summaries = [text for text in page.texts("summary") if text.startswith("Run ")]
        assert summaries[0].endswith("cut off, or still running")
        assert summaries[1].endswith("done after 3 min 20 s")

    def test_a_run_that_was_killed_has_the_times_of_its_search(self, report: Callable[..., Page]) -> None:
        events = Simulation().events()
        second = next(place for place, event in enumerate(events) if isinstance(event, TaskEnded))
        page = report(events[: second + 8])
        rows = _rows(page.all("table")[0])
        times = [trial.median_s for trial in trials_of(events[second : second + 8])]
        expected = [times[0], min(time for time in times if time is not None)]
        assert [float(cell) / 1e3 for cell in rows[1][2:4]] == pytest.approx(expected, rel=6e-3)
        assert rows[2][2:7] == ["-", "-", "-", "0", "0"]
        assert "Not finished, with times of the search alone: task 11, 12." in page.texts("p")
        assert "No trial succeeded." in page.texts("p")
        assert "One inference was not measured before and after." in page.texts("p")

    def test_an_interrupted_run_says_so(self, report: Callable[..., Page]) -> None:
        events = Simulation().events()[:12]
        page = report([*events, RunEnded(run="run-1", results=[], seconds=5, interrupted=True)])
        assert any(text.endswith("interrupted after 5 s") for text in page.texts("summary"))

    def test_trials_of_no_run_are_shown_too(self, report: Callable[..., Page], tmp_path: Path) -> None:
        report(Simulation().events())
        (tmp_path / "records" / "runs.jsonl").unlink()
        page = Page(write_report(tmp_path / "records", tmp_path / "report.html").read_text(encoding="utf-8"))
        assert page.texts("h2") == ["Tasks of no run that is recorded"]
        assert len(page.all("figure")) == 3

    def test_records_without_trials_are_a_page(self, report: Callable[..., Page]) -> None:
        assert "Nothing was measured yet." in report().texts("p")

    def test_a_board_that_tells_no_frequency_has_no_peak(self, report: Callable[..., Page]) -> None:
        events = [
            event.model_copy(update={"trial": event.trial.model_copy(update={"conditions": None})})
            if isinstance(event, Measured)
            else event
            for event in Simulation().events()
        ]
        page = report(events)
        assert "The peak is not known: no trial tells the frequency of the board." in page.texts("p")
        assert _rows(page.all("table")[0])[0][8] == ""
        assert "No trial tells the temperature of its board." in page.texts("p")

    def test_a_board_without_a_profile_has_no_peak(self, report: Callable[..., Page]) -> None:
        page = report(Simulation().events(), board="attic")
        assert any(text.startswith("The peak is not known: ") and "attic" in text for text in page.texts("p"))

    def test_the_same_records_give_the_same_page(self, report: Callable[..., Page], tmp_path: Path) -> None:
        report(Simulation().events())
        first = (tmp_path / "pages" / "report.html").read_bytes()
        assert write_report(tmp_path / "records", tmp_path / "other.html").read_bytes() == first

    @pytest.mark.slow
    def test_many_trials_take_seconds(self, report: Callable[..., Page]) -> None:
        run = Simulation(names=[f"task{number}" for number in range(20)], trials=500)
        events = run.events()
        begun = process_time()
        page = report(events)
        assert len(page.all("circle", "trial")) > 8000
        assert process_time() - begun < 20


class TestErrors:
    def test_a_folder_without_records(self, tmp_path: Path) -> None:
        with pytest.raises(RecordsError, match="holds no tuning records"):
            write_report(tmp_path / "nothing", tmp_path / "report.html")
        assert not (tmp_path / "report.html").exists()

    def test_an_output_that_cannot_be_written(self, tmp_path: Path) -> None:
        folder = write_records(tmp_path / "records", Simulation().events())
        with pytest.raises(OutputError):
            write_report(folder, tmp_path)

    def test_a_damaged_line_is_named(self, tmp_path: Path) -> None:
        folder = write_records(tmp_path / "records", Simulation().events())
        lines = (folder / "trials.jsonl").read_text().splitlines()
        (folder / "trials.jsonl").write_text("\n".join([lines[0], "{}", *lines[2:], ""]))
        with pytest.raises(RecordsError, match=r"trials\.jsonl:2"):
            write_report(folder, tmp_path / "report.html")

    def test_a_torn_last_line_is_left_out(self, tmp_path: Path) -> None:
        folder = write_records(tmp_path / "records", Simulation(names=["a"]).events())
        for name in ("trials.jsonl", "runs.jsonl"):
            text = (folder / name).read_bytes()
            (folder / name).write_bytes(text[:-20])
        page = Page(write_report(folder, tmp_path / "report.html").read_text(encoding="utf-8"))
        assert len(page.all("path", "final")) == 1 + 1, "one of two, and that of the legend"


def _flipped(content: bytes, chance: random.Random) -> bytes:
    """Damaged in one of the ways that matter: cut, flipped bits, other values, lines that come again."""
    match chance.randrange(4):
        case 0:
            return content[: chance.randrange(len(content) + 1)]
        case 1:
            changed = bytearray(content)
            for _ in range(chance.randrange(1, 8)):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case 2:
            values = [
                b"-1",
                b"1e999",
                b"NaN",
                b"null",
                b"[]",
                b"9" * 400,
                b'"\\ud800"',
                b"1e-320",
                b"true",
                b"[" * 3000,
            ]
            numbers = list(re.finditer(rb"(?<=[:\[])-?\d[\d.e-]*", content))
            if not numbers:
                return content
            place = chance.choice(numbers)
            return content[: place.start()] + chance.choice(values) + content[place.end() :]
        case _:
            lines = content.splitlines(keepends=True)
            chance.shuffle(lines)
            return b"".join(lines + lines[: chance.randrange(len(lines) + 1)])


def _fuzz(tmp_path: Path, cases: range) -> None:
    folder = write_records(
        tmp_path / "records",
        Simulation(trials=8).events(),
        Simulation(model="digits", run="run-2", names=["a"], trials=8).events(),
    )
    contents = {path: path.read_bytes() for path in folder.iterdir()}
    pages = 0
    for seed in cases:
        chance = random.Random(seed)
        for path, content in contents.items():
            path.write_bytes(_flipped(content, chance) if chance.random() < 0.5 else content)
        begun = process_time()
        try:
            text = write_report(folder, tmp_path / "report.html").read_text(encoding="utf-8")
        except EdgedeployError:
            continue
        finally:
            assert process_time() - begun < 5, seed
        Page(text)
        pages += 1
    assert pages > len(cases) // 20, "some damage leaves a readable folder"


def test_damaged_records_give_a_page_or_an_error_of_ours(tmp_path: Path) -> None:
    _fuzz(tmp_path, range(200))


@pytest.mark.slow
def test_ten_thousand_damaged_records_give_a_page_or_an_error_of_ours(tmp_path: Path) -> None:
    _fuzz(tmp_path, range(1000, 11_000))


def test_times_of_far_ends_of_the_calendar_are_drawn() -> None:
    ends = [datetime.fromisoformat("0001-01-01T00:00:00+14:00"), datetime.fromisoformat("9999-12-31T23:59:59-12:00")]
    trials = [_trial(0, 1.0, time=time, conditions={"temperature_c": 50.0}) for time in ends]
    assert temperatures(trials, ["local"]) is not None
