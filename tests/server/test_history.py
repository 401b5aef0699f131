"""The story of a task: every transition with its cause, attempt, bot and time, on a real server."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.fleet import GUARD_MS, LEASE_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Reason, Signal
from taskyard.lifecycle.commands import Goodbye, Hello
from tests.server.frozen_clock_server import MINUTE, FrozenClockServer
from tests.server.running_server import Made, graph, task

DOOR = {"mutexes": [{"key": "door"}]}


@pytest.fixture
def server(sqlite_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(database_url) as made:
        yield made


def items(server: FrozenClockServer, made: Made, label: str) -> Any:
    return server.get(f"/api/v1/tasks/{made.tasks[label]}/story")["items"]


def moves(server: FrozenClockServer, made: Made, label: str) -> list[tuple[str, str]]:
    """The states that a task entered, each with the cause."""
    return [(one["target"], one["cause"]) for one in items(server, made, label) if one["signal"]]


def test_each_line_has_its_cause_attempt_bot_and_time_after_the_one_before(
    either_server: FrozenClockServer,
) -> None:
    server = either_server
    made = server.submit(graph(build=task(), test={**task("build"), "reruns": 1}))
    server.bot()
    server.clock.advance(1_000)
    (lease,) = server.claim()
    server.clock.advance(5_000)
    server.report(lease, Signal.SUCCEED, exit_code=0)
    server.clock.advance(2_000)
    (lease,) = server.claim()
    server.clock.advance(3_000)
    server.report(lease, Signal.FAIL, exit_code=2)
    shown = [
        (one["target"], one["cause"], one["attempt"], one["bot"], one["after_ms"])
        for one in items(server, made, "test")
    ]
    actor = items(server, made, "test")[0]["actor"]
    assert shown == [
        (None, f"{actor} asked: submit the graph (2 tasks)", None, None, 0),
        ("pending", "prerequisite build succeeded", None, None, 6_000),
        ("waiting", "nothing holds it", None, None, 0),
        ("running", "bot b1 claimed it", 1, "b1", 2_000),
        ("pending", "exit code 2; it is tried again", 1, "b1", 3_000),
        ("waiting", "nothing holds it", 1, None, 0),
    ]
    released = items(server, made, "test")[1]
    assert (released["cause_task"], released["cause_label"]) == (made.tasks["build"], "build")
    assert moves(server, made, "build") == [
        ("pending", "it has no prerequisites"),
        ("waiting", "nothing holds it"),
        ("running", "bot b1 claimed it"),
        ("successful", "it ended well"),
    ]


def test_a_failure_blocks_and_a_rerun_mends(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b=task("a"), c={**task("b"), "on_impossible": "skip"}))
    server.bot()
    server.report(server.claim()[0], Signal.FAIL, exit_code=1)
    server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/rerun", token=server.token("admin", name="ann"))
    server.settle()
    assert moves(server, made, "b") == [
        ("blocked", "prerequisite a failed"),
        ("unscheduled", "prerequisite a is tried again"),
    ]
    actor = next(one["actor"] for one in items(server, made, "a") if one["action"] == "rerun")
    assert actor.startswith("ann (")
    assert moves(server, made, "a")[-3:] == [
        ("unscheduled", f"{actor} reran it"),
        ("pending", "it has no prerequisites"),
        ("waiting", "nothing holds it"),
    ]
    server.report(server.claim()[0], Signal.SUCCEED)
    server.report(server.claim()[0], Signal.FAIL, reason=Reason.TIMED_OUT)
    assert moves(server, made, "b")[-1] == ("failed", "it timed out")
    assert moves(server, made, "c") == [("skipped", "prerequisite b failed")]


def test_each_move_has_the_cause_of_its_own_time(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b=task("a")))
    server.bot()
    server.report(server.claim()[0], Signal.FAIL, exit_code=1)
    for request in ("rerun", "cancel"):
        server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/{request}")
    assert moves(server, made, "b") == [
        ("blocked", "prerequisite a failed"),
        ("unscheduled", "prerequisite a is tried again"),
        ("blocked", "prerequisite a was canceled"),
    ]


def test_who_canceled_is_named_for_a_task_a_graph_and_all_behind_a_task(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(), b=task("a"), c=task("b"), d=task()))
    token = server.token("admin", name="ann")
    server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel", {"subtree": True}, token=token)
    actor = next(one["actor"] for one in items(server, made, "a") if one["action"] == "cancel")
    assert moves(server, made, "a")[-1] == ("canceled", f"{actor} canceled it")
    assert moves(server, made, "c") == [("canceled", f"{actor} canceled a and all behind it")]
    server.ask("POST", f"/api/v1/graphs/{made.id}/cancel", token=token)
    assert moves(server, made, "d")[-1] == ("canceled", f"{actor} canceled the graph")


def test_the_cause_of_an_admission_is_shown(server: FrozenClockServer) -> None:
    server.bot()
    other = server.submit(graph(holds=task(**DOOR)))
    made = server.submit(
        graph(first=task(**DOOR), second=task(**DOOR, priority=200), late=task(not_before="1m"), again=task("first"))
    )
    server.clock.advance(1_000)
    server.report(server.lease_of(other, "holds"), Signal.SUCCEED)
    assert moves(server, made, "first")[-1] == ("waiting", "mutex door was released by a task of another graph")
    server.clock.advance(1_000)
    server.report(server.lease_of(made, "first"), Signal.SUCCEED)
    assert moves(server, made, "second")[-1] == ("waiting", "mutex door was released by first")
    server.advance(MINUTE)
    assert moves(server, made, "late")[-1] == ("waiting", "its time has come")


def test_a_pause_between_two_attempts_is_shown(server: FrozenClockServer) -> None:
    made = server.submit(graph(a={**task(), "reruns": {"count": 1, "delay": "30s"}}))
    server.bot()
    server.report(server.claim()[0], Signal.FAIL, exit_code=1)
    server.advance(30_000)
    assert moves(server, made, "a")[-1] == ("waiting", "its pause before another try is over")


def test_the_cause_of_a_lost_bot_is_shown(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(retries=5)))
    server.bot()
    server.clock.advance(1_000)
    server.report(server.claim()[0], Signal.LOSE)
    assert server.claim()
    server.clock.advance(1_000)
    server.engine.hello(Hello("b1", "s2", canonical({"id": "b1", "pool": "default"}), 8))
    server.engine.goodbye(Goodbye("b1", "s2"))
    lost = [cause for target, cause in moves(server, made, "a") if target == "pending"][1:]
    assert lost == ["bot b1 gave it back; it is tried again", "bot b1 began another session; it is tried again"]


def test_an_expired_lease_and_a_goodbye_are_shown(server: FrozenClockServer) -> None:
    made = server.submit(graph(a=task(retries=5)))
    server.bot()
    assert server.claim()
    for _ in range(10):  # in steps: a clock that jumps is an outage
        server.advance((LEASE_MS + GUARD_MS) // 10)
    server.bot("b2")
    assert server.claim("b2")
    server.clock.advance(1_000)
    server.engine.goodbye(Goodbye("b2", "s1"))
    lost = [cause for target, cause in moves(server, made, "a") if target == "pending"][1:]
    assert lost == ["the lease of bot b1 lapsed; it is tried again", "bot b2 said goodbye; it is tried again"]


def test_the_author_of_a_decision_is_shown(server: FrozenClockServer) -> None:
    ask = task(payload={"approval": "Ship it?", "timeout": "1m"})
    made = server.submit(graph(yes=ask, no=ask, late=ask))
    token = server.token("admin", name="ann")
    server.clock.advance(1_000)
    for label, approved in (("yes", True), ("no", False)):
        path = f"/api/v1/tasks/{made.tasks[label]}/approve"
        assert server.ask("POST", path, {"approved": approved}, token=token).status == 200
    actor = next(one["actor"] for one in items(server, made, "yes") if one["action"] == "approve")
    assert moves(server, made, "yes")[-1] == ("successful", f"{actor} approved it")
    assert moves(server, made, "no")[-1] == ("failed", f"{actor} denied it")
    server.advance(MINUTE)
    assert moves(server, made, "late")[-1] == ("failed", "no decision in time")


def test_ends_by_timeouts_are_shown(server: FrozenClockServer) -> None:
    slices = [
        {"dimensions": {"pool": "default"}, "expires": "10s", "wait_for_capacity": True},
        {"dimensions": {"pool": "other"}, "expires": "10s"},
    ]
    made = server.submit(
        graph(
            a={"task": {"slices": slices, "payload": {"command": ["true"]}}},
            b=task(deadline="5s"),
            c={"task": {"payload": {"noop": True}}},
        )
    )
    server.advance(10_000)
    server.advance(10_000)
    assert moves(server, made, "a")[2:] == [
        ("pending", "its slice waited too long for a bot; the next one is tried"),
        ("waiting", "nothing holds it"),
        ("error", "its slice waited too long for a bot"),
    ]
    assert moves(server, made, "b")[-1] == ("error", "its deadline passed")
    assert moves(server, made, "c")[-2:] == [("running", "the server runs it itself"), ("successful", "it ended well")]
