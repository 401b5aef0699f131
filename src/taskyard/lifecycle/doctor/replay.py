"""What the events of a task or a graph add up to. It is compared with the stored state, and never written."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from taskyard.core.attempt_policy import ATTEMPT_SIGNALS, SPARED, Life
from taskyard.core.states import ARROWS, LEASED, Signal
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow

#: How many events are in memory at once.
EVENTS_MAX: Final = 5_000
#: The state of a task before its first event. A graph has none.
BORN: Final = str(Life().state)
_ARROWS: Final = frozenset(
    (str(arrow.source), str(arrow.signal), str(end)) for arrow in ARROWS for end in (arrow.target, arrow.again) if end
)
#: The states that a task goes back to while its budgets last.
_AGAIN: Final = frozenset(str(arrow.again) for arrow in ARROWS if arrow.again)


@dataclass(slots=True)
class Replay:
    """The events of one subject, one after the other."""

    state: str | None
    attempt: int = 0
    round: int = 1
    reruns_used: int = 0
    retries_used: int = 0
    ends: dict[int, str | None] = field(default_factory=dict)  # by attempt: the signal that ended it
    graphs: set[int] = field(default_factory=set)  # that the events belong to
    count: int = 0
    newest: int = 0
    gap: EventRow | None = None  # the first event that does not follow from those before it

    def add(self, event: EventRow, of_task: bool) -> None:
        """Follow one event."""
        is_legal = not of_task or (event.source or "", event.signal or "", event.target) in _ARROWS
        if event.source != self.state or not is_legal:
            self.gap = self.gap or event
        self._count_budgets(event)
        self._follow_attempts(event)
        self.state, self.newest, self.count = event.target, event.number, self.count + 1
        self.graphs.add(event.graph)

    def _count_budgets(self, event: EventRow) -> None:
        if event.signal == Signal.RERUN:
            self.round, self.reruns_used, self.retries_used = self.round + 1, 0, 0
        elif event.target in _AGAIN:
            self.reruns_used += event.signal == Signal.FAIL
            self.retries_used += event.signal == Signal.LOSE and event.reason not in SPARED

    def _follow_attempts(self, event: EventRow) -> None:
        if event.signal == Signal.CLAIM:
            self.attempt = event.attempt or 0
            self.ends[self.attempt] = None
        elif event.source in LEASED and event.signal in ATTEMPT_SIGNALS and self.attempt in self.ends:
            self.ends[self.attempt] = event.signal
        elif event.signal == Signal.REUSE:
            self.attempt = 0


def replays(repo: Repo, ids: Collection[int], of_tasks: bool) -> dict[int, Replay]:
    """Replay the events of tasks, or of graphs."""
    found = {id: Replay(BORN if of_tasks else None) for id in ids}
    subject, number = -1, 0
    while ids and (page := repo.doctor.events(ids, subject, number, EVENTS_MAX)):
        for event in page:
            found[event.subject].add(event, of_tasks)
        subject, number = page[-1].subject, page[-1].number
    return found
