"""What a tuning run tells: as JSON and back, and what no run can have told."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from support.tuning_records import result, trial

from edgedeploy.records.events import EVENT, RunEnded
from edgedeploy.records.trial import Conditions, Trial

TRIAL = trial(3, 2.0, 1.0)


def test_an_event_is_one_line_of_json_and_back() -> None:
    event = RunEnded(run="r", results=[result(name="a\nb")], before_ms=10, after_ms=8, seconds=60)
    line = event.model_dump_json()
    assert "\n" not in line
    assert EVENT.validate_json(line) == event


def test_the_speed_up_is_of_the_best_over_the_default() -> None:
    assert result(default_ms=3, best_ms=2).speed_up == 1.5
    assert result(default_ms=None).speed_up is None


def test_a_trial_took_the_median_of_its_measurements() -> None:
    assert TRIAL.median_s == 1.5e-3
    assert TRIAL.model_copy(update={"seconds": []}).median_s is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": -1},
        {"number": 10**400},
        {"seconds": [float("nan")]},
        {"seconds": [float("inf")]},
        {"seconds": [-1e-3]},
        {"conditions": {"temperature_c": float("inf")}},
        {"conditions": {"frequency_mhz": -1}},
        {"name": "unknown"},
    ],
    ids=str,
)
def test_what_no_run_can_have_measured_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Trial.model_validate({**TRIAL.model_dump(), **change})


def test_a_time_without_a_zone_is_one_in_utc() -> None:
    assert Trial.model_validate({**TRIAL.model_dump(), "time": TRIAL.time.replace(tzinfo=None).isoformat()}) == TRIAL


def test_a_board_below_zero_is_possible() -> None:
    assert Conditions(temperature_c=-20).temperature_c == -20
