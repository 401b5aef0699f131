"""How promises are kept: notes page by page, loads that never ended, and what a note may meet."""

from taskyard.core.graph.model import GraphDefinition
from taskyard.core.states import Millis
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.continuations import drop_stale_loads
from taskyard.lifecycle.rows import NewTasks, Rows
from taskyard.lifecycle.submit import (
    Extension,
    LoadStarted,
    NewGraph,
    Submitted,
    add_hidden_page,
    add_page,
    begin,
    begin_extension,
    open_extension,
    open_graph,
)
from tests.lifecycle.graphs import chain, graph, node, star
from tests.lifecycle.harness import Labels, LifecycleHarness


def begun(harness: LifecycleHarness, one: NewGraph, pages: int = 1) -> Rows:
    """Begin to load a graph; all rows are there, none is visible."""
    loading = harness.do(lambda transaction: begin(transaction, one))
    assert isinstance(loading, LoadStarted)
    size = len(one.new_tasks.tasks) // pages + 1
    rows = Rows()
    for page in range(pages):
        rows = one.new_tasks.rows(slice(page * size, (page + 1) * size), loading.queues, harness.now)
        assert harness.do(lambda transaction, rows=rows: add_page(transaction, one.new_tasks.graph_id, "me", rows))  # type: ignore[misc]
    return rows


def extension(harness: LifecycleHarness, labels: Labels, whole: GraphDefinition, *new: str) -> Extension:
    ids = {**yard_ids(harness, whole), **labels}
    extensions = harness.graph(labels.graph).extensions
    return Extension(
        NewTasks(labels.graph, [whole.tasks[label] for label in new], ids, harness.now, False), extensions, "me"
    )


def yard_ids(harness: LifecycleHarness, whole: GraphDefinition) -> dict[str, int]:
    document = {"tasks": {label: node() for label in whole.tasks}}
    return dict(harness.new_graph(document).new_tasks.ids)


def load(harness: LifecycleHarness, one: Extension) -> None:
    """Begin to load an extension; all rows are there, none is visible."""
    loading = harness.do(lambda transaction: begin_extension(transaction, one))
    assert isinstance(loading, LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, harness.now, hidden=True)
    assert harness.do(lambda transaction: add_hidden_page(transaction, one, rows))


def dropped(harness: LifecycleHarness, before: int, count: int = 1_000) -> int:
    return harness.do(lambda transaction: drop_stale_loads(transaction, Millis(before), count))


def test_a_large_graph_is_opened_and_its_roots_are_released_page_by_page(harness: LifecycleHarness) -> None:
    one = harness.new_graph({"tasks": {f"t{place}": node() for place in range(1_400)}})
    begun(harness, one, 2)
    assert harness.do(lambda transaction: open_graph(transaction, one)) == Submitted(one.new_tasks.graph_id)
    assert harness.count_states(one.new_tasks.ids) == {"unscheduled": 1_400}
    assert harness.run_continuations() == 3
    assert harness.count_states(one.new_tasks.ids) == {"waiting": 1_400}


def test_a_continuation_that_is_gone_cannot_be_run(harness: LifecycleHarness) -> None:
    labels = harness.submit(star(1_200))
    harness.hello("rack1")
    harness.run("rack1", labels)
    note = harness.continuations()[0]
    assert [harness.run_continuation(note) for _ in range(3)] == [False, True, None]


def test_a_graph_whose_loading_never_ended_is_dropped_in_pages(harness: LifecycleHarness) -> None:
    one = harness.new_graph(chain(*(f"t{place}" for place in range(25)), mutexes=[{"key": "x"}]))
    rows = begun(harness, one, 3)
    start = harness.now
    assert dropped(harness, start) == 0
    harness.advance(60_000)
    assert [dropped(harness, start + 1, 10) for _ in range(4)] == [1, 1, 1, 0]
    with harness.store.read() as repo:
        assert repo.graphs.peek([one.new_tasks.graph_id]) == []
        assert repo.tasks.read(list(one.new_tasks.ids.values())) == []
    assert harness.do(lambda transaction: add_page(transaction, one.new_tasks.graph_id, "me", rows)) is False
    begun(harness, one)
    harness.do(lambda transaction: open_graph(transaction, one))
    harness.run_continuations()
    assert harness.count_states(one.new_tasks.ids) == {"pending": 1, "unscheduled": 24}


def test_a_loader_that_continues_a_graph_that_is_being_dropped_is_refused(harness: LifecycleHarness) -> None:
    one = harness.new_graph(chain(*(f"t{place}" for place in range(25))))
    rows = begun(harness, one, 2)
    assert dropped(harness, harness.now + 1, 10) == 1
    assert harness.do(lambda transaction: add_page(transaction, one.new_tasks.graph_id, "me", rows)) is False
    refused = harness.do(lambda transaction: open_graph(transaction, one))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CONFLICT


def test_a_large_extension_is_hidden_until_it_is_opened_and_then_shown(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    whole = harness.new_graph(graph(a=node(), b=node("a"), c=node())).graph
    one = extension(harness, labels, whole, "b", "c")
    load(harness, one)
    harness.hello("rack1")
    harness.run("rack1", labels)
    assert harness.graph_state(labels) == "running"
    assert harness.count_states(one.new_tasks.ids) == {"successful": 1, "unscheduled": 2}
    harness.do(lambda transaction: open_extension(transaction, one))
    harness.run_continuations()
    assert harness.count_states(one.new_tasks.ids) == {"successful": 1, "waiting": 2}


def test_a_graph_is_extended_by_one_large_extension_at_a_time(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    whole = harness.new_graph(graph(a=node(), b=node("a"), c=node())).graph
    load(harness, extension(harness, labels, whole, "b"))
    refused = harness.do(lambda transaction: begin_extension(transaction, extension(harness, labels, whole, "c")))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LOADING


def test_an_extension_that_was_never_opened_is_dropped_and_its_graph_can_finish(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    whole = harness.new_graph(graph(a=node(), page=node(failure=["a"]), c=node("page"))).graph
    one = extension(harness, labels, whole, "page", "c")
    load(harness, one)
    harness.hello("rack1")
    harness.run("rack1", labels, "a")
    assert harness.task(labels["a"]).handlers.open == 1
    assert harness.run_continuation(harness.continuations()[0]) is False  # a load is in progress
    assert dropped(harness, harness.now) == 0
    harness.advance(60_000)
    assert dropped(harness, harness.now) == 1
    refused = harness.do(lambda transaction: open_extension(transaction, one))
    assert isinstance(refused, Refusal)
    harness.run_continuations()
    assert harness.task(labels["a"]).handlers.open == 0
    assert harness.graph_state(labels) == "blocked"
    load(harness, extension(harness, labels, whole, "page", "c"))


def test_what_was_loaded_while_its_graph_was_canceled_is_canceled_with_it(harness: LifecycleHarness) -> None:
    labels = harness.submit(graph(a=node()))
    whole = harness.new_graph(graph(a=node(), b=node(), page=node(failure=["a"]))).graph
    one = extension(harness, labels, whole, "b", "page")
    load(harness, one)
    harness.cancel(graph=labels.graph)
    assert harness.count_states(one.new_tasks.ids) == {"canceled": 1, "unscheduled": 2}
    harness.do(lambda transaction: open_extension(transaction, one))
    harness.run_continuations()
    assert harness.count_states(one.new_tasks.ids) == {"canceled": 3}
    assert harness.graph(labels.graph).tally.active == 0
