"""The graph inside a task, step by step: a late begin, and events between its end and the end of its task."""

from dataclasses import replace

from taskyard.core.states import GraphState, Reason, Signal, State
from taskyard.lifecycle import submit
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.rows import SETTLED
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.submit import LoadStarted, NewGraph, Submitted
from tests.lifecycle.graphs import graph, node
from tests.lifecycle.harness import Labels, LifecycleHarness
from tests.lifecycle.populated_store import extended

INNER = graph(a=node())


def around(harness: LifecycleHarness) -> Labels:
    return harness.submit(graph(outer=node(payload={"graph": INNER}), after=node("outer")))


def inside(harness: LifecycleHarness, labels: Labels, attempt: int = 1) -> NewGraph:
    return replace(harness.new_graph(INNER), parent=ParentAttempt(labels["outer"], attempt))


def begun(harness: LifecycleHarness) -> tuple[Labels, Labels]:
    """A running task with its subgraph."""
    labels = around(harness)
    one = inside(harness, labels)
    assert harness.do(lambda transaction: submit.submit(transaction, [one])) == [Submitted(one.new_tasks.graph_id)]
    harness.hello("b1")
    return labels, Labels(one.new_tasks.graph_id, dict(one.new_tasks.ids))


def test_a_task_begins_with_its_graph_once(harness: LifecycleHarness) -> None:
    labels, inner = begun(harness)
    assert harness.state_names(labels)["outer"] == "running"
    for attempt in (1, 2):
        again = inside(harness, labels, attempt)
        (answer,) = harness.do(lambda transaction, again=again: submit.submit(transaction, [again]))  # type: ignore[misc]
        assert isinstance(answer, Refusal)
        assert answer.code is Code.CONFLICT
    with harness.store.read() as repo:
        assert repo.graphs.subgraphs([labels["outer"]]) == {(labels["outer"], 1): inner.graph}


def test_a_task_that_was_canceled_while_its_graph_was_loaded_does_not_begin(harness: LifecycleHarness) -> None:
    labels = around(harness)
    one = inside(harness, labels)
    loading = harness.do(lambda transaction: submit.begin(transaction, one))
    assert isinstance(loading, LoadStarted)
    rows = one.new_tasks.rows(slice(None), loading.queues, harness.now)
    assert harness.do(lambda transaction: submit.add_page(transaction, loading.graph, one.loader, rows))
    harness.cancel(labels["outer"])
    assert isinstance(harness.do(lambda transaction: submit.open_graph(transaction, one)), Refusal)
    assert harness.state_names(labels)["outer"] == "canceled"
    assert harness.graph(loading.graph).loader == one.loader  # it is dropped like any other that never became whole
    harness.do(lambda transaction: transaction.repo.graphs.delete_page(loading.graph, 9))


def test_a_graph_that_is_active_again_before_its_task_knows_goes_on(harness: LifecycleHarness) -> None:
    labels, inner = begun(harness)
    harness.run("b1", inner)
    (note,) = harness.continuations()
    assert (note.kind, note.graph) == (SETTLED, inner.graph)
    assert (harness.graph_state(inner), harness.state_names(labels)["outer"]) == ("running", "running")
    inner |= extended(harness, inner.graph, graph(b=node("a")))
    harness.run_continuations()
    assert harness.state_names(labels)["outer"] == "running"
    harness.run("b1", inner)
    harness.run_continuations()
    assert (harness.graph_state(inner), harness.state_names(labels)) == (
        "finished",
        {"outer": "successful", "after": "waiting"},
    )


def test_a_rerun_inside_before_its_task_knows_of_the_failure_mends_it(harness: LifecycleHarness) -> None:
    labels, inner = begun(harness)
    harness.run("b1", inner, "a")
    assert harness.graph(inner.graph).state is GraphState.BLOCKED
    harness.rerun(inner["a"])
    harness.run_continuations()
    harness.run("b1", inner)
    harness.run_continuations()
    assert harness.states(labels)["outer"] is State.SUCCESSFUL


def test_a_cancel_that_comes_after_the_rest_of_the_graph_still_wins(harness: LifecycleHarness) -> None:
    labels, inner = begun(harness)
    harness.run("b1", inner)
    harness.cancel(labels["outer"])
    harness.run_continuations()
    assert harness.why(labels["outer"]) == (State.CANCELED, Reason.ASKED)
    assert harness.state_names(labels)["after"] == "blocked"
    assert harness.graph(inner.graph).state is GraphState.CANCELED


def test_a_running_task_of_a_subgraph_is_stopped_and_its_report_ends_all_of_it(harness: LifecycleHarness) -> None:
    labels, inner = begun(harness)
    lease = harness.start("b1", inner)["a"]
    harness.cancel(graph=labels.graph)
    harness.run_continuations()
    assert (harness.state_names(labels)["outer"], harness.state_names(inner)) == ("stopping", {"a": "stopping"})
    harness.end("b1", lease, Signal.FAIL)
    harness.run_continuations()
    assert harness.state_names(labels) == {"outer": "canceled", "after": "canceled"}
    assert (harness.graph_state(labels), harness.graph_state(inner)) == ("canceled", "canceled")
