"""The state of a graph, from its tasks, and who counts as having handled a failure."""

import pytest

from taskyard.core.graph.verdict import (
    Handlers,
    Handling,
    Member,
    Tally,
    counted,
    extensible,
    handling,
    settled,
    tally,
    verdict,
)
from taskyard.core.words import GraphState, State

VERDICTS = [
    ("an empty graph is finished at once", Tally(), GraphState.FINISHED, True),
    ("something moves by itself", Tally(active=1), GraphState.RUNNING, False),
    ("others wait for what moves", Tally(active=1, behind=2), GraphState.RUNNING, False),
    ("blocked at once, while other branches go on", Tally(active=1, unhandled=1), GraphState.BLOCKED, False),
    ("two failures: one mended leaves the other", Tally(active=1, behind=1, unhandled=1), GraphState.BLOCKED, False),
    ("a failure for good", Tally(unhandled=1), GraphState.BLOCKED, True),
    ("the failure was handled but its dependents still wait for it", Tally(behind=1), GraphState.BLOCKED, True),
]


@pytest.mark.parametrize(("counts", "state", "is_settled"), [r[1:] for r in VERDICTS], ids=[r[0] for r in VERDICTS])
def test_where_a_graph_is(counts: Tally, state: GraphState, is_settled: bool) -> None:
    assert verdict(counts) is state
    assert settled(counts) is is_settled


def test_cancel_of_a_graph_is_a_fact_that_outweighs_its_tasks() -> None:
    assert verdict(Tally(active=3), canceled=True) is GraphState.CANCELED


HANDLING = [
    ("nobody is there for it", [], Handling.UNHANDLED),
    ("a handler succeeded", [Member(State.SUCCESSFUL, ran=True)], Handling.HANDLED),
    ("a handler failed, but really ran", [Member(State.FAILED, ran=True)], Handling.HANDLED),
    ("a handler failed by policy and never ran", [Member(State.FAILED)], Handling.UNHANDLED),
    ("a handler expired and never ran", [Member(State.ERROR)], Handling.UNHANDLED),
    ("a handler was skipped", [Member(State.SKIPPED)], Handling.UNHANDLED),
    ("a handler is blocked", [Member(State.BLOCKED)], Handling.UNHANDLED),
    ("a handler may still run", [Member(State.UNSCHEDULED)], Handling.HOPED),
    ("a handler is running", [Member(State.RUNNING, ran=True)], Handling.HOPED),
    ("a handler goes again", [Member(State.PENDING, ran=True)], Handling.HOPED),
    ("one was skipped, one ran", [Member(State.SKIPPED), Member(State.SUCCESSFUL, ran=True)], Handling.HANDLED),
    ("one ran, one may still run", [Member(State.RUNNING), Member(State.SUCCESSFUL, ran=True)], Handling.HANDLED),
]


@pytest.mark.parametrize(("handlers", "judged"), [r[1:] for r in HANDLING], ids=[r[0] for r in HANDLING])
def test_how_a_failure_is_handled(handlers: list[Member], judged: Handling) -> None:
    counts = [counted(handler) for handler in handlers]
    assert handling(Handlers(sum(one.ran for one in counts), sum(one.hoped for one in counts))) is judged


@pytest.mark.parametrize("state", GraphState)
def test_only_a_running_or_blocked_graph_can_be_extended(state: GraphState) -> None:
    assert extensible(state) is (state in {GraphState.RUNNING, GraphState.BLOCKED})


def test_a_tally_counts_active_behind_and_unhandled() -> None:
    members = {
        "build": Member(State.FAILED, ran=True),
        "page": Member(State.SUCCESSFUL, ran=True),
        "test": Member(State.BLOCKED),
        "lint": Member(State.CANCELED),
        "docs": Member(State.WAITING),
        "site": Member(State.SUCCESSFUL),
        "mail": Member(State.UNSCHEDULED),
    }
    assert tally(members, {"build": ["page"]}) == Tally(active=1, behind=2, unhandled=1)


def test_successful_tasks_need_no_handler() -> None:
    assert tally({"a": Member(State.SUCCESSFUL), "b": Member(State.SKIPPED)}, {"a": ["b"]}) == Tally()
