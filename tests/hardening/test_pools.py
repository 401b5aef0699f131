"""Pools are the border between people: nothing of one is seen, named or ended from another."""

from tests.server.running_server import RunningServer, graph, task

LAB = {"pool": "lab"}


def hello(server: RunningServer, token: str, bot: str, session: str) -> int:
    return server.ask("POST", "/api/v1/bot/hello", {"bot": bot, "session": session}, token=token).status


def test_a_bot_cannot_take_the_name_of_a_live_one_in_another_pool(server: RunningServer) -> None:
    lab, other = server.token(kind="bot", pool="lab"), server.token(kind="bot", pool="other")
    made = server.submit(graph(a=task(dimensions=LAB)))
    assert hello(server, lab, "rack1", "s1") == 200
    poll = {"bot": "rack1", "session": "s1", "poll": "p1", "want": 1}
    assert server.ask("POST", "/api/v1/bot/poll", poll, token=lab).json["leases"][0]["task"] == made.tasks["a"]
    assert hello(server, other, "rack1", "s2") == 403
    assert server.get(f"/api/v1/tasks/{made.tasks['a']}")["state"] == "running"
    assert server.get("/api/v1/bots/rack1")["pool"] == "lab"


def test_a_name_belongs_to_its_pool_also_after_the_bot_has_ended_until_an_admin_frees_it(server: RunningServer) -> None:
    lab, other = server.token(kind="bot", pool="lab"), server.token(kind="bot", pool="other")
    assert hello(server, lab, "mover", "s1") == 200
    busy = server.ask("POST", "/api/v1/bots/mover/free")
    assert (busy.status, "end it first" in busy.json["detail"]) == (409, True)
    assert server.ask("POST", "/api/v1/bot/goodbye", {"bot": "mover", "session": "s1"}, token=lab).status == 204
    assert hello(server, other, "mover", "s2") == 403
    assert server.ask("POST", "/api/v1/bots/mover/free", token=server.token("pool:other:admin")).status == 403
    assert server.ask("POST", "/api/v1/bots/mover/free", token=server.token("pool:lab:admin")).status == 200
    assert hello(server, other, "mover", "s2") == 200
    assert server.get("/api/v1/bots/mover")["pool"] == "other"
    assert hello(server, lab, "mover", "s3") == 403
    assert "freed" in {one["kind"] for one in server.get("/api/v1/bots/mover/events")["items"]}


def test_a_name_is_not_free_while_its_bot_has_leases(server: RunningServer) -> None:
    server.submit(graph(a=task()))
    server.hello("holder")
    assert len(server.claim("holder")) == 1
    server.engine.transact(
        lambda transaction: transaction.repo.bots.end_sessions(["holder"])
    )  # as if it had more than one goodbye ends
    held = server.ask("POST", "/api/v1/bots/holder/free")
    assert (held.status, "leases" in held.json["detail"]) == (409, True)


def test_a_bot_of_another_pool_cannot_speak_in_the_name_of_one(server: RunningServer) -> None:
    lab, other = server.token(kind="bot", pool="lab"), server.token(kind="bot", pool="other")
    made = server.submit(graph(a=task(dimensions=LAB), b=task(dimensions=LAB)))
    assert hello(server, lab, "rack2", "s1") == 200
    who = {"bot": "rack2", "session": "s1"}
    (lease,) = server.ask("POST", "/api/v1/bot/poll", {**who, "poll": "p1", "want": 1}, token=lab).json["leases"]
    ended = {"task": lease["task"], "attempt": 1, "fence": lease["fence"], "signal": "succeed"}
    for route, said in [
        ("poll", {**who, "poll": "p2", "want": 1}),
        ("poll", {**who, "reports": [ended]}),
        ("trouble", {**who, "text": "its disk is full"}),
        ("goodbye", who),
        ("hello", who),
    ]:
        answer = server.ask("POST", f"/api/v1/bot/{route}", said, token=other)
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), route
    states = {one["label"]: one["state"] for one in server.get(f"/api/v1/graphs/{made.id}/tasks")["items"]}
    assert sorted(states.values()) == ["running", "waiting"]
    assert server.ask("POST", "/api/v1/bot/poll", {**who, "reports": [ended]}, token=lab).status == 200
    assert server.get(f"/api/v1/tasks/{lease['task']}")["state"] == "successful"


def test_dimensions_of_bots_in_other_pools_are_not_shown(server: RunningServer) -> None:
    server.hello("secret-rack", "hidden", gpu="h100")
    server.hello("open-rack", "open", gpu="none")
    shown = server.get("/api/v1/dimensions", token=server.token("pool:open:read"))
    assert shown == {"dimensions": {"gpu": ["none"], "id": ["open-rack"], "pool": ["open"], "slots": ["8"]}, "bots": 1}
    everything = server.get("/api/v1/dimensions")["dimensions"]
    assert {"secret-rack", "open-rack"} <= set(everything["id"])
