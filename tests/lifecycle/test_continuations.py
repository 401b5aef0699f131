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
from tests.lifecycle.grounds import Grounds, graph, node, star
from tests.lifecycle.yard import Labels, chain


def begun(yard: Grounds, one: NewGraph, pages: int = 1) -> Rows:
    """Begin to load a graph; all rows are there, none is visible."""
    loading = yard.do(lambda transaction: begin(transaction, one))
    assert isinstance(loading, LoadStarted)
    size = len(one.new_tasks.tasks) // pages + 1
    rows = Rows()
    for page in range(pages):
        rows = one.new_tasks.rows(slice(page * size, (page + 1) * size), loading.queues, yard.now)
        assert yard.do(lambda transaction, rows=rows: add_page(transaction, one.new_tasks.graph_id, "me", rows))  # type: ignore[misc]
    return rows


def extension(yard: Grounds, labels: Labels, whole: GraphDefinition, *new: str) -> Extension:
    ids = {**yard_ids(yard, whole), **labels}
    extensions = yard.graph(labels.graph).extensions
    return Extension(
        NewTasks(labels.graph, [whole.tasks[label] for label in new], ids, yard.now, False), extensions, "me"
    )


def yard_ids(yard: Grounds, whole: GraphDefinition) -> dict[str, int]:
    document = {"tasks": {label: node() for label in whole.tasks}}
    return dict(yard.prepared(document).new_tasks.ids)


def load(yard: Grounds, one: Extension) -> None:
    """Begin to load an extension; all rows are there, none is visible."""
    loading = yard.do(lambda transaction: begin_extension(transaction, one))
    assert isinstance(loading, LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, yard.now, hidden=True)
    assert yard.do(lambda transaction: add_hidden_page(transaction, one, rows))


def dropped(yard: Grounds, before: int, count: int = 1_000) -> int:
    return yard.do(lambda transaction: drop_stale_loads(transaction, Millis(before), count))


def test_a_large_graph_is_opened_and_its_roots_are_released_page_by_page(yard: Grounds) -> None:
    one = yard.prepared({"tasks": {f"t{place}": node() for place in range(1_400)}})
    begun(yard, one, 2)
    assert yard.do(lambda transaction: open_graph(transaction, one)) == Submitted(one.new_tasks.graph_id)
    assert yard.census(one.new_tasks.ids) == {"unscheduled": 1_400}
    assert yard.run_continuations() == 3
    assert yard.census(one.new_tasks.ids) == {"waiting": 1_400}


def test_a_continuation_that_is_gone_cannot_be_run(yard: Grounds) -> None:
    labels = yard.submit(star(1_200))
    yard.hello("rack1")
    yard.run("rack1", labels)
    note = yard.notes()[0]
    assert [yard.take_up(note) for _ in range(3)] == [False, True, None]


def test_a_graph_whose_loading_never_ended_is_dropped_in_pages(yard: Grounds) -> None:
    one = yard.prepared(chain(*(f"t{place}" for place in range(25)), mutexes=[{"key": "x"}]))
    rows = begun(yard, one, 3)
    start = yard.now
    assert dropped(yard, start) == 0
    yard.later(60_000)
    assert [dropped(yard, start + 1, 10) for _ in range(4)] == [1, 1, 1, 0]
    with yard.store.read() as repo:
        assert repo.graphs.peek([one.new_tasks.graph_id]) == []
        assert repo.tasks.read(list(one.new_tasks.ids.values())) == []
    assert yard.do(lambda transaction: add_page(transaction, one.new_tasks.graph_id, "me", rows)) is False
    begun(yard, one)
    yard.do(lambda transaction: open_graph(transaction, one))
    yard.run_continuations()
    assert yard.census(one.new_tasks.ids) == {"pending": 1, "unscheduled": 24}


def test_a_loader_that_comes_back_to_a_graph_that_is_being_dropped_is_turned_away(yard: Grounds) -> None:
    one = yard.prepared(chain(*(f"t{place}" for place in range(25))))
    rows = begun(yard, one, 2)
    assert dropped(yard, yard.now + 1, 10) == 1
    assert yard.do(lambda transaction: add_page(transaction, one.new_tasks.graph_id, "me", rows)) is False
    refused = yard.do(lambda transaction: open_graph(transaction, one))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.CONFLICT


def test_a_large_extension_is_hidden_until_it_is_opened_and_then_shown(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    whole = yard.prepared(graph(a=node(), b=node("a"), c=node())).graph
    one = extension(yard, labels, whole, "b", "c")
    load(yard, one)
    yard.hello("rack1")
    yard.run("rack1", labels)
    assert yard.verdict(labels) == "running"
    assert yard.census(one.new_tasks.ids) == {"successful": 1, "unscheduled": 2}
    yard.do(lambda transaction: open_extension(transaction, one))
    yard.run_continuations()
    assert yard.census(one.new_tasks.ids) == {"successful": 1, "waiting": 2}


def test_a_graph_is_extended_by_one_large_extension_at_a_time(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    whole = yard.prepared(graph(a=node(), b=node("a"), c=node())).graph
    load(yard, extension(yard, labels, whole, "b"))
    refused = yard.do(lambda transaction: begin_extension(transaction, extension(yard, labels, whole, "c")))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.LOADING


def test_an_extension_that_was_never_opened_is_dropped_and_its_graph_can_finish(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    whole = yard.prepared(graph(a=node(), page=node(failure=["a"]), c=node("page"))).graph
    one = extension(yard, labels, whole, "page", "c")
    load(yard, one)
    yard.hello("rack1")
    yard.run("rack1", labels, "a")
    assert yard.task(labels["a"]).handlers.open == 1
    assert yard.take_up(yard.notes()[0]) is False  # somebody is at it
    assert dropped(yard, yard.now) == 0
    yard.later(60_000)
    assert dropped(yard, yard.now) == 1
    refused = yard.do(lambda transaction: open_extension(transaction, one))
    assert isinstance(refused, Refusal)
    yard.run_continuations()
    assert yard.task(labels["a"]).handlers.open == 0
    assert yard.verdict(labels) == "blocked"
    load(yard, extension(yard, labels, whole, "page", "c"))


def test_what_was_loaded_while_its_graph_was_canceled_is_canceled_with_it(yard: Grounds) -> None:
    labels = yard.submit(graph(a=node()))
    whole = yard.prepared(graph(a=node(), b=node(), page=node(failure=["a"]))).graph
    one = extension(yard, labels, whole, "b", "page")
    load(yard, one)
    yard.cancel(graph=labels.graph)
    assert yard.census(one.new_tasks.ids) == {"canceled": 1, "unscheduled": 2}
    yard.do(lambda transaction: open_extension(transaction, one))
    yard.run_continuations()
    assert yard.census(one.new_tasks.ids) == {"canceled": 3}
    assert yard.graph(labels.graph).tally.active == 0
