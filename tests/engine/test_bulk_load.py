"""A transaction writes no more rows than fit, whatever the tasks: edges, mutexes and limits count too."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskyard.core.graph.model import Task
from taskyard.core.graph.parse import validate
from taskyard.core.states import Millis, State
from taskyard.engine import writer as loops
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.errors import Failed
from taskyard.engine.failpoints import arm
from taskyard.lifecycle.admission.pools import set_limit
from taskyard.lifecycle.rows import ROWS_PER_TASK, NewTasks, weight
from taskyard.lifecycle.submit import Submitted
from taskyard.store.queries import StoreUnavailable
from taskyard.store.repo import tasks as tasks_module
from tests.crash.small_pages import PLACES
from tests.engine.harness import WAIT_S, EngineHarness, count_rows, graph, noop, task, wait_until

#: How many tasks a page has here, and how many rows.
PAGE = 10
ROWS = PAGE * ROWS_PER_TASK
#: More edges than five pages have, though the tasks alone would be two pages.
DENSE = 2 * PAGE
INSERTED = ("insert_tasks", "insert_edges", "insert_mutexes", "insert_limits")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name in PLACES:
        monkeypatch.setattr(module, name, PAGE)
    monkeypatch.setattr(tasks_module, "DELETED_EDGES_MAX", ROWS)
    yield
    arm(None)


def dense(prefix: str = "t", first: Sequence[str] = (), count: int = DENSE) -> dict[str, object]:
    """Tasks that each require all before them."""
    labels = [*first, *(f"{prefix}{number}" for number in range(count))]
    return {label: noop(*labels[:place]) for place, label in enumerate(labels) if place >= len(first)}


def test_a_page_has_no_more_edges_than_fit(harness: EngineHarness) -> None:
    counted = count_rows(harness)
    labels = harness.submit(graph(**dense()))
    inserted = counted.each(*INSERTED)
    assert sum(inserted) == DENSE + DENSE * (DENSE - 1) // 2
    assert max(inserted) <= ROWS
    assert len(inserted) <= 2 * sum(inserted) / ROWS  # and pages are not much smaller than they have to be
    harness.settle()
    assert set(harness.states(labels).values()) == {State.SUCCESSFUL}


def test_few_tasks_with_many_edges_are_no_small_graph(harness: EngineHarness) -> None:
    small, large = dense(count=8), dense(count=PAGE)
    before = harness.engine.commits
    harness.submit(graph(**small))  # 8 tasks and 28 edges
    assert harness.engine.commits - before == 1
    counted = count_rows(harness)
    harness.submit(graph(**large))  # 10 tasks and 45 edges
    assert max(counted.each(*INSERTED)) <= ROWS
    assert len(counted.each(*INSERTED)) == 2


def test_mutexes_and_limits_count_like_edges(harness: EngineHarness) -> None:
    harness.engine.transact(lambda transaction: [set_limit(transaction, f"l{number}", 9, "ann") for number in range(4)])
    counted = count_rows(harness)
    said = {
        "mutexes": [{"key": f"k{number}"} for number in range(4)],
        "limits": {f"l{number}": 1 for number in range(4)},
    }
    harness.submit(graph(**{f"t{number}": task(**said) for number in range(PAGE)}))
    assert counted.each(*INSERTED) == [36, 36, 18]  # nine rows for each task, so four tasks in a page
    assert counted.each("insert_tasks") == [4, 4, 2]


def test_a_task_that_weighs_more_than_a_page_has_several(harness: EngineHarness) -> None:
    counted = count_rows(harness)
    labels = harness.submit(graph(**wide_nodes(3 * ROWS), last=noop(*wide_nodes(3 * ROWS)), after=noop("last")))
    assert [(one["insert_tasks"], one["insert_edges"]) for one in counted.written if one["insert_edges"]] == [
        (1, ROWS), (0, ROWS), (0, ROWS), (1, 1),
    ]  # fmt: skip
    harness.settle()
    assert set(harness.states(labels).values()) == {State.SUCCESSFUL}


def test_the_edges_of_a_task_are_stored_once_whichever_page_was_not_acknowledged(harness: EngineHarness) -> None:
    # Two edges lead to all but the first, so a page ends between the two.
    both = [each for number in range(ROWS) for each in (f"n{number}", {"task": f"n{number}", "on": "failure"})]
    del both[1]
    nodes = {f"n{number}": noop() for number in range(ROWS)}
    heavy = {"requires": both, "task": {"payload": {"noop": True}}}
    for number in range(8):
        harness.store.after = [*[None] * number, StoreUnavailable("the line was cut")]
        labels = harness.submit(graph(**nodes, last=heavy))
        harness.store.after.clear()
        with harness.store.read() as repo:
            found = repo.edges.into([labels["last"]])
            (task,) = repo.tasks.read([labels["last"]])
        assert (len(found), task.edges.count) == (len(both), len(both))


def test_an_extension_has_a_page_for_a_task_that_weighs_more(harness: EngineHarness) -> None:
    labels = harness.submit(graph(**wide_nodes(3 * ROWS)))
    counted = count_rows(harness)
    document = graph(last=noop(*wide_nodes(3 * ROWS)))
    assert harness.engine.extend(labels.text, document) == Submitted(labels.graph)
    assert counted.each("insert_edges") == [3 * ROWS]


def test_an_extension_is_cut_by_its_edges_too(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=noop(), b=task("a")))
    harness.settle()
    counted = count_rows(harness)
    assert harness.engine.extend(labels.text, graph(**dense("x", ["a"]))) == Submitted(labels.graph)
    assert max(counted.each(*INSERTED)) <= ROWS
    assert max(counted.each("select_edges_into")) <= ROWS  # read, to learn what has ended already
    counted.written.clear()
    harness.settle()
    states = harness.states(harness.labels(labels.graph))
    assert states.pop("b") is State.WAITING
    assert set(states.values()) == {State.SUCCESSFUL}
    assert max(counted.each("mark_tasks_loaded")) < PAGE


def test_the_beginning_of_a_large_extension_looks_at_no_task(harness: EngineHarness) -> None:
    labels = harness.submit(graph(**wide_nodes(3 * PAGE), z=task()))
    harness.settle()
    counted = count_rows(harness)
    more = {f"x{number}": noop(f"n{number}") for number in range(3 * PAGE)}
    assert harness.engine.extend(labels.text, graph(**more)) == Submitted(labels.graph)
    assert max(counted.each("lock_tasks")) <= PAGE
    harness.settle()
    states = harness.states(harness.labels(labels.graph))
    assert states.pop("z") is State.WAITING
    assert set(states.values()) == {State.SUCCESSFUL}


def test_what_is_dropped_is_cut_by_its_edges_too(harness: EngineHarness) -> None:
    arm("load.open.before:raise@1")
    with pytest.raises(Failed):
        harness.engine.submit(graph(**dense()))
    counted = count_rows(harness)
    harness.clock.advance(LOAD_MAX_MS + 1)
    harness.settle()
    assert sum(counted.each("delete_tasks")) == DENSE
    assert sum(counted.each("delete_edges_into")) == DENSE * (DENSE - 1) // 2
    assert max(counted.each("delete_edges_into", "delete_edges_out_of")) <= ROWS


def test_an_extension_is_dropped_by_its_edges_too(harness: EngineHarness) -> None:
    labels = harness.submit(graph(a=task()))
    arm("load.open.before:raise@1")
    with pytest.raises(Failed):
        harness.engine.extend(labels.text, graph(**dense("x", ["a"])))
    counted = count_rows(harness)
    harness.clock.advance(LOAD_MAX_MS + 1)
    harness.settle()
    assert list(harness.labels(labels.graph)) == ["a"]
    assert sum(counted.each("delete_tasks")) == DENSE
    assert max(counted.each("delete_edges_into")) <= ROWS


def test_heavy_graphs_do_not_share_a_transaction(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "TOUCHED_MAX", 2 * PAGE)
    light, heavy = task(), task(mutexes=[{"key": f"k{number}"} for number in range(16)])
    for document, commits in ((graph(a=light, b=light), 1), (graph(a=heavy, b=heavy), 2)):
        before = harness.engine.commits
        with ThreadPoolExecutor(3) as people:
            with harness.writer_blocked():
                asked = [people.submit(harness.engine.submit, document) for _ in range(3)]
                wait_until(lambda: harness.engine.writer_thread.waiting == 3)
            assert all(isinstance(one.result(WAIT_S), Submitted) for one in asked)
        assert harness.engine.commits - before == 1 + commits
    harness.settle()


def wide_nodes(count: int) -> dict[str, object]:
    return {f"n{number}": noop() for number in range(count)}


def weight_of(tasks: Sequence[Task]) -> int:
    return weight(len(tasks), sum(len(one.requires) for one in tasks))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(1, 12))
@example([0] * 11, 10)
@example([3] * 11, 10)
def test_pages_hold_everything_once_and_are_as_full_as_can_be(degrees: list[int], most: int) -> None:
    nodes = {
        f"t{place}": noop(*(f"t{one}" for one in range(max(0, place - many), place)))
        for place, many in enumerate(degrees)
    }
    found = validate({"tasks": nodes}).graph
    assert found is not None
    tasks = list(found.tasks.values())
    new_tasks = NewTasks(1, tasks, {label: place for place, label in enumerate(nodes)}, Millis(0), substitutes=False)
    pages = [tasks[page] for page in new_tasks.pages(most)]
    assert [one for page in pages for one in page] == tasks
    assert all(len(page) == 1 or weight_of(page) <= most for page in pages)
    assert all(weight_of([*page, after[0]]) > most for page, after in pairwise(pages))
    assert (new_tasks.weight <= most) == (weight_of(tasks) <= most)
