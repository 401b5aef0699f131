"""The selection of tasks for a command: no transaction reads more than it may, or moves more than a page."""

import pytest

from taskyard.core.states import State
from taskyard.lifecycle import cancel as cancels
from taskyard.lifecycle import rerun as reruns
from taskyard.lifecycle import selection
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Done, NeedsSearch, Rerun
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.submit import Extension, Submitted, extend
from tests.lifecycle.counting_store import EDGES, MOVES, CountingStore
from tests.lifecycle.graphs import chain, graph, node
from tests.lifecycle.harness import Labels, LifecycleHarness, without_counts

#: How many tasks or edges one transaction reads here, and how many tasks it moves.
LOOKED, PAGE = 20, 10
LOOKS = EDGES | {"select_task_states_page", "select_task_page"}


@pytest.fixture(autouse=True)
def short_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKED_MAX", LOOKED)
    monkeypatch.setattr(selection, "PAGE_MAX", PAGE)


@pytest.fixture
def counting(harness: LifecycleHarness) -> CountingStore:
    harness.store = CountingStore(harness.store)
    return harness.store


def many(count: int = 45) -> list[str]:
    return [f"t{place}" for place in range(count)]


def test_a_subtree_too_large_for_one_transaction_is_searched_outside_and_canceled_page_by_page(
    harness: LifecycleHarness, counting: CountingStore
) -> None:
    labels = harness.submit(chain(*many()))
    request = Cancel(labels["t0"], subtree=True, actor="ann", key="k")
    counting.most(LOOKS)
    assert harness.carry_out_once(request) == NeedsSearch()
    assert harness.count_states(labels) == {"unscheduled": 44, "waiting": 1}
    assert without_counts(harness.carry_out(request)) == BulkOutcome(labels["t0"], 0, promised=True)
    harness.run_continuations()
    assert counting.most(LOOKS) == LOOKED + 1
    assert harness.count_states(labels) == {"canceled": 45}
    assert without_counts(harness.carry_out(request)) == BulkOutcome(
        labels["t0"], 0, promised=True
    )  # as it was answered first
    assert harness.audits(labels["t0"]) == [("ann", "cancel", "and all behind it, 45 tasks")]


def test_a_part_too_large_for_one_transaction_is_canceled_page_by_page(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain(*many()))
    request = Cancel(graph=labels.graph, tasks=(labels["t1"], labels["t40"]))
    assert harness.carry_out_once(request) == NeedsSearch()
    assert harness.carry_out(request) == BulkOutcome(labels.graph, 0, promised=True, total=44)
    harness.run_continuations()
    assert harness.count_states(labels) == {"canceled": 44, "waiting": 1}


def test_what_is_found_is_moved_in_pages(harness: LifecycleHarness, counting: CountingStore) -> None:
    labels = harness.submit(chain(*many()))
    counting.most(MOVES)
    harness.cancel(labels["t0"], subtree=True)
    harness.run_continuations()
    assert counting.most(MOVES) == PAGE
    assert without_counts(harness.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    harness.run_continuations()
    assert counting.most({"move_tasks"}) <= PAGE + 1  # the last one of a page blocks the first of the next
    assert harness.count_states(labels) == {"unscheduled": 44, "waiting": 1}


def test_few_tasks_with_too_many_edges_for_one_transaction_are_canceled_at_once(harness: LifecycleHarness) -> None:
    nodes = {f"t{place}": node(*(f"t{one}" for one in range(place))) for place in range(8)}
    labels = harness.submit({"tasks": nodes})
    request = Cancel(labels["t0"], subtree=True)
    assert harness.carry_out_once(request) == NeedsSearch()
    assert without_counts(harness.carry_out(request)) == BulkOutcome(labels["t0"], 8)
    assert harness.count_states(labels) == {"canceled": 8}


def test_failures_in_a_graph_too_large_for_one_transaction_are_searched_outside(
    harness: LifecycleHarness, counting: CountingStore
) -> None:
    labels = harness.submit({"tasks": {name: node() for name in many()}})
    harness.cancel(labels["t7"])
    counting.most(LOOKS)
    assert harness.carry_out_once(Rerun(graph=labels.graph)) == NeedsSearch()
    assert without_counts(harness.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 1)
    assert counting.most(LOOKS) == LOOKED + 1
    assert harness.count_states(labels) == {"waiting": 45}
    assert harness.rerun(graph=labels.graph) == BulkOutcome(labels.graph, 0, echo=True)


def test_a_graph_is_canceled_by_windows_however_few_of_its_tasks_are_left(
    harness: LifecycleHarness, counting: CountingStore
) -> None:
    labels = harness.submit({"tasks": {name: node() for name in many()}})
    ended = sorted(labels.values())[1:-1]
    for id in ended:
        harness.cancel(id)
    counting.most(LOOKS)
    assert harness.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, promised=True)
    assert harness.graph_state(labels) == "canceling"
    assert harness.run_continuations() == 3
    assert harness.graph_state(labels) == "canceled"
    assert counting.most(LOOKS) == LOOKED + 1
    assert harness.count_states(labels) == {"canceled": 45}
    assert harness.graph(labels.graph).tally.active == 0


def extended(harness: LifecycleHarness, labels: Labels, label: str, *requires: str) -> int:
    """Add a task to a graph."""
    document = graph(**{name: node() for name in requires}, **{label: node(*requires)})
    more = harness.new_graph(document)
    ids = {**more.new_tasks.ids, **labels}
    new_tasks = NewTasks(labels.graph, [more.graph.tasks[label]], ids, harness.now, substitutes=False)
    extensions = harness.graph(labels.graph).extensions
    answer = harness.do(lambda transaction: extend(transaction, [Extension(new_tasks, extensions, "me")]))
    assert answer == [Submitted(labels.graph)]
    return more.new_tasks.ids[label]


def test_a_search_result_is_discarded_once_the_graph_was_extended(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain(*many()))
    request = Cancel(labels["t0"], subtree=True)
    with harness.store.read() as repo:
        found = cancels.find(repo, request).cut()
    new = extended(harness, labels, "new", "t44")
    assert harness.carry_out_once(request, found) == NeedsSearch()
    assert without_counts(harness.cancel(labels["t0"], subtree=True)) == BulkOutcome(labels["t0"], 0, promised=True)
    harness.run_continuations()
    assert harness.count_states({**labels, "new": new}) == {"canceled": 46}


def test_what_was_found_and_has_moved_since_is_left_where_it_is(harness: LifecycleHarness) -> None:
    labels = harness.submit({"tasks": {name: node() for name in many()}})
    for label in ("t3", "t4", "t5"):
        harness.cancel(labels[label])
    with harness.store.read() as repo:
        found = reruns.find(repo, Rerun(graph=labels.graph)).cut()
    assert harness.rerun(labels["t4"]) == Done(labels["t4"], State.WAITING)
    assert without_counts(harness.carry_out_once(Rerun(graph=labels.graph), found)) == BulkOutcome(labels.graph, 2)
    assert {harness.task(labels[label]).life.round for label in ("t3", "t4", "t5")} == {2}
