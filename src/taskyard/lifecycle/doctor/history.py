"""What the events of a task or a graph add up to: its past.

A past is folded from events alone, one after the other, by the rules of the core; it never looks at a row that is kept
beside them. What does not follow from the events before it is remembered, and a past with such a tear proves nothing.
Two pasts together tell for which failure of the one the other ran.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import ATTEMPT_SIGNALS, SPARED, Life
from taskyard.core.graph.model import Slice
from taskyard.core.graph.state import Tally, verdict
from taskyard.core.states import ARROWS, ENDED, LEASED, UNSUCCESSFUL, Millis, Reason, Signal, sources
from taskyard.lifecycle.doctor import finding
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.store.connection import Repo
from taskyard.store.repo.doctor import TaskRow, TriedRow
from taskyard.store.repo.events import EventRow

#: How many events are in memory at once.
EVENTS_MAX: Final = 5_000
#: Every move that the machine knows.
_MOVES: Final = frozenset(
    (str(arrow.source), str(arrow.signal), str(end)) for arrow in ARROWS for end in (arrow.target, arrow.again) if end
)
#: Where an attempt that is tried again leads.
_AGAIN: Final = frozenset(str(arrow.again) for arrow in ARROWS if arrow.again)
#: Where a task stands before admission, and where a graph stands that a person ended.
_PENDING: Final = sources(Signal.ADMIT)
_CANCELED: Final = frozenset(str(verdict(Tally(active), canceled=True)) for active in (0, 1))
#: Where a task is before anything happened to it.
BORN: Final = str(Life().state)


@dataclass(slots=True)
class Deed:
    """One attempt as the events tell it."""

    number: int
    bot: str | None
    claimed_ms: int
    round: int
    hops: int  # how often its task had gone on to another slice in this round
    ended_ms: int | None = None
    signal: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class End:
    """One end of a task: for good, or until something happens to it again."""

    number: int  # of the event
    at_ms: int
    round: int
    ran: bool  # it had run in its round
    is_bad: bool
    before: int = 0  # the event of the same task before this one
    until: int | None = None  # and the one after it


@dataclass(slots=True)
class Past:
    """Everything that happened, added up."""

    state: str | None = None
    was: str | None = None
    reason: str | None = None
    moved_ms: int | None = None
    attempt: int = 0
    began_after: int = 0
    ended: str | None = None
    round: int = 1
    reruns_used: int = 0
    retries_used: int = 0
    avoid_bot: str | None = None
    hops: int = 0  # how often it went on to another slice in this round
    released: bool = False  # it has stood before admission,
    admitted: bool = False  # and was let in
    untouched: bool = True  # nobody but its rules has said when it may begin
    put_off: tuple[int, int] | None = None  # since when its rerun has to wait, and after how many others
    pending_ms: int | None = None  # since when its slice can have waited for a bot,
    admitted_ms: int | None = None  # and since when it did at the latest
    canceled_ms: int | None = None
    deeds: dict[int, Deed] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    graphs: Counter[int] = field(default_factory=Counter)  # of which graph its events are said to be
    events: int = 0
    newest: int = 0
    torn: EventRow | None = None  # the first that does not follow from those before it

    def add(self, event: EventRow, first: str | None) -> None:
        """Go on by one event; `first` is where a subject is before any."""
        if event.source != (self.state if self.events else first) or (first is not None and not _legal(event)):
            self.torn = self.torn or event
        hops = event.signal == Signal.EXPIRE and event.target in _AGAIN
        self._time(event, hops)
        self._spend(event, hops)
        self._try(event)
        if event.target in _CANCELED and self.canceled_ms is None:
            self.canceled_ms = event.at_ms
        self._end(event)
        self.was, self.state, self.reason, self.moved_ms = event.source, event.target, event.reason, event.at_ms
        self.graphs[event.graph] += 1
        self.newest, self.events = event.number, self.events + 1

    def is_whole(self, state: str, first: str = BORN) -> bool:
        """Tell whether every event follows from the one before it, and the last has led to `state`."""
        return self.torn is None and (self.state or first) == state

    @property
    def runs(self) -> list[End]:
        """Its ends after it had run."""
        return [end for end in self.ends if end.ran]

    @property
    def failures(self) -> list[End]:
        """Its bad ends."""
        return [end for end in self.ends if end.is_bad]

    def _spend(self, event: EventRow, hops: bool) -> None:
        """Follow its rounds, and what it has used up of its budgets."""
        if event.signal == Signal.RERUN:
            self.round, self.reruns_used, self.retries_used, self.hops = self.round + 1, 0, 0, 0
            self.began_after, self.untouched, self.put_off = self.attempt, True, None
        elif event.signal == Signal.ADMIT:
            self.untouched, self.put_off = False, None
        elif event.target in _AGAIN:
            if event.signal == Signal.FAIL:
                self.put_off = (event.at_ms, self.reruns_used)
            self.reruns_used += event.signal == Signal.FAIL
            self.retries_used += event.signal == Signal.LOSE and event.reason not in SPARED
            self.hops += hops

    def _try(self, event: EventRow) -> None:
        """Follow its attempts."""
        if event.signal == Signal.CLAIM:
            self.attempt, self.ended, self.avoid_bot = event.attempt or 0, None, None
            self.deeds[self.attempt] = Deed(self.attempt, event.bot, event.at_ms, self.round, self.hops)
        elif event.source in LEASED and event.signal in ATTEMPT_SIGNALS:
            self.ended = event.signal
            unbegun = event.signal == Signal.RETURN or event.reason == Reason.RETURNED
            if unbegun and self.attempt == self.began_after + 1:
                self.began_after = self.attempt
            self.avoid_bot = event.bot if event.signal == Signal.LOSE else self.avoid_bot
            deed = self.deeds.get(self.attempt)
            if deed is not None:
                deed.ended_ms, deed.signal, deed.reason = event.at_ms, event.signal, event.reason

    def _end(self, event: EventRow) -> None:
        """Follow its ends."""
        if self.ends and self.ends[-1].until is None:
            self.ends[-1].until = event.number
        if event.target in ENDED:
            ran, is_bad = self.attempt > self.began_after, event.target in UNSUCCESSFUL
            self.ends.append(End(event.number, event.at_ms, self.round, ran, is_bad, self.newest))

    def _time(self, event: EventRow, hops: bool) -> None:
        """Follow since when its slice waits for a bot. A pass may begin that wait earlier, without an event."""
        if hops or event.signal in {Signal.CLAIM, Signal.RERUN}:
            self.pending_ms = self.admitted_ms = None
        if event.target in _PENDING:
            self.released, self.admitted_ms = True, None
            self.pending_ms = event.at_ms if self.pending_ms is None else self.pending_ms
        elif event.signal == Signal.ADMIT:
            self.admitted, self.admitted_ms = True, event.at_ms


def pasts(repo: Repo, ids: Sequence[int], first: str | None) -> dict[int, Past]:
    """Fold what happened to tasks or graphs."""
    found = {id: Past() for id in ids}
    subject, number = -1, 0
    while ids and (page := repo.doctor.events(ids, subject, number, EVENTS_MAX)):
        for event in page:
            found[event.subject].add(event, first)
        subject, number = page[-1].subject, page[-1].number
    return found


def rounds_handled(runs: Sequence[End], failures: Sequence[End]) -> tuple[int | None, ...]:
    """Say for which round of a task its handler last ran, if `runs` were told; of several answers any may be true.

    A run deals with the failure that is there when it ends. But what moves together is told together, so it has not
    dealt with one that came with it; and when it is told late, it has dealt with one that came meanwhile. Neither can
    be seen from the events, unless time passed between the two or the handler did something after the failure.
    """
    answers: tuple[int | None, ...] = (None,)
    for run in runs:
        # One that is there, or the first to come: before the next one is tried again all is told.
        failure = next((one for one in failures if one.until is None or run.number < one.until), None)
        if failure is None or (run.until is not None and run.until < failure.number):
            continue
        was_there = failure.number < run.before or (failure.number < run.number and failure.at_ms != run.at_ms)
        answers = (failure.round,) if was_there else (*answers, failure.round)
    return answers


def _legal(event: EventRow) -> bool:
    return (event.source or "", event.signal or "", event.target) in _MOVES


# What the attempts of a task should be, as its events tell them: who had it, when, on which slice, with which fence.
#
# Two numbers do not stand in the events. On which slice a task is follows from how often it went on, if only one slice
# is left then. And a fence only grows: each is higher than the one before and not below the moment of its claim.
# Nothing here writes.


def recounted_attempts(task: TaskRow, past: Past, tried: Sequence[TriedRow], slices: Sequence[Slice]) -> list[TriedRow]:
    """Give the attempts of a task as they should be; those of which nobody knows stay as they are."""
    fences, on = _fences(task, past, tried), _slices(past, tried, slices)
    return [_wanted(row, past.deeds.get(row.number), fences.get(row.number), on.get(row.number, ())) for row in tried]


def fence_of(task: TaskRow, past: Past, tried: Sequence[TriedRow]) -> int:
    """Say which fence a task should have: that of its latest attempt."""
    return _fences(task, past, tried).get(past.attempt, 0)


def slices_left(past: Past, tried: Sequence[TriedRow], slices: Sequence[Slice]) -> frozenset[int]:
    """Name the slices that a task can be on now."""
    if not slices:
        return frozenset()
    return _slices(past, tried, slices)[0]


def attempt_findings(
    task: TaskRow, past: Past, tried: Sequence[TriedRow], wanted: Sequence[TriedRow]
) -> Iterator[Finding]:
    """Say what is wrong with the attempts of a task. One that is not there can be made up by nobody."""
    for number in sorted(past.deeds.keys() ^ {row.number for row in tried}):
        have, want = (None, "there") if number in past.deeds else ("there", None)
        yield Finding(finding.ATTEMPT, task.id, f"row of {number}", have, want, mendable=False)
    for stored, counted in zip(tried, wanted, strict=True):
        for column, before, after in zip(TriedRow._fields, stored, counted, strict=True):
            if before != after:
                yield Finding(finding.ATTEMPT, task.id, f"{column} of {stored.number}", before, after)


def _wanted(row: TriedRow, deed: Deed | None, fence: int | None, on: Iterable[int]) -> TriedRow:
    if deed is None or fence is None:
        return row
    possible = sorted(on)
    return row._replace(
        bot_id=row.bot_id if deed.bot is None else deed.bot,
        fence=fence,
        round=deed.round,
        slice_index=possible[0] if len(possible) == 1 else row.slice_index,
        claimed_ms=deed.claimed_ms,
        ended_ms=deed.ended_ms,
        signal=deed.signal,
        reason=deed.reason,
        exit_code=None if deed.ended_ms is None else row.exit_code,
    )


# Fences.


def _fences(task: TaskRow, past: Past, tried: Sequence[TriedRow]) -> dict[int, int]:
    """Say which fence each attempt should have. None that a bot was given is ever lowered.

    A higher one than follows is believed as long as it fits: its task may have had a wrong one when it was claimed.
    """
    stored = {row.number: row.fence for row in tried}
    wanted: dict[int, int] = {}
    before = 0
    for deed in past.deeds.values():
        follows = attempt_policy.fence_after(before, Millis(deed.claimed_ms))
        have = stored.get(deed.number)
        if deed.number == past.attempt:
            before = _agreed(follows, have, task.fence)
        else:
            later = max([task.fence, *(one for number, one in stored.items() if number > deed.number)])
            before = have if have is not None and follows <= have < later else follows
        wanted[deed.number] = before
    return wanted


def _agreed(follows: int, attempt: int | None, task: int) -> int:
    """Choose between the fence of the latest attempt and that of its task, which were written together."""
    if attempt is None or attempt == task:
        return max(follows, task)
    return follows if follows in (attempt, task) else max(follows, attempt, task)


# Slices.


def _slices(past: Past, tried: Sequence[TriedRow], slices: Sequence[Slice]) -> dict[int, frozenset[int]]:
    """Name the slices that each attempt can have been on, and under 0 those that the task can be on now."""
    stored = {row.number: row.slice_index for row in tried}
    found: dict[int, frozenset[int]] = {}
    start, now = Deed(0, None, 0, 1, 0), Deed(0, None, 0, past.round, past.hops)
    possible = frozenset({0})
    for before, deed in pairwise([start, *past.deeds.values(), now]):
        if deed.round != before.round:
            possible, hops = frozenset({0}), deed.hops
        else:
            hops = deed.hops - before.hops
        possible = _after(possible, hops, slices)
        on = stored.get(deed.number)
        if on in possible and deed.number:
            possible = frozenset({on})
        found[deed.number] = possible
    return found


def _after(possible: frozenset[int], hops: int, slices: Sequence[Slice]) -> frozenset[int]:
    """Name the slices that a task can be on after it went on so often: it passes over those that wait for nobody."""
    for _ in range(hops):
        possible = frozenset(index for one in possible for index in _next(one, slices))
    return possible


def _next(index: int, slices: Sequence[Slice]) -> Iterator[int]:
    for following in range(index + 1, len(slices)):
        yield following
        if slices[following].wait_for_capacity:
            return
