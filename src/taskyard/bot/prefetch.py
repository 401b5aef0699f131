"""How much work a bot should have in hand: about ten milliseconds of it, and never less than one task a slot.

An average that was learnt on short tasks would hoard long ones, so it is forgotten whenever the line was found empty,
when a function or program is met that was not met since, and when one task took much longer than the ones before. It
only counts; it has no clock.
"""

from typing import Final

#: How much work should be in hand: a few times what an exchange with the server takes. Of short tasks it is more where
#: the server is slow or far away.
AHEAD_SECONDS: Final = 0.010
AHEAD_SECONDS_MAX: Final = 0.050
EXCHANGES_AHEAD: Final = 3.0
#: Of tasks below this, one more than there are slots is in hand, whatever the rest says: no slot waits for the server,
#: and the one that waits here in vain is late by no more than this.
MODEST_SECONDS: Final = 0.050
#: Tasks below this are short.
SHORT_SECONDS: Final = 0.005
#: However short tasks are, no more than this is in hand or asked for at once: others want work, too.
IN_HAND_MAX: Final = 384
#: Fewer ends than this are told with the next request, not beside it: each request costs as much as many of them.
BATCH_MIN: Final = 16
#: Of programs, less is in hand than of calls: the name of one says less about how long it will take.
PROCESSES_PER_SLOT_MAX: Final = 16
#: How many different functions and programs are remembered.
MET_MAX: Final = 1_000
#: How much of the average the last task is. Two or three tasks of another kind change it.
LAST_WEIGHT: Final = 0.25
#: A task that took this many times the average begins a new one.
SURPRISE: Final = 4.0
#: Nothing below this is a surprise: the machine itself is that uneven.
SURPRISE_SECONDS: Final = 0.002
SURPRISE_PROCESS_SECONDS: Final = 0.010
#: How much one hand-over to a worker should hold.
HANDFUL_SECONDS: Final = 0.002


class PrefetchLimit:
    """What is known about the length of tasks, and what follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._call_s: float | None = None  # average of calls; None: nothing is known
        self._program_s: float | None = None
        self._met: set[str] = set()
        self._ahead_s = AHEAD_SECONDS

    def forget(self) -> None:
        """Begin anew: there was nothing left to do, and what comes next may be of any kind."""
        self._call_s = self._program_s = None
        self._met.clear()

    def meet(self, what: str) -> None:
        """Note that a function will be called or a program started; a new one may take any time."""
        if what not in self._met:
            if len(self._met) >= MET_MAX:
                self._met.clear()
            self._met.add(what)
            self._call_s = self._program_s = None

    def call_took(self, seconds: float) -> None:
        """Learn from a call that has ended, or that already goes on for so long."""
        self._call_s = _learnt(self._call_s, seconds)

    def exchange_took(self, seconds: float) -> None:
        """Learn from an exchange with the server that did not wait for work."""
        wanted = min(max(AHEAD_SECONDS, EXCHANGES_AHEAD * seconds), AHEAD_SECONDS_MAX)
        self._ahead_s += LAST_WEIGHT * (wanted - self._ahead_s)

    def program_took(self, seconds: float) -> None:
        """Learn from a process that has ended."""
        self._program_s = _learnt(self._program_s, seconds, SURPRISE_PROCESS_SECONDS)

    @property
    def in_hand(self) -> int:
        """How many tasks to have in hand."""
        longest = max(self._call_s or 0.0, self._program_s or 0.0)
        if longest == 0.0:
            return self._slots
        ahead_s = self._ahead_s if longest < SHORT_SECONDS else AHEAD_SECONDS
        most = IN_HAND_MAX if self._program_s is None else min(IN_HAND_MAX, PROCESSES_PER_SLOT_MAX * self._slots)
        least = self._slots + 1 if longest < MODEST_SECONDS else self._slots
        return max(least, min(int(ahead_s * self._slots / longest), most))

    @property
    def low(self) -> int:
        """How few are left in hand when it is time to tell and ask: the next should come before the last end."""
        target = self.in_hand
        return max(target // 2, self._slots) if target > self._slots else self._slots - 1

    @property
    def batch(self) -> int:
        """How many ends are worth a request of their own while another one is under way."""
        return max(self.in_hand // 3, BATCH_MIN)

    @property
    def short(self) -> bool:
        """Whether what runs is likely to end in a moment; not known is taken for yes."""
        return max(self._call_s or 0.0, self._program_s or 0.0) < SHORT_SECONDS

    @property
    def short_programs(self) -> bool:
        """Whether programs are known to be short."""
        return self._program_s is not None and self._program_s < SHORT_SECONDS

    @property
    def handful(self) -> int:
        """How many calls to hand to a worker at once."""
        if self._call_s is None:
            return 1
        return max(1, min(int(HANDFUL_SECONDS / max(self._call_s, 1e-6)), IN_HAND_MAX))


def _learnt(average: float | None, seconds: float, surprise_s: float = SURPRISE_SECONDS) -> float:
    if average is None or seconds > max(SURPRISE * average, surprise_s):
        return seconds
    return average + LAST_WEIGHT * (seconds - average)
