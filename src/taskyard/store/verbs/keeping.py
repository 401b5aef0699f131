"""Verbs about what is kept: events, audit, answers, notes, and since when the service is up."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from taskyard.core.values import value
from taskyard.core.words import Millis
from taskyard.store.records import Note, notes_of
from taskyard.store.sessions import Row, Session


@value
class EventRow:
    """One fact that happened, as it is stored. Its id is its graph and its number."""

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


@value
class Outgoing:
    """What one transaction has to tell about one graph, up to the event with this number."""

    graph: int
    number: int
    events: tuple[EventRow, ...]


#: There are some thousand bots and some dozen reasons.
_NAMES_KEPT: Final = 10_000
_Name = str | None
_Fact = tuple[int, _Name, str, _Name, int | None, _Name, _Name]
_FACT = msgspec.json.Decoder(_Fact)
_SUBJECTS = msgspec.json.Decoder(list[int])


def event_row(row: Row) -> EventRow:
    """Read a row of `event`."""
    return EventRow(row[0], row[1], row[2], *_FACT.decode(row[3]))


def fact(at_ms: int, moved: str, attempt: int | None, bot: str | None, reason: str | None) -> str:
    """Write down what happened: when, from where to where by which signal (`spelled`), which attempt, who, and why."""
    return f"[{at_ms},{moved},{attempt or 'null'},{_quoted(bot)},{_quoted(reason)}]"


def spelled(source: _Name, target: str, signal: _Name) -> str:
    """Spell from where to where a move led, and by which signal."""
    return ",".join(msgspec.json.encode(word).decode() for word in (source, target, signal))


@lru_cache(maxsize=_NAMES_KEPT)
def _quoted(name: _Name) -> str:
    return msgspec.json.encode(name).decode()


@value
class AuditRow:
    """What a person asked for."""

    at_ms: int
    actor: str
    action: str
    subject: int
    note: str


@value
class Service:
    """Since when the service is up without a gap, and when it was last seen alive."""

    since_ms: int
    seen_ms: int


class Events:
    """What the tables `event`, `audit` and `answer` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Note what happened: subject, number, graph, fact."""
        self._session.each("add_events", rows)

    def of(self, subject: int, after: int, count: int) -> list[EventRow]:
        """Read what happened to a task or a graph, in order."""
        return [event_row(row) for row in self._session.rows("events_of", subject, after, count)]

    def put_out(self, graphs: Sequence[tuple[int, Sequence[Row]]]) -> None:
        """Keep what has to be told outside: each graph with its events, in order."""
        rows = [(graph, events[-1][1], events[0][1], _subjects(events)) for graph, events in graphs if events]
        self._session.each("add_outbox", rows)

    def outbox(self, count: int) -> list[Outgoing]:
        """Read what nobody outside was told yet, in order per graph."""
        return [Outgoing(row[0], row[1], self._between(*row[1:])) for row in self._session.rows("outbox", count)]

    def _between(self, last: int, first: int, subjects: str) -> tuple[EventRow, ...]:
        found = self._session.rows("events_between", _SUBJECTS.decode(subjects), first, last)
        return tuple(event_row(row) for row in found)

    def drop_outgoing(self, told: Sequence[Outgoing]) -> None:
        """Note what was told."""
        self._session.each("drop_outbox", [(one.graph, one.number) for one in told])

    def add_audits(self, rows: Sequence[Row]) -> None:
        """Note what people asked for: at, actor, action, subject, note."""
        self._session.each("add_audits", rows)

    def audits_of(self, subject: int, count: int) -> list[AuditRow]:
        """Read what people asked for about a task or a graph."""
        return [AuditRow(*row) for row in self._session.rows("audits_of", subject, count)]

    def answers(self, keys: Collection[str]) -> dict[str, tuple[str, str]]:
        """Find what was answered to keys: the digest of the question, the answer."""
        return {row[0]: (row[1], row[2]) for row in self._session.rows("answers", keys)} if keys else {}

    def add_answers(self, rows: Sequence[Row]) -> None:
        """Remember answers: key, digest, answer, at; those without a moment are never forgotten."""
        self._session.each("add_answers", rows)

    def forget_answers(self, before: Millis, count: int) -> int:
        """Forget some old answers, the oldest first; say how many."""
        return self._session.run("forget_answers", before, count)


def _subjects(events: Sequence[Row]) -> str:
    return msgspec.json.encode(list({event[0] for event in events})).decode()


class Notes:
    """What the tables `note` and `service` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Promise: kind, graph, task, source, target, tasks, actor."""
        self._session.each("add_notes", rows)

    def after(self, id: int, count: int) -> list[Note]:
        """Read what is promised, in order, beyond a note."""
        return notes_of(self._session.rows("notes", id, count))

    def look(self, id: int) -> Note | None:
        """Read one note; nobody else takes it up before this transaction ends."""
        found = notes_of(self._session.rows("look_note", id))
        return found[0] if found else None

    def about(self, tasks: Collection[int]) -> list[Note]:
        """Read the notes about what tasks have to tell, in order."""
        return notes_of(self._session.rows("notes_about", tasks)) if tasks else []

    def in_graph(self, graph: int, kind: str) -> list[Note]:
        """Read the notes of one kind about a graph; nobody else takes them up before this transaction ends."""
        return notes_of(self._session.rows("notes_in", graph, kind))

    def first(self, graph: int, kind: str, but: Collection[int] = ()) -> Note | None:
        """Read the first note of one kind about a graph, but for those about some tasks."""
        found = notes_of(self._session.rows("first_note", graph, kind, but))
        return found[0] if found else None

    def old(self, kind: str, before: int, count: int) -> list[Note]:
        """Read notes of one kind that stand before a point; nobody else takes them up before this transaction ends."""
        return notes_of(self._session.rows("old_notes", kind, before, count))

    def advance(self, id: int, cursor: int) -> None:
        """A note is done up to `cursor`."""
        self._session.run("advance_note", id, cursor)

    def drop(self, id: int) -> None:
        """A note is done."""
        self._session.run("drop_note", id)

    def service(self) -> Service:
        """Read since when the service is up."""
        return Service(*self._session.rows("service")[0])

    def set_service(self, service: Service) -> None:
        """Write since when the service is up."""
        self._session.run("set_service", service.since_ms, service.seen_ms)

    def clock(self) -> Millis | None:
        """Say what time it is for all who share this database; None where nobody shares it."""
        now: Millis | None = self._session.rows("clock")[0][0]
        return now
