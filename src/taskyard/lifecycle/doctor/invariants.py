"""Invariants of tasks and graphs: what must hold at every commit. A broken one is reported, and left to a person."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from taskyard.core.graph.gate import LISTENING, Edges, gate, signals
from taskyard.core.graph.model import Mutex, Task
from taskyard.core.ids import Key, block_of, text_of
from taskyard.core.states import LEASED, Impossible, Join, Signal, State
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.doctor.finding import ATTEMPT, EVENT, GRAPH, TASK, Finding, Value, broken
from taskyard.lifecycle.doctor.recount import GraphCounts, GraphFacts, GraphSum, TaskFacts, rules_of
from taskyard.lifecycle.doctor.replay import Replay, replays
from taskyard.lifecycle.rows import OPEN
from taskyard.store.connection import Repo
from taskyard.store.repo.doctor import CheckedAttempt, TaskRow
from taskyard.store.repo.events import EventRow

#: How many attempts are read at once.
ATTEMPTS_MAX: Final = 5_000
#: The columns of a task that follow from its events. A repair writes none of them.
_REPLAYED: Final = ("state", "attempt", "round", "reruns_used", "retries_used")


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows that belong to some tasks."""

    replays: Mapping[int, Replay]
    attempts: Mapping[int, Sequence[CheckedAttempt]]
    definitions: Mapping[int, tuple[int, str]]  # graph and text
    mutexes: Mapping[int, Sequence[Mutex]]
    limits: Mapping[int, Sequence[tuple[str, int]]]


def task_rows(repo: Repo, ids: Collection[int]) -> TaskRows:
    """Read the rows that belong to tasks."""
    return TaskRows(
        replays(repo, ids, of_tasks=True),
        _attempts(repo, ids),
        repo.doctor.definitions(ids),
        repo.admission.mutexes_of(ids),
        repo.admission.limits_of(ids),
    )


def _attempts(repo: Repo, ids: Collection[int]) -> dict[int, list[CheckedAttempt]]:
    found: dict[int, list[CheckedAttempt]] = defaultdict(list)
    task, number = -1, 0
    while ids and (page := repo.doctor.attempts(ids, task, number, ATTEMPTS_MAX)):
        for row in page:
            found[row.task_id].append(row)
        task, number = page[-1].task_id, page[-1].number
    return found


# Tasks.


def check_task(task: TaskRow, rows: TaskRows, facts: TaskFacts, graph: GraphFacts) -> Iterator[Finding]:
    """Report the broken invariants of a task."""
    replay, attempts = rows.replays[task.id], rows.attempts.get(task.id, ())
    yield from _check_replay(task, replay)
    yield from _check_attempts(task, replay, attempts)
    if task.loading and (replay.count or not graph.may_have_loading_tasks):
        yield broken(TASK, task.id, "loading", task.loading, 0)
    if rules_of(task) is None:
        yield broken(TASK, task.id, "rules", task.rules, "rules of a task")
    yield from _check_definition(task, rows, facts, graph)


def unasked_gate(task: TaskRow, graph: GraphFacts) -> Iterator[Finding]:
    """Report a task that its edges should have moved: a wake-up was lost. Its counts have to be right."""
    if not graph.counts(task) or OPEN in graph.continuations:
        return
    wanted = _wanted_by_gate(task, graph)
    if wanted:
        yield Finding(TASK, task.id, "gate", "unasked", str(wanted[0]))


def _check_replay(task: TaskRow, replay: Replay) -> Iterator[Finding]:
    """Compare a task with its events."""
    if replay.gap is not None:
        yield broken(
            EVENT, task.id, f"event {replay.gap.number}", _transition(replay.gap), "a transition from its state"
        )
    for column in _REPLAYED if replay.gap is None else ("state",):
        stored, replayed = getattr(task, column), getattr(replay, column)
        if stored != replayed:
            yield broken(TASK, task.id, column, stored, replayed)
    for graph in sorted(replay.graphs - {task.graph_id}):
        yield broken(EVENT, task.id, "graph_id", text_of(Key(graph)), text_of(Key(task.graph_id)))


def _check_attempts(task: TaskRow, replay: Replay, attempts: Sequence[CheckedAttempt]) -> Iterator[Finding]:
    """Attempts are those of the events and follow one another; the last is open if the task is leased; fences rise."""
    for number in sorted(replay.ends.keys() ^ {one.number for one in attempts}):
        have, want = (None, "there") if number in replay.ends else ("there", None)
        yield broken(ATTEMPT, task.id, f"row of {number}", have, want)
    for one in attempts:
        for column, stored, wanted in _columns(one, task, replay):
            if stored != wanted:
                yield broken(ATTEMPT, task.id, f"{column} of {one.number}", stored, wanted)
    for one, following in pairwise(attempts):
        if one.fence >= following.fence:
            yield broken(ATTEMPT, task.id, f"fence of {following.number}", following.fence, f"above {one.fence}")
        if one.ended_ms is not None and one.ended_ms > following.claimed_ms:
            yield broken(ATTEMPT, task.id, f"ended_ms of {one.number}", one.ended_ms, "before the next attempt")


def _columns(one: CheckedAttempt, task: TaskRow, replay: Replay) -> Iterator[tuple[str, Value, Value]]:
    """Return columns of an attempt with the values that they should have."""
    is_last = one.number == task.attempt
    if (one.ended_ms is None) != (is_last and task.state in LEASED):
        yield "ended_ms", one.ended_ms, "a time" if one.ended_ms is None else None
    yield "block", one.block, block_of(task.id)
    yield "signal", one.signal, replay.ends.get(one.number, one.signal)
    if is_last:
        yield "fence", one.fence, task.fence
        yield "bot_id", one.bot_id, task.bot_id or one.bot_id


def _check_definition(task: TaskRow, rows: TaskRows, facts: TaskFacts, graph: GraphFacts) -> Iterator[Finding]:
    """A task has the edges, mutexes and limits of its definition."""
    stored = rows.definitions.get(task.id)
    definition = None if stored is None else _decoded(stored[1])
    if stored is None or definition is None:
        yield broken(TASK, task.id, "definition", None if stored is None else "unreadable", "there")
        return
    if stored[0] != task.graph_id:
        wanted = text_of(Key(task.graph_id))
        yield broken(TASK, task.id, "graph_id of its definition", text_of(Key(stored[0])), wanted)
    if not graph.counts(task):
        return  # the pages with its edges may not be there yet
    edges = facts.edges.get(task.id, Edges()).count, len({(one.task, one.on) for one in definition.requires})
    mutexes, limits = rows.mutexes.get(task.id, ()), rows.limits.get(task.id, ())
    for column, have, want in (
        ("edges", *edges),
        ("mutexes", _mutexes(mutexes), _mutexes(definition.mutexes)),
        ("limits", _limits(limits), _limits(definition.limits)),
    ):
        if have != want:
            yield broken(TASK, task.id, column, have, want)


def _decoded(definition: str) -> Task | None:
    try:
        return decoded(definition)
    except msgspec.MsgspecError:
        return None


def _mutexes(mutexes: Sequence[Mutex]) -> str | None:
    return ", ".join(sorted(one.key if one.party is None else f"{one.key} as {one.party}" for one in mutexes)) or None


def _limits(limits: Sequence[tuple[str, int]]) -> str | None:
    return ", ".join(f"{amount} of {name}" for name, amount in sorted(limits)) or None


def _wanted_by_gate(task: TaskRow, graph: GraphFacts) -> Sequence[Signal]:
    if task.state not in LISTENING or task.join_rule not in set(Join) or task.on_impossible not in set(Impossible):
        return ()
    edges = Edges(task.awaited, task.met, task.broken, task.impossible)
    asked = gate(edges, Join(task.join_rule), Impossible(task.on_impossible))
    return signals(State(task.state), asked, graph.is_canceled)


# Graphs.


def check_graph(graph: GraphFacts, tasks: GraphSum, wanted: GraphCounts) -> Iterator[Finding]:
    """Report the broken invariants of a graph."""
    id, record, replay = graph.record.id, graph.record, graph.replay
    if replay.gap is not None:
        yield broken(GRAPH, id, f"event {replay.gap.number}", _transition(replay.gap), "a turn from its state")
    if tasks.events + replay.count != wanted.events:
        yield broken(GRAPH, id, "number of events", tasks.events + replay.count, wanted.events)
    for other in sorted(replay.graphs - {id}):
        yield broken(GRAPH, id, "graph of events", text_of(Key(other)), text_of(Key(id)))
    if record.loader is not None and replay.count:
        yield broken(GRAPH, id, "loader", record.loader, None)
    if graph.is_cancel_disputed:
        yield broken(GRAPH, id, "canceled_ms", record.canceled_ms, None if graph.is_canceled else "a time")
    if not graph.extras.is_defined:
        yield broken(GRAPH, id, "definition", None, "there")


def settled_unnoticed(graph: int) -> Finding:
    """Report a graph that has settled inside a task that goes on: its task has to end."""
    return Finding(GRAPH, graph, "rest", "unnoticed", "the end of its task")


def _transition(event: EventRow) -> str:
    return f"{event.signal or 'a turn'} from {event.source} to {event.target}"
