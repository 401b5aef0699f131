"""The critical path of settled and of unfinished graphs, on both databases."""

from collections.abc import Mapping
from typing import Any

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.core.states import Signal
from taskyard.lifecycle.commands import Cancel, Rerun
from taskyard.views import graphs as views
from taskyard.wire.api import CriticalPath
from tests.engine.harness import EngineHarness, graph, task
from tests.lifecycle.harness import START, Labels

HOUR = 3_600_000


def shown(harness: EngineHarness, labels: Labels, pools: frozenset[str] | None = None) -> CriticalPath:
    with harness.store.read() as repo:
        found = views.critical_path(repo, labels.graph, harness.clock.now(), pools)
    assert found is not None
    return found


def play(
    harness: EngineHarness, labels: Labels, *script: tuple[str, int, int], signal: Signal = Signal.SUCCEED
) -> None:
    """Let tasks wait and run for a while, one after the other."""
    harness.hello()
    for label, waits, takes in script:
        harness.settle()
        harness.clock.advance(waits)
        harness.hello()
        found = {lease.task: lease for lease in harness.claim(8)}
        harness.clock.advance(takes)
        harness.end(found[labels[label]], signal)
    harness.settle()


def path(seen: CriticalPath, *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(one, field) for field in ("label", *fields)) for one in seen.path]


def nightly(**nodes: object) -> Mapping[str, object]:
    return {"name": "nightly", **graph(**nodes)}


def test_the_path_of_a_settled_graph_has_waiting_and_running_times(harness: EngineHarness) -> None:
    labels = harness.submit(nightly(a=task(), b=task("a"), c=task("b")))
    play(harness, labels, ("a", 100, 1_000), ("b", 300, 2_000), ("c", 0, 500))
    seen = shown(harness, labels)
    assert path(seen, "state", "waited_ms", "ran_ms") == [
        ("a", "successful", 100, 1_000),
        ("b", "successful", 300, 2_000),
        ("c", "successful", 0, 500),
    ]
    assert (seen.settled, seen.total_ms, seen.running_ms, seen.waiting_ms) == (True, 3_900, 3_500, 400)
    assert (seen.ended_ms, seen.whole, seen.expected_end_ms) == (seen.path[-1].ended_ms, True, None)


def test_the_path_leads_back_over_the_prerequisite_that_ended_last(harness: EngineHarness) -> None:
    either = {"requires": ["slow", "quick"], "join": "any", "task": task()["task"]}
    labels = harness.submit(graph(slow=task(), quick=task(), either=either, last=task("either")))
    harness.hello()
    leases = {lease.task: lease for lease in harness.claim(8)}
    harness.clock.advance(10)
    harness.end(leases[labels["quick"]])
    (next_one,) = harness.claim()
    harness.clock.advance(10)
    harness.end(next_one)
    harness.end(leases[labels["slow"]])
    play(harness, labels, ("last", 0, 50))
    assert path(shown(harness, labels), "ran_ms") == [("quick", 10), ("either", 10), ("last", 50)]


def test_a_rerun_counts_what_ran_and_the_pause_before_it_as_waiting(harness: EngineHarness) -> None:
    labels = harness.submit(nightly(a=task()))
    play(harness, labels, ("a", 0, 1_000), signal=Signal.FAIL)
    harness.clock.advance(5_000)
    harness.engine.rerun(Rerun(labels["a"]))
    play(harness, labels, ("a", 0, 2_000))
    seen = shown(harness, labels)
    assert path(seen, "waited_ms", "ran_ms") == [("a", 5_000, 3_000)]
    assert (seen.total_ms, seen.running_ms, seen.waiting_ms) == (8_000, 3_000, 5_000)


def test_the_expected_end_comes_from_older_graphs(harness: EngineHarness) -> None:
    nodes = {"a": task(), "b": task("a"), "c": task("b"), "quick": task("a")}
    for takes in (1_000, 9_000, 3_000):
        labels = harness.submit(nightly(**{label: node for label, node in nodes.items() if label != "quick"}))
        play(harness, labels, ("a", 50, takes), ("b", 0, 2 * takes), ("c", 0, 100))
    labels = harness.submit(nightly(**nodes))
    harness.hello()
    harness.claim()
    harness.clock.advance(1_000)
    seen = shown(harness, labels)
    assert path(seen, "state", "ran_ms", "expected_ms", "remaining_ms") == [
        ("a", "running", 1_000, 3_000, 2_000),
        ("b", "unscheduled", None, 6_000, 6_000),
        ("c", "unscheduled", None, 100, 100),
    ]
    assert seen.expected_end_ms == harness.clock.now() + 8_100
    assert (seen.settled, seen.left, seen.known, seen.confidence, seen.stuck) == (False, 4, 3, 0.75, 0)
    harness.clock.advance(HOUR)
    late = shown(harness, labels)
    assert (late.path[0].remaining_ms, late.expected_end_ms) == (0, harness.clock.now() + 6_100)


def test_without_older_graphs_no_end_is_expected(harness: EngineHarness) -> None:
    play(harness, harness.submit(graph(a=task())), ("a", 0, 1_000))
    for document in (graph(a=task()), {"name": "other", **graph(a=task())}):
        labels = harness.submit(document)
        seen = shown(harness, labels)
        assert (seen.expected_end_ms, seen.left, seen.known, seen.confidence) == (None, 1, 0, 0)
        assert path(seen, "expected_ms", "remaining_ms") == [("a", None, None)]
        harness.engine.cancel(Cancel(graph=labels.graph))


def test_graphs_that_the_caller_may_not_see_give_no_durations(sqlite_harness: EngineHarness) -> None:
    play(sqlite_harness, sqlite_harness.submit(nightly(a=task())), ("a", 0, 1_000))
    labels = sqlite_harness.submit(nightly(a=task()))
    assert shown(sqlite_harness, labels, frozenset({"default"})).known == 1
    assert shown(sqlite_harness, labels, frozenset({"lab"})).known == 0
    assert shown(sqlite_harness, labels, frozenset()).known == 0


def test_blocked_tasks_and_their_dependents_are_not_waited_for(harness: EngineHarness) -> None:
    labels = harness.submit(nightly(bad=task(), x=task("bad"), y=task("x"), other=task()))
    harness.hello()
    leases = {lease.task: lease for lease in harness.claim(8)}
    harness.end(leases[labels["bad"]], Signal.FAIL)
    seen = shown(harness, labels)
    assert (path(seen), seen.left, seen.stuck) == ([("other",)], 1, 2)


def test_a_very_long_path_is_cut(sqlite_harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PATH_MAX", 2)
    labels = sqlite_harness.submit(nightly(a=task(), b=task("a"), c=task("b")))
    assert (path(shown(sqlite_harness, labels)), shown(sqlite_harness, labels).whole) == ([("a",), ("b",)], False)
    play(sqlite_harness, labels, ("a", 0, 10), ("b", 0, 10), ("c", 0, 10))
    seen = shown(sqlite_harness, labels)
    assert (path(seen), seen.whole, seen.waiting_ms) == ([("b",), ("c",)], False, None)


def test_a_graph_that_is_not_there_has_no_path(sqlite_harness: EngineHarness) -> None:
    with sqlite_harness.store.read() as repo:
        assert views.critical_path(repo, 404, START, None) is None


def test_a_reused_attempt_takes_no_time(harness: EngineHarness) -> None:
    labels = harness.submit(nightly(a=task(), b=task("a")))
    play(harness, labels, ("a", 0, 1_000), ("b", 0, 1_000))
    made = harness.engine.renew(labels.text, ("b",))
    new = harness.labels(made.graph)  # type: ignore[union-attr]
    assert shown(harness, new).expected_end_ms == harness.clock.now() + 1_000
    play(harness, new, ("b", 0, 400))
    seen = shown(harness, new)
    assert path(seen, "task", "ran_ms") == [("a", text_of(Key(new["a"])), 0), ("b", text_of(Key(new["b"])), 400)]
