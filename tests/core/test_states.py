"""The machine against a matrix kept by hand, and what must be true of any such machine."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from taskyard.core.states import (
    ACTIVE,
    ARROWS,
    BEHIND,
    ECHOES,
    ENDED,
    FINAL,
    HOLDING,
    LEASED,
    REASONS,
    STEPS,
    UNSUCCESSFUL,
    Effects,
    Outcome,
    Propagation,
    Signal,
    State,
    Step,
    effects,
    sources,
    step,
)
from tests.each_row import each_row

PAIRS = list(product(State, State))
NOTHING = Effects(
    propagates=None, pending=0, queued=0, holding=0, leased=0, active=0, behind=0, new_round=False, judged=False
)


def matrix() -> dict[tuple[State, Signal], str]:
    text = (Path(__file__).parent / "matrix.txt").read_text(encoding="utf-8")
    head, *rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {(State(row[0]), Signal(signal)): cell for row in rows for signal, cell in zip(head, row[1:], strict=True)}


def expected(state: State, cell: str, again: bool) -> Step:
    if cell in ("=", "."):
        return Step(Outcome.ECHO if cell == "=" else Outcome.ILLEGAL, state)
    letters = cell.split("/")[-1 if again else 0]
    (target,) = [one for one in State if one.startswith(letters)]
    return Step(Outcome.MOVE, target)


def test_the_matrix_names_every_state_and_signal_once() -> None:
    assert set(matrix()) == set(product(State, Signal))


@each_row("again", [False, True], ids=["once", "again"])
@each_row(("state", "signal"), list(product(State, Signal)))
def test_every_step_is_as_in_the_matrix(state: State, signal: Signal, again: bool) -> None:
    assert step(state, signal, again) == expected(state, matrix()[state, signal], again)


def test_step_is_total_and_the_compiled_table_is_the_whole_domain() -> None:
    assert set(STEPS) == set(product(State, Signal, (False, True)))


def test_what_is_no_move_changes_nothing() -> None:
    still = {case: answer for case, answer in STEPS.items() if answer.outcome is not Outcome.MOVE}
    assert all(answer.target is state for (state, _, _), answer in still.items())


def test_no_signal_both_moves_and_echoes_in_one_state() -> None:
    assert not {(arrow.source, arrow.signal) for arrow in ARROWS} & {
        (state, signal) for signal, states in ECHOES.items() for state in states
    }


def test_every_state_can_be_reached_from_birth() -> None:
    assert reach({State.UNSCHEDULED}) == set(State)


@each_row("state", State)
def test_every_state_can_end(state: State) -> None:
    assert reach({state}) & ENDED


def test_no_arrow_leaves_successful() -> None:
    assert not [arrow for arrow in ARROWS if arrow.source is State.SUCCESSFUL]


def test_what_ended_badly_comes_back_only_by_a_rerun_and_what_was_skipped_only_by_a_mend() -> None:
    out = {(arrow.source, arrow.signal) for arrow in ARROWS if arrow.source in ENDED}
    assert out == {(state, Signal.RERUN) for state in UNSUCCESSFUL} | {(State.SKIPPED, Signal.MEND)}


def test_only_a_person_or_a_mend_leads_back_to_unscheduled() -> None:
    assert {arrow.signal for arrow in ARROWS if arrow.target is State.UNSCHEDULED} == {Signal.RERUN, Signal.MEND}


def test_again_always_goes_to_pending_and_only_for_failure_loss_and_expiry() -> None:
    again = {(arrow.signal, arrow.again) for arrow in ARROWS if arrow.again}
    assert again == {(signal, State.PENDING) for signal in (Signal.FAIL, Signal.LOSE, Signal.EXPIRE)}


@pytest.mark.parametrize("signal", [Signal.SUCCEED, Signal.FAIL, Signal.LOSE, Signal.DEADLINE])
def test_a_stopping_task_ends_canceled_and_never_goes_again(signal: Signal) -> None:
    assert step(State.STOPPING, signal, again=True) == Step(Outcome.MOVE, State.CANCELED)


@pytest.mark.parametrize("state", [State.UNSCHEDULED, State.BLOCKED, State.PENDING, State.WAITING, State.RUNNING])
def test_a_deadline_is_never_followed_by_again(state: State) -> None:
    assert step(state, Signal.DEADLINE, again=True) == Step(Outcome.MOVE, State.ERROR)


def test_every_signal_leaves_a_reason() -> None:
    assert set(REASONS) == set(Signal)


def test_sources_are_where_a_signal_moves() -> None:
    assert sources(Signal.RERUN) == UNSUCCESSFUL
    assert sources(Signal.CLAIM) == {State.WAITING}


def test_the_groups_of_states() -> None:
    assert HOLDING == {State.WAITING, State.RUNNING, State.STOPPING}
    assert LEASED == {State.RUNNING, State.STOPPING}
    assert ENDED == {State.SUCCESSFUL, State.FAILED, State.ERROR, State.CANCELED, State.SKIPPED}
    assert HOLDING | {State.PENDING} == ACTIVE
    assert {State.UNSCHEDULED, State.BLOCKED} == BEHIND


def test_every_state_is_active_behind_or_ended() -> None:
    assert sorted([*ACTIVE, *BEHIND, *ENDED]) == sorted(State)


@each_row("state", State)
def test_staying_has_no_effects(state: State) -> None:
    # Only a pending task that gets another slice is judged again.
    assert effects(state, state) == replace(NOTHING, judged=state is State.PENDING)


@each_row(("source", "target"), PAIRS)
def test_a_task_that_becomes_pending_is_judged_and_counted(source: State, target: State) -> None:
    assert effects(source, target).judged is (target is State.PENDING)
    assert effects(source, target).pending == (target is State.PENDING) - (source is State.PENDING)


@each_row(("source", "target"), PAIRS)
def test_going_there_and_back_changes_no_count(source: State, target: State) -> None:
    there, back = effects(source, target), effects(target, source)
    assert [there.queued, there.holding, there.leased, there.active, there.behind] == [
        -back.queued, -back.holding, -back.leased, -back.active, -back.behind,
    ]  # fmt: skip


@each_row(("source", "target"), PAIRS)
def test_a_detour_has_the_effects_of_the_straight_way(source: State, target: State) -> None:
    straight = effects(source, target)
    for between in State:
        one, two = effects(source, between), effects(between, target)
        for count in ("queued", "holding", "leased", "active", "behind"):
            assert getattr(one, count) + getattr(two, count) == getattr(straight, count)


PROPAGATED = {
    State.SUCCESSFUL: Propagation.SUCCESS,
    State.FAILED: Propagation.FAILURE,
    State.ERROR: Propagation.FAILURE,
    State.CANCELED: Propagation.FAILURE,
    State.SKIPPED: Propagation.SKIP,
}


@each_row(("source", "target"), PAIRS)
def test_only_a_change_of_outcome_is_propagated_to_dependents(source: State, target: State) -> None:
    if PROPAGATED.get(source) is PROPAGATED.get(target):
        assert effects(source, target).propagates is None
    else:
        assert effects(source, target).propagates is PROPAGATED.get(target, Propagation.MEND)


@each_row(("source", "target"), PAIRS)
def test_a_new_round_opens_only_when_what_ended_badly_is_unscheduled_again(source: State, target: State) -> None:
    opens = source in {State.FAILED, State.ERROR, State.CANCELED} and target is State.UNSCHEDULED
    assert effects(source, target).new_round is opens


def test_the_effects_of_a_whole_life_add_up() -> None:
    admitted = effects(State.PENDING, State.WAITING)
    claimed = effects(State.WAITING, State.RUNNING)
    ended = effects(State.RUNNING, State.SUCCESSFUL)
    assert (admitted.queued, admitted.holding, admitted.leased) == (1, 1, 0)
    assert (claimed.queued, claimed.holding, claimed.leased) == (-1, 0, 1)
    assert (ended.holding, ended.leased, ended.active, ended.propagates) == (-1, -1, -1, Propagation.SUCCESS)


def test_a_stopping_task_keeps_its_mutexes() -> None:
    assert effects(State.RUNNING, State.STOPPING) == NOTHING


def reach(found: set[State]) -> set[State]:
    steps = {(arrow.source, end) for arrow in ARROWS for end in (arrow.target, arrow.again) if end}
    while more := {target for source, target in steps if source in found} - found:
        found = found | more
    return found


def test_only_a_success_is_for_good() -> None:
    assert {State.SUCCESSFUL} == FINAL
