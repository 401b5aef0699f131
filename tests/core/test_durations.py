"""Durations and times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.durations import DAY_MS, HOUR_MS, MINUTE_MS
from taskyard.core.graph import When, moment_ms, span_ms, span_text
from taskyard.core.states import Millis
from tests.core.graph.documents import faults_of, read_task, task
from tests.each_row import each_row


@each_row(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("1h30m", 90 * MINUTE_MS),
        ("2d", 2 * DAY_MS),
        ("500ms", 500),
        ("1d2h3m4s5ms", DAY_MS + 2 * HOUR_MS + 3 * MINUTE_MS + 4_005),
        ("1m500ms", MINUTE_MS + 500),
        ("0s", 0),
        ("", None),
        ("90", None),
        ("s", None),
        ("30m1h", None),
        ("1h1h", None),
        ("1.5h", None),
        ("-1s", None),
        ("1 h", None),
        ("1H", None),
        ("1w", None),
        ("\u0661s", None),
        ("1234567890s", None),
    ],
)
def test_a_span_is_counts_and_units_from_the_longest(text: str, ms: int | None) -> None:
    assert span_ms(text) == ms


@given(st.integers(0, 900_000_000 * DAY_MS))
def test_a_span_that_is_written_is_read_back(ms: int) -> None:
    assert span_ms(span_text(ms)) == ms


@each_row(
    ("text", "ms"),
    [
        ("2030-01-01T00:00:00Z", 1_893_456_000_000),
        ("2030-01-01t00:00:00z", 1_893_456_000_000),
        ("2030-01-01T02:00:00+02:00", 1_893_456_000_000),
        ("2030-01-01T00:00:00.123456789Z", 1_893_456_000_123),
        ("2030-01-01T00:00:00.5Z", 1_893_456_000_500),
        ("2030-01-01T00:00:00", None),
        ("2030-01-01", None),
        ("2030-01-01 00:00:00Z", None),
        ("2030-02-30T00:00:00Z", None),
        ("2030-06-30T23:59:60Z", None),
        ("9999-01-01T00:00:00Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("1999-12-31T00:00:00Z", None),
        ("2030-01-01T00:00:00+99:00", None),
        ("2030-01-01T00:00:00+02", None),
    ],
)
def test_a_moment_has_a_zone_and_is_of_our_time(text: str, ms: int | None) -> None:
    assert moment_ms(text) == ms


def test_a_span_counts_from_the_submission_and_a_moment_does_not() -> None:
    assert When(90, fixed=False).moment(Millis(10)) == 100
    assert When(90, fixed=True).moment(Millis(10)) == 90


@pytest.mark.parametrize(
    ("value", "ending"),
    [
        (90, "write 90s"),
        (-5, "got -5"),
        (True, "got true"),
        (1.5, "got 1.5"),
        ("90", 'got "90"'),
        ("0s", 'got "0s"'),
        ("8d", 'got "8d"'),
        (None, "got null"),
    ],
)
def test_a_bad_span_says_what_to_write(value: object, ending: str) -> None:
    message = f"must be a duration from 1s to 7d, such as 90s or 1h30m; {ending}"
    assert faults_of(task(expires=value)) == [("tasks.a.task.expires", message)]


@pytest.mark.parametrize("value", [90, "367d", "tomorrow", "2030-01-01T00:00:00", [], "-1s"])
def test_a_bad_deadline_is_refused(value: object) -> None:
    assert [path for path, _ in faults_of(task(deadline=value))] == ["tasks.a.task.deadline"]


def test_a_deadline_is_a_span_or_a_moment() -> None:
    assert read_task(task(deadline="366d")).deadline == When(366 * DAY_MS, fixed=False)
    assert read_task(task(deadline="2030-01-01T00:00:00Z")).deadline == When(1_893_456_000_000, fixed=True)
