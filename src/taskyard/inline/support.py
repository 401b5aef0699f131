"""What running in one process cannot do yet, as tables: every such field of a graph is named, and none is ignored.

Left out of the tables is what holds by itself here: no bot is lost (`retries`, `disconnect`), nothing is shared with
other graphs (`weight`, `idempotent`), nobody listens (`routing`, `tags`).
"""

from collections.abc import Callable, Iterator

from taskyard.core.graph import EXPIRES_MS, Fault, Graph, Slice, Task
from taskyard.core.graph.faults import Path, path_text
from taskyard.core.words import Impossible, Join, Kind, On

KINDS = frozenset({Kind.COMMAND, Kind.SCRIPT, Kind.NOOP})
MESSAGE = "not supported yet by `run`; remove it"

_ON_NODE: tuple[tuple[str, Callable[[Task], bool]], ...] = (
    ("join", lambda task: task.join is not Join.ALL),
    ("on_impossible", lambda task: task.on_impossible is not Impossible.HOLD),
)
_ON_TASK: tuple[tuple[str, Callable[[Task], bool]], ...] = (
    ("deadline", lambda task: task.deadline is not None),
    ("not_before", lambda task: task.not_before is not None),
    ("mutexes", lambda task: bool(task.mutexes)),
    ("limits", lambda task: bool(task.limits)),
    ("slices", lambda task: len(task.slices) > 1),
)
_ON_SLICE: tuple[tuple[str, Callable[[Slice], bool]], ...] = (
    ("dimensions", lambda slice_: bool(slice_.dimensions)),
    ("expires", lambda slice_: slice_.expires_ms != EXPIRES_MS),
)
_IN_PAYLOAD: tuple[tuple[str, Callable[[object], bool]], ...] = (
    ("secrets", bool),
    ("outputs", bool),
    ("io_timeout", lambda span: span is not None and span != "0s"),
)


def refusals(graph: Graph) -> tuple[Fault, ...]:
    """Name every field of `graph` that cannot be honoured here, with its place."""
    places = dict.fromkeys(path_text(at) for task in graph.tasks.values() for at in _places(task))
    return tuple(Fault(path, MESSAGE) for path in places)


def _places(task: Task) -> Iterator[Path]:
    node: Path = ("tasks", task.node or task.label)
    inner: Path = (*node, "task")
    for index, edge in enumerate(task.requires):
        if edge.on is not On.SUCCESS:
            yield (*node, "requires", index, "on")
    yield from ((*node, name) for name, unsupported in _ON_NODE if unsupported(task))
    yield from ((*inner, name) for name, unsupported in _ON_TASK if unsupported(task))
    if len(task.slices) == 1:
        yield from _slice_places(task.slices[0], inner)


def _slice_places(only: Slice, inner: Path) -> Iterator[Path]:
    yield from ((*inner, name) for name, unsupported in _ON_SLICE if unsupported(only))
    if only.kind not in KINDS:
        yield (*inner, "payload", str(only.kind))
    yield from ((*inner, "payload", name) for name, unsupported in _IN_PAYLOAD if unsupported(only.payload.get(name)))
