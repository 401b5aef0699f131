"""Routes of tasks: views, output, inputs, cancel and rerun."""

import threading

import pytest

from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Lease, Output, OutputStored, Poll
from taskyard.lifecycle.poll import PollOutcome
from tests.engine.harness import wait_until
from tests.server.running_server import RunningServer, graph, task

UNKNOWN = "7ffffffffffffff8"


def printed(server: RunningServer, lease: Lease, *pieces: bytes) -> None:
    """Send output of a task as a bot does."""
    for piece in pieces:
        with server.engine.store.read() as repo:
            start = repo.output.sizes(lease.task).get(lease.attempt, 0)
        output = Output(lease.task, lease.attempt, lease.fence, start, piece)
        answer = server.engine.poll(Poll("b1", "s1", outputs=(output,)))
        assert isinstance(answer, PollOutcome)
        assert isinstance(answer.outputs[0], OutputStored)


def test_a_task_is_shown_with_the_names_of_the_task_graph_scheduler(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b={**task("a"), "reruns": 2}, c=task("b")))
    shown = either_server.get(f"/api/v1/tasks/{made.tasks['b']}")
    for moment in ("created_ms", "moved_ms"):
        assert isinstance(shown.pop(moment), int)
    definition = shown.pop("definition")
    assert definition["slices"][0]["payload"] == {"command": ["true"]}
    assert shown == {
        "id": made.tasks["b"],
        "graph_id": made.id,
        "label": "b",
        "state": "unscheduled",
        "reason": "prerequisite",
        "kind": "command",
        "attempt": 0,
        "priority": 100,
        "bot": None,
        "slice_index": 0,
        "routing": f"taskyard.{made.id}._._",
        "rerunsAllowed": 2,
        "rerunsLeft": 2,
        "retries_left": 2,
        "deadline_ms": None,
        "not_before_ms": None,
        "resolution": None,
        "exit_code": None,
        "started_ms": None,
        "ended_ms": None,
        "duration_ms": None,
        "note": None,
        "progress": None,
        "requires": [{"task": made.tasks["a"], "label": "a", "on": "success"}],
        "dependents": [made.tasks["c"]],
        "result": None,
        "files": None,
        "input_trees": [],
        "inner_graph": None,
        "reused": None,
        "deadlock": None,
        "user": "admin",
        "authenticated": either_server.admin.split("_")[2],
        "tags": ["pool:default", "priority:100", "user:admin"],
        "parent": None,
        "children": [],
    }


def test_a_task_that_ended_has_a_resolution_a_result_and_an_attempt(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task(), b=task("a")))
    either_server.hello()
    (lease,) = either_server.claim()
    either_server.end(lease, result='{"built": [1, 2]}')
    path = f"/api/v1/tasks/{made.tasks['a']}"
    shown = either_server.get(path)
    at = f"http://yard{path}"
    assert shown["resolution"] == {"failed": False, "resultUrl": f"{at}/result", "logsUrl": f"{at}/output"}
    assert (shown["exit_code"], shown["result"]) == (0, {"built": [1, 2]})
    assert shown["bot"] == "b1"
    assert shown["duration_ms"] == shown["ended_ms"] - shown["started_ms"] >= 0
    (listed,) = (one for one in either_server.get(f"/api/v1/graphs/{made.id}/tasks")["items"] if one["label"] == "a")
    assert all(listed[name] == shown[name] for name in ("bot", "started_ms", "ended_ms", "duration_ms", "resolution"))
    (second,) = either_server.claim()
    either_server.end(second)
    silent = either_server.get(f"/api/v1/tasks/{made.tasks['b']}")
    assert (silent["resolution"]["resultUrl"], silent["dependents"]) == (None, ["task-graph"])
    assert either_server.get(f"{path}/result") == {"built": [1, 2]}
    (attempt,) = either_server.get(f"{path}/attempts")["items"]
    assert (attempt["number"], attempt["bot"], attempt["signal"], attempt["result"]) == (
        1, "b1", "succeed", {"built": [1, 2]},
    )  # fmt: skip
    assert either_server.get(f"/api/v1/tasks/{made.tasks['b']}/inputs") == {"a": {"built": [1, 2]}}
    assert either_server.ask("GET", f"/api/v1/tasks/{made.tasks['b']}/result").status == 404


def test_ids_are_found_by_their_end_as_far_as_the_asker_may_see_them(either_server: RunningServer) -> None:
    either_server.hello("b1", "lab")
    made = either_server.submit(graph("named", a=task(dimensions={"pool": "lab"})))
    end = made.id[-5:]
    twin = f"{int(made.id, 16) ^ (1 << 40):016x}"
    assert (
        either_server.ask("PUT", f"/api/v1/graphs/{twin}", graph(b=task(dimensions={"pool": "default"}))).status == 201
    )
    found = either_server.get(f"/api/v1/ids/{end}")
    shown = {"id": made.id, "kind": "graph", "name": "named", "graph_id": made.id}
    assert shown in found["items"]
    assert {one["id"] for one in found["items"]} == {made.id, twin}
    assert found["whole"]
    (one,) = either_server.get(f"/api/v1/ids/{made.tasks['a'][-12:]}")["items"]
    assert one == {"id": made.tasks["a"], "kind": "task", "name": "a", "graph_id": made.id}
    token = either_server.token("pool:lab:read")
    assert either_server.get(f"/api/v1/ids/{end}", token=token)["items"] == [shown]
    assert [either_server.ask("GET", f"/api/v1/ids/{bad}").status for bad in ("1234", "12G45", "0" * 16)] == [
        400,
        400,
        400,
    ]


def test_a_story_has_the_events_and_the_requests(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel")
    story = server.get(f"/api/v1/tasks/{made.tasks['a']}/story")
    assert (story["task"], story["label"], story["state"], story["whole"]) == (
        made.tasks["a"],
        "a",
        "canceled",
        True,
    )
    assert [one["signal"] for one in story["items"] if one["signal"]] == ["release", "admit", "cancel"]
    (asked,) = [one for one in story["items"] if one["about"] == "task"]
    assert asked["action"] == "cancel"
    assert asked["actor"].startswith("admin (")


def test_a_task_is_canceled_with_everything_behind_it(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b=task("a"), c=task()))
    answer = server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel", {"subtree": True})
    assert (answer.status, answer.json["moved"]) == (200, 2)
    assert server.get(f"/api/v1/graphs/{made.id}")["counts"] == {"canceled": 2, "waiting": 1}
    again = server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/rerun")
    assert (again.status, again.json["subject"]) == (200, made.tasks["a"])
    wrong = server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/cancel", {"subtree": 1, "subtre": True})
    assert (wrong.status, sorted(wrong.paths)) == (400, ["subtre", "subtree"])


def test_a_rerun_of_what_succeeded_is_a_conflict(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b=task()))
    server.hello()
    lease = next(one for one in server.claim() if one.task == made.key("a"))
    server.end(lease)
    answer = server.ask("POST", f"/api/v1/tasks/{made.tasks['a']}/rerun")
    assert (answer.status, answer.json["code"]) == (409, "conflict")


def test_a_request_repeated_with_its_key_is_answered_as_before(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    path, key = f"/api/v1/tasks/{made.tasks['a']}/cancel", {"Idempotency-Key": "k"}
    first, again = (server.ask("POST", path, headers=key) for _ in range(2))
    assert first.json == again.json
    assert server.ask("POST", f"/api/v1/graphs/{made.id}/cancel", headers=key).status == 409


@pytest.mark.parametrize("part", ["", "/attempts", "/output", "/output/times", "/story", "/inputs", "/result"])
def test_a_task_that_is_not_there_is_not_found(server: RunningServer, part: str) -> None:
    for id in (UNKNOWN, "x", "a%00b", "%ff%fe", "7" * 4000):
        answer = server.ask("GET", f"/api/v1/tasks/{id}{part}")
        assert (answer.status, answer.json["code"]) == (404, "not_found")


# Output.


def test_output_is_read_whole_by_offsets_and_by_ranges(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task()))
    either_server.hello()
    (lease,) = either_server.claim()
    printed(either_server, lease, b"hello ", b"\xff<b>", b"world")
    path = f"/api/v1/tasks/{made.tasks['a']}/output"
    whole = either_server.ask("GET", path)
    assert (whole.status, whole.body) == (200, b"hello \xff<b>world")
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"] == f'attachment; filename="{made.tasks["a"]}-1.log"'
    assert either_server.ask("GET", f"{path}?start=4&end=8").body == b"o \xff<"
    assert either_server.ask("GET", f"{path}?start=99").body == b""
    for asked, body, place in [
        ("bytes=0-4", b"hello", "bytes 0-4/15"),
        ("bytes=10-", b"world", "bytes 10-14/15"),
        ("bytes=-5", b"world", "bytes 10-14/15"),
        ("bytes=5-999", b" \xff<b>world", "bytes 5-14/15"),
    ]:
        part = either_server.ask("GET", path, headers={"Range": asked})
        assert (part.status, part.body, part.headers["content-range"]) == (206, body, place)
    for odd in ("bytes=a-b", "lines=1-2", "bytes=3-1", "bytes=-"):
        assert either_server.ask("GET", path, headers={"Range": odd}).status == 200
    beyond = either_server.ask("GET", path, headers={"Range": "bytes=15-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, "bytes */15")
    assert either_server.ask("GET", f"{path}?attempt=2").status == 404
    assert either_server.ask("GET", f"{path}?start=5&end=2").paths == ["end"]
    assert either_server.ask("GET", f"{path}?attempt=0&start=-1").paths == ["attempt", "start"]
    assert either_server.get(f"/api/v1/tasks/{made.tasks['a']}/attempts")["items"][0]["output_bytes"] == 15


def test_output_has_the_times_at_which_it_came(either_server: RunningServer) -> None:
    made = either_server.submit(graph(a=task()))
    either_server.hello()
    (lease,) = either_server.claim()
    before = either_server.engine.clock.now()
    printed(either_server, lease, b"hello ", b"there ", b"world")
    path = f"/api/v1/tasks/{made.tasks['a']}/output/times"
    first = either_server.get(f"{path}?limit=2")
    rest = either_server.get(f"{path}?cursor={first['next']}")
    times = [*first["items"], *rest["items"]]
    assert ([one["start"] for one in times], rest["next"]) == ([0, 6, 12], None)
    moments = [one["at_ms"] for one in times]
    assert before <= moments[0] <= moments[1] <= moments[2] <= either_server.engine.clock.now()
    assert either_server.get(f"{path}?start=7")["items"] == times[1:]
    assert either_server.get(f"{path}?since_ms={moments[2]}")["items"][-1] == times[2]
    assert either_server.get(f"{path}?since_ms={moments[2] + 1}")["items"] == []
    assert either_server.ask("GET", f"{path}?attempt=2").status == 404
    assert either_server.ask("GET", f"{path}?attempt=0&start=-1&since_ms=-1").paths == ["attempt", "start", "since_ms"]


def test_output_is_followed_until_the_attempt_ends(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    printed(server, lease, b"first ")
    connection = server.connection()
    connection.request(
        "GET",
        f"/api/v1/tasks/{made.tasks['a']}/output?follow=true",
        headers={"Authorization": f"Bearer {server.admin}"},
    )
    got = connection.getresponse()
    assert got.read(6) == b"first "
    printed(server, lease, b"last")
    assert got.read(4) == b"last"
    server.end(lease)
    assert got.read() == b""
    connection.close()


def test_a_stop_ends_the_requests_that_follow_output(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    printed(server, lease, b"x")
    connection = server.connection()
    connection.request(
        "GET",
        f"/api/v1/tasks/{made.tasks['a']}/output?follow=true",
        headers={"Authorization": f"Bearer {server.admin}"},
    )
    got = connection.getresponse()
    assert got.read(1) == b"x"
    stopping = threading.Thread(target=server.http.stop)
    stopping.start()
    assert got.read() == b""
    stopping.join(60)
    assert not stopping.is_alive()
    connection.close()


def test_a_closed_connection_follows_no_more(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    printed(server, lease, b"x")
    connection = server.connection()
    connection.request(
        "GET",
        f"/api/v1/tasks/{made.tasks['a']}/output?follow=true",
        headers={"Authorization": f"Bearer {server.admin}"},
    )
    assert connection.getresponse().read(1) == b"x"
    assert server.http.app.context.followers.total() == 1
    connection.close()
    wait_until(lambda: server.http.app.context.followers.total() == 0)


# What a running task publishes.


def test_only_the_task_itself_publishes(server: RunningServer) -> None:
    made = server.submit(graph(a=task(), b=task()))
    server.hello()
    leases = {lease.task: lease for lease in server.claim()}
    other = server.run_token(leases[made.key("b")])
    for part in ("result", "progress", "checkpoint"):
        path = f"/api/v1/tasks/{made.tasks['a']}/{part}"
        assert server.ask("PUT", path, b"1").status == 403
        assert server.ask("PUT", path, b"1", token=other).status == 403
        assert server.ask("PUT", path, b"1", token=None).status == 401


def test_a_running_task_publishes_its_result_and_its_progress(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    mine, path = server.run_token(lease), f"/api/v1/tasks/{made.tasks['a']}"
    assert server.ask("PUT", f"{path}/result", {"n": 1}, token=mine).status == 204
    assert server.ask("PUT", f"{path}/progress", b"half way", token=mine).status == 204
    assert server.ask("PUT", f"{path}/checkpoint", b"\x00\xff", token=mine).status == 204
    assert server.get(path)["progress"] == "half way"
    server.end(lease, Signal.SUCCEED)
    assert server.get(f"{path}/result") == {"n": 1}


def test_what_a_running_task_publishes_is_bounded(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    mine, path = server.run_token(lease), f"/api/v1/tasks/{made.tasks['a']}"
    assert server.ask("PUT", f"{path}/result", b"{", token=mine).status == 400
    assert server.ask("PUT", f"{path}/result", b'"' + b"x" * 300_000 + b'"', token=mine).status == 413
    assert server.ask("PUT", f"{path}/progress", b"\xff", token=mine).status == 400
    assert server.ask("PUT", f"{path}/progress", b"x" * 5_000, token=mine).status == 413
    assert server.ask("PUT", f"{path}/checkpoint", b"x" * 70_000, token=mine).status == 413


def test_what_a_running_task_publishes_has_the_type_that_the_route_reads(server: RunningServer) -> None:
    made = server.submit(graph(a=task()))
    server.hello()
    (lease,) = server.claim()
    mine, path = server.run_token(lease), f"/api/v1/tasks/{made.tasks['a']}"
    for part, right in (
        ("result", "application/json"),
        ("progress", "text/plain; charset=utf-8"),
        ("checkpoint", "application/octet-stream"),
    ):
        for kind in ("application/json", "text/plain", "application/octet-stream", "text/html"):
            answer = server.ask("PUT", f"{path}/{part}", b"1", token=mine, headers={"Content-Type": kind})
            assert answer.status == (204 if right.startswith(kind) else 415), (part, kind)
        for kind in (right, ""):
            answer = server.ask("PUT", f"{path}/{part}", b"1", token=mine, headers={"Content-Type": kind})
            assert answer.status == 204, (part, kind)


def test_what_holds_a_task_is_shown_in_every_view_of_it(either_server: RunningServer) -> None:
    either_server.hello()
    door = {"mutexes": [{"key": "door"}]}
    made = either_server.submit(graph(first=task(**door), second=task(**door)))

    def listed() -> dict[str, tuple[str, str]]:
        found = either_server.get(f"/api/v1/graphs/{made.id}/tasks")["items"]
        return {one["label"]: (one["state"], one["reason"]) for one in found}

    wait_until(lambda: listed()["first"][0] == "waiting")
    wait_until(lambda: listed()["second"] == ("pending", "mutex"))
    assert either_server.get(f"/api/v1/tasks/{made.tasks['second']}")["reason"] == "mutex"
