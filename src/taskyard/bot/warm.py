"""One warm worker as the agent sees it: what was handed to it, what it is about to be told, and how long it may live.

Calls are carried out in the order in which they were handed over; the first that is not answered is under way.
"""

from dataclasses import dataclass, field
from typing import Final

from taskyard.bot.desk import Held
from taskyard.bot.kinds import Function
from taskyard.bot.pipes import Pipe

#: The runner is told anew how long a worker may live when less than this is left of what it was told: a worker that
#: makes thousands of calls a second would else have it told as often.
NEAR_SECONDS: Final = 10.0
#: So long after a call's time-out its worker is ended by the runner, or the watchdog, if the agent could not do it.
LATE_SECONDS: Final = 10.0


#: Which calls may share a process: those of one submitter, or one call alone, named by its run; 0 is no run.
Sharing = tuple[str, int]


def sharing_of(held: Held) -> Sharing:
    """Say with which calls one may share a process."""
    assert isinstance(held.work, Function), "a program shares nothing"
    return held.lease.submitter, held.run if held.work.fresh else 0


@dataclass(slots=True, eq=False)
class WarmWorker:
    """A worker; without a pipe it is still being hired."""

    number: int
    sharing: Sharing  # the only calls that it makes
    pipe: Pipe | None = None
    handed: dict[int, Held] = field(default_factory=dict)
    since: float = 0.0  # when the call that is under way began, or printed for the last time
    heard: float = 0.0
    told: float | None = None  # how long it may live, as the runner knows it
    # Why it was told to go: timed_out, silent, deadline, stop, lose, garbled; unused if it had nothing in hand.
    dismissed: str = ""
    blamed: int | None = None  # the call because of which
    leaving: bool = False
    useful: bool = False  # it has answered a call

    @property
    def hiring(self) -> bool:
        """Whether it is not there yet."""
        return self.pipe is None

    @property
    def single(self) -> bool:
        """Whether it makes one call only."""
        return self.sharing[1] != 0

    @property
    def idle(self) -> bool:
        """Whether it can be handed a call, and has none."""
        return self.usable and not self.handed

    @property
    def busy(self) -> bool:
        """Whether it takes a slot."""
        return bool(self.handed) or self.pipe is None

    @property
    def usable(self) -> bool:
        """Whether calls may be handed to it."""
        return self.pipe is not None and not self.leaving and not self.dismissed

    @property
    def under_way(self) -> Held | None:
        """The call that it makes now."""
        return next(iter(self.handed.values()), None)

    def may_take(self, held: Held) -> bool:
        """Whether it may be handed this call, too.

        A call with a deadline is alone with its worker: so it begins at once, and the end of the worker at the deadline
        costs no other call.
        """
        first = self.under_way
        return first is None or (first.deadline is None and held.deadline is None)

    def lifetime(self) -> float | None:
        """When it must be dead, for the sake of what it has in hand; None if it need not be."""
        ends = [one.until for one in self.handed.values() if one.strict]
        ends += [one.deadline for one in self.handed.values() if one.deadline is not None]
        held = self.under_way
        if held is not None and isinstance(held.work, Function):
            ends.append(self.since + held.work.limits.timeout_s + LATE_SECONDS)
        return min(ends, default=None)

    def news(self, now: float) -> bool:
        """Whether the runner has to be told another moment than it knows."""
        wanted = self.lifetime()
        if wanted == self.told:
            return False
        if self.told is None or (wanted is not None and wanted < self.told):
            return True
        return self.told - now < NEAR_SECONDS

    def overdue(self, now: float) -> str:
        """Why the call under way has to end now: timed_out, silent, deadline, stop or lose; empty if it has not."""
        held = self.under_way
        if held is None or not isinstance(held.work, Function):
            return ""
        if held.stopping:
            return held.stopping
        limits = held.work.limits
        timeout_at = self.since + limits.timeout_s
        if held.deadline is not None and now >= held.deadline:
            return "deadline" if held.deadline <= timeout_at else "timed_out"
        if now >= timeout_at:
            return "timed_out"
        if limits.silence_s is not None and now >= max(self.since, self.heard) + limits.silence_s:
            return "silent"
        return ""
