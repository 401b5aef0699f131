"""What attempts did and left, for people: how each ended, its result, what it was given, its output by range.

Output is bytes, counted from 0; nothing here guesses what they mean. Nothing here writes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from taskyard.core.machine import LEASED
from taskyard.store.records import TaskRecord
from taskyard.store.sessions import Row
from taskyard.store.txn import Txn
from taskyard.views.tasks import EDGES_MAX
from taskyard.wire.api import AttemptView, Stats

#: How many pieces of output are read at once: some megabytes at most.
PIECES_MAX: Final = 16


def attempts(txn: Txn, task: int) -> list[AttemptView]:
    """Show every attempt of a task."""
    results, sizes = txn.reading.results(task), txn.reading.sizes(task)
    return [_attempt(row, results.get(row[0]), sizes.get(row[0], 0)) for row in txn.reading.attempts(task)]


def inputs(txn: Txn, task: int) -> Mapping[str, msgspec.Raw]:
    """Give what the prerequisites of a task published, by label."""
    ids = [edge.prerequisite for edge in txn.edges.page_into(task, -1, EDGES_MAX)]
    results, labels = txn.reading.last_results(ids), txn.tasks.definitions(ids)
    return {labels[id][0]: msgspec.Raw(results[id].encode()) for id in dict.fromkeys(ids) if id in results}


def result(txn: Txn, task: int) -> bytes | None:
    """Give what the last attempt of a task published, as JSON."""
    found = txn.reading.last_results([task]).get(task)
    return None if found is None else found.encode()


def size(txn: Txn, task: int, attempt: int) -> int:
    """Say how many bytes of output of an attempt there are."""
    return txn.reading.sizes(task).get(attempt, 0)


def piece(txn: Txn, task: int, attempt: int, start: int, until: int) -> bytes:
    """Give output of an attempt from `start` on: some of it, or nothing if there is none before `until`."""
    found = bytearray()
    for at, body in txn.reading.output(task, attempt, start, until, PIECES_MAX):
        expected = start + len(found)
        if at > expected:
            break  # what comes before it is not there yet
        found += body[expected - at : until - at]
    return bytes(found)


def under_way(record: TaskRecord, attempt: int) -> bool:
    """Tell whether an attempt may still print something."""
    return record.life.attempt == attempt and record.state in LEASED


def _attempt(row: Row, published: str | None, size: int) -> AttemptView:
    number, bot, round, slice_index, claimed_ms, ended_ms, signal, reason, exit_code, truncated, *took = row
    return AttemptView(
        number=number,
        bot=bot,
        round=round,
        slice_index=slice_index,
        claimed_ms=claimed_ms,
        ended_ms=ended_ms,
        signal=signal,
        reason=reason,
        exit_code=exit_code,
        output_bytes=size,
        truncated=truncated == 1,
        result=None if published is None else msgspec.Raw(published.encode()),
        stats=None if truncated is None else Stats(None, *took),
    )
