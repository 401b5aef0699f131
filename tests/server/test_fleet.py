"""Routes of bots and pools."""

from urllib.parse import quote

import pytest

from tests.server.test_graphs import walk
from tests.server.yard import Yard, graph, task


def test_a_bot_is_shown_with_what_it_has(either: Yard) -> None:
    made = either.submit(graph(a=task()))
    either.hello(os="Linux")
    either.claim()
    shown = either.get("/api/v1/bots/b1")
    assert isinstance(shown.pop("first_seen_ms"), int)
    assert isinstance(shown.pop("last_seen_ms"), int)
    assert shown == {
        "id": "b1",
        "pool": "default",
        "dimensions": {"id": ["b1"], "os": ["Linux"], "pool": ["default"]},
        "slots": 8,
        "busy": 1,
        "alive": True,
        "quarantined": None,
        "maintenance": None,
        "draining": False,
        "terminated": False,
        "tasks": [made.tasks["a"]],
    }
    events = either.get("/api/v1/bots/b1/events")["items"]
    assert [(one["kind"], one["task"]) for one in events] == [("task_started", made.tasks["a"]), ("connected", None)]
    assert either.ask("GET", "/api/v1/bots/b2").status == 404
    assert either.ask("GET", "/api/v1/bots/b2/events").status == 404


def test_bots_are_listed_each_once_and_found_by_pool_state_and_dimension(either: Yard) -> None:
    for number in range(5):
        either.hello(f"b{number}", "lab" if number % 2 else "default", os="Linux" if number < 3 else "Mac")
    either.ask("PATCH", "/api/v1/bots/b1", {"quarantined": "burnt"})

    def found(query: str) -> list[str]:
        return [one["id"] for one in walk(either, f"/api/v1/bots?{query}")]

    assert found("") == ["b0", "b1", "b2", "b3", "b4"]
    assert found("pool=lab") == ["b1", "b3"]
    assert found("dimension=os:Linux") == ["b0", "b1", "b2"]
    assert found("dimension=os:Linux&dimension=pool:lab") == ["b1"]
    assert found("state=quarantined") == ["b1"]
    assert found("state=healthy&pool=lab") == ["b3"]


def test_what_an_admin_says_about_a_bot_stays_until_it_is_taken_back(either: Yard) -> None:
    either.hello()
    said = either.ask("PATCH", "/api/v1/bots/b1", {"quarantined": "burnt", "draining": True})
    assert (said.status, said.json["quarantined"], said.json["draining"]) == (200, "burnt", True)
    either.submit(graph(a=task()))
    assert either.claim() == []
    back = either.ask("PATCH", "/api/v1/bots/b1", {"quarantined": None})
    assert (back.json["quarantined"], back.json["draining"]) == (None, True)
    free = either.ask("PATCH", "/api/v1/bots/b1", {"draining": False})
    assert free.json["draining"] is False
    assert len(either.claim()) == 1
    kinds = [one["kind"] for one in walk(either, "/api/v1/bots/b1/events")]
    assert kinds == ["task_started", *["settings"] * 3, "connected"]


def test_a_bot_may_have_an_odd_name(yard: Yard) -> None:
    name = "rack 4/11 ä"
    yard.hello(name)
    assert yard.ask("GET", f"/api/v1/bots/{quote(name, safe='')}").status in {200, 404}
    plain = "rack 4 ä"
    yard.hello(plain)
    assert yard.get(f"/api/v1/bots/{quote(plain)}")["id"] == plain


def test_dimensions_are_put_together_and_kept(either: Yard) -> None:
    either.hello("b1", os="Linux")
    either.hello("b2", os="Mac")
    found = either.get("/api/v1/dimensions")
    assert found == {
        "dimensions": {"id": ["b1", "b2"], "os": ["Linux", "Mac"], "pool": ["default"]},
        "bots": 2,
    }
    either.get("/api/v1/dimensions")
    with either.engine.store.read() as txn:
        assert txn.reading.aggregation("current") is not None


def test_pools_are_made_and_listed(either: Yard) -> None:
    either.hello("b1", "lab")
    made = either.ask("PUT", "/api/v1/pools/lab", {"capacity": 5})
    assert made.status == 200
    assert made.json == {"name": "lab", "capacity": 5, "from_bots": False, "bots": 1, "slots": 8}
    assert either.ask("PUT", "/api/v1/pools/lab", {"from_bots": True}).json["from_bots"] is True
    assert [one["name"] for one in either.get("/api/v1/pools")["items"]] == ["default", "lab"]


@pytest.mark.parametrize("name", ["a b", "x:y", "ä"])
def test_pools_may_have_odd_names(yard: Yard, name: str) -> None:
    assert yard.ask("PUT", f"/api/v1/pools/{quote(name)}").json["name"] == name
    reader = yard.token(f"pool:{name}:read")
    assert [one["name"] for one in yard.get("/api/v1/pools", token=reader)["items"]] == [name]
