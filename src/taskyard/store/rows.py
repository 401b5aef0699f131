"""Rows of the tables that every command uses, as Python objects.

A `TaskRecord` is mutable: the transaction changes it and writes it. Its retry rules are stored as JSON on its row, and
as the empty text for the defaults that most tasks have.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from taskyard.core.attempt_policy import Life, Rules
from taskyard.core.graph.gate import Edges
from taskyard.core.graph.state import Handlers, Tally
from taskyard.core.states import GONE_WRONG, GraphState, Impossible, Join, Millis, Signal, State
from taskyard.core.structs import value
from taskyard.store.queries import Row

#: The part of `task.is_constrained` that a task updates a resource, so that links may wait for its end.
UPDATES: Final = 4

_STATES = {state.value: state for state in State}
_SIGNALS = {signal.value: signal for signal in Signal} | {None: None}
_JOINS = {join.value: join for join in Join}
_IMPOSSIBLES = {policy.value: policy for policy in Impossible}
_DEFAULT = Rules()
_NO_HANDLERS = Handlers()
_READER = msgspec.json.Decoder(Rules)
#: Most tasks share their rules with others.
_RULES_CACHED = 10_000


class TaskRecord(msgspec.Struct, gc=False):
    """A task: its life, and everything that a transition needs to know."""

    id: int
    graph: int
    life: Life
    reason: str
    moved_ms: int
    rules: Rules
    kind: str
    priority: int
    created_ms: int
    weight: int
    join: Join
    on_impossible: Impossible
    is_handler: bool
    is_constrained: bool  # it names mutexes, limits or secrets
    is_update: bool  # it updates a resource
    edges: Edges
    handlers: Handlers
    open_continuations: int
    needs_admission: bool
    queue: int
    bot: str | None
    avoid_bot: str | None
    fence: int
    lease_until_ms: Millis | None
    due_ms: Millis | None
    loading: bool
    stored: State  # the state in the database

    @property
    def state(self) -> State:
        return self.life.state

    def ready_row(self, source: State) -> Row:
        """Return the parameters of `move_ready_tasks`."""
        life, edges = self.life, self.edges
        return (
            *self._moved(source),
            life.waits_since_ms,
            life.not_before_ms,
            edges.awaited,
            edges.met,
            edges.broken,
            edges.impossible,
            self.due_ms,
        )

    def started_row(self, source: State) -> Row:
        """Return the parameters of `move_started_tasks`."""
        return (*self._moved(source), self.life.attempt, self.bot, self.fence, self.lease_until_ms, self.due_ms)

    # The next two are on the path of every task and are written out: `*self._moved(source)` would double their cost.

    def sent_row(self, source: State) -> Row:
        """Return the parameters of `move_sent_tasks`."""
        life, edges = self.life, self.edges
        return (
            self.id,
            self.stored.text,
            source.text,
            life.state.text,
            self.reason,
            self.moved_ms,
            life.attempt,
            self.bot,
            self.fence,
            self.lease_until_ms,
            self.due_ms,
            edges.awaited,
            edges.met,
            edges.broken,
            edges.impossible,
        )

    def ended_row(self, source: State) -> Row:
        """Return the parameters of `move_ended_tasks`."""
        life = self.life
        ended = None if life.ended is None else life.ended.text
        return (self.id, self.stored.text, source.text, life.state.text, self.reason, self.moved_ms, ended)

    def move_row(self, source: State) -> Row:
        """Return the parameters of `move_tasks`."""
        life, edges, handlers = self.life, self.edges, self.handlers
        return (
            *self._moved(source),
            life.attempt,
            life.began_after,
            None if life.ended is None else life.ended.text,
            life.round,
            life.reruns_used,
            life.retries_used,
            life.slice_index,
            life.waits_since_ms,
            life.not_before_ms,
            edges.awaited,
            edges.met,
            edges.broken,
            edges.impossible,
            handlers.ran,
            handlers.open,
            self.open_continuations,
            int(self.needs_admission),
            self.queue,
            self.bot,
            self.avoid_bot,
            self.fence,
            self.lease_until_ms,
            self.due_ms,
            life.state.text if life.state in GONE_WRONG else None,
        )

    def _moved(self, source: State) -> tuple[int, str, str, str, str, int]:
        return (self.id, self.stored.text, source.text, self.life.state.text, self.reason, self.moved_ms)

    def unmoved_row(self) -> Row:
        """Return the parameters of `update_unmoved_tasks`."""
        edges, handlers = self.edges, self.handlers
        return (
            self.id,
            self.life.state.text,
            self.reason,
            edges.awaited,
            edges.met,
            edges.broken,
            edges.impossible,
            handlers.ran,
            handlers.open,
            self.open_continuations,
            int(self.needs_admission),
            self.life.waits_since_ms,
            self.fence,
            self.lease_until_ms,
            self.due_ms,
        )


def task_record(row: Row) -> TaskRecord:
    """Read a row of `lock_tasks`."""
    (
        id, graph, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used, slice_index,
        waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join, on_impossible, is_handler,
        is_constrained, awaited, met, broken, impossible, ran, may_run, open_continuations, needs_admission, queue, bot,
        avoid_bot, fence, lease_until_ms, due_ms, loading,
    ) = row  # fmt: skip
    stored = _STATES[state]
    # The arguments are written out: a call that unpacks a tuple takes twice as long.
    life = Life(
        stored, attempt, began_after, _SIGNALS[ended], round, reruns_used, retries_used, slice_index, waits_since_ms,
        not_before_ms,
    )  # fmt: skip
    return TaskRecord(
        id, graph, life, reason, moved_ms, decode_rules(rules) if rules else _DEFAULT, kind, priority, created_ms,
        weight, _JOINS[join], _IMPOSSIBLES[on_impossible], is_handler == 1, is_constrained != 0,
        is_constrained & UPDATES != 0, Edges(awaited, met, broken, impossible),
        Handlers(ran, may_run) if ran or may_run else _NO_HANDLERS, open_continuations, needs_admission == 1, queue,
        bot, avoid_bot, fence, lease_until_ms, due_ms, loading == 1, stored,
    )  # fmt: skip


def new_task_record(row: Row) -> TaskRecord:
    """Read a row of `insert_tasks`; gives the same as `lock_tasks` would."""
    (
        id, graph, state, reason, moved_ms, not_before_ms, rules, kind, priority, created_ms, weight, join,
        on_impossible, is_handler, is_constrained, awaited, met, broken, impossible, queue, due_ms, loading, _,
    ) = row  # fmt: skip
    stored = _STATES[state]
    return TaskRecord(
        id, graph, Life(stored, not_before_ms=not_before_ms), reason, moved_ms,
        decode_rules(rules) if rules else _DEFAULT, kind, priority, created_ms, weight, _JOINS[join],
        _IMPOSSIBLES[on_impossible], is_handler == 1, is_constrained != 0, is_constrained & UPDATES != 0,
        Edges(awaited, met, broken, impossible), _NO_HANDLERS, 0, False, queue, None, None, 0, None, due_ms,
        loading == 1, stored,
    )  # fmt: skip


@value
class GraphRecord:
    """A graph: its state, its counts, and whether it can still be changed."""

    id: int
    state: GraphState
    tally: Tally
    events: int
    extensions: int
    created_ms: Millis
    canceled_ms: Millis | None
    loader: str | None
    parent: int | None = None  # the task that runs this graph
    parent_attempt: int | None = None  # the attempt of that task


@value
class CallingBot:
    """What a poll needs to know of its bot: the session, the latest polls, and how often the row has changed."""

    session: str
    recent_polls: str  # one per line, newest first
    missing: bool
    changes: int
    pool: str | None = None  # to which its name belongs; None once an admin has released the name


def graph_record(row: Row) -> GraphRecord:
    """Read a row of `lock_graphs`."""
    return GraphRecord(row[0], GraphState(row[1]), Tally(*row[2:5]), *row[5:])


@value
class Continuation:
    """Work that did not fit into one transaction."""

    id: int
    kind: str
    graph: int
    task: int | None
    source: str | None
    target: str | None
    cursor: int
    tasks: str
    actor: str


def continuations(rows: Sequence[Row]) -> list[Continuation]:
    """Read rows of `continuation`."""
    return [Continuation(*row) for row in rows]


def encode_rules(rules: Rules) -> str:
    """Encode retry rules; the defaults are the empty text."""
    return "" if rules == _DEFAULT else msgspec.json.encode(rules).decode()


@lru_cache(maxsize=_RULES_CACHED)
def decode_rules(text: str) -> Rules:
    """Decode retry rules."""
    return _READER.decode(text) if text else _DEFAULT
