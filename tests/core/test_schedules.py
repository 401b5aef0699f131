"""Runs of schedules: cron expressions and recurrence rules, across clock changes and outages."""

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.core.schedules import (
    CAUGHT_UP_MAX,
    ON_TIME_MS,
    Missed,
    Recurrence,
    cron_fault,
    due,
    first_run,
    rrule_fault,
    runs_after,
    zone_fault,
)
from taskyard.core.states import Millis
from tests.each_row import each_row
from tests.effort import tries

BERLIN = "Europe/Berlin"
HOUR = 3_600_000


def at(text: str, zone: str = BERLIN) -> Millis:
    """The moment at which clocks in a zone show a time."""
    return Millis(round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000))


def told(moments: list[Millis], zone: str = BERLIN) -> list[str]:
    """Moments as clocks in a zone show them, with the distance from UTC."""
    return [f"{datetime.fromtimestamp(one / 1_000, ZoneInfo(zone)):%m-%d %H:%M %z}" for one in moments]


def runs(recurrence: Recurrence, after: str, count: int) -> list[str]:
    return told(list(islice(runs_after(recurrence, at(after)), count)))


def cron(text: str) -> Recurrence:
    return Recurrence(cron=text, timezone=BERLIN)


def rule(text: str, start: str = "2026-01-01 02:30") -> Recurrence:
    return Recurrence(rrule=text, timezone=BERLIN, start_ms=at(start))


@each_row(
    ("recurrence", "after", "expected"),
    [
        # The clock is put forward at 02:00 on 29 March: 02:30 does not exist.
        (cron("30 2 * * *"), "2026-03-28 12:00", ["03-29 03:00 +0200", "03-30 02:30 +0200"]),
        (rule("FREQ=DAILY"), "2026-03-28 12:00", ["03-30 02:30 +0200", "03-31 02:30 +0200"]),
        (cron("0 * * * *"), "2026-03-29 00:30", ["03-29 01:00 +0100", "03-29 03:00 +0200"]),
        (rule("FREQ=HOURLY"), "2026-03-29 00:45", ["03-29 01:30 +0100", "03-29 03:30 +0200"]),
        # It is put back at 03:00 on 25 October: 02:30 occurs twice.
        (cron("30 2 * * *"), "2026-10-24 12:00", ["10-25 02:30 +0200", "10-26 02:30 +0100"]),
        (rule("FREQ=DAILY"), "2026-10-24 12:00", ["10-25 02:30 +0200", "10-26 02:30 +0100"]),
        (cron("30 * * * *"), "2026-10-25 01:45", ["10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]),
        (rule("FREQ=HOURLY"), "2026-10-25 01:45", ["10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]),
        (
            rule("FREQ=MINUTELY;INTERVAL=30", "2026-01-01 00:00"),
            "2026-10-25 01:45",
            ["10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 02:00 +0100", "10-25 02:30 +0100", "10-25 03:00 +0100"],
        ),
        # Steps count from the start; an end in UTC and one of the zone.
        (rule("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"), "2026-01-02 00:00", ["01-12 02:30 +0100", "01-26 02:30 +0100"]),
        (rule("FREQ=DAILY;COUNT=3"), "2026-01-02 12:00", ["01-03 02:30 +0100"]),
        (rule("FREQ=DAILY;UNTIL=20260103T013000Z"), "2026-01-02 12:00", ["01-03 02:30 +0100"]),
        (rule("FREQ=DAILY;UNTIL=20260103T013000"), "2026-01-01 12:00", ["01-02 02:30 +0100"]),
        (rule("FREQ=MONTHLY;BYDAY=-1FR"), "2026-01-01 12:00", ["01-30 02:30 +0100", "02-27 02:30 +0100"]),
        (rule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"), "2026-01-01 12:00", ["02-29 02:30 +0100", "02-29 02:30 +0100"]),
        (rule("RRULE:FREQ=DAILY"), "2025-06-01 12:00", ["01-01 02:30 +0100"]),  # nothing before the start
    ],
)
def test_runs_are_at_the_right_moments(recurrence: Recurrence, after: str, expected: list[str]) -> None:
    assert runs(recurrence, after, len(expected)) == expected


def test_a_rule_that_can_never_be_met_has_no_run() -> None:
    assert first_run(rule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"), at("2026-01-01 12:00")) is None
    assert rrule_fault("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30") == "can never be met"


def test_a_schedule_is_over_after_its_last_run() -> None:
    assert first_run(rule("FREQ=DAILY;COUNT=2"), at("2026-06-01 12:00")) is None
    found = due(rule("FREQ=DAILY;COUNT=2"), at("2026-01-02 02:30"), at("2026-01-02 02:30"), Missed.ONE)
    assert (found.runs, found.next_ms) == ((at("2026-01-02 02:30"),), None)


def test_a_run_that_was_missed_long_ago_is_made() -> None:
    yearly = rule("FREQ=YEARLY")
    found = due(yearly, at("2027-01-01 02:30"), at("2028-11-01 00:00"), Missed.ONE)
    assert (found.runs, found.dropped, found.next_ms) == ((at("2028-01-01 02:30"),), 1, at("2029-01-01 02:30"))


@each_row(
    ("text", "said"),
    [
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("61 * * * *", "minute"),
        ("* * 30 2 *", "day-of-month"),
        ("a b c d e", "minute"),
    ],
)
def test_a_cron_expression_that_is_wrong_says_how_one_is_written(text: str, said: str) -> None:
    assert said in (cron_fault(text) or "")


@each_row(
    ("text", "said"),
    [
        ("", "is no part of a rule"),
        ("FREQ=SECONDLY", "FREQ must be one of"),
        ("FREQ=DAILY;FREQ=DAILY", "is no part of a rule"),
        ("FREQ=DAILY;COUNT=1000", "COUNT must be a number from 1 to 999"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL must be a number"),
        ("FREQ=DAILY;INTERVAL=²", "INTERVAL must be a number"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20260101T000000Z", "exclude each other"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL must be written"),
        ("FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30", "BYMONTH cannot be used with FREQ=MINUTELY"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "BYMONTHDAY cannot be used with FREQ=DAILY"),
        ("FREQ=DAILY;BYDAY=XX", "is no recurrence rule"),
        ("FREQ=DAILY;BYHOUR=25", "is no recurrence rule"),
        ("FREQ=DAILY;UNTIL=20269999T000000", "is no recurrence rule"),
        ("FREQ=DAILY;X=1", "X cannot be used"),
        ("FREQ=DAILY\nEXDATE:20260101T000000", "must be one rule on one line"),
    ],
)
def test_a_rule_that_is_wrong_says_what_is_wrong(text: str, said: str) -> None:
    assert said in (rrule_fault(text) or "")


@pytest.mark.parametrize("name", ["", "Europe/Nowhere", "../etc/passwd", "/etc/localtime", "x" * 300, "a\0b"])
def test_a_name_that_is_no_time_zone_is_refused(name: str) -> None:
    assert "is no time zone" in (zone_fault(name) or "")


def test_good_expressions_have_no_fault() -> None:
    assert [cron_fault("30 2 * * 1-5"), rrule_fault("FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9"), zone_fault(BERLIN)] == [
        None
    ] * 3


HOURLY = Recurrence(cron="0 * * * *")


@each_row(
    ("missed", "runs", "dropped"),
    [
        (Missed.SKIP, 0, 5),
        (Missed.ONE, 1, 4),
        (Missed.ALL, 5, 0),
    ],
)
def test_missed_runs_are_dropped_or_made_as_the_schedule_says(missed: Missed, runs: int, dropped: int) -> None:
    found = due(HOURLY, Millis(100 * HOUR), Millis(104 * HOUR + 2 * ON_TIME_MS), missed)
    assert (len(found.runs), found.dropped, found.next_ms) == (runs, dropped, 105 * HOUR)
    assert found.runs == tuple(range(104 * HOUR - (runs - 1) * HOUR, 104 * HOUR + 1, HOUR))[:runs]


@pytest.mark.parametrize("missed", Missed)
def test_a_run_that_is_on_time_is_made_whatever_becomes_of_missed_ones(missed: Missed) -> None:
    found = due(HOURLY, Millis(HOUR), Millis(HOUR + ON_TIME_MS), missed)
    assert found.runs == (HOUR,)
    assert due(HOURLY, Millis(2 * HOUR), Millis(HOUR), missed).runs == ()


def test_of_very_many_missed_runs_the_newest_are_made() -> None:
    found = due(HOURLY, Millis(850 * HOUR), Millis(1_000 * HOUR + 2 * ON_TIME_MS), Missed.ALL)
    assert (len(found.runs), found.runs[-1], found.dropped) == (CAUGHT_UP_MAX, 1_000 * HOUR, 151 - CAUGHT_UP_MAX)


@settings(max_examples=tries(20), deadline=None)
@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 1,2,3 * * 0", "15 */2 28-31 3,10 *"]),
    st.sampled_from([BERLIN, "America/St_Johns", "Australia/Lord_Howe", "UTC"]),
    st.integers(0, 3 * 366 * 24 * 60),
    st.lists(st.integers(1, 200), min_size=1, max_size=6),
)
def test_calls_at_any_moments_make_each_run_once(text: str, zone: str, begun: int, minutes: list[int]) -> None:
    recurrence = Recurrence(cron=text, timezone=zone)
    begin = Millis(at("2025-01-01 00:00") + begun * 60_000)
    end = Millis(begin + sum(minutes) * 60_000)
    made: list[Millis] = []
    now, planned = begin, first_run(recurrence, begin)
    for step in minutes:
        now = Millis(now + step * 60_000)
        assert planned is not None
        found = due(recurrence, planned, now, Missed.ALL)
        made, planned = [*made, *found.runs], found.next_ms
    assert made == [one for one in islice(runs_after(recurrence, begin), 2_000) if one <= end]
