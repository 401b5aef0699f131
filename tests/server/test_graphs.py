"""Routes of graphs: what is stored, listed, shown, ended and tried again."""

from typing import Any

import pytest

from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Begun, Poll
from taskyard.lifecycle.poll import PollOutcome
from taskyard.server.requests import SMALL_TASKS_MAX
from taskyard.views.graphs import NAMED_MAX
from tests.server.running_server import RunningServer, fresh, graph, task, wide

UNKNOWN = "7ffffffffffffff8"


def test_a_graph_is_submitted_and_shown(either_server: RunningServer) -> None:
    made = either_server.submit(
        {"name": "nightly", "routing": "night", "tags": {"team": "core"}, "tasks": {"a": task(), "b": task("a")}}
    )
    shown = either_server.get(f"/api/v1/graphs/{made.id}")
    moments = {shown.pop("created_ms"), shown.pop("moved_ms")}
    assert all(isinstance(one, int) for one in moments)
    assert shown == {
        "id": made.id,
        "name": "nightly",
        "state": "running",
        "settled": False,
        "canceled_ms": None,
        "active": 1,
        "behind": 1,
        "unhandled": 0,
        "routing": f"taskyard.{made.id}.night._",
        "description": "",
        "tags": {"team": "core"},
        "schedulerId": "taskyard",
        "counts": {"waiting": 1, "unscheduled": 1},
        "assigned": 0,
        "parent": None,
        "rerun_of": None,
        "rerun_from": [],
        "reused": 0,
        "child_of": None,
        "launch": None,
        "links": [],
        "deadlock": None,
        "nameMapping": made.tasks,
        "namesUrl": None,
        "requires": [made.tasks["b"]],
        "requires_whole": True,
    }


def test_a_graph_is_stored_once_whatever_its_size(server: RunningServer) -> None:
    """Up to 100 tasks are validated on the event loop, and more on a thread."""
    sizes = [0, 1, SMALL_TASKS_MAX, SMALL_TASKS_MAX + 1]
    made = [server.submit(graph(**{f"t{place}": task() for place in range(size)})) for size in sizes]
    assert [len(one.tasks) for one in made] == sizes
    assert [one["id"] for one in walk(server, "/api/v1/graphs")] == [one.id for one in reversed(made)]


def test_a_graph_requires_the_sinks_that_keep_it_from_being_finished(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b=task("a"), c=task("a"), d=task()))
    path = f"/api/v1/graphs/{made.id}"

    def required() -> list[str]:
        return sorted(either_server.get(path)["requires"])

    assert required() == sorted(made.tasks[label] for label in "bcd")
    either_server.hello()
    signals = {made.key("d"): Signal.FAIL}
    for lease in either_server.claim():
        either_server.end(lease, signals.get(lease.task, Signal.SUCCEED))
    first, second = either_server.claim()
    either_server.end(first)
    assert required() == sorted([f"{second.task:016x}", made.tasks["d"]])  # what failed keeps it, too
    either_server.end(second)
    assert required() == [made.tasks["d"]]


def test_a_large_graph_has_a_link_to_its_names(server: RunningServer) -> None:
    made = server.submit(wide(NAMED_MAX + 1))
    shown = server.get(f"/api/v1/graphs/{made.id}")
    assert (shown["nameMapping"], len(shown["requires"]), shown["requires_whole"]) == ({}, NAMED_MAX, False)
    assert shown["namesUrl"] == f"http://yard/api/v1/graphs/{made.id}/names"
    assert server.get(shown["namesUrl"].removeprefix("http://yard"))["nameMapping"] == made.tasks


def test_task_names_are_included_only_on_request(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    shown = server.get(f"/api/v1/graphs/{made.id}?names=false")
    assert (shown["nameMapping"], shown["namesUrl"], shown["requires"]) == ({}, None, [])


def test_assigned_tasks_are_distinguished_from_running_ones(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b=task(), c=task()))
    either_server.hello()
    polled = either_server.engine.poll(Poll("b1", "s1", "p", want=2, begun=()))
    assert isinstance(polled, PollOutcome)
    first, _ = polled.leases
    either_server.engine.poll(Poll("b1", "s1", begun=(Begun(first.task, first.attempt, first.fence),)))
    (listed,) = either_server.get("/api/v1/graphs?counts=true")["items"]
    for seen in (listed, either_server.get(f"/api/v1/graphs/{made.id}")):
        assert (seen["counts"], seen["assigned"]) == ({"running": 2, "waiting": 1}, 1)


def test_task_counts_are_included_only_on_request(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    assert server.get(f"/api/v1/graphs/{made.id}?counts=false")["counts"] == {}


def test_yaml_is_a_graph_too(server: RunningServer) -> None:
    text = b"name: written by hand\ntasks:\n  a:\n    task: {payload: {noop: true}}\n"
    answer = server.ask("POST", "/api/v1/graphs", text, headers={"Content-Type": "application/yaml; charset=utf-8"})
    assert (answer.status, list(answer.json["nameMapping"])) == (201, ["a"])
    assert server.ask("POST", "/api/v1/graphs", text).status == 400


def test_the_same_key_and_body_is_an_echo_and_another_body_a_conflict(either_server: RunningServer) -> None:
    document, key = graph(a=task()), {"Idempotency-Key": "night 1"}
    first = either_server.ask("POST", "/api/v1/graphs", document, headers=key)
    again = either_server.ask("POST", "/api/v1/graphs", document, headers=key)
    assert (first.status, first.json["echo"]) == (201, False)
    assert (again.status, again.json) == (200, first.json | {"echo": True})
    other = either_server.ask("POST", "/api/v1/graphs", graph(b=task()), headers=key)
    assert (other.status, other.json["code"]) == (409, "conflict")


def test_a_key_is_the_callers_own(server: RunningServer) -> None:
    document, key = graph(a=task()), {"Idempotency-Key": "night 1"}
    tokens = [server.token("pool:default:submit") for _ in range(2)]
    made = {server.submit(document, headers=key, token=one).id for one in tokens}
    assert len(made) == 2


def test_a_key_that_is_too_long_is_a_fault(server: RunningServer) -> None:
    answer = server.ask("POST", "/api/v1/graphs", graph(a=task()), headers={"Idempotency-Key": "k" * 256})
    assert (answer.status, answer.paths) == (400, ["Idempotency-Key"])


def test_a_graph_can_be_put_under_an_id_of_ones_choice(server: RunningServer) -> None:
    path = "/api/v1/graphs/1234567890abcde8"
    made, again = (server.ask("PUT", path, graph(a=task())) for _ in range(2))
    assert (made.status, made.json["graph_id"], again.status) == (201, "1234567890abcde8", 200)
    assert server.ask("PUT", path, graph(b=task())).status == 409
    wrong = server.ask("PUT", "/api/v1/graphs/mine", graph(a=task()))
    assert (wrong.status, wrong.paths) == (400, ["graph_id"])


def test_every_fault_of_a_document_is_listed_with_its_path(server: RunningServer) -> None:
    nodes = {"a": task("c"), "b": {"task": {"payload": {"command": []}}, "rerun": 1}}
    answer = server.ask("POST", "/api/v1/graphs", {"tasks": nodes, "nam": "x"})
    assert answer.status == 400
    assert set(answer.paths) >= {"nam", "tasks.a.requires[0]", "tasks.b.rerun", "tasks.b.task.payload.command"}
    assert server.get("/api/v1/graphs")["items"] == []


def test_a_graph_is_extended_and_the_same_again_is_an_echo(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task()))
    path = f"/api/v1/graphs/{made.id}/tasks"
    first, again = (either_server.ask("POST", path, {"tasks": {"b": task("a")}}) for _ in range(2))
    assert (first.status, first.json["echo"], sorted(first.json["nameMapping"])) == (200, False, ["a", "b"])
    assert (again.status, again.json) == (200, first.json | {"echo": True})
    wrong = either_server.ask("POST", path, {"tasks": {"c": task("d")}})
    assert (wrong.status, wrong.paths) == (400, ["tasks.c.requires[0]"])
    assert either_server.ask("POST", f"/api/v1/graphs/{UNKNOWN}/tasks", {"tasks": {}}).status == 404


def test_a_large_extension_answers_with_all_names(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    path, more = f"/api/v1/graphs/{made.id}/tasks", wide(1_500)
    first, again = (server.ask("POST", path, more).json for _ in range(2))
    assert (first["echo"], again["echo"]) == (False, True)
    assert len(first["nameMapping"]) == 1_501
    assert first["nameMapping"] == again["nameMapping"]


def test_a_label_that_is_redefined_is_a_conflict(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b=task()))
    path = f"/api/v1/graphs/{made.id}/tasks"
    other = task(priority=7)
    answer = either_server.ask("POST", path, {"tasks": {"a": other, "b": other}})
    assert (answer.status, answer.json["code"], answer.paths) == (409, "conflict", ["tasks.a", "tasks.b"])
    mixed = either_server.ask("POST", path, {"tasks": {"a": other, "c": task("nobody")}})
    assert (mixed.status, sorted(mixed.paths)) == (400, ["tasks.a", "tasks.c.requires[0]"])


def test_a_canceled_graph_takes_nothing_more(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    ended = server.ask("POST", f"/api/v1/graphs/{made.id}/cancel")
    assert (ended.status, ended.json["subject"], ended.json["moved"], ended.json["echo"]) == (200, made.id, 1, False)
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/cancel").json["echo"] is True
    assert server.get(f"/api/v1/graphs/{made.id}")["state"] == "canceled"
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/tasks", graph(b=task())).status == 409


def test_a_rerun_tries_everything_that_failed(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b=task("a")))
    server.hello()
    (lease,) = server.claim()
    server.end(lease, Signal.FAIL)
    assert server.get(f"/api/v1/graphs/{made.id}")["state"] == "blocked"
    answer = server.ask("POST", f"/api/v1/graphs/{made.id}/rerun")
    assert (answer.status, answer.json["moved"]) == (200, 1)
    assert server.get(f"/api/v1/graphs/{made.id}")["state"] == "running"


def walk(server: RunningServer, path: str, between: Any = lambda: None) -> list[Any]:
    """Every item of a list, page by page."""
    items: list[Any] = []
    mark, cursor = "&" if "?" in path else "?", ""
    for _ in range(100):
        page = server.get(f"{path}{mark}limit=2{cursor}")
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={page['next']}"
        between()
    raise AssertionError("the list never ends")


def test_graphs_are_listed_the_newest_first_and_each_once_while_others_come(either_server: RunningServer) -> None:
    made = [either_server.submit(graph(fresh(), a=task())).id for _ in range(7)]
    walked = [one["id"] for one in walk(either_server, "/api/v1/graphs", lambda: either_server.submit(graph(b=task())))]
    assert walked == made[::-1]


def test_graphs_are_found_by_state_name_and_tag(either_server: RunningServer) -> None:
    named = either_server.submit({"name": "one", "tags": {"team": "a", "kind": "x"}, "tasks": {"a": task()}}).id
    other = either_server.submit({"name": "two", "tags": {"team": "a"}, "tasks": {"a": task()}}).id
    either_server.ask("POST", f"/api/v1/graphs/{other}/cancel")

    def found(query: str) -> list[str]:
        return [one["id"] for one in walk(either_server, f"/api/v1/graphs?{query}")]

    assert found("state=running") == [named]
    assert found("name=two") == [other]
    assert found("tag=team:a") == [other, named]
    assert found("tag=team:a&tag=kind:x") == [named]
    assert found("tag=team:b") == []
    assert either_server.ask("GET", "/api/v1/graphs?name=a%00").status == 400


def test_tasks_are_listed_in_the_order_of_the_document(either_server: RunningServer) -> None:
    made = either_server.submit(wide(5, last=task("t0")))
    path = f"/api/v1/graphs/{made.id}/tasks"
    assert [one["label"] for one in walk(either_server, path)] == ["t0", "t1", "t2", "t3", "t4", "last"]
    assert [one["label"] for one in walk(either_server, f"{path}?state=unscheduled")] == ["last"]
    assert [one["label"] for one in walk(either_server, f"{path}?label=t3")] == ["t3"]
    assert walk(either_server, f"{path}?label=t3&state=failed") == []


def test_names_are_returned_page_by_page(server: RunningServer) -> None:
    made = server.submit(wide(5))
    first = server.get(f"/api/v1/graphs/{made.id}/names?limit=3")
    rest = server.get(f"/api/v1/graphs/{made.id}/names?limit=3&cursor={first['next']}")
    assert first["nameMapping"] | rest["nameMapping"] == made.tasks
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        (f"limit={'9' * 5000}", "limit"),
        ("limit=x", "limit"),
        ("state=odd", "state"),
        ("cursor=!!!", "cursor"),
        ("cursor=AAAA", "cursor"),
        ("cursor=WzFlOTld", "cursor"),
        ("cursor=%C3%A4", "cursor"),
        (f"cursor={'a' * 2000}", "cursor"),
        ("tag=x", "tag"),
        ("name=" + "n" * 300, "name"),
    ],
)
def test_wrong_parameters_are_faults(server: RunningServer, query: str, path: str) -> None:
    answer = server.ask("GET", f"/api/v1/graphs?{query}")
    assert (answer.status, answer.paths) == (400, [path])


def test_every_wrong_parameter_is_listed(server: RunningServer) -> None:
    assert sorted(server.ask("GET", "/api/v1/graphs?limit=0&state=odd").paths) == ["limit", "state"]
