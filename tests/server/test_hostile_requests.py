"""Every hostile request gets a problem with the reason; never a page, never a 5xx."""

import json
import socket
from typing import Any

import pytest

from taskyard.server.requests import BodyBudget
from taskyard.wire.documents import DOCUMENT_BYTES_MAX
from tests.server.running_server import RunningServer, task, wide

DEEP = b"[" * 5_000 + b"]" * 5_000
BODIES = {
    "nothing": b"",
    "blanks": b"  \n ",
    "not JSON": b"{",
    "not UTF-8": b'{"tasks": "\xff\xfe"}',
    "NUL": b'{"tasks": {"a\\u0000": {}}}',
    "raw NUL": b'{"tasks\x00": 1}',
    "half a surrogate": b'{"tasks": {"\\ud800": {}}}',
    "twice": b'{"tasks": {}, "tasks": {}}',
    "infinite": b'{"tasks": NaN, "name": Infinity, "x": 1e999}',
    "huge number": b'{"tasks": ' + b"9" * 10_000 + b"}",
    "deep": DEEP,
    "deep object": b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    "a list": b"[]",
    "a text": b'"tasks"',
    "null": b"null",
    "byte order mark": b"\xef\xbb\xbf{",
    "UTF-16": '{"tasks": {}}'.encode("utf-16"),
}
ROUTES = [
    ("POST", "/api/v1/graphs"),
    ("PUT", "/api/v1/graphs/1234567890abcde8"),
    ("POST", "/api/v1/requests"),
    ("POST", "/api/v1/tokens"),
    ("PUT", "/api/v1/pools/lab"),
    ("PATCH", "/api/v1/bots/b1"),
]


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_whatever_a_body_is_it_is_refused_with_a_problem(server: RunningServer, kind: str) -> None:
    said = []
    for (method, path), (name, body) in ((route, one) for route in ROUTES for one in BODIES.items()):
        answer = server.ask(method, path, body, headers={"Content-Type": kind})
        is_problem = answer.headers["content-type"] == "application/problem+json"
        empty_is_fine = path.endswith("/lab") and not body.strip()
        if not empty_is_fine and not (400 <= answer.status < 500 and is_problem and answer.json["detail"]):
            said.append((method, path, name, answer.status, answer.body[:200]))
    assert said == []


def test_a_body_that_is_too_large_is_refused_unread(server: RunningServer) -> None:
    connection = server.connection()
    connection.putrequest("POST", "/api/v1/graphs")
    connection.putheader("Authorization", f"Bearer {server.admin}")
    connection.putheader("Content-Length", str(DOCUMENT_BYTES_MAX + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_of_unknown_length_is_read_no_further_than_it_may_go(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.http.port), 60) as raw:
        head = f"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin}\r\n"
        raw.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        raw.sendall(piece * 3)
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_faults_of_the_text_and_of_the_graph_are_listed_together(server: RunningServer) -> None:
    body = b'{"tasks": {"a": {"requires": ["b"], "task": {"payload": {"noop": true}}}}, "nam": 1, "nam": 2}'
    answer = server.ask("POST", "/api/v1/graphs", body)
    assert answer.status == 400
    assert answer.json["faults"][0]["message"] == "the key 'nam' is there twice"
    assert {"nam", "tasks.a.requires[0]"} <= set(answer.paths)


def test_no_more_is_held_than_there_is_room_for(server: RunningServer) -> None:
    server.http.app.context.body_budget = BodyBudget(1_000)
    full = server.ask("POST", "/api/v1/graphs", wide(20))
    assert (full.status, full.json["code"], full.headers["retry-after"]) == (429, "overloaded", "1")
    server.submit(wide(1))


def test_a_large_document_is_taken(server: RunningServer) -> None:
    made = server.submit(wide(3_000))
    assert len(made.tasks) == 3_000
    assert server.get(f"/api/v1/graphs/{made.id}")["active"] > 0


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/api/v1",
        "/api/v1/graphs/",
        "/api/v1/graphs//",
        "/api/v1/graphs/%00",
        "/api/v1/graphs/%ff%fe",
        "/api/v1/graphs/..%2f..%2fetc",
        "/api/v1/graphs/" + "a" * 10_000,
        "/api/v1/graphs/%F0%9F%92%A9",
        "/api/v1/bots/%00",
        "/api/v1/bots/a%00b",
        "/api/v1/bots/a%00b/events",
        "/api/v1/bots/%ED%A0%80",
        "/api/v1/bots/" + "b" * 5_000,
        "/docs",
        "/redoc",
    ],
)
def test_what_is_not_there_is_not_found(either_server: RunningServer, path: str) -> None:
    answer = either_server.ask("GET", path)
    assert (answer.status, answer.json["code"]) == (404, "not_found")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_wrong_method_gets_a_problem(server: RunningServer) -> None:
    for method, path in [("DELETE", "/api/v1/graphs"), ("POST", "/healthz"), ("PUT", "/api/v1/tokens")]:
        answer = server.ask(method, path)
        assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
        assert answer.headers["content-type"] == "application/problem+json"


def test_odd_words_in_places_that_reach_the_database_are_faults_or_find_nothing(either_server: RunningServer) -> None:
    for query in (
        "/graphs?name=%00", "/graphs?tag=a:%00", "/bots?pool=%00", "/bots?dimension=a:%00", "/bots?dimension=x",
        "/graphs?cursor=WyJhXHUwMDAwIl0", "/bots?cursor=WyJhXHUwMDAwIl0", "/bots?cursor=WzFd", "/bots?state=odd",
        "/tokens?cursor=WzFd", "/tokens?cursor=WzkyMjMzNzIwMzY4NTQ3NzU4MDgsImEiXQ",
        "/graphs?cursor=WzkyMjMzNzIwMzY4NTQ3NzU4MDhd",
    ):  # fmt: skip
        answer = either_server.ask("GET", f"/api/v1{query}")
        assert answer.status == 400, query
        assert answer.paths
    for fine in ("/graphs?name=%F0%9F%92%A9", "/graphs?name=%ff", "/bots?pool='--", "/graphs?state="):
        assert either_server.ask("GET", f"/api/v1{fine}").status in {200, 400}
    wrong = either_server.ask("PUT", "/api/v1/pools/a%00b", {})
    assert (wrong.status, wrong.paths) == (400, ["name"])
    assert either_server.ask("DELETE", "/api/v1/tokens/a%00b").status == 404


def test_settings_of_a_bot_are_checked(server: RunningServer) -> None:
    server.hello()
    answer = server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": 1, "draining": "yes", "maintenance": "", "x": 1})
    assert (answer.status, sorted(answer.paths)) == (400, ["draining", "maintenance", "quarantined", "x"])
    assert server.ask("PATCH", "/api/v1/bots/b1", {"quarantined": "x" * 40_000}).status == 400
    assert server.ask("PUT", "/api/v1/pools/lab", {"capacity": -1, "from_bots": 1}).status == 400
    assert server.ask("PUT", "/api/v1/pools/lab", {"capacity": 1, "from_bots": True}).status == 400
    assert server.ask("PUT", "/api/v1/pools/lab", {"capacity": 2**63}).status == 400


def test_the_answer_to_a_hostile_document_stays_small(server: RunningServer) -> None:
    answer = server.ask("POST", "/api/v1/graphs", {"x" * 9_000 + str(number): 1 for number in range(900)})
    assert answer.status == 400
    assert len(answer.body) < 400_000
    assert json.loads(answer.body)["faults"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "a/b; c=d"])
def test_a_body_of_a_type_that_is_not_read_is_refused(server: RunningServer, kind: str) -> None:
    bot = server.token(kind="bot", pool="default")
    for method, path, token in (*((*one, "") for one in ROUTES), ("POST", "/api/v1/bot/hello", bot)):
        answer = server.ask(method, path, {}, token=token, headers={"Content-Type": kind})
        assert (answer.status, answer.json["code"]) == (415, "unsupported"), path


def test_a_body_without_a_type_or_with_another_name_of_it_is_read(server: RunningServer) -> None:
    for kind in ("", "application/json", "Application/JSON ; charset=utf-8"):
        assert server.ask("PUT", "/api/v1/pools/lab", {}, headers={"Content-Type": kind}).status == 200
        bot = server.token(kind="bot", pool="default")
        hello = {"bot": "b1", "session": "s1"}
        assert server.ask("POST", "/api/v1/bot/hello", hello, token=bot, headers={"Content-Type": kind}).status == 200


def test_errors_of_a_bot_are_validated_like_its_other_messages(either_server: RunningServer) -> None:
    bot = either_server.token(kind="bot", pool="default")
    said: dict[str, object] = {"bot": "b1", "session": "s1", "text": "it hurts"}
    assert either_server.ask("POST", "/api/v1/bot/hello", {"bot": "b1", "session": "s1"}, token=bot).status == 200
    assert either_server.ask("POST", "/api/v1/bot/trouble", {**said, "attempt": 1}, token=bot).status == 204
    wrongs: list[tuple[str, object]] = [
        *(("attempt", number) for number in (2**63, 0, -1, 2**64, 10**30)),
        *((name, text) for name in ("bot", "session") for text in ("a\0b", "", "x" * 5_000)),
        ("task", "zz"),
    ]
    for name, wrong in wrongs:
        answer = either_server.ask("POST", "/api/v1/bot/trouble", {**said, name: wrong}, token=bot)
        assert (answer.status, answer.json["code"]) == (400, "invalid"), (name, wrong)


def test_one_fault_is_one_fault(server: RunningServer) -> None:
    for path, body in (("/api/v1/requests", {"nam": 1, "task": {"payload": {"noop": True}}}), ("/api/v1/tokens", {})):
        answer = server.ask("POST", path, body)
        assert answer.status == 400
        assert len(answer.json["faults"]) != 1 or " 1 faults" not in answer.json["detail"]
        assert " 1 faults" not in answer.body.decode()
    bot = server.token(kind="bot", pool="default")
    for path, said, detail in (
        ("requests", {"nam": 1, "task": {"payload": {"noop": True}}}, "the request has 1 fault"),
        ("graphs", {"tasks": {"a": {"task": {"payload": {}}}}}, "the document has 1 fault"),
        ("graphs", {"nam": 1, "tasks": {"a": {"task": {"payload": {}}}}}, "the document has 2 faults"),
        ("tokens", {"name": "a", "kind": "odd"}, "the body has 1 fault"),
        ("bot/hello", {"bot": "b1", "session": ""}, "the hello has 1 fault"),
    ):
        answer = server.ask("POST", f"/api/v1/{path}", said, token=bot if path.startswith("bot/") else "")
        assert answer.json["detail"] == detail


def test_the_description_has_the_bounds_of_ids_names_and_numbers(server: RunningServer) -> None:
    shown = server.get("/api/v1/openapi.json", token=None)
    paths, schemas = shown["paths"], shown["components"]["schemas"]

    def parameter(method: str, path: str, name: str) -> Any:
        found = next(one for one in paths[f"/api/v1{path}"][method]["parameters"] if one["name"] == name)
        return found["schema"]

    def body(method: str, path: str) -> Any:
        return paths[f"/api/v1{path}"][method]["requestBody"]["content"]["application/json"]["schema"]

    id = "^[0-7][0-9a-f]{15}$"
    assert parameter("get", "/graphs/{graph_id}", "graph_id")["pattern"] == id
    assert parameter("post", "/tasks/{task_id}/cancel", "task_id")["pattern"] == id
    assert parameter("get", "/audit", "subject")["anyOf"][0]["pattern"] == id
    assert parameter("get", "/bots/{bot_id}", "bot_id")["maxLength"] == 255
    assert parameter("get", "/graphs", "tag")["anyOf"][0]["items"]["pattern"] == ":"
    assert parameter("get", "/graphs", "name").get("minLength") is None, "left empty, it asks for any"
    assert body("put", "/pools/{name}")["properties"]["capacity"]["minimum"] == 0
    for method, path in (
        ("post", "/graphs"),
        ("put", "/graphs/{graph_id}"),
        ("post", "/requests"),
        ("post", "/tokens"),
    ):
        assert body(method, path)["additionalProperties"] is False, path
    said = schemas["BotTrouble"]["properties"]
    assert [said["task"]["anyOf"][0]["pattern"], said["attempt"]["anyOf"][0]["maximum"]] == [id, 2**63 - 1]
    assert schemas["BotPoll"]["properties"]["reports"]["maxItems"] == 1_000
    assert schemas["BotHello"]["properties"]["dimensions"]["maxProperties"] == 128


def test_what_is_beyond_the_description_is_refused(either_server: RunningServer) -> None:
    bot = either_server.token(kind="bot", pool="default")
    assert either_server.ask("POST", "/api/v1/bot/hello", {"bot": "b1", "session": "s1"}, token=bot).status == 200
    attempt = {"task": "7" + "0" * 14 + "8", "attempt": 1, "fence": 1}
    who: dict[str, Any] = {"bot": "b1", "session": "s1"}
    many: dict[str, list[str]] = {f"k{number}": ["v"] for number in range(129)}
    beyond: list[tuple[str, str, dict[str, Any]]] = [
        *(("POST", "bot/hello", {**who, name: text}) for name in ("bot", "session") for text in ("", "x" * 256)),
        *(
            ("POST", "bot/hello", {**who, name: text})
            for name in ("quarantined", "maintenance")
            for text in ("", "x" * 32_769)
        ),
        *(("POST", "bot/hello", {**who, "slots": slots}) for slots in (0, 1_000_001)),
        ("POST", "bot/hello", {**who, "dimensions": many}),
        *(("POST", "bot/poll", {**who, "want": want}) for want in (-1, 2**63)),
        ("POST", "bot/poll", {**who, "poll": "x" * 256}),
        *(("POST", "bot/poll", {**who, name: [attempt] * 1_001}) for name in ("renewals", "begun")),
        *(
            ("POST", "bot/poll", {**who, "begun": [attempt | wrong]})
            for wrong in ({"attempt": 0}, {"attempt": 2**63}, {"fence": -1}, {"fence": 2**63}, {"task": "8" * 16})
        ),
        *(("POST", "bot/poll", {**who, "renewals": [attempt | {"progress": text}]}) for text in ("", "x" * 4_097)),
        ("POST", "bot/poll", {**who, "outputs": [attempt | {"start": 2**63, "body": ""}]}),
        *(
            ("POST", "bot/poll", {**who, "reports": [attempt | {"signal": "fail", "exit_code": code}]})
            for code in (-(2**31) - 1, 2**32)
        ),
        ("POST", "bot/poll", {**who, "reports": [attempt | {"signal": "fail", "stats": {"ran_ms": 2**63}}]}),
        *(("PUT", "pools/lab", {"capacity": number}) for number in (-1, 2**63)),
        *(("PATCH", "bots/b1", {"maintenance": text}) for text in ("", "x" * 32_769)),
        ("POST", "tokens", {"name": ""}),
        *(("POST", "tokens", {"name": "a", "scopes": [scope]}) for scope in ("all", "pool:lab", "pool::read")),
        ("POST", "tokens", {"name": "a", "kind": "bot", "pool": "x" * 257}),
        *(("POST", path, {"tasks": {"a": task()}, "else": 1}) for path in ("graphs", "graphs/check")),
        ("POST", "requests", {"task": {"payload": {"noop": True}}, "else": 1}),
    ]
    for method, path, said in beyond:
        answer = either_server.ask(method, f"/api/v1/{path}", said, token=bot if path.startswith("bot/") else "")
        assert (answer.status, answer.json["code"]) == (400, "invalid"), (path, str(said)[:300])
    for path in ("graphs?tag=odd", "bots?dimension=odd", "audit?subject=0", "graphs?cursor=%2B%2B"):
        assert either_server.ask("GET", f"/api/v1/{path}").status == 400, path
    for path in ("graphs/8888888888888888", "tasks/88", f"bots/{'x' * 256}"):
        assert either_server.ask("GET", f"/api/v1/{path}").status == 404, path
