"""Convert the definition of a task to JSON and back.

The JSON has the fields of `Task` in the core. It is written once, when a task is submitted, and read only where the row
of the task does not suffice: for another slice, an extension or a payload.
"""

from functools import lru_cache

import msgspec

from taskyard.core.graph.model import Task

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
