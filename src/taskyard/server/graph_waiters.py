"""Requests that wait until a graph is settled.

The engine wakes them when their graph changes. A wake-up is only a hint: another server may change the graph, so each
request also looks again at regular intervals.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final, TypeVar

from taskyard.engine.engine import Engine

#: How often a waiting request looks without being woken.
POLL_INTERVAL_S: Final = 1.0

Seen = TypeVar("Seen")


class GraphWaiters:
    """Waiting requests by graph. The engine's thread wakes them."""

    def __init__(self, engine: Engine) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, set[asyncio.Event]] = {}
        engine.listeners.append(self._graphs_changed)

    async def wait(
        self, graph: int, look: Callable[[], Awaitable[Seen]], settled: Callable[[Seen], bool], span_s: float
    ) -> Seen:
        """Look at a graph until it is settled or the time is over; return what was seen last."""
        self._loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        self._waiting.setdefault(graph, set()).add(woken)
        try:
            ends = self._loop.time() + span_s
            seen = await look()
            while not settled(seen) and (left := ends - self._loop.time()) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), min(left, POLL_INTERVAL_S))
                woken.clear()
                seen = await look()
            return seen
        finally:
            self._waiting[graph].discard(woken)
            if not self._waiting[graph]:
                del self._waiting[graph]

    def close(self) -> None:
        """Wake all waiting requests: the server stops."""
        for events in self._waiting.values():
            for event in events:
                event.set()

    def _graphs_changed(self, graphs: Collection[int]) -> None:
        if self._loop is not None and self._waiting:
            with suppress(RuntimeError):  # the loop has closed, so no request waits
                self._loop.call_soon_threadsafe(self._wake, tuple(graphs))

    def _wake(self, graphs: Collection[int]) -> None:
        for graph in graphs:
            for event in self._waiting.get(graph, ()):
                event.set()
