"""How tokens come, go and are sealed. Who may do what on which route: tests/hardening/matrix.txt."""

from itertools import product

from taskyard.core.states import Signal
from taskyard.server.auth import CACHE_S, Auth, BotGrant, Caller, Denial
from taskyard.server.settings import Settings
from taskyard.server.tokens import RunToken, RunTokenSigner
from tests.server.yard import Yard, graph, task

NONSENSE = "nonsense"
LAB = graph(a=task(dimensions={"pool": "lab"}))


def test_what_is_missing_is_named_and_a_challenge_is_sent(yard: Yard) -> None:
    reader = yard.token("pool:lab:read")
    answer = yard.ask("POST", "/api/v1/graphs", LAB, token=reader)
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert "pool:lab:submit" in answer.json["detail"]
    nobody = yard.ask("GET", "/api/v1/graphs", token=None)
    assert (nobody.status, nobody.headers["www-authenticate"]) == (401, "Bearer")
    assert nobody.headers["content-type"] == "application/problem+json"


def test_submitting_needs_a_right_in_every_pool_that_is_named(yard: Yard) -> None:
    lab = yard.token("pool:lab:submit")
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
    assert [yard.ask("POST", "/api/v1/graphs", one, token=lab).status for one in mixed] == [403] * len(mixed)
    everywhere = yard.token("pool:*:submit")
    assert [yard.ask("POST", "/api/v1/graphs", one, token=everywhere).status for one in mixed] == [201] * len(mixed)


def test_lists_show_only_what_one_may_see(either: Yard) -> None:
    mine = either.submit(LAB).id
    either.submit(graph(a=task(dimensions={"pool": "other"})))
    anywhere = either.submit(graph(a={"task": {"payload": {"command": ["true"]}}})).id
    either.hello("b1", "lab")
    either.hello("b2", "other")
    reader = either.token("pool:lab:read")
    assert [one["id"] for one in either.get("/api/v1/graphs", token=reader)["items"]] == [mine]
    in_default = either.token("pool:default:read")
    assert [one["id"] for one in either.get("/api/v1/graphs", token=in_default)["items"]] == [anywhere]
    assert either.ask("GET", f"/api/v1/graphs/{anywhere}", token=in_default).status == 200
    assert either.ask("GET", f"/api/v1/graphs/{anywhere}", token=reader).status == 403
    assert [one["id"] for one in either.get("/api/v1/bots", token=reader)["items"]] == ["b1"]
    assert either.get("/api/v1/bots?pool=other", token=reader)["items"] == []
    assert [one["name"] for one in either.get("/api/v1/pools", token=reader)["items"]] == ["lab"]


# Tokens.


def test_a_token_is_told_once_and_listed_without_its_secret(either: Yard) -> None:
    answer = either.ask(
        "POST", "/api/v1/tokens", {"name": "ann", "scopes": ["pool:default:read"], "expires_in_ms": 60_000}
    )
    text, view = answer.json["token"], answer.json["view"]
    assert (answer.status, view["kind"], view["name"], view["scopes"]) == (201, "user", "ann", ["pool:default:read"])
    assert view["expires_ms"] == view["created_ms"] + 60_000
    listed = either.ask("GET", "/api/v1/tokens")
    assert view in listed.json["items"]
    assert text.rpartition("_")[2].encode() not in listed.body
    with either.engine.store.read() as repo:
        assert text.rpartition("_")[2] not in repo.tokens.find([view["id"]])[view["id"]].digest


def test_tokens_are_listed_page_by_page(either: Yard) -> None:
    for _ in range(4):
        either.token("pool:a:read")
    seen: list[str] = []
    cursor = ""
    for _ in range(10):
        page = either.get(f"/api/v1/tokens?limit=2{cursor}")
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(seen) == len(set(seen)) == 5


def test_a_revoked_token_is_worth_nothing_at_once(yard: Yard) -> None:
    token = yard.token("pool:default:read")
    yard.get("/api/v1/graphs", token=token)
    answer = yard.ask("DELETE", f"/api/v1/tokens/{token.split('_')[2]}")
    assert (answer.status, answer.json["revoked_ms"] is not None) == (200, True)
    assert yard.ask("GET", "/api/v1/graphs", token=token).status == 401
    assert yard.ask("DELETE", "/api/v1/tokens/nope").status == 404


def test_a_token_that_is_over_is_worth_nothing(yard: Yard) -> None:
    token = yard.token("pool:default:read", expires_in_ms=1)
    yard.engine.clock.pause(5)
    assert yard.ask("GET", "/api/v1/graphs", token=token).status == 401


def test_a_token_with_another_secret_or_kind_is_none(yard: Yard) -> None:
    token = yard.token("pool:default:read")
    changed = token[:-1] + ("a" if token[-1] != "a" else "b")
    for bad in (changed, token.replace("ty_user_", "ty_bot_"), f"{token}x", "x", "ty_run_1", "ä", "x" * 5_000):
        assert yard.ask("GET", "/api/v1/graphs", token=bad.encode().decode("latin-1")).status == 401
    for header in ("Basic abc", "Bearer", "Bearer  "):
        assert yard.ask("GET", "/api/v1/graphs", token=None, headers={"Authorization": header}).status == 401


def test_every_fault_of_a_wish_for_a_token_is_told(yard: Yard) -> None:
    wish = {"kind": "odd", "scopes": ["all", "pool:a:fly", "pool::read"], "expires_in_ms": 0, "nam": "x"}
    answer = yard.ask("POST", "/api/v1/tokens", wish)
    assert answer.status == 400
    assert sorted(answer.paths) == ["expires_in_ms", "kind", "nam", "name", "scopes[0]", "scopes[1]", "scopes[2]"]
    assert yard.ask("POST", "/api/v1/tokens", {"name": "b", "kind": "bot", "scopes": ["admin"]}).paths == ["scopes"]


def test_a_newcomer_becomes_a_bot_in_the_pool_of_its_token(yard: Yard) -> None:
    newcomer = yard.token(kind="enrolment", pool="lab")
    answer = yard.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer)
    assert (answer.status, answer.json["view"]["kind"], answer.json["view"]["pool"]) == (201, "bot", "lab")
    grant = yard.server.app.context.auth.authenticate_bot(answer.json["token"])
    assert isinstance(grant, BotGrant)
    assert grant.pool == "lab"
    assert isinstance(yard.server.app.context.auth.authenticate_bot(newcomer), Denial)
    assert isinstance(yard.server.app.context.auth.authenticate_bot(yard.admin), Denial)


def test_an_enrolment_token_is_good_for_one_bot(either: Yard) -> None:
    newcomer, key = either.token(kind="enrolment", pool="lab"), {"Idempotency-Key": "of this bot alone"}
    first = either.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer, headers=key)
    again = either.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer, headers=key)
    assert (first.status, again.status) == (201, 201)
    assert first.json["token"] == again.json["token"], "an answer that was lost can be asked for again"
    for other in ({"Idempotency-Key": "of another bot"}, {}):
        refused = either.ask("POST", "/api/v1/enrol", {"name": "rack 4"}, token=newcomer, headers=other)
        assert (refused.status, "was used" in refused.json["detail"]) == (403, True)
    assert [one["name"] for one in either.get("/api/v1/tokens")["items"] if one["kind"] == "bot"] == ["rack 4"]


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


def test_the_token_of_a_running_task_is_for_its_own_graph_and_ends_with_the_attempt(either: Yard) -> None:
    made, other = either.submit(graph(a=task())), either.submit(graph(a=task()))
    either.hello()
    leases = {lease.task: lease for lease in either.claim()}
    mine = either.run_token(leases[made.key("a")])
    assert either.get(f"/api/v1/graphs/{made.id}", token=mine)["id"] == made.id
    assert either.get(f"/api/v1/tasks/{made.tasks['a']}/inputs", token=mine) == {}
    grown = either.ask("POST", f"/api/v1/graphs/{made.id}/tasks", {"tasks": {"b": task("a")}}, token=mine)
    assert grown.status == 200
    assert either.ask("POST", "/api/v1/graphs", graph(child=task()), token=mine).status == 201
    elsewhere = graph(child=task(dimensions={"pool": "lab"}))
    assert either.ask("POST", "/api/v1/graphs", elsewhere, token=mine).status == 403
    for method, path in [
        ("GET", f"/graphs/{other.id}"),
        ("GET", f"/tasks/{other.tasks['a']}"),
        ("POST", f"/graphs/{made.id}/cancel"),
        ("GET", "/graphs"),
        ("GET", "/tokens"),
        ("GET", "/bots"),
    ]:
        assert either.ask(method, f"/api/v1{path}", token=mine).status == 403, path
    either.end(leases[made.key("a")])
    assert either.ask("GET", f"/api/v1/graphs/{made.id}", token=mine).status == 401


def test_the_token_of_a_lost_attempt_is_worth_nothing_though_another_runs(yard: Yard) -> None:
    made = yard.submit(graph(a={**task(), "reruns": 1}))
    yard.hello()
    (first,) = yard.claim()
    yard.end(first, Signal.FAIL)
    (second,) = yard.claim()
    path = f"/api/v1/graphs/{made.id}"
    assert yard.ask("GET", path, token=yard.run_token(first)).status == 401
    assert yard.ask("GET", path, token=yard.run_token(second)).status == 200


# Denials and the audit.


def test_denials_leave_lines_and_a_flood_of_them_only_a_count(yard: Yard) -> None:
    for _ in range(60):
        assert yard.ask("GET", "/api/v1/graphs", token=NONSENSE).status == 401
    yard.engine.transact(lambda _: None)
    with yard.engine.store.read() as repo:
        denied = [row for row in repo.events.audits_of(0, 1_000) if row.action == "denied"]
    assert 20 <= len(denied) < 60
    assert denied[0].note == "401 bad_token: GET /api/v1/graphs"


def test_every_mutation_leaves_a_line_with_its_actor(yard: Yard) -> None:
    made = yard.submit(graph(a=task()))
    yard.ask("POST", f"/api/v1/graphs/{made.id}/cancel")
    yard.ask("PUT", "/api/v1/pools/lab", {"capacity": 3})
    yard.hello()
    yard.ask("PATCH", "/api/v1/bots/b1", {"draining": True})
    with yard.engine.store.read() as repo:
        rows = [*repo.events.audits_of(int(made.id, 16), 100), *repo.events.audits_of(0, 100)]
    said = {row.action for row in rows if row.actor.startswith("admin (")}
    assert {"submit", "cancel", "set_pool", "set_bot"} <= said


# Without authentication.


def test_without_authentication_everybody_may_and_running_tasks_still_have_their_own(sqlite_url: str) -> None:
    with Yard(sqlite_url, Settings(authentication=False)) as yard:
        made = yard.submit(graph(a=task()), token=None)
        assert yard.ask("GET", "/api/v1/tokens", token=None).status == 200
        assert yard.server.app.context.auth.authenticate_bot(None) == BotGrant("default", "anyone")
        yard.hello()
        (lease,) = yard.claim()
        assert yard.ask("GET", f"/api/v1/graphs/{made.id}", token=yard.run_token(lease)).status == 200
        assert yard.ask("GET", f"/api/v1/graphs/{made.id}", token=f"ty_run_{NONSENSE}").status == 401


def test_what_another_server_revoked_is_believed_for_some_seconds_only(yard: Yard) -> None:
    token = yard.token("pool:default:read")
    moments = iter([0.0, CACHE_S, CACHE_S + 1])
    auth = Auth(yard.engine, yard.signer, monotonic=lambda: next(moments))
    assert isinstance(auth.authenticate(token), Caller)
    yard.engine.transact(lambda transaction: transaction.repo.tokens.revoke(token.split("_")[2], transaction.now))
    assert isinstance(auth.authenticate(token), Caller)
    assert isinstance(auth.authenticate(token), Denial)
