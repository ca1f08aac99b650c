"""How numbers and foreign text are written for people."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedeploy.base.text import json_text, printable, significant


def test_numbers_have_three_significant_digits() -> None:
    values = (0, 0.01234, 1.2345, 12.345, 123.45, 1234.5, -2)
    assert [*map(significant, values)] == ["0", "0.0123", "1.23", "12.3", "123", "1234", "-2.00"]


@given(st.floats(1e-9, 1e9))
def test_at_most_half_of_the_third_digit_is_lost(value: float) -> None:
    assert float(significant(value)) == pytest.approx(value, rel=5.001e-3)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_no_number_is_named(value: float) -> None:
    assert significant(value) == str(value)


def test_json_has_null_for_what_is_no_number() -> None:
    nan, inf = float("nan"), float("inf")
    assert json_text({"a": [nan, (inf, -inf)], "b": 1e300, "c": {"d": nan}}) == (
        '{"a": [null, [null, null]], "b": 1e+300, "c": {"d": null}}'
    )


def test_text_that_can_be_printed_stays_as_it_is() -> None:
    assert printable("Faltung 3×3, 卷积 [bold]") == "Faltung 3×3, 卷积 [bold]"


def test_what_would_move_a_cursor_or_turn_the_writing_is_escaped() -> None:
    assert printable("a\x1b[2J\nb\u202ec\x9b\udc80\0") == r"a\x1b[2J\nb\u202ec\x9b\x80\x00"


@given(st.text(st.characters()))
def test_nothing_is_left_that_is_no_visible_sign_or_space(text: str) -> None:
    assert not {unicodedata.category(each)[0] for each in printable(text)} & {"C"}
