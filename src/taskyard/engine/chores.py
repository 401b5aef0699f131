"""What has to be done though nobody asks for it: keep promises, run noops, admit, notice what time has brought.

Each chore does a little and says whether there may be more, so that none keeps the others waiting. Whatever fails is
logged and left for the next sweep; the rest goes on.
"""

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from taskyard.core.ids import LAST_MS
from taskyard.core.words import Millis
from taskyard.engine.bearing import Bearing
from taskyard.engine.clock import Clock
from taskyard.engine.failpoints import Boundary
from taskyard.engine.pages import LOAD_MAX_MS, Transact
from taskyard.engine.parking import Parking
from taskyard.engine.passage import Passage
from taskyard.engine.portions import ROWS_MAX, Portions
from taskyard.engine.troubles import Trouble, outages
from taskyard.lifecycle import continuations, server_tasks, timeouts
from taskyard.lifecycle.admission.scheduler import Admission
from taskyard.lifecycle.rows import LOAD
from taskyard.store.opening import Store
from taskyard.store.records import Note

#: How many promises are kept, a page each, before the others have a turn.
NOTES_MAX: Final = 8
#: For how long the answer to a key is kept.
ANSWERS_KEPT_MS: Final = 24 * 60 * 60 * 1_000
#: How many pages of each kind one sweep takes: more than may come in the same time, and a beat is never late for them.
PAGES_MAX: Final = 20

_LOG = logging.getLogger(__name__)


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
        self._due = Portions(transact, Boundary.LAPSE, timeouts.lapse)
        self._own = Portions(transact, Boundary.OWN, server_tasks.serve_own)
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
        self._pages(Boundary.SILENCE, lambda passage: timeouts.notice_silence(passage, ROWS_MAX))
        stale = Millis(now - LOAD_MAX_MS)
        self._pages(Boundary.FORGET, lambda passage: continuations.drop_stale_loads(passage, stale, ROWS_MAX))
        old = Millis(now - ANSWERS_KEPT_MS)
        self._pages(Boundary.FORGET, lambda passage: passage.txn.events.forget_answers(old, ROWS_MAX))
        if self._parking:  # another server may have made work ready for polls that wait at this one
            self._safely(Boundary.OTHER, _serve_all)

    def next_due(self) -> Millis | None:
        """Say when the clock next has something to say about a task that was not set aside, or to a pass."""
        aside = self._due.aside
        with self._store.read() as txn:
            due = txn.tasks.due(Millis(LAST_MS), len(aside) + 1)
        moments = (next((moment for id, moment in due.items() if id not in aside), None), self._admission.next_moment)
        return min((moment for moment in moments if moment is not None), default=None)

    def is_pass_due(self, now: Millis) -> bool:
        """Say whether a pass has something to do because time went by."""
        moment = self._admission.next_moment
        return moment is not None and moment <= now

    def _beat(self, passage: Passage) -> None:
        self._clock.follow(passage.txn.notes.clock)
        timeouts.beat(passage)

    def _keep_promises(self) -> bool:
        with self._store.read() as txn:
            notes = txn.notes.after(self._after, NOTES_MAX)
        for note in notes:
            self._after = note.id
            if note.kind != LOAD and note.id not in self._parked:
                self._kept += self._keep_promise(note)
        if len(notes) == NOTES_MAX:
            return True
        more, self._after, self._kept = self._kept > 0, 0, 0
        return more

    def _keep_promise(self, note: Note) -> bool:
        try:
            kept = self._transact(lambda passage: continuations.take_up(passage, note.id), Boundary.NOTE_PAGE)
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

    def _pages(self, boundary: Boundary, act: Callable[[Passage], int]) -> None:
        for _ in range(PAGES_MAX):
            if not self._safely(boundary, act):
                return

    def _safely(self, boundary: Boundary, act: Callable[[Passage], int | None]) -> bool:
        try:
            return bool(self._transact(act, boundary))
        except Trouble as trouble:
            _LOG.warning("%s is left for the next sweep: %s", boundary, trouble)
            return False


def _serve_all(passage: Passage) -> None:
    passage.serves_all = True
