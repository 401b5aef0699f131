"""A transaction as the rooms see it: verbs that take and return sets, grouped by what they are about."""

from taskyard.store.memory import Memory
from taskyard.store.sessions import Session
from taskyard.store.verbs import (
    Access,
    Attempts,
    Bots,
    Care,
    Edges,
    Events,
    Explaining,
    Graphs,
    Notes,
    Passes,
    Queues,
    Reading,
    Reuses,
    Tasks,
    Times,
    Traces,
)


class Txn:
    """One open transaction of either database."""

    __slots__ = (
        "access", "attempts", "bots", "care", "edges", "events", "explaining", "graphs", "memory", "notes", "passes",
        "queues", "reading", "reuses", "tasks", "times", "traces",
    )  # fmt: skip

    def __init__(self, session: Session, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self.tasks = Tasks(session, self.memory)
        self.graphs = Graphs(session, self.memory, self.tasks)
        self.edges = Edges(session)
        self.attempts = Attempts(session)
        self.events = Events(session)
        self.notes = Notes(session)
        self.queues = Queues(session, self.memory)
        self.bots = Bots(session, self.memory)
        self.passes = Passes(session, self.memory)
        self.care = Care(session)
        self.traces = Traces(session)
        self.access = Access(session)
        self.reading = Reading(session)
        self.explaining = Explaining(session)
        self.reuses = Reuses(session)
        self.times = Times(session)
