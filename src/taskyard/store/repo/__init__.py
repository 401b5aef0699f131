"""The verbs of the store, by what they are about. Each takes and returns sets, and decides nothing."""

from taskyard.store.repo.admission import Passes
from taskyard.store.repo.bots import Bots, Queues
from taskyard.store.repo.doctor import Care
from taskyard.store.repo.events import Events, Notes
from taskyard.store.repo.output import Traces
from taskyard.store.repo.read import Explaining, Reading, Times
from taskyard.store.repo.tasks import Attempts, Edges, Graphs, Reuses, Tasks
from taskyard.store.repo.tokens import Access

__all__ = [
    "Access", "Attempts", "Bots", "Care", "Edges", "Events", "Explaining", "Graphs", "Notes", "Passes", "Queues",
    "Reading", "Reuses", "Tasks", "Times", "Traces",
]  # fmt: skip
