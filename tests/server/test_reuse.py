"""Tasks that reuse a result, as people see them: its source, what it saved, and the output and files of that."""

from pathlib import Path
from typing import Any

import pytest

from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Lease
from tests.server.running_server import Made, RunningServer, graph, task
from tests.server.test_files import stored


def same(*requires: str, **said: Any) -> dict[str, object]:
    return task(*requires, idempotent=True, **said)


def view(server: RunningServer, made: Made, label: str = "a") -> dict[str, Any]:
    return dict(server.get(f"/api/v1/tasks/{made.tasks[label]}"))


def leave(server: RunningServer, made: Made, lease: Lease) -> None:
    """Let an attempt leave a file, which is also an artifact."""
    tree = stored(server, {"dist/x": b"made"})
    said = {"pool": "default", "tree": tree, "artifacts": [{"name": "x", "tree": tree, "path": "dist/x"}]}
    path = f"/api/v1/tasks/{made.tasks['a']}/files"
    assert server.ask("PUT", path, said, token=server.run_token(lease)).status == 204


def test_a_reused_task_leads_to_what_the_original_left(either_server: RunningServer, tmp_path: Path) -> None:
    server = either_server
    server.http.app.context.files.location = server.http.app.context.files.location or str(tmp_path)
    server.hello()
    first = server.submit(graph(a=same()))
    follower = server.submit(graph(a=same(), b=task("a")))
    assert (view(server, follower)["state"], view(server, follower)["reason"]) == ("pending", "duplicate_of")
    (lease,) = server.claim()
    leave(server, first, lease)
    server.print(lease, 0, b"made it\n")
    server.end(lease, result='{"size":7}')
    late = server.submit(graph(a=same(), b=task("a")))
    (attempt,) = server.get(f"/api/v1/tasks/{first.tasks['a']}/attempts")["items"]
    for made in (follower, late):
        seen, path = view(server, made), f"/api/v1/tasks/{made.tasks['a']}"
        assert (seen["state"], seen["reason"], seen["attempt"]) == ("successful", "reused", 0)
        assert seen["reused"] == {
            "task": first.tasks["a"],
            "graph_id": first.id,
            "attempt": 1,
            "saved_ms": attempt["ended_ms"] - attempt["claimed_ms"],
        }
        assert seen["result"] == {"size": 7}
        assert seen["resolution"]["logsUrl"] == f"http://yard/api/v1/tasks/{first.tasks['a']}/output"
        assert server.ask("GET", f"{path}/output").body == b"made it\n"
        assert server.ask("GET", f"{path}/output?follow=true").body == b"made it\n"
        assert server.ask("GET", f"{path}/files/dist/x").body == b"made"
        assert server.ask("GET", f"{path}/artifacts/x").body == b"made"
        assert server.get(f"{path}/attempts")["items"] == []
        assert server.get(f"{path}/story")["reused"] == seen["reused"]
        assert view(server, made, "b")["state"] == "waiting", "its dependents go on"
    assert server.engine.doctor() == []


def test_a_chain_of_graphs_names_the_task_that_ran(server: RunningServer) -> None:
    server.hello()
    nodes = graph(a=same(), b=same("a", payload={"command": ["get", {"$subs": "taskId:a"}]}))
    first = server.submit(nodes)
    for _ in range(2):
        (lease,) = server.claim()
        server.end(lease, result="1")
    again = [server.submit(nodes) for _ in range(3)]
    for made in again:
        assert {label: view(server, made, label)["reused"]["task"] for label in "ab"} == dict(first.tasks)
        assert server.get(f"/api/v1/graphs/{made.id}")["state"] == "finished"
    renewed = server.ask("POST", f"/api/v1/graphs/{again[0].id}/rerun", {"from": ["b"]}).json["subject"]
    names = server.get(f"/api/v1/graphs/{renewed}")["nameMapping"]
    assert view(server, Made(renewed, names))["reused"]["task"] == first.tasks["a"]
    assert view(server, Made(renewed, names), "b")["state"] == "waiting", "a person asked for it to run"


def test_a_pool_says_for_how_long_and_whose_results_it_reuses(either_server: RunningServer) -> None:
    server = either_server
    server.hello()
    ada, ben = (server.token("pool:default:submit", "pool:default:read") for _ in range(2))

    def outcome(token: str) -> str:
        made = server.submit(graph(a=same()), token=token)
        for lease in server.claim():
            server.end(lease)
        return str(view(server, made)["reason"])

    assert [outcome(ada), outcome(ada), outcome(ben)] == ["done", "reused", "done"]
    shared = {"reuse_shared": True, "reuse_window": "1d"}
    assert server.ask("PUT", "/api/v1/pools/default", shared).status == 200
    assert [outcome(ada), outcome(ben)] == ["done", "reused"]
    (pool,) = [one for one in server.get("/api/v1/pools")["items"] if one["name"] == "default"]
    assert (pool["reuse_window_ms"], pool["reuse_shared"]) == (86_400_000, True)
    assert server.ask("PUT", "/api/v1/pools/default", {"reuse_window": "0s"}).status == 200
    assert [outcome(ada), outcome(ada)] == ["done", "done"]
    refused = server.ask("PUT", "/api/v1/pools/default", {"reuse_window": "soon", "reuse_shared": 1})
    assert (refused.status, set(refused.paths)) == (400, {"reuse_window", "reuse_shared"})
    assert server.ask("PUT", "/api/v1/pools/default", shared, token=ada).status == 403


def test_the_user_that_a_request_names_does_not_stand_for_who_sent_it(server: RunningServer) -> None:
    server.hello()
    ada, ben = (server.token("pool:default:submit", "pool:default:read") for _ in range(2))
    body = {"user": "ada", "task": {"payload": {"command": ["true"]}, "idempotent": True}}
    states = []
    for token in (ada, ben, ada):
        made = server.ask("POST", "/api/v1/requests", body, token=token).json
        for lease in server.claim():
            server.end(lease)
        (id,) = made["nameMapping"].values()
        states.append(server.get(f"/api/v1/tasks/{id}")["reason"])
    assert states == ["done", "done", "reused"], "a name in the request opens nobody else's results"


@pytest.mark.parametrize("ends", [Signal.SUCCEED, Signal.FAIL])
def test_a_follower_tells_who_it_waits_for_and_is_canceled_alone(server: RunningServer, ends: Signal) -> None:
    server.hello()
    first, second, third = (server.submit(graph(a=same())) for _ in range(3))
    why = server.get(f"/api/v1/tasks/{second.tasks['a']}/why")["why"]
    assert why["reason"] == "duplicate_of"
    assert first.tasks["a"] in why["sentence"]
    assert server.ask("POST", f"/api/v1/tasks/{second.tasks['a']}/cancel", {}).status == 200
    (lease,) = server.claim()
    server.end(lease, ends)
    states = [view(server, one)["state"] for one in (first, second, third)]
    if ends is Signal.SUCCEED:
        assert states == ["successful", "canceled", "successful"]
    else:
        assert states == ["failed", "canceled", "waiting"]
