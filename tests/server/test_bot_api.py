"""The bot API: authentication, leases, and that no parked poll is left waiting."""

import base64
import threading
from typing import Any

import pytest

from tests.engine.harness import wait_until
from tests.server.running_server import Answer, RunningServer, graph, task


def hello(server: RunningServer, token: str | None, **said: object) -> Answer:
    return server.ask("POST", "/api/v1/bot/hello", {"bot": "b1", "session": "s1"} | said, token=token)


def poll(server: RunningServer, token: str, **said: object) -> Any:
    answer = server.ask("POST", "/api/v1/bot/poll", {"bot": "b1", "session": "s1"} | said, token=token)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.fixture
def bot(server: RunningServer) -> str:
    token = server.token(kind="bot", pool="lab")
    assert hello(server, token).json["pool"] == "lab"
    return token


def test_only_bots_come_in_and_their_token_names_their_pool(server: RunningServer) -> None:
    bot = server.token(kind="bot", pool="lab")
    assert hello(server, None).status == 401
    assert hello(server, "nonsense").status == 401
    assert hello(server, server.admin).status == 403
    assert hello(server, server.token(kind="enrolment", pool="lab")).status == 403
    assert hello(server, bot, dimensions={"pool": ["default"]}).json["pool"] == "lab"
    assert server.get("/api/v1/bots/b1")["dimensions"]["pool"] == ["lab"]
    server.ask("DELETE", f"/api/v1/tokens/{bot.split('_')[2]}")
    assert hello(server, bot).status == 401


def test_a_task_is_run_over_http_from_its_submission_to_its_result(server: RunningServer, bot: str) -> None:
    made = server.submit(graph(a=task(dimensions={"pool": "lab"}), b=task("a", dimensions={"pool": "lab"})))
    (lease,) = poll(server, bot, want=1, poll="p1")["leases"]
    assert (lease["task"], lease["payload"]) == (made.tasks["a"], {"command": ["true"]})
    path, mine = f"/api/v1/tasks/{made.tasks['a']}", lease["token"]
    named = {name: lease[name] for name in ("task", "attempt", "fence")}
    body = base64.b64encode(b"building\n").decode()
    assert poll(server, bot, outputs=[named | {"start": 0, "body": body}])["kept"][0]["size"] == 9
    assert server.ask("PUT", f"{path}/result", {"n": 1}, token=mine).status == 204
    assert server.ask("PUT", f"{path}/progress", b"half", token=mine).status == 204
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", graph(c=task("a")), token=mine).status == 403
    grown = {"tasks": {"c": task("a", dimensions={"pool": "lab"})}}
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", grown, token=mine).status == 200
    leases = poll(server, bot, want=2, poll="p2", reports=[named | {"signal": "succeed", "exit_code": 0}])["leases"]
    assert {one["label"] for one in leases} == {"b", "c"}
    assert leases[0]["inputs"] == {"a": {"n": 1}}
    assert server.ask("PUT", f"{path}/progress", b"late", token=mine).status == 401
    assert (server.get(path)["result"], server.get(path)["progress"]) == ({"n": 1}, "half")
    assert server.ask("GET", f"{path}/output").body == b"building\n"


def test_a_poll_that_waits_is_answered_before_the_server_stops(server: RunningServer, bot: str) -> None:
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(poll(server, bot, want=1, poll="p1", wait_ms=20_000)))
    waiting.start()
    wait_until(lambda: len(server.engine._writer.parked_polls) == 1)
    server.http.stop()
    waiting.join(60)
    assert answers == [{}]


def test_requests_of_bots_are_counted_and_a_full_server_takes_them(server: RunningServer, bot: str) -> None:
    poll(server, bot)
    text = server.ask("GET", "/metrics").body.decode()
    assert 'taskyard_requests_total{method="POST",route="/api/v1/bot/poll",status="200"} 1.0' in text
    assert server.ask("POST", "/api/v1/bot/nope", {}).status == 404
    assert server.ask("GET", "/api/v1/bot/poll").status == 405


def test_a_bug_is_answered_to_a_bot_as_a_problem(
    server: RunningServer, bot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine, "ask", None)
    answer = server.ask("POST", "/api/v1/bot/poll", {"bot": "b1", "session": "s1"}, token=bot)
    assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (answer.json["code"], b"NoneType" in answer.body) == ("failed", False)


def test_a_bot_reports_its_errors(server: RunningServer, bot: str) -> None:
    said = {"bot": "b1", "session": "s1", "text": "its disk\0 is\nfull" + " and" * 999}
    assert server.ask("POST", "/api/v1/bot/trouble", said, token=bot).status == 204
    newest, _ = server.get("/api/v1/bots/b1/events")["items"]
    assert (newest["kind"], newest["note"][:22], len(newest["note"]) <= 1_000) == (
        "error",
        "its disk is full and a",
        True,
    )
    assert server.ask("POST", "/api/v1/bot/trouble", said | {"session": "s0"}, token=bot).status == 409
    assert server.ask("POST", "/api/v1/bot/trouble", said | {"task": "nonsense"}, token=bot).status == 400
    assert server.ask("POST", "/api/v1/bot/trouble", said, token=server.admin).status == 403


def test_a_bot_gets_the_length_of_leases_and_of_polls(server: RunningServer) -> None:
    welcome = hello(server, server.token(kind="bot", pool="lab")).json
    assert welcome == {"bot": "b1", "pool": "lab", "lease_ms": 60_000, "guard_ms": 5_000, "wait_max_ms": 20_000}
