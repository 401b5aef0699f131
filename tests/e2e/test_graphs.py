"""Whole graphs on real bots: results, reruns, extensions and cancels."""

from pathlib import Path

from tests.e2e.cluster import Cluster, Graph
from tests.e2e.documents import call, gated, node, script


def test_results_flow_through_a_diamond(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit(
        {
            "top": script('echo 5 > "$TASKYARD_RESULT"'),
            "left": script('grep -o "[0-9]*" "$TASKYARD_INPUTS" > "$TASKYARD_RESULT"', "top"),
            "right": call("same", 37, requires=("top",)),
            "bottom": call("total", requires=("left", "right")),
        }
    )
    graph.finished()
    assert {label: graph.task(label).result for label in graph.names} == {
        "top": 5,
        "left": 5,
        "right": 37,
        "bottom": 42,
    }
    ended = {label: graph.attempts(label)[0] for label in graph.names}
    assert max(ended["left"].ended_ms or 0, ended["right"].ended_ms or 0) <= ended["bottom"].claimed_ms
    assert [len(graph.attempts(label)) for label in graph.names] == [1, 1, 1, 1]


def test_reruns_lead_to_success(shared_cluster: Cluster, tmp_path: Path) -> None:
    flaky = f'echo try >> {tmp_path}/tries; [ "$(wc -l < {tmp_path}/tries)" -ge 3 ]'
    graph = shared_cluster.submit({"flaky": script(flaky, reruns=2), "after": node({"noop": True}, "flaky")})
    assert (graph.settled().state, graph.states()) == ("finished", {"flaky": "successful", "after": "successful"})
    assert [(one.number, one.signal, one.exit_code) for one in graph.attempts("flaky")] == [
        (1, "fail", 1),
        (2, "fail", 1),
        (3, "succeed", 0),
    ]


def test_an_attempt_goes_on_from_what_the_one_before_has_left(shared_cluster: Cluster) -> None:
    last = 'n=$(cat "$TASKYARD_CHECKPOINT" 2>/dev/null || echo 0)'
    step = f'{last}; echo "$((n + 1))" > "$TASKYARD_CHECKPOINT"; [ "$n" = 2 ]'
    graph = shared_cluster.submit({"steps": script(step, reruns=5)})
    graph.finished()
    assert [one.signal for one in graph.attempts("steps")] == ["fail", "fail", "succeed"]


def test_used_up_reruns_block_what_is_behind_and_a_rerun_by_hand_unblocks_it(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    graph = shared_cluster.submit(
        {"needy": script(f"test -e {tmp_path}/gift", reruns=1), "after": script("true", "needy")}
    )
    assert (graph.settled().state, graph.states()) == ("blocked", {"needy": "failed", "after": "blocked"})
    assert len(graph.attempts("needy")) == 2
    (tmp_path / "gift").touch()
    assert shared_cluster.client.rerun_task(graph.names["needy"]).moved >= 1
    assert (graph.settled().state, graph.states()) == ("finished", {"needy": "successful", "after": "successful"})
    assert len(graph.attempts("needy")) == 3


def test_a_failure_is_handled_by_the_task_that_waits_for_it(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit(
        {
            "bad": script("exit 7"),
            "mop": script('echo \\"mopped\\" > "$TASKYARD_RESULT"', {"task": "bad", "on": "failure"}),
            "calm": script("true", {"task": "mop", "on": "failure"}),
            "always": script("true", {"task": "bad", "on": "always"}),
        }
    )
    graph.settled()
    assert graph.states() == {"bad": "failed", "mop": "successful", "calm": "skipped", "always": "successful"}
    assert (graph.task("bad").exit_code, graph.task("mop").result) == (7, "mopped")


def test_the_first_to_succeed_opens_an_any_join(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = shared_cluster.submit(
        {
            "slow": gated(gate),
            "quick": script("true"),
            "either": script("true", "slow", "quick", join="any"),
        }
    )
    graph.until("either", "successful")
    assert graph.task("slow").state == "running"
    gate.touch()
    graph.finished()


def test_a_graph_is_extended_while_it_runs(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = shared_cluster.submit({"first": gated(gate)})
    graph.until("first", "running")
    more = {"second": call("same", 2, requires=("first",)), "third": call("total", requires=("second",))}
    added = shared_cluster.client.extend(graph.id, more)
    assert (added.echo, shared_cluster.client.extend(graph.id, more).echo) == (False, True)
    gate.touch()
    graph.finished()
    assert (graph.states(), graph.task("third").result) == (dict.fromkeys(["first", *more], "successful"), 2)


def test_a_graph_grows_itself_twice(shared_cluster: Cluster) -> None:
    graph = shared_cluster.submit({"seed": call("grow", 3)})
    graph.finished()
    assert graph.states() == dict.fromkeys(["seed", "seed+", "seed++"], "successful")
    tasks = {label: graph.task(label) for label in graph.states()}
    assert {label: one.progress for label, one in tasks.items()} == {
        "seed": "3 to go",
        "seed+": "2 to go",
        "seed++": "1 to go",
    }
    assert {label: one.result["left"] for label, one in tasks.items()} == {"seed": 2, "seed+": 1, "seed++": 0}
    assert tasks["seed++"].result["inputs"] == {"seed+": tasks["seed+"].result}
    children = [Graph(shared_cluster, tasks[label].result["child"]) for label in ("seed", "seed+", "seed++")]
    assert [(one.settled().state, one.view().name) for one in children] == [
        ("finished", "child 3"),
        ("finished", "child 2"),
        ("finished", "child 1"),
    ]


def test_a_waiting_task_is_canceled_before_a_bot_runs_it(shared_cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    graph = shared_cluster.submit(
        {"first": gated(gate), "later": script("true", "first"), "last": script("true", "later")}
    )
    graph.until("first", "running")
    assert shared_cluster.client.cancel_task(graph.names["later"]).moved == 1
    gate.touch()
    graph.settled()
    assert graph.states() == {"first": "successful", "later": "canceled", "last": "blocked"}
    assert graph.attempts("later") == []
