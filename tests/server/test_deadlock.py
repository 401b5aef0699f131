"""Workflows that wait for each other: every view shows the cycle, and nothing is canceled for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.frozen_clock_server import FrozenClockServer
from tests.server.running_server import Made, RunningServer, graph, task


@pytest.fixture
def server(database_url: str) -> Iterator[FrozenClockServer]:
    with FrozenClockServer(database_url) as made:
        yield made


def workflow(holds: str, wants: str, label: str) -> dict[str, Any]:
    """A task that holds a mutex until its subgraph has ended, which first needs another mutex."""
    inner = graph("inner", **{label: task(mutexes=[{"key": wants}])})
    return {"task": {"mutexes": [{"key": holds}], "payload": {"graph": inner}}}


def started(server: FrozenClockServer, *documents: dict[str, Any]) -> list[Made]:
    """Submit graphs before any of them begins, and let the server begin what it runs itself."""
    server.bot()
    made = [RunningServer.submit(server, one) for one in documents]
    server.settle()
    return made


def crossed(server: FrozenClockServer) -> list[Made]:
    """Two workflows, each of which holds what the other wants."""
    one = graph("one", first=workflow("a", "b", "uses-b"))
    two = graph("two", second=workflow("b", "a", "uses-a"))
    return started(server, one, two)


def test_two_workflows_that_need_each_others_mutex_are_shown_in_every_view(server: FrozenClockServer) -> None:
    one, two = crossed(server)
    seen = server.get(f"/api/v1/graphs/{one.id}")
    assert (seen["state"], seen["settled"]) == ("running", False)
    steps = [(step["label"], step["mutex"], step["holder_label"]) for step in seen["deadlock"]["cycle"]]
    assert steps == [("uses-b", "b", "second"), ("uses-a", "a", "first")]
    assert seen["deadlock"]["cycle"][0]["holder"] == two.tasks["second"]
    assert seen["deadlock"]["stuck"] is True
    sentence = (
        "deadlock: uses-b waits for mutex b, which second holds until uses-a in it has ended; "
        "uses-a waits for mutex a, which first holds until uses-b in it has ended. Cancel one of them"
    )
    task_id = one.tasks["first"]
    views = (f"graphs/{one.id}", f"tasks/{task_id}", f"tasks/{task_id}/why", f"graphs/{one.id}/why")
    for path in views:
        shown = server.get(f"/api/v1/{path}")
        assert shown["deadlock"]["sentence"] == sentence, path
        if path.endswith("why"):
            assert shown["sentence"].endswith(f"; {sentence}")


def test_a_deadlock_is_over_when_one_of_them_is_canceled(server: FrozenClockServer) -> None:
    one, two = crossed(server)
    server.ask("POST", f"/api/v1/graphs/{two.id}/cancel")
    server.settle()
    seen = server.get(f"/api/v1/graphs/{one.id}")
    assert (seen["state"], seen["deadlock"]) == ("running", None)


def test_a_graph_with_other_work_is_not_stuck_by_a_deadlock(server: FrozenClockServer) -> None:
    one = graph("one", first=workflow("a", "b", "uses-b"), busy=task())
    made, _ = started(server, one, graph("two", second=workflow("b", "a", "uses-a")))
    assert server.get(f"/api/v1/graphs/{made.id}")["deadlock"]["stuck"] is False


def test_workflows_that_only_wait_in_line_are_no_deadlock(server: FrozenClockServer) -> None:
    made = started(server, graph("one", first=workflow("a", "b", "x")), graph("two", second=workflow("b", "c", "y")))
    assert [server.get(f"/api/v1/graphs/{one.id}")["deadlock"] for one in made] == [None, None]


def test_a_cycle_of_three_is_found_within_one_graph(server: FrozenClockServer) -> None:
    ring = {f"w{number}": workflow("abc"[number], "bca"[number], f"t{number}") for number in range(3)}
    (made,) = started(server, graph("ring", **ring))
    found = server.get(f"/api/v1/graphs/{made.id}")["deadlock"]
    assert sorted(step["label"] for step in found["cycle"]) == ["t0", "t1", "t2"]
    assert found["stuck"] is True


def test_a_workflow_that_has_a_time_is_not_stuck(server: FrozenClockServer) -> None:
    timed = workflow("a", "b", "uses-b")
    timed["task"]["payload"]["timeout"] = "5m"
    one, _ = started(server, graph("one", first=timed), graph("two", second=workflow("b", "a", "uses-a")))
    assert server.get(f"/api/v1/graphs/{one.id}")["deadlock"]["stuck"] is False


def test_what_the_asker_may_not_see_has_no_name_in_a_cycle(server: FrozenClockServer) -> None:
    inner = graph("inner", **{"uses-a": task(mutexes=[{"key": "a"}], dimensions={"pool": "secret"})})
    hidden = {"task": {"mutexes": [{"key": "b"}], "payload": {"graph": inner}}}
    server.bot("x1", pool="secret")
    one, _ = started(server, graph("one", first=workflow("a", "b", "uses-b")), graph("two", second=hidden))
    shown = server.get(f"/api/v1/graphs/{one.id}", token=server.token("pool:default:read"))["deadlock"]
    assert [(step["label"], step["holder_label"]) for step in shown["cycle"]] == [("uses-b", ""), ("", "first")]
