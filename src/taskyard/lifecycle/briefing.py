"""What a bot is told about the tasks it gets: what to run, what their prerequisites published, what was left for them.

Payloads and results go through as they are stored, unread.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from taskyard.core.values import replace
from taskyard.core.words import Millis
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Brief, Lease
from taskyard.store.records import TaskRecord

_STRICT: Final = "strict"


class _Slice(msgspec.Struct):
    payload: msgspec.Raw


class _Definition(msgspec.Struct):
    """As much of a definition as a bot needs."""

    slices: list[_Slice]
    disconnect: str = _STRICT


_READER: Final = msgspec.json.Decoder(_Definition)


def brief(corridor: Corridor, leases: Sequence[Lease]) -> list[Lease]:
    """Say what is to be run by each lease."""
    tasks = corridor.look([lease.task for lease in leases])
    fed = [id for id, task in tasks.items() if task.edges.met]
    corridor.txn.traces.foresee(fed)
    definitions = corridor.txn.tasks.owned_definitions(list(tasks))
    inputs = _inputs(corridor, fed)
    left = corridor.txn.traces.checkpoints([lease.task for lease in leases if lease.attempt > 1])
    return [
        replace(lease, brief=_brief(tasks[lease.task], definitions[lease.task], lease, inputs, left))
        for lease in leases
    ]


def _brief(
    task: TaskRecord, defined: tuple[str, str, str], lease: Lease, inputs: dict[int, str], left: dict[int, bytes]
) -> Brief:
    label, text, submitter = defined
    definition = _READER.decode(text)
    deadline = task.rules.deadline_ms
    return Brief(
        task.graph,
        label,
        bytes(definition.slices[lease.slice_index].payload),
        definition.disconnect,
        None if deadline is None else Millis(deadline),
        inputs.get(task.id),
        left.get(task.id),
        submitter,
    )


def _inputs(corridor: Corridor, ids: Sequence[int]) -> dict[int, str]:
    """Give what the prerequisites of each task published, as one JSON object by their labels."""
    found: dict[int, dict[str, msgspec.Raw]] = defaultdict(dict)
    for task, label, body in corridor.txn.traces.inputs(ids):
        found[task][label] = msgspec.Raw(body.encode())
    return {task: msgspec.json.encode(results).decode() for task, results in found.items()}
