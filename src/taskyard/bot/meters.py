"""What calls take: time, processor, memory. Reading all meters takes longer than a small call, so that is done rarely.

A call that is shorter than any process takes to start is taken to have used the processor all the time, and no memory
worth a look. A stream of such calls is looked at once in a while.
"""

import resource
import time
from typing import Final

from taskyard.bot.processes import MEMORY_UNIT_BYTES
from taskyard.bot.worker_frames import Took

#: No process starts and no large memory is filled in this time.
_BRIEF_SECONDS: Final = 0.00002
#: How long small calls may go on without a look.
_LOOK_SECONDS: Final = 0.001


class Meters:
    """How far everything had got when it was last read."""

    def __init__(self) -> None:
        self.fresh = True  # they were read for the last call
        self.peak_bytes = 0  # the most that this process ever had, or the runner had when it started it
        self._looked_at = 0.0
        self._cpu_s = 0.0
        self._look(time.perf_counter())

    def read(self, began: float) -> Took:
        """Say what a call that began then and ends now took."""
        now = time.perf_counter()
        ran_s = now - began
        self.fresh = ran_s > _BRIEF_SECONDS or now - self._looked_at > _LOOK_SECONDS
        spent_s = self._look(now) if self.fresh else ran_s
        # What was spent since the last look is this call's, if it is longer than all small ones since then.
        return Took(ran_s, spent_s if ran_s > _BRIEF_SECONDS else ran_s, self.peak_bytes)

    def _look(self, now: float) -> float:
        """Read everything; give the processor's seconds since the last time, those of awaited processes included."""
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        spent_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        self._looked_at, self.peak_bytes = now, own.ru_maxrss * MEMORY_UNIT_BYTES
        return spent_s
