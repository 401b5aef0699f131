"""The audit; changes of tokens and of the key of run tokens; the last admin token stays."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taskyard.lifecycle.commands import Refusal
from taskyard.server.settings import another_admin_token
from taskyard.views import audit
from tests.server.running_server import RunningServer, graph, task


def id_of(token: str) -> str:
    return token.split("_")[2]


def seen(server: RunningServer, query: str = "") -> list[tuple[str, str]]:
    return [(one["action"], one["note"]) for one in server.get(f"/api/v1/audit{query}")["items"]]


def test_the_audit_lists_who_requested_what_the_newest_first(either_server: RunningServer) -> None:
    ann = either_server.token("pool:default:submit", "pool:default:read")
    made = either_server.submit(graph(a=task()), token=ann)
    either_server.ask("POST", f"/api/v1/graphs/{made.id}/cancel", token=ann)
    rows = either_server.get("/api/v1/audit")["items"]
    assert [one["action"] for one in rows][-4:] == ["submit", "make_token", "make_token", "set_pool"]
    assert rows == sorted(rows, key=lambda one: -int(one["id"]))
    (submitted,) = either_server.get(f"/api/v1/audit?subject={made.id}&action=submit")["items"]
    assert submitted["actor"] == f"user of a test ({id_of(ann)})"
    assert (submitted["subject"], submitted["note"]) == (made.id, "1 task")
    for actor in (submitted["actor"].replace(" ", "%20"), "user%20of%20a%20test", id_of(ann)):
        assert ("submit", "1 task") in seen(either_server, f"?actor={actor}")
    assert seen(either_server, "?actor=nobody") == []
    assert seen(either_server, f"?subject={made.id}&until_ms={submitted['at_ms'] - 1}") == []
    assert seen(either_server, f"?subject={made.id}&since_ms={submitted['at_ms']}")[-1] == ("submit", "1 task")


def test_the_audit_comes_in_pages_and_the_search_for_one_is_bounded(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        server.submit(graph(a=task()))
    first = server.get("/api/v1/audit?action=submit&limit=3")
    rest = server.get(f"/api/v1/audit?action=submit&limit=3&cursor={first['next']}")
    assert [len(page["items"]) for page in (first, rest)] == [3, 2]
    assert rest["next"] is None
    monkeypatch.setattr(audit, "ROWS_MAX", 2)
    monkeypatch.setattr(audit, "LOOKED_MAX", 4)
    found: list[Any] = []
    page = server.get("/api/v1/audit?action=set_pool")
    for _ in range(10):
        found += page["items"]
        if page["next"] is None:
            break
        page = server.get(f"/api/v1/audit?action=set_pool&cursor={page['next']}")
    assert [one["action"] for one in found] == ["set_pool"]


def test_a_subject_that_is_no_id_is_a_fault(server: RunningServer) -> None:
    answer = server.ask("GET", "/api/v1/audit?subject=nonsense")
    assert answer.status == 400
    assert answer.paths == ["subject"]


def test_the_last_admin_token_cannot_be_revoked(either_server: RunningServer) -> None:
    path = f"/api/v1/tokens/{id_of(either_server.admin)}"
    either_server.token("pool:lab:admin")
    brief = either_server.token("admin", expires_in_ms=1)
    assert either_server.ask("GET", "/api/v1/about", token=brief).status == 401
    refusal = either_server.ask("DELETE", path)
    assert refusal.status == 409
    assert "the last token with the scope admin" in refusal.json["detail"]
    another = either_server.token("admin")
    assert either_server.ask("DELETE", path).status == 200
    assert either_server.ask("DELETE", f"/api/v1/tokens/{id_of(another)}", token=another).status == 409


def test_an_admin_token_that_the_server_made_for_a_file_is_in_the_audit(server: RunningServer) -> None:
    text = another_admin_token(server.engine, "serve --admin-token")
    assert ("make_token", f"{id_of(text)}: user admin") in seen(
        server,
        "?actor=serve%20--admin-token",
    )
    assert server.ask("GET", "/api/v1/tokens", token=text).status == 200


def test_a_rotated_token_is_followed_by_one_that_may_do_the_same(either_server: RunningServer) -> None:
    for kind, said in (
        ("user", {"scopes": ["pool:lab:read"]}),
        ("bot", {"pool": "lab"}),
        ("enrolment", {"pool": "lab"}),
    ):
        old = either_server.token(kind=kind, expires_in_ms=3_600_000, **said)
        answer = either_server.ask("POST", f"/api/v1/tokens/{id_of(old)}/rotate")
        assert answer.status == 201, answer.body
        new, view = answer.json["token"], answer.json["view"]
        was = next(one for one in either_server.get("/api/v1/tokens")["items"] if one["id"] == id_of(old))
        alike = ("kind", "name", "scopes", "pool", "expires_ms")
        assert [view[one] for one in alike] == [was[one] for one in alike]
        assert was["revoked_ms"] is not None
        assert either_server.ask("GET", "/api/v1/about", token=old).status == 401
        assert either_server.ask("GET", "/api/v1/about", token=new).status == 200
        assert either_server.ask("POST", f"/api/v1/tokens/{id_of(old)}/rotate").status == 409
        assert ("rotate_token", f"{id_of(old)} is followed by {id_of(new)}") in seen(either_server)
    assert either_server.ask("POST", "/api/v1/tokens/none/rotate").status == 404


def test_a_rotated_token_can_stay_good_for_a_while(either_server: RunningServer) -> None:
    old = either_server.token("pool:lab:read")
    answer = either_server.ask("POST", f"/api/v1/tokens/{id_of(old)}/rotate", {"keep_ms": 3_600_000})
    for token in (old, answer.json["token"]):
        assert either_server.ask("GET", "/api/v1/about", token=token).status == 200
    was = next(one for one in either_server.get("/api/v1/tokens")["items"] if one["id"] == id_of(old))
    assert (was["revoked_ms"], was["expires_ms"] - answer.json["view"]["created_ms"] >= 3_600_000) == (None, True)


def test_the_last_admin_token_can_be_rotated(either_server: RunningServer) -> None:
    answer = either_server.ask("POST", f"/api/v1/tokens/{id_of(either_server.admin)}/rotate")
    assert answer.status == 201
    assert either_server.ask("GET", "/api/v1/tokens").status == 401
    assert either_server.ask("GET", "/api/v1/tokens", token=answer.json["token"]).status == 200


def test_after_the_key_of_run_tokens_is_changed_tasks_that_run_keep_theirs(either_server: RunningServer) -> None:
    either_server.hello()
    made = either_server.submit(graph(a=task()))
    (lease,) = either_server.claim()
    path, old = f"/api/v1/graphs/{made.id}", either_server.run_token(lease)
    assert either_server.ask("POST", "/api/v1/run-key/rotate").json == {"kept": True}
    new = either_server.http.app.context.signer.sign(lease.task, lease.attempt, lease.fence)
    assert new != old
    for token in (old, new):
        assert either_server.ask("GET", path, token=token).status == 200
    assert either_server.ask("POST", "/api/v1/run-key/rotate", {"keep": False}).json == {"kept": False}
    for token in (old, new):
        assert either_server.ask("GET", path, token=token).status == 401
    assert [one for one, _ in seen(either_server)].count("rotate_run_key") == 2


def test_another_server_of_the_same_database_follows_a_changed_key(postgres_url: str) -> None:
    from taskyard.engine.engine import Engine  # noqa: PLC0415
    from taskyard.server.serve import Server  # noqa: PLC0415
    from taskyard.server.settings import Settings  # noqa: PLC0415

    with RunningServer(postgres_url) as one, Engine.open(postgres_url) as engine, Server(engine, Settings()) as other:
        assert one.ask("POST", "/api/v1/run-key/rotate", {"keep": False}).status == 200
        assert other.app.context.signer.sign(1, 1, 1) != one.http.app.context.signer.sign(1, 1, 1)
        fresh = one.token("pool:lab:read")
        assert not isinstance(other.app.context.auth.authenticate(fresh), str)
        assert other.app.context.signer.sign(1, 1, 1) == one.http.app.context.signer.sign(1, 1, 1)


def test_two_servers_that_revoke_an_admin_token_each_leave_one(postgres_url: str) -> None:
    from taskyard.engine.engine import Engine  # noqa: PLC0415
    from taskyard.server.routes.access import _revoke  # noqa: PLC0415

    def revoked(engine: Engine, id: str) -> object:
        return engine.transact(lambda transaction: _revoke(transaction, id, "a test"))

    with RunningServer(postgres_url) as one, Engine.open(postgres_url) as other, ThreadPoolExecutor(2) as both:
        last = id_of(one.admin)
        for _ in range(10):
            fresh = id_of(one.token("admin"))
            asked = [both.submit(revoked, engine, id) for engine, id in ((one.engine, last), (other, fresh))]
            refused = [isinstance(each.result(60), Refusal) for each in asked]
            assert sorted(refused) == [False, True]
            last = last if refused[0] else fresh
            one.admin = another_admin_token(one.engine, "a test")
            revoked(one.engine, last)
            last = id_of(one.admin)
