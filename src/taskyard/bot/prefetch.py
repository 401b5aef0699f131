"""The prefetch limit: how much work a bot keeps in hand. About ten milliseconds of it, and at least one task per slot.

An average learnt from short tasks would hoard long ones. So it is reset when the queue was found empty, when a function
or program comes that was not seen since the reset, and when one task took much longer than those before. Reads no
clock.
"""

from typing import Final

#: How much work to keep in hand: a few times what a request takes. For short tasks it is more if the server is slow or
#: far away.
AHEAD_SECONDS: Final = 0.010
AHEAD_SECONDS_MAX: Final = 0.050
EXCHANGES_AHEAD: Final = 3.0
#: For tasks shorter than this, keep at least one more than there are slots: no slot waits for the server, and the extra
#: task is delayed by at most this long.
MODEST_SECONDS: Final = 0.050
#: Tasks shorter than this count as short.
SHORT_SECONDS: Final = 0.005
#: The most that is in hand or asked for, however short tasks are: other bots want work, too.
IN_HAND_MAX: Final = 384
#: With fewer reports than this, wait for the next request instead of sending an extra one: a request costs as much as
#: many reports.
BATCH_MIN: Final = 16
#: Fewer programs than calls are kept in hand: the name of a program says less about how long it takes.
PROCESSES_PER_SLOT_MAX: Final = 16
#: How many different functions and programs are remembered.
NAMES_MAX: Final = 1_000
#: The weight of the last task in the average. Two or three tasks of another kind change it.
LAST_WEIGHT: Final = 0.25
#: A task that took this many times the average starts a new average.
SURPRISE: Final = 4.0
#: Tasks shorter than this never do: run times on a machine vary that much.
SURPRISE_SECONDS: Final = 0.002
SURPRISE_PROCESS_SECONDS: Final = 0.010
#: How much work one message to a worker should hold.
CALL_BATCH_SECONDS: Final = 0.002


class PrefetchLimit:
    """Averages of task durations, and the limits that follow from them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots  # an engine may change it
        self._call_s: float | None = None  # average duration of calls; None: unknown
        self._program_s: float | None = None
        self._names: set[str] = set()
        self._ahead_s = AHEAD_SECONDS
        self.ahead_min_s = AHEAD_SECONDS  # an engine that hands work on needs more

    def reset(self) -> None:
        """Forget the averages: there was no work left, and what comes next may be of any kind."""
        self._call_s = self._program_s = None
        self._names.clear()

    def note_name(self, name: str) -> None:
        """Note the name of a function or program; a new one may take any time."""
        if name not in self._names:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._names.add(name)
            self._call_s = self._program_s = None

    def record_call(self, seconds: float) -> None:
        """Learn from a call that has ended, or has already taken this long."""
        self._call_s = _average(self._call_s, seconds)

    def record_exchange(self, seconds: float) -> None:
        """Learn from a request that did not wait for work."""
        wanted = min(max(AHEAD_SECONDS, EXCHANGES_AHEAD * seconds), AHEAD_SECONDS_MAX)
        self._ahead_s += LAST_WEIGHT * (wanted - self._ahead_s)

    def record_program(self, seconds: float) -> None:
        """Learn from a program that has ended."""
        self._program_s = _average(self._program_s, seconds, SURPRISE_PROCESS_SECONDS)

    @property
    def target(self) -> int:
        """How many tasks to have in hand."""
        longest = max(self._call_s or 0.0, self._program_s or 0.0)
        if longest == 0.0:
            return self.slots
        ahead_s = max(self._ahead_s if longest < SHORT_SECONDS else AHEAD_SECONDS, self.ahead_min_s)
        most = IN_HAND_MAX if self._program_s is None else min(IN_HAND_MAX, PROCESSES_PER_SLOT_MAX * self.slots)
        least = self.slots + 1 if longest < MODEST_SECONDS else self.slots
        return max(least, min(int(ahead_s * self.slots / longest), most))

    @property
    def refill_at(self) -> int:
        """Ask for more when this many are left, so that they arrive before the last one ends."""
        target = self.target
        return max(target // 2, self.slots) if target > self.slots else self.slots - 1

    @property
    def report_batch(self) -> int:
        """How many reports are worth a request of their own while another is under way."""
        return max(self.target // 3, BATCH_MIN)

    @property
    def is_short(self) -> bool:
        """Whether running tasks are likely to end in a moment; True if unknown."""
        return max(self._call_s or 0.0, self._program_s or 0.0) < SHORT_SECONDS

    @property
    def programs_are_short(self) -> bool:
        """Whether programs are known to be short."""
        return self._program_s is not None and self._program_s < SHORT_SECONDS

    @property
    def calls_per_batch(self) -> int:
        """How many calls to send to a worker at once."""
        if self._call_s is None:
            return 1
        return max(1, min(int(CALL_BATCH_SECONDS / max(self._call_s, 1e-6)), IN_HAND_MAX))


def _average(average: float | None, seconds: float, surprise_s: float = SURPRISE_SECONDS) -> float:
    if average is None or seconds > max(SURPRISE * average, surprise_s):
        return seconds
    return average + LAST_WEIGHT * (seconds - average)
