"""What `edgedeploy tune` shows of a run: on a terminal, into a pipe, as JSON."""

import io
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from rich.console import Console
from support.commands import becomes
from support.tuning_records import HOSTILE, Simulation

from edgedeploy.cli import console, tuning_display
from edgedeploy.cli.global_options import GlobalOptions, set_global_options
from edgedeploy.cli.tuning_display import Display, JsonDisplay, LineDisplay, display
from edgedeploy.records.schema import EVENT, Conditions, Event, Measured, Noted, Progressed, RunEnded, TaskEnded

RUN = Simulation()


class Screen(io.StringIO):
    """A terminal of lines that scrolls but forgets nothing, as far as rich's escapes go."""

    _PART = re.compile(
        r"\x1b\[(?P<count>\d*)(?P<order>[AK])|\x1b\[[?\d;]*[a-zA-Z]|(?P<turn>[\r\n])|(?P<text>[^\x1b\r\n]+)"
    )

    def lines(self) -> list[str]:
        lines, row, column = [""], 0, 0
        for part in self._PART.finditer(self.getvalue()):
            if text := part["text"]:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
            elif part["turn"] == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif part["turn"] == "\r":
                column = 0
            elif part["order"] == "A":
                row -= int(part["count"] or 1)
                assert row >= 0
            elif part["order"] == "K":
                lines[row] = ""
        return [line.rstrip() for line in lines]

    def shows(self, *parts: str, visible: bool = True) -> bool:
        """Whether a line holds all parts (or, if not `visible`, none does), soon: another thread draws."""
        return becomes(lambda: any(all(part in line for part in parts) for line in self.lines()) == visible, 10)


class Clock:
    """Time that passes when it is told to, and the display that a run is shown in by it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.show = LineDisplay(clock=self)

    def __call__(self) -> float:
        return self.now

    def follow(self, events: Iterable[Event], seconds: float) -> None:
        """Show events, each so many seconds after the one before."""
        for event in events:
            self.now += seconds
            self.show(event)


@pytest.fixture
def screen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal as wide as the fixture's parameter says."""
    screen, width = Screen(), getattr(request, "param", 100)
    monkeypatch.setenv("TERM", "xterm")
    made = Console(file=screen, force_terminal=True, width=width, highlight=False, soft_wrap=True)
    for module in (console, tuning_display):
        monkeypatch.setattr(module, "stderr", lambda: made)
    return screen


@contextmanager
def showing(events: Iterable[Event]) -> Iterator[Display]:
    with display() as show:
        for event in events:
            show(event)
        yield show


def _show(events: Iterable[Event]) -> None:
    with showing(events):
        pass


def _trial_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("  trial ")]


class TestTerminal:
    def test_it_says_how_far_the_run_and_the_task_are(self, screen: Screen) -> None:
        events = RUN.until(Measured, 12)
        best = min(event.trial.median_s for event in events if isinstance(event, Measured) and event.trial.median_s)
        with showing(events):
            assert screen.shows("12 of 48 trials", "0 of 3 tasks", "2 failures", "left")
            assert screen.shows("1 of 3: task 10, fused_conv2d (weight 1, 10.0 MFLOP)")
            assert screen.shows("trial 12 of 16, 2 failures", f"best {best * 1e3:.3g}", f"{0.01 / best:.3g} GFLOP/s")
            assert screen.shows("61.0 °C, 1500 MHz, governor ondemand")
        assert not any("GFLOP/s" in line for line in screen.lines()), "the lines go away with the display"

    def test_tasks_that_end_and_notes_stay_above(self, screen: Screen) -> None:
        _show([*RUN.until(TaskEnded, 1), Noted(text="waiting for pi@a")])
        *_, ended, note = (line for line in screen.lines() if line)
        assert re.match(r"  task 10, fused_conv2d: default 1\.\d+ ms, best .* ms, .*x, 16 trials, 2 failures", ended)
        assert note == "waiting for pi@a"

    def test_results_are_a_table_on_standard_output(self, screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
        events = RUN.events()
        _show(events)
        assert "done: 48 trials in 3 min 20 s" in screen.lines()
        title, head, *lines, total, whole = capsys.readouterr().out.splitlines()
        assert title == "mobilenet_v1 on rpi4"
        assert head.split() == ["task", "weight", "default", "ms", "best", "ms", "speed-up", "trials", "failures"]
        results = [event.result for event in events if isinstance(event, TaskEnded)]
        for line, result in zip(lines, results, strict=True):
            number, name, weight, default, best, gain, trials, failures = line.split()
            assert (int(number), name, int(weight)) == (result.number, result.name, result.weight)
            assert float(default) == pytest.approx(result.default_ms, rel=6e-3)
            assert float(best) == pytest.approx(result.best_ms, rel=6e-3)
            assert float(gain.removesuffix("x")) == pytest.approx(result.default_ms / result.best_ms, rel=6e-3)
            assert (int(trials), int(failures)) == (16, 2)
        fields = "default_ms", "best_ms"
        sums = [sum(result.weight * (getattr(result, field) or 0) for result in results) for field in fields]
        assert [float(text) for text in total.split()[3:5]] == pytest.approx(sums, rel=6e-3)
        assert whole == "one inference: 30.0 ms before, 20.0 ms after, 1.50x, interleaved"

    @pytest.mark.parametrize(("screen", "width"), [(each, each) for each in (20, 40, 79, 200)], indirect=["screen"])
    def test_no_line_at_the_bottom_is_wider_than_the_terminal(self, screen: Screen, width: int) -> None:
        run = Simulation(names=["long" * 60, "b"], hosts=["host" * 40, "other"])
        with showing(run.until(Measured, 5)):
            assert screen.shows("trial 5 of"[: width // 2])
            bottom = screen.lines()[1:]  # below the line that tells of the start
            assert len(bottom) == 5
            assert all(len(line) <= width for line in bottom)

    def test_every_board_has_a_line_until_there_are_too_many_and_says_if_it_slows_down(self, screen: Screen) -> None:
        run = Simulation(hosts=[f"pi@{number}" for number in range(9)])
        with showing(run.until(Measured, 9)):
            assert screen.shows("pi@0: 50.0 °C")
            assert screen.shows("pi@5: 55.0 °C")
            assert screen.shows("and 3 more boards")
            assert not any("pi@6" in line and "°C" in line for line in screen.lines())
        with showing(RUN.until(Measured, 10)):
            assert screen.shows("59.0 °C", "throttled")

    def test_steps_between_events_are_shown_last(self, screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
        with display() as show:
            with show.stage("connecting"):
                pass
            assert screen.shows("connecting", " s")
            for event in RUN.until(Measured, 3):
                show(event)
            for step in (show.stage("building"), show.steps("building", 4), show.transfer("building", 100)):
                with step:
                    assert screen.shows("building")
                assert screen.shows("building", visible=False)
            with show.steps("turns", 4) as advance:
                assert screen.shows("turns: 0 of 4")
                advance()
                assert screen.shows("turns: 1 of 4")
        assert capsys.readouterr().out == ""

    def test_an_error_within_leaves_the_terminal_as_it_was(self, screen: Screen) -> None:
        with pytest.raises(KeyboardInterrupt), showing(RUN.until(Measured, 3)):
            raise KeyboardInterrupt
        assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l"), "the cursor is back"
        assert not any("━" in line for line in screen.lines())

    def test_a_dumb_terminal_gets_lines(self, monkeypatch: pytest.MonkeyPatch, screen: Screen) -> None:
        monkeypatch.setenv("TERM", "dumb")
        _show(RUN.events())
        assert "\x1b[?25l" not in screen.getvalue()
        assert "done: 48 trials in 3 min 20 s" in screen.getvalue()

    def test_events_may_come_from_several_threads(self, screen: Screen) -> None:
        run = Simulation(names=[f"task{number}" for number in range(8)], trials=50)
        with display() as show, ThreadPoolExecutor(8) as pool:
            show(run.begin())
            list(pool.map(lambda task: [show(event) for event in run.task(task)], run.summaries(), timeout=60))
            assert screen.shows("400 of 400 trials", "8 of 8 tasks")


class TestPipe:
    def test_a_few_lines_tell_a_run(self, capsys: pytest.CaptureFixture[str]) -> None:
        _show(RUN.events())
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        start, *tasks, end = printed.err.splitlines()
        assert start == (
            "mobilenet_v1 on rpi4: 3 tasks, at most 48 trials, tuner xgb, measured by pi@a; "
            "records in /home/user/records/rpi4"
        )
        assert [line.split(" (")[0] for line in tasks[::2]] == [
            "1 of 3: task 10, fused_conv2d",
            "2 of 3: task 11, fused_matmul",
            "3 of 3: task 12, fused_pool",
        ]
        assert all(line.startswith("  task ") for line in tasks[1::2])
        assert end == "done: 48 trials in 3 min 20 s"
        assert len(printed.out.splitlines()) == 7

    def test_names_are_shown_and_not_obeyed(self, capsys: pytest.CaptureFixture[str]) -> None:
        events = Simulation(names=[HOSTILE], model=HOSTILE, board=HOSTILE, hosts=[HOSTILE, "b"]).events()
        _show([*events[:-1], Noted(text=HOSTILE), events[-1]])
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        assert "\u202e" not in printed.out + printed.err
        assert "[bold red]<script>" in printed.out
        assert r"conv\x1b[2J\n[bold red]" in printed.out
        assert len(printed.out.splitlines()) == 4
        marked = [line for line in printed.err.splitlines() if line.startswith("  | ")]
        assert len(printed.err.splitlines()) == 5 + len(marked)
        assert len(marked) == 1, "of the note: no line of ours is cut by a name"

    def test_a_batch_that_comes_at_once_is_one_line_however_large(self, capsys: pytest.CaptureFixture[str]) -> None:
        run, clock = Simulation(names=["a"], trials=256), Clock()
        clock.show(run.begin())
        trials = [event for event in run.task(run.summaries()[0]) if not isinstance(event, TaskEnded)]
        for place, event in enumerate(trials[:257]):
            clock.follow([event], 60 if place % 64 == 1 else 0)
        assert 2 <= len(_trial_lines(capsys)) <= 4

    def test_a_slow_board_is_heard_of_twice_a_minute(self, capsys: pytest.CaptureFixture[str]) -> None:
        Clock().follow(Simulation(names=["a"], trials=12).until(Measured, 12), 10)
        lines = _trial_lines(capsys)
        assert [line.split(",")[0].strip() for line in lines] == [f"trial {number} of 12" for number in (3, 6, 9, 12)]
        assert "about 2 min 0 s left" in lines[0], "three trials of twelve are done, 40 s after the start"

    def test_earlier_runs_count_as_done_and_do_not_hasten_the_end(self, capsys: pytest.CaptureFixture[str]) -> None:
        Clock().follow(Simulation(names=["a", "b"], trials=28, done=20).until(Measured, 4), 10)
        start, _, line = capsys.readouterr().err.splitlines()
        assert "at most 56 trials with 40 of earlier runs" in start
        # Of 16 trials 3 are done, after 40 s; the clock starts with the run.
        assert re.match(r"  trial 23 of 28, .*about 2 min 53 s left", line)

    def test_a_trial_that_is_measured_again_counts_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        _show(each for event in RUN.events() for each in [event] * (2 if isinstance(event, Measured) else 1))
        assert "done: 48 trials" in capsys.readouterr().err

    def test_an_interrupted_run_shows_what_there_is(self, capsys: pytest.CaptureFixture[str]) -> None:
        events = RUN.until(TaskEnded, 1)
        _show([*events, RunEnded(run="run-1", results=[events[-1].result], seconds=59.6, interrupted=True)])
        printed = capsys.readouterr()
        assert "interrupted after 16 trials in 1 min 0 s; the records keep them" in printed.err
        assert "fused_conv2d" in printed.out
        assert "all, by weight" not in printed.out
        assert printed.out.endswith("one inference was not measured before and after\n")

    def test_what_could_not_be_measured_is_a_dash(self, capsys: pytest.CaptureFixture[str]) -> None:
        results = [event.result for event in RUN.until(TaskEnded, 2) if isinstance(event, TaskEnded)]
        results[1] = results[1].model_copy(update={"default_ms": None})
        _show([RunEnded(run="run-1", results=results, seconds=1)])
        _, _, line, total, _ = capsys.readouterr().out.splitlines()
        assert [line.split()[3], line.split()[5], total.split()[3]] == ["-"] * 3

    def test_events_of_an_unknown_task_are_no_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        other = Simulation(model="other").task(Simulation(model="other").summaries()[0])
        _show([RUN.begin(), *other, *other, RunEnded(run="run-1", results=[], seconds=0)])
        assert capsys.readouterr().out.splitlines()[1:] == ["one inference was not measured before and after"]

    def test_one_network_after_the_other_is_shown_from_its_own_start(self, capsys: pytest.CaptureFixture[str]) -> None:
        clock = Clock()
        clock.follow(RUN.events(), 0)
        clock.now += 1000
        clock.follow(Simulation(model="digits", run="run-2").until(Measured, 3), 15)
        printed = capsys.readouterr()
        assert printed.out.startswith("mobilenet_v1 on rpi4\n")
        # 2 of 48 trials are done, 45 s after this run began: 45 s / 2 x 46.
        assert re.match(r"  trial 2 of 16, .*about 17 min 15 s left", printed.err.splitlines()[-1])

    def test_steps_that_take_long_are_counted_every_ten_seconds(self, capsys: pytest.CaptureFixture[str]) -> None:
        clock = Clock()
        clock.follow(RUN.until(Measured, 3), 0)
        capsys.readouterr()
        with clock.show.steps("quick", 3) as step:
            step()
        with clock.show.steps("measure net in 8 ways, interleaved", 120) as step:
            for _ in range(7):
                clock.now += 4
                step()
        lines = capsys.readouterr().err.splitlines()
        assert lines == [f"  measure net in 8 ways, interleaved: {done} of 120" for done in (3, 6)]


class TestJson:
    @pytest.fixture(autouse=True)
    def _as_json(self) -> Iterator[None]:
        set_global_options(GlobalOptions(json=True))
        yield
        set_global_options(GlobalOptions())

    def test_each_event_is_a_line_of_standard_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        events = Simulation(names=[HOSTILE, "b"]).events()
        _show(events)
        printed = capsys.readouterr()
        assert [EVENT.validate_json(line) for line in printed.out.splitlines()] == events
        assert printed.err == ""
        kinds = [json.loads(line)["event"] for line in printed.out.splitlines()]
        assert kinds[:3] == ["run started", "task started", "measured"]
        assert kinds[-2:] == ["task ended", "run ended"]

    def test_notes_and_steps_of_the_work_do_not_spoil_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        with display() as show:
            show(RUN.begin())
            with show.stage("building"), show.steps("building", 3) as step, show.transfer("sending", 10) as sent:
                step()
                sent(10)
            show.note("waiting\nfor pi@a")
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines[1:] == [{"event": "note", "text": "waiting\nfor pi@a"}]

    def test_steps_that_take_long_are_events(self, capsys: pytest.CaptureFixture[str]) -> None:
        clock = Clock()
        with JsonDisplay(Display(), clock=clock).steps("turns", 8) as step:
            for _ in range(4):
                clock.now += 9
                step()
        lines = capsys.readouterr().out.splitlines()
        assert [EVENT.validate_json(line) for line in lines] == [
            Progressed(title="turns", done=done, total=8) for done in (2, 4)
        ]

    def test_a_terminal_shows_the_run_beside_it(self, screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
        with showing(RUN.until(Measured, 2)) as show, show.stage("building"):
            assert screen.shows("2 of 48 trials")
            assert screen.shows("building")
        for line in capsys.readouterr().out.splitlines():
            json.loads(line)


def test_conditions_that_a_board_does_not_tell_take_no_place(capsys: pytest.CaptureFixture[str]) -> None:
    [start, begun, first, *_] = RUN.events()
    silent = first.trial.model_copy(update={"conditions": Conditions()})
    told = [start.model_copy(update={"conditions": None}), begun, first.model_copy(update={"trial": silent})]
    Clock().follow(told, 60)
    assert capsys.readouterr().err.splitlines()[-1].endswith("left")
