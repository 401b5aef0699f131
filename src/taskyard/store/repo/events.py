"""Verbs about what is kept: events, audit, answers, notes, and since when servers are up."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Row, Session
from taskyard.store.rows import Continuation, notes_of

# Facts: how what happened is written into a row of `event`, and read again.
#
# A fact is a short JSON array: the move, then the attempt, the bot and the reason, as far as there are any. A move is
# three letters, for its source, its signal and its target: `wCr` is a task that waited, was claimed and is running.
# There are four facts or more in every task's life, and spelled in full they were a third of all that a life writes.


_Name = str | None

#: What a repair gives as the state a graph was said to be in, where nobody can read what was said.
UNREADABLE: Final = "unreadable"
#: A letter for each state of a task and of a graph, and for each signal. They are in every database there is: a letter
#: may be added, and is never changed or used again.
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
#: There are some thousand bots and some dozen reasons.
_NAMES_KEPT: Final = 10_000


#: One thing that happened to a subject: source, target, signal, attempt, bot and reason.
Fact: TypeAlias = tuple[_Name, str, _Name, int | None, _Name, _Name]


class Unreadable(ValueError):
    """This is not how facts are written."""


class _Written(msgspec.Struct, array_like=True):
    """A fact as it stands in a row."""

    move: str
    attempt: int | None = None
    bot: _Name = None
    reason: _Name = None


_READER: Final = msgspec.json.Decoder(list[_Written])


def written(move: str, attempt: int | None, bot: _Name, reason: _Name) -> str:
    """Write down what happened: the move (`spelled`), which attempt, who, and why."""
    if bot is None:
        return _nobodys(move, attempt, reason)
    if reason is None:
        return f"[{move},{attempt or 'null'},{_quoted(bot)}]"
    return f"[{move},{attempt or 'null'},{_quoted(bot)},{_quoted(reason)}]"


def spelled(source: _Name, target: str, signal: _Name) -> str:
    """Spell from where to where a move led, and by which signal."""
    return f'"{STATE_LETTERS[source]}{SIGNAL_LETTERS[signal]}{STATE_LETTERS[target]}"'


def read(facts: str) -> list[Fact]:
    """Read the facts of a row; it raises Unreadable."""
    try:
        return [(*_MOVES[one.move], one.attempt, one.bot, one.reason) for one in _READER.decode(facts)]
    except (KeyError, msgspec.MsgspecError) as fault:
        raise Unreadable(facts) from fault


@lru_cache(maxsize=_NAMES_KEPT)
def _nobodys(move: str, attempt: int | None, reason: _Name) -> str:
    """Write down what no bot had a part in: it is the same for many tasks."""
    if not attempt and reason is None:
        return f"[{move}]"
    return f"[{move},{attempt or 'null'},null,{_quoted(reason)}]"


@lru_cache(maxsize=_NAMES_KEPT)
def _quoted(name: _Name) -> str:
    return msgspec.json.encode(name).decode()


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


#: A graph, how many events it had before, and the facts about each subject, in order.
Happened: TypeAlias = tuple[int, int, Mapping[int, Sequence[str]]]


def event_rows(row: Row) -> list[EventRow]:
    """Read a row of `event`: the facts of one transaction about one subject."""
    subject, last, graph, at_ms, written = row
    told = read(written)
    return [EventRow(subject, number, graph, at_ms, *one) for number, one in enumerate(told, last - len(told) + 1)]


@value
class AuditRow:
    """What a person asked for."""

    at_ms: int
    actor: str
    action: str
    subject: int
    note: str


@value
class ServerRow:
    """A server: since when it has been up without a gap, and when it last said so."""

    name: str
    since_ms: int
    seen_ms: int


class EventRepo:
    """What the tables `event`, `audit` and `answer` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, at: Millis, happened: Sequence[Happened]) -> None:
        """Note what happened just now; it has to be told outside."""
        events: list[Row] = []
        for graph, before, subjects in happened:
            number = before
            for subject, told in subjects.items():
                number += len(told)
                events.append((graph, number, subject, at, f"[{','.join(told)}]"))
        self._session.execute_many("insert_events", events)

    def of(self, subject: int, after: int, count: int) -> list[EventRow]:
        """Read what happened to a task or a graph beyond a number, in order: at least `count` events, if there are."""
        found = self._session.fetch("select_events_of_subject", subject, after, count)
        return [event for row in found for event in event_rows(row) if event.number > after]

    def in_graph(self, graph: int, after: int, count: int) -> list[EventRow]:
        """Read what happened in a graph beyond a number, in order: at least `count` events, if there are."""
        found = self._session.fetch("select_events_in_graph", graph, after, count)
        return [event for row in found for event in event_rows(row) if event.number > after]

    def unpublished(self, count: int) -> list[EventRow]:
        """Read what nobody outside was told yet, in order per graph: at least `count` events, if there are."""
        return [event for row in self._session.fetch("select_unpublished_events", count) for event in event_rows(row)]

    def mark_published(self, rows: Sequence[Row]) -> None:
        """Note that others were told what happened: graph, and up to which number."""
        self._session.execute_many("update_published", rows)

    def add_audits(self, rows: Sequence[Row]) -> None:
        """Note what people asked for: at, actor, action, subject, note."""
        self._session.execute_many("insert_audits", rows)

    def audits_of(self, subject: int, count: int) -> list[AuditRow]:
        """Read what people asked for about a task or a graph."""
        return [AuditRow(*row) for row in self._session.fetch("select_audits_of_subject", subject, count)]

    def page_audits(self, subject: int | None, before: int, count: int) -> list[tuple[int, AuditRow]]:
        """Read what people asked for, or only what is about a task or a graph, before a number, the newest first."""
        if subject is None:
            found = self._session.fetch("select_audit_page", before, count)
        else:
            found = self._session.fetch("select_audit_page_of_subject", subject, before, count)
        return [(row[0], AuditRow(*row[1:])) for row in found]

    def answers(self, keys: Collection[str]) -> dict[str, tuple[str, str]]:
        """Find what was answered to keys: the digest of the question, the answer."""
        return {row[0]: (row[1], row[2]) for row in self._session.fetch("select_responses", keys)} if keys else {}

    def add_answers(self, rows: Sequence[Row]) -> None:
        """Remember answers: key, digest, answer, at; those without a moment are never forgotten."""
        self._session.execute_many("insert_responses", rows)

    def delete_old_answers(self, before: Millis, count: int) -> int:
        """Forget some old answers, the oldest first; say how many."""
        return self._session.execute("delete_old_responses", before, count)


class ContinuationRepo:
    """What the tables `note` and `server` can be asked and told."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rows: Sequence[Row]) -> None:
        """Promise: kind, graph, task, source, target, tasks, actor."""
        self._session.execute_many("insert_continuations", rows)

    def after(self, id: int, count: int) -> list[Continuation]:
        """Read what is promised, in order, beyond a note."""
        return notes_of(self._session.fetch("select_continuations", id, count))

    def read(self, id: int) -> Continuation | None:
        """Read one note; nobody else takes it up before this transaction ends."""
        found = notes_of(self._session.fetch("lock_continuation", id))
        return found[0] if found else None

    def of_tasks(self, tasks: Collection[int]) -> list[Continuation]:
        """Read the notes about what tasks have to tell, in order."""
        return notes_of(self._session.fetch("select_continuations_of_tasks", tasks)) if tasks else []

    def in_graph(self, graph: int, kind: str) -> list[Continuation]:
        """Read the notes of one kind about a graph; nobody else takes them up before this transaction ends."""
        return notes_of(self._session.fetch("lock_continuations_in_graph", graph, kind))

    def first(self, graph: int, kind: str, but: Collection[int] = ()) -> Continuation | None:
        """Read the first note of one kind about a graph, but for those about some tasks."""
        found = notes_of(self._session.fetch("select_first_continuation", graph, kind, but))
        return found[0] if found else None

    def older_than(self, kind: str, before: int, count: int) -> list[Continuation]:
        """Read notes of one kind that stand before a point; nobody else takes them up before this transaction ends."""
        return notes_of(self._session.fetch("lock_old_continuations", kind, before, count))

    def advance(self, id: int, cursor: int) -> None:
        """A note is done up to `cursor`."""
        self._session.execute("advance_continuation", id, cursor)

    def delete(self, id: int) -> None:
        """A note is done."""
        self._session.execute("delete_continuation", id)


class ServerRepo:
    """The table `server`: which servers are up."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> dict[str, ServerRow]:
        """Read the servers, by name."""
        return {row[0]: ServerRow(*row) for row in self._session.fetch("select_servers")}

    def save(self, server: ServerRow) -> None:
        """Write that a server is up."""
        self._session.execute("upsert_server", server.name, server.since_ms, server.seen_ms)

    def delete_unseen(self, before: Millis) -> None:
        """Delete the servers that have not been up since a moment."""
        self._session.execute("delete_old_servers", before)

    def database_time(self) -> Millis | None:
        """Say what time it is for all who share this database; None where nobody shares it."""
        now: Millis | None = self._session.fetch("select_time")[0][0]
        return now
