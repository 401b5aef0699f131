"""What is told of a graph while it runs: its events, as they come, put as progress that any view can draw.

It reads events and not states, so that nothing is missed between two looks, and a look costs what happened since the
last one. It changes nothing.
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
from taskyard.core.states import ENDED, LEASED, UNSUCCESSFUL, Reason, State
from taskyard.embedded.local_bot import REST
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.store.repo.read import FIRST
from taskyard.store.rows import TaskRecord
from taskyard.views import tasks
from taskyard.views.tasks import attempts
from taskyard.wire.api import AttemptView
from taskyard.wire.bot_protocol import OUTPUT_MAX
from taskyard.wire.progress import Printed, Progress

# What an attempt printed, as the store has it: all of it in pieces, or the last of it as text. Nothing here writes.


#: Some screens full: enough to see why a task failed, little enough to keep for every task.
TAIL_BYTES_MAX: Final = 64 * 1024


def pieces(repo: Repo, task: int, attempt: int, start: int = 0) -> Iterator[bytes]:
    """Give output from `start` on, as far as it is there."""
    size = tasks.output_size(repo, task, attempt)
    while start < size and (piece := tasks.read_output(repo, task, attempt, start, size)):
        yield piece
        start += len(piece)


def printed_tail(repo: Repo, task: int, attempt: int) -> str:
    """Give the last of what an attempt printed."""
    start = max(0, tasks.output_size(repo, task, attempt) - TAIL_BYTES_MAX)
    return b"".join(pieces(repo, task, attempt, start)).decode(errors="replace")


# What is told of a graph inside a task that did not finish: who failed in it, and the last that they printed.


#: How many failures inside are told: they have to fit below the one around them.
TOLD_MAX: Final = 3


def tail(repo: Repo, task: int, attempt: int) -> str:
    """Tell why an attempt that is a graph failed; nothing of one that is none."""
    inner = repo.graphs.subgraphs([task]).get((task, attempt))
    lines = _unborn(repo, task) if inner is None else _failures(repo, inner)
    return "\n".join(lines)


def _failures(repo: Repo, graph: int) -> Iterator[str]:
    states = sorted(state.text for state in UNSUCCESSFUL)
    ids = [id for state in states for id in repo.read.tasks(graph, FIRST, state, TOLD_MAX)][:TOLD_MAX]
    labels = repo.tasks.definitions(ids)
    for record in repo.tasks.read(ids):
        yield f"{labels[record.id][0]}: {record.state} ({record.reason})"
        inside = tail(repo, record.id, record.life.attempt) or printed_tail(repo, record.id, record.life.attempt)
        yield from (f"  {line}" for line in inside.splitlines())


def _unborn(repo: Repo, task: int) -> Iterator[str]:
    """Say why a graph could not even be begun."""
    text = repo.read.last_results([task]).get(task)
    told: Any = None if text is None else msgspec.json.decode(text)
    if isinstance(told, dict) and "refused" in told:
        yield told["refused"]
        yield from (f"{fault['path']}: {fault['message']}" for fault in told.get("faults", ()))


# What attempts print, while they print it: kept in a folder with a file for each, passed on to be shown, or both.
#
# Whether a log can be kept is no matter of the task: one that cannot is given up, and said where the output is shown.


#: File systems take 255 bytes; this leaves room for the numbers.
NAME_MAX: Final = 200
LOST: Final = "\ntaskyard: the rest of this could not be written to its log\n"


@dataclass(slots=True)
class _Log:
    """The file of one attempt, and how much of its output is in it."""

    label: str
    path: Path | None
    size: int = 0
    is_lost: bool = False

    def keep(self, piece: bytes) -> None:
        """Write a piece to the file, as long as that goes well."""
        if self.path is None or self.is_lost:
            return
        try:
            with self.path.open("ab") as file:
                file.write(piece)
        except OSError:
            self.is_lost = True

    def complete(self, rest: Path) -> None:
        """Put all that was printed behind the head, which the bot has kept in a file, in the place of the tail."""
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
    """The logs of a run; without a folder nothing is kept, and unless it is to be shown nothing is passed on."""

    def __init__(self, folder: Path | None, numbers: dict[str, int], shown: bool = False) -> None:
        """Take the folder, which is there, and the number of each label: it tells labels apart that look alike."""
        self._folder = folder
        self._numbers = numbers
        self._shown = shown
        self._open: dict[tuple[int, int], _Log] = {}

    def begin(self, task: int, label: str, attempt: int) -> None:
        """Follow an attempt, if it is to be kept or shown."""
        if (self._folder or self._shown) and (task, attempt) not in self._open:
            self._open[task, attempt] = _Log(label, self._file(label, attempt))

    def write(self, repo: Repo) -> Iterator[Printed]:
        """Keep what attempts have printed since, and give it to be shown."""
        for (task, attempt), log in self._open.items():
            yield from self._extend(log, repo, task, attempt)

    def end(self, repo: Repo, task: int, attempt: int) -> Iterator[Printed]:
        """Keep the rest of an attempt, and give it to be shown."""
        log = self._open.get((task, attempt))
        if log is not None:
            yield from self._extend(log, repo, task, attempt)

    def close(self, task: int, attempt: int) -> str:
        """Leave an attempt that has ended; say what has to be said about its log."""
        log = self._open.pop((task, attempt), None)
        if log is not None and self._folder is not None:
            log.complete(self._folder / REST / rest_file_name(text_of(Key(task)), attempt))
        return LOST if log is not None and log.is_lost else ""

    def _file(self, label: str, attempt: int) -> Path | None:
        if self._folder is None:
            return None
        number = self._numbers.setdefault(label, len(self._numbers) + 1)
        path = self._folder / f"{number:03}-{quote(label, safe='[],=+@')[:NAME_MAX]}-{attempt}.log"
        with suppress(OSError):
            path.unlink()  # that of an earlier run
        return path

    def _extend(self, log: _Log, repo: Repo, task: int, attempt: int) -> Iterator[Printed]:
        if log.is_lost and not self._shown:
            return
        for piece in pieces(repo, task, attempt, log.size):
            log.size += len(piece)
            log.keep(piece)
            if self._shown:
                yield Printed(log.label, piece)


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


class RunEvents:
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
        last = "" if reason is Reason.DONE else printed_tail(repo, event.subject, number) + about_log
        if reason is Reason.GRAPH_FAILED:
            last = tail(repo, event.subject, number)
        if ended is None:
            return Progress(label, target, number, reason, tail=last)
        return Progress(label, target, number, reason, _exit_code(ended), _elapsed_ms(ended), last)

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
