"""What the attempts of a task should be, as its events tell them: who had it, when, on which slice, with which fence.

Two numbers do not stand in the events. On which slice a task is follows from how often it went on, if only one slice is
left then. And a fence only grows: each is higher than the one before and not below the moment of its claim. Nothing
here writes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from taskyard.core import budget
from taskyard.core.graph.document import Slice
from taskyard.core.words import Millis
from taskyard.lifecycle import finding
from taskyard.lifecycle.finding import Finding
from taskyard.lifecycle.past import Deed, Past
from taskyard.store.verbs.care import TaskRow, TriedRow


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
        follows = budget.fence_after(before, Millis(deed.claimed_ms))
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
