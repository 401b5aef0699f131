"""The routes of drawings: layouts, which are kept until a graph grows, and the states of its tasks."""

from collections.abc import Iterator

import pytest

from tests.server.running_server import RunningServer, graph, task


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(f"sqlite:///{tmp_path_factory.mktemp('yard')}/yard.db") as made:
        made.hello("b1")
        yield made


def test_a_layout_has_each_task_behind_what_it_requires(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b={**task(), "requires": ["a"]}))
    found = server.get(f"/api/v1/graphs/{made.id}/layout")
    assert (found["view"], found["size"], found["ends"]) == ("tasks", 2, ["success"])
    assert dict(zip(found["names"], found["ids"], strict=True)) == made.tasks
    ((source, target),) = found["edges"]
    assert found["names"][source] == "a"
    assert found["x"][source] < found["x"][target]


def test_states_are_in_the_order_of_the_layout(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b={**task(), "requires": ["a"]}))
    layout = server.get(f"/api/v1/graphs/{made.id}/layout")
    lease = next(one for one in server.claim() if one.task == made.key("a"))
    found = server.get(f"/api/v1/graphs/{made.id}/states?times=true")
    states = [found["states"][one] for one in found["tasks"]]
    assert dict(zip(layout["names"], states, strict=True)) == {"a": "running", "b": "unscheduled"}
    a, b = layout["names"].index("a"), layout["names"].index("b")
    assert (found["began_ms"][a] > 0, found["ended_ms"][a], found["began_ms"][b]) == (True, 0, 0)
    assert (found["bots"][found["bot_of"][a]], found["bot_of"][b]) == ("b1", -1)
    server.end(lease)
    assert "began_ms" not in {name for name, value in server.get(f"/api/v1/graphs/{made.id}/states").items() if value}


def test_a_graph_that_grows_is_laid_out_anew(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    assert server.get(f"/api/v1/graphs/{made.id}/layout")["names"] == ["a"]
    server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", {"tasks": {"b": {**task(), "requires": ["a"]}}})
    assert sorted(server.get(f"/api/v1/graphs/{made.id}/layout")["names"]) == ["a", "b"]


def test_a_large_graph_is_drawn_as_groups_unless_its_tasks_are_asked_for(server: RunningServer) -> None:
    parts = {f"part-{n}": {**task(), "requires": ["first"]} for n in range(400)}
    made = server.submit({"tasks": {"first": task(), **parts}})
    found = server.get(f"/api/v1/graphs/{made.id}/layout")
    assert (found["view"], found["names"], found["size"]) == ("groups", ["first", "part-*"], 401)
    assert sorted(found["group_of"]).count(1) == 400
    assert len(server.get(f"/api/v1/graphs/{made.id}/layout?view=tasks")["ids"]) == 401
    assert server.ask("GET", f"/api/v1/graphs/{made.id}/layout?view=circles").status == 400
