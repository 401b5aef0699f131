"""Time and randomness for everything above the core. Tests pass another clock.

The wall clock is read once, when this clock is made, and time is counted by the machine from then on: setting the wall
clock back or forth while the server runs can neither end every lease nor extend one for ever. Servers that share a
database follow the clock of that database, read again at each heartbeat: otherwise each would judge leases by a time of
its own.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, Protocol

from taskyard.core.ids import CHANCE_BITS
from taskyard.core.states import Millis

#: How far the moments of creation may run ahead of the time: a burst keeps its order, a flood does not bend the time.
LEAD_MAX_MS: Final = 1_000
#: A clock that goes on while the machine sleeps, if there is one.
_COUNTER: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WORD_BYTES: Final = 16
#: A reading that took longer may be of any moment in that time: it is ignored, and the next one counts.
_ASKED_MAX_NS: Final = 1_000_000_000
_MS: Final = 1_000_000


def _count() -> int:
    return time.clock_gettime_ns(_COUNTER)


class Clock(Protocol):
    """The engine's source of time and randomness."""

    def now(self) -> Millis:
        """Return the time; never earlier than before."""

    def tick(self) -> Millis:
        """Return a moment of its own for something that is created: later than any before."""

    def follow(self, ask: Callable[[], Millis | None]) -> None:
        """Follow another clock from now on, if `ask` returns its time; a clock of tests may ignore this."""

    def pause(self, ms: int) -> None:
        """Sleep."""

    def chance(self) -> int:
        """Return a random number of 16 bits."""

    def word(self) -> str:
        """Return a random word that is unique."""


class SystemClock:
    """The time of this machine, or of a clock that it follows; `wall` and `count` return nanoseconds."""

    def __init__(self, wall: Callable[[], int] = time.time_ns, count: Callable[[], int] = _count) -> None:
        self._lock = Lock()
        self._count = count
        self._set_at = count()
        self._offset = wall() - self._set_at
        self._last = Millis(0)

    def now(self) -> Millis:
        """Return the time; never earlier than before."""
        with self._lock:
            self._last = max(self._last, self._read())
            return self._last

    def tick(self) -> Millis:
        """Return a moment of its own for something that is created: later than any before.

        Only after a second with more than a thousand of them may two share a moment.
        """
        with self._lock:
            read = self._read()
            self._last = max(self._last, read, Millis(min(self._last + 1, read + LEAD_MAX_MS)))
            return self._last

    def follow(self, ask: Callable[[], Millis | None]) -> None:
        """Follow another clock from now on, if `ask` returns its time.

        A clock that is behind jumps ahead at once. One that is ahead goes at half speed until the other has caught up:
        time never goes back and never stands still.
        """
        asked = self._count()
        theirs = ask()
        answered = self._count()
        if theirs is None or answered - asked > _ASKED_MAX_NS:
            return
        with self._lock:
            offset = theirs * _MS - (asked + answered) // 2
            slower = self._offset - (answered - self._set_at) // 2
            self._offset = max(offset, slower) if self._last else offset
            self._set_at = answered

    def pause(self, ms: int) -> None:
        """Sleep."""
        time.sleep(ms / 1000)

    def chance(self) -> int:
        """Return a random number of 16 bits."""
        return secrets.randbits(CHANCE_BITS)

    def word(self) -> str:
        """Return a random word that is unique."""
        return secrets.token_hex(_WORD_BYTES)

    def _read(self) -> Millis:
        return Millis((self._offset + self._count()) // _MS)


# How busy this process is, for work that can wait.


#: From which share of one processor on the rest of the process counts as busy: Python runs one thread at a time.
BUSY: Final = 0.35
#: The share of the time that work which can wait takes then (`benchmarks.events`, endtoend).
SHARE: Final = 0.04
#: Over how long the load is measured, and the longest rest: so the load is never older than the two together.
MEASURED_S: Final = 0.25
REST_MAX_S: Final = 1.0


class Pace:
    """Says how long work that can wait has to rest after each part of it: not at all, unless the process is busy.

    What the work itself takes is not counted, so that it never waits for itself.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._own_s = 0.0  # of the processor, since the load was measured
        self._measured_at = time.monotonic()
        self._used_s = time.process_time()
        self._load = 0.0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count what this thread does meanwhile as such work."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.count(time.thread_time() - began)

    def count(self, seconds: float) -> None:
        """Count time of the processor as such work."""
        with self._lock:
            self._own_s += seconds

    def rest_s(self, took_s: float) -> float:
        """Return how long to rest after a part that took so long."""
        with self._lock:
            now, used = time.monotonic(), time.process_time()
            if (span := now - self._measured_at) >= MEASURED_S:
                self._load = (used - self._used_s - self._own_s) / span
                self._measured_at, self._used_s, self._own_s = now, used, 0.0
            return min(REST_MAX_S, took_s * (1 / SHARE - 1)) if self._load >= BUSY else 0.0
