"""Named limits and mutexes over HTTP, and the rights for them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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


def test_passes_by_hand_run_at_any_time_and_admit_each_task_once(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    server.submit(graph(**{f"t{number}": task(mutexes=[{"key": f"k{number % 5}"}]) for number in range(20)}))
    with ThreadPoolExecutor(8) as threads:
        answers = [one.result() for one in [threads.submit(server.ask, "POST", "/api/v1/schedule") for _ in range(8)]]
    assert {one.status for one in answers} == {200}
    assert server.ask("POST", "/api/v1/schedule").json["more"] is False
    states = [one["state"] for one in server.get("/api/v1/tasks")["items"]]
    assert (states.count("waiting"), states.count("pending")) == (5, 15)


def test_who_may_submit_nowhere_runs_no_pass(server: FrozenClockServer) -> None:
    reader = server.token("pool:default:read")
    assert server.ask("POST", "/api/v1/schedule", token=reader).status == 403
    submitter = server.token("pool:lab:submit")
    assert server.ask("POST", "/api/v1/schedule", token=submitter).status == 200


def test_a_submit_that_names_an_unknown_limit_says_how_to_make_it(server: FrozenClockServer) -> None:
    refused = server.ask("POST", "/api/v1/graphs", graph(a=task(limits={"our licences": 2})))
    assert refused.status in {400, 422}
    (fault,) = refused.json["faults"]
    assert fault["message"] == (
        "there is no limit our licences; an admin makes it with: taskyard limits set 'our licences' 2"
    )
    server.ask("PUT", "/api/v1/limits/our%20licences", {"total": 2})
    server.submit(graph(a=task(limits={"our licences": 2})))


def test_mutexes_show_their_holders_and_waiting_tasks_with_times(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    one = server.submit(graph(holds=task(**DOOR)))
    server.clock.advance(1_000)
    two = server.submit(graph(waits=task(**DOOR)))
    server.engine.schedule()
    (shown,) = server.get("/api/v1/mutexes")["items"]
    assert (shown["key"], shown["stake_after_ms"], shown["holder_count"], shown["waiting_count"]) == (
        "door",
        60_000,
        1,
        1,
    )
    (holder,), (waits,) = shown["holders"], shown["waiting"]
    assert (holder["task"], holder["label"], holder["state"]) == (one.tasks["holds"], "holds", "waiting")
    assert (waits["task"], waits["graph_id"], waits["state"]) == (two.tasks["waits"], two.id, "pending")
    assert 0 < waits["since_ms"] - holder["since_ms"] < 60_000


def test_how_long_a_mutex_holds_before_it_is_staked_is_set(either_server: FrozenClockServer) -> None:
    path = "/api/v1/mutexes/a/b:7"
    shown = [
        either_server.ask("PUT", path, {"stake_after": said}).json["stake_after_ms"] for said in ("0s", "5m", "never")
    ]
    assert shown == [0, 300_000, None]
    (kept,) = either_server.get("/api/v1/mutexes?key=a/b:7")["items"]
    assert (kept["key"], kept["stake_after_ms"], kept["holders"]) == ("a/b:7", None, [])


def test_mutexes_come_in_pages(server: FrozenClockServer) -> None:
    for key in "abc":
        server.ask("PUT", f"/api/v1/mutexes/{key}", {"stake_after": "never"})
    first = server.get("/api/v1/mutexes?limit=2")
    rest = server.get(f"/api/v1/mutexes?limit=2&cursor={first['next']}")
    assert [one["key"] for page in (first, rest) for one in page["items"]] == ["a", "b", "c"]
    assert rest["next"] is None


def test_only_an_admin_sets_what_all_pools_share(server: FrozenClockServer) -> None:
    token = server.token("pool:default:admin")
    for path, said in (("limits/l", {"total": 1}), ("mutexes/k", {"stake_after": "0s"})):
        assert server.ask("PUT", f"/api/v1/{path}", said, token=token).status == 403
        assert server.ask("GET", f"/api/v1/{path.partition('/')[0]}", token=token).status == 200


def test_a_task_that_the_asker_may_not_see_has_no_name(server: FrozenClockServer) -> None:
    server.bot("x1", pool="secret")
    server.submit(graph(holds=task(**DOOR, dimensions={"pool": "secret"})))
    server.engine.schedule()
    (shown,) = server.get("/api/v1/mutexes", token=server.token("pool:default:read"))["items"]
    assert shown["holders"][0] | {"since_ms": 0} == {
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
