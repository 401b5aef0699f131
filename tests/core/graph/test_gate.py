"""The gate: edges, joins, and what happens to a task whose condition can no longer come true."""

from itertools import product

import pytest

from taskyard.core.graph.gate import LISTENING, Edges, EdgeState, edge_after, gate, known, shift, signals
from taskyard.core.states import (
    Impossible,
    Join,
    On,
    Outcome,
    Propagation,
    Signal,
    State,
    effects,
    propagation_of,
    step,
)
from tests.each_row import each_row

HEARING = [
    # propagated, on, new state
    (Propagation.SUCCESS, On.SUCCESS, EdgeState.MET),
    (Propagation.SUCCESS, On.ALWAYS, EdgeState.MET),
    (Propagation.SUCCESS, On.FAILURE, EdgeState.IMPOSSIBLE),
    (Propagation.FAILURE, On.SUCCESS, EdgeState.BROKEN),
    (Propagation.FAILURE, On.ALWAYS, EdgeState.MET),
    (Propagation.FAILURE, On.FAILURE, EdgeState.MET),
    (Propagation.SKIP, On.SUCCESS, EdgeState.IMPOSSIBLE),
    (Propagation.SKIP, On.ALWAYS, EdgeState.IMPOSSIBLE),
    (Propagation.SKIP, On.FAILURE, EdgeState.IMPOSSIBLE),
]


@each_row(("propagation", "on", "becomes"), HEARING)
def test_an_edge_follows_the_end_of_its_prerequisite(propagation: Propagation, on: On, becomes: EdgeState) -> None:
    assert edge_after(EdgeState.AWAITED, on, propagation) is becomes


@each_row(("on", "edge"), list(product(On, EdgeState)))
def test_a_mended_prerequisite_is_awaited_again_by_tasks_that_still_wait(on: On, edge: EdgeState) -> None:
    assert edge_after(edge, on, Propagation.MEND) is EdgeState.AWAITED


@each_row(("on", "propagation"), list(product(On, Propagation)))
def test_a_met_edge_of_a_task_under_way_is_latched(on: On, propagation: Propagation) -> None:
    assert edge_after(EdgeState.MET, on, propagation, under_way=True) is EdgeState.MET


@each_row(("on", "source", "target"), list(product(On, State, State)))
def test_a_propagated_edge_equals_one_computed_from_scratch(on: On, source: State, target: State) -> None:
    shown = effects(source, target).propagates
    before = known(on, source)
    assert (edge_after(before, on, shown) if shown else before) is known(on, target)


@each_row(("on", "state", "edge"), list(product(On, State, EdgeState)))
def test_propagating_the_present_state_corrects_any_earlier_propagation(on: On, state: State, edge: EdgeState) -> None:
    assert edge_after(edge, on, propagation_of(state) or Propagation.MEND) is known(on, state)


GATES = [
    # join, edges, the signals for a task with the policy hold / fail / skip
    ("no edges: open", Join.ALL, Edges(), "release release release"),
    ("no edges: open", Join.ANY, Edges(), "release release release"),
    ("all met", Join.ALL, Edges(met=2), "release release release"),
    ("one still awaited", Join.ALL, Edges(met=1, awaited=1), "- - -"),
    ("one broke, another awaited: broken at once", Join.ALL, Edges(awaited=1, broken=1), "block doom skip"),
    ("one broke", Join.ALL, Edges(met=1, broken=1), "block doom skip"),
    ("one is impossible: skipped whatever the policy", Join.ALL, Edges(met=1, impossible=1), "skip skip skip"),
    ("broken and impossible: nothing can mend it", Join.ALL, Edges(broken=1, impossible=1), "skip skip skip"),
    ("the first met edge fires", Join.ANY, Edges(met=1, awaited=1, broken=1, impossible=1), "release release release"),
    ("one broke, another awaited: still possible", Join.ANY, Edges(awaited=1, broken=1), "- - -"),
    ("all broke", Join.ANY, Edges(broken=2), "block doom skip"),
    (
        "one broke, the other impossible: a rerun can mend it",
        Join.ANY,
        Edges(broken=1, impossible=1),
        "block doom skip",
    ),
    ("all impossible", Join.ANY, Edges(impossible=2), "skip skip skip"),
]


@each_row(("join", "edges", "asked"), [row[1:] for row in GATES], ids=[f"{r[1]}: {r[0]}" for r in GATES])
def test_a_gate_demands_a_signal(join: Join, edges: Edges, asked: str) -> None:
    assert [str(gate(edges, join, policy) or "-") for policy in Impossible] == asked.split()


SIGNALS = [
    # state, demanded, signals
    (State.UNSCHEDULED, None, []),
    (State.UNSCHEDULED, Signal.RELEASE, [Signal.RELEASE]),
    (State.UNSCHEDULED, Signal.BLOCK, [Signal.BLOCK]),
    (State.UNSCHEDULED, Signal.DOOM, [Signal.DOOM]),
    (State.UNSCHEDULED, Signal.SKIP, [Signal.SKIP]),
    (State.BLOCKED, None, [Signal.MEND]),
    (State.BLOCKED, Signal.BLOCK, []),  # another prerequisite is still failed
    (State.BLOCKED, Signal.SKIP, [Signal.SKIP]),
    (State.BLOCKED, Signal.RELEASE, [Signal.MEND, Signal.RELEASE]),
    (State.SKIPPED, None, [Signal.MEND]),
    (State.SKIPPED, Signal.SKIP, []),
    (State.SKIPPED, Signal.BLOCK, [Signal.MEND, Signal.BLOCK]),
    (State.SKIPPED, Signal.DOOM, [Signal.MEND, Signal.DOOM]),
    (State.SKIPPED, Signal.RELEASE, [Signal.MEND, Signal.RELEASE]),
    (State.FAILED, None, []),  # failed by policy stays failed
    (State.PENDING, Signal.BLOCK, []),  # a released task is never taken back
    (State.RUNNING, Signal.RELEASE, []),
]


@each_row(("state", "asked", "sent"), SIGNALS)
def test_what_a_gate_sends(state: State, asked: Signal | None, sent: list[Signal]) -> None:
    assert list(signals(state, asked)) == sent


ASKED = [None, Signal.RELEASE, Signal.BLOCK, Signal.DOOM, Signal.SKIP]


@each_row(("state", "asked"), list(product(State, ASKED)))
def test_a_canceled_graph_starts_nothing(state: State, asked: Signal | None) -> None:
    assert signals(state, asked, graph_canceled=True) == ()


@each_row(("state", "asked"), list(product(State, ASKED)))
def test_every_signal_a_gate_sends_is_a_move(state: State, asked: Signal | None) -> None:
    for signal in signals(state, asked):
        answer = step(state, signal)
        assert answer.outcome is Outcome.MOVE
        state = answer.target


@pytest.mark.parametrize(("join", "policy"), list(product(Join, Impossible)))
def test_a_gate_only_looks_at_which_counts_are_zero(join: Join, policy: Impossible) -> None:
    for counts in product((0, 1), repeat=4):
        many = Edges(*(7 * count for count in counts))
        assert gate(many, join, policy) is gate(Edges(*counts), join, policy)


@each_row(("on", "source", "target"), list(product(On, State, State)))
def test_counts_that_shift_are_counts_taken_afresh(on: On, source: State, target: State) -> None:
    def counted(state: State) -> Edges:
        return Edges(*(3 + (known(on, state) is each) for each in EdgeState))

    assert shift(counted(source), on, source, target) == counted(target)


def test_an_active_task_and_one_that_ended_by_itself_are_not_moved_by_their_gates() -> None:
    assert LISTENING == {State.UNSCHEDULED, State.BLOCKED, State.SKIPPED}
