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

    def unpublished(self, count: int) -> list[EventRow]:
        """Return events that are not published yet, in order per graph: at least `count`, if there are so many."""
        return [event for row in self._session.fetch("select_unpublished_events", count) for event in event_rows(row)]

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

    def add_answers(self, rows: Sequence[Row]) -> None:
        """Store responses: key, digest, response, time; responses without a time are kept forever."""
        self._session.execute_many("insert_responses", rows)

    def delete_old_answers(self, before: Millis, count: int) -> int:
        """Delete some responses stored before a time, oldest first; return how many."""
        return self._session.execute("delete_old_responses", before, count)


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
