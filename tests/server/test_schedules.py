"""Schedules over HTTP: lists, next runs, previews and rights."""

from collections.abc import Iterator

import pytest

from taskyard.core.durations import HOUR_MS
from tests.server.frozen_clock_server import FrozenClockServer

JOB = {"kind": "job_template", "name": "deploy", "payload": {"command": ["true"]}}
NIGHTLY = {"kind": "schedule", "name": "nightly", "template": "deploy", "cron": "0 * * * *"}

#: What `later` runs at.
LATER = [1_893_459_600_000 + hour * HOUR_MS for hour in range(3)]


@pytest.fixture
def server(database_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(database_url) as made:
        assert made.ask("POST", "/api/v1/catalogue", {"documents": [JOB, NIGHTLY]}).status == 200
        made.settle()
        yield made


def test_a_schedule_shows_its_next_runs_and_what_it_launched(server: FrozenClockServer) -> None:
    shown = server.get("/api/v1/schedules/nightly?count=3")
    assert (shown["template"], shown["cron"], shown["timezone"], shown["enabled"]) == (
        "deploy",
        "0 * * * *",
        "UTC",
        True,
    )
    first = shown["next_ms"]
    assert first % HOUR_MS == 0
    assert shown["runs"] == [first, first + HOUR_MS, first + 2 * HOUR_MS]
    assert (shown["last_ms"], shown["last_graph_id"], shown["note"]) == (None, None, None)
    server.clock.ms = first
    server.settle()
    (listed,) = server.get("/api/v1/schedules")["items"]
    assert (listed["next_ms"], listed["last_ms"], listed["runs"]) == (first + HOUR_MS, first, [])
    (graph,) = server.get("/api/v1/graphs")["items"]
    assert listed["last_graph_id"] == graph["id"]


def test_when_something_would_run_is_shown_before_it_is_saved(server: FrozenClockServer) -> None:
    asked = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    runs = server.ask("POST", "/api/v1/schedules/preview?count=2", asked).json["runs"]
    assert len(runs) == 2
    weekly = {"rrule": "FREQ=WEEKLY;BYDAY=MO", "start": "2027-01-04T09:00:00Z"}
    assert server.ask("POST", "/api/v1/schedules/preview", weekly).status == 200


def test_the_next_runs_of_a_schedule_are_in_the_answer_to_its_document(server: FrozenClockServer) -> None:
    later = {**NIGHTLY, "name": "later", "start": "2030-01-01T00:30:00Z"}
    off = {**NIGHTLY, "name": "off", "enabled": False}
    fresh = {**NIGHTLY, "name": "fresh"}
    dry = server.ask(
        "POST", "/api/v1/catalogue", {"documents": [JOB, NIGHTLY, later, off, fresh], "dry_run": True}
    ).json
    runs = {one["name"]: one["next_runs"] for one in dry["items"]}
    first = server.get("/api/v1/schedules/nightly")["next_ms"]
    assert runs["nightly"] == [first, first + HOUR_MS, first + 2 * HOUR_MS]
    assert (runs["later"], runs["off"], runs["deploy"]) == (LATER, [], None)
    assert server.ask("POST", "/api/v1/catalogue", {"documents": [later]}).json["items"][0]["next_runs"] == LATER
    assert server.ask("POST", "/api/v1/catalogue", {"documents": [fresh, off]}).status == 200
    listed = {one["name"]: one["next_ms"] for one in server.get("/api/v1/schedules")["items"]}
    assert (listed["fresh"], listed["off"]) == (first, None), "no server has planned it yet"


def test_every_fault_of_a_preview_is_told(server: FrozenClockServer) -> None:
    wrong = {"cron": "0 25 * * *", "timezone": "Europe/Nowhere", "start": "tomorrow", "count": 3}
    answer = server.ask("POST", "/api/v1/schedules/preview", wrong)
    assert (answer.status, sorted(answer.paths)) == (400, ["count", "cron", "start", "timezone"])
    assert server.ask("POST", "/api/v1/schedules/preview", {}).status == 400
    assert server.ask("POST", "/api/v1/schedules/preview", {"rrule": "FREQ=DAILY"}).paths == ["rrule"]
    assert server.ask("POST", "/api/v1/schedules/preview?count=0", {"cron": "* * * * *"}).status in {400, 422}


def test_schedules_are_shown_to_those_who_may_read_their_pool(server: FrozenClockServer) -> None:
    elsewhere, reader = server.token("pool:lab:read"), server.token("pool:default:read")
    assert server.ask("GET", "/api/v1/schedules", token=elsewhere).json["items"] == []
    assert server.ask("GET", "/api/v1/schedules/nightly", token=elsewhere).status == 404
    assert server.ask("GET", "/api/v1/schedules/nightly", token=reader).status == 200
    assert server.ask("GET", "/api/v1/schedules/none", token=reader).status == 404
    assert server.ask("POST", "/api/v1/schedules/preview", {"cron": "* * * * *"}, token=elsewhere).status == 200
