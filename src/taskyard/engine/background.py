"""Background jobs: timeouts, continuations, server tasks, the graphs inside tasks and below them, schedules, admission.

Each job does a little and says whether there may be more, so that none delays the others. An error is logged and the
rest of that job is left for the next sweep; the other jobs go on.
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
from taskyard.engine.errors import EngineError, Failed, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.parked_polls import ParkedPolls
from taskyard.engine.schedules import ScheduleRunner
from taskyard.engine.subgraphs import SubgraphStarter
from taskyard.lifecycle import children, continuations, links, server_tasks, timeouts
from taskyard.lifecycle.admission.scheduler import Admission
from taskyard.lifecycle.commands import ChooseTasks
from taskyard.lifecycle.rows import LOAD
from taskyard.lifecycle.transaction import FollowUp, Transaction
from taskyard.store.connection import Store
from taskyard.store.queries import DuplicateKey, StoreUnavailable, TransactionConflict
from taskyard.store.rows import Continuation

# Tasks that one job processes page by page, although one of them may fail every transaction that includes it.
#
# A page that fails is split into halves until the task that fails alone is found. That task is set aside, so that it
# delays no other, and is retried at each sweep. Nothing about it is written: its row stays as it was.


#: How many rows one transaction processes.
ROWS_MAX: Final = 500
#: How many tasks are set aside at most: each page skips all of them. More are a defect that needs a person.
SET_ASIDE_MAX: Final = 10_000
#: How many of them one sweep retries.
RETRIED_MAX: Final = 20
#: Errors that one row causes; an outage or a lost race is not among them.
FAULTS: Final = (Failed, DuplicateKey)

#: Finds at most so many tasks and processes those that the last argument chooses; returns how many those were.
ProcessPage: TypeAlias = Callable[[Transaction, int, ChooseTasks], int]

_LOG = logging.getLogger(__name__)


class PagedJob:
    """The tasks of one job, page by page."""

    def __init__(self, transact: Transact, boundary: Boundary, process_page: ProcessPage) -> None:
        self._transact = transact
        self._boundary = boundary
        self._process_page = process_page
        self.set_aside: dict[int, None] = {}  # in the order of their retries

    def next(self) -> bool:
        """Process a page; return whether there was one, so that there may be more."""
        page: list[int] = []  # known even if the transaction fails

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
        """Retry some of the tasks that were set aside, each alone."""
        for id in list(self.set_aside)[:RETRIED_MAX]:
            del self.set_aside[id]
            self._run_part([id])

    def _run_part(self, ids: Sequence[int]) -> int:
        """Process a part of a page; return how many tasks were processed or set aside."""
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


#: How many continuations run a page each before the other jobs have a turn.
CONTINUATIONS_MAX: Final = 8
#: How long the answer to an idempotency key is stored.
ANSWERS_STORED_MS: Final = 24 * 60 * 60 * 1_000
#: How many pages of each kind one sweep processes: more than arrive in that time, and no heartbeat is late for them.
PAGES_MAX: Final = 20


class Job(Enum):
    """The jobs that a commit or the clock can start."""

    TIMEOUTS = auto()
    CONTINUATIONS = auto()
    SERVER_TASKS = auto()
    SUBGRAPHS = auto()
    CHILDREN = auto()
    SCHEDULES = auto()
    ADMISSION = auto()


class BackgroundJobs:
    """The background jobs of one engine."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is a part of the engine
        self,
        transact: Transact,
        store: Store,
        clock: Clock,
        admission: Admission,
        parked_polls: ParkedPolls,
        subgraphs: SubgraphStarter,
        schedules: ScheduleRunner,
    ) -> None:
        self._transact = transact
        self._store = store
        self._clock = clock
        self._admission = admission
        self._parked_polls = parked_polls
        self._subgraphs = subgraphs
        self._schedules = schedules
        self.has_children = True  # whether any graph may wait for the end of an attempt
        self._deferred: set[int] = set()
        self._after = 0  # the last continuation that ran
        self._run_count = 0  # how many ran since the first
        self._due = PagedJob(transact, Boundary.LAPSE, timeouts.apply_timeouts)
        self._own = PagedJob(transact, Boundary.OWN, server_tasks.run_server_tasks)
        self._doing: Mapping[Job, Callable[[], bool]] = {
            Job.TIMEOUTS: self._due.next,
            Job.CONTINUATIONS: self._run_continuations,
            Job.SERVER_TASKS: self._own.next,
            Job.SUBGRAPHS: subgraphs.next,
            Job.CHILDREN: self._end_orphans,
            Job.SCHEDULES: schedules.next,
            Job.ADMISSION: self._admit,
        }

    def do(self, job: Job) -> bool:
        """Run a part of a job; return whether something was done, so that there may be more."""
        try:
            with outages():
                return self._doing[job]()
        except EngineError as trouble:
            _LOG.warning("%s is left for the next sweep: %s", job.name.lower(), trouble)
        except Exception:  # noqa: BLE001 - a bug in one job must not stop the others
            _LOG.exception("%s is left for the next sweep", job.name.lower())
        return False

    def beat(self) -> None:
        """Store the heartbeat of this server, and follow the clock that all servers share."""
        self._run_safely(Boundary.BEAT, self._beat)

    def sweep(self) -> None:
        """Do what is due every few seconds."""
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
        self._end_overdue_links()
        if self._parked_polls:  # another server may have made tasks ready for polls parked here
            self._run_safely(Boundary.OTHER, _serve_all_polls)

    def _end_overdue_links(self) -> None:
        with self._store.read() as repo:
            overdue = links.find_overdue(repo)
        if overdue:
            self._run_safely(Boundary.OWN, lambda transaction: links.end_overdue(transaction, overdue))

    def next_due(self) -> Millis | None:
        """Return when the next timeout of a task that is not set aside, an admission pass or a schedule is due."""
        set_aside = self._due.set_aside
        with self._store.read() as repo:
            due = repo.tasks.due(Millis(LAST_MS), len(set_aside) + 1)
        moments = (
            next((moment for id, moment in due.items() if id not in set_aside), None),
            self._admission.next_moment,
            self._schedules.next_moment,
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def alarmed(self, now: Millis) -> set[Job]:
        """Return the jobs with a moment that has come; timeouts of tasks may always have."""
        moments = {Job.ADMISSION: self._admission.next_moment, Job.SCHEDULES: self._schedules.next_moment}
        return {Job.TIMEOUTS, *(job for job, moment in moments.items() if moment is not None and moment <= now)}

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
        except EngineError as trouble:
            _LOG.warning("continuation %d is left for the next sweep: %s", continuation.id, trouble)
            self._deferred.add(continuation.id)
            return False
        return ran is not None

    def _end_orphans(self) -> bool:
        self.has_children = False  # a graph that comes during the read is not lost
        with self._store.read() as repo:
            if repo.task_list.has_watched_children():
                self.has_children = True
            orphans = repo.task_list.orphans(1) if self.has_children else []
        return bool(orphans) and self._transact(children.end_orphans, Boundary.OTHER) > 0

    def _admit(self) -> bool:
        return self._admission.schedule().more

    def _retry_set_aside(self, paged_job: PagedJob) -> None:
        try:
            paged_job.retry_set_aside()
        except EngineError as trouble:
            _LOG.warning("the tasks set aside are left for the next sweep: %s", trouble)

    def _pages(self, boundary: Boundary, act: Callable[[Transaction], int]) -> None:
        for _ in range(PAGES_MAX):
            if not self._run_safely(boundary, act):
                return

    def _run_safely(self, boundary: Boundary, act: Callable[[Transaction], int | None]) -> bool:
        try:
            return bool(self._transact(act, boundary))
        except EngineError as trouble:
            _LOG.warning("%s is left for the next sweep: %s", boundary, trouble)
            return False


def _serve_all_polls(transaction: Transaction) -> None:
    transaction.serve_all_queues()


# The background thread runs jobs when a commit hints at them, when a timeout is due, and in a sweep every few seconds.
#
# If all hints are lost, the sweep finds everything; without sweeps, hints and timeouts do. Each of the two alone brings
# every graph to the same end, which tests check. Only the heartbeat cannot be switched off. Admission passes alone can
# be left out of the sweeps, too.


#: How long a stop waits for the current transaction.
STOP_MAX_S: Final = 10
#: Later than any moment.
LAST: Final = Millis(LAST_MS)


class BackgroundThread:
    """The thread that decides when each job runs."""

    def __init__(
        self,
        jobs: BackgroundJobs,
        clock: Clock,
        events: bool = True,
        ticks: bool = True,
        periodic_passes: bool = True,
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._events = events
        self._ticks = ticks
        self._swept_jobs = frozenset(Job) if periodic_passes else frozenset(Job) - {Job.ADMISSION}
        self._lock = Lock()
        self._wanted: set[Job] = set(Job) if events else set()  # the last server may have left work
        self._alarm: Millis | None = None
        self._beat_at: Millis | None = None
        self._swept_at: Millis | None = None
        self._wake = Event()
        self._stopped = False
        self._thread = Thread(target=self._run, name="taskyard-background", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current transaction."""
        self._stopped = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def notify(self, left: FollowUp) -> None:
        """Note the work that a commit hints at."""
        if left.children:
            self._jobs.has_children = True
        if not self._events:
            return
        wanted = {
            job
            for job, hinted in (
                (Job.ADMISSION, left.admission_dirty),
                (Job.CONTINUATIONS, left.continuations),
                (Job.SERVER_TASKS, left.server_tasks),
                (Job.SUBGRAPHS, left.subgraphs),
                (Job.CHILDREN, left.attempts_ended and self._jobs.has_children),
            )
            if hinted
        }
        alarm, due = self._alarm, left.due_ms
        if wanted or (due is not None and (alarm is None or due < alarm)):
            self._notify(wanted, due)

    def run_once(self) -> bool:
        """Run the jobs that have a reason to run, a part each; return whether there was one."""
        now = self._clock.now()
        self._beat(now)
        swept = self._ticks and now >= _after(self._swept_at) and self._sweep(now)
        alarmed = self._alarm is not None and self._alarm <= now
        if alarmed:
            self._want(self._jobs.alarmed(now))
        wanted = self._take_wanted_jobs()
        done = {job for job in wanted if self._jobs.do(job)}
        # Without hints, any job may have made work for any other.
        self._want(done if self._events or not done else set(Job))
        if swept or alarmed or (wanted and not self._wanted):
            self._set_alarm()
        return bool(wanted)

    def _notify(self, wanted: set[Job], due: Millis | None) -> None:
        with self._lock:
            wakes = self._next_wake()
            self._wanted |= wanted
            self._alarm = _first(self._alarm, due)
        # What is due later than the next wake-up needs no wake-up of its own.
        if wanted or (due is not None and due < wakes):
            self._wake.set()

    def _take_wanted_jobs(self) -> list[Job]:
        with self._lock:
            wanted, self._wanted = self._wanted, set()
        return [job for job in Job if job in wanted]

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
        self._want(set(self._swept_jobs))
        return True

    def _set_alarm(self) -> None:
        """Read when the next timeout is due. An overdue one was left for a reason; the next sweep looks again."""
        self._alarm = None  # a hint that arrives during the read is not lost
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
                _LOG.warning("background jobs go on with the next sweep: %s", fault)
            except Exception:  # noqa: BLE001 - a bug in one job must not end all others
                _LOG.exception("background jobs go on with the next sweep")
            if not self._wanted:
                self._wake.wait(self._idle_seconds())

    def _idle_seconds(self) -> float:
        """Return for how many seconds there is nothing to do."""
        return max(0, self._next_wake() - self._clock.now()) / 1000

    def _next_wake(self) -> Millis:
        """Return when the thread wakes at the latest."""
        return min(self._alarm or LAST, _after(self._beat_at))


def _after(moment: Millis | None) -> Millis:
    """Return the moment one period after another; if there was none, now."""
    return Millis(0) if moment is None else Millis(moment + SWEEP_MS)


def _first(one: Millis | None, other: Millis | None) -> Millis | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
