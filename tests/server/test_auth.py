"""How tokens come, go and are sealed. Who may do what on which route: tests/hardening/matrix.txt."""

from itertools import product

from taskyard.core.states import Signal
from taskyard.server.auth import CACHE_S, Auth, BotGrant, Caller, Denial
from taskyard.server.settings import Settings
from taskyard.server.tokens import RunToken, RunTokenSigner
from tests.server.running_server import RunningServer, graph, task

NONSENSE = "nonsense"
LAB = graph(a=task(dimensions={"pool": "lab"}))


def test_what_is_missing_is_named_and_a_challenge_is_sent(server: RunningServer) -> None:
    reader = server.token("pool:lab:read")
    answer = server.ask("POST", "/api/v1/graphs", LAB, token=reader)
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert "pool:lab:submit" in answer.json["detail"]
    without_token = server.ask("GET", "/api/v1/graphs", token=None)
    assert (without_token.status, without_token.headers["www-authenticate"]) == (401, "Bearer")
    assert without_token.headers["content-type"] == "application/problem+json"


def test_submitting_needs_a_right_in_every_pool_that_is_named(server: RunningServer) -> None:
    lab = server.token("pool:lab:submit")
    mixed = [
        graph(a=task(dimensions={"pool": "lab"}), b=task(dimensions={"pool": "other"})),
        graph(a={"task": {"payload": {"noop": True}}}),
        graph(a=task(dimensions={"pool": ["other"]})),
        graph(
            a={
                "matrix": {"where": ["lab", "other"]},
                "task": {"payload": {"command": ["true"]}, "dimensions": {"pool": {"$matrix": "where"}}},
            }
        ),
        graph(
            a={
                "task": {
                    "payload": {"command": ["true"]},
                    "slices": [{"dimensions": {"pool": "lab"}}, {"dimensions": {"pool": "other"}}],
                }
            }
        ),
    ]
    assert [server.ask("POST", "/api/v1/graphs", one, token=lab).status for one in mixed] == [403] * len(mixed)
    everywhere = server.token("pool:*:submit")
    assert [server.ask("POST", "/api/v1/graphs", one, token=everywhere).status for one in mixed] == [201] * len(mixed)


def test_lists_show_only_what_one_may_see(either_server: RunningServer) -> None:
    mine = either_server.submit(LAB).id
    either_server.submit(graph(a=task(dimensions={"pool": "other"})))
    anywhere = either_server.submit(graph(a={"task": {"payload": {"command": ["true"]}}})).id
    either_server.hello("b1", "lab")
    either_server.hello("b2", "other")
    reader = either_server.token("pool:lab:read")
    assert [one["id"] for one in either_server.get("/api/v1/graphs", token=reader)["items"]] == [mine]
    in_default = either_server.token("pool:default:read")
    assert [one["id"] for one in either_server.get("/api/v1/graphs", token=in_default)["items"]] == [anywhere]
    assert either_server.ask("GET", f"/api/v1/graphs/{anywhere}", token=in_default).status == 200
    assert either_server.ask("GET", f"/api/v1/graphs/{anywhere}", token=reader).status == 403
    assert [one["id"] for one in either_server.get("/api/v1/bots", token=reader)["items"]] == ["b1"]
    assert either_server.get("/api/v1/bots?pool=other", token=reader)["items"] == []
    assert [one["name"] for one in either_server.get("/api/v1/pools", token=reader)["items"]] == ["lab"]


# Tokens.


def test_a_token_is_shown_once_and_listed_without_its_secret(either_server: RunningServer) -> None:
    answer = either_server.ask(
        "POST", "/api/v1/tokens", {"name": "ann", "scopes": ["pool:default:read"], "expires_in_ms": 60_000}
    )
    text, view = answer.json["token"], answer.json["view"]
    assert (answer.status, view["kind"], view["name"], view["scopes"]) == (201, "user", "ann", ["pool:default:read"])
    assert view["expires_ms"] == view["created_ms"] + 60_000
    listed = either_server.ask("GET", "/api/v1/tokens")
    assert view in listed.json["items"]
    assert text.rpartition("_")[2].encode() not in listed.body
    with either_server.engine.store.read() as repo:
        assert text.rpartition("_")[2] not in repo.tokens.find([view["id"]])[view["id"]].digest


def test_tokens_are_listed_page_by_page(either_server: RunningServer) -> None:
    for _ in range(4):
        either_server.token("pool:a:read")
    seen: list[str] = []
    cursor = ""
    for _ in range(10):
        page = either_server.get(f"/api/v1/tokens?limit=2{cursor}")
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(seen) == len(set(seen)) == 5


def test_a_revoked_token_is_worth_nothing_at_once(server: RunningServer) -> None:
    token = server.token("pool:default:read")
    server.get("/api/v1/graphs", token=token)
    answer = server.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}")
    assert (answer.status, answer.json["revoked_ms"] is not None) == (200, True)
    assert server.ask("GET", "/api/v1/graphs", token=token).status == 401
    assert server.ask("DELETE", "/api/v1/tokens/nope").status == 404


def test_a_token_that_is_over_is_worth_nothing(server: RunningServer) -> None:
    token = server.token("pool:default:read", expires_in_ms=1)
    server.engine.clock.pause(5)
    assert server.ask("GET", "/api/v1/graphs", token=token).status == 401


def test_a_token_with_another_secret_or_kind_is_none(server: RunningServer) -> None:
    token = server.token("pool:default:read")
    changed = token[:-1] + ("a" if token[-1] != "a" else "b")
    for bad in (changed, token.replace("ty_user_", "ty_bot_"), f"{token}x", "x", "ty_run_1", "ä", "x" * 5_000):
        assert server.ask("GET", "/api/v1/graphs", token=bad.encode().decode("latin-1")).status == 401
    for header in ("Basic abc", "Bearer", "Bearer  "):
        assert server.ask("GET", "/api/v1/graphs", token=None, headers={"Authorization": header}).status == 401


def test_every_fault_of_a_request_for_a_token_is_listed(server: RunningServer) -> None:
    request = {"kind": "odd", "scopes": ["all", "pool:a:fly", "pool::read"], "expires_in_ms": 0, "nam": "x"}
    answer = server.ask("POST", "/api/v1/tokens", request)
    assert answer.status == 400
    assert sorted(answer.paths) == ["expires_in_ms", "kind", "nam", "name", "scopes[0]", "scopes[1]", "scopes[2]"]
    assert server.ask("POST", "/api/v1/tokens", {"name": "b", "kind": "bot", "scopes": ["admin"]}).paths == ["scopes"]


def test_a_newcomer_becomes_a_bot_in_the_pool_of_its_token(server: RunningServer) -> None:
    newcomer = server.token(kind="enrolment", pool="lab")
    answer = server.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer)
    assert (answer.status, answer.json["view"]["kind"], answer.json["view"]["pool"]) == (201, "bot", "lab")
    grant = server.http.app.context.auth.authenticate_bot(answer.json["token"])
    assert isinstance(grant, BotGrant)
    assert grant.pool == "lab"
    assert isinstance(server.http.app.context.auth.authenticate_bot(newcomer), Denial)
    assert isinstance(server.http.app.context.auth.authenticate_bot(server.admin), Denial)


def test_an_enrolment_token_is_good_for_one_bot(either_server: RunningServer) -> None:
    newcomer, key = either_server.token(kind="enrolment", pool="lab"), {"Idempotency-Key": "of this bot alone"}
    first = either_server.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer, headers=key)
    again = either_server.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer, headers=key)
    assert (first.status, again.status) == (201, 201)
    assert first.json["token"] == again.json["token"], "an answer that was lost can be asked for again"
    for other in ({"Idempotency-Key": "of another bot"}, {}):
        refused = either_server.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer, headers=other)
        assert (refused.status, "was used" in refused.json["detail"]) == (403, True)
    assert [one["name"] for one in either_server.get("/api/v1/tokens")["items"] if one["kind"] == "bot"] == ["rack 4"]


# Tokens of running tasks.


def test_a_seal_knows_itself_and_nothing_else() -> None:
    signer, other = RunTokenSigner(bytes(32)), RunTokenSigner(b"x" * 32)
    text = signer.sign(0x1234567890ABCDE8, 3, 7)
    assert text.startswith("ty_run_1234567890abcde8_3_7_")
    assert signer.verify(text) == RunToken(0x1234567890ABCDE8, 3, 7)
    assert other.verify(text) is None
    for place, letter in product(range(0, len(text), 3), "0f"):
        changed = text[:place] + letter + text[place + 1 :]
        assert changed == text or signer.verify(changed) is None
    assert signer.verify(text + "\n") is None
    assert signer.verify("") is None


def test_the_token_of_a_running_task_is_for_its_own_graph_and_ends_with_the_attempt(
    either_server: RunningServer,
) -> None:
    made, other = either_server.submit(graph(a=task())), either_server.submit(graph(a=task()))
    either_server.hello()
    leases = {lease.task: lease for lease in either_server.claim()}
    mine = either_server.run_token(leases[made.key("a")])
    assert either_server.get(f"/api/v1/graphs/{made.id}", token=mine)["id"] == made.id
    assert either_server.get(f"/api/v1/tasks/{made.tasks['a']}/inputs", token=mine) == {}
    grown = either_server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", {"tasks": {"b": task("a")}}, token=mine)
    assert grown.status == 200
    assert either_server.ask("POST", "/api/v1/graphs", graph(child=task()), token=mine).status == 201
    elsewhere = graph(child=task(dimensions={"pool": "lab"}))
    assert either_server.ask("POST", "/api/v1/graphs", elsewhere, token=mine).status == 403
    for method, path in [
        ("GET", f"/graphs/{other.id}"),
        ("GET", f"/tasks/{other.tasks['a']}"),
        ("POST", f"/graphs/{made.id}/cancel"),
        ("GET", "/graphs"),
        ("GET", "/tokens"),
        ("GET", "/bots"),
    ]:
        assert either_server.ask(method, f"/api/v1{path}", token=mine).status == 403, path
    either_server.end(leases[made.key("a")])
    assert either_server.ask("GET", f"/api/v1/graphs/{made.id}", token=mine).status == 401


def test_the_token_of_a_lost_attempt_is_worth_nothing_though_another_runs(server: RunningServer) -> None:
    made = server.submit(graph(a={**task(), "reruns": 1}))
    server.hello()
    (first,) = server.claim()
    server.end(first, Signal.FAIL)
    (second,) = server.claim()
    path = f"/api/v1/graphs/{made.id}"
    assert server.ask("GET", path, token=server.run_token(first)).status == 401
    assert server.ask("GET", path, token=server.run_token(second)).status == 200


def test_a_running_task_keeps_its_token_when_its_restarted_bot_adopts_it(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello(session="here/1")
    (lease,) = server.claim(session="here/1")
    token, path = server.run_token(lease), f"/api/v1/graphs/{made.id}"
    adopts = [{"task": made.tasks["a"], "attempt": lease.attempt, "fence": lease.fence}]
    body = {"bot": "b1", "session": "here/2", "slots": 8, "begun": [], "replaces": "here/1", "adopts": adopts}
    welcome = server.ask("POST", "/api/v1/bot/hello", body, token=server.token(kind="bot"))
    assert welcome.status == 200, welcome.body
    (adopted,) = welcome.json["adopted"]
    assert (adopted["task"], adopted["attempt"]) == (made.tasks["a"], 1)
    assert adopted["fence"] > lease.fence
    assert server.ask("GET", path, token=token).status == 200
    published = server.ask("PUT", f"/api/v1/tasks/{made.tasks['a']}/progress", b"half", token=token)
    assert published.status < 300, published.body
    assert server.ask("GET", path, token=server.signer.sign(lease.task, 1, lease.fence + 1)).status == 401


# Denials and the audit.


def test_denials_leave_lines_and_a_flood_of_them_only_a_count(server: RunningServer) -> None:
    for _ in range(60):
        assert server.ask("GET", "/api/v1/graphs", token=NONSENSE).status == 401
    server.engine.transact(lambda _: None)
    with server.engine.store.read() as repo:
        denied = [row for row in repo.events.audits_of(0, 1_000) if row.action == "denied"]
    assert 20 <= len(denied) < 60
    assert denied[0].note == "401 bad_token: GET /api/v1/graphs"


def test_every_mutation_leaves_a_line_with_its_actor(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.ask("POST", f"/api/v1/graphs/{made.id}/cancel")
    server.ask("PUT", "/api/v1/pools/lab", {"capacity": 3})
    server.hello()
    server.ask("PATCH", "/api/v1/bots/b1", {"draining": True})
    with server.engine.store.read() as repo:
        rows = [*repo.events.audits_of(int(made.id, 16), 100), *repo.events.audits_of(0, 100)]
    said = {row.action for row in rows if row.actor.startswith("admin (")}
    assert {"submit", "cancel", "set_pool", "set_bot"} <= said


# Without authentication.


def test_without_authentication_every_caller_has_every_right_and_running_tasks_only_their_own(sqlite_url: str) -> None:
    with RunningServer(sqlite_url, Settings(authentication=False)) as server:
        made = server.submit(graph(a=task()), token=None)
        assert server.ask("GET", "/api/v1/tokens", token=None).status == 200
        assert server.http.app.context.auth.authenticate_bot(None) == BotGrant("default", "anyone")
        server.hello()
        (lease,) = server.claim()
        assert server.ask("GET", f"/api/v1/graphs/{made.id}", token=server.run_token(lease)).status == 200
        assert server.ask("GET", f"/api/v1/graphs/{made.id}", token=f"ty_run_{NONSENSE}").status == 401


def test_what_another_server_revoked_is_believed_for_some_seconds_only(server: RunningServer) -> None:
    token = server.token("pool:default:read")
    moments = iter([0.0, CACHE_S, CACHE_S + 1])
    auth = Auth(server.engine, server.signer, monotonic=lambda: next(moments))
    assert isinstance(auth.authenticate(token), Caller)
    server.engine.transact(lambda transaction: transaction.repo.tokens.revoke(token.split("_")[2], transaction.now))
    assert isinstance(auth.authenticate(token), Caller)
    assert isinstance(auth.authenticate(token), Denial)
