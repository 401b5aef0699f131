"""Budgets: reruns, retries, slices, deadlines and leases."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Life, Patience, Rules, Ruling
from taskyard.core.graph.model import Reruns, Slice, Task, When
from taskyard.core.states import ENDED, LEASED, Kind, Millis, Outcome, Reason, Signal, State, step
from taskyard.core.structs import struct_replace
from tests.each_row import each_row
from tests.effort import tries

S, G = State, Signal
NOW = Millis(1_800_000_000_000)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

RUNNING = Life(S.RUNNING, attempt=1)
STOPPING = struct_replace(RUNNING, state=S.STOPPING)
WAITING = Life(S.WAITING, waits_since_ms=Millis(NOW - DAY_MS))


def at(ms_from_now: int) -> Millis:
    return Millis(NOW + ms_from_now)


def tell(life: Life, signal: Signal, rules: Rules, exit_code: int | None = None, now: Millis = NOW) -> Ruling:
    """Report a signal about the latest attempt."""
    return attempt_policy.report(life, rules, life.attempt, signal, now, exit_code)


def unmoved(life: Life, outcome: Outcome) -> Ruling:
    return Ruling(outcome, life.state, again=False, life_after=life, reason=None)


def taken(life: Life) -> Life:
    """Let a pending task be admitted and claimed."""
    return attempt_policy.claimed(attempt_policy.admitted(life, NOW))


def failed_times(times: int, rules: Rules) -> Life:
    """Let a task fail again and again, until it is not tried again."""
    life = RUNNING
    for _ in range(times):
        life = life if life.state is S.RUNNING else taken(life)
        life = tell(life, G.FAIL, rules, exit_code=1).life_after
    return life


# A report about an attempt: TaskCluster's operations B (completed), C (unsuccessful) and D (failed).


@each_row(
    ("life", "signal", "rules", "exit_code", "target", "reason"),
    [
        (RUNNING, G.SUCCEED, Rules(reruns=9), 0, S.SUCCESSFUL, Reason.DONE),
        (RUNNING, G.FAIL, Rules(), 1, S.FAILED, Reason.EXIT_CODE),
        (RUNNING, G.FAIL, Rules(), None, S.FAILED, None),
        (RUNNING, G.FAIL, Rules(reruns=1), 1, S.PENDING, Reason.EXIT_CODE),
        (RUNNING, G.LOSE, Rules(retries=0), None, S.ERROR, Reason.BOT_LOST),
        (RUNNING, G.LOSE, Rules(), None, S.PENDING, Reason.BOT_LOST),
        (RUNNING, G.DEADLINE, Rules(reruns=9, retries=9), None, S.ERROR, Reason.DEADLINE),
        (STOPPING, G.SUCCEED, Rules(reruns=9), 0, S.CANCELED, Reason.ASKED),
        (STOPPING, G.FAIL, Rules(reruns=9), 1, S.CANCELED, Reason.ASKED),
        (STOPPING, G.LOSE, Rules(retries=9), None, S.CANCELED, Reason.ASKED),
        (STOPPING, G.DEADLINE, Rules(reruns=9, retries=9), None, S.CANCELED, Reason.ASKED),
    ],
)
def test_a_report_about_the_live_attempt_moves_its_task(
    life: Life, signal: Signal, rules: Rules, exit_code: int | None, target: State, reason: Reason | None
) -> None:
    ruling = tell(life, signal, rules, exit_code)
    assert (ruling.outcome, ruling.target, ruling.reason) == (Outcome.MOVE, target, reason)
    assert ruling.life_after.state is target
    assert ruling.life_after.ended is signal
    assert ruling.again is (target is S.PENDING)


@pytest.mark.parametrize("signal", [G.SUCCEED, G.FAIL, G.LOSE, G.DEADLINE])
def test_an_end_for_good_costs_nothing(signal: Signal) -> None:
    after = tell(STOPPING, signal, Rules(reruns=9, retries=9), exit_code=1).life_after
    assert after == struct_replace(STOPPING, state=S.CANCELED, ended=signal)


@each_row("signal", sorted(set(Signal) - attempt_policy.ATTEMPT_SIGNALS))
def test_only_four_signals_are_about_an_attempt(signal: Signal) -> None:
    with pytest.raises(ValueError, match="no signal about an attempt"):
        tell(RUNNING, signal, Rules())


@pytest.mark.parametrize("reruns", [0, 1, 2, 5, 999])
def test_n_reruns_are_at_most_n_plus_one_attempts(reruns: int) -> None:
    rules = Rules(reruns=reruns, retries=0)
    before, after = failed_times(reruns, rules), failed_times(reruns + 1, rules)
    assert reruns == 0 or before.state is S.PENDING
    assert (after.state, after.attempt, after.reruns_used) == (S.FAILED, reruns + 1, reruns)


def test_a_failure_delivered_twice_burns_one_rerun() -> None:
    rules = Rules(reruns=5)
    once = tell(RUNNING, G.FAIL, rules, exit_code=1).life_after
    assert once.reruns_used == 1
    assert attempt_policy.report(once, rules, 1, G.FAIL, NOW, 1) == unmoved(once, Outcome.ECHO)


@pytest.mark.parametrize("signal", [G.SUCCEED, G.FAIL, G.LOSE, G.DEADLINE])
def test_a_report_about_an_older_attempt_changes_nothing_while_the_next_one_runs(signal: Signal) -> None:
    rules = Rules(reruns=5)
    second = taken(tell(RUNNING, G.FAIL, rules, exit_code=1).life_after)
    assert second.attempt == 2
    assert attempt_policy.report(second, rules, 1, signal, NOW, 1) == unmoved(second, Outcome.ILLEGAL)


@each_row("state", [S.SUCCESSFUL, S.FAILED, S.ERROR, S.CANCELED, S.UNSCHEDULED, S.PENDING, S.WAITING])
@each_row("ended", [G.SUCCEED, G.FAIL, G.LOSE, G.DEADLINE])
@each_row("signal", [G.SUCCEED, G.FAIL, G.LOSE, G.DEADLINE])
def test_an_ended_attempt_keeps_its_result_and_only_the_same_report_is_an_echo(
    state: State, ended: Signal, signal: Signal
) -> None:
    life = Life(state, attempt=3, ended=ended)
    expected = Outcome.ECHO if signal is ended else Outcome.ILLEGAL
    assert tell(life, signal, Rules(reruns=9, retries=9), exit_code=1) == unmoved(life, expected)


def test_the_end_of_an_older_attempt_is_refused_even_if_the_latest_ended_alike() -> None:
    twice = Life(S.PENDING, attempt=2, ended=G.FAIL, reruns_used=2)
    assert attempt_policy.report(twice, Rules(reruns=9), 1, G.FAIL, NOW, 1) == unmoved(twice, Outcome.ILLEGAL)


@pytest.mark.parametrize("attempt", [-1, 0, 2, 99])
def test_a_report_about_an_attempt_that_never_was_is_refused(attempt: int) -> None:
    assert attempt_policy.report(RUNNING, Rules(), attempt, G.SUCCEED, NOW) == unmoved(RUNNING, Outcome.ILLEGAL)


@each_row("state", sorted(set(State) - LEASED))
@each_row("signal", [G.SUCCEED, G.FAIL, G.LOSE, G.DEADLINE])
def test_a_task_that_no_bot_has_cannot_be_reported_on(state: State, signal: Signal) -> None:
    life = Life(state)
    assert attempt_policy.report(life, Rules(retries=9), 0, signal, NOW) == unmoved(life, Outcome.ILLEGAL)


# Two budgets.


def test_a_lost_bot_costs_a_retry_not_a_rerun() -> None:
    after = tell(RUNNING, G.LOSE, Rules(reruns=1, retries=1)).life_after
    assert after == struct_replace(RUNNING, state=S.PENDING, ended=G.LOSE, retries_used=1)


def test_a_failure_costs_a_rerun_not_a_retry() -> None:
    after = tell(RUNNING, G.FAIL, Rules(reruns=1, retries=1), exit_code=1).life_after
    assert after == struct_replace(RUNNING, state=S.PENDING, ended=G.FAIL, reruns_used=1)


def test_a_lost_bot_with_its_retries_spent_is_an_error_and_uses_no_reruns() -> None:
    spent = struct_replace(RUNNING, retries_used=2)
    ruling = tell(spent, G.LOSE, Rules(reruns=5, retries=2))
    assert ruling == Ruling(
        Outcome.MOVE, S.ERROR, False, struct_replace(spent, state=S.ERROR, ended=G.LOSE), Reason.BOT_LOST
    )


def test_two_bots_may_be_lost_by_default() -> None:
    lives = [RUNNING]
    for _ in range(3):
        lives.append(tell(lives[-1], G.LOSE, Rules()).life_after)
        lives[-1] = taken(lives[-1]) if lives[-1].state is S.PENDING else lives[-1]
    assert [life.state for life in lives] == [S.RUNNING, S.RUNNING, S.RUNNING, S.ERROR]


@pytest.mark.parametrize("end", [G.LOSE, G.FAIL])
def test_a_task_that_is_tried_again_keeps_its_slice_and_waits_anew(end: Signal) -> None:
    life = attempt_policy.claimed(struct_replace(WAITING, slice_index=1))
    after = tell(life, end, Rules(reruns=1, slices=(Patience(), Patience()))).life_after
    assert after.slice_index == 1
    assert attempt_policy.admitted(after, at(77)).waits_since_ms == at(77)


@pytest.mark.parametrize(
    ("exit_codes", "exit_code", "again"),
    [
        ((), None, True),
        ((75, 111), 75, True),
        ((75, 111), 111, True),
        ((75, 111), 1, False),
        ((75, 111), None, False),  # a time-out has no exit code
        ((), 1, True),
    ],
)
def test_chosen_exit_codes_are_rerun_and_no_others(
    exit_codes: tuple[int, ...], exit_code: int | None, again: bool
) -> None:
    ruling = tell(RUNNING, G.FAIL, Rules(reruns=1, exit_codes=exit_codes), exit_code)
    assert ruling.target is (S.PENDING if again else S.FAILED)
    assert ruling.life_after.reruns_used == again


def test_exit_codes_do_not_concern_lost_bots() -> None:
    assert tell(RUNNING, G.LOSE, Rules(exit_codes=(75,))).again


# The back-off.


@each_row(
    ("delay_ms", "factor", "delays_ms"),
    [
        (0, 2, [0, 0, 0, 0]),
        (1_000, 1, [1_000, 1_000, 1_000, 1_000]),
        (1_000, 2, [1_000, 2_000, 4_000, 8_000]),
        (1_000, 1.5, [1_000, 1_500, 2_250, 3_375]),
        (10, 1.1, [10, 11, 12, 13]),
        (1_000, 1.1, [1_000, 1_100, 1_210, 1_331]),
        (100, 1.15, [100, 115, 132, 152]),  # 100 * 1.15 is 114.99999999999999 to a float
        (DAY_MS // 2, 2, [DAY_MS // 2, DAY_MS, DAY_MS, DAY_MS]),
        (9 * DAY_MS, 1, [DAY_MS] * 4),
    ],
)
def test_each_rerun_waits_longer_by_the_factor_and_never_more_than_a_day(
    delay_ms: int, factor: float, delays_ms: list[int]
) -> None:
    rules = Rules(reruns=9, delay_ms=delay_ms, factor=factor)
    lives = [tell(struct_replace(RUNNING, reruns_used=used), G.FAIL, rules, 1).life_after for used in range(4)]
    assert [life.not_before_ms for life in lives] == [at(delay) if delay else None for delay in delays_ms]


@given(st.integers(1, 10**9), st.floats(1, 10), st.integers(0, 998))
def test_a_back_off_is_whole_and_bounded_and_never_gets_shorter(delay_ms: int, factor: float, used: int) -> None:
    rules = Rules(reruns=999, delay_ms=delay_ms, factor=factor)
    shorter, longer = attempt_policy.back_off_ms(rules, used), attempt_policy.back_off_ms(rules, used + 1)
    assert min(delay_ms, DAY_MS) <= shorter <= longer <= DAY_MS
    assert type(longer) is int


def test_a_retry_does_not_back_off() -> None:
    assert tell(RUNNING, G.LOSE, Rules(delay_ms=1_000)).life_after.not_before_ms is None


def test_a_back_off_is_over_once_the_task_is_admitted() -> None:
    held = tell(RUNNING, G.FAIL, Rules(reruns=1, delay_ms=1_000), 1).life_after
    assert attempt_policy.admitted(held, at(1_000)).not_before_ms is None


# The deadline.


@pytest.mark.parametrize(
    ("left_ms", "failed_goes", "lost_goes", "lost_because"),
    [
        (1, S.PENDING, S.PENDING, Reason.BOT_LOST),
        (0, S.FAILED, S.ERROR, Reason.DEADLINE),
        (-1, S.FAILED, S.ERROR, Reason.DEADLINE),
    ],
)
def test_past_the_deadline_nothing_is_tried_again(
    left_ms: int, failed_goes: State, lost_goes: State, lost_because: Reason
) -> None:
    rules = Rules(reruns=9, retries=9, deadline_ms=at(left_ms))
    assert tell(RUNNING, G.FAIL, rules, exit_code=1).target is failed_goes
    lost = tell(RUNNING, G.LOSE, rules)
    assert (lost.target, lost.reason) == (lost_goes, lost_because)


@pytest.mark.parametrize(("left_ms", "target"), [(5_001, S.PENDING), (5_000, S.FAILED)])
def test_a_rerun_that_could_not_begin_before_the_deadline_is_not_made(left_ms: int, target: State) -> None:
    rules = Rules(reruns=9, delay_ms=5_000, deadline_ms=at(left_ms))
    assert tell(RUNNING, G.FAIL, rules, exit_code=1).target is target


def test_a_success_past_the_deadline_is_a_success() -> None:
    assert tell(RUNNING, G.SUCCEED, Rules(deadline_ms=at(-1))).target is S.SUCCESSFUL


@each_row("state", State)
def test_a_deadline_ends_at_once_only_what_no_bot_has(state: State) -> None:
    life = struct_replace(RUNNING, state=state)
    moved = {
        late
        for late in (-1, 0, 1, 999_999)
        if attempt_policy.overdue(life, Rules(deadline_ms=at(-late)), NOW).outcome is Outcome.MOVE
    }
    assert moved == (set() if state in ENDED | LEASED else {0, 1, 999_999})


def test_without_a_deadline_nothing_is_due() -> None:
    lives = [struct_replace(RUNNING, state=state) for state in State]
    assert all(attempt_policy.overdue(life, Rules(), NOW) == unmoved(life, Outcome.ILLEGAL) for life in lives)


@pytest.mark.parametrize("deadline_ms", [None, 1])
@pytest.mark.parametrize("life", [RUNNING, STOPPING])
def test_a_lease_that_is_over_before_the_deadline_is_lost(life: Life, deadline_ms: int | None) -> None:
    rules = Rules(deadline_ms=None if deadline_ms is None else at(deadline_ms))
    signal, ruling = attempt_policy.lease_over(life, rules, NOW)
    assert (signal, ruling) == (G.LOSE, tell(life, G.LOSE, rules))


@pytest.mark.parametrize("late_ms", [0, 1, 60_000])
@pytest.mark.parametrize(("life", "target"), [(RUNNING, S.ERROR), (STOPPING, S.CANCELED)])
def test_a_lease_that_is_over_past_the_deadline_costs_no_retry(life: Life, target: State, late_ms: int) -> None:
    signal, ruling = attempt_policy.lease_over(life, Rules(reruns=9, retries=9, deadline_ms=at(-late_ms)), NOW)
    assert (signal, ruling.target, ruling.again) == (G.DEADLINE, target, False)
    assert ruling.life_after == struct_replace(life, state=target, ended=G.DEADLINE)
    assert ruling.reason is (Reason.ASKED if life is STOPPING else Reason.DEADLINE)


@pytest.mark.parametrize(
    ("life", "late_ms", "target"),
    [
        (Life(S.UNSCHEDULED), 0, S.ERROR),
        (Life(S.BLOCKED), 0, S.ERROR),
        (Life(S.PENDING), 0, S.ERROR),
        (WAITING, 0, S.ERROR),
    ],
)
def test_a_task_past_its_deadline_ends_and_is_never_tried_again(life: Life, late_ms: int, target: State) -> None:
    rules = Rules(reruns=9, retries=9, slices=(Patience(), Patience()), deadline_ms=at(-late_ms))
    ruling = attempt_policy.overdue(life, rules, NOW)
    assert (ruling.outcome, ruling.target, ruling.again) == (Outcome.MOVE, target, False)
    assert ruling.reason is Reason.DEADLINE
    assert ruling.life_after.ended is None


# Slices.

ANY, NONE = (True, True, True), (False, False, False)


@pytest.mark.parametrize(
    ("waits", "capacity", "first"),
    [
        ((False, False, True), NONE, 2),
        ((False, False, True), (False, True, False), 1),
        ((False, False, True), ANY, 0),
        ((True, False, True), NONE, 0),
        ((False, True, True), (False, False, True), 1),
        ((False, False, False), NONE, None),
        ((False, False, False), (False, False, True), 2),
    ],
)
def test_the_first_slice_with_capacity_or_that_waits_for_it_is_used(
    waits: tuple[bool, ...], capacity: tuple[bool, ...], first: int | None
) -> None:
    rules = Rules(slices=tuple(Patience(wait_for_capacity=said) for said in waits))
    pending = Life(S.PENDING)
    ruling = attempt_policy.choose_slice(pending, rules, capacity)
    if first == 0:
        assert ruling == unmoved(pending, Outcome.ECHO)
    elif first is None:
        assert ruling == Ruling(Outcome.MOVE, S.ERROR, False, struct_replace(pending, state=S.ERROR), Reason.NO_BOT)
    else:
        after = struct_replace(pending, slice_index=first)
        assert ruling == Ruling(Outcome.MOVE, S.PENDING, True, after, Reason.NO_BOT)
        assert attempt_policy.choose_slice(after, rules, capacity) == unmoved(after, Outcome.ECHO)


def test_a_slice_that_was_passed_over_is_not_gone_back_to_in_the_same_round() -> None:
    life = Life(S.PENDING, slice_index=1)
    assert attempt_policy.choose_slice(life, Rules(slices=(Patience(), Patience())), (True, True)) == unmoved(
        life, Outcome.ECHO
    )


@pytest.mark.parametrize("capacity", [(), (True,), ANY])
def test_capacity_is_given_for_every_slice(capacity: tuple[bool, ...]) -> None:
    with pytest.raises(ValueError, match=f"for {len(capacity)} slices of 2"):
        attempt_policy.choose_slice(Life(S.PENDING), Rules(slices=(Patience(), Patience())), capacity)


def test_a_task_without_slices_of_its_own_waits_a_day_for_a_bot() -> None:
    assert attempt_policy.choose_slice(Life(S.PENDING), Rules(), (False,)) == unmoved(Life(S.PENDING), Outcome.ECHO)
    assert attempt_policy.expires_at(WAITING, Rules()) == NOW


@pytest.mark.parametrize(
    ("waited_ms", "outcome"),
    [(0, Outcome.ILLEGAL), (9_999, Outcome.ILLEGAL), (10_000, Outcome.MOVE), (10_001, Outcome.MOVE)],
)
def test_a_slice_expires_when_its_time_from_the_first_admission_is_over(waited_ms: int, outcome: Outcome) -> None:
    life = struct_replace(WAITING, waits_since_ms=at(-waited_ms))
    ruling = attempt_policy.expire(life, Rules(slices=(Patience(10_000),)), 0, NOW, (True,))
    assert ruling.outcome is outcome
    assert ruling.target is (S.ERROR if outcome is Outcome.MOVE else S.WAITING)


def test_a_task_that_is_held_for_lack_of_a_bot_waits_and_expires_like_an_admitted_one() -> None:
    held = attempt_policy.held(Life(S.PENDING), Reason.NO_BOT, at(-10_000))
    assert attempt_policy.held(held, Reason.NO_BOT, NOW) == held
    assert attempt_policy.admitted(held, NOW).waits_since_ms == at(-10_000)
    ruling = attempt_policy.expire(held, Rules(slices=(Patience(10_000),)), 0, NOW, (False,))
    assert (ruling.target, ruling.reason) == (S.ERROR, Reason.EXPIRED)


def test_a_lost_task_whose_bots_are_all_gone_expires_after_a_whole_wait() -> None:
    lost = tell(attempt_policy.claimed(struct_replace(WAITING, waits_since_ms=at(-1))), G.LOSE, Rules()).life_after
    held = attempt_policy.held(lost, Reason.NO_BOT, at(1_000))
    assert attempt_policy.expires_at(held, Rules()) == at(1_000 + DAY_MS)


def test_held_for_anything_but_a_bot_a_task_does_not_wait_for_one() -> None:
    waited = attempt_policy.held(Life(S.PENDING), Reason.NO_BOT, NOW)
    assert attempt_policy.held(waited, Reason.MUTEX, at(1)).waits_since_ms is None


def test_a_rerun_past_the_deadline_is_refused() -> None:
    failed = Life(S.FAILED, attempt=1, ended=G.FAIL)
    rules = Rules(deadline_ms=NOW)
    assert attempt_policy.rerun(failed, rules, NOW) == unmoved(failed, Outcome.ILLEGAL)
    assert attempt_policy.rerun(failed, rules, at(-1)).target is S.UNSCHEDULED


def test_a_task_ran_once_an_attempt_began_in_its_round() -> None:
    failed = struct_replace(RUNNING, state=S.FAILED, ended=G.FAIL)
    again = attempt_policy.rerun(failed, Rules(), NOW).life_after
    assert (failed.ran, again.ran, again.attempt) == (True, False, 1)
    assert attempt_policy.claimed(attempt_policy.admitted(struct_replace(again, state=S.PENDING), NOW)).ran


def test_a_chosen_start_is_kept_by_every_round() -> None:
    rules = Rules(not_before_ms=at(500))
    assert attempt_policy.born(rules).not_before_ms == at(500)
    canceled = struct_replace(attempt_policy.born(rules), state=S.CANCELED)
    assert attempt_policy.rerun(canceled, rules, NOW).life_after.not_before_ms == at(500)


def test_a_task_that_does_not_wait_for_a_bot_does_not_expire() -> None:
    life = Life(S.PENDING)
    assert attempt_policy.expires_at(life, Rules()) is None
    assert attempt_policy.expire(life, Rules(), 0, at(99 * DAY_MS), (False,)) == unmoved(life, Outcome.ILLEGAL)


def test_a_second_admission_does_not_restart_the_time_of_a_slice() -> None:
    once = attempt_policy.admitted(Life(S.PENDING), NOW)
    back = struct_replace(once, state=step(once.state, G.UNADMIT).target)
    assert attempt_policy.admitted(back, at(5_000)) == once
    assert once.waits_since_ms == NOW


@each_row(
    ("waits", "capacity", "following"),
    [
        ((False, False, True), NONE, 2),
        ((False, False, True), (False, True, False), 1),
        ((False, True, True), NONE, 1),
        ((True, False, False), NONE, None),
        ((True, False, False), (True, False, False), None),  # it never goes back
        ((False, False, False), (True, False, True), 2),
    ],
)
@each_row("state", [S.WAITING, S.PENDING])
def test_an_expired_slice_is_followed_by_the_next_with_capacity_or_that_waits_for_it(
    state: State, waits: tuple[bool, ...], capacity: tuple[bool, ...], following: int | None
) -> None:
    rules = Rules(slices=tuple(Patience(wait_for_capacity=said) for said in waits))
    life = struct_replace(WAITING, state=state)
    ruling = attempt_policy.expire(life, rules, 0, NOW, capacity)
    if following is None:
        assert ruling == Ruling(Outcome.MOVE, S.ERROR, False, struct_replace(life, state=S.ERROR), Reason.EXPIRED)
    else:
        after = struct_replace(life, state=S.PENDING, slice_index=following, waits_since_ms=None)
        assert ruling == Ruling(Outcome.MOVE, S.PENDING, True, after, Reason.EXPIRED)


def test_the_next_slice_has_its_own_time() -> None:
    rules = Rules(slices=(Patience(DAY_MS), Patience(10_000)))
    second = attempt_policy.admitted(attempt_policy.expire(WAITING, rules, 0, NOW, (True, True)).life_after, at(500))
    assert attempt_policy.expires_at(second, rules) == at(10_500)


def test_an_expiry_of_an_older_slice_is_an_echo_and_of_a_later_one_refused() -> None:
    rules = Rules(slices=(Patience(), Patience(), Patience()))
    life = struct_replace(WAITING, slice_index=1)
    assert attempt_policy.expire(life, rules, 0, NOW, ANY) == unmoved(life, Outcome.ECHO)
    assert attempt_policy.expire(life, rules, 2, NOW, ANY) == unmoved(life, Outcome.ILLEGAL)


@each_row("state", sorted(set(State) - {S.WAITING, S.PENDING}))
def test_only_a_task_that_waits_can_expire(state: State) -> None:
    life = struct_replace(WAITING, state=state)
    expected = Outcome.ECHO if state is S.ERROR else Outcome.ILLEGAL
    assert attempt_policy.expire(life, Rules(), 0, NOW, (True,)) == unmoved(life, expected)


def test_past_the_deadline_there_is_no_next_slice() -> None:
    rules = Rules(slices=(Patience(), Patience()), deadline_ms=NOW)
    ruling = attempt_policy.expire(WAITING, rules, 0, NOW, (True, True))
    assert (ruling.target, ruling.again, ruling.reason) == (S.ERROR, False, Reason.DEADLINE)


def test_a_retry_that_no_bot_takes_ends_as_a_lost_bot() -> None:
    retried = struct_replace(WAITING, attempt=1, ended=G.LOSE, retries_used=1)
    assert attempt_policy.expire(retried, Rules(), 0, NOW, (True,)).reason is Reason.BOT_LOST


@pytest.mark.parametrize(
    "life",
    [
        struct_replace(WAITING, attempt=2, ended=G.FAIL, retries_used=1, reruns_used=1),  # the last attempt just failed
        struct_replace(WAITING, attempt=2, ended=G.LOSE, round=2),  # the loss was in an older round
    ],
)
def test_any_other_wait_that_is_too_long_ends_as_expired(life: Life) -> None:
    assert attempt_policy.expire(life, Rules(), 0, NOW, (True,)).reason is Reason.EXPIRED


def test_a_lost_task_whose_slice_expires_goes_on_with_the_next_slice() -> None:
    retried = struct_replace(WAITING, attempt=1, ended=G.LOSE, retries_used=1)
    ruling = attempt_policy.expire(retried, Rules(slices=(Patience(), Patience())), 0, NOW, (True, True))
    assert (ruling.target, ruling.reason, ruling.life_after.retries_used) == (S.PENDING, Reason.EXPIRED, 1)


def test_canceling_while_a_retry_waits_keeps_the_lost_attempt_lost() -> None:
    pending = tell(RUNNING, G.LOSE, Rules()).life_after
    canceled = struct_replace(pending, state=step(pending.state, G.CANCEL).target)
    assert canceled.state is S.CANCELED
    assert tell(canceled, G.LOSE, Rules()) == unmoved(canceled, Outcome.ECHO)
    assert tell(canceled, G.SUCCEED, Rules()) == unmoved(canceled, Outcome.ILLEGAL)


# A person's rerun.


@pytest.mark.parametrize("state", [S.FAILED, S.ERROR, S.CANCELED])
def test_a_person_opens_a_new_round_with_every_budget_fresh(state: State) -> None:
    spent = Life(state, 7, ended=G.FAIL, round=3, reruns_used=4, retries_used=2, slice_index=1, waits_since_ms=NOW)
    fresh = Life(S.UNSCHEDULED, attempt=7, began_after=7, ended=G.FAIL, round=4)
    ruling = attempt_policy.rerun(struct_replace(spent, not_before_ms=at(9)), Rules(), NOW)
    assert ruling == Ruling(Outcome.MOVE, S.UNSCHEDULED, again=False, life_after=fresh, reason=None)


@pytest.mark.parametrize("state", sorted(set(State) - {S.FAILED, S.ERROR, S.CANCELED}))
def test_a_rerun_of_an_active_or_successful_task_opens_no_round(state: State) -> None:
    life = Life(state, 7, ended=G.FAIL, round=3, reruns_used=4)
    assert attempt_policy.rerun(life, Rules(), NOW) == unmoved(life, step(state, G.RERUN).outcome)


def test_a_failure_of_the_last_round_that_is_delivered_again_burns_nothing_of_the_new_one() -> None:
    failed = tell(RUNNING, G.FAIL, Rules(), exit_code=1).life_after
    fresh = attempt_policy.rerun(failed, Rules(), NOW).life_after
    assert attempt_policy.report(fresh, Rules(reruns=1), 1, G.FAIL, NOW, 1) == unmoved(fresh, Outcome.ECHO)


# Moves that the budget follows.


@each_row("state", sorted(set(State) - {S.WAITING}))
def test_only_a_waiting_task_is_claimed(state: State) -> None:
    with pytest.raises(AssertionError, match="cannot claim"):
        attempt_policy.claimed(Life(state))


@each_row("state", sorted(set(State) - {S.PENDING}))
def test_only_a_pending_task_is_admitted(state: State) -> None:
    with pytest.raises(AssertionError, match="cannot admit"):
        attempt_policy.admitted(Life(state), NOW)


# Leases.


def test_leases_have_the_promised_defaults() -> None:
    assert (fleet.LEASE_MS, fleet.GUARD_MS, fleet.SWEEP_MS) == (60_000, 5_000, 5_000)


@pytest.mark.parametrize(
    ("left_ms", "leased_ms"),
    [(None, 60_000), (60_001, 60_000), (59_999, 60_000), (1, 60_000), (0, None), (-1, None)],
)
def test_a_lease_is_a_full_one_and_none_is_given_past_the_deadline(left_ms: int | None, leased_ms: int | None) -> None:
    until = attempt_policy.lease_until(NOW, 60_000, None if left_ms is None else at(left_ms))
    assert until == (None if leased_ms is None else at(leased_ms))


def test_a_lost_task_is_given_to_another_bot_a_guard_time_after_its_lease() -> None:
    assert attempt_policy.given_again_at(NOW) == at(5_000)


def test_a_silent_bot_is_known_dead_no_sooner_than_what_it_ran_is_lost() -> None:
    until = attempt_policy.lease_until(NOW, fleet.LEASE_MS, None)
    assert until is not None
    assert attempt_policy.given_again_at(until) == NOW + fleet.silence_max_ms(fleet.LEASE_MS)


@pytest.mark.parametrize(
    ("until_ms", "graced_ms"),
    [
        (-90_000, 60_000),  # it ran out while no bot could renew it
        (10_000, 60_000),
        (90_000, 90_000),  # never shortened
    ],
)
def test_after_an_outage_every_lease_gets_one_full_lease_of_grace(until_ms: int, graced_ms: int) -> None:
    assert attempt_policy.with_grace(at(until_ms), NOW) == at(graced_ms)


@pytest.mark.parametrize(
    ("timeout_ms", "deadline_ms", "ends_ms"),
    [(None, None, None), (9_000, None, 9_000), (None, 7_000, 7_000), (9_000, 7_000, 7_000), (1_000, 7_000, 1_000)],
)
def test_what_the_server_runs_itself_ends_just_when_its_time_is_over(
    timeout_ms: int | None, deadline_ms: int | None, ends_ms: int | None
) -> None:
    lease = attempt_policy.own_lease(NOW, timeout_ms, None if deadline_ms is None else at(deadline_ms))
    assert (None if lease is None else attempt_policy.given_again_at(lease)) == (
        None if ends_ms is None else at(ends_ms)
    )


def test_grace_is_as_long_as_the_tasks_own_lease() -> None:
    assert attempt_policy.with_grace(NOW, NOW, lease_ms=7_000) == at(7_000)


# The bounds of rules.


@each_row(
    ("wrong", "fault"),
    [
        (lambda: Rules(reruns=-1), "reruns is -1"),
        (lambda: Rules(reruns=1000), "reruns is 1000"),
        (lambda: Rules(retries=-1), "retries is -1"),
        (lambda: Rules(retries=101), "retries is 101"),
        (lambda: Rules(delay_ms=-1), "delay_ms is -1"),
        (lambda: Rules(factor=0.99), "factor 0.99"),
        (lambda: Rules(factor=10.1), "factor 10.1"),
        (lambda: Rules(factor=float("nan")), "factor nan"),
        (lambda: Rules(factor=float("inf")), "factor inf"),
        (lambda: Rules(slices=()), "0 slices"),
        (lambda: Rules(slices=(Patience(),) * 9), "9 slices"),
        (lambda: Patience(expires_ms=0), "expires_ms is 0"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: Callable[[], object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        wrong()


def test_rules_may_go_to_their_limits() -> None:
    rules = Rules(reruns=999, retries=100, factor=10, slices=(Patience(1),) * 8)
    assert (rules.reruns, rules.retries, len(rules.slices)) == (999, 100, 8)


# Any sequence of deliveries, with duplicates and stale attempts.

rule_sets = st.builds(
    Rules,
    reruns=st.integers(0, 3),
    retries=st.integers(0, 3),
    delay_ms=st.sampled_from([0, 1_000]),
    factor=st.sampled_from([1, 2]),
    exit_codes=st.sampled_from([(), (1,)]),
    slices=st.lists(st.builds(Patience, st.just(1_000), st.booleans()), min_size=1, max_size=3).map(tuple),
    deadline_ms=st.sampled_from([None, at(20_000)]),
)
happenings = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["admit", "claim", "cancel", "rerun", "expire", "overdue", "sleep"]), st.just(0)),
        st.tuples(st.sampled_from([G.FAIL, G.LOSE, G.FAIL, G.LOSE, G.SUCCEED, G.DEADLINE]), st.integers(0, 2)),
    ),
    max_size=60,
)


@settings(max_examples=tries(100))
@given(rule_sets, happenings)
def test_no_sequence_of_reports_overdraws_a_budget(rules: Rules, shown: list[tuple[str | Signal, int]]) -> None:
    world = World(rules)
    for word, back in shown:
        world.happen(word, back)
        world.check()


class World:
    """One task that gets signals in any order; it counts its budgets itself."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.now, self.life = rules, NOW, Life(S.PENDING)
        self.attempts_in_round = 0
        self.ends: dict[int, Signal] = {}  # by attempt: how it ended, once and for all
        self.agains: list[tuple[int, int, Signal]] = []  # (round, attempt, why)
        self.slices_in_round = [0]

    def happen(self, word: str | Signal, back: int) -> None:
        if isinstance(word, Signal):
            self.report(word, self.life.attempt - back)
        else:
            getattr(self, word)()

    def report(self, signal: Signal, attempt: int) -> None:
        before = self.life
        ruling = attempt_policy.report(before, self.rules, attempt, signal, self.now, exit_code=1)
        self.follow(ruling)
        if ruling.outcome is Outcome.MOVE:
            assert attempt not in self.ends, "an attempt ended twice"
            self.ends[attempt] = signal
        if ruling.again:
            self.agains.append((before.round, attempt, signal))

    def follow(self, ruling: Ruling) -> None:
        assert ruling.target is ruling.life_after.state
        if ruling.outcome is not Outcome.MOVE:
            assert ruling.life_after == self.life
            assert not ruling.again
        self.life = ruling.life_after

    def admit(self) -> None:
        if self.life.state is S.PENDING:
            self.life = attempt_policy.admitted(self.life, self.now)

    def claim(self) -> None:
        self.admit()
        if self.life.state is S.WAITING and not attempt_policy.past(self.rules.deadline_ms, self.now):
            self.life = attempt_policy.claimed(self.life)
            self.attempts_in_round += 1

    def cancel(self) -> None:
        self.life = struct_replace(self.life, state=step(self.life.state, G.CANCEL).target)

    def rerun(self) -> None:
        ruling = attempt_policy.rerun(self.life, self.rules, self.now)
        self.follow(ruling)
        if ruling.outcome is Outcome.MOVE:
            self.life = struct_replace(self.life, state=step(self.life.state, G.RELEASE).target)
            self.attempts_in_round, self.slices_in_round = 0, [0]

    def expire(self) -> None:
        capacity = [index % 2 == 0 for index in range(len(self.rules.slices))]
        ruling = attempt_policy.expire(self.life, self.rules, self.life.slice_index, self.now, capacity)
        self.follow(ruling)
        if ruling.again:
            self.slices_in_round.append(self.life.slice_index)

    def overdue(self) -> None:
        ruling = attempt_policy.overdue(self.life, self.rules, self.now)
        if ruling.outcome is Outcome.MOVE and self.life.state in LEASED:
            self.ends[self.life.attempt] = G.DEADLINE
        self.follow(ruling)

    def sleep(self) -> None:
        self.now = Millis(self.now + 1_000)

    def check(self) -> None:
        life, rules = self.life, self.rules
        assert 0 <= life.reruns_used <= rules.reruns
        assert 0 <= life.retries_used <= rules.retries
        assert self.attempts_in_round <= 1 + rules.reruns + rules.retries
        assert len(self.agains) == len(set(self.agains)), "one attempt burned its budget twice"
        this_round = [why for round_, _, why in self.agains if round_ == life.round]
        assert this_round.count(G.FAIL) == life.reruns_used
        assert this_round.count(G.LOSE) == life.retries_used
        assert self.slices_in_round == sorted(set(self.slices_in_round)), "a slice was tried twice"
        assert life.ended is self.ends.get(life.attempt)


def test_the_rules_come_from_the_definition_of_a_task() -> None:
    reruns = Reruns(count=2, delay_ms=500, factor=2.0, exit_codes=(75,))
    ways = (Slice((), {}, Kind.NOOP, 1_000, wait_for_capacity=False), Slice((), {}, Kind.NOOP, 2_000))
    task = Task("t", ways, reruns=reruns, retries=1, deadline=When(60_000, fixed=False), not_before=When(7, fixed=True))
    patience = (Patience(1_000, wait_for_capacity=False), Patience(2_000))
    assert attempt_policy.rules_of(task, NOW) == Rules(2, 500, 2.0, (75,), 1, patience, at(60_000), Millis(7))


def test_a_fence_only_ever_rises_even_past_an_older_copy_of_the_store() -> None:
    assert attempt_policy.fence_after(7, Millis(5)) == 8
    assert attempt_policy.fence_after(7, Millis(500)) == 500


@each_row(
    ("life", "rules", "until", "due"),
    [
        (Life(State.SUCCESSFUL), Rules(deadline_ms=Millis(50)), None, None),
        (Life(State.RUNNING), Rules(deadline_ms=Millis(50)), Millis(40), 40 + fleet.GUARD_MS),
        (Life(State.STOPPING), Rules(), Millis(40), 40 + fleet.GUARD_MS),
        (Life(State.RUNNING), Rules(), None, None),
        (Life(State.UNSCHEDULED), Rules(), None, None),
        (Life(State.BLOCKED), Rules(deadline_ms=Millis(50)), None, 50),
        (Life(State.UNSCHEDULED, not_before_ms=Millis(30)), Rules(), None, None),
        (Life(State.PENDING, not_before_ms=Millis(30)), Rules(deadline_ms=Millis(50)), None, 30),
        (Life(State.PENDING, not_before_ms=Millis(10)), Rules(deadline_ms=Millis(50)), None, 50),
        (Life(State.WAITING, waits_since_ms=Millis(5)), Rules(slices=(Patience(20),)), None, 25),
        (Life(State.WAITING, waits_since_ms=Millis(5)), Rules(slices=(Patience(20),), deadline_ms=Millis(9)), None, 9),
    ],
)
def test_the_due_time_is_the_first_time_at_which_a_timeout_applies(
    life: Life, rules: Rules, until: Millis | None, due: int | None
) -> None:
    assert attempt_policy.due_at(life, rules, until, Millis(20)) == due
