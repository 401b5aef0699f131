"""Repository of events, audit, idempotency keys, continuations and servers.

A row of `event` holds the facts of one transaction about one subject. A fact is a short JSON array: the transition,
then the attempt, the bot and the reason, as far as there are any. A transition is three letters for its source, its
signal and its target: `wCr` is a task that waited, was claimed and is running. Every task has at least four facts;
written as words they were a third of all bytes that a task writes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from taskyard.core.events import EXTEND
from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session
from taskyard.store.rows import Continuation, continuations

_Name = str | None

#: What a repair gives as the state of a graph, where a stored fact cannot be decoded.
UNREADABLE: Final = "unreadable"
#: One letter per state of a task or graph, and per signal. Databases store them: letters may be added, and are never
#: changed or used again.
STATE_LETTERS: Final[Mapping[_Name, str]] = {
    None: "-",
    "unscheduled": "u",
    "blocked": "b",
    "pending": "p",
    "waiting": "w",
    "running": "r",
    "stopping": "t",
    "successful": "s",
    "failed": "f",
    "error": "e",
    "canceled": "c",
    "canceling": "g",
    "skipped": "k",
    "finished": "d",
    UNREADABLE: "?",
}
SIGNAL_LETTERS: Final[Mapping[_Name, str]] = {
    None: "-",
    "release": "R",
    "block": "B",
    "doom": "D",
    "skip": "S",
    "mend": "M",
    "reuse": "U",
    "admit": "A",
    "unadmit": "N",
    "claim": "C",
    "succeed": "Y",
    "fail": "F",
    "lose": "L",
    "return": "V",
    "expire": "X",
    "deadline": "Z",
    "cancel": "K",
    "rerun": "G",
    EXTEND: "E",
}
_MOVES: Final = {
    f"{at}{by}{to}": (source, target, signal)
    for source, at in STATE_LETTERS.items()
    for signal, by in SIGNAL_LETTERS.items()
    for target, to in STATE_LETTERS.items()
    if target is not None
}
#: Some thousand bots and some dozen reasons.
_NAMES_KEPT: Final = 10_000


#: One transition of a subject: source, target, signal, attempt, bot and reason.
Fact: TypeAlias = tuple[_Name, str, _Name, int | None, _Name, _Name]


class MalformedFacts(ValueError):
    """The text is no list of facts."""


class _Written(msgspec.Struct, array_like=True):
    """A fact as it is stored."""

    move: str
    attempt: int | None = None
    bot: _Name = None
    reason: _Name = None


_READER: Final = msgspec.json.Decoder(list[_Written])


def encode_fact(move: str, attempt: int | None, bot: _Name, reason: _Name) -> str:
    """Encode one fact: the transition (from `spelled`), the attempt, the bot and the reason."""
    if bot is None:
        return _without_bot(move, attempt, reason)
    if reason is None:
        return f"[{move},{attempt or 'null'},{_quoted(bot)}]"
    return f"[{move},{attempt or 'null'},{_quoted(bot)},{_quoted(reason)}]"


def encode_transition(source: _Name, target: str, signal: _Name) -> str:
    """Encode a transition: its source, its signal and its target."""
    return f'"{STATE_LETTERS[source]}{SIGNAL_LETTERS[signal]}{STATE_LETTERS[target]}"'


def decode_facts(facts: str) -> list[Fact]:
    """Decode the facts of a row; raise `Unreadable` if that fails."""
    try:
        return [(*_MOVES[one.move], one.attempt, one.bot, one.reason) for one in _READER.decode(facts)]
    except (KeyError, msgspec.MsgspecError) as fault:
        raise MalformedFacts(facts) from fault


@lru_cache(maxsize=_NAMES_KEPT)
def _without_bot(move: str, attempt: int | None, reason: _Name) -> str:
    """Encode a fact without a bot; many tasks have equal ones."""
    if not attempt and reason is None:
        return f"[{move}]"
    return f"[{move},{attempt or 'null'},null,{_quoted(reason)}]"


@lru_cache(maxsize=_NAMES_KEPT)
def _quoted(name: _Name) -> str:
    return msgspec.json.encode(name).decode()


@value
class EventRow:
    """One stored fact. Its id is its graph and its number."""

    subject: int
    number: int
    graph: int
    at_ms: int
    source: str | None
    target: str
    signal: str | None
    attempt: int | None
    bot: str | None
    reason: str | None


#: A graph, its number of events before, and facts about subjects, in order: each pair is a row.
Happened: TypeAlias = tuple[int, int, Iterable[tuple[int, Sequence[str]]]]


def event_rows(row: Row) -> list[EventRow]:
    """Decode a row of `event`: the facts of one transaction about one subject."""
    subject, last, graph, at_ms, text = row
    facts = decode_facts(text)
    return [EventRow(subject, number, graph, at_ms, *fact) for number, fact in enumerate(facts, last - len(facts) + 1)]


@value
class OutboxRow:
    """A row of `event` that is not published yet: its graph, the number of its last fact, and how many it has."""

    graph: int
    number: int
    at_ms: int
    facts: int


def _fact_count(facts: str) -> int:
    """Count the facts of a row; what cannot be decoded is none."""
    try:
        return len(decode_facts(facts))
    except MalformedFacts:
        return 0


@value
class AuditRow:
    """A request of a person."""

    at_ms: int
    actor: str
    action: str
    subject: int
    note: str


@value
class ServerRow:
    """A server: since when it has been up without a gap, and when it last reported."""

    name: str
    since_ms: int
    seen_ms: int


class EventRepo:
    """The tables `event`, `audit` and `idempotency_key`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, at: Millis, happened: Sequence[Happened]) -> None:
        """Insert events that have just happened; they are not published yet."""
        events: list[Row] = []
        for graph, before, subjects in happened:
            number = before
            for subject, facts in subjects:
                number += len(facts)
                events.append((graph, number, subject, at, f"[{','.join(facts)}]"))
        self._session.execute_many("insert_events", events)

    def of(self, subject: int, after: int, count: int) -> list[EventRow]:
        """Return the events of a task or a graph after a number, in order: at least `count`, if there are so many."""
        found = self._session.fetch("select_events_of_subject", subject, after, count)
        return [event for row in found for event in event_rows(row) if event.number > after]

    def in_graph(self, graph: int, after: int, count: int) -> list[EventRow]:
        """Return all events in a graph after a number, in order: at least `count`, if there are so many."""
        found = self._session.fetch("select_events_in_graph", graph, after, count)
        return [event for row in found for event in event_rows(row) if event.number > after]

    def unpublished(self, count: int) -> list[OutboxRow]:
        """Return rows of events that are not published yet, in order per graph."""
        found = self._session.fetch("select_unpublished_events", count)
        return [OutboxRow(graph, number, at_ms, _fact_count(text)) for _, number, graph, at_ms, text in found]

    def mark_published(self, rows: Sequence[Row]) -> None:
        """Mark the events of graphs as published: graph, and up to which number."""
        self._session.execute_many("update_published", rows)

    def add_audits(self, rows: Sequence[Row]) -> None:
        """Insert audit rows: time, actor, action, subject, note."""
        self._session.execute_many("insert_audits", rows)

    def audits_of(self, subject: int, count: int) -> list[AuditRow]:
        """Return the audit of a task or a graph."""
        return [AuditRow(*row) for row in self._session.fetch("select_audits_of_subject", subject, count)]

    def page_audits(self, subject: int | None, before: int, count: int) -> list[tuple[int, AuditRow]]:
        """Return the audit, or that of one task or graph, before a row number, newest first."""
        if subject is None:
            found = self._session.fetch("select_audit_page", before, count)
        else:
            found = self._session.fetch("select_audit_page_of_subject", subject, before, count)
        return [(row[0], AuditRow(*row[1:])) for row in found]

    def answers(self, keys: Collection[str]) -> dict[str, tuple[str, str]]:
        """Return the responses stored for idempotency keys: the digest of the request, the response."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("select_responses", keys)} if keys else {}

    def add_answers(self, rows: Sequence[Row], graph: int | None = None) -> None:
        """Store answers to idempotency keys: key, digest, answer, time; and the graph that they created."""
        self._session.execute_many("insert_responses", [(*row, graph) for row in rows])

    def delete_old_answers(self, before: Millis, count: int) -> int:
        """Delete some responses stored before a time, oldest first; return how many."""
        return self._session.execute("delete_old_responses", before, count)


@value
class StreamState:
    """The state of the stream of events that followers read."""

    last: int  # the number of the newest event
    gone: int  # up to which number events are not kept any more
    wanted_until_ms: int  # until when events are numbered
    since_ms: int  # events from before are not numbered,
    skipped: bool  # and whether all of them have been passed over


class StreamRepo:
    """The tables `event_stream` and `streamed_event`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self) -> StreamState:
        """Return the state of the stream."""
        return _stream_state(self._session.fetch("select_stream")[0])

    def lock(self) -> StreamState | None:
        """Return the state, and lock it until this transaction ends; None if another one has locked it."""
        found = self._session.fetch("lock_stream")
        return _stream_state(found[0]) if found else None

    def wait(self) -> StreamState:
        """Return the state, and lock it until this transaction ends."""
        return _stream_state(self._session.fetch("wait_for_stream")[0])

    def write(self, state: StreamState) -> None:
        """Write the state, which this transaction has locked."""
        row = (state.last, state.gone, state.wanted_until_ms, state.since_ms, int(state.skipped))
        self._session.execute("update_stream", *row)

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows of `event` to the stream: the number of its last fact in the stream, graph, number in the graph."""
        self._session.execute_many("insert_streamed_events", rows)

    def page(self, after: int, count: int) -> tuple[list[tuple[int, EventRow]], int]:
        """Return the events after a number, some more than `count` at most; and the last number that was looked at."""
        found = self._session.fetch("select_streamed_events", after, count)
        events: list[tuple[int, EventRow]] = []
        for number, *row in found:
            facts = [] if row[1] is None else event_rows(tuple(row))  # none: the graph has been deleted
            events += [(at, one) for at, one in enumerate(facts, number - len(facts) + 1) if at > after]
        return events, found[-1][0] if found else after

    def skip(self, before: Millis, count: int) -> int:
        """Mark some graphs as published whose last event was before a time; return how many."""
        return self._session.execute("skip_old_events", before, count)

    def trim(self, upto: int, count: int) -> None:
        """Delete some of the events up to a number, oldest first."""
        self._session.execute("delete_streamed_events", upto, count)


@value
class TargetRow:
    """A target to which the stream of events is delivered."""

    name: str
    position: int  # the number of the last event that was delivered
    added_ms: int
    delivered_ms: int  # when the position last moved


class TargetRepo:
    """The table `event_target`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[TargetRow]:
        """Return all targets, by name."""
        return [TargetRow(*row) for row in self._session.fetch("select_event_targets")]

    def oldest_undelivered(self) -> Millis | None:
        """Return when the oldest event happened that some target has not got yet."""
        found = self._session.fetch("select_oldest_undelivered")
        return found[0][0] if found else None

    def unnumbered(self, graphs: Collection[int]) -> set[int]:
        """Return the graphs with events that targets have to get and that are not in the stream yet."""
        return {row[0] for row in self._session.fetch("select_unnumbered_graphs", graphs)} if graphs else set()

    def add(self, name: str, position: int, now: Millis) -> None:
        """Insert a target that gets the events after a number; one that is there stays as it is."""
        self._session.execute("insert_event_target", name, position, now)

    def advance(self, name: str, position: int, now: Millis) -> bool:
        """Store up to which number events are delivered; return False if that was known, or the target is gone."""
        return self._session.execute("advance_event_target", name, position, now) > 0

    def remove(self, name: str) -> bool:
        """Delete a target; return whether it was there."""
        return self._session.execute("delete_event_target", name) > 0


def _stream_state(row: Row) -> StreamState:
    last, gone, wanted_until_ms, since_ms, skipped = row
    return StreamState(last, gone, wanted_until_ms, since_ms, bool(skipped))


class ContinuationRepo:
    """The table `continuation`: work that did not fit into one transaction."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Insert continuations: kind, graph, task, source, target, tasks, actor."""
        self._session.execute_many("insert_continuations", rows)

    def after(self, id: int, count: int) -> list[Continuation]:
        """Return open continuations after an id, in order."""
        return continuations(self._session.fetch("select_continuations", id, count))

    def read(self, id: int) -> Continuation | None:
        """Read and lock one continuation."""
        found = continuations(self._session.fetch("lock_continuation", id))
        return found[0] if found else None

    def of_tasks(self, tasks: Collection[int]) -> list[Continuation]:
        """Return the continuations of tasks, in order."""
        return continuations(self._session.fetch("select_continuations_of_tasks", tasks)) if tasks else []

    def in_graph(self, graph: int, kind: str) -> list[Continuation]:
        """Read and lock the continuations of one kind in a graph."""
        return continuations(self._session.fetch("lock_continuations_in_graph", graph, kind))

    def first(self, graph: int, kind: str, but: Collection[int] = ()) -> Continuation | None:
        """Return the first continuation of one kind in a graph, except for those of some tasks."""
        found = continuations(self._session.fetch("select_first_continuation", graph, kind, but))
        return found[0] if found else None

    def older_than(self, kind: str, before: int, count: int) -> list[Continuation]:
        """Read and lock continuations of one kind whose cursor is below a value."""
        return continuations(self._session.fetch("lock_old_continuations", kind, before, count))

    def advance(self, id: int, cursor: int) -> None:
        """Set how far a continuation is done."""
        self._session.execute("advance_continuation", id, cursor)

    def delete(self, id: int) -> None:
        """Delete a continuation that is done."""
        self._session.execute("delete_continuation", id)


class ServerRepo:
    """The table `server`: which servers are up."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> dict[str, ServerRow]:
        """Return all servers, by name."""
        return {row[0]: ServerRow(*row) for row in self._session.fetch("select_servers")}

    def save(self, server: ServerRow) -> None:
        """Store that a server is up."""
        self._session.execute("upsert_server", server.name, server.since_ms, server.seen_ms)

    def delete_unseen(self, before: Millis) -> None:
        """Delete the servers that were last seen before a time."""
        self._session.execute("delete_old_servers", before)

    def database_time(self) -> Millis | None:
        """Return the time of the database that all servers share; None if there is one server."""
        now: Millis | None = self._session.fetch("select_time")[0][0]
        return now
