"""Whether a task is tried again, and how long a bot may hold it.

There are three separate budgets. A *failed* attempt costs a rerun, an attempt *lost* with its bot costs a retry, and a
slice that *waits too long* costs a slice. All three start anew in each round, that is, whenever a person reruns the
task. A report is matched to its attempt before it can cost anything: a repeated report costs nothing more, and a report
about an older attempt costs nothing.

The state machine decides where a task goes; this module only decides whether a budget lasts. It stores nothing: each
ruling contains the life of the task afterwards.
"""

from collections.abc import Sequence
from math import log
from typing import Final

from taskyard.core import fleet
from taskyard.core.graph.model import (
    EXPIRES_MS,
    RERUN_DELAY_MAX_MS,
    RERUN_FACTOR_MAX,
    RERUNS_MAX,
    RETRIES,
    RETRIES_MAX,
    SLICES_MAX,
    Task,
)
from taskyard.core.states import ENDED, LEASED, Millis, Outcome, Reason, Signal, State, step
from taskyard.core.structs import struct_replace, value

#: Beyond this growth, as a logarithm, any delay of a millisecond or more has reached the longest.
_GROWTH_MAX: Final = log(RERUN_DELAY_MAX_MS) + 1
#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
_ADMIT: Final = Signal.ADMIT
_CLAIM: Final = Signal.CLAIM
_SUCCEED: Final = Signal.SUCCEED
_RUNNING: Final = State.RUNNING
_DONE: Final = Reason.DONE
_MOVE: Final = Outcome.MOVE


@value
class Patience:
    """How long a slice may wait for a bot, and whether it waits for one that is not there yet."""

    expires_ms: int = EXPIRES_MS
    wait_for_capacity: bool = True

    def __post_init__(self) -> None:
        if self.expires_ms < 1:
            raise ValueError(f"expires_ms is {self.expires_ms}: a slice waits for 1 ms at least")


@value
class Rules:
    """The limits that the submitter set for one task."""

    reruns: int = 0
    delay_ms: int = 0  # before the first rerun of a round
    factor: float = 1  # by which each further delay is longer
    exit_codes: tuple[int, ...] = ()  # rerun after these only; none: after any failure
    retries: int = RETRIES
    slices: tuple[Patience, ...] = (Patience(),)
    deadline_ms: Millis | None = None
    not_before_ms: Millis | None = None
    idempotent: bool = False  # a result of the same work may be reused

    def __post_init__(self) -> None:
        if not 0 <= self.reruns <= RERUNS_MAX:
            raise ValueError(f"reruns is {self.reruns}: it can be 0 to {RERUNS_MAX}")
        if not 0 <= self.retries <= RETRIES_MAX:
            raise ValueError(f"retries is {self.retries}: it can be 0 to {RETRIES_MAX}")
        if self.delay_ms < 0 or not 1 <= self.factor <= RERUN_FACTOR_MAX:
            raise ValueError(
                f"delay_ms is {self.delay_ms} and factor {self.factor}: 0 or more, and 1 to {RERUN_FACTOR_MAX}"
            )
        if not 1 <= len(self.slices) <= SLICES_MAX:
            raise ValueError(f"there are {len(self.slices)} slices: a task has 1 to {SLICES_MAX}")


@value
class Life:
    """Where a task stands: its state, its attempts and what it has used of its budgets."""

    state: State = State.UNSCHEDULED
    attempt: int = 0  # the latest one; counted over all rounds, so a number never means two attempts
    began_after: int = 0  # the latest attempt before this round, or before the first of it that began
    ended: Signal | None = None  # how the latest attempt ended
    round: int = 1
    reruns_used: int = 0
    retries_used: int = 0
    slice_index: int = 0
    waits_since_ms: Millis | None = None  # since when its slice waits for a bot
    not_before_ms: Millis | None = None

    def at(self, state: State) -> "Life":
        """The same life in another state."""
        return Life(
            state,
            self.attempt,
            self.began_after,
            self.ended,
            self.round,
            self.reruns_used,
            self.retries_used,
            self.slice_index,
            self.waits_since_ms,
            self.not_before_ms,
        )

    @property
    def ran(self) -> bool:
        """Whether an attempt began in this round."""
        return self.attempt > self.began_after


@value
class Ruling:
    """The result of a signal for one task. Only a move changes its life."""

    outcome: Outcome
    target: State
    again: bool
    life_after: Life
    reason: Reason | None = None  # why it moved; None if the sender knows better (timed_out, signaled, denied)


def rules_of(task: Task, submitted: Millis) -> Rules:
    """Read the rules from a task's definition."""
    return Rules(
        reruns=task.reruns.count,
        delay_ms=task.reruns.delay_ms,
        factor=task.reruns.factor,
        exit_codes=task.reruns.exit_codes,
        retries=task.retries,
        slices=tuple(Patience(one.expires_ms, one.wait_for_capacity) for one in task.slices),
        deadline_ms=task.deadline.moment(submitted) if task.deadline else None,
        not_before_ms=task.not_before.moment(submitted) if task.not_before else None,
        idempotent=task.idempotent,
    )


#: The signals that a bot, or the system in its place, can send about an attempt.
ATTEMPT_SIGNALS: Final = frozenset({Signal.SUCCEED, Signal.FAIL, Signal.LOSE, Signal.RETURN, Signal.DEADLINE})
#: Attempts that were lost for these reasons cost no retry, but only so many of them in a round: a task that kills its
#: bot as soon as it begins looks like one that never began.
SPARED: Final = frozenset({Reason.RETURNED, Reason.UNRENEWED})
SPARED_MAX: Final = 2
#: A task that was lost with so many different bots in a round is taken for what loses them, however many retries are
#: left: it would go on through the whole fleet.
POISON_BOTS: Final = 5


def report(life: Life, rules: Rules, attempt: int, signal: Signal, now: Millis, exit_code: int | None = None) -> Ruling:
    """Decide what a signal about an attempt does; it comes from the bot, or from the system when the bot is silent."""
    if signal not in ATTEMPT_SIGNALS:
        raise ValueError(f"{signal} is no signal about an attempt")
    if attempt != life.attempt or life.state not in LEASED:
        return _late_report(life, attempt, signal)
    reason = _why_ended(life, rules, signal, now, exit_code)
    if signal is _SUCCEED:
        target = _moved(life, signal)
        return Ruling(_MOVE, target, False, _ended(life, signal, target), reason)
    ended = _ended(life, signal, life.state)
    if signal is Signal.RETURN:
        return _rule(life, signal, reason, _unbegun(ended))
    return _rule(life, signal, reason, ended, _again(ended, rules, signal, now, exit_code))


def spare(life: Life, rules: Rules, reason: Reason, now: Millis) -> Ruling:
    """Decide about a lost attempt that costs no retry, for a reason in `SPARED`."""
    if life.state is not _RUNNING or past(rules.deadline_ms, now):
        return report(life, rules, life.attempt, Signal.LOSE, now)
    ended = _ended(life, Signal.LOSE, life.state)
    lost = _unbegun(ended) if reason is Reason.RETURNED else ended
    return _rule(life, Signal.LOSE, reason, lost, again=lost)


def poisoned(life: Life, rules: Rules, now: Millis) -> Ruling:
    """Decide about a lost attempt of a task that has lost so many bots that it is not tried again."""
    if life.state is not _RUNNING or past(rules.deadline_ms, now):
        return report(life, rules, life.attempt, Signal.LOSE, now)
    return _rule(life, Signal.LOSE, Reason.POISON, _ended(life, Signal.LOSE, life.state))


def unrunnable(life: Life, rules: Rules, now: Millis) -> Ruling:
    """Decide about an attempt for which something is missing that no other bot has: it is not tried again."""
    if life.state is not State.RUNNING or past(rules.deadline_ms, now):
        return report(life, rules, life.attempt, Signal.LOSE, now)
    return _rule(life, Signal.LOSE, Reason.MISSING, _ended(life, Signal.LOSE, life.state))


def overdue(life: Life, rules: Rules, now: Millis) -> Ruling:
    """Decide about a task that no bot has and whose deadline may have passed."""
    if life.state in LEASED or life.state in ENDED or not past(rules.deadline_ms, now):
        return _unmoved(life, Outcome.ILLEGAL)
    return _rule(life, Signal.DEADLINE, Reason.DEADLINE, life)


def expire(life: Life, rules: Rules, slice_index: int, now: Millis, capacity: Sequence[bool]) -> Ruling:
    """Decide about a slice that may have waited too long; `capacity` says for each slice whether a live bot matches."""
    if slice_index < life.slice_index:
        return _unmoved(life, Outcome.ECHO)
    due_ms = expires_at(life, rules)
    if slice_index > life.slice_index or due_ms is None or now < due_ms:
        return _unmoved(life, Outcome.ILLEGAL)
    following = None if past(rules.deadline_ms, now) else _next_slice(rules, capacity, slice_index + 1)
    reason = why_expired(life, rules, now) if following is None else Reason.EXPIRED
    return _rule(life, Signal.EXPIRE, reason, life, again=_on_slice(life, following))


def expires_at(life: Life, rules: Rules) -> Millis | None:
    """Return when the current slice expires; None while it does not wait for a bot."""
    if life.waits_since_ms is None:
        return None
    return Millis(life.waits_since_ms + rules.slices[life.slice_index].expires_ms)


def choose_slice(life: Life, rules: Rules, capacity: Sequence[bool]) -> Ruling:
    """Decide with which slice a released task begins, or that no bot can serve any of them."""
    index = _next_slice(rules, capacity, life.slice_index)
    if index == life.slice_index:
        return _unmoved(life, Outcome.ECHO)
    return _rule(life, Signal.EXPIRE, Reason.NO_BOT, life, again=_on_slice(life, index))


def born(rules: Rules) -> Life:
    """Return the life of a new task."""
    return Life(not_before_ms=rules.not_before_ms)


def rerun(life: Life, rules: Rules, now: Millis) -> Ruling:
    """Decide about a rerun by a person: a new round with fresh budgets; illegal past the deadline."""
    if past(rules.deadline_ms, now):
        return _unmoved(life, Outcome.ILLEGAL)
    fresh = struct_replace(
        born(rules), round=life.round + 1, attempt=life.attempt, began_after=life.attempt, ended=life.ended
    )
    return _rule(life, Signal.RERUN, None, fresh)


def admitted(life: Life, now: Millis) -> Life:
    """Return the life of an admitted task: its wait for a bot begins now, unless it began before."""
    return Life(
        _moved(life, _ADMIT),
        life.attempt,
        life.began_after,
        life.ended,
        life.round,
        life.reruns_used,
        life.retries_used,
        life.slice_index,
        now if life.waits_since_ms is None else life.waits_since_ms,
        None,
    )


def held(life: Life, reason: Reason, now: Millis) -> Life:
    """Return the life of a task that stays pending. If no bot matches, its slice waits as if the task were admitted.

    That wait continues when the task is admitted or sent back: else a slice whose bots come and go would never expire.
    It ends when the task is held for any other reason.
    """
    if reason is not Reason.NO_BOT:
        return struct_replace(life, waits_since_ms=None)
    return life if life.waits_since_ms is not None else struct_replace(life, waits_since_ms=now)


def claimed(life: Life) -> Life:
    """Return the life of a task that a bot takes: its next attempt begins."""
    # The wait is over; a further attempt waits anew. So a long attempt does not use up the expiry of its slice.
    return Life(
        _moved(life, _CLAIM),
        life.attempt + 1,
        life.began_after,
        None,
        life.round,
        life.reruns_used,
        life.retries_used,
        life.slice_index,
        None,
        life.not_before_ms,
    )


def reused(life: Life) -> Life:
    """Give the life of a task that reuses a result: that counts as its attempt 0, whichever it had before."""
    state = _moved(life, Signal.REUSE)
    return struct_replace(life, state=state, attempt=0, began_after=0, ended=None, waits_since_ms=None)


def past(deadline_ms: Millis | None, now: Millis) -> bool:
    """Whether a deadline has passed; at the deadline itself it has."""
    return deadline_ms is not None and now >= deadline_ms


def lease_over(
    life: Life, rules: Rules, now: Millis, spared: Reason | None = None, *, poison: bool = False
) -> tuple[Signal, Ruling]:
    """Decide about an attempt whose lease is over, when no process of it can live any more.

    Its bot was lost, which costs a retry unless `spared` is given, and allows none if it is `poison`; or it ended the
    attempt at the deadline and could not report that.
    """
    if past(rules.deadline_ms, now):
        return Signal.DEADLINE, report(life, rules, life.attempt, Signal.DEADLINE, now)
    if spared is not None:
        return Signal.LOSE, spare(life, rules, spared, now)
    if poison:
        return Signal.LOSE, poisoned(life, rules, now)
    return Signal.LOSE, report(life, rules, life.attempt, Signal.LOSE, now)


def lease_until(now: Millis, lease_ms: int, deadline_ms: Millis | None) -> Millis | None:
    """Return until when a task may be leased or renewed now; None when its deadline has passed.

    A lease has its full length however near the deadline is: the bot ends the attempt there and needs time to report.
    """
    return None if past(deadline_ms, now) else Millis(now + lease_ms)


def given_again_at(until: Millis) -> Millis:
    """Return from when on an expired lease counts as lost and its task may be given to another bot."""
    return Millis(until + fleet.GUARD_MS)


def own_lease(now: Millis, timeout_ms: int | None, deadline_ms: Millis | None) -> Millis | None:
    """Return the end of the lease of a task that the server runs itself; None means no end."""
    ends = _earlier(deadline_ms, None if timeout_ms is None else Millis(now + timeout_ms))
    return None if ends is None else Millis(ends - fleet.GUARD_MS)


def with_grace(until: Millis, now: Millis, lease_ms: int = fleet.LEASE_MS) -> Millis:
    """Extend a lease to its full length after an outage of the server, during which its bot could not renew it.

    Past the deadline, too: nothing of the attempt runs any more, but the report of its end may be waiting in the bot.
    """
    return max(until, Millis(now + lease_ms))


def fence_after(fence: int, now: Millis) -> int:
    """Number the next lease of a task: higher than the one before, even if the store was put back to an older copy."""
    return max(fence + 1, now)


def due_at(life: Life, rules: Rules, until: Millis | None, now: Millis) -> Millis | None:
    """Return when the next timeout of a task is due; `until` is the end of its lease."""
    state = life.state
    if state in ENDED:
        return None
    if state in LEASED:
        return None if until is None else given_again_at(until)
    due = rules.deadline_ms
    if life.waits_since_ms is not None:
        due = _earlier(due, expires_at(life, rules))
    begins = life.not_before_ms
    if begins is not None and begins > now and state is State.PENDING:
        due = _earlier(due, begins)
    return due


def _earlier(one: Millis | None, other: Millis | None) -> Millis | None:
    return other if one is None else one if other is None else min(one, other)


def back_off_ms(rules: Rules, reruns_used: int) -> int:
    """Return how long the next rerun waits: the delay, `factor` times longer for each rerun before, at most a day."""
    if rules.delay_ms and reruns_used * log(rules.factor) > _GROWTH_MAX:
        return RERUN_DELAY_MAX_MS
    # Whole numbers only, rounded to the nearest: no float overflows, and 100 ms times 1.15 are 115.
    numerator, denominator = rules.factor.as_integer_ratio()
    top: int = rules.delay_ms * numerator**reruns_used
    bottom: int = denominator**reruns_used
    return min((2 * top + bottom) // (2 * bottom), RERUN_DELAY_MAX_MS)


def _ended(life: Life, signal: Signal, state: State) -> Life:
    return Life(
        state, life.attempt, life.began_after, signal, life.round, life.reruns_used, life.retries_used,
        life.slice_index, life.waits_since_ms, life.not_before_ms,
    )  # fmt: skip


def _unbegun(life: Life) -> Life:
    """Return the life of a task whose latest attempt did not begin: the first of its round does not count as one."""
    return struct_replace(life, began_after=life.attempt) if life.attempt == life.began_after + 1 else life


def _late_report(life: Life, attempt: int, signal: Signal) -> Ruling:
    # A repeat is an echo. Another signal about an ended attempt, or any about an older one, is illegal.
    repeated = attempt == life.attempt and signal is life.ended
    return _unmoved(life, Outcome.ECHO if repeated else Outcome.ILLEGAL)


def _why_ended(life: Life, rules: Rules, signal: Signal, now: Millis, exit_code: int | None) -> Reason | None:
    if life.state is not _RUNNING:
        return Reason.ASKED
    if signal is _SUCCEED:
        return _DONE
    if signal is Signal.FAIL:
        return None if exit_code is None else Reason.EXIT_CODE
    if signal is Signal.LOSE:
        return Reason.DEADLINE if past(rules.deadline_ms, now) else Reason.BOT_LOST
    return Reason.RETURNED if signal is Signal.RETURN else Reason.DEADLINE


def _again(life: Life, rules: Rules, signal: Signal, now: Millis, exit_code: int | None) -> Life | None:
    if signal is Signal.FAIL:
        return _after_failure(life, rules, now, exit_code)
    return _after_loss(life, rules, now) if signal is Signal.LOSE else None


def _after_failure(life: Life, rules: Rules, now: Millis, exit_code: int | None) -> Life | None:
    if life.reruns_used >= rules.reruns or not _may_rerun(rules, exit_code):
        return None
    delay_ms = back_off_ms(rules, life.reruns_used)
    begin_ms = Millis(now + delay_ms)
    # A rerun that could only begin past the deadline would replace the failure by `error: deadline`.
    if past(rules.deadline_ms, begin_ms):
        return None
    return struct_replace(life, reruns_used=life.reruns_used + 1, not_before_ms=begin_ms if delay_ms else None)


def _may_rerun(rules: Rules, exit_code: int | None) -> bool:
    return not rules.exit_codes or exit_code in rules.exit_codes


def _after_loss(life: Life, rules: Rules, now: Millis) -> Life | None:
    if life.retries_used >= rules.retries or past(rules.deadline_ms, now):
        return None
    return struct_replace(life, retries_used=life.retries_used + 1)


def _next_slice(rules: Rules, capacity: Sequence[bool], start: int) -> int | None:
    if len(capacity) != len(rules.slices):
        raise ValueError(f"capacity is given for {len(capacity)} slices of {len(rules.slices)}")
    serving = (
        index for index in range(start, len(capacity)) if capacity[index] or rules.slices[index].wait_for_capacity
    )
    return next(serving, None)


def _on_slice(life: Life, index: int | None) -> Life | None:
    return None if index is None else struct_replace(life, slice_index=index, waits_since_ms=None)


def why_expired(life: Life, rules: Rules, now: Millis) -> Reason:
    """Say why a task ends that has no slice left after it waited for a bot."""
    if past(rules.deadline_ms, now):
        return Reason.DEADLINE
    # No bot took the retry of a lost attempt: report the loss, not the wait.
    retried = life.retries_used > 0 and life.ended is Signal.LOSE
    return Reason.BOT_LOST if retried else Reason.EXPIRED


def _rule(life: Life, signal: Signal, reason: Reason | None, moved: Life, again: Life | None = None) -> Ruling:
    answer = step(life.state, signal, again is not None)
    if answer.outcome is not Outcome.MOVE:
        return _unmoved(life, answer.outcome)
    # A stopping task is not tried again, whatever its budget: the machine has no such arrow.
    after = again if again is not None and answer.target is State.PENDING else moved
    return Ruling(Outcome.MOVE, answer.target, after is again, after.at(answer.target), reason)


def _unmoved(life: Life, outcome: Outcome) -> Ruling:
    return Ruling(outcome, life.state, False, life)


def _moved(life: Life, signal: Signal) -> State:
    answer = step(life.state, signal)
    assert answer.outcome is _MOVE, f"cannot {signal} a task that is {life.state}"
    return answer.target
