"""What a pass has found and has still to write, page by page: one page is one transaction.

Every page stands alone: after any of them the store is as if the pass had found no more. The stirs that led to it are
dropped by its last page, so whoever follows a pass that died finds them again. Nothing here decides who is let in; but
a task that has moved on since it was looked at is left alone.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from taskyard.core import attempt_policy, fleet, ids, structs
from taskyard.core.admission.rules import Held
from taskyard.core.states import ACTIVE, REASONS, Millis, Outcome, Reason, Signal, TaskId, sources, step
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.queries import Row
from taskyard.store.rows import TaskRecord

#: How many tasks one page moves or looks at: some 20 ms.
PAGE_MAX: Final = 200
#: How many reasons one page notes when it does nothing else, and how many stirs it drops: some 30 and 10 ms.
NOTES_MAX: Final = 4_000
DROPS_MAX: Final = 10_000
#: How many tasks one transaction makes contenders.
ENTRIES_MAX: Final = 1_000
#: A stir in the place of a task's: a pool has tasks that no pass was told of. No task has this id.
UNENTERED: Final = 0
#: Where a task can be admitted from.
ADMISSIBLE: Final = sources(Signal.ADMIT)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page:
    """What one transaction does."""

    back: tuple[TaskId, ...] = ()  # to send back: their last bot is gone
    admit: tuple[TaskId, ...] = ()
    felt: tuple[Held, ...] = ()  # held, and their wait for a bot begins or ends by it
    held: tuple[Held, ...] = ()  # held, and nothing changes but the reason
    gone: tuple[int, ...] = ()  # no longer pending, so nothing holds them
    stirs: tuple[int, ...] = ()
    last: bool = False

    @property
    def looked_at(self) -> set[int]:
        """The tasks that have to be looked at, all at once, so that they are locked in one order."""
        moved = [*self.back, *self.admit, *(one.id for one in self.felt)]
        # Beside nothing else, reasons are only noted; a stir follows if one of them is out of date by then.
        return {_key(id) for id in (*moved, *(one.id for one in self.held))} if moved else set()


@dataclass(frozen=True, slots=True)
class PageOutcome:
    """What became of a page."""

    admitted: frozenset[TaskId]
    canceled: frozenset[TaskId]  # not admitted, since their graph is being canceled
    noted: tuple[Held, ...]


@dataclass(slots=True)
class PendingPages:
    """What is still to be written."""

    back: deque[TaskId] = field(default_factory=deque)
    admit: deque[TaskId] = field(default_factory=deque)
    felt: deque[Held] = field(default_factory=deque)
    held: deque[Held] = field(default_factory=deque)
    gone: deque[int] = field(default_factory=deque)
    stirs: deque[int] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.back or self.admit or self.felt or self.held or self.gone or self.stirs)

    def moves(self, page_max: int) -> Page:
        """Take a page of nothing but moves: it can be written though not all is thought out."""
        back = _taken(self.back, page_max)
        return Page(back, _taken(self.admit, page_max - len(back)))

    def page(self, page_max: int) -> Page:
        """Take the next page. What comes later in it is only begun when all before it is in this page."""
        back = _taken(self.back, page_max)
        admit = _taken(self.admit, page_max - len(back))
        felt = _taken(self.felt, page_max - len(back) - len(admit)) if not self.admit else ()
        if self.back or self.admit or self.felt:
            return Page(back, admit, felt)
        moved = len(back) + len(admit) + len(felt)
        held = _taken(self.held, page_max - moved if moved else NOTES_MAX)
        if self.held:
            return Page(back, admit, felt, held)
        gone, stirs = _taken(self.gone, NOTES_MAX), _taken(self.stirs, DROPS_MAX) if not self.gone else ()
        return Page(back, admit, felt, held, gone, stirs, last=not self)


def write_page(transaction: Transaction, page: Page, decided: Millis) -> PageOutcome:
    """Write a page that was thought out at the moment `decided`."""
    tasks = transaction.lock_tasks(page.looked_at)
    _send_back(transaction, _present(tasks, page.back))
    coming = [task for task in _present(tasks, page.admit) if _may_come(task, max(decided, transaction.now))]
    canceled = _canceled(transaction, coming)
    admitted = [task for task in coming if task.graph not in canceled]
    _let_in(transaction, admitted)
    noted = _note(transaction, page, tasks)
    transaction.repo.admission.delete_holds([*(task.id for task in admitted), *page.gone])
    transaction.repo.admission.delete_dirty(page.stirs)
    left_out = frozenset(_text(task.id) for task in coming if task.graph in canceled)
    return PageOutcome(frozenset(_text(task.id) for task in admitted), left_out, noted)


def add_contenders(transaction: Transaction, pool: str) -> bool:
    """Make some tasks of a pool contenders that no pass has looked at; tell whether more are left."""
    ids = transaction.repo.admission.tasks_without_admission(pool, sorted(ACTIVE), ENTRIES_MAX + 1)
    for task in transaction.lock_tasks(ids[:ENTRIES_MAX]).values():
        if task.state in ACTIVE:
            task.needs_admission = True
            transaction.mark_changed(task)
            transaction.mark_dirty(task.id)
    return len(ids) > ENTRIES_MAX


def _send_back(transaction: Transaction, tasks: Iterable[TaskRecord]) -> None:
    """Have waiting tasks that no bot serves any more give their mutexes back. The next look finds them pending."""
    moves = []
    for task in tasks:
        answer = step(task.state, Signal.UNADMIT)
        if answer.outcome is Outcome.MOVE and not _served(transaction, task):
            life = attempt_policy.held(
                structs.struct_replace(task.life, state=answer.target), Reason.NO_BOT, transaction.now
            )
            moves.append(Transition(task, Signal.UNADMIT, life, REASONS[Signal.UNADMIT]))
    if moves:
        transaction.apply(moves)


def _served(transaction: Transaction, task: TaskRecord) -> bool:
    queue = transaction.registry.queue(transaction.repo, task.queue)
    return fleet.served(queue.dimensions, transaction.bots())


def _may_come(task: TaskRecord, now: Millis) -> bool:
    begins = task.life.not_before_ms
    return task.state in ADMISSIBLE and (begins is None or begins <= now)


def _canceled(transaction: Transaction, tasks: Iterable[TaskRecord]) -> set[int]:
    graphs = transaction.repo.graphs.peek({task.graph for task in tasks})
    return {graph.id for graph in graphs if graph.canceled_ms is not None}


def _let_in(transaction: Transaction, tasks: Collection[TaskRecord]) -> None:
    if not tasks:
        return
    now = transaction.now
    transaction.apply_admissions(
        [Transition(one, Signal.ADMIT, attempt_policy.admitted(one.life, now), REASONS[Signal.ADMIT]) for one in tasks]
    )


def _note(transaction: Transaction, page: Page, tasks: Mapping[int, TaskRecord]) -> tuple[Held, ...]:
    """Note why tasks are held, and what that makes of their wait for a bot."""
    looked_at = page.looked_at
    held = {_key(one.id): one for one in (*page.felt, *page.held)}
    noted = {id: one for id, one in held.items() if id not in looked_at or _is_pending(tasks, id)}
    for one in page.felt:
        if _key(one.id) in noted:
            _wait(transaction, tasks[_key(one.id)], one.reason)
    transaction.repo.admission.set_holds([_row(id, one) for id, one in sorted(noted.items())])
    return tuple(noted.values())


def _wait(transaction: Transaction, task: TaskRecord, reason: Reason) -> None:
    task.life = attempt_policy.held(task.life, reason, transaction.now)
    task.due_ms = attempt_policy.due_at(task.life, task.rules, None, transaction.now)
    transaction.mark_changed(task)


def _is_pending(tasks: Mapping[int, TaskRecord], id: int) -> bool:
    return id in tasks and tasks[id].state in ADMISSIBLE


def _present(tasks: Mapping[int, TaskRecord], wanted: Iterable[TaskId]) -> list[TaskRecord]:
    return [tasks[_key(id)] for id in wanted if _key(id) in tasks]


def _row(id: int, held: Held) -> Row:
    by = None if held.by is None else _key(held.by)
    return (id, str(held.reason), held.name, by, held.since, held.mutex_since)


def _taken(queue: deque[Item], count: int) -> tuple[Item, ...]:
    return tuple(queue.popleft() for _ in range(min(count, len(queue))))


def _key(id: TaskId) -> int:
    return ids.key_of(id)


def _text(key: int) -> TaskId:
    return TaskId(ids.text_of(ids.Key(key)))
