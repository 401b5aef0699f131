"""What attempts did and left, for people: how each ended, its result, what it was given, its output by range.

Output is bytes, counted from 0; nothing here guesses what they mean. Nothing here writes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from taskyard.core.machine import LEASED, sources
from taskyard.core.words import Signal
from taskyard.store.connection import Txn
from taskyard.store.repo.output import StatsRow
from taskyard.store.repo.tasks import AttemptRow
from taskyard.store.rows import TaskRecord
from taskyard.wire.api import AttemptView, OutputTime, Stats

#: How many pieces of output are read at once: some megabytes at most.
PIECES_MAX: Final = 16
#: How many events of a task are read at once, and how many pages of them, for how long it waited.
EVENTS_PAGE: Final = 500
EVENT_PAGES_MAX: Final = 20
#: What is known of an attempt that has told nothing of what it took.
NOTHING_TOLD: Final = StatsRow(0, None, None, None, None, None, None, None, 0)
#: Where tasks are when a bot takes them.
_QUEUED: Final = frozenset(map(str, sources(Signal.CLAIM)))


def attempts(txn: Txn, task: int) -> list[AttemptView]:
    """Show every attempt of a task."""
    stats, results, sizes = txn.traces.stats(task), txn.reading.results(task), txn.traces.sizes(task)
    queued = _queued(txn, task)
    return [
        _attempt(
            row,
            results.get(row.number),
            sizes.get(row.number, 0),
            stats.get(row.number, NOTHING_TOLD),
            queued.get(row.number),
        )
        for row in txn.attempts.of(task)
    ]


def inputs(txn: Txn, task: int) -> Mapping[str, msgspec.Raw]:
    """Give what the prerequisites of a task published, by label."""
    return {label: msgspec.Raw(body.encode()) for _, label, body in txn.traces.inputs([task])}


def result(txn: Txn, task: int) -> bytes | None:
    """Give what the last attempt of a task published, as JSON."""
    found = txn.reading.last_results([task]).get(task)
    return None if found is None else found.encode()


def size(txn: Txn, task: int, attempt: int) -> int:
    """Say how many bytes of output of an attempt there are."""
    return txn.traces.sizes(task).get(attempt, 0)


def piece(txn: Txn, task: int, attempt: int, start: int, until: int) -> bytes:
    """Give output of an attempt from `start` on: some of it, or nothing if there is none before `until`."""
    found = bytearray()
    for at, body in txn.traces.chunks(task, attempt, start, PIECES_MAX):
        expected = start + len(found)
        if at > expected or at >= until:
            break  # it is not asked for, or what comes before it is not there
        found += body[expected - at : until - at]
    return bytes(found)


def times(
    txn: Txn, task: int, attempt: int, start: int, since_ms: int, count: int
) -> tuple[list[OutputTime], int | None]:
    """Say when output of an attempt came, from `start` on and not before a moment; and where to go on."""
    found = txn.traces.chunk_times(task, attempt, start, since_ms, count + 1)
    return [OutputTime(*one) for one in found[:count]], found[count][0] if len(found) > count else None


def under_way(record: TaskRecord, attempt: int) -> bool:
    """Tell whether an attempt may still print something."""
    return record.life.attempt == attempt and record.state in LEASED


def _queued(txn: Txn, task: int) -> dict[int, int]:
    """Say how long each attempt waited in a queue before a bot took it, by the clock of the server."""
    found: dict[int, int] = {}
    after, since = 0, 0
    for _ in range(EVENT_PAGES_MAX):
        page = txn.events.of(task, after, EVENTS_PAGE)
        for event in page:
            if event.target in _QUEUED:
                since = event.at_ms
            elif event.source in _QUEUED and event.attempt is not None:
                found[event.attempt] = event.at_ms - since
        if len(page) < EVENTS_PAGE:
            break
        after = page[-1].number
    return found


def _attempt(row: AttemptRow, published: str | None, size: int, took: StatsRow, queued_ms: int | None) -> AttemptView:
    return AttemptView(
        number=row.number,
        bot=row.bot,
        round=row.round,
        slice_index=row.slice_index,
        claimed_ms=row.claimed_ms,
        ended_ms=row.ended_ms,
        signal=row.signal,
        reason=row.reason,
        exit_code=row.exit_code,
        output_bytes=size,
        truncated=took.truncated == 1,
        result=None if published is None else msgspec.Raw(published.encode()),
        stats=_stats(took, queued_ms) if queued_ms is not None or took is not NOTHING_TOLD else None,
    )


def _stats(took: StatsRow, queued_ms: int | None) -> Stats:
    return Stats(
        queued_ms=queued_ms,
        prepared_ms=took.prepared_ms,
        ran_ms=took.ran_ms,
        uploaded_ms=took.uploaded_ms,
        cpu_s=took.cpu_s,
        memory_bytes=took.memory_bytes,
        read_bytes=took.read_bytes,
        written_bytes=took.written_bytes,
    )
