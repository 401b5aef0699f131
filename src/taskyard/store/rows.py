"""Records: rows of the hot tables as the rooms see them.

A `TaskRecord` is the one thing here that changes: the corridor moves it and then writes it. What a task was promised
(`Rules`) is kept as text on its row, empty for the defaults that most tasks have.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from taskyard.core.attempt_policy import Life, Rules
from taskyard.core.graph.gate import Edges
from taskyard.core.graph.state import Handlers, Tally
from taskyard.core.states import GraphState, Impossible, Join, Millis, Signal, State
from taskyard.core.structs import value
from taskyard.store.queries import Row

_STATES = {state.value: state for state in State}
_SIGNALS = {signal.value: signal for signal in Signal} | {None: None}
_JOINS = {join.value: join for join in Join}
_IMPOSSIBLES = {policy.value: policy for policy in Impossible}
_DEFAULT = Rules()
_NO_HANDLERS = Handlers()
_READER = msgspec.json.Decoder(Rules)
#: Rules repeat within a graph, and most graphs are alike.
_RULES_KEPT = 10_000


class TaskRecord(msgspec.Struct, gc=False):
    """A task: its life, and everything a step needs to know at once."""

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
    is_constrained: bool
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
    stored: State  # where the database has it

    @property
    def state(self) -> State:
        return self.life.state

    def ready(self, source: State) -> Row:
        """Itself as `move_ready_tasks` takes it."""
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

    def started(self, source: State) -> Row:
        """Itself as `move_started_tasks` takes it."""
        return (*self._moved(source), self.life.attempt, self.bot, self.fence, self.lease_until_ms, self.due_ms)

    # The two that every task takes are written out: a tuple within a tuple costs as much again.

    def sent(self, source: State) -> Row:
        """Itself as `move_sent_tasks` takes it."""
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

    def ended(self, source: State) -> Row:
        """Itself as `move_ended_tasks` takes it."""
        life = self.life
        ended = None if life.ended is None else life.ended.text
        return (self.id, self.stored.text, source.text, life.state.text, self.reason, self.moved_ms, ended)

    def carried(self, source: State) -> Row:
        """Itself as `move_tasks` takes it."""
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
            handlers.hoped,
            self.open_continuations,
            int(self.needs_admission),
            self.queue,
            self.bot,
            self.avoid_bot,
            self.fence,
            self.lease_until_ms,
            self.due_ms,
        )

    def _moved(self, source: State) -> tuple[int, str, str, str, str, int]:
        return (self.id, self.stored.text, source.text, self.life.state.text, self.reason, self.moved_ms)

    def kept(self) -> Row:
        """Itself as `update_unmoved_tasks` takes it."""
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
            handlers.hoped,
            self.open_continuations,
            int(self.needs_admission),
            self.life.waits_since_ms,
            self.lease_until_ms,
            self.due_ms,
        )


def task_record(row: Row) -> TaskRecord:
    """Read a row of `lock_tasks`."""
    (
        id, graph, state, reason, moved_ms, attempt, began_after, ended, round, reruns_used, retries_used, slice_index,
        waits_since_ms, not_before_ms, rules, kind, priority, created_ms, weight, join, on_impossible, is_handler,
        is_constrained, awaited, met, broken, impossible, ran, hoped, open_continuations, needs_admission, queue, bot,
        avoid_bot, fence, lease_until_ms, due_ms, loading,
    ) = row  # fmt: skip
    stored = _STATES[state]
    # One argument after the other: a call that spreads a tuple takes twice as long.
    life = Life(
        stored, attempt, began_after, _SIGNALS[ended], round, reruns_used, retries_used, slice_index, waits_since_ms,
        not_before_ms,
    )  # fmt: skip
    return TaskRecord(
        id, graph, life, reason, moved_ms, decode_rules(rules) if rules else _DEFAULT, kind, priority, created_ms,
        weight, _JOINS[join], _IMPOSSIBLES[on_impossible], is_handler == 1, is_constrained == 1,
        Edges(awaited, met, broken, impossible),
        Handlers(ran, hoped) if ran or hoped else _NO_HANDLERS, open_continuations, needs_admission == 1, queue, bot,
        avoid_bot, fence, lease_until_ms, due_ms, loading == 1, stored,
    )  # fmt: skip


def new_task_record(row: Row) -> TaskRecord:
    """Read a row of `insert_tasks`: just what `lock_tasks` would find."""
    (
        id, graph, state, reason, moved_ms, not_before_ms, rules, kind, priority, created_ms, weight, join,
        on_impossible, is_handler, is_constrained, awaited, met, broken, impossible, queue, due_ms, loading,
    ) = row  # fmt: skip
    stored = _STATES[state]
    return TaskRecord(
        id, graph, Life(stored, not_before_ms=not_before_ms), reason, moved_ms,
        decode_rules(rules) if rules else _DEFAULT, kind, priority, created_ms, weight, _JOINS[join],
        _IMPOSSIBLES[on_impossible], is_handler == 1, is_constrained == 1, Edges(awaited, met, broken, impossible),
        _NO_HANDLERS, 0, False, queue, None, None, 0, None, due_ms, loading == 1, stored,
    )  # fmt: skip


@value
class GraphRecord:
    """A graph: its state, what it counts, and whether people can still change it."""

    id: int
    state: GraphState
    tally: Tally
    events: int
    extensions: int
    created_ms: Millis
    canceled_ms: Millis | None
    loader: str | None
    parent: int | None = None  # the task that it is inside of,
    parent_attempt: int | None = None  # and the attempt of it that it is


@value
class CallingBot:
    """A bot that speaks: its session, its latest polls, and the version of what is known about it."""

    session: str
    recent_polls: str  # a line each, the newest first
    missing: bool
    version: int
    pool: str | None = None  # to which its name belongs; None once an admin has freed it


def graph_record(row: Row) -> GraphRecord:
    """Read a row of `lock_graphs`."""
    return GraphRecord(row[0], GraphState(row[1]), Tally(*row[2:5]), *row[5:])


@value
class Continuation:
    """A promise that did not fit into one transaction."""

    id: int
    kind: str
    graph: int
    task: int | None
    source: str | None
    target: str | None
    cursor: int
    tasks: str
    actor: str


def notes_of(rows: Sequence[Row]) -> list[Continuation]:
    """Read rows of notes."""
    return [Continuation(*row) for row in rows]


def encode_rules(rules: Rules) -> str:
    """Write rules down; the defaults are the empty text."""
    return "" if rules == _DEFAULT else msgspec.json.encode(rules).decode()


@lru_cache(maxsize=_RULES_KEPT)
def decode_rules(text: str) -> Rules:
    """Read rules."""
    return _READER.decode(text) if text else _DEFAULT
