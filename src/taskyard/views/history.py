"""The story of a task: everything that happened to it, in order.

Its birth stands on its row; what happened since are its events, and what people asked for is the audit. `replayed`
walks the events by the machine again, and has to come out where the task is. Nothing here writes, and no story is
longer than `MOVES_MAX`: a story that is says so.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from functools import cached_property
from itertools import pairwise
from typing import Final

from taskyard.core.attempt_policy import Life, given_again_at
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ARROWS, ENDED, HOLDING, LEASED, UNSUCCESSFUL, Kind, Millis, Reason, Signal, State
from taskyard.lifecycle.approve import APPROVE, DENY
from taskyard.lifecycle.bot_sessions import CONNECTED
from taskyard.lifecycle.bot_sessions import ENDED as GOODBYE
from taskyard.lifecycle.cancel import CANCEL
from taskyard.lifecycle.release import NO_BOT
from taskyard.lifecycle.rerun import RERUN
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.repo.events import EventRow
from taskyard.store.repo.tasks import AttemptRow, ReusedAttempt
from taskyard.store.rows import TaskRecord
from taskyard.views.explain import ancestors
from taskyard.views.tasks import reused
from taskyard.wire.api import StoryItem, StoryView

#: How many events one query reads, and how many moves and wishes of people a story tells at most.
PAGE_MAX: Final = 500
MOVES_MAX: Final = 10_000
ASKED_MAX: Final = 1_000
#: Every move that the machine knows.
_MOVES: Final = frozenset(
    (arrow.source, arrow.signal, end) for arrow in ARROWS for end in (arrow.target, arrow.again) if end
)


@unique
class RequestSubject(StrEnum):
    """What somebody asked for something about."""

    TASK = "task"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Creation:
    """How a task came to be."""

    task: int
    graph: int
    label: str
    created_ms: Millis
    source: ReusedAttempt | None = None  # whose end it took over


@dataclass(frozen=True, slots=True)
class TaskMove:
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
class RequestedAction:
    """A person asked for something."""

    at_ms: Millis
    about: RequestSubject
    actor: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class AttemptSpan:
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
class TaskHistory:
    """Everything that happened to a task, the oldest first."""

    birth: Creation
    happened: tuple[TaskMove | RequestedAction, ...]
    attempts: tuple[AttemptSpan, ...]
    state: State  # where the task is
    whole: bool  # whether all of it is told


class Contradiction(Exception):
    """The events of a task are no walk through the machine."""


def read_history(repo: Repo, task: int) -> TaskHistory:
    """Tell everything that happened to a task."""
    found = repo.tasks.read([task])
    if not found:
        raise LookupError(f"there is no task {text_of(Key(task))}")
    record = found[0]
    label = repo.tasks.definitions([task])[task][0]
    moves = list(_moves(repo, task))
    asked = [*_asked(repo, record.graph, RequestSubject.GRAPH), *_asked(repo, task, RequestSubject.TASK)]
    # Who asks comes before what follows from it, also within one millisecond.
    happened: list[TaskMove | RequestedAction] = [*asked, *moves[:MOVES_MAX]]
    happened.sort(key=lambda one: one.at_ms)
    return TaskHistory(
        Creation(task, record.graph, label, Millis(record.created_ms), repo.reuse.sources([task]).get(task)),
        tuple(happened),
        tuple(_attempted(record, row) for row in repo.attempts.of(task)),
        record.state,
        len(moves) <= MOVES_MAX and len(asked) < ASKED_MAX,
    )


def replay(told: TaskHistory) -> State:
    """Walk the moves of a story through the machine; say where they lead."""
    if not told.whole:
        raise Contradiction(f"the story of task {text_of(Key(told.birth.task))} is not told to its end")
    state = Life().state
    moves = sorted((one for one in told.happened if isinstance(one, TaskMove)), key=lambda one: one.number)
    for move in moves:
        if move.source is not state or (move.source, move.signal, move.target) not in _MOVES:
            raise Contradiction(
                f"event {move.number} of task {text_of(Key(told.birth.task))} says {move.signal} from {move.source} "
                f"to {move.target}, and the task was {state}"
            )
        state = move.target
    return state


def _moves(repo: Repo, task: int) -> Iterator[TaskMove]:
    """Read events in pages, and one more than a story tells."""
    after = told = 0
    while told <= MOVES_MAX and (page := repo.events.of(task, after, PAGE_MAX)):
        yield from map(_moved, page)
        after, told = page[-1].number, told + len(page)


def _moved(event: EventRow) -> TaskMove:
    assert event.source is not None, "a task moves from somewhere"
    assert event.signal is not None, "a task moves for a signal"
    return TaskMove(
        Millis(event.at_ms),
        event.number,
        State(event.source),
        Signal(event.signal),
        State(event.target),
        None if event.reason is None else Reason(event.reason),
        event.attempt,
        event.bot,
    )


def _asked(repo: Repo, subject: int, about: RequestSubject) -> Iterator[RequestedAction]:
    for row in repo.events.audits_of(subject, ASKED_MAX):
        yield RequestedAction(Millis(row.at_ms), about, row.actor, row.action, row.note)


def _attempted(task: TaskRecord, row: AttemptRow) -> AttemptSpan:
    under_way = row.number == task.life.attempt and task.state in LEASED
    return AttemptSpan(
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


# What brought about each line of a story: the prerequisite, the bot, the person, the clock, or whoever gave way.
#
# Events say what happened and not why: the cause is found around them, in what happened to prerequisites and rivals
# just before, in what people asked for, and in the diary of bots. So it is told as far as one can tell. Nothing here
# writes.


#: How many prerequisites are looked at, and how much of what happened to them.
EDGES_MAX: Final = 200
HAPPENED_MAX: Final = 2_000
#: How many rivals at each mutex, and how many events of a bot are looked at.
RIVALS_MAX: Final = 20
BOT_EVENTS_MAX: Final = 500
WISHES_MAX: Final = 100

#: How a prerequisite, or another task, ended.
_ENDS: Final[Mapping[State, str]] = {
    State.SUCCESSFUL: "succeeded",
    State.FAILED: "failed",
    State.ERROR: "ended in error",
    State.CANCELED: "was canceled",
    State.SKIPPED: "was skipped",
}
#: How an attempt ended, where the signal alone does not tell.
_FAILURES: Final[Mapping[Reason, str]] = {
    Reason.TIMED_OUT: "it timed out",
    Reason.SILENT: "it printed nothing for too long",
    Reason.BAD_RESULT: "its result, progress or checkpoint cannot be taken",
    Reason.SIGNALED: "a signal ended it",
    Reason.GRAPH_FAILED: "the graph inside it did not finish",
}
#: Why a loss has cost no retry.
_SPARED_SAYS: Final[Mapping[Reason | None, str]] = {
    Reason.RETURNED: ", and had not begun it: this costs no retry",
    Reason.UNRENEWED: ", which had ended it because it could not renew the lease: this costs no retry",
}
_PAST: Final = {CANCEL: "canceled", RERUN: "reran"}
_DECIDED: Final = {APPROVE: "approved", DENY: "denied"}


@dataclass(frozen=True, slots=True)
class MoveCause:
    """What made a task move, in words; and the other task, if there is one."""

    text: str
    task: int | None = None
    label: str | None = None


def find_causes(repo: Repo, told: TaskHistory, lease_ms: int) -> list[MoveCause]:
    """Say of everything in a story what brought it about, in the same order; `lease_ms` is how long leases last."""
    search = _Search(repo, told, lease_ms)
    return [search.of_asked(one) if isinstance(one, RequestedAction) else search.of_move(one) for one in told.happened]


class _Search:
    """One search for causes; what several of them need is read once."""

    def __init__(self, repo: Repo, told: TaskHistory, lease_ms: int) -> None:
        self._txn = repo
        self._lease_ms = lease_ms
        self._told = told
        self._task = told.birth.task
        self._labels: dict[int, str] = {}
        self._exits = {one.number: one.exit_code for one in told.attempts}
        self._claimed = {one.number: one.claimed_ms for one in told.attempts}
        self._finders: Mapping[Signal, Callable[[TaskMove], MoveCause]] = {
            Signal.RELEASE: self._released,
            Signal.BLOCK: lambda move: self._prerequisite(move, UNSUCCESSFUL),
            Signal.DOOM: lambda move: self._prerequisite(move, UNSUCCESSFUL),
            Signal.SKIP: lambda move: self._prerequisite(move, ENDED),
            Signal.MEND: self._mended,
            Signal.ADMIT: self._admitted,
            Signal.CLAIM: lambda move: MoveCause(_claim_says(move)),
            Signal.SUCCEED: self._succeeded,
            Signal.FAIL: self._failed,
            Signal.LOSE: self._lost,
            Signal.RETURN: lambda move: MoveCause(
                f"bot {move.bot or self._bot(move)} gave it back, and had not begun it"
            ),
            Signal.EXPIRE: lambda move: MoveCause(_expiry_says(move)),
            Signal.CANCEL: lambda move: self._asked(move, CANCEL),
            Signal.RERUN: lambda move: self._asked(move, RERUN),
        }

    def of_asked(self, one: RequestedAction) -> MoveCause:
        """Say who asked for what."""
        note = f" ({one.note})" if one.note else ""
        if one.action == NO_BOT:
            return MoveCause(one.note)
        return MoveCause(f"{_actor(one.actor)} asked: {one.action} the {one.about}{note}")

    def of_move(self, move: TaskMove) -> MoveCause:
        """Say why a task moved."""
        finder = self._finders.get(move.signal)
        return MoveCause(_PLAIN[move.signal]) if finder is None else finder(move)

    # Prerequisites.

    def _released(self, move: TaskMove) -> MoveCause:
        if not self._edges:
            return MoveCause("it waits for nobody")
        return self._prerequisite(move, ENDED)

    def _prerequisite(self, move: TaskMove, ends: Collection[State]) -> MoveCause:
        """Find the prerequisite that ended last before a move."""
        last = _last(self._around, move, lambda one: State(one.target) in ends)
        if last is None:
            return MoveCause("its prerequisites have ended")
        label = self._label(last.subject)
        return MoveCause(f"prerequisite {label} {_ENDS[State(last.target)]}", last.subject, label)

    def _mended(self, move: TaskMove) -> MoveCause:
        again = {Signal.RERUN.text, Signal.MEND.text}
        last = _last(self._around, move, lambda one: one.signal in again)
        if last is None:
            return MoveCause("a prerequisite is tried again")
        label = self._label(last.subject)
        return MoveCause(f"prerequisite {label} is tried again", last.subject, label)

    @cached_property
    def _edges(self) -> list[int]:
        found = self._txn.edges.page_into(self._task, -1, EDGES_MAX)
        return list(dict.fromkeys(edge.prerequisite for edge in found))

    @cached_property
    def _around(self) -> list[EventRow]:
        return self._txn.read.recent_events(self._edges, HAPPENED_MAX)

    # Admission.

    def _admitted(self, move: TaskMove) -> MoveCause:
        before = self._previous.get(move.number)
        since = self._told.birth.created_ms if before is None else before.at_ms
        if since == move.at_ms:
            return MoveCause("nothing holds it")
        begins = self._record.rules.not_before_ms
        if begins is not None and since <= begins <= move.at_ms:
            return MoveCause("its time has come")
        if before is not None and before.signal is Signal.FAIL and self._record.rules.delay_ms:
            return MoveCause("its pause before another try is over")
        return self._freed(move, since) or MoveCause("nothing holds it any more")

    def _freed(self, move: TaskMove, since: Millis) -> MoveCause | None:
        """Find who gave a mutex back while the task stood before it."""
        for key, left in self._rivals.items():
            last = max((one for one in left if since <= one.at_ms <= move.at_ms), key=_at, default=None)
            if last is None:
                continue
            if last.graph != self._told.birth.graph:  # whoever may see this task may not see that one
                return MoveCause(f"mutex {key} was given back by a task of another graph")
            label = self._label(last.subject)
            return MoveCause(f"mutex {key} was given back by {label}", last.subject, label)
        return None

    @cached_property
    def _rivals(self) -> dict[str, list[EventRow]]:
        """When those gave each mutex back that came just before this task."""
        mutexes = self._txn.admission.mutexes_of([self._task]).get(self._task, ())
        rivals = {one.key: self._txn.read.mutex_rivals(one.key, self._task, RIVALS_MAX) for one in mutexes}
        return {
            key: [one for one in self._txn.read.recent_events(ids, HAPPENED_MAX) if _gave_way(one)]
            for key, ids in rivals.items()
        }

    @cached_property
    def _record(self) -> TaskRecord:
        return self._txn.tasks.read([self._task])[0]

    # Attempts.

    def _succeeded(self, move: TaskMove) -> MoveCause:
        return MoveCause(self._decision(move) or "it ended well")

    def _decision(self, move: TaskMove) -> str | None:
        """Say who decided about an approval; nobody did, if its time was over."""
        if self._record.kind != Kind.APPROVAL.text:
            return None
        asked = [one for one in self._told.happened if isinstance(one, RequestedAction) and one.at_ms == move.at_ms]
        decided = next((one for one in asked if one.action in _DECIDED), None)
        return "nobody decided in time" if decided is None else f"{_actor(decided.actor)} {_DECIDED[decided.action]} it"

    def _failed(self, move: TaskMove) -> MoveCause:
        decision = self._decision(move)
        if decision is not None:
            return MoveCause(decision)
        said = _FAILURES.get(move.reason) if move.reason else None
        if said is None:
            code = self._exits.get(move.attempt or 0)
            said = "it failed" if code is None else f"exit code {code}"
        return MoveCause(f"{said}{'' if move.target in ENDED else '; it is tried again'}")

    def _lost(self, move: TaskMove) -> MoveCause:
        again = "" if move.target in ENDED else "; it is tried again"
        why = _SPARED_SAYS.get(move.reason, "")
        return MoveCause(f"{self._loss(move, move.bot or self._bot(move))}{why}{again}")

    def _loss(self, move: TaskMove, bot: str) -> str:
        kinds = self._txn.read.bot_event_kinds(bot, move.at_ms, BOT_EVENTS_MAX)
        if CONNECTED in kinds:
            return f"bot {bot} began another session"
        if GOODBYE in kinds:
            return f"bot {bot} said goodbye"
        claimed = self._claimed.get(move.attempt or 0)
        lapses = None if claimed is None else given_again_at(Millis(claimed + self._lease_ms))
        # A lease is over no sooner: whoever lost it before has said so.
        return f"bot {bot} gave it back" if lapses and move.at_ms < lapses else f"the lease of bot {bot} lapsed"

    def _bot(self, move: TaskMove) -> str:
        return next((one.bot for one in self._told.attempts if one.number == move.attempt), "")

    # People.

    def _asked(self, move: TaskMove, action: str) -> MoveCause:
        asked = [one for one in self._told.happened if isinstance(one, RequestedAction) and one.action == action]
        last = max((one for one in asked if one.at_ms <= move.at_ms), key=_at, default=None)
        if last is not None:
            what = "it" if last.about is RequestSubject.TASK else "the graph"
            return MoveCause(f"{_actor(last.actor)} {_PAST[action]} {what}")
        # Whoever ends a task with all behind it has said so of that task.
        wishes = self._txn.read.last_requests(ancestors(self._txn, self._task), action, WISHES_MAX)
        found = next((one for one in wishes if one[2] <= move.at_ms), None)
        if found is None:
            return MoveCause("a person asked for it")
        subject, actor, _ = found
        label = self._label(subject)
        return MoveCause(f"{_actor(actor)} {_PAST[action]} {label} and all behind it", subject, label)

    # Others.

    @cached_property
    def _previous(self) -> dict[int, TaskMove]:
        """The move before each, by the number of its event."""
        moves = sorted((one for one in self._told.happened if isinstance(one, TaskMove)), key=lambda one: one.number)
        return {later.number: earlier for earlier, later in pairwise(moves)}

    def _label(self, task: int) -> str:
        if task not in self._labels:
            self._labels |= self._txn.read.labels([task])
        return self._labels[task]


#: What needs no search.
_PLAIN: Final[Mapping[Signal, str]] = {
    Signal.REUSE: "an equal result was known",
    Signal.UNADMIT: "its last bot is gone, so it gives its mutexes back",
    Signal.DEADLINE: "its deadline passed",
}


def _last(events: Iterable[EventRow], move: TaskMove, fits: Callable[[EventRow], bool]) -> EventRow | None:
    """Find the last that fits before a move; numbers are those of one graph."""
    return max((one for one in events if one.number < move.number and fits(one)), key=_number, default=None)


def _gave_way(one: EventRow) -> bool:
    return one.source is not None and State(one.source) in HOLDING and State(one.target) not in HOLDING


def _at(one: EventRow | RequestedAction) -> int:
    return one.at_ms


def _number(one: EventRow) -> int:
    return one.number


def _actor(actor: str) -> str:
    return actor or "somebody"


def _claim_says(move: TaskMove) -> str:
    return "the server runs it itself" if move.bot in (None, SERVER.bot) else f"bot {move.bot} claimed it"


def _expiry_says(move: TaskMove) -> str:
    said = "no bot could serve its slice" if move.reason is Reason.NO_BOT else "its slice waited too long for a bot"
    return f"{said}{'' if move.target in ENDED else '; the next one is tried'}"


# The story of a task as it is told outside: ids as text, one kind of item for all that happened, with its cause.


def history_view(repo: Repo, story: TaskHistory, lease_ms: int) -> StoryView:
    """Tell a story, with what brought about each part of it."""
    birth = story.birth
    before = [birth.created_ms, *(one.at_ms for one in story.happened)]
    return StoryView(
        task=text_of(Key(birth.task)),
        graph_id=text_of(Key(birth.graph)),
        label=birth.label,
        created_ms=birth.created_ms,
        state=story.state.text,
        whole=story.whole,
        items=[
            _item(one, cause, one.at_ms - last)
            for one, cause, last in zip(story.happened, find_causes(repo, story, lease_ms), before, strict=False)
        ],
        reused=reused(birth.source),
    )


def _item(one: TaskMove | RequestedAction, cause: MoveCause, after_ms: int) -> StoryItem:
    by = None if cause.task is None else text_of(Key(cause.task))
    if isinstance(one, RequestedAction):
        return StoryItem(
            one.at_ms,
            actor=one.actor,
            action=one.action,
            about=one.about.value,
            note=one.note,
            cause=cause.text,
            after_ms=after_ms,
        )
    return StoryItem(
        one.at_ms,
        signal=one.signal.text,
        source=one.source.text,
        target=one.target.text,
        reason=None if one.reason is None else one.reason.text,
        attempt=one.attempt,
        bot=one.bot,
        cause=cause.text,
        cause_task=by,
        cause_label=cause.label,
        after_ms=after_ms,
    )
