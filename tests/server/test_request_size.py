"""How many tasks one request may contain, counted before anything is expanded."""

import json
from collections.abc import Iterator

import pytest

from taskyard.server.requests import count_tasks
from taskyard.server.settings import REQUEST_TASKS_MAX, Settings
from tests.server.running_server import RunningServer, graph, task


@pytest.fixture
def server(sqlite_url: str) -> Iterator[RunningServer]:
    with RunningServer(sqlite_url, Settings(tasks_max=5)) as made:
        yield made


def matrix(*sizes: int) -> dict[str, object]:
    return task() | {"matrix": {f"a{place}": list(range(size)) for place, size in enumerate(sizes)}}


def test_tasks_are_counted_with_their_matrices_and_with_what_is_inside() -> None:
    inside = {"task": {"payload": {"graph": graph(a=task(), b=matrix(3))}}, "matrix": {"x": [1, 2]}}
    in_slice = {"task": {"slices": [{"payload": {"graph": graph(a=matrix(7))}}]}}
    cases = (
        (graph(a=task()), 1),
        (graph(a=matrix(3, 4), b=task()), 13),
        (graph(a=inside), 10),
        (graph(a=in_slice), 8),
    )
    for document, count in cases:
        assert count_tasks(document) == count, document
    odd_ones: tuple[object, ...] = (None, [], {}, {"tasks": []}, {"tasks": {"a": 1, "b": {"matrix": 1, "task": 2}}})
    for odd in odd_ones:
        assert count_tasks(odd) in (0, 2)
    assert REQUEST_TASKS_MAX == 100_000


def test_a_request_for_too_many_tasks_is_refused_before_it_is_expanded(server: RunningServer) -> None:
    made = server.submit(graph(a=matrix(5)))
    large = graph(b=matrix(2_000, 2_000))
    for method, path in (
        ("POST", "/graphs"),
        ("POST", "/graphs/check"),
        ("PUT", f"/graphs/{made.id}"),
        ("POST", f"/graphs/{made.id}/tasks"),
    ):
        answer = server.ask(method, f"/api/v1{path}", large)
        assert (answer.status, answer.paths) == (400, ["tasks"]), path
        assert "has 4000000 tasks; the limit per request is 5" in answer.json["detail"]
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", graph(b=matrix(5))).status == 200


def test_a_graph_in_the_payload_of_a_slice_and_one_in_a_single_request_are_counted(server: RunningServer) -> None:
    large = graph(b=matrix(2_000, 2_000))
    sliced = graph(a={"task": {"slices": [{"payload": {"graph": large}}]}})
    for path, document in (("/graphs", sliced), ("/requests", {"task": {"payload": {"graph": large}}})):
        answer = server.ask("POST", f"/api/v1{path}", document)
        assert (answer.status, answer.paths) == (400, ["tasks"]), path
        assert "has 4000001 tasks" in answer.json["detail"]


def test_a_document_whose_text_is_faulty_is_not_expanded_to_find_more_faults(server: RunningServer) -> None:
    large = json.dumps(graph(b=matrix(2_000, 2_000)))
    twice = f'{{"name": "a", "name": "b", {large[1:]}'.encode()
    for method, path in (("POST", "/graphs"), ("POST", "/graphs/check"), ("PUT", "/graphs/0000000000000008")):
        answer = server.ask(method, f"/api/v1{path}", twice)
        shown = [fault["message"] for fault in answer.json["faults"]]
        assert (answer.status, len(shown)) == (400, 2), shown
        assert "is there twice" in shown[0]
        assert "has 4000000 tasks; the limit per request is 5" in shown[1]
