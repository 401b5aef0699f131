"""Secrets over HTTP: no route returns one, who may do what, and how an attempt gets its own."""

import base64
from pathlib import Path
from typing import Any

from taskyard.core.states import Signal
from tests.engine.harness import wait_until
from tests.server.running_server import Made, RunningServer, graph, task

CANARY = "canary-7d21-value"


def put(server: RunningServer, name: str, value: str = CANARY, pool: str = "default", **said: Any) -> Any:
    answer = server.ask("PUT", f"/api/v1/secrets/{name}?pool={pool}", {"value": value}, **said)
    assert answer.status == 200, answer.body
    return answer.json


def named(**secrets: Any) -> dict[str, Any]:
    return {"payload": {"command": ["true"], "secrets": secrets}}


def leased(server: RunningServer, made: Made, label: str = "a", bot: str = "b1") -> str:
    """Wait until admission has let a task in, have a bot take it, and give the token of its attempt."""
    found: list[Any] = []

    def take() -> bool:
        found.extend(server.claim(bot))
        return made.key(label) in {one.task for one in found}

    wait_until(take)
    return server.run_token(next(one for one in found if one.task == made.key(label)))


def get(server: RunningServer, made: Made, token: str) -> Any:
    return server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/secrets", token=token)


def test_a_secret_is_set_listed_and_deleted_and_never_shown(either_server: RunningServer) -> None:
    server = either_server
    first = put(server, "deploy/key", pool="lab")
    assert (first["pool"], first["name"], first["version"], first["opens"]) == ("lab", "deploy/key", 1, True)
    assert put(server, "deploy/key", pool="lab") == first, "the same value again changes nothing"
    assert put(server, "deploy/key", CANARY + "2", "lab")["version"] == 2
    put(server, "a", pool="ci")
    page = server.get("/api/v1/secrets?limit=1")
    assert [(one["pool"], one["name"]) for one in page["items"]] == [("ci", "a")]
    rest = server.get(f"/api/v1/secrets?limit=1&cursor={page['next']}")
    assert [(one["pool"], one["name"], one["version"]) for one in rest["items"]] == [("lab", "deploy/key", 2)]
    assert rest["next"] is None
    gone = server.ask("DELETE", "/api/v1/secrets/deploy%2Fkey?pool=lab")
    assert gone.json == {"pool": "lab", "name": "deploy/key", "tasks": 0}
    again = server.ask("DELETE", "/api/v1/secrets/deploy%2Fkey?pool=lab")
    assert (again.status, again.json["detail"]) == (404, "pool lab has no secret deploy/key")
    actions = [(one["action"], one["note"]) for one in server.get("/api/v1/audit")["items"]]
    assert actions[:4] == [
        ("delete_secret", "lab/deploy/key"),
        ("set_secret", "ci/a: version 1"),
        ("set_secret", "lab/deploy/key: version 2"),
        ("set_secret", "lab/deploy/key: version 1"),
    ]


def test_a_faulty_value_is_refused_and_not_repeated(server: RunningServer) -> None:
    bodies: list[object] = [
        {"value": "x" * 7},
        {"value": "x" * 20_481},
        {"value": ""},
        {"value": 7777777777},
        {"value": None},
        {"value": CANARY, "value_base64": "eA=="},
        {"value_base64": CANARY},
        {"value_base64": ""},
        {"value": "\ud800" + CANARY},
        {"valu": CANARY},
        [CANARY],
        f'{{"value": "{CANARY}'.encode(),
        b'{"value": 77777777777777777777777777}',
        {},
    ]
    for body in bodies:
        answer = server.ask("PUT", "/api/v1/secrets/x", body)
        assert answer.status == 400, body
        assert CANARY.encode() not in answer.body
        assert b"7777777" not in answer.body
    many = server.ask("PUT", "/api/v1/secrets/x", {"value": "short", "other": 1})
    assert sorted(many.paths) == ["other", "value"]
    assert server.ask("PUT", "/api/v1/secrets/%20x?pool=%20", {"value": CANARY}).status == 400
    assert not [one for one in server.get("/api/v1/secrets")["items"] if one["name"] == "x"]


def test_only_an_admin_of_the_pool_sets_a_secret_and_only_its_users_list_it(server: RunningServer) -> None:
    admin, user = server.token("pool:lab:admin"), server.token("pool:lab:secrets")
    put(server, "shared", pool="lab", token=admin)
    put(server, "foreign", pool="attic")
    for token in (user, server.token("pool:other:admin")):
        assert server.ask("PUT", "/api/v1/secrets/shared?pool=lab", {"value": CANARY}, token=token).status == 403
        assert server.ask("DELETE", "/api/v1/secrets/shared?pool=lab", token=token).status == 403
    for token in (admin, user):
        assert {one["pool"] for one in server.get("/api/v1/secrets", token=token)["items"]} == {"lab"}
        assert server.ask("GET", "/api/v1/secrets?pool=attic", token=token).status == 403
    assert server.ask("GET", "/api/v1/secrets", token=server.token("pool:lab:submit")).status == 403


def test_a_submitter_needs_the_right_to_use_the_secrets_of_the_pool(server: RunningServer) -> None:
    put(server, "usable", pool="lab")
    lab = {"dimensions": {"pool": "lab"}}
    document = graph(a=task(**lab, **named(WORD="usable")))
    inner = lab | {"payload": {"graph": graph(b=task(**lab, **named(WORD="usable")))}}
    weak, strong = server.token("pool:lab:submit"), server.token("pool:lab:submit", "pool:lab:secrets", "pool:lab:read")
    for refused in (document, graph(a=task(**inner)), graph(a={"task": {"slices": [lab | named(WORD="usable")]}})):
        answer = server.ask("POST", "/api/v1/graphs", refused, token=weak)
        assert answer.status == 403, answer.body
        assert "pool:lab:secrets" in answer.json["detail"]
    made = server.submit(document, token=strong)
    more = {"tasks": {"late": task(**lab, **named(WORD="usable"))}}
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", more, token=weak).status == 403
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", more, token=strong).status == 200
    server.hello("b-lab", "lab")
    run = leased(server, made, bot="b-lab")
    assert server.ask("POST", "/api/v1/graphs", document, token=run).status == 403, "a task hands none on"


def test_a_secret_that_does_not_exist_is_a_fault_with_its_path(server: RunningServer) -> None:
    put(server, "deploy-token")
    slices = [named(WORD="deploy-token"), named(WORD="deploy-tokn", KEY={"name": "nothing-like-it", "file": True})]
    node = {"task": {"slices": slices}}
    answer = server.ask("POST", "/api/v1/graphs", graph(a=node))
    assert (answer.status, answer.json["code"]) == (400, "invalid")
    assert {one["path"]: one["message"] for one in answer.json["faults"]} == {
        "tasks.a.task.payload.secrets.WORD": "pool default has no secret deploy-tokn; did you mean deploy-token?",
        "tasks.a.task.payload.secrets.KEY": "pool default has no secret nothing-like-it; "
        "set it with: taskyard secret set nothing-like-it",
    }


def test_an_attempt_gets_its_secrets_and_each_use_is_recorded_once(either_server: RunningServer) -> None:
    server = either_server
    server.hello()
    put(server, "mine")
    made = server.submit(graph(a=task(**named(WORD="mine", KEY={"name": "mine", "file": True})), b=task()))
    token = leased(server, made)
    for _ in range(2):
        answer = get(server, made, token)
        assert answer.headers["cache-control"] == "no-store"
        given = {
            one["variable"]: (base64.b64decode(one["body"]), one.get("is_file", False)) for one in answer.json["items"]
        }
        assert given == {"WORD": (CANARY.encode(), False), "KEY": (CANARY.encode(), True)}
    put(server, "mine", CANARY + "-new")
    assert base64.b64decode(get(server, made, token).json["items"][0]["body"]) == f"{CANARY}-new".encode()
    uses = [
        one for one in server.get(f"/api/v1/audit?subject={made.tasks['a']}")["items"] if one["action"] == "use_secret"
    ]
    assert [one["note"] for one in reversed(uses)] == [
        "default/mine version 1 as KEY in attempt 1",
        "default/mine version 1 as WORD in attempt 1",
        "default/mine version 2 as KEY in attempt 1",
        "default/mine version 2 as WORD in attempt 1",
    ]
    assert {one["actor"] for one in uses} == {f"task {made.tasks['a']}-1"}


def test_only_its_own_token_gets_the_secrets_of_an_attempt(server: RunningServer) -> None:
    server.hello()
    put(server, "mine")
    made, other = (
        server.submit(graph(a=task(**named(WORD="mine")))),
        server.submit(graph(a=task(**named(WORD="mine")))),
    )
    leases: list[Any] = []

    def take() -> bool:
        leases.extend(server.claim())
        return len({one.task for one in leases}) == 2

    wait_until(take)
    own = next(one for one in leases if one.task == made.key("a"))
    theirs = next(one for one in leases if one.task == other.key("a"))
    for token in (server.admin, server.token(kind="bot", pool="default"), server.run_token(theirs)):
        assert get(server, made, token).status == 403
    token = server.run_token(own)
    assert get(server, made, token).status == 200
    server.end(own, Signal.SUCCEED)
    assert get(server, made, token).status == 401, "it ended"
    none = server.submit(graph(a=task()))
    assert get(server, none, leased(server, none)).json == {}


def test_secret_bytes_of_a_request_are_one_blob_for_all_slices(either_server: RunningServer) -> None:
    server = either_server
    server.hello()
    blob = base64.b64encode(b"\x00" + CANARY.encode()).decode()
    properties = {"command": ["true"], "secret_bytes": blob}
    bodies: list[dict[str, Any]] = [
        {"properties": properties},
        {"secret_bytes": blob, "task": {"payload": {"command": ["true"]}}},
        {"task_slices": [{"properties": properties}, {"properties": properties}]},
    ]
    for body in bodies:
        key = {"Idempotency-Key": f"bytes-{bodies.index(body)}"}
        answer = server.ask("POST", "/api/v1/requests", body, headers=key)
        assert answer.status == 201, answer.body
        again = server.ask("POST", "/api/v1/requests", body, headers=key)
        assert (again.status, again.json["graph_id"]) == (200, answer.json["graph_id"])
        other = server.ask("POST", "/api/v1/requests", {**bodies[1], "secret_bytes": "b3RoZXI="}, headers=key)
        assert other.status == 409, "other bytes are another request"
        made = Made(answer.json["graph_id"], {"a": answer.json["nameMapping"]["request"]})
        (given,) = get(server, made, leased(server, made)).json["items"]
        assert (given["variable"], given["is_file"]) == ("TASKYARD_SECRET_BYTES", True)
        assert base64.b64decode(given["body"]) == b"\x00" + CANARY.encode()
        shown = server.ask("GET", f"/api/v1/tasks/{made.tasks['a']}").body
        assert b"has_secret_bytes" in shown
        assert blob.encode() not in shown


def test_faulty_secret_bytes_are_refused_and_not_repeated(server: RunningServer) -> None:
    blob = base64.b64encode(CANARY.encode()).decode()
    properties = {"command": ["true"], "secret_bytes": blob}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"properties": {"command": ["true"], "secret_bytes": CANARY}}, "properties.secret_bytes"),
        ({"properties": {"command": ["true"], "secret_bytes": 5}}, "properties.secret_bytes"),
        ({"properties": properties, "secret_bytes": "AAAA"}, "properties.secret_bytes"),
        ({"properties": {"command": ["true"], "secret_bytes": "A" * 27_312}}, "properties.secret_bytes"),
        (
            {"task_slices": [{"properties": properties}, {"properties": properties | {"secret_bytes": "AAAA"}}]},
            "task_slices[1].properties.secret_bytes",
        ),
    ]
    for body, path in rows:
        answer = server.ask("POST", "/api/v1/requests", body)
        assert answer.status == 400, body
        assert path in answer.paths
        assert CANARY.encode() not in answer.body
        assert blob.encode() not in answer.body
    flag = {"payload": {"command": ["true"], "has_secret_bytes": True}}
    assert server.ask("POST", "/api/v1/graphs", graph(a=task(**flag))).paths == [
        "tasks.a.task.payload.has_secret_bytes"
    ]


def test_no_value_is_in_the_database_files(server: RunningServer) -> None:
    put(server, "stored", CANARY)
    blob = base64.b64encode(CANARY.encode()).decode()
    assert (
        server.ask("POST", "/api/v1/requests", {"properties": {"command": ["true"], "secret_bytes": blob}}).status
        == 201
    )
    folder = Path(server.engine.store.url.removeprefix("sqlite:///")).parent
    files = [path for path in folder.iterdir() if path.is_file()]
    assert "secrets.key" in {path.name for path in files}
    for path in files:
        assert CANARY.encode() not in path.read_bytes()
        assert blob.encode() not in path.read_bytes()
