"""What a bot has in hand: every attempt from its lease until the server has its report.

It says what has to be told, and when; it tells nobody, starts nothing and has no clock.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from taskyard.bot.begun_attempts import BegunFile, Ref
from taskyard.bot.output_spool import Spool
from taskyard.bot.payloads import Function, Program
from taskyard.bot.workdir import Room
from taskyard.wire.bot_protocol import Lease, Report, Stats

#: Which part of a lease's span passes before it is renewed: two more tries are left, then.
RENEW_PART: Final = 1 / 3
#: Output of what still runs waits so long for a request that goes out anyway.
OUTPUT_SECONDS: Final = 0.5
#: What runs for longer than this is told to have begun; what ends sooner is told to have ended.
MOMENT_SECONDS: Final = 0.05
#: The news that something has begun waits so long for a request that goes out anyway.
BEGUN_SECONDS: Final = 0.1

Key = tuple[str, int]


class LeasedAttempt(msgspec.Struct, eq=False):
    """One attempt in hand. It is made and changed for every attempt, so it is of the cheapest kind there is."""

    lease: Lease
    key: Key  # its name between bot and server
    run: int  # its number on this bot, never used again
    taken: float  # when the request was sent that brought it
    came: float  # when it came: a request may have waited for it
    until: float  # when nothing of it may run any more, unless it is renewed
    renew_at: float
    work: Program | Function | None = None
    inputs: bytes | None = None
    room: Room | None = None
    untouched: bool = False  # nothing can have been written in that room
    spool: Spool | None = None
    loud_since: float | None = None  # when it printed what was not sent yet
    said: int = 0  # how much of what a call printed was heard
    began: float | None = None
    goes_on: bool = False  # it has begun, and takes longer than a moment
    prepared_ms: int | None = None
    report: Report | None = None  # it has ended, and this is to be told
    ended: float | None = None  # when, if it printed anything
    sending: bool = False  # a request is under way that speaks of it
    stopping: str = ""  # it was told to end, and why
    ours: bool = True  # False: the server has taken it away, and wants to hear no more
    memories: list[bytes] = []  # a last checkpoint, until it was told

    @property
    def ref(self) -> Ref:
        """Its name and its fence."""
        return (self.lease.task, self.lease.attempt, self.lease.fence)

    @property
    def strict(self) -> bool:
        """Whether it must not outlive its lease."""
        return self.lease.disconnect == "strict"

    @property
    def deadline(self) -> float | None:
        """When it has to be ended, whatever is renewed; the server said what was left when it answered."""
        return None if self.lease.deadline_ms is None else self.came + self.lease.deadline_ms / 1000

    def is_late(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and now >= self.deadline

    def over(self, now: float) -> Report | None:
        """Say how it ends without having begun, if it may not begin any more."""
        if self.is_late(now):
            return overdue(self)
        return returned(self) if self.strict and now >= self.until else None


#: How something is told that went wrong with the bot itself, about an attempt or none.
Complain = Callable[[str, LeasedAttempt | None], None]


class LeasedAttempts:
    """All attempts in hand."""

    def __init__(self, file: BegunFile | None = None) -> None:
        self._file = file
        self.held: dict[Key, LeasedAttempt] = {}
        self.begun: dict[
            Key, LeasedAttempt
        ] = {}  # they go on for a while, and the server does not know that they have begun
        self._begun_since = math.inf
        self.finished: dict[Key, LeasedAttempt] = {}  # ended, and to be told
        self.loud: dict[Key, LeasedAttempt] = {}  # with output to be sent
        self.renews = True  # False: nothing keeps the new deadlines of what runs
        self._runs = 0
        self._renew_at = math.inf

    @property
    def unfinished(self) -> int:
        """How many have not ended."""
        return len(self.held) - len(self.finished)

    def __iter__(self) -> Iterator[LeasedAttempt]:
        """Give all that are in hand; the desk may change meanwhile."""
        return iter(list(self.held.values()))

    def take(self, lease: Lease, sent: float, now: float) -> LeasedAttempt:
        """Take an attempt in hand. Its span counts from when the request was sent that brought it."""
        self._runs += 1
        key = (lease.task, lease.attempt)
        held = LeasedAttempt(
            lease, key, self._runs, sent, now, sent + lease.lease_ms / 1000, _renew_at(sent, lease.lease_ms)
        )
        self.held[key] = held
        self._renew_at = min(self._renew_at, held.renew_at)
        return held

    def begin(self, some: Sequence[LeasedAttempt]) -> None:
        """Keep that attempts are about to begin."""
        if self._file is not None and some:
            self._file.add([one.ref for one in some], self._having_begun)

    def unbegin(self, some: Sequence[LeasedAttempt]) -> None:
        """Keep that attempts have not begun after all."""
        for held in some:
            held.began = None
        if self._file is not None and some:
            self._file.drop([one.ref for one in some], self._having_begun)

    def _having_begun(self) -> list[Ref]:
        return [one.ref for one in self.held.values() if one.began is not None]

    def goes_on(self, held: LeasedAttempt, now: float) -> None:
        """Note that an attempt has begun and goes on for a while: the server is told once."""
        if not held.goes_on and held.report is None:
            held.goes_on = True
            self.begun[held.key] = held
            self._begun_since = min(self._begun_since, now)

    def begun_to_tell(self) -> list[LeasedAttempt]:
        """Give the attempts of which the server does not know that they have begun."""
        self._begun_since = math.inf
        return [one for one in self.begun.values() if not one.sending]

    def has_begun_long_ago(self, now: float) -> bool:
        """Whether the news that something has begun has waited long enough."""
        return now - self._begun_since >= BEGUN_SECONDS

    def renewed(self, held: LeasedAttempt, sent: float, lease_ms: int) -> None:
        """Let it go on."""
        held.until = max(held.until, sent + lease_ms / 1000)
        held.renew_at = _renew_at(sent, lease_ms)
        self._renew_at = min(self._renew_at, held.renew_at)

    def printed(self, held: LeasedAttempt, spool: Spool, body: bytes, now: float) -> None:
        """Note what it printed."""
        held.spool = spool
        spool.add(body)
        if spool.pending:
            held.loud_since = held.loud_since or now
            self.loud[held.key] = held

    def end(self, held: LeasedAttempt, report: Report) -> None:
        """Note how it ended; nobody wants to know it if it is not ours any more."""
        assert held.report is None, "an attempt ends once"
        held.report = report
        if self.begun.pop(held.key, None) is not None and not self.begun:
            self._begun_since = math.inf
        if held.ours:
            self.finished[held.key] = held
        else:
            self.drop(held)

    def drop(self, held: LeasedAttempt) -> None:
        """Forget it."""
        key = held.key
        for kept in (self.held, self.finished, self.loud, self.begun):
            if kept.get(key) is held:
                del kept[key]
        if not self.held and self._file is not None:
            self._file.empty()
        if held.spool is not None:
            held.spool.close()

    def due(self, now: float) -> list[LeasedAttempt]:
        """Give what has to be renewed, and what will have to be soon: one request does for all."""
        if now < self._renew_at or not self.renews:
            return []
        running = [one for one in self.held.values() if one.report is None and one.ours and not one.sending]
        # Past its deadline nothing is renewed: what is left of it has the rest of its lease to end.
        running = [one for one in running if not one.is_late(now)]
        due = [one for one in running if one.renew_at <= now + (one.until - one.renew_at) / 4]
        self._renew_at = min((one.renew_at for one in running if one not in due), default=math.inf)
        return due

    def renew_all(self) -> None:
        """Have everything renewed at the next occasion."""
        for held in self.held.values():
            held.renew_at = -math.inf
        self._renew_at = -math.inf

    def is_due(self, now: float) -> bool:
        """Whether something has to be renewed now."""
        return self.renews and now >= self._renew_at

    def look_again(self) -> None:
        """Look for what is due at the next occasion: something that was to be renewed may not have been."""
        self._renew_at = min((one.renew_at for one in self.held.values() if one.report is None), default=math.inf)

    def is_loud(self, now: float) -> bool:
        """Whether output has waited long enough."""
        return any(now - (one.loud_since or now) >= OUTPUT_SECONDS for one in self.loud.values() if not one.sending)


def lost(held: LeasedAttempt) -> Report:
    """Say that an attempt ended without a result and through no fault of its own."""
    return Report(held.lease.task, held.lease.attempt, held.lease.fence, "lose")


def unrenewed(held: LeasedAttempt) -> Report:
    """Say that an attempt was ended because its lease could not be renewed in time."""
    return Report(held.lease.task, held.lease.attempt, held.lease.fence, "lose", "unrenewed")


def lost_ahead(held: LeasedAttempt) -> Report:
    """Say that an attempt was lost with the bot's runner, and had not begun as far as is known."""
    return Report(held.lease.task, held.lease.attempt, held.lease.fence, "lose", "returned")


def returned(held: LeasedAttempt) -> Report:
    """Give back an attempt that has not begun."""
    return Report(held.lease.task, held.lease.attempt, held.lease.fence, "return")


def overdue(held: LeasedAttempt, exit_code: int | None = None, stats: Stats | None = None) -> Report:
    """Say that an attempt was ended at its deadline."""
    return Report(held.lease.task, held.lease.attempt, held.lease.fence, "deadline", None, exit_code, stats=stats)


def failed(held: LeasedAttempt, reason: str | None, exit_code: int | None = None, stats: Stats | None = None) -> Report:
    """Say that an attempt failed."""
    lease = held.lease
    return Report(lease.task, lease.attempt, lease.fence, "fail", reason, exit_code, stats=stats)  # type: ignore[arg-type]


def _renew_at(sent: float, lease_ms: int) -> float:
    return sent + lease_ms / 1000 * RENEW_PART
