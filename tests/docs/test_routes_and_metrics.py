"""The docs about a server, checked on one: the right that each route requires, and its metrics."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from taskyard.server.tokens import RIGHTS, scope
from taskyard.server.user_api import user_api
from tests.docs.tables import coded, names, rows
from tests.server.running_server import RunningServer, graph, task

LAB = {"pool": "lab"}
DOCUMENT = graph(a=task(dimensions=LAB))
#: The bodies for routes that read them before they check the caller.
BODIES: dict[str, Any] = {
    "POST /api/v1/graphs": DOCUMENT,
    "POST /api/v1/graphs/check": DOCUMENT,
    "PUT /api/v1/graphs/{graph_id}": DOCUMENT,
    "POST /api/v1/graphs/{graph_id}/tasks": {"tasks": {"late": task(dimensions=LAB)}},
    "POST /api/v1/requests": {"task": {"payload": {"command": ["true"]}, "dimensions": LAB}},
    "PATCH /api/v1/bots/{bot_id}": {"maintenance": "the fan"},
    "POST /api/v1/graphs/files": DOCUMENT,
    "POST /api/v1/launches": {"name": "deploy"},
    "POST /api/v1/tasks/cancel": {"pool": "lab"},
    "POST /api/v1/tokens": {"name": "another"},
    "POST /api/v1/session": {"code": "of no link"},
}
ROUTES = {coded(row[0])[0]: row[2] for row in rows("api.md", "Routes")}
#: Rights that a token can have in a pool without having all others.
SINGLE = [right for right in RIGHTS if right != "admin"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(f"sqlite:///{tmp_path_factory.mktemp('yard')}/yard.db") as made:
        made.hello("b1", "lab")
        yield made


def test_every_route_of_the_description_is_on_the_page_and_no_other() -> None:
    paths = user_api(None).openapi()["paths"]
    assert sorted(ROUTES) == sorted(f"{method.upper()} {path}" for path, found in paths.items() for method in found)


def test_every_route_asks_for_the_right_that_the_page_names(server: RunningServer) -> None:
    made = server.submit(DOCUMENT)
    shown = {"{graph_id}": made.id, "{task_id}": made.tasks["a"], "{bot_id}": "b1", "{name}": "lab", "{token_id}": "x"}
    shown |= {"{ending}": made.id[-6:], "{digest}": "0" * 64}
    wrong = []
    for route, needs in ROUTES.items():
        method, path = route.split()
        for name, value in shown.items():
            path = path.replace(name, value)
        for token, wanted in lacking(server, needs, path):
            answer = server.ask(method, path, BODIES.get(route), token=token)
            if answer.status != wanted or (wanted == 403 and not names_right(answer.json["detail"], needs)):
                wrong.append((route, needs, wanted, answer.status, answer.body))
    assert wrong == []


def lacking(server: RunningServer, needs: str, path: str) -> Iterator[tuple[str | None, int]]:
    """Tokens that are not enough, each with the status of the answer."""
    if needs == "nothing":
        yield None, 200
        return
    yield None, 401
    if needs == "any token":
        yield server.token(scope("other", "bot")), 200
    elif needs in {"a session", "a token in the body"}:
        yield server.admin, 401
    elif needs == "the token of a user":
        yield server.token(kind="bot"), 403
    elif not needs.startswith("`"):
        yield server.admin, 403
    elif path.startswith("/api/v1/tokens"):
        yield server.token(scope("*", "admin")), 403
    else:
        yield server.token(*(scope("lab", right) for right in SINGLE if f"`{right}`" != needs)), 403


def names_right(detail: str, needs: str) -> bool:
    """Whether a denial names what was missing."""
    return not needs.startswith("`") or coded(needs)[0] in detail


def test_a_server_exports_the_metrics_that_the_page_lists(server: RunningServer) -> None:
    text = server.ask("GET", "/metrics").body.decode()
    families = [one for one in text_string_to_metric_families(text) if not one.name.endswith("_created")]
    shown = [f"{one.name}_total" if one.type == "counter" else one.name for one in families]
    assert sorted(shown) == sorted(names("metrics.md"))
