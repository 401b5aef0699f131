"""Reads the events of a graph while it runs, and the output of its tasks, as news for a progress view.

It reads events, not states, so that nothing is missed between two looks, and a look costs only what happened since the
last one. It writes nothing to the database.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from taskyard.bot.output_spool import head_size, rest_file_name
from taskyard.core.graph.gate import EdgeState, known
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ENDED, LEASED, STOPPED, UNSUCCESSFUL, Reason, State
from taskyard.embedded.local_bot import REST
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import TaskRecord
from taskyard.views import tasks
from taskyard.views.tasks import attempts
from taskyard.wire.api import AttemptView
from taskyard.wire.bot_protocol import OUTPUT_MAX
from taskyard.wire.progress import Printed, Progress, RunningTask, shell_exit_code

# The output of an attempt, as it is stored: all of it in pieces, or the end of it as text.


#: Some screens full: enough to see why a task failed, little enough to keep for every task.
TAIL_BYTES_MAX: Final = 64 * 1024


def pieces(repo: Repo, task: int, attempt: int, start: int = 0) -> Iterator[bytes]:
    """Yield the stored output from `start` on."""
    size = tasks.output_size(repo, task, attempt)
    while start < size and (piece := tasks.read_output(repo, task, attempt, start, size)):
        yield piece
        start += len(piece)


def printed_tail(repo: Repo, task: int, attempt: int) -> str:
    """Return the end of the output of an attempt."""
    start = max(0, tasks.output_size(repo, task, attempt) - TAIL_BYTES_MAX)
    return b"".join(pieces(repo, task, attempt, start)).decode(errors="replace")


# Why a graph inside a task did not finish: which of its tasks failed, and the end of their output.


#: How many failed tasks are named: they are shown below the task that has the graph.
FAILURES_MAX: Final = 3


def subgraph_tail(repo: Repo, task: int, attempt: int) -> str:
    """Explain why an attempt that ran a graph failed; return "" for any other attempt."""
    inner = repo.graphs.subgraphs([task]).get((task, attempt))
    lines = _refusal(repo, task) if inner is None else _failures(repo, inner)
    return "\n".join(lines)


def _failures(repo: Repo, graph: int) -> Iterator[str]:
    states = sorted(state.text for state in UNSUCCESSFUL)
    ids = [id for state in states for id in repo.read.tasks(graph, FIRST, state, FAILURES_MAX)][:FAILURES_MAX]
    labels = repo.tasks.definitions(ids)
    for record in repo.tasks.read(ids):
        yield f"{labels[record.id][0]}: {record.state} ({record.reason})"
        output = subgraph_tail(repo, record.id, record.life.attempt) or printed_tail(
            repo, record.id, record.life.attempt
        )
        yield from (f"  {line}" for line in output.splitlines())


def _refusal(repo: Repo, task: int) -> Iterator[str]:
    """Say why a graph was refused, so that it did not begin."""
    text = repo.read.last_results([task]).get(task)
    result: Any = None if text is None else msgspec.json.decode(text)
    if isinstance(result, dict) and "refused" in result:
        yield result["refused"]
        yield from (f"{fault['path']}: {fault['message']}" for fault in result.get("faults", ()))


# The output of attempts while they run: written to a file for each attempt, or returned to be shown, or both.
#
# A log that cannot be written changes nothing for its task; the end of the output says so.


#: File systems take 255 bytes; this leaves room for the numbers.
NAME_MAX: Final = 200
LOG_INCOMPLETE: Final = "\ntaskyard: the rest of this could not be written to its log\n"


@dataclass(slots=True)
class _Log:
    """The log file of one attempt, and how much of its output is in it."""

    label: str
    path: Path | None
    size: int = 0
    is_lost: bool = False

    def keep(self, piece: bytes) -> None:
        """Append a piece; after an error nothing more is written."""
        if self.path is None or self.is_lost:
            return
        try:
            with self.path.open("ab") as file:
                file.write(piece)
        except OSError:
            self.is_lost = True

    def complete(self, rest: Path) -> None:
        """Replace the end of the log by the file in which the bot kept all output beyond the first part."""
        if self.path is None or self.is_lost or not rest.exists():
            return
        try:
            with rest.open("rb") as source, self.path.open("r+b") as file:
                file.truncate(head_size(OUTPUT_MAX))
                file.seek(0, os.SEEK_END)
                shutil.copyfileobj(source, file)
            rest.unlink()
        except OSError:
            self.is_lost = True


class Logs:
    """The logs of a run: written if there is a folder, and returned piece by piece if they are shown."""

    def __init__(self, folder: Path | None, numbers: dict[str, int], shown: bool = False) -> None:
        """Take the folder, which exists, and a number for each label: two labels can make the same file name."""
        self._folder = folder
        self._numbers = numbers
        self._shown = shown
        self._open: dict[tuple[int, int], _Log] = {}

    def begin(self, task: int, label: str, attempt: int) -> None:
        """Follow an attempt, if its output is kept or shown."""
        if (self._folder or self._shown) and (task, attempt) not in self._open:
            self._open[task, attempt] = _Log(label, self._file(label, attempt))

    def write(self, repo: Repo) -> Iterator[Printed]:
        """Write the new output of all attempts; return it if it is shown."""
        for (task, attempt), log in self._open.items():
            yield from self._extend(log, repo, task, attempt)

    def end(self, repo: Repo, task: int, attempt: int) -> Iterator[Printed]:
        """Write the rest of the output of an attempt; return it if it is shown."""
        log = self._open.get((task, attempt))
        if log is not None:
            yield from self._extend(log, repo, task, attempt)

    def close(self, task: int, attempt: int) -> str:
        """Close the log of an attempt that has ended; return a warning if it is incomplete, or else ""."""
        log = self._open.pop((task, attempt), None)
        if log is not None and self._folder is not None:
            log.complete(self._folder / REST / rest_file_name(text_of(Key(task)), attempt))
        return LOG_INCOMPLETE if log is not None and log.is_lost else ""

    def _file(self, label: str, attempt: int) -> Path | None:
        if self._folder is None:
            return None
        number = self._numbers.setdefault(label, len(self._numbers) + 1)
        path = self._folder / f"{number:03}-{quote(label, safe='[],=+@')[:NAME_MAX]}-{attempt}.log"
        with suppress(OSError):
            path.unlink()  # the log of an earlier run
        return path

    def _extend(self, log: _Log, repo: Repo, task: int, attempt: int) -> Iterator[Printed]:
        if log.is_lost and not self._shown:
            return
        for piece in pieces(repo, task, attempt, log.size):
            log.size += len(piece)
            log.keep(piece)
            if self._shown:
                yield Printed(log.label, piece)


#: How many rows are read at once.
EVENTS_MAX: Final = 500
TASKS_MAX: Final = 500
#: How many prerequisites of a task are named.
NAMED_MAX: Final = 100

#: News even if no attempt ended. Canceled tasks that never began are in the summary only.
_NEWS: Final = (ENDED | {State.BLOCKED}) - {State.CANCELED}
_BLOCKED: Final = frozenset({State.BLOCKED})
_WAITING: Final = frozenset({State.WAITING})


class RunEvents:
    """Reads everything that happens in one graph, once."""

    def __init__(self, graph: int, labels: tuple[str, ...], logs: Path | None, show_output: bool = False) -> None:
        """Take the labels in their order, the folder for logs if there is one, and whether output is news."""
        self._graph = graph
        self._place = {label: place for place, label in enumerate(labels)}
        self._logs = Logs(logs, {label: place + 1 for label, place in self._place.items()}, show_output)
        self._labels: dict[int, str] = {}
        self._last: dict[int, Progress] = {}
        self._claimed: dict[int, RunningTask] = {}
        self._begun: dict[int, RunningTask] = {}
        self._read_up_to = 0

    def news(self, repo: Repo) -> list[Progress | Printed]:
        """Return what happened since the last time."""
        found: list[Progress | Printed] = []
        while page := repo.events.in_graph(self._graph, self._read_up_to, EVENTS_MAX):
            self._read_up_to = page[-1].number
            self._learn_labels(repo, {event.subject for event in page} - {self._graph})
            found += [one for event in page if event.subject != self._graph for one in self._progress(repo, event)]
        found += self._logs.write(repo)
        return found

    def running(self, repo: Repo) -> list[RunningTask]:
        """Return the attempts that have begun; those that the bot was only handed ahead have not."""
        for record in repo.tasks.read(list(self._claimed.keys() - self._begun.keys())):
            if record.reason == Reason.UNDER_WAY:
                self._begun[record.id] = self._claimed[record.id]
        return list(self._begun.values())

    def outcome(self, repo: Repo) -> dict[str, Progress]:
        """Return all tasks as they are, those of the document first and in its order."""
        found = dict(self._ends(repo))
        return {label: found[label] for label in sorted(found, key=lambda one: self._place.get(one, len(found)))}

    def _ends(self, repo: Repo) -> Iterator[tuple[str, Progress]]:
        for records in self._pages(repo):
            results = repo.read.last_results([record.id for record in records])
            for record in records:
                last = self._standing(repo, record)
                if (result := results.get(record.id)) is not None:
                    last = replace(last, result=msgspec.json.decode(result))
                yield self._labels[record.id], last

    def _pages(self, repo: Repo) -> Iterator[list[TaskRecord]]:
        after = FIRST
        while ids := repo.read.tasks(self._graph, after, "", TASKS_MAX):
            self._learn_labels(repo, set(ids))
            yield repo.tasks.read(ids)
            after = ids[-1]

    def _learn_labels(self, repo: Repo, tasks: set[int]) -> None:
        """Find the labels of tasks; a task that runs may have added others."""
        new = tasks - self._labels.keys()
        self._labels |= {id: label for id, (label, _) in repo.tasks.definitions(list(new)).items()}

    def _progress(self, repo: Repo, event: EventRow) -> Iterator[Progress | Printed]:
        """Yield the news of an event, if any. A claim is no news: the bot may begin the task later."""
        task, label, target = event.subject, self._labels[event.subject], State(event.target)
        if target in LEASED:
            attempt = event.attempt or self._last[task].attempt
            self._logs.begin(task, label, attempt)
            progress = self._keep(task, Progress(label, target, attempt))
            if target in STOPPED:
                yield progress
            else:
                self._claimed[task] = RunningTask(label, attempt)
        elif event.source is not None and State(event.source) in LEASED:
            attempt = event.attempt or self._last[task].attempt
            self._claimed.pop(task, None)
            self._begun.pop(task, None)
            yield from self._logs.end(repo, task, attempt)
            yield self._keep(task, self._end_of(repo, event, label, target))
        elif target in _NEWS:
            by = self._waits_for(repo, task, EdgeState.BROKEN) if target in _BLOCKED else ()
            reason = None if event.reason is None else Reason(event.reason)
            yield self._keep(task, Progress(label, target, reason=reason, blocked_by=by))

    def _end_of(self, repo: Repo, event: EventRow, label: str, target: State) -> Progress:
        """Describe the end of an attempt."""
        number = event.attempt or self._last[event.subject].attempt
        about_log = self._logs.close(event.subject, number)
        ended = next((one for one in attempts(repo, event.subject) if one.number == number), None)
        reason = _reason(event, ended)
        # The output of a successful attempt is not shown; keeping it for every task would take much memory.
        last = "" if reason is Reason.DONE else printed_tail(repo, event.subject, number) + about_log
        if reason is Reason.GRAPH_FAILED:
            last = subgraph_tail(repo, event.subject, number)
        if ended is None:
            return Progress(label, target, number, reason, tail=last)
        return Progress(label, target, number, reason, shell_exit_code(ended.exit_code), _elapsed_ms(ended), last)

    def _keep(self, task: int, progress: Progress) -> Progress:
        self._last[task] = progress
        return progress

    def _standing(self, repo: Repo, record: TaskRecord) -> Progress:
        """Describe a task: as in the last news about it, unless it has moved since."""
        last = self._last.get(record.id)
        if last is not None and last.state is record.state:
            return last
        label, reason = self._labels[record.id], Reason(record.reason) if record.reason else None
        if record.state in _WAITING:
            reason = Reason.NO_BOT  # a run with a waiting task ends only if no bot can run it
        by = () if record.state in ENDED else self._waits_for(repo, record.id)
        return Progress(label, record.state, record.life.attempt, reason, blocked_by=by)

    def _waits_for(self, repo: Repo, task: int, *states: EdgeState) -> tuple[str, ...]:
        """List the labels of the prerequisites that are not met, or of those in the given states."""
        wanted = states or (EdgeState.AWAITED, EdgeState.BROKEN, EdgeState.IMPOSSIBLE)
        edges = repo.edges.page_into(task, -1, NAMED_MAX)
        unmet = [edge.prerequisite for edge in edges if known(edge.on, edge.state) in wanted]
        self._learn_labels(repo, set(unmet))
        return tuple(sorted(dict.fromkeys(self._labels[one] for one in unmet)))


def _reason(event: EventRow, ended: AttemptView | None) -> Reason | None:
    """Return why an attempt ended: the reason of the bot, unless a person canceled it."""
    asked = event.reason == Reason.ASKED
    reason = event.reason if asked or ended is None or ended.reason is None else ended.reason
    return None if reason is None else Reason(reason)


def _elapsed_ms(ended: AttemptView) -> int | None:
    if ended.stats is not None and ended.stats.ran_ms is not None:
        return ended.stats.ran_ms
    return None if ended.ended_ms is None else max(0, ended.ended_ms - ended.claimed_ms)
