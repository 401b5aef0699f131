"""When something that runs has to end, and how: the end of its lease, its deadline, its time-out, its silence, a stop.

It looks at no clock and ends nothing: moments are arguments, and what it answers is the signal to send.
"""

import signal
from math import inf


class Watch:
    """The moments of one run or worker. `why` is the first reason for which it was ended, if it was."""

    __slots__ = (
        "_asked", "_deadline", "_heard_at", "_killed", "_silence_s", "_timeout_at",
        "grace_s", "kill_at", "until", "why",
    )  # fmt: skip

    def __init__(
        self,
        now: float,
        until: float = inf,
        timeout_s: float | None = None,
        silence_s: float | None = None,
        grace_s: float = 0.0,
        deadline: float | None = None,
    ) -> None:
        self.until = until
        self.why: str | None = None
        self._deadline = inf if deadline is None else deadline
        self._timeout_at = inf if timeout_s is None else now + timeout_s
        self._silence_s = inf if silence_s is None else silence_s
        self._heard_at = now
        self.grace_s = grace_s
        self._asked = False
        self.kill_at = inf
        self._killed = False

    def due(self) -> float:
        """When to look again."""
        if self._killed:
            return inf
        if self._asked:
            return min(self.until, self.kill_at)
        return min(self.until, self._deadline, self._timeout_at, self._heard_at + self._silence_s)

    @property
    def ask_at(self) -> float:
        """When it has to end whatever it prints: at its deadline or its time-out."""
        return inf if self._asked or self._killed else min(self._deadline, self._timeout_at)

    @property
    def ask_why(self) -> str:
        """Say which of the two comes first."""
        return "deadline" if self._deadline <= self._timeout_at else "timed_out"

    def heard(self, now: float) -> None:
        """It printed something."""
        self._heard_at = now

    def deafen(self) -> None:
        """Nobody listens to it for now, so that its silence says nothing."""
        self._heard_at = inf

    def judge(self, now: float) -> signal.Signals | None:
        """Say which signal it gets now, if any. That its lease is over comes first: then there is no grace."""
        if self._killed or now < self.due():
            return None
        if now >= self.until:
            return self.kill("lease_over")
        if self._asked:
            return self.kill("stopped")
        return self.ask(self._why_asked(now), now)

    def _why_asked(self, now: float) -> str:
        """Say which of its moments came first; it may be looked at late."""
        if now >= min(self._deadline, self._timeout_at):
            return self.ask_why
        return "silent"

    def ask(self, why: str, now: float) -> signal.Signals | None:
        """It has to end, within its grace; being told twice changes nothing."""
        if self._asked or self._killed:
            return None
        if self.grace_s <= 0:
            return self.kill(why)
        self.why, self._asked, self.kill_at = self.why or why, True, now + self.grace_s
        return signal.SIGTERM

    def kill(self, why: str) -> signal.Signals:
        """It has to end at once."""
        self.why, self._killed = self.why or why, True
        return signal.SIGKILL
