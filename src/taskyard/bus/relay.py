"""The relay numbers events and puts them into the stream that followers read, in the order of each graph.

Commits of different graphs have no order, and an event may become visible after a later one. So followers do not read
the event log: the relay reads what is not published yet, gives it the next numbers and marks it as published, all in
one transaction, while it has locked the row of the stream. The numbers have no gaps and are visible in order, and an
event has one number for ever. Any server may do that: one that dies or is frozen loses the lock with its connection,
and its transaction has never been.

Events are numbered only while somebody wants them. When the first follower comes, older events are passed over.

A target, such as a message broker, wants events for as long as it is there. Its position is one number of the stream:
it reads what comes after it, delivers that in order and advances. What a target has not got is kept, however much.
"""

from collections.abc import Sequence
from typing import Final

from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace, value
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow, OutboxRow, StreamState

#: How many rows of events one transaction numbers: some 20 ms.
PAGE_MAX: Final = 500
#: How many events followers can go back: some minutes at the highest load.
KEPT_MAX: Final = 100_000
#: How long events are numbered after the last request for them, so that a follower can come back.
WANTED_MS: Final = 15 * 60 * 1_000
#: Transactions that began before the first follower came may still be under way for this long.
MARGIN_MS: Final = 10_000


@value
class StreamPage:
    """Some events with their numbers, and where the next page begins."""

    events: list[tuple[int, EventRow]]
    after: int
    reset: bool  # what followed the number that was asked for is not kept any more; these follow `gone`
    gone: int


@value
class Backlog:
    """What a target has not got yet."""

    target: str
    events: int
    age_ms: int  # of the oldest one


def want_events(repo: Repo, now: Millis) -> int:
    """Have events numbered for some time from now on; return the number of the newest one."""
    state = _begin_stretch(repo, now)
    repo.stream.write(struct_replace(state, wanted_until_ms=now + WANTED_MS))
    return state.last


def add_target(repo: Repo, name: str, now: Millis) -> None:
    """Deliver all events from now on to a target; one that is there already keeps its position."""
    state = _begin_stretch(repo, now)
    repo.stream.write(state)
    repo.targets.add(name, state.last, now)


def _begin_stretch(repo: Repo, now: Millis) -> StreamState:
    """Lock the stream; if events were not numbered until now, pass over those that nobody wanted."""
    state = repo.stream.wait()
    if _is_wanted(repo, state, now):
        return state
    # One number is left out, so that a follower who comes back is told.
    last = state.last + 1
    return StreamState(last, last, 0, max(0, now - MARGIN_MS), False)


def is_wanted(repo: Repo, now: Millis) -> bool:
    """Whether events are numbered: somebody follows them, or there is a target."""
    return _is_wanted(repo, repo.stream.read(), now)


def _is_wanted(repo: Repo, state: StreamState, now: Millis) -> bool:
    return state.wanted_until_ms > now or bool(repo.targets.all())


def is_wanted_long(state: StreamState, now: Millis) -> bool:
    """Whether events are still numbered for so long that nobody need ask for it again yet."""
    return state.wanted_until_ms > now + WANTED_MS // 2


def has_work(repo: Repo, now: Millis) -> bool:
    """Whether the relay has anything to do."""
    state = repo.stream.read()
    return _is_wanted(repo, state, now) and (not state.skipped or bool(repo.events.unpublished(1)))


def relay_page(repo: Repo, now: Millis) -> bool:
    """Number some events; return whether there may be more."""
    state = repo.stream.lock()
    if state is None or not _is_wanted(repo, state, now):
        return False
    if not state.skipped:
        state = struct_replace(state, skipped=repo.stream.skip(Millis(state.since_ms), PAGE_MAX) < PAGE_MAX)
        repo.stream.write(state)
        return True
    events = repo.events.unpublished(PAGE_MAX)
    rows, last = _numbered([one for one in events if one.at_ms >= state.since_ms and one.facts], state.last)
    repo.stream.add(rows)
    repo.events.mark_published([*{one.graph: one.number for one in events}.items()])
    delivered = min((one.position for one in repo.targets.all()), default=last)
    gone = max(state.gone, min(last - KEPT_MAX, delivered))
    repo.stream.trim(gone, 2 * PAGE_MAX)
    repo.stream.write(struct_replace(state, last=last, gone=gone))
    return len(events) >= PAGE_MAX


def read_backlogs(repo: Repo, now: Millis) -> list[Backlog]:
    """Say how far behind each target is, as far as events have numbers."""
    targets = repo.targets.all()
    last = repo.stream.read().last if targets else 0
    found = []
    for one in targets:
        events, _ = repo.stream.page(one.position, 1)
        age = max(0, now - events[0][1].at_ms) if events else 0
        found.append(Backlog(one.name, last - one.position, age))
    return found


def read_stream(repo: Repo, after: int, count: int) -> StreamPage:
    """Read events after a number."""
    state = repo.stream.read()
    is_lost = not state.gone <= after <= state.last
    if is_lost:
        after = state.gone
    events, last = repo.stream.page(after, count)
    return StreamPage(events, last, is_lost, state.gone)


def _numbered(events: Sequence[OutboxRow], last: int) -> tuple[list[tuple[int, int, int]], int]:
    """Number events from the last number on; return the rows of the stream, and the new last number."""
    rows = []
    for one in events:
        last += one.facts
        rows.append((last, one.graph, one.number))
    return rows, last
