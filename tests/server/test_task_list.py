"""Tasks of all graphs: listed, counted and canceled by tag, state, bot, user, pool and time."""

import random
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest

from taskyard.core.states import Millis, Signal, State
from taskyard.views import task_list
from taskyard.views.task_list import TaskFilter
from tests.effort import tries
from tests.server.running_server import RunningServer, graph, task

SEED = 7


def listed(server: RunningServer, token: str | None = "", **query: Any) -> list[dict[str, Any]]:
    """Read all pages of a list of tasks."""
    found: list[dict[str, Any]] = []
    cursor = None
    for _ in range(1_000):
        pairs = {name: value for name, value in {**query, "cursor": cursor}.items() if value is not None}
        page = server.get(f"/api/v1/tasks?{urlencode(pairs, doseq=True)}", token=token)
        found += page["items"]
        cursor = page["next"]
        if cursor is None:
            return found
    pytest.fail("the list has no end")


def labels(server: RunningServer, **query: Any) -> list[str]:
    return [one["label"] for one in listed(server, **query)]


def test_tasks_of_all_graphs_are_found_by_tag_newest_first(either_server: RunningServer) -> None:
    either_server.submit(graph(a=task(tags=["build:7"]), b=task(tags=["build:8"])))
    either_server.submit(graph(c=task(tags=["build:7", "team:db"])))
    assert labels(either_server, tag="build:7") == ["c", "a"]
    assert labels(either_server, tag=["build:7", "team:db"]) == ["c"]
    assert labels(either_server, tag="build:9") == []
    assert labels(either_server, tag="build:7", limit=1) == ["c", "a"]


def test_a_task_shows_its_user_who_submitted_it_and_all_its_tags(server: RunningServer) -> None:
    token = server.token("pool:default:submit", "pool:default:read", name="ci")
    made = server.submit(graph(a=task(tags=["x:y"], priority=30)), token=token)
    seen = server.get(f"/api/v1/tasks/{made.tasks['a']}")
    assert (seen["user"], seen["tags"]) == ("ci", ["pool:default", "priority:30", "user:ci", "x:y"])
    assert seen["authenticated"] == token.split("_")[2]
    assert labels(server, user="ci") == ["a"]
    body = {"user": "ada", "task": {"payload": {"command": ["true"]}}}
    assert server.ask("POST", "/api/v1/requests", body, token=token).status == 201
    (request,) = listed(server, user="ada")
    assert (request["label"], request["authenticated"]) == ("request", seen["authenticated"])


def test_tasks_are_found_by_state_and_bot(either_server: RunningServer) -> None:
    either_server.submit(graph(bad=task(tags=["x:y"]), good=task(tags=["x:y"]), runs=task(), waits=task("runs")))
    either_server.hello()
    leases = {either_server.get(f"/api/v1/tasks/{one.task:016x}")["label"]: one for one in either_server.claim()}
    either_server.end(leases["bad"], Signal.FAIL)
    either_server.end(leases["good"])
    assert labels(either_server, state="failed") == ["bad"]
    assert labels(either_server, state=["failed", "running"]) == ["bad", "runs"]
    assert labels(either_server, state="successful", tag="x:y") == ["good"]
    assert labels(either_server, bot="b1") == ["bad", "good", "runs"]
    assert labels(either_server, bot="b1", state="failed", tag="x:y") == ["bad"]
    assert labels(either_server, bot="b2") == []
    assert either_server.get("/api/v1/tasks/count")["states"] == {
        "failed": 1, "successful": 1, "running": 1, "unscheduled": 1,
    }  # fmt: skip
    assert either_server.get("/api/v1/tasks/count?tag=x:y")["total"] == 2


def test_only_tasks_of_a_time_are_listed(server: RunningServer) -> None:
    first = server.submit(graph(a=task()))
    created = server.get(f"/api/v1/tasks/{first.tasks['a']}")["created_ms"]
    assert labels(server, since_ms=created) == ["a"]
    assert labels(server, since_ms=created + 1) == []
    assert labels(server, until_ms=created + 1) == ["a"]
    assert labels(server, until_ms=created) == []


def test_no_caller_sees_or_cancels_tasks_of_other_pools(either_server: RunningServer) -> None:
    mine, other = task(tags=["x:y"]), task(tags=["x:y"], dimensions={"pool": "lab"})
    either_server.submit(graph(mine=mine))
    either_server.submit(graph(other=other))
    reader = either_server.token("pool:default:read")
    assert [one["label"] for one in listed(either_server, reader, tag="x:y")] == ["mine"]
    canceler = either_server.token("pool:default:cancel")
    answer = either_server.ask("POST", "/api/v1/tasks/cancel", {"tags": ["x:y"]}, token=canceler)
    assert (answer.status, answer.json["canceled"]) == (200, 1)
    assert {one["label"]: one["state"] for one in listed(either_server, tag="x:y")} == {
        "mine": "canceled", "other": "waiting",
    }  # fmt: skip
    assert either_server.ask("POST", "/api/v1/tasks/cancel", {"tags": ["x:y"]}, token=reader).status == 403


def test_tasks_are_canceled_by_tag_and_a_repeat_does_nothing(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(tags=["x:y"]), b=task("a"), c=task(tags=["x:y"])))
    either_server.submit(graph(d=task()))
    for canceled in (2, 0):
        answer = either_server.ask("POST", "/api/v1/tasks/cancel", {"tags": ["x:y"]})
        assert (answer.status, answer.json) == (200, {"canceled": canceled, "next": None})
    assert Counter(one["state"] for one in listed(either_server)) == {"canceled": 2, "blocked": 1, "waiting": 1}
    story = either_server.get(f"/api/v1/tasks/{made.tasks['a']}/story")["items"]
    assert [one["action"] for one in story if one["action"]] == ["submit", "cancel"]
    assert either_server.engine.doctor() == []


def test_only_the_states_that_are_named_are_canceled(server: RunningServer) -> None:
    server.submit(graph(a=task(tags=["x:y"]), b=task("a", tags=["x:y"])))
    assert (
        server.ask("POST", "/api/v1/tasks/cancel", {"tags": ["x:y"], "states": ["unscheduled"]}).json["canceled"] == 1
    )
    assert {one["label"]: one["state"] for one in listed(server)} == {"a": "waiting", "b": "canceled"}


def test_many_tasks_are_canceled_page_by_page(server: RunningServer) -> None:
    count = 450
    server.submit({"tags": {}, "tasks": {f"t{place}": task(tags=["x:y"]) for place in range(count)}})
    canceled: list[int] = []
    cursor = None
    while not canceled or cursor is not None:
        body = {"tags": ["x:y"]} | ({"cursor": cursor} if cursor else {})
        answer = server.ask("POST", "/api/v1/tasks/cancel", body).json
        canceled.append(answer["canceled"])
        cursor = answer["next"]
    assert (sum(canceled), len(canceled)) == (count, 3)


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, []),
        ({"states": ["waiting"]}, []),
        ({"tags": ["no colon"], "states": ["successful"], "what": 1}, ["tags[0]", "states[0]", "what"]),
        ({"user": "", "since_ms": -1}, ["user", "since_ms"]),
    ],
)
def test_a_cancel_with_faults_is_refused_with_all_of_them(
    server: RunningServer, body: dict[str, object], paths: list[str]
) -> None:
    answer = server.ask("POST", "/api/v1/tasks/cancel", body)
    assert (answer.status, answer.paths) == (400, paths)


@pytest.mark.parametrize(
    "query", ["tag=x", "state=good", "bot=%00", "since_ms=-1", "graph=zz", "cursor=%2e", "limit=0", "tag=%00:"]
)
def test_a_query_with_a_fault_is_refused(server: RunningServer, query: str) -> None:
    assert server.ask("GET", f"/api/v1/tasks?{query}").status == 400


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every page be many steps, and every list many pages."""
    monkeypatch.setattr(task_list, "STEP_MAX", 3)
    monkeypatch.setattr(task_list, "LOOKED_MAX", 10)
    monkeypatch.setattr(task_list, "COUNTED_MAX", 10)


@pytest.mark.usefixtures("small_steps")
def test_every_filter_finds_what_looking_at_all_tasks_finds(either_server: RunningServer) -> None:
    """Random graphs, canceled and run in part; random filters against a loop over everything."""
    server, chance = either_server, random.Random(SEED)
    server.hello()
    for _ in range(6):
        nodes = {
            f"t{place}": task(
                tags=[f"k:{chance.randrange(2)}", *(["rare:x"] if chance.random() < 0.1 else [])],
                priority=chance.choice([30, 100]),
            )
            for place in range(chance.randrange(1, 12))
        }
        server.submit(graph(**nodes))
        for lease in server.claim(want=chance.randrange(6)):
            if chance.random() < 0.7:
                server.end(lease, chance.choice([Signal.SUCCEED, Signal.FAIL]))
    with server.engine.store.read() as repo:
        ids = repo.task_list.all(-1, 10_000)
        everything = {one.id: one for one in repo.tasks.read(ids)}
        tried = set(repo.task_list.of_bot("b1", -1, 10_000))
    tags = {int(one["id"], 16): one["tags"] for one in listed(server)}
    assert sorted(tags) == ids
    moments = sorted({one.created_ms for one in everything.values()})
    for _ in range(tries(60)):
        wanted = TaskFilter(
            tags=tuple(chance.sample(["k:0", "k:1", "rare:x", "priority:30", "pool:default"], chance.randrange(3))),
            states=frozenset(chance.sample(sorted(State), chance.randrange(4))),
            bot=chance.choice(["", "b1"]),
            graph=chance.choice([None, chance.choice(sorted(one.graph for one in everything.values()))]),
            since_ms=Millis(chance.choice([moments[0], chance.choice(moments)])),
        )
        expected = [
            id
            for id, one in sorted(everything.items())
            if set(wanted.tags) <= set(tags[id])
            and (not wanted.states or one.state in wanted.states)
            and (not wanted.bot or id in tried)
            and wanted.graph in (None, one.graph)
            and one.created_ms >= wanted.since_ms
        ]
        found: list[int] = []
        counts = Counter[str]()
        after: int | None = -1
        with server.engine.store.read() as repo:
            while after is not None:
                page = task_list.listed(repo, wanted, after, 4)
                found, after = [*found, *(id for id, _ in page.tasks)], page.next
            after = -1
            while after is not None:
                some, after = task_list.counted(repo, wanted, after)
                counts += some
        assert found == expected, wanted
        assert counts.total() == len(expected), wanted
