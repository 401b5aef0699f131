"""The events of a graph, in pages, on a real server."""

import json
from typing import Any

from taskyard.core.states import Signal
from tests.project.tree import DOCS
from tests.server.running_server import RunningServer, graph, task

#: What a JSON Schema calls the types of JSON values.
TYPES = {str: "string", int: "integer", type(None): "null"}


def pages(server: RunningServer, id: str, limit: int) -> list[list[Any]]:
    """The pages of the events of a graph."""
    found, cursor = [], ""
    for _ in range(1_000):
        page = server.get(f"/api/v1/graphs/{id}/events?limit={limit}{cursor}")
        found.append(page["items"])
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    return found


def schema() -> Any:
    """The JSON Schema of an event, as the docs have it."""
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    return json.loads(page.partition("```json\n")[2].partition("```")[0])


def test_the_events_of_a_graph_are_all_that_happened_in_it_the_oldest_first(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b=task("a")))
    either_server.hello()
    (lease,) = either_server.claim()
    either_server.end(lease, Signal.FAIL)
    ((*events,),) = pages(either_server, made.id, 200)
    assert [one["number"] for one in events] == list(range(1, len(events) + 1))
    assert [one["id"] for one in events] == [f"{made.id}-{one['number']}" for one in events]
    of_task = [(one["label"], one["kind"], one["attempt"], one["bot"]) for one in events if one["task"]]
    assert [one for one in of_task if one[0] == "a"] == [
        ("a", "task.pending", None, None),
        ("a", "task.waiting", None, None),
        ("a", "task.running", 1, "b1"),
        ("a", "task.failed", 1, "b1"),
    ]
    assert ("b", "task.blocked", None, None) in of_task
    assert {one["task"] for one in events if one["label"]} == set(made.tasks.values())
    assert [one["kind"] for one in events if one["task"] is None] == ["graph.running", "graph.blocked"]
    story = either_server.get(f"/api/v1/tasks/{made.tasks['a']}/story")["items"]
    assert [one["signal"] for one in story if one["signal"]] == [one["signal"] for one in events if one["label"] == "a"]


def test_pages_of_events_of_any_size_have_each_event_once(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b=task(), c=task("b")))
    (whole,) = pages(either_server, made.id, 200)
    assert len(whole) > 3
    for limit in (1, 2, 3, len(whole)):
        found = pages(either_server, made.id, limit)
        assert [one for page in found for one in page] == whole
        assert all(len(page) == limit for page in found[:-1])


def test_events_have_the_form_that_the_docs_describe(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b=task("a")))
    server.hello()
    (lease,) = server.claim()
    server.end(lease, Signal.FAIL)
    wanted = schema()
    for event in pages(server, made.id, 200)[0]:
        assert sorted(event) == sorted(wanted["required"])
        for name, value in event.items():
            field = wanted["properties"][name]
            assert TYPES[type(value)] in [one["type"] for one in field.get("anyOf", [field])], name
        assert event["kind"] in wanted["properties"]["kind"]["enum"]


def test_only_who_may_read_a_graph_may_read_its_events(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    path = f"/api/v1/graphs/{made.id}/events"
    for token, status in (
        (server.token("pool:default:read"), 200),
        (server.token("pool:lab:read"), 403),
        (server.token("pool:default:submit"), 403),
        (None, 401),
    ):
        assert server.ask("GET", path, token=token).status == status
    assert server.ask("GET", "/api/v1/graphs/7fffffffffffffff/events").status == 404
    assert server.ask("GET", f"{path}?cursor=nonsense").paths == ["cursor"]
