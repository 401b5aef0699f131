"""Counting afresh what is stored about tasks and graphs, in pages, so that any store fits into memory.

Nothing here trusts a stored number, and nothing here writes one. The edges, the notes, the attempts and the events are
the truth; whatever follows from them is counted again by the rules of the core, and not by the code that keeps it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from taskyard.core import budget
from taskyard.core.budget import Life
from taskyard.core.fleet import SWEEP_MS
from taskyard.core.graph.document import Task
from taskyard.core.graph.gate import LISTENING, Edges, EdgeState, gate, known, signals
from taskyard.core.graph.payload import SERVER_KINDS
from taskyard.core.graph.verdict import Handler, Handlers, Tally, counted, unhandled, verdict
from taskyard.core.machine import ACTIVE, ARROWS, BEHIND, LEASED, UNSUCCESSFUL
from taskyard.core.words import Millis, On, Signal
from taskyard.lifecycle import finding
from taskyard.lifecycle.births import OPEN, SERVER_QUEUE
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.finding import Finding, Value
from taskyard.lifecycle.hearing import TELL
from taskyard.store.records import GraphRecord, TaskRecord
from taskyard.store.txn import Txn
from taskyard.store.verbs.care import OpenRow, TellingRow
from taskyard.store.verbs.fleet import dimensions_text
from taskyard.store.verbs.keeping import EventRow

#: How many graphs are summed up at once, and how many tasks and events are in memory.
GRAPHS_MAX: Final = 500
TASKS_MAX: Final = 500
EVENTS_MAX: Final = 5_000
#: Every move that the machine knows.
_MOVES: Final = frozenset(
    (str(arrow.source), str(arrow.signal), str(end)) for arrow in ARROWS for end in (arrow.target, arrow.again) if end
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every column of a task that follows from something else, in the order of `mend_tasks`."""

    awaited: int
    met: int
    broken: int
    impossible: int
    handlers_ran: int
    handlers_hoped: int
    telling: int
    handles: int
    excludes: int
    contends: int
    queue_id: int | None
    due_ms: int | None
    attempt: int
    round: int
    reruns_used: int
    retries_used: int

    def row(self) -> tuple[int | None, ...]:
        """Themselves as `mend_tasks` takes them."""
        return tuple(getattr(self, one.name) for one in fields(self))


@dataclass(slots=True)
class Past:
    """What the events of a task or a graph add up to."""

    state: str | None = None
    attempt: int = 0
    round: int = 1
    reruns_used: int = 0
    retries_used: int = 0
    events: int = 0
    newest: int = 0
    torn: EventRow | None = None  # the first that does not follow from those before it

    def add(self, event: EventRow, first: str | None) -> None:
        """Go on by one event; `first` is where a subject is before any."""
        if event.source != (self.state if self.events else first) or (first is not None and not _legal(event)):
            self.torn = self.torn or event
        self.state, self.newest, self.events = event.target, event.number, self.events + 1
        self.attempt = max(self.attempt, event.attempt or 0)
        if event.signal == Signal.RERUN:
            self.round, self.reruns_used, self.retries_used = self.round + 1, 0, 0
        elif event.target in _AGAIN:
            self.reruns_used += event.signal == Signal.FAIL
            self.retries_used += event.signal == Signal.LOSE


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the numbers of some tasks follow from."""

    edges: Mapping[int, Edges]
    handlers: Mapping[int, Handlers]
    tellings: Mapping[int, TellingRow]
    attempts: Mapping[int, Sequence[OpenRow]]
    definitions: Mapping[int, Task]
    queues: Mapping[str, int]
    pasts: Mapping[int, Past]


def evidence(txn: Txn, tasks: Sequence[TaskRecord], hushed: Collection[int]) -> Evidence:
    """Read what the numbers of tasks follow from. In `hushed` graphs, which are canceled, nobody is told anything."""
    ids = [task.id for task in tasks]
    told = [task for task in tasks if task.graph not in hushed]
    definitions = {id: decoded(text) for id, (_, text) in txn.tasks.definitions(ids).items()}
    tellings = {row.task: row for row in txn.care.tellings(ids, TELL)}
    folded = pasts(txn, ids, str(Life().state))
    attempts: dict[int, list[OpenRow]] = defaultdict(list)
    for row in txn.care.attempts(ids):
        attempts[row.task].append(row)
    texts = {
        dimensions_text(definitions[task.id].slices[task.life.slice_index].dimensions)
        for task in tasks
        if task.id in definitions and task.life.slice_index < len(definitions[task.id].slices)
    }
    return Evidence(
        _edges(txn, [task.id for task in told]),
        _handlers(txn, {task.id: folded[task.id].round for task in told if task.state in UNSUCCESSFUL}),
        tellings,
        attempts,
        definitions,
        txn.queues.with_dimensions(texts),
        folded,
    )


def stored(task: TaskRecord) -> Numbers:
    """Give the numbers of a task as they are stored."""
    edges, handlers, life = task.edges, task.handlers, task.life
    return Numbers(
        edges.awaited,
        edges.met,
        edges.broken,
        edges.impossible,
        handlers.ran,
        handlers.hoped,
        task.telling,
        int(task.handles),
        int(task.excludes),
        int(task.contends),
        task.queue,
        task.due_ms,
        life.attempt,
        life.round,
        life.reruns_used,
        life.retries_used,
    )


def recounted(task: TaskRecord, known_of: Evidence, now: Millis) -> Numbers:
    """Count the numbers of a task afresh; what follows from nothing at the moment stays as it is."""
    edges, past = known_of.edges.get(task.id, task.edges), known_of.pasts[task.id]
    handlers = _hoped(task, known_of)
    definition = known_of.definitions.get(task.id)
    handles, excludes = (task.handles, task.excludes) if definition is None else _flags(definition)
    telling = known_of.tellings.get(task.id)
    return Numbers(
        edges.awaited,
        edges.met,
        edges.broken,
        edges.impossible,
        handlers.ran,
        handlers.hoped,
        0 if telling is None else telling.notes,
        int(handles),
        int(excludes),
        int(task.contends or (excludes and task.state in ACTIVE)),
        task.queue if definition is None else _queue(definition, task.life.slice_index, known_of.queues),
        _due(task, now),
        past.attempt,
        past.round,
        past.reruns_used,
        past.retries_used,
    )


def pasts(txn: Txn, ids: Sequence[int], first: str | None) -> dict[int, Past]:
    """Fold what happened to tasks or graphs."""
    found = {id: Past() for id in ids}
    subject, number = -1, 0
    while ids and (page := txn.care.events(ids, subject, number, EVENTS_MAX)):
        for event in page:
            found[event.subject].add(event, first)
        subject, number = page[-1].subject, page[-1].number
    return found


@dataclass(slots=True)
class _Sum:
    active: int = 0
    behind: int = 0
    unhandled: int = 0
    events: int = 0
    newest: int = 0


@dataclass(slots=True)
class Survey:
    """Some graphs with all of their tasks: `tasks` has to be walked to its end before the graphs are known."""

    txn: Txn
    graphs: Mapping[int, GraphRecord]  # all there are between the first and the last of them
    now: Millis
    notes: Mapping[int, Mapping[str, int]] = field(init=False)
    _sums: dict[int, _Sum] = field(init=False)

    def __post_init__(self) -> None:
        self.notes = self.txn.care.notes(min(self.graphs), max(self.graphs))
        self._sums = {id: _Sum() for id in self.graphs}

    def tasks(self) -> Iterator[Finding]:
        """Say what is wrong with the tasks."""
        graph, after, last = min(self.graphs), -1, max(self.graphs)
        hushed = {one.id for one in self.graphs.values() if one.canceled_ms is not None}
        while page := self.txn.care.tasks(graph, after, last, TASKS_MAX):
            known_of = evidence(self.txn, page, hushed)
            for task in (task for task in page if task.graph in self.graphs):
                numbers = recounted(task, known_of, self.now)
                self._add(task, numbers, known_of.pasts[task.id])
                yield from differences(finding.TASK, task.id, stored(task), numbers)
                yield from _torn(task, known_of)
                yield from _stuck(task, numbers, self.graphs[task.graph], self.notes.get(task.graph, {}))
                yield from _leases(task, numbers.attempt, known_of.attempts.get(task.id, ()))
            graph, after = page[-1].graph, page[-1].id

    def totals(self) -> Iterator[tuple[GraphRecord, "Totals"]]:
        """Give each graph with its numbers as they should be."""
        own = pasts(self.txn, list(self.graphs), None)
        for id, graph in self.graphs.items():
            yield graph, self._totals(graph, own[id])

    def _add(self, task: TaskRecord, numbers: Numbers, past: Past) -> None:
        into, graph = self._sums[task.graph], self.graphs[task.graph]
        into.events += past.events
        into.newest = max(into.newest, past.newest)
        if graph.loader is None and not task.hidden:
            into.active += task.state in ACTIVE
            into.behind += task.state in BEHIND
            into.unhandled += unhandled(task.state, Handlers(numbers.handlers_ran, numbers.handlers_hoped))

    def _totals(self, graph: GraphRecord, own: Past) -> "Totals":
        into = self._sums[graph.id]
        # A note is a promise that something moves by itself.
        tally = Tally(into.active + sum(self.notes.get(graph.id, {}).values()), into.behind, into.unhandled)
        state = graph.state if graph.loader is not None else verdict(tally, graph.canceled_ms is not None)
        newest, events = max(into.newest, own.newest), into.events + own.events
        return Totals(str(state), tally.active, tally.behind, tally.unhandled, newest, events, own.state)


@dataclass(frozen=True, slots=True)
class Totals:
    """What follows from the tasks of a graph."""

    state: str
    active: int
    behind: int
    unhandled: int
    newest: int  # the number of its newest event
    events: int  # how many events there are
    told: str | None  # the state that its newest event told


def differences(kind: str, subject: int, have: Numbers, want: Numbers) -> Iterator[Finding]:
    """Say where two sets of numbers differ. A queue that is not there yet can be made."""
    for one in fields(have):
        before, after = getattr(have, one.name), getattr(want, one.name)
        if before != after:
            yield Finding(kind, subject, one.name, before, after)


def graph_findings(graph: GraphRecord, totals: Totals) -> Iterator[Finding]:
    """Say what is wrong with a graph."""
    pairs: tuple[tuple[str, Value, Value], ...] = (
        ("state", str(graph.state), totals.state),
        ("active", graph.tally.active, totals.active),
        ("behind", graph.tally.behind, totals.behind),
        ("unhandled", graph.tally.unhandled, totals.unhandled),
        ("events", graph.events, totals.newest),
    )
    for column, have, want in pairs:
        if have != want:
            yield Finding(finding.GRAPH, graph.id, column, have, want)
    if totals.events != totals.newest:
        yield Finding(finding.GRAPH, graph.id, "number of events", totals.events, totals.newest, mendable=False)


def _edges(txn: Txn, ids: Sequence[int]) -> dict[int, Edges]:
    counts: dict[int, dict[EdgeState, int]] = {id: dict.fromkeys(EdgeState, 0) for id in ids}
    for row in txn.care.heard(ids, TELL):
        counts[row.task][known(row.on, row.state)] += row.edges
    return {id: Edges(*each.values()) for id, each in counts.items()}


def _handlers(txn: Txn, rounds: Mapping[int, int]) -> dict[int, Handlers]:
    found = dict.fromkeys(rounds, Handlers())
    for row in txn.care.handlers(list(rounds), TELL):
        adds, had = counted(Handler(row.state, row.ran_for), rounds[row.task]), found[row.task]
        found[row.task] = Handlers(had.ran + adds.ran * row.handlers, had.hoped + adds.hoped * row.handlers)
    return found


def _hoped(task: TaskRecord, known_of: Evidence) -> Handlers:
    """Give the handlers of a task; a failure that is still being told is a hope of its own."""
    handlers, telling = known_of.handlers.get(task.id), known_of.tellings.get(task.id)
    if handlers is None:
        return task.handlers
    if telling is not None and telling.target in UNSUCCESSFUL:
        return Handlers(handlers.ran, handlers.hoped + 1)
    return handlers


def _flags(definition: Task) -> tuple[bool, bool]:
    handles = any(edge.on is not On.SUCCESS for edge in definition.requires)
    return handles, bool(definition.mutexes or definition.limits)


def _queue(definition: Task, index: int, queues: Mapping[str, int]) -> int | None:
    if index >= len(definition.slices):
        return None
    one = definition.slices[index]
    return SERVER_QUEUE if one.kind in SERVER_KINDS else queues.get(dimensions_text(one.dimensions))


def _due(task: TaskRecord, now: Millis) -> int | None:
    """Say when the clock has to look at a task: as it was when it moved, or as it is by now."""
    until = None if task.lease_until_ms is None else Millis(task.lease_until_ms)
    then, today = (budget.due_at(task.life, task.rules, until, at) for at in (Millis(task.moved_ms), now))
    # What is due and cannot be dealt with is put off until the next sweep.
    put_off = task.due_ms is not None and today is not None and today <= now < task.due_ms <= now + SWEEP_MS
    return task.due_ms if put_off or task.due_ms in {then, today} else then


def _torn(task: TaskRecord, known_of: Evidence) -> Iterator[Finding]:
    """Compare a task with what happened to it. Nobody can say which of the two is right."""
    past = known_of.pasts[task.id]
    if past.torn is not None:
        told = f"{past.torn.signal} from {past.torn.source} to {past.torn.target}"
        yield Finding(finding.EVENT, task.id, f"event {past.torn.number}", told, "an arrow from where it was", False)
    last = past.state or str(Life().state)
    if last != task.state:
        yield Finding(finding.TASK, task.id, "state", str(task.state), last, mendable=False)
    if task.id not in known_of.definitions:
        yield Finding(finding.TASK, task.id, "definition", None, "there", mendable=False)


def _stuck(task: TaskRecord, numbers: Numbers, graph: GraphRecord, notes: Mapping[str, int]) -> Iterator[Finding]:
    """Find who should have moved when its last edge did: a wake-up was lost."""
    if task.state not in LISTENING or task.hidden or graph.loader is not None or OPEN in notes:
        return
    edges = Edges(numbers.awaited, numbers.met, numbers.broken, numbers.impossible)
    wished = signals(task.state, gate(edges, task.join, task.on_impossible), graph.canceled_ms is not None)
    if wished:
        yield Finding(finding.TASK, task.id, "gate", "unasked", str(wished[0]))


def _leases(task: TaskRecord, number: int, attempts: Sequence[OpenRow]) -> Iterator[Finding]:
    """Compare the attempts of a task with its lease: the latest is open while it is leased, and no other ever."""
    last = attempts[-1].number if attempts else 0
    if last != number:
        yield Finding(finding.ATTEMPT, task.id, "latest", last, number, mendable=False)
    for row in attempts:
        leased = row.number == number and task.state in LEASED
        if leased is not (row.ended_ms is None):
            is_open, should = ("ended", "open") if leased else ("open", "ended")
            yield Finding(finding.ATTEMPT, task.id, f"end of {row.number}", is_open, should)
        if leased and row.bot != task.bot:
            yield Finding(finding.ATTEMPT, task.id, f"bot of {row.number}", row.bot, task.bot)
        if leased and row.fence != task.fence:
            yield Finding(finding.ATTEMPT, task.id, f"fence of {row.number}", row.fence, task.fence)


def _legal(event: EventRow) -> bool:
    return (event.source or "", event.signal or "", event.target) in _MOVES


#: Where an attempt that is tried again leads.
_AGAIN: Final = frozenset(str(arrow.again) for arrow in ARROWS if arrow.again)
