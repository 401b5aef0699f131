"""The critical path of settled and of unfinished graphs, on both databases."""

from collections.abc import Mapping
from typing import Any

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Cancel, Rerun
from taskyard.views import graphs as views
from taskyard.wire.api import CriticalPath
from tests.engine.rig import START, Labels, Rig, graph, task

HOUR = 3_600_000


def told(rig: Rig, labels: Labels, pools: frozenset[str] | None = None) -> CriticalPath:
    with rig.store.read() as repo:
        found = views.critical_path(repo, labels.graph, rig.clock.now(), pools)
    assert found is not None
    return found


def play(rig: Rig, labels: Labels, *script: tuple[str, int, int], signal: Signal = Signal.SUCCEED) -> None:
    """Have tasks wait and run for a while, one after the other."""
    rig.hello()
    for label, waits, takes in script:
        rig.settle()
        rig.clock.later(waits)
        rig.hello()
        found = {lease.task: lease for lease in rig.claim(8)}
        rig.clock.later(takes)
        rig.end(found[labels[label]], signal)
    rig.settle()


def path(seen: CriticalPath, *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(one, field) for field in ("label", *fields)) for one in seen.path]


def nightly(**nodes: object) -> Mapping[str, object]:
    return {"name": "nightly", **graph(**nodes)}


def test_the_path_of_a_settled_graph_has_waiting_and_running_times(rig: Rig) -> None:
    labels = rig.submit(nightly(a=task(), b=task("a"), c=task("b")))
    play(rig, labels, ("a", 100, 1_000), ("b", 300, 2_000), ("c", 0, 500))
    seen = told(rig, labels)
    assert path(seen, "state", "waited_ms", "ran_ms") == [
        ("a", "successful", 100, 1_000),
        ("b", "successful", 300, 2_000),
        ("c", "successful", 0, 500),
    ]
    assert (seen.settled, seen.total_ms, seen.running_ms, seen.waiting_ms) == (True, 3_900, 3_500, 400)
    assert (seen.ended_ms, seen.whole, seen.expected_end_ms) == (seen.path[-1].ended_ms, True, None)


def test_the_path_leads_back_over_the_prerequisite_that_ended_last(rig: Rig) -> None:
    either = {"requires": ["slow", "quick"], "join": "any", "task": task()["task"]}
    labels = rig.submit(graph(slow=task(), quick=task(), either=either, last=task("either")))
    rig.hello()
    leases = {lease.task: lease for lease in rig.claim(8)}
    rig.clock.later(10)
    rig.end(leases[labels["quick"]])
    (next_one,) = rig.claim()
    rig.clock.later(10)
    rig.end(next_one)
    rig.end(leases[labels["slow"]])
    play(rig, labels, ("last", 0, 50))
    assert path(told(rig, labels), "ran_ms") == [("quick", 10), ("either", 10), ("last", 50)]


def test_a_rerun_counts_what_ran_and_the_pause_before_it_as_waiting(rig: Rig) -> None:
    labels = rig.submit(nightly(a=task()))
    play(rig, labels, ("a", 0, 1_000), signal=Signal.FAIL)
    rig.clock.later(5_000)
    rig.engine.rerun(Rerun(labels["a"]))
    play(rig, labels, ("a", 0, 2_000))
    seen = told(rig, labels)
    assert path(seen, "waited_ms", "ran_ms") == [("a", 5_000, 3_000)]
    assert (seen.total_ms, seen.running_ms, seen.waiting_ms) == (8_000, 3_000, 5_000)


def test_the_expected_end_comes_from_older_graphs(rig: Rig) -> None:
    nodes = {"a": task(), "b": task("a"), "c": task("b"), "quick": task("a")}
    for takes in (1_000, 9_000, 3_000):
        labels = rig.submit(nightly(**{label: node for label, node in nodes.items() if label != "quick"}))
        play(rig, labels, ("a", 50, takes), ("b", 0, 2 * takes), ("c", 0, 100))
    labels = rig.submit(nightly(**nodes))
    rig.hello()
    rig.claim()
    rig.clock.later(1_000)
    seen = told(rig, labels)
    assert path(seen, "state", "ran_ms", "expected_ms", "remaining_ms") == [
        ("a", "running", 1_000, 3_000, 2_000),
        ("b", "unscheduled", None, 6_000, 6_000),
        ("c", "unscheduled", None, 100, 100),
    ]
    assert seen.expected_end_ms == rig.clock.now() + 8_100
    assert (seen.settled, seen.left, seen.known, seen.confidence, seen.stuck) == (False, 4, 3, 0.75, 0)
    rig.clock.later(HOUR)
    late = told(rig, labels)
    assert (late.path[0].remaining_ms, late.expected_end_ms) == (0, rig.clock.now() + 6_100)


def test_without_older_graphs_no_end_is_expected(rig: Rig) -> None:
    play(rig, rig.submit(graph(a=task())), ("a", 0, 1_000))
    for document in (graph(a=task()), {"name": "other", **graph(a=task())}):
        labels = rig.submit(document)
        seen = told(rig, labels)
        assert (seen.expected_end_ms, seen.left, seen.known, seen.confidence) == (None, 1, 0, 0)
        assert path(seen, "expected_ms", "remaining_ms") == [("a", None, None)]
        rig.engine.cancel(Cancel(graph=labels.graph))


def test_graphs_that_the_caller_may_not_see_give_no_durations(file_rig: Rig) -> None:
    play(file_rig, file_rig.submit(nightly(a=task())), ("a", 0, 1_000))
    labels = file_rig.submit(nightly(a=task()))
    assert told(file_rig, labels, frozenset({"default"})).known == 1
    assert told(file_rig, labels, frozenset({"lab"})).known == 0
    assert told(file_rig, labels, frozenset()).known == 0


def test_blocked_tasks_and_their_dependents_are_not_waited_for(rig: Rig) -> None:
    labels = rig.submit(nightly(bad=task(), x=task("bad"), y=task("x"), other=task()))
    rig.hello()
    leases = {lease.task: lease for lease in rig.claim(8)}
    rig.end(leases[labels["bad"]], Signal.FAIL)
    seen = told(rig, labels)
    assert (path(seen), seen.left, seen.stuck) == ([("other",)], 1, 2)


def test_a_very_long_path_is_cut(file_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PATH_MAX", 2)
    labels = file_rig.submit(nightly(a=task(), b=task("a"), c=task("b")))
    assert (path(told(file_rig, labels)), told(file_rig, labels).whole) == ([("a",), ("b",)], False)
    play(file_rig, labels, ("a", 0, 10), ("b", 0, 10), ("c", 0, 10))
    seen = told(file_rig, labels)
    assert (path(seen), seen.whole, seen.waiting_ms) == ([("b",), ("c",)], False, None)


def test_a_graph_that_is_not_there_has_no_path(file_rig: Rig) -> None:
    with file_rig.store.read() as repo:
        assert views.critical_path(repo, 404, START, None) is None


def test_a_reused_attempt_takes_no_time(rig: Rig) -> None:
    labels = rig.submit(nightly(a=task(), b=task("a")))
    play(rig, labels, ("a", 0, 1_000), ("b", 0, 1_000))
    made = rig.engine.renew(labels.text, ("b",))
    new = rig.labels(made.graph)  # type: ignore[union-attr]
    assert told(rig, new).expected_end_ms == rig.clock.now() + 1_000
    play(rig, new, ("b", 0, 400))
    seen = told(rig, new)
    assert path(seen, "task", "ran_ms") == [("a", text_of(Key(new["a"])), 0), ("b", text_of(Key(new["b"])), 400)]
