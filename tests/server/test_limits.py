"""What tasks share over HTTP: named limits and mutexes, and who may say what about them."""

from collections.abc import Iterator

import pytest

from tests.server.frozen_clock_server import FrozenClockServer
from tests.server.running_server import graph, task

DOOR = {"mutexes": [{"key": "door"}]}


@pytest.fixture
def server(sqlite_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str) -> Iterator[FrozenClockServer]:
    """On each of the two databases."""
    with FrozenClockServer(database_url) as made:
        yield made


def test_a_limit_is_made_used_and_listed(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    made = server.ask("PUT", "/api/v1/limits/licences", {"total": 5})
    assert (made.status, made.json) == (200, {"name": "licences", "total": 5, "used": 0})
    server.submit(graph(uses=task(limits={"licences": 3})))
    server.engine.schedule()
    assert server.get("/api/v1/limits")["items"] == [{"name": "licences", "total": 5, "used": 3}]
    assert server.ask("PUT", "/api/v1/limits/licences", {"total": 2}).json == {
        "name": "licences",
        "total": 2,
        "used": 3,
    }


def test_a_submit_that_names_an_unknown_limit_says_how_to_make_it(server: FrozenClockServer) -> None:
    refused = server.ask("POST", "/api/v1/graphs", graph(a=task(limits={"our licences": 2})))
    assert refused.status in {400, 422}
    (fault,) = refused.json["faults"]
    assert fault["message"] == (
        "there is no limit our licences; an admin makes it with: taskyard limits set 'our licences' 2"
    )
    server.ask("PUT", "/api/v1/limits/our%20licences", {"total": 2})
    server.submit(graph(a=task(limits={"our licences": 2})))


def test_mutexes_tell_who_holds_and_who_waits_since_when(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    one = server.submit(graph(holds=task(**DOOR)))
    server.clock.later(1_000)
    two = server.submit(graph(waits=task(**DOOR)))
    server.engine.schedule()
    (told,) = server.get("/api/v1/mutexes")["items"]
    assert (told["key"], told["stake_after_ms"], told["holder_count"], told["waiting_count"]) == ("door", 60_000, 1, 1)
    (holder,), (waits,) = told["holders"], told["waiting"]
    assert (holder["task"], holder["label"], holder["state"]) == (one.tasks["holds"], "holds", "waiting")
    assert (waits["task"], waits["graph_id"], waits["state"]) == (two.tasks["waits"], two.id, "pending")
    assert 0 < waits["since_ms"] - holder["since_ms"] < 60_000


def test_how_long_a_mutex_holds_before_it_is_staked_is_set(either_server: FrozenClockServer) -> None:
    path = "/api/v1/mutexes/a/b:7"
    told = [
        either_server.ask("PUT", path, {"stake_after": said}).json["stake_after_ms"] for said in ("0s", "5m", "never")
    ]
    assert told == [0, 300_000, None]
    (kept,) = either_server.get("/api/v1/mutexes?key=a/b:7")["items"]
    assert (kept["key"], kept["stake_after_ms"], kept["holders"]) == ("a/b:7", None, [])


def test_mutexes_come_in_pages(server: FrozenClockServer) -> None:
    for key in "abc":
        server.ask("PUT", f"/api/v1/mutexes/{key}", {"stake_after": "never"})
    first = server.get("/api/v1/mutexes?limit=2")
    rest = server.get(f"/api/v1/mutexes?limit=2&cursor={first['next']}")
    assert [one["key"] for page in (first, rest) for one in page["items"]] == ["a", "b", "c"]
    assert rest["next"] is None


def test_only_an_admin_sets_what_everybody_shares(server: FrozenClockServer) -> None:
    token = server.token("pool:default:admin")
    for path, said in (("limits/l", {"total": 1}), ("mutexes/k", {"stake_after": "0s"})):
        assert server.ask("PUT", f"/api/v1/{path}", said, token=token).status == 403
        assert server.ask("GET", f"/api/v1/{path.partition('/')[0]}", token=token).status == 200


def test_a_task_that_the_asker_may_not_see_has_no_name(server: FrozenClockServer) -> None:
    server.bot("x1", pool="secret")
    server.submit(graph(holds=task(**DOOR, dimensions={"pool": "secret"})))
    server.engine.schedule()
    (told,) = server.get("/api/v1/mutexes", token=server.token("pool:default:read"))["items"]
    assert told["holders"][0] | {"since_ms": 0} == {
        "task": None, "label": "", "graph_id": "", "state": "waiting", "party": None, "since_ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "said", "at"),
    [
        ("limits/l", {}, "total"),
        ("limits/l", {"total": -1}, "total"),
        ("limits/l", {"total": "five"}, "total"),
        ("mutexes/k", {}, "stake_after"),
        ("mutexes/k", {"stake_after": "soon"}, "stake_after"),
        ("mutexes/k", {"stake_after": "999999999d"}, "stake_after"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(
    server: FrozenClockServer, path: str, said: object, at: str
) -> None:
    refused = server.ask("PUT", f"/api/v1/{path}", said)
    assert refused.status in {400, 422}
    assert [fault["path"] for fault in refused.json["faults"]] == [at]
