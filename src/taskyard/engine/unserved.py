"""What a document may ask for and nobody does yet: refused, place by place, and never ignored."""

from collections.abc import Iterator, Mapping
from typing import Final

from taskyard.core.graph.document import Graph, Task
from taskyard.core.graph.faults import Fault, Faults, Path
from taskyard.core.graph.limits import DEPTH_MAX
from taskyard.core.words import Kind

#: Kinds that nobody runs: a task would wait for ever, or fail wherever it came.
KINDS: Final = frozenset({Kind.ANSIBLE})
#: What a payload may name beside its kind, and no bot knows what to do with.
BESIDE: Final = frozenset({"outputs", "secrets"})
NOT_YET: Final = "not supported yet, so it would not do what it says; remove it"


def asks_for_more(task: Task) -> bool:
    """Tell whether a task asks for something that nobody does yet."""
    if task.idempotent:
        return True
    for one in task.slices:
        payload = one.payload
        if one.kind in KINDS or payload.get("secrets") or payload.get("outputs"):
            return True
        if one.kind is Kind.GRAPH and unserved(payload[Kind.GRAPH], None):
            return True
    return False


def unserved(document: object, graph: Graph | None) -> tuple[Fault, ...]:
    """Name every place where a document asks for what nobody does yet, also if more is wrong with it."""
    faults = Faults()
    for at, task in _tasks(document):
        if task.get("idempotent") is True:
            faults.add((*at, "idempotent"), NOT_YET)
        for place, payload in _payloads(task, at):
            for name in sorted((KINDS & payload.keys()) | {name for name in BESIDE if payload.get(name)}):
                faults.add((*place, name), NOT_YET)
    if graph is not None and not faults.noted:  # it stands behind a mark
        for one in filter(asks_for_more, graph.tasks.values()):
            faults.add(("tasks", one.node or one.label, "task"), NOT_YET)
    return faults.listed()


def _tasks(document: object, at: Path = ()) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Find whatever looks like a task in a document that may be anything, also in the graphs inside it."""
    for label, node in _part(document, "tasks").items():
        place, task = (*at, "tasks", label, "task"), _part(node, "task")
        yield place, task
        if len(at) < DEPTH_MAX:  # what is deeper was refused
            for inside, payload in _payloads(task, place):
                yield from _tasks(payload.get(Kind.GRAPH), (*inside, Kind.GRAPH.text))


def _payloads(task: Mapping[str, object], at: Path) -> Iterator[tuple[Path, Mapping[str, object]]]:
    yield (*at, "payload"), _part(task, "payload")
    slices = task.get("slices")
    for place, one in enumerate(slices if isinstance(slices, list) else ()):
        yield (*at, "slices", place, "payload"), _part(one, "payload")


def _part(whole: object, name: str) -> Mapping[str, object]:
    found = whole.get(name) if isinstance(whole, dict) else None
    return found if isinstance(found, dict) else {}
