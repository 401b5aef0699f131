"""What tasks take of a bot, as a real server tells it: why a task waits, what a graph would do, what is wanted."""

from collections.abc import Iterator

import pytest

from taskyard.core.admission.rules import RESERVE_AFTER_MS
from taskyard.core.states import Signal
from tests.server.frozen_clock_server import FrozenClockServer
from tests.server.running_server import graph, task

HAS = {"cores": "8", "memory_mb": "1000", "gpus": "2"}


@pytest.fixture
def server(database_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(database_url) as made:
        yield made


def test_why_says_what_no_bot_has_and_when_a_bot_has_too_little_left(server: FrozenClockServer) -> None:
    made = server.submit(graph(huge=task(cpus=64), whole=task(slots=4), gpu=task(gpus=1)))
    server.bot("b1", slots=4, **HAS)
    assert server.sentence(made, "huge") == "huge is waiting: no bot has cores: >=64; the nearest is b1 (cores: 8)"
    assert server.why(made, "huge")["why"]["dimensions"] == {"cores": [">=64"], "pool": ["default"]}
    lease = server.lease_of(made, "whole")
    told = server.why(made, "gpu")
    assert told["sentence"] == "gpu is waiting: 1 bot could run it and it is busy; it is next"
    assert told["why"]["reason"] == "bots_busy"
    (seen,) = server.get("/api/v1/bots?state=busy")["items"]
    assert (seen["id"], seen["busy"]) == ("b1", 1)
    server.report(lease, Signal.SUCCEED, exit_code=0)
    assert server.sentence(made, "gpu") == "gpu is waiting: 1 bot could run it now; it is next"
    assert server.get("/api/v1/bots?state=busy")["items"] == []


def test_why_says_for_which_task_a_bot_is_kept_free(server: FrozenClockServer) -> None:
    server.bot("b1", slots=4, **HAS)
    server.submit(graph(small=task()))
    server.claim("b1", 1)
    made = server.submit(graph(whole=task(slots=4), late=task()))
    server.clock.advance(RESERVE_AFTER_MS)  # without sweeps: the bot renews meanwhile
    assert server.claim("b1", 2) == []
    assert server.sentence(made, "whole") == (
        "whole is waiting: 1 bot could run it and it is busy; b1 is kept free for it; it is next"
    )
    told = server.why(made, "late")
    assert told["sentence"] == "late is waiting: 1 bot could run it, but b1 is kept free for another task; it is next"
    assert (told["why"]["reason"], told["why"]["bots"]["standing"]) == ("bots_busy", {"reserved": 1})


def test_a_dry_run_counts_what_the_tasks_before_have_taken(server: FrozenClockServer) -> None:
    server.bot("b1", slots=4, **HAS)
    document = graph(a=task(gpus=2), b=task(gpus=1), c=task(slots=3), d=task(slots=5), e=task())
    told = server.ask("POST", "/api/v1/graphs/check", document).json
    verdicts = {one["label"]: one["verdict"] for one in told["items"]}
    assert verdicts == {"a": "now", "b": "waits", "c": "now", "d": "never", "e": "waits"}


def test_the_demand_of_a_pool_is_grouped_by_what_a_bot_must_have(server: FrozenClockServer) -> None:
    begun = server.clock.now()
    server.submit(graph(a=task(cpus=0.5, memory="1GiB"), b=task(cpus=0.5, memory="1GiB"), c=task()))
    server.submit(graph(held=task(gpus=4, mutexes=[{"key": "m"}]), lab=task(dimensions={"pool": "lab"})))
    server.bot("b1", slots=4, **{**HAS, "memory_mb": "1024"})
    assert len(server.claim("b1", 1)) == 1
    found = server.get("/api/v1/pools/default/demand")
    assert (found["pool"], found["waiting"], found["no_bot"], found["running"], found["more"]) == (
        "default",
        2,
        1,
        1,
        0,
    )
    by_dimensions = {tuple(sorted(one["dimensions"])): one for one in found["items"]}
    half = by_dimensions["cores", "memory_mb", "pool"]
    assert half["dimensions"] == {"cores": [">=0.5"], "memory_mb": [">=1024"], "pool": ["default"]}
    assert half["takes"] == {"slots": 1, "cpus": 0.5, "memory_mb": 1024, "gpus": 0}
    assert (half["waiting"], half["running"], half["no_bot"]) == (1, 1, 0)
    assert begun <= half["oldest_ms"] <= server.clock.now()
    assert by_dimensions["gpus", "pool"]["no_bot"] == 1
    assert server.get("/api/v1/pools/nowhere/demand")["items"] == []


def test_the_demand_is_a_metric_only_for_callers_who_may_read_every_pool(server: FrozenClockServer) -> None:
    server.submit(graph(a=task(gpus=1), b=task(gpus=1)))
    text = server.ask("GET", "/metrics").body.decode()
    assert 'taskyard_demand{dimensions="gpus>=1",pool="default"} 2.0' in text
    for token in (None, server.token("pool:default:read")):
        assert "taskyard_demand" not in server.ask("GET", "/metrics", token=token).body.decode()


def test_all_faults_of_what_a_task_takes_are_listed(server: FrozenClockServer) -> None:
    refused = server.ask("POST", "/api/v1/graphs", graph(a=task(cpus=-1, memory="lots", gpus=1.5, slots=None)))
    assert refused.status == 400
    assert {one["path"] for one in refused.json["faults"]} == {
        f"tasks.a.task.{name}" for name in ("cpus", "memory", "gpus", "slots")
    }
