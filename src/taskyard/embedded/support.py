"""What a run cannot do yet because its bot cannot: every such field of a graph is named, and none is ignored.

What no server takes is refused by the engine; it is not repeated here.
"""

from collections.abc import Iterator
from typing import Final

from taskyard.core.graph import Fault, Graph, Slice, Task
from taskyard.core.graph.faults import Path, path_text
from taskyard.core.words import Kind

MESSAGE: Final = "not supported yet by `run`; remove it"
#: What the bot of a run does not know how to start.
KINDS: Final = frozenset({Kind.ANSIBLE})
#: What it would have to do around a program, and does not.
FIELDS: Final = ("secrets", "outputs")


def refusals(graph: Graph) -> tuple[Fault, ...]:
    """Name every field of `graph` that cannot be honoured here, with its place."""
    places = dict.fromkeys(path_text(at) for task in graph.tasks.values() for at in _places(task))
    return tuple(Fault(path, MESSAGE) for path in places)


def _places(task: Task) -> Iterator[Path]:
    inner: Path = ("tasks", task.node or task.label, "task")
    for place, one in enumerate(task.slices):
        at = (*inner, "slices", place, "payload") if len(task.slices) > 1 else (*inner, "payload")
        yield from _in_payload(one, at)


def _in_payload(one: Slice, at: Path) -> Iterator[Path]:
    if one.kind in KINDS:
        yield (*at, str(one.kind))
    yield from ((*at, name) for name in FIELDS if one.payload.get(name))
