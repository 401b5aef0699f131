"""What holds a graph: its root causes, grouped, on a real server."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.states import Signal
from taskyard.views import explain_graph
from tests.server.frozen_clock_server import MINUTE, FrozenClockServer
from tests.server.running_server import Made, graph, task


@pytest.fixture
def server(sqlite_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(sqlite_url) as made:
        yield made


@pytest.fixture
def either_server(database_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(database_url) as made:
        yield made


def held(server: FrozenClockServer, made: Made) -> Any:
    return server.get(f"/api/v1/graphs/{made.id}/why")


def test_root_causes_are_grouped_and_the_most_pressing_comes_first(either_server: FrozenClockServer) -> None:
    server = either_server
    server.bot()
    gpu = task(dimensions={"pool": "default", "gpu": "h100"})
    tasks = {f"g{number}": gpu for number in range(4)}
    made = server.submit(graph("nightly", runs=task(), **tasks, late=task(not_before="1h"), all=task("runs", *tasks)))
    assert server.claim(want=1)
    shown = held(server, made)
    assert [(one["count"], one["state"], one["reason"], one["sentence"]) for one in shown["groups"]] == [
        (
            4,
            "waiting",
            "no_bot",
            (
                "4 tasks are waiting (g0, g1, g2 and 1 more); "
                "g0 is waiting: no bot has gpu: h100; the nearest is b1 (no gpu)"
            ),
        ),
        (1, "pending", "not_before", "late is pending: it may start in 1 h, at 2026-01-01 01:00:00Z"),
        (1, "running", "under_way", "runs is running: attempt 1 on b1 for a moment"),
    ]
    assert shown["groups"][0]["tasks"] == {label: made.tasks[label] for label in tasks}
    assert shown["sentence"] == (
        "nightly is running: 4 tasks are waiting (g0, g1, g2 and 1 more); g0 is waiting: no bot has gpu: h100; "
        "the nearest is b1 (no gpu) (and 2 more root causes); 1 task waits for others"
    )
    assert (shown["behind"], shown["whole"], shown["settled"]) == (1, True, False)


def test_a_blocked_graph_names_the_failure_and_not_a_handled_one(server: FrozenClockServer) -> None:
    page = {**task(), "requires": [{"task": "a", "on": "failure"}]}
    made = server.submit(graph("red", a=task(), page=page, b=task("a"), c=task()))
    server.bot()
    leases = {lease.task: lease for lease in server.claim()}
    server.report(leases[made.key("a")], Signal.FAIL, exit_code=2)
    server.report(leases[made.key("c")], Signal.FAIL, exit_code=3)
    (paging,) = server.claim()
    server.report(paging, Signal.SUCCEED)
    server.clock.advance(MINUTE)
    shown = held(server, made)
    assert shown["sentence"] == (
        "red is blocked: 2 tasks are failed (a, c); a is failed: exit code 2 in attempt 1 on b1, 1 min ago; "
        "1 task waits for others"
    )
    calm = server.submit(graph("calm", a=task(), page=page))
    server.report(server.claim()[0], Signal.FAIL, exit_code=2)
    server.report(server.claim()[0], Signal.SUCCEED)
    assert held(server, calm)["sentence"] == "calm is finished: nothing holds it"


def test_a_graph_that_is_too_large_to_look_through_says_so(
    server: FrozenClockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_graph, "LOOKED_MAX", 2)
    made = server.submit(graph(a=task(), b=task(), c=task()))
    shown = held(server, made)
    assert (shown["whole"], shown["groups"][0]["count"]) == (False, 2)
    assert shown["sentence"] == f"{made.id} is running: 2 tasks are waiting (a, b); a is waiting: there is no bot"
    assert server.ask("GET", "/api/v1/graphs/7ffffffffffffff8/why").status == 404
