"""Routes of bots that are gone, unwell or old, and the queues in which a bot looks for work."""

import pytest

from taskyard.core.fleet import FAILURES_MAX
from taskyard.core.matching import dimension_hash
from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Goodbye, Poll, Report
from tests.server.running_server import RunningServer, graph, task
from tests.server.test_bot_api import hello


def leave(server: RunningServer, bot: str = "b1") -> None:
    assert server.engine.goodbye(Goodbye(bot, "s1")) is None


def test_a_dead_bot_is_deleted_once_for_a_key(either_server: RunningServer) -> None:
    either_server.hello()
    alive = either_server.ask("DELETE", "/api/v1/bots/b1")
    assert (alive.status, alive.json["detail"]) == (409, "cannot delete the bot b1: the bot is alive; end it first")
    leave(either_server)
    key = {"idempotency-key": "gone"}
    assert either_server.ask("DELETE", "/api/v1/bots/b1", headers=key).status == 204
    assert either_server.ask("DELETE", "/api/v1/bots/b1", headers=key).status == 204
    assert either_server.ask("DELETE", "/api/v1/bots/b1").status == 404
    assert either_server.ask("GET", "/api/v1/bots/b1").status == 404
    assert either_server.get("/api/v1/audit")["items"][0]["note"] == "b1, of pool default"


def test_who_is_no_admin_of_its_pool_deletes_no_bot(server: RunningServer) -> None:
    server.hello("mine", "lab")
    leave(server, "mine")
    assert server.ask("DELETE", "/api/v1/bots/mine", token=server.token("pool:lab:read")).status == 403
    assert server.ask("DELETE", "/api/v1/bots/mine", token=server.token("pool:other:admin")).status == 403
    assert server.ask("DELETE", "/api/v1/bots/mine", token=server.token("pool:lab:admin")).status == 204


def test_the_queues_of_a_bot_are_listed_in_pages_with_what_waits(either_server: RunningServer) -> None:
    either_server.hello(os="Linux")
    wanted: list[dict[str, object]] = [
        {"pool": "default"},
        {"pool": "default", "os": "Linux|Darwin"},
        {"pool": "default", "os": "Windows"},
        {"pool": "other"},
        {"pool": "default", "id": "b1"},
    ]
    either_server.submit(graph(**{f"t{place}": task(dimensions=one) for place, one in enumerate([*wanted, wanted[0]])}))
    first = either_server.get("/api/v1/bots/b1/queues?limit=2")
    rest = either_server.get(f"/api/v1/bots/b1/queues?limit=2&cursor={first['next']}")
    assert rest["next"] is None
    found = [*first["items"], *rest["items"]]
    assert sorted((one["dimensions"].get("os", [""])[0], one["waiting"]) for one in found) == [
        ("", 1),
        ("", 2),
        ("Darwin|Linux", 1),
    ]
    plain = next(one for one in found if one["dimensions"] == {"pool": ["default"]})
    assert plain["hash"] == dimension_hash((("pool", ("default",)),))
    assert either_server.ask("GET", "/api/v1/bots/nobody/queues").status == 404


def test_an_admin_ends_the_quarantine_of_a_bot_that_failed_and_its_count_begins_anew(server: RunningServer) -> None:
    server.hello()
    server.engine.transact(lambda transaction: transaction.repo.bots.set_failures([("b1", FAILURES_MAX - 1, 0)]))
    server.submit(graph(a=task(retries=0)))
    (lease,) = server.claim()
    server.engine.poll(Poll("b1", "s1", reports=(Report(lease.task, 1, lease.fence, Signal.LOSE),)))
    shown = server.get("/api/v1/bots/b1")
    assert (shown["failures"], "5 times in a row" in shown["quarantined"]) == (FAILURES_MAX, True)
    assert "quarantined" in [one["kind"] for one in server.get("/api/v1/bots/b1/events")["items"]]
    free = server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": None}).json
    assert (free["failures"], free["quarantined"]) == (0, None)


@pytest.mark.parametrize(
    ("version", "outdated", "advice"),
    [("0.1.0", False, None), ("", False, None), ("99.0", False, None)],
)
def test_a_bot_is_shown_with_its_version(
    server: RunningServer, version: str, outdated: bool, advice: str | None
) -> None:
    welcome = hello(server, server.token(kind="bot", pool="default"), version=version)
    assert (welcome.status, welcome.json.get("update")) == (200, advice)
    shown = server.get("/api/v1/bots/b1")
    assert (shown["version"], shown["outdated"]) == (version or None, outdated)


def test_a_bot_that_is_too_old_is_refused_with_advice_to_update(server: RunningServer) -> None:
    answer = hello(server, server.token(kind="bot", pool="default"), version="0.0.3")
    assert (answer.status, answer.json["code"]) == (409, "outdated")
    assert "update taskyard on the machine of the bot" in answer.json["detail"]
    assert server.ask("GET", "/api/v1/bots/b1").status == 404


def test_an_attempt_shows_what_its_bot_was_when_it_began(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task()))
    either_server.hello(os="Linux")
    either_server.claim()
    either_server.hello(os="Plan9")
    (attempt,) = either_server.get(f"/api/v1/tasks/{made.tasks['a']}/attempts")["items"]
    assert attempt["bot_dimensions"] == {"id": ["b1"], "os": ["Linux"], "pool": ["default"], "slots": ["8"]}
    assert attempt["bot_version"] is None


def test_metrics_count_bots_by_state(server: RunningServer) -> None:
    server.hello()
    server.hello("b2")
    leave(server, "b2")
    server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": "burnt"})
    text = server.ask("GET", "/metrics").body.decode()
    for line in ('taskyard_bots{state="alive"} 1.0', 'taskyard_bots{state="dead"} 1.0'):
        assert line in text
    assert 'taskyard_bots{state="quarantined"} 1.0' in text
