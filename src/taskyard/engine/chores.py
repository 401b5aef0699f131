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
from taskyard.engine.clock import Clock
from taskyard.engine.failpoints import Boundary
from taskyard.engine.pages import LOAD_MAX_MS, Transact
from taskyard.engine.passage import Passage
from taskyard.engine.troubles import Trouble, outages
from taskyard.lifecycle import lapse, own, promises
from taskyard.lifecycle.admit import Passed
from taskyard.lifecycle.births import LOAD
from taskyard.store.opening import Store
from taskyard.store.records import Note

#: How many promises are kept, a page each, before the others have a turn.
NOTES_MAX: Final = 8
#: How many rows of each kind one transaction looks at.
ROWS_MAX: Final = 500
#: For how long the answer to a key is kept.
ANSWERS_KEPT_MS: Final = 24 * 60 * 60 * 1_000

_LOG = logging.getLogger(__name__)


class Chore(Enum):
    """Everything that can be made to happen at once."""

    LAPSE = auto()
    PROMISES = auto()
    OWN = auto()
    PASSES = auto()


class Chores:
    """What one engine does by itself."""

    def __init__(self, transact: Transact, store: Store, clock: Clock, schedule: Callable[[], Passed]) -> None:
        self._transact = transact
        self._store = store
        self._clock = clock
        self._schedule = schedule
        self._parked: set[int] = set()
        self._after = 0  # the last note that was taken up
        self._kept = 0  # how many were, since the first
        self._doing: Mapping[Chore, Callable[[], bool]] = {
            Chore.LAPSE: lambda: self._some(Boundary.LAPSE, lambda passage: lapse.lapse(passage, ROWS_MAX)),
            Chore.PROMISES: self._keep_promises,
            Chore.OWN: lambda: self._some(Boundary.OWN, lambda passage: own.serve_own(passage, ROWS_MAX)),
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
        """Keep that the service is alive. Who finds that it was not spares every lease once."""
        self._safely(Boundary.BEAT, lapse.beat)

    def sweep(self) -> None:
        """Do what is done every few seconds."""
        self._parked.clear()
        now = self._clock.now()
        self._all(Boundary.SILENCE, lambda passage: lapse.notice_silence(passage, ROWS_MAX))
        stale = Millis(now - LOAD_MAX_MS)
        self._all(Boundary.FORGET, lambda passage: promises.drop_stale_loads(passage, stale, ROWS_MAX))
        old = Millis(now - ANSWERS_KEPT_MS)
        self._safely(Boundary.FORGET, lambda passage: passage.txn.events.forget_answers(old))

    def next_due(self) -> Millis | None:
        """Say when the clock next has something to say about a task."""
        with self._store.read() as txn:
            first = txn.tasks.look(txn.tasks.due(Millis(LAST_MS), 1))
        return Millis(first[0].due_ms) if first and first[0].due_ms is not None else None

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
            kept = self._transact(lambda passage: promises.take_up(passage, note.id), Boundary.NOTE_PAGE)
        except Trouble as trouble:
            _LOG.warning("note %d is left for the next sweep: %s", note.id, trouble)
            self._parked.add(note.id)
            return False
        return kept is not None

    def _pass(self) -> bool:
        return self._schedule().more

    def _some(self, boundary: Boundary, act: Callable[[Passage], int]) -> bool:
        return self._transact(act, boundary) > 0

    def _all(self, boundary: Boundary, act: Callable[[Passage], int]) -> None:
        while self._safely(boundary, act):
            pass

    def _safely(self, boundary: Boundary, act: Callable[[Passage], int | None]) -> bool:
        try:
            return bool(self._transact(act, boundary))
        except Trouble as trouble:
            _LOG.warning("%s is left for the next sweep: %s", boundary, trouble)
            return False
