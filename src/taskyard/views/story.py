"""The story of a task: everything that happened to it, in order.

Its birth stands on its row; what happened since are its events, and what people asked for is the audit. `replayed`
walks the events by the machine again, and has to come out where the task is. Nothing here writes, and no story is
longer than `MOVES_MAX`: a story that is says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from taskyard.core.budget import Life
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import ARROWS, LEASED
from taskyard.core.words import Millis, Reason, Signal, State
from taskyard.store.connection import Txn
from taskyard.store.repo.events import EventRow
from taskyard.store.repo.tasks import AttemptRow, Source
from taskyard.store.rows import TaskRecord

#: How many events one query reads, and how many moves and wishes of people a story tells at most.
PAGE_MAX: Final = 500
MOVES_MAX: Final = 10_000
ASKED_MAX: Final = 1_000
#: Every move that the machine knows.
_MOVES: Final = frozenset(
    (arrow.source, arrow.signal, end) for arrow in ARROWS for end in (arrow.target, arrow.again) if end
)


@unique
class About(StrEnum):
    """What somebody asked for something about."""

    TASK = "task"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Birth:
    """How a task came to be."""

    task: int
    graph: int
    label: str
    created_ms: Millis
    source: Source | None = None  # whose end it took over


@dataclass(frozen=True, slots=True)
class Moved:
    """A task went along an arrow."""

    at_ms: Millis
    number: int  # of the event, within its graph
    source: State
    signal: Signal
    target: State
    reason: Reason | None
    attempt: int | None
    bot: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A person asked for something."""

    at_ms: Millis
    about: About
    actor: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class Attempted:
    """A bot had the task for a while: until its attempt ended, or until its lease ends."""

    number: int
    round: int
    slice_index: int
    bot: str
    session: str
    fence: int
    claimed_ms: Millis
    lease_until_ms: Millis | None  # of the attempt that is under way
    ended_ms: Millis | None
    signal: Signal | None
    reason: Reason | None
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that happened to a task, the oldest first."""

    birth: Birth
    happened: tuple[Moved | Asked, ...]
    attempts: tuple[Attempted, ...]
    state: State  # where the task is
    whole: bool  # whether all of it is told


class Contradiction(Exception):
    """The events of a task are no walk through the machine."""


def story(txn: Txn, task: int) -> Story:
    """Tell everything that happened to a task."""
    found = txn.tasks.look([task])
    if not found:
        raise LookupError(f"there is no task {text_of(Key(task))}")
    record = found[0]
    label = txn.tasks.definitions([task])[task][0]
    moves = list(_moves(txn, task))
    asked = [*_asked(txn, record.graph, About.GRAPH), *_asked(txn, task, About.TASK)]
    # Who asks comes before what follows from it, also within one millisecond.
    happened: list[Moved | Asked] = [*asked, *moves[:MOVES_MAX]]
    happened.sort(key=lambda one: one.at_ms)
    return Story(
        Birth(task, record.graph, label, Millis(record.created_ms), txn.reuses.sources([task]).get(task)),
        tuple(happened),
        tuple(_attempted(record, row) for row in txn.attempts.of(task)),
        record.state,
        len(moves) <= MOVES_MAX and len(asked) < ASKED_MAX,
    )


def replayed(told: Story) -> State:
    """Walk the moves of a story through the machine; say where they lead."""
    if not told.whole:
        raise Contradiction(f"the story of task {text_of(Key(told.birth.task))} is not told to its end")
    state = Life().state
    moves = sorted((one for one in told.happened if isinstance(one, Moved)), key=lambda one: one.number)
    for move in moves:
        if move.source is not state or (move.source, move.signal, move.target) not in _MOVES:
            raise Contradiction(
                f"event {move.number} of task {text_of(Key(told.birth.task))} says {move.signal} from {move.source} "
                f"to {move.target}, and the task was {state}"
            )
        state = move.target
    return state


def _moves(txn: Txn, task: int) -> Iterator[Moved]:
    """Read events in pages, and one more than a story tells."""
    after = told = 0
    while told <= MOVES_MAX and (page := txn.events.of(task, after, PAGE_MAX)):
        yield from map(_moved, page)
        after, told = page[-1].number, told + len(page)


def _moved(event: EventRow) -> Moved:
    assert event.source is not None, "a task moves from somewhere"
    assert event.signal is not None, "a task moves for a signal"
    return Moved(
        Millis(event.at_ms),
        event.number,
        State(event.source),
        Signal(event.signal),
        State(event.target),
        None if event.reason is None else Reason(event.reason),
        event.attempt,
        event.bot,
    )


def _asked(txn: Txn, subject: int, about: About) -> Iterator[Asked]:
    for row in txn.events.audits_of(subject, ASKED_MAX):
        yield Asked(Millis(row.at_ms), about, row.actor, row.action, row.note)


def _attempted(task: TaskRecord, row: AttemptRow) -> Attempted:
    under_way = row.number == task.life.attempt and task.state in LEASED
    return Attempted(
        row.number,
        row.round,
        row.slice_index,
        row.bot,
        row.session,
        row.fence,
        Millis(row.claimed_ms),
        Millis(task.lease_until_ms) if under_way and task.lease_until_ms is not None else None,
        None if row.ended_ms is None else Millis(row.ended_ms),
        None if row.signal is None else Signal(row.signal),
        None if row.reason is None else Reason(row.reason),
        row.exit_code,
    )
