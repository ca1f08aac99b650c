"""From scores to detections, with frames of 100 samples of which there are 1,000 in a second."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edgedeploy.audio.program import Detector
from edgedeploy.audio.spec import Detecting

FRAME, RATE = 100, 1_000


def detected(scores: list[float], *, missing: int = 0, **how: float) -> list[tuple[str, int, float]]:
    """What a sound of these scores tells; its last frame lacks `missing` samples."""
    detector = Detector(Detecting(label="x", **how), RATE, FRAME)
    events = [event for index, score in enumerate(scores) for event in detector.add(index * FRAME, score)]
    events += detector.finish(len(scores) * FRAME - missing)
    return [(event.kind, event.sample, event.score) for event in events]


@pytest.mark.parametrize(
    ("scores", "how", "events"),
    [
        ([0.1, 0.4, 0.1], {}, []),
        ([0.1, 0.5, 0.9, 0.1], {}, [("begin", 100, 0.5), ("end", 300, 0.9)]),
        ([0.9, 0.4, 0.9, 0.1], {}, [("begin", 0, 0.9), ("end", 100, 0.9), ("begin", 200, 0.9), ("end", 300, 0.9)]),
        ([0.1, 0.9, 0.4, 0.9, 0.1], {"release": 0.3}, [("begin", 100, 0.9), ("end", 400, 0.9)]),
        ([0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1], {"gap_s": 0.2}, [("begin", 100, 0.9), ("end", 400, 0.9)]),
        ([0.9, 0.9, 0.1, 0.1], {"shortest_s": 0.2}, []),
        ([0.9, 0.9, 0.9, 0.1], {"shortest_s": 0.2}, [("begin", 0, 0.9), ("end", 300, 0.9)]),
        ([0.1, 0.9, 0.1], {"gap_s": 0.1, "margin_s": 0.03}, [("begin", 70, 0.9), ("end", 230, 0.9)]),
        ([0.9, 0.9], {"gap_s": 0.1, "margin_s": 0.03}, [("begin", 0, 0.9), ("end", 200, 0.9)]),
    ],
    ids=[
        "nothing reaches the threshold", "it begins and ends", "it ends with the first lower score",
        "it goes on above its release", "a gap that is too short ends nothing", "what is too short is nothing",
        "what is long enough begins where it began", "a margin lies around it", "a margin ends with the sound",
    ],
)  # fmt: skip
def test_scores_tell_where_something_begins_and_ends(
    scores: list[float], how: dict[str, float], events: list[tuple[str, int, float]]
) -> None:
    # The end of a gap is known a frame later: what follows it here is silence.
    assert detected([*scores, *([0.0] if "gap_s" in how and scores[-1] < 0.5 else [])], **how) == events


def test_a_sound_that_ends_within_a_frame_ends_a_detection_there() -> None:
    assert detected([0.1, 0.9], missing=30) == [("begin", 100, 0.9), ("end", 170, 0.9)]


def test_a_detection_is_told_with_the_frame_that_makes_it_sure() -> None:
    detector = Detector(Detecting(label="x", shortest_s=0.15), RATE, FRAME)
    assert [len(detector.add(index * FRAME, 0.9)) for index in range(4)] == [0, 1, 0, 0]


def test_another_threshold_moves_the_release_with_it() -> None:
    how = Detecting(label="x", threshold=0.5, release=0.35).with_threshold(0.8)
    assert (how.threshold, how.release) == (0.8, pytest.approx(0.65))
    assert Detecting(label="x", threshold=0.5, release=0.35).with_threshold(0.1).release == 0


@pytest.mark.parametrize("how", [{"threshold": 0.3, "release": 0.4}, {"gap_s": 0.1, "margin_s": 0.06}, {"gap_s": -1}])
def test_parameters_that_contradict_each_other_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Detecting(label="x", **how)
