"""What a runner looks after: runs and warm workers, each with its process, its moments and its output.

They are notes of the runner, which alone starts, reads and ends what they stand for.
"""

from math import inf
from typing import Final

from taskyard.bot.frames import Start
from taskyard.bot.papers import Papers
from taskyard.bot.processes import Exit
from taskyard.bot.watch import Watch

#: How long after its end the rest of a run's output and the last of its processes are awaited. Nothing but a process
#: that nobody may kill, or one that was handed the pipe from elsewhere, takes as long.
BURIAL_SECONDS_MAX: Final = 2.0


class Ward:
    """A process that leads a session, and its end."""

    __slots__ = ("began", "buried_by", "exit", "name", "number", "output", "pid", "place", "watch")

    def __init__(self, number: int, name: str, watch: Watch, began: float) -> None:
        self.number = number
        self.name = name  # what marks everything that it starts
        self.watch = watch
        self.began = began
        self.pid = 0
        self.place = 0  # of its deadlines, in what the watchdog knows
        self.output: int | None = None  # where what it prints is read
        self.exit: Exit | None = None
        self.buried_by = inf  # when its end is told at the latest

    def end(self, how: Exit, now: float) -> None:
        """Its leader has ended; others that it started may be left."""
        self.exit, self.buried_by = how, now + BURIAL_SECONDS_MAX


class Run(Ward):
    """One attempt of a task."""

    __slots__ = ("ended", "heard", "keep", "waited_s")

    def __init__(self, start: Start, now: float, waited_s: float = 0.0) -> None:
        watch = Watch(now, start.until, start.timeout_s, start.silence_s, start.grace_s, start.deadline)
        super().__init__(start.run, str(start.run), watch, now)
        self.keep = start.keep
        self.waited_s = waited_s  # for its turn
        self.heard = False  # it is listened to
        self.ended = now

    def end(self, how: Exit, now: float) -> None:
        super().end(how, now)
        self.ended = now


class Worker(Ward):
    """A warm worker."""

    __slots__ = ("papers",)

    def __init__(self, number: int, papers: Papers, now: float) -> None:
        super().__init__(number, f"worker-{number}", Watch(now), now)
        self.papers = papers
