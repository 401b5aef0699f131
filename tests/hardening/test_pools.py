"""Pools are the border between people: nothing of one is seen, named or ended from another."""

from tests.server.yard import Yard, graph, task

LAB = {"pool": "lab"}


def hello(yard: Yard, token: str, bot: str, session: str) -> int:
    return yard.ask("POST", "/api/v1/bot/hello", {"bot": bot, "session": session}, token=token).status


def test_a_bot_cannot_take_the_name_of_one_that_lives_in_another_pool(yard: Yard) -> None:
    lab, other = yard.token(kind="bot", pool="lab"), yard.token(kind="bot", pool="other")
    made = yard.submit(graph(a=task(dimensions=LAB)))
    assert hello(yard, lab, "rack1", "s1") == 200
    poll = {"bot": "rack1", "session": "s1", "poll": "p1", "want": 1}
    assert yard.ask("POST", "/api/v1/bot/poll", poll, token=lab).json["leases"][0]["task"] == made.tasks["a"]
    assert hello(yard, other, "rack1", "s2") == 403
    assert yard.get(f"/api/v1/tasks/{made.tasks['a']}")["state"] == "running"
    assert yard.get("/api/v1/bots/rack1")["pool"] == "lab"


def test_a_bot_that_said_goodbye_may_come_back_in_another_pool(yard: Yard) -> None:
    lab, other = yard.token(kind="bot", pool="lab"), yard.token(kind="bot", pool="other")
    assert hello(yard, lab, "mover", "s1") == 200
    assert yard.ask("POST", "/api/v1/bot/goodbye", {"bot": "mover", "session": "s1"}, token=lab).status == 204
    assert hello(yard, other, "mover", "s2") == 200
    assert yard.get("/api/v1/bots/mover")["pool"] == "other"


def test_dimensions_of_bots_in_other_pools_are_not_told(yard: Yard) -> None:
    yard.hello("secret-rack", "hidden", gpu="h100")
    yard.hello("open-rack", "open", gpu="none")
    told = yard.get("/api/v1/dimensions", token=yard.token("pool:open:read"))
    assert told == {"dimensions": {"gpu": ["none"], "id": ["open-rack"], "pool": ["open"]}, "bots": 1}
    everything = yard.get("/api/v1/dimensions")["dimensions"]
    assert {"secret-rack", "open-rack"} <= set(everything["id"])
