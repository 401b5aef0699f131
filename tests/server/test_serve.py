"""The server as a whole: its description, its health, its doors, its beginning and its end."""

import asyncio
import json
import logging
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from taskyard.engine.engine import Engine
from taskyard.server import logs
from taskyard.server.asgi import ConcurrencyLimit
from taskyard.server.serve import Server
from taskyard.server.settings import Exposed, Settings, check_binding, load_signer, prepare
from taskyard.server.user_api import ROUTERS
from tests.server.running_server import WAIT_S, RunningServer, graph, task

KINDS = {"string": str, "integer": int, "number": float, "boolean": bool}
SERVER = """
import sys
from taskyard.engine.engine import Engine
from taskyard.server.settings import prepare
from taskyard.server.serve import listen, run
from taskyard.server.settings import Settings
with Engine.open(sys.argv[1]) as engine:
    token = prepare(engine)
    run(engine, Settings(), listen("127.0.0.1", 0), lambda url: print(url, token, flush=True))
print("stopped", flush=True)
"""


# The description.


def operations(described: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, one) for path, found in described["paths"].items() for method, one in found.items()]


def test_the_description_names_every_route_and_its_problems(server: RunningServer) -> None:
    described = server.get("/api/v1/openapi.json", token=None)
    assert described["openapi"].startswith("3.1")
    routes = {
        (route.path.replace(":path}", "}"), method.lower())
        for part in ROUTERS
        for route in part.routes.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    bots = {(f"/api/v1/bot/{name}", "post") for name in ("hello", "poll", "goodbye", "trouble")}
    assert {(path, method) for path, method, _ in operations(described)} == routes | bots
    for path, method, one in operations(described):
        answers = one["responses"]
        assert [status for status in answers if status.startswith("2")], (path, method)
        assert "422" not in answers
        for status, answer in answers.items():
            if status >= "400":
                assert list(answer["content"]) == ["application/problem+json"], (path, method, status)
        if path.startswith("/api/"):
            assert {"400", "401", "403", "429", "503"} <= set(answers), (path, method)
            assert one["security"] == [{"token": []}]


def test_every_reference_in_the_description_leads_somewhere(server: RunningServer) -> None:
    text = server.ask("GET", "/api/v1/openapi.json").body.decode()
    described = json.loads(text)
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in described["components"]["schemas"]
    ids = [one["operationId"] for _, _, one in operations(described)]
    assert len(ids) == len(set(ids))


def test_answers_are_what_the_description_says(server: RunningServer) -> None:
    described = server.get("/api/v1/openapi.json")
    made = server.submit(graph(a=task()))
    server.hello()
    server.claim()
    for path in ("/graphs", "/graphs/{graph_id}", "/graphs/{graph_id}/tasks", "/graphs/{graph_id}/names",
                 "/tasks/{task_id}", "/tasks/{task_id}/attempts", "/tasks/{task_id}/story", "/bots", "/bots/{bot_id}",
                 "/bots/{bot_id}/events", "/pools", "/tokens", "/dimensions", "/tasks/{task_id}/why",
                 "/graphs/{graph_id}/why", "/about"):  # fmt: skip
        answers = described["paths"][f"/api/v1{path}"]["get"]["responses"]
        name = answers["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        got = server.get("/api/v1" + path.format(graph_id=made.id, task_id=made.tasks["a"], bot_id="b1"))
        fits(got, {"$ref": f"#/components/schemas/{name}"}, described["components"]["schemas"], path)


def fits(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str) -> None:
    """Check a value against the part of JSON Schema that we use."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    kind = schema.get("type")
    if "anyOf" in schema:
        if value is not None:
            fits(value, next(one for one in schema["anyOf"] if one.get("type") != "null"), schemas, at)
        assert value is not None or {"type": "null"} in schema["anyOf"], at
    elif kind == "object":
        fits_object(value, schema, schemas, at)
    elif kind == "array":
        assert isinstance(value, list), at
        for one in value:
            fits(one, schema["items"], schemas, f"{at}[]")
    elif kind is not None:
        assert isinstance(value, KINDS[kind]), (at, value)


def fits_object(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str) -> None:
    assert isinstance(value, dict), at
    assert set(schema.get("required", ())) <= set(value), at
    for name, one in value.items():
        part = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        assert part is not None, f"{at}.{name} is not described"
        fits(one, part if isinstance(part, dict) else {}, schemas, f"{at}.{name}")


# Health.


def test_health_needs_no_token(server: RunningServer) -> None:
    assert [server.ask("GET", path, token=None).status for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3


def test_metrics_count_requests_and_tasks(server: RunningServer) -> None:
    server.submit(graph(a=task(), b=task("a")))
    server.ask("GET", "/api/v1/nope")
    text = server.ask("GET", "/metrics").body.decode()
    for line in (
        'taskyard_requests_total{method="POST",route="/api/v1/graphs",status="201"} 1.0',
        'taskyard_requests_total{method="GET",route="(none)",status="404"} 1.0',
        'taskyard_tasks{state="waiting"} 1.0',
        'taskyard_tasks{state="unscheduled"} 1.0',
        "taskyard_queue_length 0.0",
    ):
        assert line in text
    assert re.search(r"^taskyard_commits_total [1-9]", text, re.MULTILINE)
    assert re.search(r"^taskyard_longest_transaction_seconds ", text, re.MULTILINE)


def test_a_database_that_is_gone_is_not_ready_and_nothing_is_a_bug(server: RunningServer) -> None:
    server.engine.stop()
    made = server.ask("POST", "/api/v1/graphs", graph(a=task()))
    assert (made.status, made.json["code"], made.headers["retry-after"]) == (503, "unavailable", "5")
    assert server.ask("GET", "/healthz").status == 200


# Doors.


def test_a_full_server_asks_to_come_again_but_is_still_watched() -> None:
    inside, out = threading.Event(), threading.Event()
    statuses: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        inside.set()
        while not out.is_set():
            await asyncio.sleep(0)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.request"}

    async def play() -> None:
        crowd = ConcurrencyLimit(app, Settings(in_flight_max=1))
        scope = {"type": "http", "method": "GET", "path": "/api/v1/graphs", "headers": []}
        first = asyncio.ensure_future(crowd(dict(scope), receive, send))
        while not inside.is_set():
            await asyncio.sleep(0)
        await crowd(dict(scope), receive, send)
        out.set()
        await crowd(scope | {"path": "/healthz"}, receive, send)
        await first

    asyncio.run(play())
    assert statuses == [429]


def test_every_request_has_an_id_and_leaves_a_line_without_secrets(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        logs.configure()
        given = server.ask("GET", "/api/v1/graphs", headers={"X-Request-Id": "mine-1"})
        made = server.ask("POST", "/api/v1/graphs", graph("topsecret", a=task()), headers={"X-Request-Id": "a b"})
        server.http.stop()
    finally:
        logging.basicConfig(level=level, handlers=handlers, force=True)
    assert given.headers["x-request-id"] == "mine-1"
    assert re.fullmatch("[0-9a-f]{16}", made.headers["x-request-id"])
    text = capsys.readouterr().err
    lines = [json.loads(line) for line in text.splitlines() if "request_id" in line]
    assert [(one["route"], one["status"], one["request_id"]) for one in lines] == [
        ("/api/v1/graphs", 200, "mine-1"),
        ("/api/v1/graphs", 201, made.headers["x-request-id"]),
    ]
    assert server.admin not in text
    assert "topsecret" not in text


# Beginning and end.


def test_only_the_first_start_makes_a_token(sqlite_url: str) -> None:
    with Engine.open(sqlite_url) as engine:
        assert (prepare(engine) or "").startswith("ty_user_")
        token = load_signer(engine).sign(1, 1, 1)
        assert prepare(engine) is None
        assert load_signer(engine).sign(1, 1, 1) == token


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "[::1]", "127.9.9.9"])
def test_loopback_needs_no_authentication(host: str) -> None:
    check_binding(host, auth_on=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example", "yard.local"])  # noqa: S104
def test_other_machines_come_in_only_with_authentication(host: str) -> None:
    check_binding(host, auth_on=True)
    with pytest.raises(Exposed, match="authentication is off"):
        check_binding(host, auth_on=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_serves_until_a_signal_and_then_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    url = f"sqlite:///{tmp_path}/yard.db"
    with subprocess.Popen([sys.executable, "-c", SERVER, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, token = process.stdout.readline().split()
        assert (address.startswith("http://127.0.0.1:"), token.startswith("ty_user_")) == (True, True)
        process.send_signal(number)
        assert process.stdout.read() == "stopped\n"
        assert process.wait(WAIT_S) == 0


def test_a_server_that_stopped_can_be_followed_by_another(sqlite_url: str) -> None:
    for _ in range(2):
        with Engine.open(sqlite_url) as engine:
            prepare(engine)
            with Server(engine, Settings()) as server:
                assert server.url == f"http://127.0.0.1:{server.port}"
