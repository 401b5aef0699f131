"""Requests that wait for a change: of a graph, of an output, or of the stream of events.

The engine wakes them, also for changes at other servers. A wake-up is only a hint and may be lost, so each request also
looks again at regular intervals.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

#: How often a waiting request looks without being woken.
POLL_INTERVAL_S: Final = 1.0

Seen = TypeVar("Seen")


class Wakeups:
    """Waiting requests by what they wait for. Any thread may wake them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, set[asyncio.Event]] = {}

    @contextmanager
    def registered(self, key: int) -> Iterator[asyncio.Event]:
        """Give an event that is set by every change meanwhile."""
        self._loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        self._waiting.setdefault(key, set()).add(woken)
        try:
            yield woken
        finally:
            self._waiting[key].discard(woken)
            if not self._waiting[key]:
                del self._waiting[key]

    async def wait(
        self, key: int, look: Callable[[], Awaitable[Seen]], settled: Callable[[Seen], bool], span_s: float
    ) -> Seen:
        """Look until it is settled or the time is over; return what was seen last."""
        with self.registered(key) as woken:
            loop = asyncio.get_running_loop()
            ends = loop.time() + span_s
            seen = await look()
            while not settled(seen) and (left := ends - loop.time()) > 0:
                await pause(woken, min(left, POLL_INTERVAL_S))
                seen = await look()
            return seen

    def wake(self, keys: Collection[int]) -> None:
        """Wake the requests that wait for something."""
        self._call(lambda: self._set(keys))

    def wake_all(self) -> None:
        """Wake all requests."""
        self._call(lambda: self._set(tuple(self._waiting)))

    def _call(self, act: Callable[[], None]) -> None:
        if self._loop is not None and self._waiting:
            with suppress(RuntimeError):  # the loop has closed, so no request waits
                self._loop.call_soon_threadsafe(act)

    def _set(self, keys: Collection[int]) -> None:
        for key in keys:
            for event in self._waiting.get(key, ()):
                event.set()


async def pause(woken: asyncio.Event, span_s: float) -> None:
    """Wait until an event is set or the time is over, and clear it."""
    with suppress(TimeoutError):
        await asyncio.wait_for(woken.wait(), span_s)
    woken.clear()
