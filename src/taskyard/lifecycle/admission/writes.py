"""Write what an admission pass has decided, page by page: one page is one transaction.

Every page is complete in itself: after any of them the store is as if the pass had found no more. The last page deletes
the dirty rows that led to the pass, so if a pass dies the next one finds them again. Nothing here decides what is
admitted, but a task that has moved since the decision is left alone.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from taskyard.core import attempt_policy, fleet, ids, structs
from taskyard.core.admission.rules import Held
from taskyard.core.reuse import APART
from taskyard.core.states import ACTIVE, REASONS, Millis, Outcome, Reason, Signal, TaskId, sources, step
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.queries import Row
from taskyard.store.rows import TaskRecord

#: How many tasks one page moves or reads: some 20 ms.
PAGE_MAX: Final = 200
#: How many holds a page writes if it does nothing else, and how many dirty rows it deletes: some 30 and 10 ms.
HOLDS_MAX: Final = 4_000
DELETED_MAX: Final = 10_000
#: How many tasks one transaction makes contenders.
ENTRIES_MAX: Final = 1_000
#: In place of a task in a dirty row: a pool has tasks that are not contenders yet. No task has this id.
UNENTERED: Final = 0
#: In place of a task in a dirty row: secrets changed, so tasks that lack one have to be looked at. No task has this id.
SECRETS_CHANGED: Final = -1
#: The states from which a task can be admitted.
ADMISSIBLE: Final = sources(Signal.ADMIT)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page:
    """What one transaction writes."""

    unadmit: tuple[TaskId, ...] = ()  # to take back their admissions: their last bot is gone
    admit: tuple[TaskId, ...] = ()
    bot_waits: tuple[Held, ...] = ()  # held, and their wait for a bot begins or ends
    held: tuple[Held, ...] = ()  # held, and only the reason changes
    gone: tuple[int, ...] = ()  # no longer pending, so nothing holds them
    dirty_rows: tuple[int, ...] = ()
    last: bool = False

    @property
    def tasks_to_lock(self) -> set[int]:
        """The tasks that have to be locked, all at once and so in one order."""
        moved = [*self.unadmit, *self.admit, *(one.id for one in self.bot_waits)]
        # If nothing moves, the reasons are written without locks: a reason that is outdated is dirty again.
        return {_key(id) for id in (*moved, *(one.id for one in self.held))} if moved else set()


@dataclass(frozen=True, slots=True)
class PageOutcome:
    """What a page has changed."""

    admitted: frozenset[TaskId]
    canceled: frozenset[TaskId]  # not admitted, because their graph is being canceled
    written: tuple[Held, ...]


@dataclass(slots=True)
class PendingPages:
    """What is still to be written."""

    unadmit: deque[TaskId] = field(default_factory=deque)
    admit: deque[TaskId] = field(default_factory=deque)
    bot_waits: deque[Held] = field(default_factory=deque)
    held: deque[Held] = field(default_factory=deque)
    gone: deque[int] = field(default_factory=deque)
    dirty_rows: deque[int] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.unadmit or self.admit or self.bot_waits or self.held or self.gone or self.dirty_rows)

    def transitions_page(self, page_max: int) -> Page:
        """Take a page of transitions only: it can be written before the decision is complete."""
        unadmit = _take(self.unadmit, page_max)
        return Page(unadmit, _take(self.admit, page_max - len(unadmit)))

    def page(self, page_max: int) -> Page:
        """Take the next page. Each part is only begun when all parts before it are in this page."""
        unadmit = _take(self.unadmit, page_max)
        admit = _take(self.admit, page_max - len(unadmit))
        bot_waits = _take(self.bot_waits, page_max - len(unadmit) - len(admit)) if not self.admit else ()
        if self.unadmit or self.admit or self.bot_waits:
            return Page(unadmit, admit, bot_waits)
        moved = len(unadmit) + len(admit) + len(bot_waits)
        held = _take(self.held, page_max - moved if moved else HOLDS_MAX)
        if self.held:
            return Page(unadmit, admit, bot_waits, held)
        gone, dirty_rows = _take(self.gone, HOLDS_MAX), _take(self.dirty_rows, DELETED_MAX) if not self.gone else ()
        return Page(unadmit, admit, bot_waits, held, gone, dirty_rows, last=not self)


def write_page(transaction: Transaction, page: Page, decided: Millis) -> PageOutcome:
    """Write a page that was decided at the moment `decided`."""
    tasks = transaction.lock_tasks(page.tasks_to_lock)
    _unadmit(transaction, _present(tasks, page.unadmit))
    to_admit = [task for task in _present(tasks, page.admit) if _can_be_admitted(task, max(decided, transaction.now))]
    canceled = _canceled(transaction, to_admit)
    admitted = [task for task in to_admit if task.graph not in canceled]
    _admit(transaction, admitted)
    written = _write_holds(transaction, page, tasks)
    transaction.repo.admission.delete_holds([*(task.id for task in admitted), *page.gone])
    transaction.repo.admission.delete_dirty(page.dirty_rows)
    skipped = frozenset(_text(task.id) for task in to_admit if task.graph in canceled)
    return PageOutcome(frozenset(_text(task.id) for task in admitted), skipped, written)


def add_contenders(transaction: Transaction, pool: str) -> bool:
    """Make some tasks of a pool contenders that no pass has looked at; return whether more are left."""
    ids = transaction.repo.admission.tasks_without_admission(pool, sorted(ACTIVE), ENTRIES_MAX + 1, APART)
    for task in transaction.lock_tasks(ids[:ENTRIES_MAX]).values():
        if task.state in ACTIVE:
            task.needs_admission = True
            transaction.mark_changed(task)
            transaction.mark_dirty(task.id)
    return len(ids) > ENTRIES_MAX


def _unadmit(transaction: Transaction, tasks: Iterable[TaskRecord]) -> None:
    """Let queued tasks that no bot serves any more give back their mutexes. The next pass finds them pending."""
    transitions = []
    for task in tasks:
        answer = step(task.state, Signal.UNADMIT)
        if answer.outcome is Outcome.MOVE and not _served(transaction, task):
            life = attempt_policy.held(
                structs.struct_replace(task.life, state=answer.target), Reason.NO_BOT, transaction.now
            )
            transitions.append(Transition(task, Signal.UNADMIT, life, REASONS[Signal.UNADMIT]))
    if transitions:
        transaction.apply(transitions)


def _served(transaction: Transaction, task: TaskRecord) -> bool:
    queue = transaction.registry.queue(transaction.repo, task.queue)
    return fleet.served(queue.dimensions, transaction.bots())


def _can_be_admitted(task: TaskRecord, now: Millis) -> bool:
    begins = task.life.not_before_ms
    return task.state in ADMISSIBLE and (begins is None or begins <= now)


def _canceled(transaction: Transaction, tasks: Iterable[TaskRecord]) -> set[int]:
    graphs = transaction.repo.graphs.peek({task.graph for task in tasks})
    return {graph.id for graph in graphs if graph.canceled_ms is not None}


def _admit(transaction: Transaction, tasks: Collection[TaskRecord]) -> None:
    if not tasks:
        return
    now = transaction.now
    transaction.apply_admissions(
        [Transition(one, Signal.ADMIT, attempt_policy.admitted(one.life, now), REASONS[Signal.ADMIT]) for one in tasks]
    )


def _write_holds(transaction: Transaction, page: Page, tasks: Mapping[int, TaskRecord]) -> tuple[Held, ...]:
    """Write why tasks are held, and whether they wait for a bot."""
    tasks_to_lock = page.tasks_to_lock
    held = {_key(one.id): one for one in (*page.bot_waits, *page.held)}
    written = {id: one for id, one in held.items() if id not in tasks_to_lock or _is_pending(tasks, id)}
    for one in page.bot_waits:
        if _key(one.id) in written:
            _set_bot_wait(transaction, tasks[_key(one.id)], one.reason)
    transaction.repo.admission.set_holds([_row(id, one) for id, one in sorted(written.items())])
    return tuple(written.values())


def _set_bot_wait(transaction: Transaction, task: TaskRecord, reason: Reason) -> None:
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


def _take(queue: deque[Item], count: int) -> tuple[Item, ...]:
    return tuple(queue.popleft() for _ in range(min(count, len(queue))))


def _key(id: TaskId) -> int:
    return ids.key_of(id)


def _text(key: int) -> TaskId:
    return TaskId(ids.text_of(ids.Key(key)))
