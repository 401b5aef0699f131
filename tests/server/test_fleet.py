"""Routes of bots and pools."""

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from taskyard.core.matching import canonical
from taskyard.core.reuse import REUSE_WINDOW_MS
from taskyard.lifecycle.commands import Hello, Poll
from taskyard.lifecycle.poll import EMPTY, PollOutcome
from tests.server.running_server import RunningServer, graph, task
from tests.server.test_graphs import walk

if TYPE_CHECKING:
    from concurrent.futures import Future


def test_a_bot_is_shown_with_what_it_has(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task()))
    either_server.hello(os="Linux")
    either_server.claim()
    shown = either_server.get("/api/v1/bots/b1")
    assert isinstance(shown.pop("first_seen_ms"), int)
    assert isinstance(shown.pop("last_seen_ms"), int)
    assert shown == {
        "id": "b1",
        "pool": "default",
        "dimensions": {"id": ["b1"], "os": ["Linux"], "pool": ["default"], "slots": ["8"]},
        "slots": 8,
        "busy": 1,
        "assigned": 0,
        "alive": True,
        "quarantined": None,
        "maintenance": None,
        "draining": False,
        "terminated": False,
        "ending": False,
        "tasks": [made.tasks["a"]],
        "version": None,
        "outdated": False,
        "caches": [],
        "failures": 0,
    }
    events = either_server.get("/api/v1/bots/b1/events")["items"]
    assert [(one["kind"], one["task"]) for one in events] == [("task_started", made.tasks["a"]), ("connected", None)]
    assert either_server.ask("GET", "/api/v1/bots/b2").status == 404
    assert either_server.ask("GET", "/api/v1/bots/b2/events").status == 404


def test_a_pool_with_bots_is_listed_though_it_was_never_set(either_server: RunningServer) -> None:
    either_server.hello("b1", "found")
    listed = either_server.get("/api/v1/pools")["items"]
    found = {one["name"]: (one["capacity"], one["bots"], one["slots"]) for one in listed}
    assert found == {"default": (None, 0, 0), "found": (None, 1, 8)}


def test_bots_are_listed_each_once_and_found_by_pool_state_and_dimension(either_server: RunningServer) -> None:
    for number in range(5):
        either_server.hello(f"b{number}", "lab" if number % 2 else "default", os="Linux" if number < 3 else "Mac")
    either_server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": "burnt"})

    def found(query: str) -> list[str]:
        return [one["id"] for one in walk(either_server, f"/api/v1/bots?{query}")]

    assert found("") == ["b0", "b1", "b2", "b3", "b4"]
    assert found("pool=lab") == ["b1", "b3"]
    assert found("dimension=os:Linux") == ["b0", "b1", "b2"]
    assert found("dimension=os:Linux&dimension=pool:lab") == ["b1"]
    assert found("state=quarantined") == ["b1"]
    assert found("state=healthy&pool=lab") == ["b3"]


def test_a_setting_of_a_bot_stays_until_it_is_removed(either_server: RunningServer) -> None:
    either_server.hello()
    said = either_server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": "burnt", "draining": True})
    assert (said.status, said.json["quarantined"], said.json["draining"]) == (200, "burnt", True)
    either_server.submit(graph(a=task()))
    assert either_server.claim() == []
    back = either_server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": None})
    assert (back.json["quarantined"], back.json["draining"]) == (None, True)
    free = either_server.ask("PATCH", "/api/v1/bots/b1", {"draining": False})
    assert free.json["draining"] is False
    assert len(either_server.claim()) == 1
    kinds = [one["kind"] for one in walk(either_server, "/api/v1/bots/b1/events")]
    assert kinds == ["task_started", *["settings"] * 3, "connected"]


def test_a_bot_is_to_terminate_until_another_one_begins_in_its_place(either_server: RunningServer) -> None:
    either_server.hello()
    made = either_server.submit(graph(a=task(), b=task()))
    assert len(either_server.claim(want=1)) == 1
    said = either_server.ask("PATCH", "/api/v1/bots/b1", {"terminated": True})
    ends = [said.json[name] for name in ("ending", "alive", "terminated", "busy")]
    assert (said.status, ends) == (200, [True, True, False, 1])
    assert either_server.claim() == []
    assert either_server.is_told_to_end()
    either_server.hello()  # what changed about it, in the same session
    assert either_server.is_told_to_end()
    either_server.hello(session="s2")
    assert (either_server.get("/api/v1/bots/b1")["ending"], either_server.is_told_to_end(session="s2")) == (
        False,
        False,
    )
    assert len(either_server.claim(session="s2")) == len(made.tasks)


@pytest.mark.parametrize("want", [0, 1])
def test_a_bot_with_a_parked_poll_gets_terminate_at_once_and_only_until_it_drains(
    either_server: RunningServer, want: int
) -> None:
    either_server.hello()

    def waiting(name: str) -> "Future[PollOutcome]":
        return either_server.engine.ask(Poll, Poll("b1", "s1", name, want=want, wait_ms=20_000))

    first = waiting("first")
    either_server.ask("PATCH", "/api/v1/bots/b1", {"terminated": True})
    assert first.result(60) == EMPTY  # so it polls again
    assert waiting("second").result(60).ending
    assert (
        either_server.engine.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default"}), 8, draining=True))
        is None
    )
    third = waiting("third")
    assert not either_server.is_told_to_end()
    either_server.engine.leave(third)
    assert third.result(60) == EMPTY


def test_an_end_is_taken_back(either_server: RunningServer) -> None:
    either_server.hello()
    either_server.submit(graph(a=task()))
    either_server.ask("PATCH", "/api/v1/bots/b1", {"terminated": True})
    assert either_server.claim() == []
    back = either_server.ask("PATCH", "/api/v1/bots/b1", {"terminated": False})
    assert (back.json["ending"], either_server.is_told_to_end()) == (False, False)
    assert len(either_server.claim()) == 1


def test_a_bot_may_have_an_odd_name(server: RunningServer) -> None:
    name = "rack 4/11 ä"
    server.hello(name)
    assert server.ask("GET", f"/api/v1/bots/{quote(name, safe='')}").status in {200, 404}
    plain = "rack 4 ä"
    server.hello(plain)
    assert server.get(f"/api/v1/bots/{quote(plain)}")["id"] == plain


def test_dimensions_are_put_together_and_kept(either_server: RunningServer) -> None:
    either_server.hello("b1", os="Linux")
    either_server.hello("b2", os="Mac")
    found = either_server.get("/api/v1/dimensions")
    assert found == {
        "dimensions": {"id": ["b1", "b2"], "os": ["Linux", "Mac"], "pool": ["default"], "slots": ["8"]},
        "bots": 2,
    }
    either_server.get("/api/v1/dimensions")
    with either_server.engine.store.read() as repo:
        assert repo.read.aggregation("current") is not None


def test_pools_are_made_and_listed(either_server: RunningServer) -> None:
    either_server.hello("b1", "lab")
    made = either_server.ask("PUT", "/api/v1/pools/lab", {"capacity": 5})
    assert made.status == 200
    assert made.json == {
        "name": "lab",
        "capacity": 5,
        "from_bots": False,
        "unit": "slots",
        "adjustment": 1.0,
        "total": 5,
        "bots": 1,
        "slots": 8,
        "reuse_window_ms": REUSE_WINDOW_MS,
        "reuse_shared": False,
        "external": False,
    }
    assert either_server.ask("PUT", "/api/v1/pools/lab", {"from_bots": True}).json["from_bots"] is True
    assert [one["name"] for one in either_server.get("/api/v1/pools")["items"]] == ["default", "lab"]


def test_a_pool_has_as_many_forks_as_processors_and_memory_of_its_bots_allow(either_server: RunningServer) -> None:
    either_server.hello("b1", "lab", cores="4", memory_mb="4096")
    wanted = {"from_bots": True, "unit": "forks", "adjustment": 0.5}
    made = either_server.ask("PUT", "/api/v1/pools/lab", wanted)
    assert (made.status, made.json["unit"], made.json["adjustment"], made.json["total"]) == (200, "forks", 0.5, 18)
    assert either_server.ask("PUT", "/api/v1/pools/lab", {"adjustment": 1}).json["total"] == 20
    assert either_server.ask("PUT", "/api/v1/pools/lab", {"unit": "slots"}).json["total"] == 8
    fixed = either_server.ask("PUT", "/api/v1/pools/lab", {"capacity": 3}).json
    assert (fixed["from_bots"], fixed["unit"], fixed["adjustment"], fixed["total"]) == (False, "slots", 1.0, 3)
    wrong = either_server.ask("PUT", "/api/v1/pools/lab", {"unit": "threads", "adjustment": 1.5})
    assert (wrong.status, [one["path"] for one in wrong.json["faults"]]) == (400, ["unit", "adjustment"])
    assert either_server.ask("PUT", "/api/v1/pools/lab", {"unit": "forks"}).status == 400
    assert either_server.get("/api/v1/pools")["items"][1] == fixed


@pytest.mark.parametrize("name", ["a b", "x:y", "ä"])
def test_pools_may_have_odd_names(server: RunningServer, name: str) -> None:
    assert server.ask("PUT", f"/api/v1/pools/{quote(name)}").json["name"] == name
    reader = server.token(f"pool:{name}:read")
    assert [one["name"] for one in server.get("/api/v1/pools", token=reader)["items"]] == [name]
