"""Graphs that a running task has submitted, and that end with it."""

from typing import Any

import pytest

from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Lease
from tests.engine.harness import wait_until
from tests.server.running_server import Made, RunningServer, graph, task

FAR = {"pool": "far"}


@pytest.fixture
def running(either_server: RunningServer) -> tuple[RunningServer, Made, Lease]:
    """A server with a task that runs."""
    made = either_server.submit(graph(a=task()))
    either_server.hello()
    (lease,) = either_server.claim()
    return either_server, made, lease


def child(server: RunningServer, parent: str, document: object = None, **said: Any) -> Made:
    answer = server.ask("POST", f"/api/v1/graphs?parent={parent}", document or graph(x=task(dimensions=FAR)), **said)
    assert answer.status == 201, answer.body
    return Made(answer.json["graph_id"], answer.json["nameMapping"])


def state(server: RunningServer, made: Made) -> str:
    return str(server.get(f"/api/v1/graphs/{made.id}")["state"])


def test_children_end_with_their_parent(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    ours, other = child(server, made.tasks["a"]), server.submit(graph(y=task(dimensions=FAR)))
    assert server.get(f"/api/v1/tasks/{made.tasks['a']}")["children"] == [ours.id]
    shown = {"task": made.tasks["a"], "attempt": 1, "graph": made.id}
    assert server.get(f"/api/v1/graphs/{ours.id}")["child_of"] == shown
    assert server.get(f"/api/v1/tasks/{ours.tasks['x']}")["parent"] == shown
    server.end(lease)
    wait_until(lambda: state(server, ours) == "canceled")
    assert state(server, other) == "running"
    (asked,) = server.get(f"/api/v1/audit?action=cancel&subject={ours.id}")["items"]
    assert (asked["actor"], asked["note"]) == (f"task {made.tasks['a']}-1", "the task that submitted it has ended")
    assert server.engine.doctor() == []


def test_children_of_a_canceled_parent_end_and_so_do_theirs(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    ours = child(server, made.tasks["a"], graph(x=task()))
    (inner,) = server.claim()
    theirs = child(server, ours.tasks["x"])
    assert server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel", {}).status == 200
    assert state(server, ours) == "running", "its parent still stops"
    server.end(lease, Signal.FAIL)
    wait_until(lambda: state(server, ours) == "canceling")
    assert state(server, theirs) == "running"
    server.end(inner, Signal.FAIL)
    wait_until(lambda: state(server, theirs) == "canceled")


def test_a_child_that_is_settled_stays_as_it_is(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    ours = child(server, made.tasks["a"], graph(x=task()))
    (inner,) = server.claim()
    server.end(inner, Signal.FAIL)
    later = child(server, made.tasks["a"])
    server.end(lease)
    wait_until(lambda: state(server, later) == "canceled")
    assert state(server, ours) == "blocked"


def test_the_next_attempt_of_a_parent_has_children_of_its_own(running: tuple[RunningServer, Made, Lease]) -> None:
    server, _, first = running
    server.end(first)
    made = server.submit({"tasks": {"a": {"reruns": 1, "task": {"payload": {"command": ["true"]}}}}})
    (lease,) = server.claim()
    old = child(server, made.tasks["a"])
    server.end(lease, Signal.FAIL)
    (again,) = server.claim()
    new = child(server, made.tasks["a"])
    wait_until(lambda: state(server, old) == "canceled")
    assert state(server, new) == "running"
    server.end(again)
    wait_until(lambda: state(server, new) == "canceled")


def test_only_a_running_task_has_children_and_a_repeat_is_an_echo(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    path, body = f"/api/v1/graphs?parent={made.tasks['a']}", graph(x=task(dimensions=FAR))
    key = {"Idempotency-Key": "k"}
    first = server.ask("POST", path, body, headers=key)
    assert server.ask("POST", "/api/v1/graphs", body, headers=key).status == 409, "without a parent it is another"
    server.end(lease)
    again = server.ask("POST", path, body, headers=key)
    assert (first.status, again.status, again.json["graph_id"]) == (201, 200, first.json["graph_id"])
    refused = server.ask("POST", path, body)
    assert (refused.status, "only a running task can have children" in refused.json["detail"]) == (409, True)
    unknown = server.ask("POST", "/api/v1/graphs?parent=0000000000000008", body)
    assert (unknown.status, unknown.paths) == (400, ["parent"])


def test_a_large_child_ends_too(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    ours = child(server, made.tasks["a"], {"tasks": {f"t{place}": task(dimensions=FAR) for place in range(1_200)}})
    server.end(lease)
    wait_until(lambda: state(server, ours) == "canceled")
    wait_until(lambda: server.get(f"/api/v1/graphs/{ours.id}")["counts"] == {"canceled": 1_200})


def test_a_parent_needs_rights_and_a_task_may_name_itself(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    path, body = f"/api/v1/graphs?parent={made.tasks['a']}", graph(x=task(dimensions={"pool": "lab"}))
    assert server.ask("POST", path, body, token=server.token("pool:lab:submit")).status == 403
    own = server.run_token(lease)
    ours = child(server, made.tasks["a"], graph(x=task()), token=own)
    assert server.get(f"/api/v1/graphs/{ours.id}")["child_of"]["attempt"] == 1
    assert (
        server.get(f"/api/v1/tasks/{ours.tasks['x']}")["user"] == server.get(f"/api/v1/tasks/{made.tasks['a']}")["user"]
    )


def test_a_request_names_its_parent_and_its_uuid(running: tuple[RunningServer, Made, Lease]) -> None:
    server, made, lease = running
    body = {
        "request_uuid": "4f1c",
        "parent_task_id": made.tasks["a"],
        "task": {"payload": {"command": ["true"]}, "dimensions": FAR},
    }
    answers = [server.ask("POST", "/api/v1/requests", body) for _ in range(2)]
    assert [one.status for one in answers] == [201, 200]
    assert answers[0].json["graph_id"] == answers[1].json["graph_id"]
    assert server.ask("POST", "/api/v1/requests", body | {"name": "other"}).status == 409
    same = server.ask("POST", "/api/v1/requests", body, headers={"Idempotency-Key": "4f1c"})
    differs = server.ask("POST", "/api/v1/requests", body, headers={"Idempotency-Key": "5"})
    assert (same.status, differs.status, differs.paths) == (200, 400, ["request_uuid"])
    server.end(lease)
    wait_until(lambda: server.get(f"/api/v1/graphs/{answers[0].json['graph_id']}")["state"] == "canceled")


def test_faults_of_a_relation_are_listed_with_the_others(server: RunningServer) -> None:
    answer = server.ask(
        "POST", "/api/v1/requests", {"request_uuid": 1, "parent_task_id": "x", "task": {"priority": 999}}
    )
    assert answer.status == 400
    assert {"request_uuid", "parent_task_id", "task.priority"} <= set(answer.paths)
