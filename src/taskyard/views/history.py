"""The history of a task: everything that happened to it, in order, and what caused it.

The moves are its events, and the requests of people are the audit. `replay` checks that the moves follow the state
machine and lead to the state of the task. A history has at most `MOVES_MAX` moves, and says if there were more.
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
from taskyard.lifecycle.bot_events import CONNECTED
from taskyard.lifecycle.bot_events import ENDED as GOODBYE
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

#: How many events one query reads, and how many moves and requests a history has at most.
PAGE_MAX: Final = 500
MOVES_MAX: Final = 10_000
REQUESTS_MAX: Final = 1_000
#: All moves of the state machine.
_MOVES: Final = frozenset(
    (arrow.source, arrow.signal, end) for arrow in ARROWS for end in (arrow.target, arrow.again) if end
)


@unique
class RequestSubject(StrEnum):
    """What a person requested something about."""

    TASK = "task"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Creation:
    """How a task was created."""

    task: int
    graph: int
    label: str
    created_ms: Millis
    source: ReusedAttempt | None = None  # the attempt that it reuses


@dataclass(frozen=True, slots=True)
class TaskMove:
    """A task moved along an arrow."""

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
    """A person requested something."""

    at_ms: Millis
    about: RequestSubject
    actor: str
    action: str
    note: str


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """A bot held the task until the attempt ended, or until the lease ends."""

    number: int
    round: int
    slice_index: int
    bot: str
    session: str
    fence: int
    claimed_ms: Millis
    lease_until_ms: Millis | None  # of the attempt that runs
    ended_ms: Millis | None
    signal: Signal | None
    reason: Reason | None
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """Everything that happened to a task, oldest first."""

    creation: Creation
    happened: tuple[TaskMove | RequestedAction, ...]
    attempts: tuple[AttemptSpan, ...]
    state: State  # of the task
    whole: bool  # whether nothing was left out


class Contradiction(Exception):
    """The events of a task do not follow the state machine."""


def read_history(repo: Repo, task: int) -> TaskHistory:
    """Read everything that happened to a task."""
    found = repo.tasks.read([task])
    if not found:
        raise LookupError(f"there is no task {text_of(Key(task))}")
    record = found[0]
    label = repo.tasks.definitions([task])[task][0]
    moves = list(_moves(repo, task))
    asked = [*_asked(repo, record.graph, RequestSubject.GRAPH), *_asked(repo, task, RequestSubject.TASK)]
    # A request comes before its consequences, also within one millisecond.
    happened: list[TaskMove | RequestedAction] = [*asked, *moves[:MOVES_MAX]]
    happened.sort(key=lambda one: one.at_ms)
    return TaskHistory(
        Creation(task, record.graph, label, Millis(record.created_ms), repo.reuse.sources([task]).get(task)),
        tuple(happened),
        tuple(_attempted(record, row) for row in repo.attempts.of(task)),
        record.state,
        len(moves) <= MOVES_MAX and len(asked) < REQUESTS_MAX,
    )


def replay(history: TaskHistory) -> State:
    """Follow the moves of a history through the state machine; return the last state."""
    if not history.whole:
        raise Contradiction(f"the history of task {text_of(Key(history.creation.task))} is cut")
    state = Life().state
    moves = sorted((one for one in history.happened if isinstance(one, TaskMove)), key=lambda one: one.number)
    for move in moves:
        if move.source is not state or (move.source, move.signal, move.target) not in _MOVES:
            raise Contradiction(
                f"event {move.number} of task {text_of(Key(history.creation.task))} says {move.signal} "
                f"from {move.source} to {move.target}, and the task was {state}"
            )
        state = move.target
    return state


def _moves(repo: Repo, task: int) -> Iterator[TaskMove]:
    """Read events in pages, one more than a history shows."""
    after = count = 0
    while count <= MOVES_MAX and (page := repo.events.of(task, after, PAGE_MAX)):
        yield from map(_moved, page)
        after, count = page[-1].number, count + len(page)


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
    for row in repo.events.audits_of(subject, REQUESTS_MAX):
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


# Causes. Events say what happened and not why. The cause is found in the events of prerequisites and of tasks with the
# same mutexes just before, in requests of people, and in the events of bots, as far as these tell.

#: How many prerequisites are looked at, and how many of their events.
EDGES_MAX: Final = 200
EVENTS_MAX: Final = 2_000
#: How many tasks with each mutex, and how many events of a bot are looked at.
RIVALS_MAX: Final = 20
BOT_EVENTS_MAX: Final = 500
PARENT_REQUESTS_MAX: Final = 100

#: How a prerequisite, or another task, ended.
_ENDS: Final[Mapping[State, str]] = {
    State.SUCCESSFUL: "succeeded",
    State.FAILED: "failed",
    State.ERROR: "ended in error",
    State.CANCELED: "was canceled",
    State.SKIPPED: "was skipped",
}
#: How an attempt failed, where the signal alone does not tell.
_FAILURES: Final[Mapping[Reason, str]] = {
    Reason.TIMED_OUT: "it timed out",
    Reason.SILENT: "it printed nothing for too long",
    Reason.BAD_RESULT: "its result, progress, checkpoint or files cannot be taken",
    Reason.SIGNALED: "a signal ended it",
    Reason.GRAPH_FAILED: "the graph inside it did not finish",
}
#: Why a lost attempt has cost no retry.
_NO_RETRY_TEXTS: Final[Mapping[Reason | None, str]] = {
    Reason.RETURNED: ", and had not begun it: this costs no retry",
    Reason.UNRENEWED: ", which had ended it because it could not renew the lease: this costs no retry",
}
#: How an attempt was lost that its bot ended by itself.
_GIVEN_UP: Final[Mapping[Reason | None, str]] = {
    Reason.MISSING: "its playbook, inventory or files are not there",
    Reason.BOT_FAILED: "bot {bot} could not run it",
}
_PAST: Final = {CANCEL: "canceled", RERUN: "reran"}
_DECIDED: Final = {APPROVE: "approved", DENY: "denied"}


@dataclass(frozen=True, slots=True)
class MoveCause:
    """What caused a move, in words; and the other task, if there is one."""

    text: str
    task: int | None = None
    label: str | None = None


def find_causes(repo: Repo, history: TaskHistory, lease_ms: int) -> list[MoveCause]:
    """Return the cause of each item of a history, in the same order; `lease_ms` is the duration of leases."""
    search = _Search(repo, history, lease_ms)
    return [
        search.of_asked(one) if isinstance(one, RequestedAction) else search.of_move(one) for one in history.happened
    ]


class _Search:
    """One search for causes; what several items need is read once."""

    def __init__(self, repo: Repo, history: TaskHistory, lease_ms: int) -> None:
        self._repo = repo
        self._lease_ms = lease_ms
        self._history = history
        self._task = history.creation.task
        self._labels: dict[int, str] = {}
        self._exits = {one.number: one.exit_code for one in history.attempts}
        self._claimed = {one.number: one.claimed_ms for one in history.attempts}
        self._finders: Mapping[Signal, Callable[[TaskMove], MoveCause]] = {
            Signal.RELEASE: self._released,
            Signal.BLOCK: lambda move: self._prerequisite(move, UNSUCCESSFUL),
            Signal.DOOM: lambda move: self._prerequisite(move, UNSUCCESSFUL),
            Signal.SKIP: lambda move: self._prerequisite(move, ENDED),
            Signal.MEND: self._mended,
            Signal.ADMIT: self._admitted,
            Signal.CLAIM: lambda move: MoveCause(_claim_text(move)),
            Signal.SUCCEED: self._succeeded,
            Signal.FAIL: self._failed,
            Signal.LOSE: self._lost,
            Signal.RETURN: lambda move: MoveCause(
                f"bot {move.bot or self._bot(move)} gave it back, and had not begun it"
            ),
            Signal.EXPIRE: lambda move: MoveCause(_expiry_text(move)),
            Signal.CANCEL: lambda move: self._asked(move, CANCEL),
            Signal.RERUN: lambda move: self._asked(move, RERUN),
        }

    def of_asked(self, one: RequestedAction) -> MoveCause:
        """Return who requested what."""
        note = f" ({one.note})" if one.note else ""
        if one.action == NO_BOT:
            return MoveCause(one.note)
        return MoveCause(f"{_actor(one.actor)} asked: {one.action} the {one.about}{note}")

    def of_move(self, move: TaskMove) -> MoveCause:
        """Return why a task moved."""
        finder = self._finders.get(move.signal)
        return MoveCause(_FIXED_CAUSES[move.signal]) if finder is None else finder(move)

    # Prerequisites.

    def _released(self, move: TaskMove) -> MoveCause:
        if not self._edges:
            return MoveCause("it has no prerequisites")
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
        found = self._repo.edges.page_into(self._task, -1, EDGES_MAX)
        return list(dict.fromkeys(edge.prerequisite for edge in found))

    @cached_property
    def _around(self) -> list[EventRow]:
        return self._repo.read.recent_events(self._edges, EVENTS_MAX)

    # Admission.

    def _admitted(self, move: TaskMove) -> MoveCause:
        before = self._previous.get(move.number)
        since = self._history.creation.created_ms if before is None else before.at_ms
        if since == move.at_ms:
            return MoveCause("nothing holds it")
        begins = self._record.rules.not_before_ms
        if begins is not None and since <= begins <= move.at_ms:
            return MoveCause("its time has come")
        if before is not None and before.signal is Signal.FAIL and self._record.rules.delay_ms:
            return MoveCause("its pause before another try is over")
        return self._freed(move, since) or MoveCause("nothing holds it any more")

    def _freed(self, move: TaskMove, since: Millis) -> MoveCause | None:
        """Find the task that released a mutex while this task waited for it."""
        for key, left in self._rivals.items():
            last = max((one for one in left if since <= one.at_ms <= move.at_ms), key=_at, default=None)
            if last is None:
                continue
            if last.graph != self._history.creation.graph:  # the caller may not see tasks of other graphs
                return MoveCause(f"mutex {key} was released by a task of another graph")
            label = self._label(last.subject)
            return MoveCause(f"mutex {key} was released by {label}", last.subject, label)
        return None

    @cached_property
    def _rivals(self) -> dict[str, list[EventRow]]:
        """When tasks just before this one released each of its mutexes."""
        mutexes = self._repo.admission.mutexes_of([self._task]).get(self._task, ())
        rivals = {one.key: self._repo.read.mutex_rivals(one.key, self._task, RIVALS_MAX) for one in mutexes}
        return {
            key: [one for one in self._repo.read.recent_events(ids, EVENTS_MAX) if _released_mutex(one)]
            for key, ids in rivals.items()
        }

    @cached_property
    def _record(self) -> TaskRecord:
        return self._repo.tasks.read([self._task])[0]

    # Attempts.

    def _succeeded(self, move: TaskMove) -> MoveCause:
        return MoveCause(self._decision(move) or "it ended well")

    def _decision(self, move: TaskMove) -> str | None:
        """Return who decided about an approval, or that it timed out."""
        if self._record.kind != Kind.APPROVAL.text:
            return None
        asked = [one for one in self._history.happened if isinstance(one, RequestedAction) and one.at_ms == move.at_ms]
        decided = next((one for one in asked if one.action in _DECIDED), None)
        return "no decision in time" if decided is None else f"{_actor(decided.actor)} {_DECIDED[decided.action]} it"

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
        if move.reason in _GIVEN_UP:
            return MoveCause(f"{_GIVEN_UP[move.reason].format(bot=move.bot or self._bot(move))}{again}")
        why = _NO_RETRY_TEXTS.get(move.reason, "")
        return MoveCause(f"{self._loss(move, move.bot or self._bot(move))}{why}{again}")

    def _loss(self, move: TaskMove, bot: str) -> str:
        kinds = self._repo.read.bot_event_kinds(bot, move.at_ms, BOT_EVENTS_MAX)
        if CONNECTED in kinds:
            return f"bot {bot} began another session"
        if GOODBYE in kinds:
            return f"bot {bot} said goodbye"
        claimed = self._claimed.get(move.attempt or 0)
        lease_over = None if claimed is None else given_again_at(Millis(claimed + self._lease_ms))
        # A lease ends no sooner: an attempt that was lost before was given back.
        return f"bot {bot} gave it back" if lease_over and move.at_ms < lease_over else f"the lease of bot {bot} lapsed"

    def _bot(self, move: TaskMove) -> str:
        return next((one.bot for one in self._history.attempts if one.number == move.attempt), "")

    # People.

    def _asked(self, move: TaskMove, action: str) -> MoveCause:
        asked = [one for one in self._history.happened if isinstance(one, RequestedAction) and one.action == action]
        last = max((one for one in asked if one.at_ms <= move.at_ms), key=_at, default=None)
        if last is not None:
            what = "it" if last.about is RequestSubject.TASK else "the graph"
            return MoveCause(f"{_actor(last.actor)} {_PAST[action]} {what}")
        # A request to cancel a task with its dependents is in the audit of that task only.
        requests = self._repo.read.last_requests(ancestors(self._repo, self._task), action, PARENT_REQUESTS_MAX)
        found = next((one for one in requests if one[2] <= move.at_ms), None)
        if found is None:
            return MoveCause("a person asked for it")
        subject, actor, _ = found
        label = self._label(subject)
        return MoveCause(f"{_actor(actor)} {_PAST[action]} {label} and all behind it", subject, label)

    # Others.

    @cached_property
    def _previous(self) -> dict[int, TaskMove]:
        """The move before each move, by the number of its event."""
        moves = sorted((one for one in self._history.happened if isinstance(one, TaskMove)), key=lambda one: one.number)
        return {later.number: earlier for earlier, later in pairwise(moves)}

    def _label(self, task: int) -> str:
        if task not in self._labels:
            self._labels |= self._repo.read.labels([task])
        return self._labels[task]


#: Causes that need no search.
_FIXED_CAUSES: Final[Mapping[Signal, str]] = {
    Signal.REUSE: "an equal result was known",
    Signal.UNADMIT: "its last bot is gone, so it gives its mutexes back",
    Signal.DEADLINE: "its deadline passed",
}


def _last(events: Iterable[EventRow], move: TaskMove, fits: Callable[[EventRow], bool]) -> EventRow | None:
    """Find the last event that fits before a move; numbers are those of one graph."""
    return max((one for one in events if one.number < move.number and fits(one)), key=_number, default=None)


def _released_mutex(one: EventRow) -> bool:
    return one.source is not None and State(one.source) in HOLDING and State(one.target) not in HOLDING


def _at(one: EventRow | RequestedAction) -> int:
    return one.at_ms


def _number(one: EventRow) -> int:
    return one.number


def _actor(actor: str) -> str:
    return actor or "an unknown caller"


def _claim_text(move: TaskMove) -> str:
    return "the server runs it itself" if move.bot in (None, SERVER.bot) else f"bot {move.bot} claimed it"


def _expiry_text(move: TaskMove) -> str:
    said = "no bot could serve its slice" if move.reason is Reason.NO_BOT else "its slice waited too long for a bot"
    return f"{said}{'' if move.target in ENDED else '; the next one is tried'}"


def history_view(repo: Repo, story: TaskHistory, lease_ms: int) -> StoryView:
    """Show a history, with the cause of each item."""
    creation = story.creation
    before = [creation.created_ms, *(one.at_ms for one in story.happened)]
    return StoryView(
        task=text_of(Key(creation.task)),
        graph_id=text_of(Key(creation.graph)),
        label=creation.label,
        created_ms=creation.created_ms,
        state=story.state.text,
        whole=story.whole,
        items=[
            _item(one, cause, one.at_ms - last)
            for one, cause, last in zip(story.happened, find_causes(repo, story, lease_ms), before, strict=False)
        ],
        reused=reused(creation.source),
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
