"""Whether a task is tried again, and how long a bot may hold it.

Three budgets are kept apart. A task that *fails* costs a rerun, a task that is *lost* with its bot costs a retry, and
a slice that *waits too long* costs a slice. All three are fresh in each round, that is, whenever a person reruns the
task. Every word about an attempt is matched to that attempt before it can cost anything: what is told twice costs
once, and what is told about an older attempt costs nothing.

The machine decides where a task goes; here is only decided whether its budget lasts. Nothing here stores a life: each
ruling hands back the life as it is afterwards.
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
#: The words of every life, by names of their own: a word is slow to get at through its class.
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
    """What the submitter allows."""

    reruns: int = 0
    delay_ms: int = 0  # before the first rerun of a round
    factor: float = 1  # by which each further delay is longer
    exit_codes: tuple[int, ...] = ()  # rerun after these only; none: after any failure
    retries: int = RETRIES
    slices: tuple[Patience, ...] = (Patience(),)
    deadline_ms: Millis | None = None
    not_before_ms: Millis | None = None

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
    """How far a task has come."""

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
    """What follows from a word about a task. Only a move changes its life."""

    outcome: Outcome
    target: State
    again: bool
    life_after: Life
    reason: Reason | None = None  # why it moved; None leaves the word to who knows it (timed_out, signaled, denied)


def rules_of(task: Task, submitted: Millis) -> Rules:
    """Take the rules out of a task's definition."""
    return Rules(
        reruns=task.reruns.count,
        delay_ms=task.reruns.delay_ms,
        factor=task.reruns.factor,
        exit_codes=task.reruns.exit_codes,
        retries=task.retries,
        slices=tuple(Patience(one.expires_ms, one.wait_for_capacity) for one in task.slices),
        deadline_ms=task.deadline.moment(submitted) if task.deadline else None,
        not_before_ms=task.not_before.moment(submitted) if task.not_before else None,
    )


#: What a bot, or the system in its place, can say about an attempt.
WORDS_ON_AN_ATTEMPT: Final = frozenset({Signal.SUCCEED, Signal.FAIL, Signal.LOSE, Signal.RETURN, Signal.DEADLINE})
#: Attempts that were lost for these reasons cost no retry, but only so many of them in a round: a task that kills its
#: bot as soon as it begins looks like one that never began.
SPARED: Final = frozenset({Reason.RETURNED, Reason.UNRENEWED})
SPARED_MAX: Final = 2


def report(life: Life, rules: Rules, attempt: int, signal: Signal, now: Millis, exit_code: int | None = None) -> Ruling:
    """Rule on a word about an attempt: a bot's own, or the system's when the bot is silent."""
    if signal not in WORDS_ON_AN_ATTEMPT:
        raise ValueError(f"{signal} is no word about an attempt")
    if attempt != life.attempt or life.state not in LEASED:
        return _told_late(life, attempt, signal)
    reason = _why_ended(life, rules, signal, now, exit_code)
    if signal is _SUCCEED:
        target = _moved(life, signal)
        return Ruling(_MOVE, target, False, _ended(life, signal, target), reason)
    ended = _ended(life, signal, life.state)
    if signal is Signal.RETURN:
        return _rule(life, signal, reason, _unbegun(ended))
    return _rule(life, signal, reason, ended, _again(ended, rules, signal, now, exit_code))


def spare(life: Life, rules: Rules, reason: Reason, now: Millis) -> Ruling:
    """Rule on an attempt that is lost and costs no retry, for a reason in `SPARED`."""
    if life.state is not _RUNNING or past(rules.deadline_ms, now):
        return report(life, rules, life.attempt, Signal.LOSE, now)
    ended = _ended(life, Signal.LOSE, life.state)
    lost = _unbegun(ended) if reason is Reason.RETURNED else ended
    return _rule(life, Signal.LOSE, reason, lost, again=lost)


def overdue(life: Life, rules: Rules, now: Millis) -> Ruling:
    """Rule on a task that no bot has, and whose deadline may have passed."""
    if life.state in LEASED or life.state in ENDED or not past(rules.deadline_ms, now):
        return _unmoved(life, Outcome.ILLEGAL)
    return _rule(life, Signal.DEADLINE, Reason.DEADLINE, life)


def expire(life: Life, rules: Rules, slice_index: int, now: Millis, capacity: Sequence[bool]) -> Ruling:
    """Rule on a slice that may have waited too long; `capacity` tells for each slice whether a bot was seen."""
    if slice_index < life.slice_index:
        return _unmoved(life, Outcome.ECHO)
    due_ms = expires_at(life, rules)
    if slice_index > life.slice_index or due_ms is None or now < due_ms:
        return _unmoved(life, Outcome.ILLEGAL)
    following = None if past(rules.deadline_ms, now) else _next_slice(rules, capacity, slice_index + 1)
    reason = _why_expired(life, rules, now) if following is None else Reason.EXPIRED
    return _rule(life, Signal.EXPIRE, reason, life, again=_on_slice(life, following))


def expires_at(life: Life, rules: Rules) -> Millis | None:
    """Say when the slice of a task has waited too long for a bot; None while it does not wait for one."""
    if life.waits_since_ms is None:
        return None
    return Millis(life.waits_since_ms + rules.slices[life.slice_index].expires_ms)


def choose_slice(life: Life, rules: Rules, capacity: Sequence[bool]) -> Ruling:
    """Rule on a task that was just released: which slice it begins with, or that no bot could serve any."""
    index = _next_slice(rules, capacity, life.slice_index)
    if index == life.slice_index:
        return _unmoved(life, Outcome.ECHO)
    return _rule(life, Signal.EXPIRE, Reason.NO_BOT, life, again=_on_slice(life, index))


def born(rules: Rules) -> Life:
    """Give the life of a new task."""
    return Life(not_before_ms=rules.not_before_ms)


def rerun(life: Life, rules: Rules, now: Millis) -> Ruling:
    """Rule on a person's wish to try a task again: a new round, with every budget fresh; not past its deadline."""
    if past(rules.deadline_ms, now):
        return _unmoved(life, Outcome.ILLEGAL)
    fresh = struct_replace(
        born(rules), round=life.round + 1, attempt=life.attempt, began_after=life.attempt, ended=life.ended
    )
    return _rule(life, Signal.RERUN, None, fresh)


def admitted(life: Life, now: Millis) -> Life:
    """Give the life of a task that is let in: from now on it waits for a bot, if it did not already."""
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
    """Give the life of a task that stays pending. Held for want of a bot, it waits for one as if it had been let in.

    That wait goes on when it is let in or sent back, else a slice whose bots come and go would never expire; it ends
    when the task is held for anything else.
    """
    if reason is not Reason.NO_BOT:
        return struct_replace(life, waits_since_ms=None)
    return life if life.waits_since_ms is not None else struct_replace(life, waits_since_ms=now)


def claimed(life: Life) -> Life:
    """Give the life of a task that a bot takes: its next attempt begins."""
    # Its wait is over: should it be tried again, it waits anew. A long attempt does not use up the patience of a slice.
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


def past(deadline_ms: Millis | None, now: Millis) -> bool:
    """Tell whether a deadline has passed; at the deadline itself it has."""
    return deadline_ms is not None and now >= deadline_ms


def lease_over(life: Life, rules: Rules, now: Millis, spared: Reason | None = None) -> tuple[Signal, Ruling]:
    """Rule on an attempt whose lease is over, when no process of it can live any more.

    Its bot was lost, which costs a retry unless `spared` says why not; or ended it at its deadline and could not say
    so.
    """
    if past(rules.deadline_ms, now):
        return Signal.DEADLINE, report(life, rules, life.attempt, Signal.DEADLINE, now)
    if spared is not None:
        return Signal.LOSE, spare(life, rules, spared, now)
    return Signal.LOSE, report(life, rules, life.attempt, Signal.LOSE, now)


def lease_until(now: Millis, lease_ms: int, deadline_ms: Millis | None) -> Millis | None:
    """Say until when a task may be leased or renewed now; None when its deadline has passed.

    A lease is a full one however near the deadline is: the bot ends the attempt there, and has the rest to say so.
    """
    return None if past(deadline_ms, now) else Millis(now + lease_ms)


def lapsed(until: Millis, now: Millis) -> bool:
    """Tell whether a lease is over. Ask about the latest one: a renewal an instant before makes it good."""
    return now >= until


def given_again_at(until: Millis) -> Millis:
    """Say from when on a lapsed lease counts as lost and its task may be given to another bot."""
    return Millis(until + fleet.GUARD_MS)


def own_lease(now: Millis, timeout_ms: int | None, deadline_ms: Millis | None) -> Millis | None:
    """Give the lease of what the server runs itself: given again just when its time is over; None is for ever."""
    ends = _earlier(deadline_ms, None if timeout_ms is None else Millis(now + timeout_ms))
    return None if ends is None else Millis(ends - fleet.GUARD_MS)


def with_grace(until: Millis, now: Millis, lease_ms: int = fleet.LEASE_MS) -> Millis:
    """Lengthen a lease after an outage of the server to a full one from now: its bot could say nothing.

    Past its deadline, too: nothing of it runs any more, but how it ended before may be waiting to be told.
    """
    return max(until, Millis(now + lease_ms))


def fence_after(fence: int, now: Millis) -> int:
    """Number the next lease of a task: higher than the one before, even if the store was put back to an older copy."""
    return max(fence + 1, now)


def due_at(life: Life, rules: Rules, until: Millis | None, now: Millis) -> Millis | None:
    """Say when the clock next has something to say about a task; `until` is the end of its lease."""
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
    """Say how long the next rerun waits: the delay, `factor` times longer for each rerun before, at most a day."""
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
    """Give the life of a task whose latest attempt did not begin: the first of its round does not count as one."""
    return struct_replace(life, began_after=life.attempt) if life.attempt == life.began_after + 1 else life


def _told_late(life: Life, attempt: int, signal: Signal) -> Ruling:
    # The same word again is welcome. Another word about an ended attempt, or any about an older one, is refused.
    told_before = attempt == life.attempt and signal is life.ended
    return _unmoved(life, Outcome.ECHO if told_before else Outcome.ILLEGAL)


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
    # A rerun that could only begin past the deadline would turn the task's own verdict into ours.
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
        raise ValueError(f"capacity is told for {len(capacity)} slices of {len(rules.slices)}")
    serving = (
        index for index in range(start, len(capacity)) if capacity[index] or rules.slices[index].wait_for_capacity
    )
    return next(serving, None)


def _on_slice(life: Life, index: int | None) -> Life | None:
    return None if index is None else struct_replace(life, slice_index=index, waits_since_ms=None)


def _why_expired(life: Life, rules: Rules, now: Millis) -> Reason:
    if past(rules.deadline_ms, now):
        return Reason.DEADLINE
    # Nobody took the retry of a lost attempt: the loss is what there is to tell, not the waiting.
    retried = life.retries_used > 0 and life.ended is Signal.LOSE
    return Reason.BOT_LOST if retried else Reason.EXPIRED


def _rule(life: Life, signal: Signal, reason: Reason | None, moved: Life, again: Life | None = None) -> Ruling:
    answer = step(life.state, signal, again is not None)
    if answer.outcome is not Outcome.MOVE:
        return _unmoved(life, answer.outcome)
    # The machine has the last word: a stopping task is not tried again, whatever its budget.
    after = again if again is not None and answer.target is State.PENDING else moved
    return Ruling(Outcome.MOVE, answer.target, after is again, after.at(answer.target), reason)


def _unmoved(life: Life, outcome: Outcome) -> Ruling:
    return Ruling(outcome, life.state, False, life)


def _moved(life: Life, signal: Signal) -> State:
    answer = step(life.state, signal)
    assert answer.outcome is _MOVE, f"cannot {signal} a task that is {life.state}"
    return answer.target
