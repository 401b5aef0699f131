"""Reruns and cancels from some tasks on, over HTTP, on one server for all tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from taskyard.core.ids import key_of
from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Output, Poll
from tests.server.running_server import Made, RunningServer, graph, task


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(f"sqlite:///{tmp_path_factory.mktemp('yard') / 'yard.db'}") as made:
        made.hello("b1")
        yield made


def ran(place: RunningServer, document: object, *failing: str) -> Made:
    """A settled graph; each task published its label."""
    made = place.submit(document)
    labels: dict[int, str] = {key_of(id): label for label, id in made.tasks.items()}
    for _ in range(len(labels) + 1):
        for lease in place.claim():
            label = labels[lease.task]
            place.end(lease, Signal.FAIL if label in failing else Signal.SUCCEED, f'"{label}"')
    return made


def command(place: RunningServer, made: Made, verb: str, body: object = None, **said: Any) -> Any:
    return place.ask("POST", f"/api/v1/graphs/{made.id}/{verb}", body, **said)


def states(place: RunningServer, graph: str) -> dict[str, str]:
    return {one["label"]: one["state"] for one in place.get(f"/api/v1/graphs/{graph}/tasks")["items"]}


ROW = {"name": "row", **graph(a=task(), b=task("a"), c=task("b"))}


def test_what_failed_is_tried_again_and_counted_with_what_it_blocked(place: RunningServer) -> None:
    made = ran(place, ROW, "b")
    answer = command(place, made, "rerun", {"failed": True}, headers={"Idempotency-Key": "r1"})
    expected = {
        "subject": made.id, "moved": 1, "promised": False, "echo": False, "total": 1, "unblocked": 1,
        "tasks": [made.tasks["b"]], "rerun_of": None, "reused": 0,
    }  # fmt: skip
    assert (answer.status, answer.json) == (200, expected)
    assert states(place, made.id) == {"a": "successful", "b": "waiting", "c": "unscheduled"}
    assert command(place, made, "rerun", {"failed": True}, headers={"Idempotency-Key": "r1"}).json == expected
    assert command(place, made, "rerun").json["echo"] is True
    command(place, made, "cancel")


def test_a_finished_graph_is_run_again_from_a_label_on_as_a_new_one(place: RunningServer) -> None:
    made = ran(place, ROW)
    answer = command(place, made, "rerun", {"from": ["c"]}, headers={"Idempotency-Key": "r2"})
    new = answer.json["subject"]
    assert (answer.status, answer.json["rerun_of"]) == (201, made.id)
    assert (answer.json["moved"], answer.json["reused"], answer.json["total"]) == (1, 2, 3)
    again = command(place, made, "rerun", {"from": ["c"]}, headers={"Idempotency-Key": "r2"})
    assert (again.status, again.json) == (200, answer.json | {"echo": True})
    shown = place.get(f"/api/v1/graphs/{new}")
    assert (shown["name"], shown["rerun_of"], shown["rerun_from"], shown["reused"]) == ("row", made.id, ["c"], 2)
    listed = place.get("/api/v1/graphs?name=row&limit=1")["items"]
    assert [(one["id"], one["rerun_of"]) for one in listed] == [(new, made.id)]
    names = place.get(f"/api/v1/graphs/{new}/names")["nameMapping"]
    taken = place.get(f"/api/v1/tasks/{names['b']}")
    assert (taken["state"], taken["reason"], taken["attempt"], taken["result"]) == ("successful", "reused", 0, "b")
    saved = taken["reused"].pop("saved_ms")
    assert saved >= 0
    assert taken["reused"] == {"task": made.tasks["b"], "graph_id": made.id, "attempt": 1}
    assert taken["resolution"] == {
        "failed": False,
        "resultUrl": f"http://yard/api/v1/tasks/{names['b']}/result",
        "logsUrl": f"http://yard/api/v1/tasks/{made.tasks['b']}/output",
    }
    assert place.get(f"/api/v1/tasks/{names['c']}/inputs") == {"b": "b"}
    assert place.get(f"/api/v1/tasks/{names['b']}/result") == "b"
    assert place.get(f"/api/v1/tasks/{names['b']}/story")["reused"]["task"] == made.tasks["b"]
    (lease,) = place.claim()
    place.end(lease)
    assert place.get(f"/api/v1/graphs/{new}")["state"] == "finished"


def test_a_task_that_reuses_a_result_has_its_output(place: RunningServer) -> None:
    made = place.submit(graph(a=task(), b=task("a")))
    for body in (b"of a", b"of b"):
        (lease,) = place.claim()
        place.engine.poll(Poll("b1", "s1", outputs=(Output(lease.task, lease.attempt, lease.fence, 0, body),)))
        place.end(lease)
    new = command(place, made, "rerun", {"from": ["b"]}).json["subject"]
    newer = place.get(f"/api/v1/graphs/{new}/names")["nameMapping"]
    path = f"/api/v1/tasks/{newer['a']}/output"
    assert (place.ask("GET", path).body, place.ask("GET", f"{path}?follow=true").body) == (b"of a", b"of a")
    assert [one["start"] for one in place.get(f"{path}/times")["items"]] == [0]
    assert place.ask("GET", f"{path}?attempt=1").status == 404, "it has no attempt of its own"
    (lease,) = place.claim()
    place.end(lease)


def test_an_invalid_request_lists_the_paths_of_its_faults(place: RunningServer) -> None:
    made = ran(place, ROW)
    refused = {
        "from[0]": {"from": ["cc"]},
        "from": {"from": []},
        "failed": {"failed": True, "from": ["c"]},
        "form": {"form": ["c"]},
    }
    for path, body in refused.items():
        answer = command(place, made, "rerun", body)
        assert (answer.status, path in answer.paths) == (400, True), path
    assert "did you mean" in command(place, made, "rerun", {"from": ["cc"]}).json["faults"][0]["message"]
    assert command(place, made, "rerun", {"failed": False}).paths == ["failed"]
    assert command(place, made, "cancel", {"from": ["nobody"]}).paths == ["from[0]"]


def test_a_graph_that_moves_is_not_run_again(place: RunningServer) -> None:
    made = place.submit(ROW)
    answer = command(place, made, "rerun", {"from": ["a"]})
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    command(place, made, "cancel")


def test_to_run_again_needs_a_right_where_something_runs(place: RunningServer) -> None:
    place.hello("b2", pool="lab")
    nodes = graph(a=task(dimensions={"pool": "lab"}), b=task("a", dimensions={"pool": "default"}))
    made = place.submit(nodes)
    for bot in ("b2", "b1"):
        (lease,) = place.claim(bot)
        place.end(lease, bot=bot)
    here = place.token("pool:default:submit", "pool:default:read")
    denied = command(place, made, "rerun", {"from": ["a"]}, token=here)
    assert (denied.status, "pool:lab:submit" in denied.json["detail"]) == (403, True)
    unseen = command(place, made, "rerun", {"from": ["b"]}, token=place.token("pool:default:submit"))
    assert unseen.status == 403
    assert command(place, made, "rerun", {"from": ["b"]}, token=here).status == 201
    (lease,) = place.claim()
    place.end(lease)


def test_some_tasks_end_with_all_behind_them_and_their_handlers_do_not_start(place: RunningServer) -> None:
    handler = {"requires": [{"task": "b", "on": "failure"}, {"task": "x", "on": "always"}], "task": task()["task"]}
    made = place.submit(graph(a=task(), b=task("a"), c=task("b"), h=handler, x=task(), y=task("x")))
    (first, second) = place.claim()
    answer = command(place, made, "cancel", {"from": ["b"]}, headers={"Idempotency-Key": "c1"})
    assert (answer.status, answer.json["moved"], answer.json["total"]) == (200, 3, 3)
    for lease in (first, second):
        place.end(lease)
    assert states(place, made.id) == {
        "a": "successful", "b": "canceled", "c": "canceled", "h": "canceled", "x": "successful", "y": "waiting",
    }  # fmt: skip
    assert command(place, made, "cancel", {"from": ["b"]}, headers={"Idempotency-Key": "c1"}).json == answer.json
    assert command(place, made, "cancel", {"from": ["b", "c"]}).json["echo"] is True
    command(place, made, "cancel")


def test_a_matrix_ends_whole(place: RunningServer) -> None:
    test = {"matrix": {"os": ["x", "y"]}, "task": task()["task"]}
    made = place.submit(graph(test=test, after=task("test"), other=task()))
    assert command(place, made, "cancel", {"from": ["test"]}).json["moved"] == 3
    assert states(place, made.id)["other"] == "waiting"
    command(place, made, "cancel")


def test_the_critical_path_is_shown_to_callers_who_may_read_the_graph(place: RunningServer) -> None:
    first = ran(place, {**ROW, "name": "paths"})
    past = place.get(f"/api/v1/graphs/{first.id}/critical-path")
    assert (past["settled"], [one["label"] for one in past["path"]]) == (True, ["a", "b", "c"])
    assert past["total_ms"] == past["running_ms"] + past["waiting_ms"]
    made = place.submit({**ROW, "name": "paths"})
    seen = place.get(f"/api/v1/graphs/{made.id}/critical-path")
    assert (seen["settled"], seen["left"], seen["known"], seen["confidence"]) == (False, 3, 3, 1.0)
    assert seen["expected_end_ms"] >= seen["at_ms"]
    stranger = place.token("pool:lab:read")
    assert place.ask("GET", f"/api/v1/graphs/{made.id}/critical-path", token=stranger).status == 403
    assert place.ask("GET", "/api/v1/graphs/7ffffffffffffff8/critical-path").status == 404
    command(place, made, "cancel")


def test_it_is_described(place: RunningServer) -> None:
    paths = place.get("/api/v1/openapi.json")["paths"]
    again = paths["/api/v1/graphs/{graph_id}/rerun"]["post"]
    assert set(again["requestBody"]["content"]["application/json"]["schema"]["properties"]) == {"failed", "from"}
    assert {"200", "201", "400", "403", "404", "409"} <= set(again["responses"])
