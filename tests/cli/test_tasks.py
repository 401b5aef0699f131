"""`tasks` and `cancel` across graphs, `retention`, and `graphs delete`, on a real server."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import CommandResult

Invoke = Callable[..., CommandResult]


@pytest.fixture
def tag(invoke: Invoke, tmp_path: Path) -> str:
    """The tag of two tasks of a graph that no other task has; one of them waits for the other."""
    tag = f"build:{uuid4().hex}"
    nodes = {
        "a": {"task": {"payload": {"command": ["true"]}, "tags": [tag], "dimensions": {"os": "Linux"}}},
        "b": {"requires": ["a"], "task": {"payload": {"command": ["true"]}, "tags": [tag, "user:ada"]}},
    }
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"tasks": nodes}))
    assert invoke("submit", str(file)).code == 0
    return tag


def listed(invoke: Invoke, *arguments: str) -> list[str]:
    seen = invoke("tasks", *arguments, "-o", "json")
    assert seen.code == 0, seen.err
    return [one["label"] for one in json.loads(seen.out)]


def test_tasks_are_listed_and_counted_across_graphs(invoke: Invoke, tag: str) -> None:
    assert listed(invoke, "--tag", tag) == ["a", "b"]
    assert listed(invoke, "--tag", tag.replace(":", "="), "--tag", "os:Linux") == ["a"]
    assert listed(invoke, "--tag", tag, "--user", "ada") == ["b"]
    assert listed(invoke, "--tag", tag, "--state", "failed") == []
    assert listed(invoke, "--tag", tag, "--state", "waiting", "--state", "unscheduled", "--since", "1d") == ["a", "b"]
    counts = json.loads(invoke("tasks", "--tag", tag, "--count", "-o", "json").out)
    assert counts == [{"state": "unscheduled", "tasks": 1}, {"state": "waiting", "tasks": 1}]
    table = invoke("tasks", "--tag", tag).out.splitlines()
    assert ("GRAPH" in table[0], len(table)) == (True, 3)


def test_tasks_of_one_graph_are_listed_by_tag_too(invoke: Invoke, tag: str) -> None:
    graph = json.loads(invoke("tasks", "--tag", tag, "-o", "json").out)[0]["graph_id"]
    assert listed(invoke, graph, "--tag", "os:Linux") == ["a"]
    assert listed(invoke, graph, "--label", "b") == ["b"]
    assert invoke("tasks", "--label", "b").code == 2


def test_tasks_are_canceled_by_tag(invoke: Invoke, tag: str) -> None:
    assert "1 task canceled" in invoke("cancel", "--tag", tag, "--state", "unscheduled").err
    assert "1 task canceled" in invoke("cancel", "--tag", tag).err
    assert listed(invoke, "--tag", tag, "--state", "canceled") == ["a", "b"]


def test_a_cancel_needs_something_to_go_by(invoke: Invoke) -> None:
    assert invoke("cancel").code == 2
    assert invoke("cancel", "--state", "waiting").code == 2
    assert invoke("cancel", "78a6ff3e8d8c0f28", "--tag", "a:b").code == 2


def test_times_are_set_and_shown(invoke: Invoke) -> None:
    assert invoke("retention", "set", "books", "output=7d", "graphs=forever").code == 0
    rows = {one["pool"]: one["times"] for one in json.loads(invoke("retention", "-o", "json").out)}
    assert rows["books"] == {"output": 7 * 86_400_000, "graphs": None}
    assert "books" in invoke("retention").out
    assert invoke("retention", "set", "books", "output=default", "graphs=default").code == 0
    assert "books" not in invoke("retention").out
    assert invoke("retention", "set", "books", "outputs=7d").code == 2
    assert invoke("retention", "set", "books", "output=soon").code == 2


def test_a_graph_is_deleted_once_it_is_settled(invoke: Invoke, tag: str) -> None:
    graph = json.loads(invoke("tasks", "--tag", tag, "-o", "json").out)[0]["graph_id"]
    early = invoke("graphs", "delete", graph)
    assert (early.code, "cancel it first" in early.err) == (1, True)
    assert invoke("cancel", graph).code == 0
    assert "1 graph deleted" in invoke("graphs", "delete", graph).err
    assert invoke("show", graph).code == 5
    assert invoke("graphs", "delete", graph).code == 5
