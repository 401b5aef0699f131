"""What attempts did and left, for people: how each ended, its result, what it was given, its output by range.

Output is bytes, counted from 0; nothing here guesses what they mean. Nothing here writes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from taskyard.core.machine import LEASED
from taskyard.store.records import TaskRecord
from taskyard.store.txn import Txn
from taskyard.store.verbs.traces import StatsRow
from taskyard.store.verbs.work import AttemptRow
from taskyard.wire.api import AttemptView, Stats

#: How many pieces of output are read at once: some megabytes at most.
PIECES_MAX: Final = 16


def attempts(txn: Txn, task: int) -> list[AttemptView]:
    """Show every attempt of a task."""
    stats, results, sizes = txn.traces.stats(task), txn.reading.results(task), txn.traces.sizes(task)
    return [
        _attempt(row, stats.get(row.number), results.get(row.number), sizes.get(row.number, 0))
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


def under_way(record: TaskRecord, attempt: int) -> bool:
    """Tell whether an attempt may still print something."""
    return record.life.attempt == attempt and record.state in LEASED


def _attempt(row: AttemptRow, took: StatsRow | None, published: str | None, size: int) -> AttemptView:
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
        truncated=took is not None and took.truncated == 1,
        result=None if published is None else msgspec.Raw(published.encode()),
        stats=None if took is None else _stats(took),
    )


def _stats(took: StatsRow) -> Stats:
    return Stats(
        prepared_ms=took.prepared_ms,
        ran_ms=took.ran_ms,
        uploaded_ms=took.uploaded_ms,
        cpu_s=took.cpu_s,
        memory_bytes=took.memory_bytes,
        read_bytes=took.read_bytes,
        written_bytes=took.written_bytes,
    )
