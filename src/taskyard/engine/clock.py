"""Time and chance, for everybody above the core. Who is given another clock lives in another time.

Time is read once from the wall, when the clock is made, and then counted by the machine: a wall clock that is set back
or forth while the server runs can neither end every lease nor make one immortal. Servers that share a database go by
the clock of that database, which is asked again and again: else each would judge leases by a time of its own.
"""

import secrets
import time
from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol

from taskyard.core.ids import CHANCE_BITS
from taskyard.core.states import Millis

#: How far births may run ahead of the time. So a burst keeps its order, and a flood does not bend the time.
LEAD_MAX_MS: Final = 1_000
#: Counts on while the machine sleeps, where there is such a clock.
_COUNTER: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WORD_BYTES: Final = 16
#: An answer that took longer may be from any moment within: it is not believed, the next one will be.
_ASKED_MAX_NS: Final = 1_000_000_000
_MS: Final = 1_000_000


def _count() -> int:
    return time.clock_gettime_ns(_COUNTER)


class Clock(Protocol):
    """Where the engine gets time and chance from."""

    def now(self) -> Millis:
        """Say what time it is; never earlier than before."""

    def tick(self) -> Millis:
        """Give a moment of its own to something that is born: later than any moment before."""

    def follow(self, ask: Callable[[], Millis | None]) -> None:
        """Go by another clock from here on, if `ask` finds one; whoever lives in a time of its own stays there."""

    def pause(self, ms: int) -> None:
        """Let time pass."""

    def chance(self) -> int:
        """Draw a number of 16 bits."""

    def word(self) -> str:
        """Make up a word that nobody has used."""


class SystemClock:
    """The time of this machine, or of a clock that it was told to follow; `wall` and `count` give nanoseconds."""

    def __init__(self, wall: Callable[[], int] = time.time_ns, count: Callable[[], int] = _count) -> None:
        self._lock = Lock()
        self._count = count
        self._set_at = count()
        self._offset = wall() - self._set_at
        self._last = Millis(0)

    def now(self) -> Millis:
        """Say what time it is; never earlier than before."""
        with self._lock:
            self._last = max(self._last, self._read())
            return self._last

    def tick(self) -> Millis:
        """Give a moment of its own to something that is born: later than any moment before.

        Only after a second with more than a thousand births in it may two of them share a moment.
        """
        with self._lock:
            read = self._read()
            self._last = max(self._last, read, Millis(min(self._last + 1, read + LEAD_MAX_MS)))
            return self._last

    def follow(self, ask: Callable[[], Millis | None]) -> None:
        """Go by another clock from here on, if `ask` finds one.

        Who is behind goes on from there at once. Who is ahead goes at half the pace until the other has caught up: time
        never goes back, and never stands still.
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
        """Let time pass."""
        time.sleep(ms / 1000)

    def chance(self) -> int:
        """Draw a number of 16 bits."""
        return secrets.randbits(CHANCE_BITS)

    def word(self) -> str:
        """Make up a word that nobody has used."""
        return secrets.token_hex(_WORD_BYTES)

    def _read(self) -> Millis:
        return Millis((self._offset + self._count()) // _MS)
