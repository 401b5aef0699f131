"""Requests that change something, sent again with their `Idempotency-Key`: nothing is done twice."""

from typing import Any

import pytest

from tests.server.running_server import RunningServer, graph, task

KEY = {"Idempotency-Key": "once"}
#: Routes that set something: the method, the path, a body, another body, and the fields that show the values.
SETTINGS = [
    ("PUT", "/pools/lab", {"capacity": 1}, {"capacity": 2}, "capacity"),
    ("PUT", "/limits/licences", {"total": 1}, {"total": 2}, "total"),
    ("PUT", "/mutexes/door", {"stake_after": "1s"}, {"stake_after": "2s"}, "stake_after_ms"),
    ("PATCH", "/bots/b1", {"maintenance": "now"}, {"maintenance": "later"}, "maintenance"),
]


def again(
    server: RunningServer, method: str, path: str, body: object, other: object, key: dict[str, str] = KEY
) -> tuple[Any, Any]:
    """Send a request twice with its key, and something else with that key, which is refused."""
    first, second = (server.ask(method, f"/api/v1{path}", body, headers=key) for _ in range(2))
    assert first.status in {200, 201}, first.body
    assert second.status in {200, 201}, second.body
    refused = server.ask(method, f"/api/v1{path}", other, headers=key)
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    return first.json, second.json


def test_every_route_that_changes_something_takes_a_key(server: RunningServer) -> None:
    paths = server.get("/api/v1/openapi.json")["paths"]
    without = [
        f"{method} {path}"
        for path, methods in paths.items()
        for method, route in methods.items()
        if method in {"post", "put", "patch", "delete"}
        and "Idempotency-Key" not in {one["name"] for one in route.get("parameters", [])}
        and not path.startswith("/api/v1/bot/")
    ]
    # These change nothing, store what has its own digest as its name, do what servers do anyway, or do nothing more
    # when they are repeated; a second sign-in is a second session.
    assert sorted(without) == [
        "delete /api/v1/session",
        "delete /api/v1/targets/{name}",
        "post /api/v1/graphs/check",
        "post /api/v1/graphs/files",
        "post /api/v1/pools/{name}/blobs",
        "post /api/v1/pools/{name}/blobs/read",
        "post /api/v1/pools/{name}/trees",
        "post /api/v1/schedule",
        "post /api/v1/schedules/preview",
        "post /api/v1/session",
        "post /api/v1/session/links",
        "post /api/v1/tasks/{task_id}/secrets",
        "post /api/v1/webhooks/{name}/dead/send",
        "post /api/v1/webhooks/{name}/test",
    ]


@pytest.mark.parametrize(("method", "path", "body", "other", "field"), SETTINGS)
def test_a_repeat_of_a_setting_does_not_undo_what_was_set_since(
    server: RunningServer, method: str, path: str, body: object, other: object, field: str
) -> None:
    server.hello()
    first, _ = again(server, method, path, body, other)
    since = server.ask(method, f"/api/v1{path}", other).json
    assert since[field] != first[field]
    assert server.ask(method, f"/api/v1{path}", body, headers=KEY).json[field] == since[field]


def test_an_extension_is_made_once_for_each_key(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task()))
    first, second = again(either_server, "POST", f"/graphs/{made.id}/tasks", graph(b=task("a")), graph(c=task("a")))
    assert second == first | {"echo": True}
    assert sorted(first["nameMapping"]) == ["a", "b"]
    nothing = {"Idempotency-Key": "nothing new"}
    again(either_server, "POST", f"/graphs/{made.id}/tasks", graph(b=task("a")), graph(d=task()), nothing)
    other = either_server.submit(graph(a=task()))
    assert either_server.ask("POST", f"/api/v1/graphs/{other.id}/tasks", graph(b=task("a")), headers=KEY).status == 409


def test_a_graph_of_a_chosen_id_takes_a_key(either_server: RunningServer) -> None:
    first, second = again(either_server, "PUT", "/graphs/7fffffffffff0008", graph(a=task()), graph(b=task()))
    assert second == first | {"echo": True}
    assert either_server.ask("PUT", "/api/v1/graphs/7fffffffffff0018", graph(a=task()), headers=KEY).status == 409


def test_a_token_is_made_once_and_returned_again_to_a_repeat(server: RunningServer) -> None:
    command = {"name": "ann", "scopes": ["pool:default:read"]}
    first, second = again(server, "POST", "/tokens", command, command | {"name": "bob"})
    assert first == second
    assert server.ask("GET", "/api/v1/graphs", token=first["token"]).status == 200
    path, key = f"/tokens/{first['view']['id']}/rotate", {"Idempotency-Key": "twice"}
    rotated, same = again(server, "POST", path, {}, {"keep_ms": 1}, key)
    assert rotated == same
    assert server.ask("GET", "/api/v1/graphs", token=rotated["token"]).status == 200
    assert len([one for one in server.get("/api/v1/tokens")["items"] if one["name"] == "ann"]) == 2


def test_a_key_of_run_tokens_is_changed_once(server: RunningServer) -> None:
    server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    token = server.run_token(lease)
    again(server, "POST", "/run-key/rotate", {}, {"keep": False})
    # A second change would have made it good for nothing.
    assert server.ask("GET", f"/api/v1/tasks/{lease.task:016x}", token=token).status == 200


def test_a_running_task_publishes_once_for_each_key(server: RunningServer) -> None:
    server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    path, token = f"/api/v1/tasks/{lease.task:016x}/progress", server.run_token(lease)

    def say(text: bytes, **key: str) -> int:
        return server.ask("PUT", path, text, token=token, headers={"Content-Type": "text/plain", **key}).status

    assert say(b"half", **KEY) == say(b"all of it") == say(b"half", **KEY) == 204
    assert say(b"none", **KEY) == 409
    assert server.get(path.removesuffix("/progress"))["progress"] == "all of it"
