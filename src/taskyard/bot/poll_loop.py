"""What a bot and its server say to each other, and when: as little as often as possible, and nothing late.

There are two connections. A wish for work may be parked on the first; what has to be told meanwhile goes over the
second. When nothing is parked, what is told and the next wish are one request: a chain of tasks is one request a hop.
While tasks are so short that many end before an answer comes, both are used in turn, and the server never waits for us.
A request that has something to tell never waits for work, so that its answer is here at once. No request is ever taken
back; one without an answer is repeated, word for word, until it has one.
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Protocol

import msgspec

from taskyard.bot.attempts import LeasedAttempts
from taskyard.bot.config import BotConfig, Dimensions, detected, read_file, together
from taskyard.bot.poll_payload import Consequences, PollPayload, pack, settle
from taskyard.bot.prefetch import PrefetchLimit
from taskyard.bot.server_client import PAUSE_SECONDS_MAX, Away, Link, Reply, Stranger, answered
from taskyard.wire.bot_protocol import WAIT_MAX_MS, Begun, Hello, Lease, Poll, Welcome

#: While short tasks run, their ends are awaited for a moment before a wish is parked: most often they come first.
LINGER_SECONDS: Final = 0.003
#: Reports of a busy bot are collected, but never for longer than this.
COLLECT_SECONDS: Final = 0.010
#: A bot whose slots are all taken, and that has told nothing for so long, listens: a person may want something ended.
LISTEN_SECONDS: Final = 0.5
#: A request that has no answer by then does not hold back what else is to be told.
SLOW_SECONDS: Final = 1.0


class Ears(Protocol):
    """Who does what the server says."""

    def take(self, leases: list[Lease], sent: float) -> None:
        """Run these."""

    def heed(self, consequences: Consequences) -> None:
        """Hold, stop or give up attempts."""

    def terminate(self) -> None:
        """End once nothing is in hand."""


class Dialogue:
    """The talk of one session. `broken` is what ends it: a refusal that no patience mends."""

    def __init__(
        self,
        config: BotConfig,
        session: str,
        desk: LeasedAttempts,
        appetite: PrefetchLimit,
        ears: Ears,
        hello: Callable[[Link], Awaitable[object]],
    ) -> None:
        self.wishing = True  # False: no more work is asked for
        self.wait_ms = WAIT_MAX_MS
        self.pause_s_max = PAUSE_SECONDS_MAX
        self._loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[None] = self._loop.create_future()
        self._config, self._session = config, session
        self._desk, self._appetite = desk, appetite
        self._ears, self._hello = ears, hello
        self._links = (Link(config), Link(config))
        self._under_way: list[asyncio.Task[None] | None] = [None, None]
        self._wanted = [0, 0]  # how many tasks each of these asks for
        self._telling = [0, 0]  # and how many ends it tells
        self._parked = False
        self._listening = False  # nothing has come since all that is in hand was renewed
        self._listens = False  # what is parked wants nothing: it hears when something should be ended
        self._told_at = 0.0  # when something was last told or asked for
        self._asked_at = 0.0  # when the first connection was last used
        self._polls = 0
        self._word = secrets.token_hex(4)  # polls of one session never have a name twice
        self._encoder = msgspec.json.Encoder()
        self._turn_is_near = False
        self._timer: asyncio.TimerHandle | None = None
        self._linger_until = 0.0
        self._collect_until = math.inf

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way that could bring or lose anything."""
        return self._under_way == [None, None]

    def nudge(self) -> None:
        """Something has happened; what that means for the talk is thought about soon, once for all that happens now."""
        if not self._turn_is_near:
            self._turn_is_near = True
            self._loop.call_soon(self._turn)

    async def close(self) -> None:
        """Say and ask nothing more."""
        self.wishing = False
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in self._under_way if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in self._links:
            link.close()

    def _turn(self) -> None:
        self._turn_is_near = False
        if self.broken.done():
            return
        now = time.monotonic()
        if self._under_way[0] is None:
            self._ask_or_tell(now)
        elif self._under_way[1] is None:
            if self._parked or now - self._asked_at > SLOW_SECONDS:
                self._tell_beside(now)
            elif len(self._desk.finished) - self._telling[0] >= self._appetite.batch:
                self._send(1, pack(self._desk, now), self._room(self._desk.unfinished), 0, now)

    def _ask_or_tell(self, now: float) -> None:
        in_hand = self._desk.unfinished
        if self._must_tell(now) or (self._desk.finished and self._is_ripe(in_hand, now)):
            parcel = pack(self._desk, now)
            if parcel:
                self._send(0, parcel, self._room(in_hand), 0, now)
                return
        if not self._wanted[1]:  # else what is asked for may be all that there is to wait for
            self._wish_or_listen(in_hand, now)

    def _wish_or_listen(self, in_hand: int, now: float) -> None:
        if self.wishing and in_hand < self._config.slots:
            if in_hand == 0 or not self._appetite.short or now >= self._linger_until:
                self._appetite.forget()  # the line was found empty
                self._send(0, PollPayload(), self._config.slots - in_hand, self.wait_ms, now)
            else:
                self._come_back(self._linger_until, now)
        elif in_hand and self._listening:
            self._send(0, PollPayload(), 0, self.wait_ms, now)
        elif in_hand and now - self._told_at > LISTEN_SECONDS:
            # Whoever begins to listen asks first: something may have been ended before anybody listened.
            self._listening = True
            self._desk.renew_all()
            self._send(0, pack(self._desk, now), 0, 0, now)
        elif in_hand:
            self._come_back(self._told_at + LISTEN_SECONDS, now)

    def _tell_beside(self, now: float) -> None:
        if self._desk.finished or self._must_tell(now):
            parcel = pack(self._desk, now)
            if parcel:
                listens = self._listens and self.wishing
                self._send(1, parcel, self._room(self._desk.unfinished) if listens else 0, 0, now)

    def _room(self, in_hand: int) -> int:
        """Say how many more tasks there is room for, with those that were asked for already."""
        return max(0, self._appetite.in_hand - in_hand - sum(self._wanted)) if self.wishing else 0

    def _must_tell(self, now: float) -> bool:
        return self._desk.is_due(now) or self._desk.is_loud(now) or self._desk.has_begun_long_ago(now)

    def _is_ripe(self, in_hand: int, now: float) -> bool:
        """Whether reports should go out: little is left to do, or they have waited long enough."""
        if in_hand <= self._appetite.low or not self.wishing or now >= self._collect_until:
            return True
        if self._collect_until == math.inf:
            self._collect_until = now + COLLECT_SECONDS
        self._come_back(self._collect_until, now)
        return False

    def _come_back(self, moment: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, moment - now), self._turn)

    def _send(self, which: int, parcel: PollPayload, want: int, wait_ms: int, now: float) -> None:
        self._polls += 1
        name = f"{self._word}-{self._polls}" if want else ""
        says = (parcel.reports, parcel.renewals, parcel.outputs)
        poll = Poll(self._config.name, self._session, name, want, wait_ms, *says, parcel.begun)
        if which == 0:
            self._parked, self._asked_at = wait_ms > 0, now
            self._listens = self._parked and not want
        if parcel or want:
            self._told_at = now
        self._collect_until = math.inf
        self._wanted[which], self._telling[which] = want, len(parcel.reported)
        task = self._loop.create_task(self._exchange(which, parcel, self._encoder.encode(poll), wait_ms))
        task.add_done_callback(self._look_at)
        self._under_way[which] = task

    async def _exchange(self, which: int, parcel: PollPayload, body: bytes, wait_ms: int) -> None:
        link = self._links[which]
        reply = await answered(lambda: self._ask(link, body, wait_ms), self.pause_s_max)
        self._under_way[which] = None
        self._wanted[which] = self._telling[which] = 0
        consequences = settle(self._desk, parcel, reply.polled, reply.sent)
        if consequences:
            self._ears.heed(consequences)
        if reply.polled.terminate:
            self._ears.terminate()
        now = time.monotonic()
        if wait_ms == 0:
            self._appetite.exchange_took(now - reply.sent)
        self._linger_until = now + LINGER_SECONDS
        if reply.polled.leases:
            self._listening = False
            self._ears.take(reply.polled.leases, reply.sent)
        self.nudge()

    async def _ask(self, link: Link, body: bytes, wait_ms: int) -> Reply:
        try:
            return await link.poll(body, wait_ms)
        except Stranger as error:
            await self._hello(link)
            raise Away(f"this bot had to introduce itself again: {error}") from error

    def _look_at(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self.broken.done():
            return
        error = task.exception()
        if error is not None:
            self.broken.set_exception(error)


# How a bot introduces itself: who it is, what its machine is like, and whether it takes work.
#
# It can be said again at any time, with the same session, when something about the bot has changed.


_LOG = logging.getLogger("taskyard.bot")


class Introduction:
    """What one session says of itself."""

    def __init__(self, config: BotConfig, session: str, welcomed: Callable[[Welcome], None]) -> None:
        self.session = session
        self._welcomed = welcomed  # hears how the server deals with bots
        self.draining = False
        self.maintenance: str | None = None  # why it takes no work for now
        self.begun: list[Begun] | None = []  # what earlier lives had begun, until the server has heard it
        self._config = config
        self._version = _version()
        self._read = _stamp(config.dimensions_file)
        self._from_file: Dimensions = {}

    async def hello(self, link: Link) -> Welcome:
        """Say it over a connection."""
        hello = Hello(
            bot=self._config.name,
            session=self.session,
            dimensions=self._dimensions(),
            slots=self._config.slots,
            draining=self.draining,
            maintenance=self.maintenance,
            version=self._version,
            begun=self.begun,
        )
        welcome = await link.hello(hello)
        self._welcomed(welcome)
        return welcome

    async def hello_once(self) -> Welcome:
        """Say it over a connection of its own."""
        link = Link(self._config)
        try:
            return await self.hello(link)
        finally:
            link.close()

    def has_changed(self) -> bool:
        """Whether the file of dimensions is another than when it was last read."""
        return _stamp(self._config.dimensions_file) != self._read

    def _dimensions(self) -> Dimensions:
        file = self._config.dimensions_file
        self._read = _stamp(file)
        if file is not None:
            try:
                self._from_file = read_file(file)
            except (OSError, ValueError) as error:
                _LOG.warning("the file of dimensions stays as it was read before: %s", error)
        return together(detected(), self._from_file, self._config.dimensions)


def _stamp(file: Path | None) -> tuple[int, int] | None:
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _version() -> str:
    try:
        return version("taskyard")
    except PackageNotFoundError:
        return ""
