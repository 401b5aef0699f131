"""The state of a graph, from its tasks, and which handlers count for a failure."""

from itertools import product

import pytest

from taskyard.core.graph.state import (
    Handler,
    Handling,
    Member,
    Tally,
    changeable,
    counted,
    handlers_of,
    handling,
    matters,
    settled,
    tally,
    verdict,
)
from taskyard.core.states import ARROWS, ENDED, GraphState, State
from tests.each_row import each_row

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
    assert verdict(Tally(active=3), canceled=True) is GraphState.CANCELING
    assert verdict(Tally(behind=2, unhandled=1), canceled=True) is GraphState.CANCELED


ROUND = 2
HANDLING = [
    ("no handler is there for it", [], Handling.UNHANDLED),
    ("a handler succeeded", [Handler(State.SUCCESSFUL, ROUND)], Handling.HANDLED),
    ("a handler failed, but really ran", [Handler(State.FAILED, ROUND)], Handling.HANDLED),
    ("a handler ran for an earlier failure", [Handler(State.SUCCESSFUL, ROUND - 1)], Handling.UNHANDLED),
    ("a handler failed by policy and never ran", [Handler(State.FAILED)], Handling.UNHANDLED),
    ("a handler expired and never ran", [Handler(State.ERROR)], Handling.UNHANDLED),
    ("a handler was skipped", [Handler(State.SKIPPED)], Handling.UNHANDLED),
    ("a handler is blocked", [Handler(State.BLOCKED)], Handling.UNHANDLED),
    ("a handler may still run", [Handler(State.UNSCHEDULED)], Handling.OPEN),
    ("a handler is running", [Handler(State.RUNNING)], Handling.OPEN),
    ("a handler that ran goes again", [Handler(State.PENDING, ROUND)], Handling.OPEN),
    ("one was skipped, one ran", [Handler(State.SKIPPED), Handler(State.SUCCESSFUL, ROUND)], Handling.HANDLED),
    ("one ran, one may still run", [Handler(State.RUNNING), Handler(State.SUCCESSFUL, ROUND)], Handling.HANDLED),
]


@each_row(("handlers", "judged"), [r[1:] for r in HANDLING], ids=[r[0] for r in HANDLING])
def test_how_a_failure_is_handled(handlers: list[Handler], judged: Handling) -> None:
    assert handling(handlers_of(Member(State.FAILED, ROUND), handlers)) is judged


@pytest.mark.parametrize("state", GraphState)
def test_only_a_running_or_blocked_graph_can_be_extended_or_rerun(state: GraphState) -> None:
    assert changeable(state) is (state in {GraphState.RUNNING, GraphState.BLOCKED})


def test_a_tally_counts_active_behind_and_unhandled() -> None:
    members = {
        "build": Member(State.FAILED),
        "page": Member(State.SUCCESSFUL),
        "test": Member(State.BLOCKED),
        "lint": Member(State.CANCELED),
        "scan": Member(State.ERROR),
        "docs": Member(State.WAITING),
        "mail": Member(State.UNSCHEDULED),
    }
    assert tally(members, {"build": [Handler(State.SUCCESSFUL, 1)]}) == Tally(active=1, behind=2, unhandled=2)


def test_successful_tasks_need_no_handler() -> None:
    members = {"a": Member(State.SUCCESSFUL), "b": Member(State.SKIPPED)}
    assert tally(members, {"a": [Handler(State.SKIPPED)]}) == Tally()


@each_row(("source", "target"), list(product(State, State)))
def test_a_move_of_a_handler_that_does_not_matter_changes_nothing_whatever_it_ran_for(
    source: State, target: State
) -> None:
    if not matters(source, target):
        assert target not in ENDED  # so it did not run to its end either
        for handled_round in (None, 1, 2):
            assert counted(Handler(source, handled_round), ROUND) == counted(Handler(target, handled_round), ROUND)


def test_nothing_on_the_way_from_its_release_to_its_end_matters() -> None:
    ways = {(arrow.source, end) for arrow in ARROWS for end in (arrow.target, arrow.again) if end}
    assert {way for way in ways if not matters(*way)} == {
        (State.UNSCHEDULED, State.PENDING),
        (State.PENDING, State.WAITING),
        (State.PENDING, State.PENDING),
        (State.WAITING, State.PENDING),
        (State.WAITING, State.RUNNING),
        (State.RUNNING, State.PENDING),
        (State.RUNNING, State.STOPPING),
    }
