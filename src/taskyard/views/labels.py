"""Which tasks of a graph people mean by names: labels, or those of a matrix, which mean all its combinations."""

from collections.abc import Sequence

from taskyard.core.graph.faults import Fault
from taskyard.core.graph.renewal import named
from taskyard.core.values import value
from taskyard.lifecycle.definitions import decoded
from taskyard.store.connection import Txn


@value
class Meant:
    """The tasks that were meant, and what means nothing."""

    tasks: tuple[int, ...]
    faults: tuple[Fault, ...] = ()


def meant(txn: Txn, graph: int, names: Sequence[str]) -> Meant:
    """Find tasks by name. Labels are looked up; only for other names every label of the graph is read."""
    found = txn.tasks.with_labels(graph, set(names))
    if len(found) == len(set(names)):
        return Meant(tuple(sorted(found.values())))
    rows = txn.tasks.definitions_of(graph)
    ids = {label: id for id, label, _, _ in rows}
    labels, faults = named(names, {label: decoded(text).node for _, label, text, _ in rows})
    return Meant(tuple(sorted(ids[label] for label in labels)), faults)
