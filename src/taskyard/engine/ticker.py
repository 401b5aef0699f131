"""The ticker: has chores done when a commit hints at them, when something is due, and every few seconds anyway.

Hints may all be lost: then the sweep finds everything. Sweeps may all be left out: then hints and alarms do. Each of
the two alone brings every graph to the same end, and tests hold them to it. Only the beat, by which the service keeps
that it is alive, is never left out.
"""

import logging
from threading import Event, Lock, Thread
from typing import Final

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.ids import LAST_MS
from taskyard.core.words import Millis
from taskyard.engine.chores import Chore, Chores
from taskyard.engine.clock import Clock
from taskyard.engine.passage import Left
from taskyard.store.sessions import Busy, Gone

#: How long a stop waits for the transaction that is under way.
STOP_MAX_S: Final = 10
#: Later than any moment.
LAST: Final = Millis(LAST_MS)

_LOG = logging.getLogger(__name__)


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

    def hear(self, left: Left) -> None:
        """Take the hints of a commit."""
        if not self._events:
            return
        wanted = {
            chore
            for chore, hinted in (
                (Chore.PASSES, left.stirs),
                (Chore.PROMISES, left.promises),
                (Chore.OWN, left.own),
                (Chore.INNER, left.inner),
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
            except (Busy, Gone) as fault:
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
