"""Schedules launch their templates: each run once, with several servers, after outages and in whatever state."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.catalogue.plan import Rights
from taskyard.core.durations import DAY_MS, HOUR_MS
from taskyard.core.states import Millis
from taskyard.engine.schedules import SKIPPED
from taskyard.lifecycle.catalogue import delete_document
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.store.repo.launches import LaunchRow
from taskyard.store.repo.schedules import SchedulePlan
from tests.engine.harness import FakeClock
from tests.engine.launches import LaunchHarness, job

#: The midnight before the first times of these tests.
BEGIN = 20_700 * DAY_MS
#: The newest graphs have the smallest ids.
FIRST = 0


@pytest.fixture
def harness(database_url: str) -> Iterator[LaunchHarness]:
    with LaunchHarness(database_url) as made:
        made.hello()
        made.clock.ms = Millis(BEGIN + 1_000)
        made.apply(job(allow_simultaneous=True, variables={"version": "1"}))
        yield made


def hourly(**fields: Any) -> dict[str, object]:
    return {"kind": "schedule", "name": "hourly", "template": "deploy", "cron": "0 * * * *", **fields}


def launches(harness: LaunchHarness) -> list[LaunchRow]:
    """All launches, the oldest first."""
    with harness.store.read() as repo:
        return repo.launches.page("", "", None, FIRST, 1_000)[::-1]


def hours(harness: LaunchHarness) -> list[float]:
    """For which hours of the day launches were made."""
    return [((row.due_ms or 0) - BEGIN) / HOUR_MS for row in launches(harness)]


def plan(harness: LaunchHarness) -> SchedulePlan:
    with harness.store.read() as repo:
        return repo.schedules.plans(["hourly"])["hourly"]


def notes(harness: LaunchHarness) -> list[str]:
    with harness.store.read() as repo:
        return [one.note for one in repo.events.audits_of(NO_SUBJECT, 100) if one.action == SKIPPED]


def pass_hours(harness: LaunchHarness, count: int) -> None:
    """Let so many hours pass, with a sweep every quarter of an hour."""
    for _ in range(4 * count):
        harness.clock.advance(HOUR_MS // 4)
        harness.settle()


def test_a_schedule_launches_its_template_at_each_of_its_times(harness: LaunchHarness) -> None:
    harness.apply(hourly(variables={"version": "2"}))
    harness.settle()
    assert launches(harness) == []
    pass_hours(harness, 3)
    found = launches(harness)
    assert hours(harness) == [1, 2, 3]
    assert {(row.launch_type, row.schedule, row.name, row.variables) for row in found} == {
        ("scheduled", "hourly", "deploy", '{"version":"2"}')
    }
    assert plan(harness) == SchedulePlan("hourly", 1, Millis(BEGIN + 4 * HOUR_MS), found[-1].due_ms)


def test_a_run_is_made_at_its_moment_and_not_at_the_next_sweep(database_url: str) -> None:
    with LaunchHarness(database_url, events=True) as harness:
        harness.clock.ms = Millis(BEGIN)
        harness.apply(job(), hourly())
        harness.settle()
        harness.clock.ms = Millis(BEGIN + HOUR_MS - 2)
        harness.settle()
        assert launches(harness) == []
        harness.clock.advance(2)
        harness.settle()
        assert hours(harness) == [1]


@pytest.mark.parametrize(("missed", "expected"), [("skip", [10]), ("one", [9, 10]), ("all", [*range(1, 11)])])
def test_runs_that_no_server_was_there_for_are_treated_as_the_schedule_says(
    harness: LaunchHarness, missed: str, expected: list[int]
) -> None:
    harness.apply(hourly(missed=missed))
    harness.settle()
    harness.clock.advance(9 * HOUR_MS + HOUR_MS // 2)
    harness.settle()
    pass_hours(harness, 1)
    assert hours(harness) == expected
    told = {"skip": ["9 missed runs left out"], "one": ["8 missed runs left out"], "all": []}
    assert notes(harness) == told[missed]


def test_with_overlap_skip_nothing_is_launched_while_the_last_launch_has_not_ended(harness: LaunchHarness) -> None:
    harness.apply(hourly(overlap="skip"))
    harness.settle()
    pass_hours(harness, 3)
    assert hours(harness) == [1]
    assert plan(harness).note == "its last launch has not ended"
    harness.run_all()
    pass_hours(harness, 1)
    assert hours(harness) == [1, 4]
    assert plan(harness).note is None


def test_a_changed_schedule_is_planned_anew_from_its_change_on(harness: LaunchHarness) -> None:
    harness.apply(hourly())
    harness.settle()
    pass_hours(harness, 1)
    harness.apply(hourly(cron="30 * * * *"))
    pass_hours(harness, 1)
    assert hours(harness) == [1, 1.5]
    harness.apply(hourly(enabled=False))
    pass_hours(harness, 3)
    assert (hours(harness), plan(harness).next_ms) == ([1, 1.5], None)


def test_a_deleted_schedule_launches_nothing_and_is_forgotten(harness: LaunchHarness) -> None:
    harness.apply(hourly())
    harness.settle()
    harness.engine.transact(lambda transaction: delete_document(transaction, "schedule", "hourly", Rights(), "ann"))
    pass_hours(harness, 2)
    assert launches(harness) == []
    with harness.store.read() as repo:
        assert repo.schedules.plans(["hourly"]) == {}


def test_a_template_that_cannot_be_launched_is_told_in_the_plan_and_the_audit(harness: LaunchHarness) -> None:
    survey = [{"name": "version", "type": "text", "required": True}]
    harness.apply(job(survey=survey), hourly(variables={"version": "1"}))
    harness.apply(job(survey=[*survey, {"name": "stage", "type": "text", "required": True}]))
    harness.settle()
    pass_hours(harness, 1)
    assert launches(harness) == []
    assert "stage" in (plan(harness).note or "")
    assert notes(harness) == [plan(harness).note]
    harness.apply(job(survey=survey))
    pass_hours(harness, 1)
    assert hours(harness) == [2]


def test_a_run_that_was_launched_but_not_moved_on_from_is_launched_once(harness: LaunchHarness) -> None:
    harness.apply(hourly())
    harness.settle()
    before = plan(harness)
    pass_hours(harness, 1)
    # As after a kill between the launch and the move to the next run.
    harness.engine.transact(lambda transaction: transaction.repo.schedules.save(before))
    harness.settle()
    pass_hours(harness, 1)
    assert hours(harness) == [1, 2]


def test_two_servers_launch_each_run_once(postgres_url: str) -> None:
    with LaunchHarness(postgres_url) as one, LaunchHarness(postgres_url) as other:
        one.clock.ms = other.clock.ms = Millis(BEGIN)
        one.apply(job(allow_simultaneous=True), hourly())
        for _ in range(8):
            for each in (one, other):
                each.clock.advance(HOUR_MS // 2)
                each.settle()
        assert hours(one) == [1, 2, 3, 4]


def test_a_second_server_that_found_the_same_run_due_launches_it_once(harness: LaunchHarness) -> None:
    harness.apply(hourly())
    harness.settle()
    harness.clock.advance(HOUR_MS)
    with harness.store.read() as repo:
        (found,) = repo.schedules.due(harness.clock.now(), 10)
    runner = harness.engine._schedules
    runner._run(found)
    runner._run(found)
    assert hours(harness) == [1]
    assert plan(harness).next_ms == BEGIN + 2 * HOUR_MS
    assert isinstance(harness.clock, FakeClock)
