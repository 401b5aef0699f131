"""How far wishes reach: no transaction looks further than it may, or moves more than a page."""

import pytest

from taskyard.core.states import State
from taskyard.lifecycle import cancel as cancels
from taskyard.lifecycle import rerun as reruns
from taskyard.lifecycle import selection
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Done, NeedsSearch, Rerun
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.submit import Extension, Submitted, extend
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.in_short import in_short
from tests.lifecycle.tallied import EDGES, MOVES, Tallied
from tests.lifecycle.yard import Labels, chain

#: How many tasks or edges one transaction looks at here, and how many tasks it moves.
LOOKED, PAGE = 20, 10
LOOKS = EDGES | {"select_task_states_page", "select_task_page"}


@pytest.fixture(autouse=True)
def short_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKED_MAX", LOOKED)
    monkeypatch.setattr(selection, "PAGE_MAX", PAGE)


@pytest.fixture
def tallied(yard: Grounds) -> Tallied:
    yard.store = Tallied(yard.store)
    return yard.store


def many(count: int = 45) -> list[str]:
    return [f"t{place}" for place in range(count)]


def test_a_subtree_that_is_too_large_to_look_at_is_found_outside_and_canceled_page_by_page(
    yard: Grounds, tallied: Tallied
) -> None:
    labels = yard.submit(chain(*many()))
    wish = Cancel(labels["t0"], subtree=True, actor="ann", key="k")
    tallied.most(LOOKS)
    assert yard.ask(wish) == NeedsSearch()
    assert yard.census(labels) == {"unscheduled": 44, "waiting": 1}
    assert in_short(yard.wish(wish)) == BulkOutcome(labels["t0"], 0, promised=True)
    yard.run_continuations()
    assert tallied.most(LOOKS) == LOOKED + 1
    assert yard.census(labels) == {"canceled": 45}
    assert in_short(yard.wish(wish)) == BulkOutcome(labels["t0"], 0, promised=True)  # as it was answered first
    assert yard.audits(labels["t0"]) == [("ann", "cancel", "and all behind it, 45 tasks")]


def test_a_part_that_is_too_large_to_look_at_is_canceled_page_by_page(yard: Grounds) -> None:
    labels = yard.submit(chain(*many()))
    wish = Cancel(graph=labels.graph, tasks=(labels["t1"], labels["t40"]))
    assert yard.ask(wish) == NeedsSearch()
    assert yard.wish(wish) == BulkOutcome(labels.graph, 0, promised=True, total=44)
    yard.run_continuations()
    assert yard.census(labels) == {"canceled": 44, "waiting": 1}


def test_what_is_found_is_moved_in_pages(yard: Grounds, tallied: Tallied) -> None:
    labels = yard.submit(chain(*many()))
    tallied.most(MOVES)
    yard.cancel(labels["t0"], subtree=True)
    yard.run_continuations()
    assert tallied.most(MOVES) == PAGE
    assert in_short(yard.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 0, promised=True)
    yard.run_continuations()
    assert tallied.most({"move_tasks"}) <= PAGE + 1  # the last one of a page blocks the first of the next
    assert yard.census(labels) == {"unscheduled": 44, "waiting": 1}


def test_few_tasks_with_too_many_edges_to_look_at_are_canceled_at_once(yard: Grounds) -> None:
    nodes = {f"t{place}": node(*(f"t{one}" for one in range(place))) for place in range(8)}
    labels = yard.submit({"tasks": nodes})
    wish = Cancel(labels["t0"], subtree=True)
    assert yard.ask(wish) == NeedsSearch()
    assert in_short(yard.wish(wish)) == BulkOutcome(labels["t0"], 8)
    assert yard.census(labels) == {"canceled": 8}


def test_what_failed_in_a_graph_that_is_too_large_to_look_at_is_found_outside(yard: Grounds, tallied: Tallied) -> None:
    labels = yard.submit({"tasks": {name: node() for name in many()}})
    yard.cancel(labels["t7"])
    tallied.most(LOOKS)
    assert yard.ask(Rerun(graph=labels.graph)) == NeedsSearch()
    assert in_short(yard.rerun(graph=labels.graph)) == BulkOutcome(labels.graph, 1)
    assert tallied.most(LOOKS) == LOOKED + 1
    assert yard.census(labels) == {"waiting": 45}
    assert yard.rerun(graph=labels.graph) == BulkOutcome(labels.graph, 0, echo=True)


def test_a_graph_is_canceled_by_windows_however_few_of_its_tasks_are_left(yard: Grounds, tallied: Tallied) -> None:
    labels = yard.submit({"tasks": {name: node() for name in many()}})
    ended = sorted(labels.values())[1:-1]
    for id in ended:
        yard.cancel(id)
    tallied.most(LOOKS)
    assert yard.cancel(graph=labels.graph) == BulkOutcome(labels.graph, 0, promised=True)
    assert yard.verdict(labels) == "canceling"
    assert yard.run_continuations() == 3
    assert yard.verdict(labels) == "canceled"
    assert tallied.most(LOOKS) == LOOKED + 1
    assert yard.census(labels) == {"canceled": 45}
    assert yard.graph(labels.graph).tally.active == 0


def extended(yard: Grounds, labels: Labels, label: str, *requires: str) -> int:
    """Add a task to a graph."""
    document = graph(**{name: node() for name in requires}, **{label: node(*requires)})
    more = yard.prepared(document)
    ids = {**more.new_tasks.ids, **labels}
    new_tasks = NewTasks(labels.graph, [more.graph.tasks[label]], ids, yard.now, substitutes=False)
    extensions = yard.graph(labels.graph).extensions
    answer = yard.do(lambda transaction: extend(transaction, [Extension(new_tasks, extensions, "me")]))
    assert answer == [Submitted(labels.graph)]
    return more.new_tasks.ids[label]


def test_what_was_found_is_not_believed_once_the_graph_was_extended(yard: Grounds) -> None:
    labels = yard.submit(chain(*many()))
    wish = Cancel(labels["t0"], subtree=True)
    with yard.store.read() as repo:
        found = cancels.find(repo, wish).cut()
    new = extended(yard, labels, "new", "t44")
    assert yard.ask(wish, found) == NeedsSearch()
    assert in_short(yard.cancel(labels["t0"], subtree=True)) == BulkOutcome(labels["t0"], 0, promised=True)
    yard.run_continuations()
    assert yard.census({**labels, "new": new}) == {"canceled": 46}


def test_what_was_found_and_has_moved_since_is_left_where_it_is(yard: Grounds) -> None:
    labels = yard.submit({"tasks": {name: node() for name in many()}})
    for label in ("t3", "t4", "t5"):
        yard.cancel(labels[label])
    with yard.store.read() as repo:
        found = reruns.find(repo, Rerun(graph=labels.graph)).cut()
    assert yard.rerun(labels["t4"]) == Done(labels["t4"], State.WAITING)
    assert in_short(yard.ask(Rerun(graph=labels.graph), found)) == BulkOutcome(labels.graph, 2)
    assert {yard.task(labels[label]).life.round for label in ("t3", "t4", "t5")} == {2}
