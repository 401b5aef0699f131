"""Low priorities are for those who have a right to them."""

import pytest

from tests.server.running_server import RunningServer, graph, task


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["pool:default:submit"], {20, 100}),
        (["pool:default:submit", "pool:default:urgent"], {10, 19, 20, 100}),
        (["pool:default:submit", "pool:lab:admin"], {20, 100}),
        (["pool:default:admin"], {0, 9, 10, 19, 20, 100}),
    ],
)
def test_a_priority_needs_its_right(server: RunningServer, scopes: list[str], allowed: set[int]) -> None:
    token = server.token(*scopes)
    found = set()
    for priority in (0, 9, 10, 19, 20, 100):
        answer = server.ask("POST", "/api/v1/graphs", graph(a=task(priority=priority)), token=token)
        assert answer.status in (201, 403)
        found |= {priority} if answer.status == 201 else set()
    assert found == allowed


def test_the_scope_that_is_missing_is_named_and_nothing_is_stored(server: RunningServer) -> None:
    token = server.token("pool:default:submit", "pool:default:read")
    answer = server.ask("POST", "/api/v1/graphs", graph(a=task(priority=5), b=task(priority=15)), token=token)
    assert "pool:default:admin and pool:default:urgent" in answer.json["detail"]
    assert server.get("/api/v1/graphs", token=token)["items"] == []


def test_extensions_and_reruns_need_it_too(server: RunningServer) -> None:
    token = server.token("pool:default:submit", "pool:default:read")
    made = server.submit(graph(a=task()), token=token)
    grown = {"tasks": {"b": task(priority=5)}}
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", grown, token=token).status == 403
    urgent = server.submit(graph(a=task(priority=5)))
    assert server.ask("POST", f"/api/v1/graphs/{urgent.id}/cancel").status == 200
    again = {"from": ["a"]}
    assert server.ask("POST", f"/api/v1/graphs/{urgent.id}/rerun", again, token=token).status == 403
    assert server.ask("POST", f"/api/v1/graphs/{urgent.id}/rerun", again).status == 201


def test_a_running_task_gives_away_no_more_than_its_own_priority(server: RunningServer) -> None:
    server.submit(graph(a=task(priority=15)))
    server.hello()
    (lease,) = server.claim()
    own = server.run_token(lease)
    statuses = [
        server.ask("POST", "/api/v1/graphs", graph(x=task(priority=one)), token=own).status for one in (14, 15, 19)
    ]
    assert statuses == [403, 201, 201]
