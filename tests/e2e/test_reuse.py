"""Reuse of results on real servers and bots, as in Swarming's own suite, and kills while tasks wait."""

import shutil
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster, Graph, cluster, wait_for
from tests.e2e.documents import gated, only, script

SAME = {"idempotent": True}
#: More followers than one transaction serves.
MANY = 1_200


def publishing(counter: Path, *requires: str, **task: Any) -> dict[str, Any]:
    """A task that notes that it ran, prints and has a result."""
    text = f'echo ran >> {counter}; echo made it; echo \'{{"size": 7}}\' > "$TASKYARD_RESULT"'
    return script(text, *requires, task={**SAME, **task})


def runs(counter: Path) -> int:
    return len(counter.read_text().split()) if counter.exists() else 0


def reused(graph: Graph, label: str = "a") -> tuple[str, str, str]:
    """The state and the reason of a task, and the task whose result it reuses."""
    seen = graph.task(label)
    return seen.state, seen.reason, "" if seen.reused is None else seen.reused.task


def test_equal_work_is_done_once_and_leads_to_what_the_first_left(shared_cluster: Cluster, tmp_path: Path) -> None:
    counter = tmp_path / "ran"
    first, second = (shared_cluster.submit({"a": publishing(counter)}) for _ in range(2))
    for graph in (first, second):
        graph.finished()
    third = shared_cluster.submit({"b": publishing(counter), "c": script("true", "b", task={"priority": 30})})
    third.finished()
    assert runs(counter) == 1
    original = ("successful", "reused", first.names["a"])
    assert (reused(second), reused(third, "b")) == (original, original)
    assert (second.output("a"), third.output("b")) == (b"made it\n", b"made it\n")
    assert shared_cluster.client.result(third.names["b"]) == {"size": 7}
    assert (second.attempts("a"), third.attempts("b")) == ([], [])
    saved = third.task("b").reused
    (attempt,) = first.attempts("a")
    assert saved is not None
    assert attempt.ended_ms is not None
    assert saved.saved_ms == attempt.ended_ms - attempt.claimed_ms
    other = shared_cluster.submit({"a": publishing(counter, payload={"script": f"echo ran >> {counter}"})})
    other.finished()
    assert runs(counter) == 2, "other work is no hit"
    shared_cluster.client.delete_graph(first.id)
    assert (second.output("a"), third.output("b")) == (b"", b""), "it went with the original"


def test_a_task_that_waits_for_an_equal_one_takes_its_place_when_it_fails_or_is_canceled(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    gate, counter = tmp_path / "gate", tmp_path / "ran"
    node = gated(gate, f"echo ran >> {counter}", f"[ $(wc -l < {counter}) -gt 2 ]", task={**SAME, **only("main")})
    first, second, third, fourth = (shared_cluster.submit({"a": node}) for _ in range(4))
    first.until("a", "running")
    wait_for(lambda: runs(counter), lambda count: count == 1, "the first has begun")
    assert {one.task("a").reason for one in (second, third, fourth)} == {"duplicate_of"}
    shared_cluster.client.cancel_task(first.names["a"])
    second.until("a", "running")
    wait_for(lambda: runs(counter), lambda count: count == 2, "the second has begun")
    gate.touch()
    for graph in (first, second, third, fourth):
        graph.settled()
    assert [one.task("a").state for one in (first, second)] == ["canceled", "failed"]
    assert reused(fourth) == ("successful", "reused", third.names["a"])
    assert runs(counter) == 3


def test_many_followers_outlive_kills_of_the_server(own_cluster: Cluster, tmp_path: Path) -> None:
    """It is killed while they wait, and again as soon as their leader has ended."""
    gate, counter = tmp_path / "gate", tmp_path / "ran"
    own_cluster.bot("one", slots=1)
    node = gated(gate, f"echo ran >> {counter}", task=SAME)
    first = own_cluster.submit({"a": node})
    first.until("a", "running")
    many = own_cluster.submit({f"t{place}": node for place in range(MANY)})
    wait_for(lambda: runs(counter), lambda count: count == 1, "it has begun")
    own_cluster.kill_server()
    own_cluster.serve()
    gate.touch()
    wait_for(lambda: first.task("a").state, lambda state: state == "successful", "the leader has ended")
    own_cluster.kill_server()
    own_cluster.serve()
    many.finished()
    assert runs(counter) == 1
    assert set(many.states().values()) == {"successful"}
    assert reused(many, "t7") == ("successful", "reused", first.names["a"])


def test_two_servers_make_one_leader(postgres_url: str, tmp_path: Path) -> None:
    counter = tmp_path / "ran"
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with cluster(folders[0], postgres_url) as one:
        shutil.copy(folders[0] / "admin.token", folders[1])
        with cluster(folders[1], postgres_url) as two:
            graphs = [each.submit({"a": publishing(counter)}) for _ in range(5) for each in (one, two)]
            assert sorted(graph.task("a").reason == "duplicate_of" for graph in graphs) == [False, *[True] * 9]
            two.bot("far", slots=2)
            for graph in graphs:
                graph.finished()
    assert runs(counter) == 1
