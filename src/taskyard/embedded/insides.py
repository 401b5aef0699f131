"""What is told of a graph inside a task that did not finish: who failed in it, and the last that they printed."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from taskyard.core.states import UNSUCCESSFUL
from taskyard.embedded import printed
from taskyard.store.connection import Txn
from taskyard.store.repo.read import FIRST

#: How many failures inside are told: they have to fit below the one around them.
TOLD_MAX: Final = 3


def tail(txn: Txn, task: int, attempt: int) -> str:
    """Tell why an attempt that is a graph failed; nothing of one that is none."""
    inner = txn.graphs.inside([task]).get((task, attempt))
    lines = _unborn(txn, task) if inner is None else _failures(txn, inner)
    return "\n".join(lines)


def _failures(txn: Txn, graph: int) -> Iterator[str]:
    states = sorted(state.text for state in UNSUCCESSFUL)
    ids = [id for state in states for id in txn.reading.tasks(graph, FIRST, state, TOLD_MAX)][:TOLD_MAX]
    labels = txn.tasks.definitions(ids)
    for record in txn.tasks.look(ids):
        yield f"{labels[record.id][0]}: {record.state} ({record.reason})"
        inside = tail(txn, record.id, record.life.attempt) or printed.tail(txn, record.id, record.life.attempt)
        yield from (f"  {line}" for line in inside.splitlines())


def _unborn(txn: Txn, task: int) -> Iterator[str]:
    """Say why a graph could not even be begun."""
    text = txn.reading.last_results([task]).get(task)
    told: Any = None if text is None else msgspec.json.decode(text)
    if isinstance(told, dict) and "refused" in told:
        yield told["refused"]
        yield from (f"{fault['path']}: {fault['message']}" for fault in told.get("faults", ()))
