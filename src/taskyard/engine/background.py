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
from taskyard.engine.parked_polls import Parking
from taskyard.engine.subgraphs import Bearing
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
ASIDE_MAX: Final = 10_000
#: How many of them are tried again in one sweep.
TRIED_AGAIN_MAX: Final = 20
#: What is the fault of a row. The database being away, or a lost race, is nobody's.
FAULTS: Final = (Failed, DuplicateKey)

#: Looks for some rows, and deals with those that are chosen; says how many these were.
Deal: TypeAlias = Callable[[Transaction, int, ChooseTasks], int]

_LOG = logging.getLogger(__name__)


class Portions:
    """The rows of one chore."""

    def __init__(self, transact: Transact, boundary: Boundary, deal: Deal) -> None:
        self._transact = transact
        self._boundary = boundary
        self._deal = deal
        self.aside: dict[int, None] = {}  # in the order in which they are tried again

    def next(self) -> bool:
        """Deal with a page; say whether there was one, so that there may be more."""
        page: list[int] = []  # is known though the transaction fails

        def choose(found: Iterable[int]) -> list[int]:
            page[:] = [id for id in found if id not in self.aside][:ROWS_MAX]
            return page

        try:
            return self._carry_out(choose) > 0
        except FAULTS as fault:
            if not page or len(self.aside) >= ASIDE_MAX:
                raise
            return self._split(page, fault) > 0

    def try_again(self) -> None:
        """Deal with some of those that were set aside, each alone."""
        for id in list(self.aside)[:TRIED_AGAIN_MAX]:
            del self.aside[id]
            self._part([id])

    def _part(self, ids: Sequence[int]) -> int:
        """Deal with a part of a page; say how many were dealt with or set aside."""
        wanted = frozenset(ids)
        try:
            return self._carry_out(lambda found: [id for id in found if id in wanted])
        except FAULTS as fault:
            return self._split(ids, fault)

    def _split(self, ids: Sequence[int], fault: Exception) -> int:
        if len(ids) > 1:
            half = len(ids) // 2
            return self._part(ids[:half]) + self._part(ids[half:])
        _LOG.error("%s: task %s is set aside until the next sweep: %s", self._boundary, text_of(Key(ids[0])), fault)
        self.aside[ids[0]] = None
        return 1

    def _carry_out(self, choose: ChooseTasks) -> int:
        count = ROWS_MAX + len(self.aside)
        return self._transact(lambda transaction: self._deal(transaction, count, choose), self._boundary)


#: How many promises are kept, a page each, before the others have a turn.
NOTES_MAX: Final = 8
#: For how long the answer to a key is kept.
ANSWERS_KEPT_MS: Final = 24 * 60 * 60 * 1_000
#: How many pages of each kind one sweep takes: more than may come in the same time, and a beat is never late for them.
PAGES_MAX: Final = 20


class Chore(Enum):
    """Everything that can be made to happen at once."""

    LAPSE = auto()
    PROMISES = auto()
    OWN = auto()
    INNER = auto()
    PASSES = auto()


class Chores:
    """What one engine does by itself."""

    def __init__(
        self,
        transact: Transact,
        store: Store,
        clock: Clock,
        admission: Admission,
        parking: Parking,
        bearing: Bearing,
    ) -> None:
        self._transact = transact
        self._store = store
        self._clock = clock
        self._admission = admission
        self._parking = parking
        self._bearing = bearing
        self._parked: set[int] = set()
        self._after = 0  # the last note that was taken up
        self._kept = 0  # how many were, since the first
        self._due = Portions(transact, Boundary.LAPSE, timeouts.apply_timeouts)
        self._own = Portions(transact, Boundary.OWN, server_tasks.run_server_tasks)
        self._doing: Mapping[Chore, Callable[[], bool]] = {
            Chore.LAPSE: self._due.next,
            Chore.PROMISES: self._keep_promises,
            Chore.OWN: self._own.next,
            Chore.INNER: bearing.next,
            Chore.PASSES: self._pass,
        }

    def do(self, chore: Chore) -> bool:
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
        self._safely(Boundary.BEAT, self._beat)

    def sweep(self) -> None:
        """Do what is done every few seconds."""
        self._parked.clear()
        self._bearing.try_again()
        for portions in (self._due, self._own):
            self._try_again(portions)
        now = self._clock.now()
        self._pages(Boundary.SILENCE, lambda transaction: timeouts.mark_missing_bots(transaction, ROWS_MAX))
        stale = Millis(now - LOAD_MAX_MS)
        self._pages(Boundary.FORGET, lambda transaction: continuations.drop_stale_loads(transaction, stale, ROWS_MAX))
        old = Millis(now - ANSWERS_KEPT_MS)
        self._pages(Boundary.FORGET, lambda transaction: transaction.repo.events.delete_old_answers(old, ROWS_MAX))
        if self._parking:  # another server may have made work ready for polls that wait at this one
            self._safely(Boundary.OTHER, _serve_all)

    def next_due(self) -> Millis | None:
        """Say when the clock next has something to say about a task that was not set aside, or to a pass."""
        aside = self._due.aside
        with self._store.read() as repo:
            due = repo.tasks.due(Millis(LAST_MS), len(aside) + 1)
        moments = (next((moment for id, moment in due.items() if id not in aside), None), self._admission.next_moment)
        return min((moment for moment in moments if moment is not None), default=None)

    def is_pass_due(self, now: Millis) -> bool:
        """Say whether a pass has something to do because time went by."""
        moment = self._admission.next_moment
        return moment is not None and moment <= now

    def _beat(self, transaction: Transaction) -> None:
        self._clock.follow(transaction.repo.servers.database_time)
        timeouts.heartbeat(transaction)

    def _keep_promises(self) -> bool:
        with self._store.read() as repo:
            notes = repo.continuations.after(self._after, NOTES_MAX)
        for note in notes:
            self._after = note.id
            if note.kind != LOAD and note.id not in self._parked:
                self._kept += self._keep_promise(note)
        if len(notes) == NOTES_MAX:
            return True
        more, self._after, self._kept = self._kept > 0, 0, 0
        return more

    def _keep_promise(self, note: Continuation) -> bool:
        try:
            kept = self._transact(lambda transaction: continuations.run_page(transaction, note.id), Boundary.NOTE_PAGE)
        except Trouble as trouble:
            _LOG.warning("note %d is left for the next sweep: %s", note.id, trouble)
            self._parked.add(note.id)
            return False
        return kept is not None

    def _pass(self) -> bool:
        return self._admission.schedule().more

    def _try_again(self, portions: Portions) -> None:
        try:
            portions.try_again()
        except Trouble as trouble:
            _LOG.warning("what was set aside is left for the next sweep: %s", trouble)

    def _pages(self, boundary: Boundary, act: Callable[[Transaction], int]) -> None:
        for _ in range(PAGES_MAX):
            if not self._safely(boundary, act):
                return

    def _safely(self, boundary: Boundary, act: Callable[[Transaction], int | None]) -> bool:
        try:
            return bool(self._transact(act, boundary))
        except Trouble as trouble:
            _LOG.warning("%s is left for the next sweep: %s", boundary, trouble)
            return False


def _serve_all(transaction: Transaction) -> None:
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


class Ticker:
    """When what is done."""

    def __init__(self, chores: Chores, clock: Clock, events: bool = True, ticks: bool = True) -> None:
        self._chores = chores
        self._clock = clock
        self._events = events
        self._ticks = ticks
        self._lock = Lock()
        self._wanted: set[Chore] = set(Chore) if events else set()  # whoever was here before may have left something
        self._alarm: Millis | None = None
        self._beaten: Millis | None = None
        self._swept: Millis | None = None
        self._woken = Event()
        self._stopped = False
        self._thread = Thread(target=self._run, name="taskyard-ticker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction that is under way."""
        self._stopped = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def hear(self, left: FollowUp) -> None:
        """Take the hints of a commit."""
        if not self._events:
            return
        wanted = {
            chore
            for chore, hinted in (
                (Chore.PASSES, left.admission_dirty),
                (Chore.PROMISES, left.continuations),
                (Chore.OWN, left.server_tasks),
                (Chore.INNER, left.subgraphs),
            )
            if hinted
        }
        alarm, due = self._alarm, left.due_ms
        if wanted or (due is not None and (alarm is None or due < alarm)):
            self._hear(wanted, due)

    def turn(self) -> bool:
        """Do some of what there is a reason to do; tell whether there was one."""
        now = self._clock.now()
        self._beat(now)
        swept = self._ticks and now >= _after(self._swept) and self._sweep(now)
        alarmed = self._alarm is not None and self._alarm <= now
        if alarmed:
            self._want({Chore.LAPSE, Chore.PASSES} if self._chores.is_pass_due(now) else {Chore.LAPSE})
        wanted = self._take_wanted()
        done = {chore for chore in wanted if self._chores.do(chore)}
        # Who hears nothing has to look everywhere for what a chore has led to.
        self._want(done if self._events or not done else set(Chore))
        if swept or alarmed or (wanted and not self._wanted):
            self._set_alarm()
        return bool(wanted)

    def _hear(self, wanted: set[Chore], due: Millis | None) -> None:
        with self._lock:
            wakes = self._wakes()
            self._wanted |= wanted
            self._alarm = _first(self._alarm, due)
        # Nobody has to get up for what is due after one gets up anyway.
        if wanted or (due is not None and due < wakes):
            self._woken.set()

    def _take_wanted(self) -> list[Chore]:
        with self._lock:
            wanted, self._wanted = self._wanted, set()
        return [chore for chore in Chore if chore in wanted]

    def _want(self, chores: set[Chore]) -> None:
        with self._lock:
            self._wanted |= chores

    def _beat(self, now: Millis) -> None:
        if now >= _after(self._beaten):
            self._beaten = now
            self._chores.beat()

    def _sweep(self, now: Millis) -> bool:
        self._swept = now
        self._chores.sweep()
        self._want(set(Chore))
        return True

    def _set_alarm(self) -> None:
        """Find out when something is due next. What is overdue was left for a reason; the next sweep looks again."""
        self._alarm = None  # what is heard while we look is not lost
        due = self._chores.next_due() if self._events else None
        now = self._clock.now()
        with self._lock:
            self._alarm = _first(self._alarm, due if due is None or due > now else Millis(now + SWEEP_MS))

    def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            try:
                self.turn()
            except (TransactionConflict, StoreUnavailable) as fault:
                _LOG.warning("the ticker goes on with the next sweep: %s", fault)
            except Exception:  # noqa: BLE001 - a bug in one chore must not end all others
                _LOG.exception("the ticker goes on with the next sweep")
            if not self._wanted:
                self._woken.wait(self._span())

    def _span(self) -> float:
        """Say for how many seconds there is nothing to do."""
        return max(0, self._wakes() - self._clock.now()) / 1000

    def _wakes(self) -> Millis:
        """Say when one gets up at the latest."""
        return min(self._alarm or LAST, _after(self._beaten))


def _after(moment: Millis | None) -> Millis:
    """Give the moment one period after another; if that never was, now is late enough."""
    return Millis(0) if moment is None else Millis(moment + SWEEP_MS)


def _first(one: Millis | None, other: Millis | None) -> Millis | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
