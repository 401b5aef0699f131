"""What was asked for, as text: a task's definition to JSON and back.

The text is the frozen `Task` of the core, field by field. It is written once, when a task is submitted, and read again
only where the hot row does not tell enough: another slice, an extension, a payload.
"""

from functools import lru_cache

import msgspec

from taskyard.core.graph.model import Task

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Task)
#: A task on its second slice is often looked at more than once. What is long, as with a graph inside, is not kept.
_KEPT = 1_000
_KEPT_CHARS = 20_000


def encoded(task: Task) -> str:
    """Write a definition down."""
    return _ENCODER.encode(task).decode()


def decoded(text: str) -> Task:
    """Read a definition."""
    return _kept(text) if len(text) <= _KEPT_CHARS else _DECODER.decode(text)


@lru_cache(maxsize=_KEPT)
def _kept(text: str) -> Task:
    return _DECODER.decode(text)
