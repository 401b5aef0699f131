"""Every described route, with random text in every place: never a 5xx, every refusal a problem."""

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from tests.server.running_server import RunningServer, graph, task

ODD = [
    "", " ", "0", "-1", "1", "9" * 30, "1e99", "true", "null", "\0", "a\0b", "ä", "\U0001f4a9", "%", "..", "'", '"',
    "x" * 3_000, "[]", "{}", "7ffffffffffffff8", "ffffffffffffffff", "WzFd", "a:b", ":", "*", "running", "default",
    "\ufeff", "\u202e", "\r\nX: y", "b1", "lab",
]  # fmt: skip
#: Bytes that are no text.
RAW = ["%ff", "%ed%a0%80", "%c0%80", "%00%00", "%f5"]
VALUES: list[Any] = [
    None, True, 0, -1, 2**63, 2**70, 1.5, "", "x", "\0", "\ud800", [], {}, [1], {"a": 1}, "x" * 5_000, [[[[]]]],
]  # fmt: skip
KEYS = [
    "tasks", "name", "task", "kind", "scopes", "pool", "expires_in_ms", "capacity", "from_bots", "quarantined",
    "maintenance", "draining", "terminated", "subtree", "properties", "task_slices", "tags", "bot", "session", "want",
    "reports", "renewals", "outputs", "dimensions", "slots", "odd", "wait_ms",
]  # fmt: skip
ROUNDS = 12


def asked(described: dict[str, Any], chance: random.Random, known: dict[str, str]) -> Iterator[tuple[str, str, bytes]]:
    """Odd requests for every operation."""
    for path, operations in described["paths"].items():
        for method, one in operations.items():
            for _ in range(ROUNDS):
                yield method.upper(), address(path, one, chance, known), body(chance)


def address(path: str, one: dict[str, Any], chance: random.Random, known: dict[str, str]) -> str:
    queries = []
    for parameter in one.get("parameters", ()):
        word = chance.choice([*RAW, *(quote(odd, safe="") for odd in ODD)])
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", chance.choice([word, known.get(parameter["name"], word)]))
        elif parameter["in"] == "query" and chance.random() < 0.6:
            queries.append(f"{parameter['name']}={word}")
    if path == "/api/v1/events":
        queries.append("follow=false")  # the last value counts; by default the answer goes on for ever
    return f"{path}?{'&'.join(queries)}" if queries else path


def body(chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(40))
    value = {chance.choice(KEYS): chance.choice(VALUES) for _ in range(chance.randrange(5))}
    return json.dumps(value if chance.random() < 0.9 else chance.choice(VALUES)).encode()


def test_no_random_request_causes_a_server_error(either_server: RunningServer) -> None:
    chance = random.Random(7)
    made = either_server.submit(graph(a=task()))
    either_server.hello()
    known = {"graph_id": made.id, "task_id": made.tasks["a"], "bot_id": "b1", "name": "lab", "token_id": "none"}
    bot = either_server.token(kind="bot", pool="default")
    said = []
    for method, path, sent in asked(either_server.get("/api/v1/openapi.json"), chance, known):
        token = bot if path.startswith("/api/v1/bot/") else either_server.admin
        answer = either_server.ask(method, path, sent, token=token)
        is_problem = answer.headers.get("content-type") == "application/problem+json"
        if answer.status >= 500 or (answer.status >= 400 and not is_problem):
            said.append((method, path, sent, answer.status, answer.body))
    assert said == []
