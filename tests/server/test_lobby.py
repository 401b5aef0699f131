"""Bots over HTTP: who comes in, what they are given, and that nobody is left waiting."""

import base64
import threading
from typing import Any

import pytest

from tests.engine.rig import soon
from tests.server.yard import Answer, Yard, graph, task


def hello(yard: Yard, token: str | None, **said: object) -> Answer:
    return yard.ask("POST", "/api/v1/bot/hello", {"bot": "b1", "session": "s1"} | said, token=token)


def poll(yard: Yard, token: str, **said: object) -> Any:
    answer = yard.ask("POST", "/api/v1/bot/poll", {"bot": "b1", "session": "s1"} | said, token=token)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.fixture
def bot(yard: Yard) -> str:
    token = yard.token(kind="bot", pool="lab")
    assert hello(yard, token).json["pool"] == "lab"
    return token


def test_only_bots_come_in_and_their_token_names_their_pool(yard: Yard) -> None:
    bot = yard.token(kind="bot", pool="lab")
    assert hello(yard, None).status == 401
    assert hello(yard, "nonsense").status == 401
    assert hello(yard, yard.admin).status == 403
    assert hello(yard, yard.token(kind="enrolment", pool="lab")).status == 403
    assert hello(yard, bot, dimensions={"pool": ["default"]}).json["pool"] == "lab"
    assert yard.get("/api/v1/bots/b1")["dimensions"]["pool"] == ["lab"]
    yard.ask("DELETE", f"/api/v1/tokens/{bot.split('_')[2]}")
    assert hello(yard, bot).status == 401


def test_a_task_is_run_over_http_from_its_submission_to_its_result(yard: Yard, bot: str) -> None:
    made = yard.submit(graph(a=task(dimensions={"pool": "lab"}), b=task("a", dimensions={"pool": "lab"})))
    (lease,) = poll(yard, bot, want=1, poll="p1")["leases"]
    assert (lease["task"], lease["payload"]) == (made.tasks["a"], {"command": ["true"]})
    path, mine = f"/api/v1/tasks/{made.tasks['a']}", lease["token"]
    named = {name: lease[name] for name in ("task", "attempt", "fence")}
    body = base64.b64encode(b"building\n").decode()
    assert poll(yard, bot, outputs=[named | {"start": 0, "body": body}])["kept"][0]["size"] == 9
    assert yard.ask("PUT", f"{path}/result", {"n": 1}, token=mine).status == 204
    assert yard.ask("PUT", f"{path}/progress", b"half", token=mine).status == 204
    assert yard.ask("POST", f"/api/v1/graphs/{made.id}/tasks", graph(c=task("a")), token=mine).status == 403
    grown = {"tasks": {"c": task("a", dimensions={"pool": "lab"})}}
    assert yard.ask("POST", f"/api/v1/graphs/{made.id}/tasks", grown, token=mine).status == 200
    leases = poll(yard, bot, want=2, poll="p2", reports=[named | {"signal": "succeed", "exit_code": 0}])["leases"]
    assert {one["label"] for one in leases} == {"b", "c"}
    assert leases[0]["inputs"] == {"a": {"n": 1}}
    assert yard.ask("PUT", f"{path}/progress", b"late", token=mine).status == 401
    assert (yard.get(path)["result"], yard.get(path)["progress"]) == ({"n": 1}, "half")
    assert yard.ask("GET", f"{path}/output").body == b"building\n"


def test_a_poll_that_waits_is_answered_before_the_server_stops(yard: Yard, bot: str) -> None:
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(poll(yard, bot, want=1, poll="p1", wait_ms=20_000)))
    waiting.start()
    soon(lambda: len(yard.engine._writer.parking) == 1)
    yard.server.stop()
    waiting.join(60)
    assert answers == [{}]


def test_requests_of_bots_are_counted_and_a_full_server_takes_them(yard: Yard, bot: str) -> None:
    poll(yard, bot)
    text = yard.ask("GET", "/metrics").body.decode()
    assert 'taskyard_requests_total{method="POST",route="/api/v1/bot/poll",status="200"} 1.0' in text
    assert yard.ask("POST", "/api/v1/bot/nope", {}).status == 404
    assert yard.ask("GET", "/api/v1/bot/poll").status == 405


def test_a_bug_is_told_to_a_bot_as_a_problem(yard: Yard, bot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yard.engine, "ask", None)
    answer = yard.ask("POST", "/api/v1/bot/poll", {"bot": "b1", "session": "s1"}, token=bot)
    assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (answer.json["code"], b"NoneType" in answer.body) == ("failed", False)


def test_a_bot_says_what_went_wrong_with_it(yard: Yard, bot: str) -> None:
    said = {"bot": "b1", "session": "s1", "text": "its disk\0 is\nfull" + " and" * 999}
    assert yard.ask("POST", "/api/v1/bot/trouble", said, token=bot).status == 204
    newest, _ = yard.get("/api/v1/bots/b1/events")["items"]
    assert (newest["kind"], newest["note"][:22], len(newest["note"]) <= 1_000) == (
        "error",
        "its disk is full and a",
        True,
    )
    assert yard.ask("POST", "/api/v1/bot/trouble", said | {"session": "s0"}, token=bot).status == 409
    assert yard.ask("POST", "/api/v1/bot/trouble", said | {"task": "nonsense"}, token=bot).status == 400
    assert yard.ask("POST", "/api/v1/bot/trouble", said, token=yard.admin).status == 403


def test_a_bot_hears_how_long_its_leases_last_and_its_polls_may_wait(yard: Yard) -> None:
    welcome = hello(yard, yard.token(kind="bot", pool="lab")).json
    assert welcome == {"bot": "b1", "pool": "lab", "lease_ms": 60_000, "guard_ms": 5_000, "wait_max_ms": 20_000}
