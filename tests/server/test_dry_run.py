"""Dry runs on a real server, which stores nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.lifecycle.commands import Goodbye
from taskyard.views import dry_run
from tests.server.frozen_clock_server import MINUTE, FrozenClockServer
from tests.server.running_server import graph, task

DOOR = {"mutexes": [{"key": "door"}]}
LAB = {"dimensions": {"pool": "lab"}}


@pytest.fixture
def server(sqlite_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(database_url) as made:
        yield made


def checked(server: FrozenClockServer, document: object, **said: Any) -> Any:
    answer = server.ask("POST", "/api/v1/graphs/check", document, **said)
    assert answer.status == 200, answer.body
    return answer.json


def sentences(shown: Any) -> list[str]:
    return [one["sentence"] for one in shown["items"]]


def test_a_dry_run_shows_which_tasks_begin_wait_or_can_never_run_and_stores_nothing(
    either_server: FrozenClockServer,
) -> None:
    server = either_server
    server.bot("b1", slots=1, gpu="a100")
    document = graph(
        "nightly",
        build=task(),
        lint=task(),
        test=task("build", "lint"),
        train=task("build", dimensions={"pool": "default", "gpu": "h100"}),
        late=task(not_before="1h"),
        tick={"task": {"payload": {"noop": True}}},
    )
    shown = checked(server, document)
    assert sentences(shown) == [
        "train cannot run: no bot has gpu: h100; the nearest is b1 (gpu: a100)",
        "build would run at once: 1 bot could run it now; it is next",
        "lint would wait: 1 bot could run it now; 1 task before it",
        "test would wait: it comes after build, lint",
        "late would wait: it may start in 1 h, at 2026-01-01 01:00:00Z",
        "tick would run at once: the server runs it itself; it is next",
    ]
    assert shown["counts"] == {"never": 1, "waits": 2, "now": 2, "after": 1}
    assert shown["sentence"] == (
        "1 task can run on no bot, 2 tasks would wait, 2 tasks would run at once, 1 task would wait for others of it; "
        "nothing was stored"
    )
    assert (shown["name"], shown["tasks"], shown["more"], shown["whole"]) == ("nightly", 6, 0, True)
    assert shown["items"][0]["bots"]["nearest"] == {
        "bot": "b1", "differs": [{"key": "gpu", "wanted": ["h100"], "has": ["a100"]}],
    }  # fmt: skip
    assert shown["items"][3]["after"] == ["build", "lint"]
    assert server.get("/api/v1/graphs")["items"] == []


def test_a_dry_run_uses_the_rule_of_the_pass(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    server.bot("l1", pool="lab")
    server.engine.set_pool("lab", 10)
    server.engine.set_limit("licences", 5)
    there = server.submit(graph(holds=task(**DOOR), big=task(**LAB, weight=7), uses=task(limits={"licences": 3})))
    server.clock.advance(MINUTE)
    document = graph(
        one=task(**DOOR),
        two=task(mutexes=[{"key": "gate"}]),
        three=task(mutexes=[{"key": "gate"}]),
        wide=task(**LAB, weight=4),
        thin=task(**LAB, weight=3),
        licensed=task(limits={"licences": 3}),
    )
    assert sentences(checked(server, document)) == [
        (
            f"one would wait: mutex door is held by holds (task {there.tasks['holds']} of graph {there.id}, waiting) "
            "for 1 min"
        ),
        "two would run at once: 1 bot could run it now; it is next",
        "three would wait: mutex gate is held by two of the same graph for a moment",
        "wide would wait: pool lab has 7 of 10 in use, and it needs 4; it is number 1 in line",
        "thin would run at once: 1 bot could run it now; it is next",
        "licensed would wait: limit licences has 3 of 5 in use, and it needs 3",
    ]


def test_tasks_that_are_pending_already_come_first(server: FrozenClockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.bot()
    server.submit(graph(holds=task(mutexes=[{"key": "a"}])))
    there = server.submit(graph(both=task(mutexes=[{"key": "a"}, {"key": "b"}])))
    document = graph(new=task(mutexes=[{"key": "b"}]))
    assert sentences(checked(server, document)) == ["new would run at once: 1 bot could run it now; it is next"]
    server.clock.advance(2 * MINUTE)
    assert sentences(checked(server, document)) == [
        (
            f"new would wait: both (task {there.tasks['both']} of graph {there.id}, pending) comes first at mutex b, "
            "and has waited for 2 min"
        )
    ]
    monkeypatch.setattr(dry_run, "PENDING_MAX", 0)
    assert checked(server, graph(new=task(mutexes=[{"key": "b"}])))["whole"] is False


def test_a_bot_that_is_away_exists_and_one_that_said_goodbye_does_not(server: FrozenClockServer) -> None:
    server.bot("b1", quarantined="hot")
    server.bot("x1", pool="old")
    server.engine.goodbye(Goodbye("x1", "s1"))
    shown = checked(server, graph(a=task(), b=task(dimensions={"pool": "old"})))
    assert sentences(shown) == [
        "b cannot run: 1 bot could run it, but x1 said goodbye a moment ago",
        "a would wait: 1 bot could run it, but b1 is quarantined (hot)",
    ]


def test_the_slice_it_would_begin_with_is_shown(server: FrozenClockServer) -> None:
    server.bot()
    slices = [{"dimensions": {"pool": "default", "gpu": "h100"}}, {"dimensions": {"pool": "default"}}]
    sliced = {"task": {"slices": slices, "payload": {"command": ["true"]}}}
    alone = {"task": {"slices": [{**slices[0], "wait_for_capacity": False}], "payload": {"command": ["true"]}}}
    shown = checked(server, graph(a=sliced, b=alone))
    assert sentences(shown) == [
        "b cannot run: no bot has gpu: h100; the nearest is b1 (no gpu)",
        "a would run at once: 1 bot could run it now; it is next; slice 2 of 2",
    ]
    assert [one["slice"] for one in shown["items"]] == [1, 2]


def test_a_task_with_mutexes_and_no_bot_can_never_run(server: FrozenClockServer) -> None:
    shown = checked(server, graph(a=task(**DOOR)))
    assert sentences(shown) == ["a cannot run: there is no bot"]


def test_of_a_large_graph_some_tasks_are_listed_and_all_are_counted(
    server: FrozenClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "LISTED_MAX", 2)
    server.bot(slots=1)
    shown = checked(server, graph(**{f"t{number}": task() for number in range(9)}))
    assert (shown["tasks"], len(shown["items"]), shown["more"]) == (9, 2, 7)
    assert shown["counts"] == {"never": 0, "waits": 8, "now": 1, "after": 0}


def test_a_document_that_would_be_refused_is_refused_with_every_fault(server: FrozenClockServer) -> None:
    wrong = server.ask("POST", "/api/v1/graphs/check", {"tasks": {"a": {"requires": ["b"]}, "c": {"task": 7}}})
    submitted = server.ask("POST", "/api/v1/graphs", {"tasks": {"a": {"requires": ["b"]}, "c": {"task": 7}}})
    assert (wrong.status, wrong.json) == (400, submitted.json)
    greedy = graph(a=task(limits={"licences": 3}))
    answers = [server.ask("POST", path, greedy) for path in ("/api/v1/graphs/check", "/api/v1/graphs")]
    assert [one.status for one in answers] == [400, 400]
    assert answers[0].json == answers[1].json


def test_a_dry_run_needs_the_right_to_submit_and_shows_no_bots_of_other_pools(server: FrozenClockServer) -> None:
    server.bot("x1", pool="secret")
    path, document = "/api/v1/graphs/check", graph(a=task())
    assert server.ask("POST", path, document, token=server.token("pool:default:read")).status == 403
    assert server.ask("POST", path, document, token=None).status == 401
    token = server.token("pool:default:submit")
    assert sentences(checked(server, document, token=token)) == ["a cannot run: there is no bot"]
