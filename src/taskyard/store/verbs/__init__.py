"""The verbs of the store, by what they are about. Each takes and returns sets, and decides nothing."""

from taskyard.store.verbs.access import Access
from taskyard.store.verbs.attempts import Attempts
from taskyard.store.verbs.care import Care
from taskyard.store.verbs.explaining import Explaining
from taskyard.store.verbs.fleet import Bots, Queues
from taskyard.store.verbs.keeping import Events, Notes
from taskyard.store.verbs.passes import Passes
from taskyard.store.verbs.reading import Reading
from taskyard.store.verbs.reuse import Reuses
from taskyard.store.verbs.times import Times
from taskyard.store.verbs.traces import Traces
from taskyard.store.verbs.work import Edges, Graphs, Tasks

__all__ = [
    "Access", "Attempts", "Bots", "Care", "Edges", "Events", "Explaining", "Graphs", "Notes", "Passes", "Queues",
    "Reading", "Reuses", "Tasks", "Times", "Traces",
]  # fmt: skip
