"""Routes of approvals and of subgraphs: rights, late decisions, and views."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.server.settings import Settings
from tests.engine.harness import wait_until
from tests.server.running_server import Made, RunningServer, graph, task

UNKNOWN = "7ffffffffffffff8"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all of them."""
    file = tmp_path_factory.mktemp("approvals") / "yard.db"
    with RunningServer(f"sqlite:///{file}", Settings(public_url="http://yard")) as made:
        yield made


def asking(*requires: str, pool: str = "default", **said: object) -> dict[str, object]:
    return task(*requires, payload={"approval": "Ship it?"} | said, dimensions={"pool": pool})


def until(place: RunningServer, id: str, state: str) -> dict[str, Any]:
    """Wait until a task is in a state."""
    wait_until(lambda: place.get(f"/api/v1/tasks/{id}")["state"] == state)
    shown: dict[str, Any] = place.get(f"/api/v1/tasks/{id}")
    return shown


def asked(place: RunningServer, **said: Any) -> tuple[Made, str]:
    """A graph that waits for a person, and the route to decide."""
    made = place.submit(graph(ask=asking(**said), after=task("ask")))
    until(place, made.tasks["ask"], "running")
    return made, f"/api/v1/tasks/{made.tasks['ask']}/approve"


def test_what_waits_is_listed_and_decided_once(place: RunningServer) -> None:
    made, route = asked(place, timeout="2h")
    (listed,) = [one for one in place.get("/api/v1/approvals")["items"] if one["task"] == made.tasks["ask"]]
    since = listed.pop("since_ms")
    assert listed == {
        "task": made.tasks["ask"], "graph_id": made.id, "label": "ask", "message": "Ship it?",
        "until_ms": since + 7_200_000, "on_timeout": "deny",
    }  # fmt: skip
    key = {"Idempotency-Key": "mine"}
    first, again = (place.ask("POST", route, {"comment": "go"}, headers=key) for _ in range(2))
    assert (first.status, first.json) == (again.status, again.json)
    assert first.json == {"task": made.tasks["ask"], "approved": True, "state": "successful"}
    late = place.ask("POST", route, {"approved": False})
    assert (late.status, late.json["code"]) == (409, "conflict")
    assert "it was approved by admin" in late.json["detail"]
    inputs = place.get(f"/api/v1/tasks/{made.tasks['after']}/inputs")
    assert (inputs["ask"]["approved"], inputs["ask"]["comment"]) == (True, "go")
    assert [one for one in place.get("/api/v1/approvals")["items"] if one["task"] == made.tasks["ask"]] == []


def test_no_body_is_a_yes_and_every_fault_of_one_is_listed(place: RunningServer) -> None:
    made, route = asked(place)
    wrong = place.ask("POST", route, {"approved": "yes", "comment": "x" * 5_000, "aproved": True})
    assert (wrong.status, sorted(wrong.paths)) == (400, ["approved", "aproved", "comment"])
    assert place.ask("POST", route, {"approved": False}).json["state"] == "failed"
    assert place.get(f"/api/v1/tasks/{made.tasks['ask']}")["reason"] == "denied"
    _, other = asked(place)
    assert place.ask("POST", other).json["approved"] is True


def test_too_early_and_no_approval_are_conflicts_and_an_unknown_task_is_not_found(place: RunningServer) -> None:
    made = place.submit(graph(a=task(), ask=asking("a")))
    early = place.ask("POST", f"/api/v1/tasks/{made.tasks['ask']}/approve")
    assert (early.status, early.json["detail"].endswith("so the approval has not been requested yet")) == (409, True)
    assert place.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/approve").status == 409
    assert place.ask("POST", f"/api/v1/tasks/{UNKNOWN}/approve").status == 404


def test_an_approver_needs_the_right_in_the_pool_of_the_question_and_no_other(place: RunningServer) -> None:
    made, route = asked(place, pool="release")
    tokens = {right: place.token(f"pool:release:{right}", "pool:*:read") for right in ("approve", "submit", "cancel")}
    elsewhere = place.token("pool:default:approve", "pool:*:read")
    for token in (tokens["submit"], tokens["cancel"], elsewhere):
        denied = place.ask("POST", route, token=token)
        assert (denied.status, "pool:release:approve" in denied.json["detail"]) == (403, True)
    assert place.ask("POST", route, token=tokens["approve"]).status == 200
    assert until(place, made.tasks["ask"], "successful")["result"]["by"].startswith("user of a test")


def test_lists_show_only_questions_of_pools_that_one_may_see(place: RunningServer) -> None:
    made, _ = asked(place, pool="hidden")
    plain = place.token("pool:lab:read")
    assert made.tasks["ask"] not in {one["task"] for one in place.get("/api/v1/approvals", token=plain)["items"]}
    assert place.ask("GET", "/api/v1/approvals", token=place.token("pool:lab:submit")).status == 403


def test_a_running_task_cannot_approve_for_itself(place: RunningServer) -> None:
    made = place.submit(graph(a=task(dimensions={"pool": "self"}), ask=asking(pool="self")))
    place.hello("own", "self")
    (lease,) = place.claim("own")
    until(place, made.tasks["ask"], "running")
    route = f"/api/v1/tasks/{made.tasks['ask']}/approve"
    assert place.ask("POST", route, token=place.run_token(lease)).status == 403


def test_a_graph_inside_a_task_is_shown_from_both_sides(place: RunningServer) -> None:
    inner = graph(a=task(dimensions={"pool": "inner"}))
    made = place.submit(graph(outer=task(payload={"graph": inner})))
    shown = until(place, made.tasks["outer"], "running")
    inside = place.get(f"/api/v1/graphs/{shown['inner_graph']}")
    assert inside["parent"] == {"task": made.tasks["outer"], "attempt": 1, "graph": made.id}
    assert place.get(f"/api/v1/graphs/{made.id}")["parent"] is None
    (listed,) = place.get(f"/api/v1/graphs/{made.id}/tasks")["items"]
    assert listed["inner_graph"] == shown["inner_graph"]
    assert place.ask("POST", f"/api/v1/tasks/{made.tasks['outer']}/cancel").status == 200
    ended = until(place, made.tasks["outer"], "canceled")
    assert ended["result"]["graph"] == shown["inner_graph"]


def test_the_pools_of_a_graph_inside_need_a_right_too(place: RunningServer) -> None:
    token = place.token("pool:default:submit")
    inner = graph(deep=task(payload={"graph": graph(a=task(dimensions={"pool": "prod"}))}))
    denied = place.ask("POST", "/api/v1/graphs", graph(outer=task(payload={"graph": inner})), token=token)
    assert (denied.status, "pool:prod:submit" in denied.json["detail"]) == (403, True)
    allowed = graph(outer=task(payload={"graph": graph(a=task())}))
    assert place.ask("POST", "/api/v1/graphs", allowed, token=token).status == 201


def test_running_again_needs_a_right_in_the_pools_inside_too(place: RunningServer) -> None:
    idle = task(payload={"noop": True}, dimensions={"pool": "prod"})
    made = place.submit(graph(outer=task(payload={"graph": graph(a=idle)})))
    until(place, made.tasks["outer"], "successful")
    route, command = f"/api/v1/graphs/{made.id}/rerun", {"from": ["outer"]}
    denied = place.ask("POST", route, command, token=place.token("pool:*:read", "pool:default:submit"))
    assert (denied.status, "pool:prod:submit" in denied.json["detail"]) == (403, True)
    both = place.token("pool:*:read", "pool:default:submit", "pool:prod:submit")
    assert place.ask("POST", route, command, token=both).status < 300
