"""What is told of a graph while it runs: its events, as they come, put as progress that any view can draw.

It reads events and not states, so that nothing is missed between two looks, and a look costs what happened since the
last one. It changes nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from taskyard.core.graph.gate import EdgeState, known
from taskyard.core.states import ENDED, LEASED, Reason, State
from taskyard.embedded import insides, printed
from taskyard.embedded.logs import Logs
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.store.rows import TaskRecord
from taskyard.views.tasks import attempts
from taskyard.wire.api import AttemptView
from taskyard.wire.progress import Printed, Progress

#: How much is read at once.
EVENTS_MAX: Final = 500
TASKS_MAX: Final = 500
#: How many prerequisites of a task are named.
NAMED_MAX: Final = 100
#: What a shell answers for a process that a signal ended, less the signal's number.
SIGNALED_BASE: Final = 128

#: Worth telling though no attempt ended. That what never began was canceled is told by the summary.
_TOLD: Final = (ENDED | {State.BLOCKED}) - {State.CANCELED}
_BLOCKED: Final = frozenset({State.BLOCKED})
_WAITING: Final = frozenset({State.WAITING})


class Feed:
    """Tells everything that happens in one graph, once."""

    def __init__(self, labels: tuple[str, ...], logs: Path | None, show_output: bool = False) -> None:
        """Take the labels in their order, the folder for logs if there is one, and whether output is told."""
        self._place = {label: place for place, label in enumerate(labels)}
        self._logs = Logs(logs, {label: place + 1 for label, place in self._place.items()}, show_output)
        self._labels: dict[int, str] = {}
        self._last: dict[int, Progress] = {}
        self._read_up_to = 0

    def news(self, repo: Repo, graph: int) -> list[Progress | Printed]:
        """Tell what happened since the last time."""
        told: list[Progress | Printed] = []
        while page := repo.events.in_graph(graph, self._read_up_to, EVENTS_MAX):
            self._read_up_to = page[-1].number
            self._learn_labels(repo, {event.subject for event in page} - {graph})
            told += [one for event in page if event.subject != graph for one in self._progress(repo, event)]
        told += self._logs.write(repo)
        return told

    def outcome(self, repo: Repo, graph: int) -> dict[str, Progress]:
        """Tell the last that is known of each task, those of the document first and in its order."""
        found = dict(self._ends(repo, graph))
        return {label: found[label] for label in sorted(found, key=lambda one: self._place.get(one, len(found)))}

    def _ends(self, repo: Repo, graph: int) -> Iterator[tuple[str, Progress]]:
        for records in self._pages(repo, graph):
            results = repo.read.last_results([record.id for record in records])
            for record in records:
                last = self._standing(repo, record)
                if (result := results.get(record.id)) is not None:
                    last = replace(last, result=msgspec.json.decode(result))
                yield self._labels[record.id], last

    def _pages(self, repo: Repo, graph: int) -> Iterator[list[TaskRecord]]:
        after = -1
        while ids := repo.read.tasks(graph, after, "", TASKS_MAX):
            self._learn_labels(repo, set(ids))
            yield repo.tasks.read(ids)
            after = ids[-1]

    def _learn_labels(self, repo: Repo, tasks: set[int]) -> None:
        """Find the labels of tasks; a task that runs may have added others."""
        new = tasks - self._labels.keys()
        self._labels |= {id: label for id, (label, _) in repo.tasks.definitions(list(new)).items()}

    def _progress(self, repo: Repo, event: EventRow) -> Iterator[Progress | Printed]:
        """Tell of one event, if it is worth telling."""
        label, target = self._labels[event.subject], State(event.target)
        if target in LEASED:
            attempt = event.attempt or self._last[event.subject].attempt
            self._logs.begin(event.subject, label, attempt)
            yield self._keep(event.subject, Progress(label, target, attempt))
        elif event.source is not None and State(event.source) in LEASED:
            attempt = event.attempt or self._last[event.subject].attempt
            yield from self._logs.end(repo, event.subject, attempt)
            yield self._keep(event.subject, self._end_of(repo, event, label, target))
        elif target in _TOLD:
            by = self._waits_for(repo, event.subject, EdgeState.BROKEN) if target in _BLOCKED else ()
            reason = None if event.reason is None else Reason(event.reason)
            yield self._keep(event.subject, Progress(label, target, reason=reason, blocked_by=by))

    def _end_of(self, repo: Repo, event: EventRow, label: str, target: State) -> Progress:
        """Tell how an attempt ended."""
        number = event.attempt or self._last[event.subject].attempt
        about_log = self._logs.close(event.subject, number)
        ended = next((one for one in attempts(repo, event.subject) if one.number == number), None)
        reason = _reason(event, ended)
        # Of a good end nobody asks for the output again, and kept for every task it would be much.
        tail = "" if reason is Reason.DONE else printed.tail(repo, event.subject, number) + about_log
        if reason is Reason.GRAPH_FAILED:
            tail = insides.tail(repo, event.subject, number)
        if ended is None:
            return Progress(label, target, number, reason, tail=tail)
        return Progress(label, target, number, reason, _exit_code(ended), _elapsed_ms(ended), tail)

    def _keep(self, task: int, progress: Progress) -> Progress:
        self._last[task] = progress
        return progress

    def _standing(self, repo: Repo, record: TaskRecord) -> Progress:
        """Tell where a task is: as it was told last, unless it has moved since without a word."""
        last = self._last.get(record.id)
        if last is not None and last.state is record.state:
            return last
        label, reason = self._labels[record.id], Reason(record.reason) if record.reason else None
        if record.state in _WAITING:
            reason = Reason.NO_BOT  # or there would be no end to tell of
        by = () if record.state in ENDED else self._waits_for(repo, record.id)
        return Progress(label, record.state, record.life.attempt, reason, blocked_by=by)

    def _waits_for(self, repo: Repo, task: int, *states: EdgeState) -> tuple[str, ...]:
        """Name the prerequisites that are not met, or those in the given states."""
        wanted = states or (EdgeState.AWAITED, EdgeState.BROKEN, EdgeState.IMPOSSIBLE)
        edges = repo.edges.page_into(task, -1, NAMED_MAX)
        unmet = [edge.prerequisite for edge in edges if known(edge.on, edge.state) in wanted]
        self._learn_labels(repo, set(unmet))
        return tuple(sorted(dict.fromkeys(self._labels[one] for one in unmet)))


def _reason(event: EventRow, ended: AttemptView | None) -> Reason | None:
    """Say why an attempt ended: as its bot told it, unless a person wanted its end."""
    asked = event.reason == Reason.ASKED
    told = event.reason if asked or ended is None or ended.reason is None else ended.reason
    return None if told is None else Reason(told)


def _exit_code(ended: AttemptView) -> int | None:
    """Give an exit code as a shell does, also of what a signal ended."""
    code = ended.exit_code
    return SIGNALED_BASE - code if code is not None and code < 0 else code


def _elapsed_ms(ended: AttemptView) -> int | None:
    if ended.stats is not None and ended.stats.ran_ms is not None:
        return ended.stats.ran_ms
    return None if ended.ended_ms is None else max(0, ended.ended_ms - ended.claimed_ms)
