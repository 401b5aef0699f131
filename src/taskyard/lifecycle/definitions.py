"""Convert the definition of a task to JSON and back.

The JSON has the fields of `Task` in the core. It is written once, when a task is submitted, and read only where the row
of the task does not suffice: for another slice, an extension or a payload.
"""

from functools import lru_cache
from typing import Final

import msgspec

from taskyard.core.durations import HOUR_MS
from taskyard.core.graph.model import Task
from taskyard.core.graph.payload import patience_ms
from taskyard.store.connection import Repo
from taskyard.store.rows import TaskRecord

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Task)
#: A task on its second slice is often read again. Long definitions, as of a task with a graph inside, are not cached.
_KEPT = 1_000
_KEPT_CHARS = 20_000


def encoded(task: Task) -> str:
    """Write a definition as JSON."""
    return _ENCODER.encode(task).decode()


def decoded(text: str) -> Task:
    """Read a definition from JSON."""
    return _cached(text) if len(text) <= _KEPT_CHARS else _DECODER.decode(text)


@lru_cache(maxsize=_KEPT)
def _cached(text: str) -> Task:
    return _DECODER.decode(text)


#: The lease of an external task without a time-out: it was submitted before its pool became external.
EXTERNAL_LEASE_MS: Final = HOUR_MS


def external_lease_ms(repo: Repo, task: TaskRecord) -> int:
    """Return how long a lease of a task of an external pool lasts: as long as its time-out."""
    _, text = repo.tasks.definitions([task.id])[task.id]
    return patience_ms(decoded(text).slices[task.life.slice_index].payload) or EXTERNAL_LEASE_MS
