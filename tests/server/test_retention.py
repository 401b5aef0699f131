"""How long things are kept is set for each pool, and a graph that is over is deleted by request."""

import pytest

from tests.engine.harness import wait_until
from tests.server.running_server import RunningServer, graph, task

DAY_MS = 86_400_000


def test_times_are_set_for_all_pools_and_for_one(either_server: RunningServer) -> None:
    server = either_server
    every, *_ = server.get("/api/v1/retention")["items"]
    assert (every["pool"], every["times"]["graphs"], every["times"]["bots"]) == ("*", None, 28 * DAY_MS)
    said = {"output": "30d", "graphs": "forever"}
    assert server.ask("PUT", "/api/v1/retention/*", said | {"tokens": "1d"}).status == 200
    answer = server.ask("PUT", "/api/v1/retention/lab", {"output": "7d", "bot_events": "forever"})
    assert [(one["pool"], one["times"].get("output")) for one in answer.json["items"]] == [
        ("*", 30 * DAY_MS), ("lab", 7 * DAY_MS),
    ]  # fmt: skip
    assert server.ask("PUT", "/api/v1/retention/lab", {"output": "default"}).json["items"][1] == {
        "pool": "lab", "times": {"bot_events": None},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pool", "body", "paths"),
    [
        ("*", {"output": "1s", "graphs": 5, "what": "1d"}, ["output", "graphs", "what"]),
        ("lab", {"audit": "30d", "output": "soon"}, ["output", "audit"]),
        ("*", {"graphs": "999999d"}, ["graphs"]),
    ],
)
def test_times_with_faults_are_refused_with_all_of_them(
    server: RunningServer, pool: str, body: dict[str, object], paths: list[str]
) -> None:
    answer = server.ask("PUT", f"/api/v1/retention/{pool}", body)
    assert (answer.status, sorted(answer.paths)) == (400, sorted(paths))


def test_an_admin_of_a_pool_sets_the_times_of_that_pool_alone(server: RunningServer) -> None:
    token = server.token("pool:lab:admin")
    statuses = [
        server.ask("PUT", f"/api/v1/retention/{pool}", {"output": "7d"}, token=token).status
        for pool in ("lab", "ci", "*")
    ]
    assert statuses == [200, 403, 403]


def test_a_settled_graph_is_deleted_by_an_admin_of_all_its_pools(either_server: RunningServer) -> None:
    server = either_server
    made = server.submit(graph(a=task(), b=task(dimensions={"pool": "lab"})))
    path = f"/api/v1/graphs/{made.id}"
    assert server.ask("DELETE", path, token=server.token("pool:lab:admin")).status == 403
    early = server.ask("DELETE", path)
    assert (early.status, "cancel it first" in early.json["detail"]) == (409, True)
    server.ask("POST", f"{path}/cancel")
    wait_until(lambda: server.get(path)["settled"])
    key = {"Idempotency-Key": "once"}
    assert [server.ask("DELETE", path, headers=key).status for _ in range(2)] == [204, 204]
    assert [server.ask("GET", one).status for one in (path, f"/api/v1/tasks/{made.tasks['a']}")] == [404, 404]
    assert server.ask("DELETE", path).status == 404
    wait_until(lambda: _is_gone(server, int(made.id, 16)))
    (asked,) = server.get(f"/api/v1/audit?action=delete&subject={made.id}")["items"]
    assert asked["actor"].startswith("admin")
    assert server.engine.doctor() == []


def _is_gone(server: RunningServer, id: int) -> bool:
    with server.engine.store.read() as repo:
        return repo.graphs.peek([id]) == []
