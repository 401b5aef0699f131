"""A graph in outline: where it stands, what it counts, and whether anything in it can still move by itself.

What it tells stands on the graph's own row, so it costs the same for a graph of any size. Nothing here writes.
"""

from dataclasses import dataclass

from taskyard.core.graph.verdict import settled
from taskyard.core.words import GraphState, Millis
from taskyard.store.connection import Txn


@dataclass(frozen=True, slots=True)
class Outline:
    """A graph at one moment."""

    graph: int
    name: str
    state: GraphState
    active: int  # tasks that are under way, and pages of work that are still promised
    behind: int  # tasks that wait for others, or are blocked
    unhandled: int  # tasks that failed, and nothing dealt with it or still may
    settled: bool  # nothing in it can move without a person
    created_ms: Millis
    canceled_ms: Millis | None


def outline(txn: Txn, graph: int) -> Outline | None:
    """Tell where a graph stands; None if there is none, or if it is not whole yet."""
    found, definition = txn.graphs.peek([graph]), txn.graphs.definition(graph)
    if not found or found[0].loader is not None or definition is None:
        return None
    one = found[0]
    counts = (one.tally.active, one.tally.behind, one.tally.unhandled)
    return Outline(one.id, definition[1], one.state, *counts, settled(one.tally), one.created_ms, one.canceled_ms)
