"""What has to be done though nobody asks for it: keep promises, run noops, admit, notice what time has brought.

Each chore does a little and says whether there may be more, so that none keeps the others waiting. Whatever fails is
logged and left for the next sweep; the rest goes on.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from threading import Event, Lock, Thread
from typing import Final, TypeAlias

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.ids import LAST_MS, Key, text_of
from taskyard.core.states import Millis
from taskyard.engine.bulk_load import LOAD_MAX_MS, Transact
from taskyard.engine.clock import Clock
from taskyard.engine.errors import Failed, Trouble, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.parked_polls import ParkedPolls
from taskyard.engine.subgraphs import SubgraphStarter
from taskyard.lifecycle import continuations, server_tasks, timeouts
from taskyard.lifecycle.admission.scheduler import Admission
from taskyard.lifecycle.commands import ChooseTasks
from taskyard.lifecycle.rows import LOAD
from taskyard.lifecycle.transaction import FollowUp, Transaction
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey, StoreUnavailable, TransactionConflict
from taskyard.store.rows import Continuation

# Rows that are dealt with together, page by page, though one of them may be spoiled.
#
# A page that fails is dealt with in halves, and these in halves, until whoever fails alone is found and set aside.
# Then pages go on without it, so it keeps nobody waiting; now and then it is tried again. Nothing about it is written:
# whoever mends the row finds it as it was.


#: How many rows one transaction deals with.
ROWS_MAX: Final = 500
#: How many are set aside at most: each page looks past all of them. So many are no accident, and somebody will come.
SET_ASIDE_MAX: Final = 10_000
#: How many of them are tried again in one sweep.
RETRIED_MAX: Final = 20
#: What is the fault of a row. The database being away, or a lost race, is nobody's.
FAULTS: Final = (Failed, DuplicateKey)

#: Looks for some rows, and deals with those that are chosen; says how many these were.
ProcessPage: TypeAlias = Callable[[Transaction, int, ChooseTasks], int]

_LOG = logging.getLogger(__name__)


class PagedJob:
    """The rows of one chore."""

    def __init__(self, transact: Transact, boundary: Boundary, process_page: ProcessPage) -> None:
        self._transact = transact
        self._boundary = boundary
        self._process_page = process_page
        self.set_aside: dict[int, None] = {}  # in the order in which they are tried again

    def next(self) -> bool:
        """Deal with a page; say whether there was one, so that there may be more."""
        page: list[int] = []  # is known though the transaction fails

        def choose(found: Iterable[int]) -> list[int]:
            page[:] = [id for id in found if id not in self.set_aside][:ROWS_MAX]
            return page

        try:
            return self._run_page(choose) > 0
        except FAULTS as fault:
            if not page or len(self.set_aside) >= SET_ASIDE_MAX:
                raise
            return self._split(page, fault) > 0

    def retry_set_aside(self) -> None:
        """Deal with some of those that were set aside, each alone."""
        for id in list(self.set_aside)[:RETRIED_MAX]:
            del self.set_aside[id]
            self._run_part([id])

    def _run_part(self, ids: Sequence[int]) -> int:
        """Deal with a part of a page; say how many were dealt with or set aside."""
        wanted = frozenset(ids)
        try:
            return self._run_page(lambda found: [id for id in found if id in wanted])
        except FAULTS as fault:
            return self._split(ids, fault)

    def _split(self, ids: Sequence[int], fault: Exception) -> int:
        if len(ids) > 1:
            half = len(ids) // 2
            return self._run_part(ids[:half]) + self._run_part(ids[half:])
        _LOG.error("%s: task %s is set aside until the next sweep: %s", self._boundary, text_of(Key(ids[0])), fault)
        self.set_aside[ids[0]] = None
        return 1

    def _run_page(self, choose: ChooseTasks) -> int:
        count = ROWS_MAX + len(self.set_aside)
        return self._transact(lambda transaction: self._process_page(transaction, count, choose), self._boundary)


#: How many promises are kept, a page each, before the others have a turn.
CONTINUATIONS_MAX: Final = 8
#: For how long the answer to a key is kept.
ANSWERS_STORED_MS: Final = 24 * 60 * 60 * 1_000
#: How many pages of each kind one sweep takes: more than may come in the same time, and a beat is never late for them.
PAGES_MAX: Final = 20


class Job(Enum):
    """Everything that can be made to happen at once."""

    TIMEOUTS = auto()
    CONTINUATIONS = auto()
    SERVER_TASKS = auto()
    SUBGRAPHS = auto()
    ADMISSION = auto()


class BackgroundJobs:
    """What one engine does by itself."""

    def __init__(
        self,
        transact: Transact,
        store: Store,
        clock: Clock,
        admission: Admission,
        parked_polls: ParkedPolls,
        subgraphs: SubgraphStarter,
    ) -> None:
        self._transact = transact
        self._store = store
        self._clock = clock
        self._admission = admission
        self._parked_polls = parked_polls
        self._subgraphs = subgraphs
        self._deferred: set[int] = set()
        self._after = 0  # the last note that was taken up
        self._run_count = 0  # how many were, since the first
        self._due = PagedJob(transact, Boundary.LAPSE, timeouts.apply_timeouts)
        self._own = PagedJob(transact, Boundary.OWN, server_tasks.run_server_tasks)
        self._doing: Mapping[Job, Callable[[], bool]] = {
            Job.TIMEOUTS: self._due.next,
            Job.CONTINUATIONS: self._run_continuations,
            Job.SERVER_TASKS: self._own.next,
            Job.SUBGRAPHS: subgraphs.next,
            Job.ADMISSION: self._admit,
        }

    def do(self, chore: Job) -> bool:
        """Do a part of a chore; say whether something was done, so that there may be more."""
        try:
            with outages():
                return self._doing[chore]()
        except Trouble as trouble:
            _LOG.warning("%s is left for the next sweep: %s", chore.name.lower(), trouble)
        except Exception:  # noqa: BLE001 - a bug in one chore must not keep us from the others
            _LOG.exception("%s is left for the next sweep", chore.name.lower())
        return False

    def beat(self) -> None:
        """Keep that the service is alive, and go by the clock that all servers share."""
        self._run_safely(Boundary.BEAT, self._beat)

    def sweep(self) -> None:
        """Do what is done every few seconds."""
        self._deferred.clear()
        self._subgraphs.retry_set_aside()
        for paged_job in (self._due, self._own):
            self._retry_set_aside(paged_job)
        now = self._clock.now()
        self._pages(Boundary.SILENCE, lambda transaction: timeouts.mark_missing_bots(transaction, ROWS_MAX))
        stale = Millis(now - LOAD_MAX_MS)
        self._pages(Boundary.FORGET, lambda transaction: continuations.drop_stale_loads(transaction, stale, ROWS_MAX))
        old = Millis(now - ANSWERS_STORED_MS)
        self._pages(Boundary.FORGET, lambda transaction: transaction.repo.events.delete_old_answers(old, ROWS_MAX))
        if self._parked_polls:  # another server may have made work ready for polls that wait at this one
            self._run_safely(Boundary.OTHER, _serve_all_polls)

    def next_due(self) -> Millis | None:
        """Say when the clock next has something to say about a task that was not set aside, or to a pass."""
        set_aside = self._due.set_aside
        with self._store.read() as repo:
            due = repo.tasks.due(Millis(LAST_MS), len(set_aside) + 1)
        moments = (
            next((moment for id, moment in due.items() if id not in set_aside), None),
            self._admission.next_moment,
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def is_admission_due(self, now: Millis) -> bool:
        """Say whether a pass has something to do because time went by."""
        moment = self._admission.next_moment
        return moment is not None and moment <= now

    def _beat(self, transaction: Transaction) -> None:
        self._clock.follow(transaction.repo.servers.database_time)
        timeouts.heartbeat(transaction)

    def _run_continuations(self) -> bool:
        with self._store.read() as repo:
            notes = repo.continuations.after(self._after, CONTINUATIONS_MAX)
        for continuation in notes:
            self._after = continuation.id
            if continuation.kind != LOAD and continuation.id not in self._deferred:
                self._run_count += self._run_continuation(continuation)
        if len(notes) == CONTINUATIONS_MAX:
            return True
        more, self._after, self._run_count = self._run_count > 0, 0, 0
        return more

    def _run_continuation(self, continuation: Continuation) -> bool:
        try:
            ran = self._transact(
                lambda transaction: continuations.run_page(transaction, continuation.id), Boundary.NOTE_PAGE
            )
        except Trouble as trouble:
            _LOG.warning("note %d is left for the next sweep: %s", continuation.id, trouble)
            self._deferred.add(continuation.id)
            return False
        return ran is not None

    def _admit(self) -> bool:
        return self._admission.schedule().more

    def _retry_set_aside(self, paged_job: PagedJob) -> None:
        try:
            paged_job.retry_set_aside()
        except Trouble as trouble:
            _LOG.warning("what was set aside is left for the next sweep: %s", trouble)

    def _pages(self, boundary: Boundary, act: Callable[[Transaction], int]) -> None:
        for _ in range(PAGES_MAX):
            if not self._run_safely(boundary, act):
                return

    def _run_safely(self, boundary: Boundary, act: Callable[[Transaction], int | None]) -> bool:
        try:
            return bool(self._transact(act, boundary))
        except Trouble as trouble:
            _LOG.warning("%s is left for the next sweep: %s", boundary, trouble)
            return False


def _serve_all_polls(transaction: Transaction) -> None:
    transaction.serve_all_queues()


# The ticker: has chores done when a commit hints at them, when something is due, and every few seconds anyway.
#
# Hints may all be lost: then the sweep finds everything. Sweeps may all be left out: then hints and alarms do. Each of
# the two alone brings every graph to the same end, and tests hold them to it. Only the beat, by which the service
# keeps that it is alive, is never left out.


#: How long a stop waits for the transaction that is under way.
STOP_MAX_S: Final = 10
#: Later than any moment.
LAST: Final = Millis(LAST_MS)


class BackgroundThread:
    """When what is done."""

    def __init__(self, jobs: BackgroundJobs, clock: Clock, events: bool = True, ticks: bool = True) -> None:
        self._jobs = jobs
        self._clock = clock
        self._events = events
        self._ticks = ticks
        self._lock = Lock()
        self._wanted: set[Job] = set(Job) if events else set()  # whoever was here before may have left something
        self._alarm: Millis | None = None
        self._beat_at: Millis | None = None
        self._swept_at: Millis | None = None
        self._wake = Event()
        self._stopped = False
        self._thread = Thread(target=self._run, name="taskyard-ticker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction that is under way."""
        self._stopped = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def notify(self, left: FollowUp) -> None:
        """Take the hints of a commit."""
        if not self._events:
            return
        wanted = {
            chore
            for chore, hinted in (
                (Job.ADMISSION, left.admission_dirty),
                (Job.CONTINUATIONS, left.continuations),
                (Job.SERVER_TASKS, left.server_tasks),
                (Job.SUBGRAPHS, left.subgraphs),
            )
            if hinted
        }
        alarm, due = self._alarm, left.due_ms
        if wanted or (due is not None and (alarm is None or due < alarm)):
            self._notify(wanted, due)

    def run_once(self) -> bool:
        """Do some of what there is a reason to do; tell whether there was one."""
        now = self._clock.now()
        self._beat(now)
        swept = self._ticks and now >= _after(self._swept_at) and self._sweep(now)
        alarmed = self._alarm is not None and self._alarm <= now
        if alarmed:
            self._want({Job.TIMEOUTS, Job.ADMISSION} if self._jobs.is_admission_due(now) else {Job.TIMEOUTS})
        wanted = self._take_wanted_jobs()
        done = {chore for chore in wanted if self._jobs.do(chore)}
        # Who hears nothing has to look everywhere for what a chore has led to.
        self._want(done if self._events or not done else set(Job))
        if swept or alarmed or (wanted and not self._wanted):
            self._set_alarm()
        return bool(wanted)

    def _notify(self, wanted: set[Job], due: Millis | None) -> None:
        with self._lock:
            wakes = self._next_wake()
            self._wanted |= wanted
            self._alarm = _first(self._alarm, due)
        # Nobody has to get up for what is due after one gets up anyway.
        if wanted or (due is not None and due < wakes):
            self._wake.set()

    def _take_wanted_jobs(self) -> list[Job]:
        with self._lock:
            wanted, self._wanted = self._wanted, set()
        return [chore for chore in Job if chore in wanted]

    def _want(self, jobs: set[Job]) -> None:
        with self._lock:
            self._wanted |= jobs

    def _beat(self, now: Millis) -> None:
        if now >= _after(self._beat_at):
            self._beat_at = now
            self._jobs.beat()

    def _sweep(self, now: Millis) -> bool:
        self._swept_at = now
        self._jobs.sweep()
        self._want(set(Job))
        return True

    def _set_alarm(self) -> None:
        """Find out when something is due next. What is overdue was left for a reason; the next sweep looks again."""
        self._alarm = None  # what is heard while we look is not lost
        due = self._jobs.next_due() if self._events else None
        now = self._clock.now()
        with self._lock:
            self._alarm = _first(self._alarm, due if due is None or due > now else Millis(now + SWEEP_MS))

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            try:
                self.run_once()
            except (TransactionConflict, StoreUnavailable) as fault:
                _LOG.warning("the ticker goes on with the next sweep: %s", fault)
            except Exception:  # noqa: BLE001 - a bug in one chore must not end all others
                _LOG.exception("the ticker goes on with the next sweep")
            if not self._wanted:
                self._wake.wait(self._idle_seconds())

    def _idle_seconds(self) -> float:
        """Say for how many seconds there is nothing to do."""
        return max(0, self._next_wake() - self._clock.now()) / 1000

    def _next_wake(self) -> Millis:
        """Say when one gets up at the latest."""
        return min(self._alarm or LAST, _after(self._beat_at))


def _after(moment: Millis | None) -> Millis:
    """Give the moment one period after another; if that never was, now is late enough."""
    return Millis(0) if moment is None else Millis(moment + SWEEP_MS)


def _first(one: Millis | None, other: Millis | None) -> Millis | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
