"""The routes of webhooks: what is refused, who may use them, and that no answer has a secret."""

import base64

from tests.server.running_server import RunningServer

SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
HOOK = {"url": "https://ci.example.org/hook", "secret": SECRET}


def test_a_webhook_is_set_changed_listed_and_deleted(either_server: RunningServer) -> None:
    server, key = either_server, {"Idempotency-Key": "once"}
    finished = {**HOOK, "kinds": ["graph.finished"]}
    made, again = (server.ask("PUT", "/api/v1/webhooks/ci", finished, headers=key) for _ in range(2))
    assert (made.status, again.status) == (200, 200), made.body
    assert SECRET.encode() not in made.body
    changed = server.ask("PUT", "/api/v1/webhooks/ci", {"url": "https://other.example.org/", "paused": True}).json
    assert (changed["url"], changed["kinds"], changed["paused"]) == ("https://other.example.org/", [], True)
    (one,) = server.get("/api/v1/webhooks")["items"]
    assert one == changed
    assert one["backlog"] == one["dead"] == 0
    assert server.get("/api/v1/secrets")["items"] == []
    again = server.ask("POST", "/api/v1/webhooks/ci/dead/send", {})
    assert (again.status, again.json) == (200, {"count": 0})
    assert [server.ask("DELETE", "/api/v1/webhooks/ci").status for _ in range(2)] == [204, 404]
    actions = {one["action"] for one in server.get("/api/v1/audit")["items"]}
    assert {"set_webhook", "delete_webhook", "resend_webhook"} <= actions


def test_a_webhook_with_faults_is_refused_with_all_of_them(either_server: RunningServer) -> None:
    bad = {"url": "ftp://a/", "secret": "short", "pool": "", "graph": "x", "kinds": ["graph.none"], "other": 1}
    answer = either_server.ask("PUT", "/api/v1/webhooks/ci", bad)
    assert (answer.status, sorted({path.split("[")[0].split(".")[0] for path in answer.paths})) == (
        400, ["graph", "kinds", "other", "pool", "secret", "url"]
    )  # fmt: skip
    assert either_server.ask("PUT", "/api/v1/webhooks/ci", {"url": HOOK["url"]}).paths == ["secret"]
    assert either_server.get("/api/v1/webhooks")["items"] == []


def test_an_admin_of_a_pool_has_the_webhooks_of_that_pool_alone(server: RunningServer) -> None:
    token = server.token("pool:lab:admin")
    statuses = [
        server.ask("PUT", f"/api/v1/webhooks/{name}", {**HOOK, "pool": pool}, token=token).status
        for name, pool in (("lab", "lab"), ("ci", "ci"), ("all", None))
    ]
    assert statuses == [200, 403, 403]
    server.ask("PUT", "/api/v1/webhooks/all", HOOK)
    assert [one["name"] for one in server.get("/api/v1/webhooks", token=token)["items"]] == ["lab"]
    for method, path in (("PUT", "all"), ("DELETE", "all"), ("POST", "all/test"), ("GET", "all/dead")):
        assert (
            server.ask(method, f"/api/v1/webhooks/{path}", HOOK if method == "PUT" else None, token=token).status == 403
        )


def test_a_test_never_reaches_an_address_inside(server: RunningServer) -> None:
    server.ask("PUT", "/api/v1/webhooks/own", {**HOOK, "url": server.http.url})
    found = server.ask("POST", "/api/v1/webhooks/own/test").json
    assert (found["delivered"], found["status"]) == (False, None)
    assert "not of the public Internet" in found["error"]
