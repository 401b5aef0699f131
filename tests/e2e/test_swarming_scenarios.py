"""What Swarming's own end-to-end suite runs, each scenario on a real server and a real bot.

Inputs and outputs by digest are in `test_files.py`, named caches in `test_bots.py`.
"""

import base64
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster, Graph, wait_for
from tests.e2e.documents import gated, node, only, script


def ends(cluster: Cluster, tasks: dict[str, Any]) -> dict[str, tuple[str, str, int | None]]:
    """Run tasks; return the state, the reason and the exit code of each."""
    graph = cluster.submit(tasks)
    graph.settled()
    found = {}
    for label in tasks:
        task, attempts = graph.task(label), graph.attempts(label)
        found[label] = (task.state, task.reason, attempts[-1].exit_code if attempts else None)
    return found


def test_output_is_bytes_and_not_text(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit({"raw": script(r"printf '\377\000\376\r\n\033[31m'")})
    graph.finished()
    assert graph.output("raw") == b"\xff\x00\xfe\r\n\x1b[31m"


def test_one_succeeds_and_one_fails_and_one_is_no_command(shared_cluster: Cluster) -> None:
    tasks = {
        "good": node({"command": ["true"]}),
        "bad": node({"command": ["false"]}),
        "missing": node({"command": ["/no/such/program"]}),
    }
    assert ends(shared_cluster, tasks) == {
        "good": ("successful", "done", 0),
        "bad": ("failed", "exit_code", 1),
        "missing": ("failed", "exit_code", 127),
    }


def test_a_time_out_sends_a_signal_and_leaves_a_grace_period(shared_cluster: Cluster) -> None:
    ending = "trap 'echo ending; exit 7' TERM; echo begun; while :; do sleep 0.05; done"
    deaf = "trap '' TERM; echo begun; while :; do sleep 0.05; done"
    graph = shared_cluster.submit(
        {
            "hard": node({"script": ending, "timeout": "1s", "grace": "1m"}),
            "silent": node({"script": ending, "io_timeout": "1s", "grace": "1m"}),
            "deaf": node({"script": deaf, "timeout": "1s", "grace": "1s"}),
        }
    )
    graph.settled()
    assert {label: graph.task(label).reason for label in graph.names} == {
        "hard": "timed_out",
        "silent": "silent",
        "deaf": "timed_out",
    }
    for label in ("hard", "silent"):
        assert graph.output(label).startswith(b"begun\n")
        assert graph.output(label).endswith(b"ending\n")
    assert graph.output("deaf").startswith(b"begun\n")


def test_the_environment_is_what_the_payload_says(shared_cluster: Cluster) -> None:
    payload = {"script": 'echo "$COLOUR"; echo "${TASKYARD_TOKEN:+token}"', "env": {"COLOUR": "dark $HOME 'blue'"}}
    graph = shared_cluster.submit({"env": node(payload)})
    graph.finished()
    assert graph.output("env").startswith(b"dark $HOME 'blue'\n")


def test_the_lowest_priority_number_runs_first_and_equal_ones_in_order(shared_cluster: Cluster, tmp_path: Path) -> None:
    shared_cluster.bot("in-order", slots=1)
    gate, order = tmp_path / "gate", tmp_path / "order"
    here = only("in-order")
    first = shared_cluster.submit({"first": gated(gate, task=here)})
    first.until("first", "running")
    graphs = [
        shared_cluster.submit({"one": script(f"echo {number} >> {order}", task={**here, "priority": number})})
        for number in (200, 30, 100, 30, 40)
    ]
    gate.touch()
    for graph in graphs:
        graph.finished()
    assert order.read_text().split() == ["30", "30", "40", "100", "200"]
    created = [graph.task("one").created_ms for graph in (graphs[1], graphs[3])]
    begun = [graph.attempts("one")[0].claimed_ms for graph in (graphs[1], graphs[3])]
    assert created == sorted(created)
    assert begun == sorted(begun)


def test_a_pending_task_is_canceled_and_never_runs_and_a_running_one_is_killed(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    shared_cluster.bot("cancels", slots=1)
    here = only("cancels")
    graph = shared_cluster.submit(
        {
            "runs": gated(tmp_path / "never", "echo begun", task=here),
            "waits": script(f"touch {tmp_path / 'ran'}", task={**here, "priority": 200}),
        }
    )
    wait_for(lambda: graph.output("runs"), lambda seen: seen == b"begun\n", "the first task has begun")
    shared_cluster.client.cancel_task(graph.names["waits"])
    assert graph.task("waits").state == "canceled"
    shared_cluster.client.cancel_task(graph.names["runs"])
    graph.settled()
    assert graph.states() == {"runs": "canceled", "waits": "canceled"}
    assert graph.attempts("waits") == []
    assert not (tmp_path / "ran").exists()


def test_an_idempotent_task_runs_once_and_what_fails_is_run_again(shared_cluster: Cluster, tmp_path: Path) -> None:
    count = tmp_path / "count"
    same = {"idempotent": True}
    tasks = {
        "good": script(f"echo good >> {count}; echo printed; echo 7 > $TASKYARD_RESULT", task=same),
        "bad": script(f"echo bad >> {count}; exit 3", task=same),
    }
    first, second = (shared_cluster.submit(tasks) for _ in range(2))
    for graph in (first, second):
        graph.settled()
    third = shared_cluster.submit(tasks)
    third.settled()
    assert sorted(count.read_text().split()) == ["bad", "bad", "bad", "good"]
    ran, reused = sorted((first, second), key=lambda one: one.task("good").attempt, reverse=True)
    for graph in (reused, third):
        task = graph.task("good")
        assert (task.reason, task.attempt, task.result) == ("reused", 0, 7)
        assert task.reused is not None
        assert task.reused.task == ran.names["good"], "never a reused one"
        assert graph.output("good") == b"printed\n"
        assert graph.attempts("good") == []


def test_secret_bytes_are_for_the_attempt_alone(shared_cluster: Cluster) -> None:
    payload = {"script": 'wc -c < "$TASKYARD_SECRET_BYTES"; rev "$TASKYARD_SECRET_BYTES"; cat "$TASKYARD_SECRET_BYTES"'}
    body = {"task": {"payload": payload}, "secret_bytes": base64.b64encode(b"swordfish-of-a-request").decode()}
    made = shared_cluster.client.request(body)
    graph = Graph(shared_cluster, made.graph_id)
    graph.finished()
    (task,) = shared_cluster.client.tasks(made.graph_id)
    assert shared_cluster.client.output(task.id) == b"22\ntseuqer-a-fo-hsifdrows***"


def test_slices_are_tried_in_order_and_a_task_that_no_bot_can_run_ends_without_an_attempt(
    shared_cluster: Cluster,
) -> None:
    def asks(printed: str, dimensions: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"dimensions": dimensions, "payload": {"script": f"echo {printed}"}, **more}

    main = {"id": "main"}
    nowhere = {"gpu": "none-such"}
    graph = shared_cluster.submit(
        {
            "first": {"task": {"slices": [asks("first", main), asks("second", main)]}},
            "no-capacity": {"task": {"slices": [asks("first", nowhere), asks("second", main)]}},
            "expired": {
                "task": {"slices": [asks("first", nowhere, wait_for_capacity=True, expires="1s"), asks("second", main)]}
            },
            "no-resource": {"task": {"slices": [asks("never", nowhere, wait_for_capacity=False)]}},
        }
    )
    graph.settled()
    assert {label: graph.output(label) for label in ("first", "no-capacity", "expired")} == {
        "first": b"first\n",
        "no-capacity": b"second\n",
        "expired": b"second\n",
    }
    last = graph.task("no-resource")
    assert (last.state, last.reason, graph.attempts("no-resource")) == ("error", "no_bot", [])
