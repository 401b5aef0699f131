"""The graph inside a task, step by step: who comes too late to begin it, and what happens between its rest and its
task hearing of it."""

from dataclasses import replace

from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.lifecycle import submit
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.rows import SETTLED
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.submit import LoadStarted, NewGraph, Submitted
from tests.lifecycle.grounds import Grounds, graph, node
from tests.lifecycle.scene import extended
from tests.lifecycle.yard import Labels

INNER = graph(a=node())


def around(yard: Grounds) -> Labels:
    return yard.submit(graph(outer=node(payload={"graph": INNER}), after=node("outer")))


def inside(yard: Grounds, labels: Labels, attempt: int = 1) -> NewGraph:
    return replace(yard.prepared(INNER), parent=ParentAttempt(labels["outer"], attempt))


def begun(yard: Grounds) -> tuple[Labels, Labels]:
    """A task that runs, and the graph that it is."""
    labels = around(yard)
    one = inside(yard, labels)
    assert yard.do(lambda transaction: submit.submit(transaction, [one])) == [Submitted(one.new_tasks.graph_id)]
    yard.hello("b1")
    return labels, Labels(one.new_tasks.graph_id, dict(one.new_tasks.ids))


def test_a_task_begins_with_its_graph_once(yard: Grounds) -> None:
    labels, inner = begun(yard)
    assert yard.words(labels)["outer"] == "running"
    for attempt in (1, 2):
        again = inside(yard, labels, attempt)
        (answer,) = yard.do(lambda transaction, again=again: submit.submit(transaction, [again]))  # type: ignore[misc]
        assert isinstance(answer, Refusal)
        assert answer.code is Code.CONFLICT
    with yard.store.read() as repo:
        assert repo.graphs.subgraphs([labels["outer"]]) == {(labels["outer"], 1): inner.graph}


def test_a_task_that_was_canceled_while_its_graph_was_loaded_does_not_begin(yard: Grounds) -> None:
    labels = around(yard)
    one = inside(yard, labels)
    loading = yard.do(lambda transaction: submit.begin(transaction, one))
    assert isinstance(loading, LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, yard.now)
    assert yard.do(lambda transaction: submit.add_page(transaction, loading.graph, one.loader, rows))
    yard.cancel(labels["outer"])
    assert isinstance(yard.do(lambda transaction: submit.open_graph(transaction, one)), Refusal)
    assert yard.words(labels)["outer"] == "canceled"
    assert yard.graph(loading.graph).loader == one.loader  # it is dropped like any other that never became whole
    yard.do(lambda transaction: transaction.repo.graphs.delete_page(loading.graph, 9))


def test_a_graph_that_is_active_again_before_its_task_knows_goes_on(yard: Grounds) -> None:
    labels, inner = begun(yard)
    yard.run("b1", inner)
    (note,) = yard.notes()
    assert (note.kind, note.graph) == (SETTLED, inner.graph)
    assert (yard.verdict(inner), yard.words(labels)["outer"]) == ("running", "running")
    inner |= extended(yard, inner.graph, graph(b=node("a")))
    yard.run_continuations()
    assert yard.words(labels)["outer"] == "running"
    yard.run("b1", inner)
    yard.run_continuations()
    assert (yard.verdict(inner), yard.words(labels)) == ("finished", {"outer": "successful", "after": "waiting"})


def test_a_rerun_inside_before_its_task_knows_of_the_failure_mends_it(yard: Grounds) -> None:
    labels, inner = begun(yard)
    yard.run("b1", inner, "a")
    assert yard.graph(inner.graph).state is GraphState.BLOCKED
    yard.rerun(inner["a"])
    yard.run_continuations()
    yard.run("b1", inner)
    yard.run_continuations()
    assert yard.states(labels)["outer"] is State.SUCCESSFUL


def test_a_cancel_that_comes_after_the_rest_of_the_graph_still_wins(yard: Grounds) -> None:
    labels, inner = begun(yard)
    yard.run("b1", inner)
    yard.cancel(labels["outer"])
    yard.run_continuations()
    assert yard.why(labels["outer"]) == (State.CANCELED, Reason.ASKED)
    assert yard.words(labels)["after"] == "blocked"
    assert yard.graph(inner.graph).state is GraphState.CANCELED


def test_a_running_task_inside_is_stopped_and_its_word_ends_all_of_it(yard: Grounds) -> None:
    labels, inner = begun(yard)
    lease = yard.start("b1", inner)["a"]
    yard.cancel(graph=labels.graph)
    yard.run_continuations()
    assert (yard.words(labels)["outer"], yard.words(inner)) == ("stopping", {"a": "stopping"})
    yard.end("b1", lease, Signal.FAIL)
    yard.run_continuations()
    assert yard.words(labels) == {"outer": "canceled", "after": "canceled"}
    assert (yard.verdict(labels), yard.verdict(inner)) == ("canceled", "canceled")
