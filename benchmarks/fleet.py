"""A large fleet on one server process: what idle bots cost, how soon a task starts, how busy bots are heard.

The server is real. The bots are played by this process, each with a connection of its own, by the wire that real ones
speak: thousands of real ones would need more machines.

- idle: so many bots wait for work; the memory of the server, and the time from a submit to a lease at a bot.
- busy: so many bots each run a task and renew its lease every second, far more often than real ones; p99 of a renewal.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from statistics import median, quantiles

import msgspec
import psutil  # type: ignore[import-untyped]

from benchmarks.cluster import Cluster, cluster
from benchmarks.report import Case, main
from taskyard.sdk.bot_http import ServerConnection
from taskyard.wire import bot_protocol as wire

IDLE, BUSY = 2_000, 500
#: How many bots say hello at once: so many as a server takes up in a moment.
GREETED = 50
_POLLED = msgspec.json.Decoder(wire.Polled)


class Bot:
    """A bot that runs nothing."""

    def __init__(self, one: Cluster, number: int) -> None:
        self.name = f"bot{number}"
        self._line = ServerConnection(one.url, {"authorization": f"Bearer {one.bot_token}"})
        self._polls = 0

    async def hello(self) -> None:
        """Begin a session."""
        await self._say("hello", wire.Hello(self.name, "s1"))

    async def poll(self, **said: object) -> wire.Polled:
        """Say something, and want something."""
        self._polls += 1
        name = f"p{self._polls}" if said.get("want") else ""
        return _POLLED.decode(await self._say("poll", wire.Poll(self.name, "s1", name, **said)))  # type: ignore[arg-type]

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    async def _say(self, what: str, shape: wire.Message) -> bytes:
        answer = await self._line.ask("POST", f"/api/v1/bot/{what}", msgspec.json.encode(shape), timeout_s=60)
        assert answer.status == 200, answer
        return answer.body


def measure(quick: bool) -> Sequence[Case]:
    """Measure both; `quick` only shows that it works."""
    idle, busy = (IDLE // 50, BUSY // 50) if quick else (IDLE, BUSY)
    with cluster("sqlite") as one:
        memory, starts = asyncio.run(_idle(one, idle))
    with cluster("sqlite") as one:
        spans = asyncio.run(_busy(one, busy))
    return [
        Case(f"{IDLE} idle bots, memory of the server", memory / 1e6, "MB", "lower", must=400),
        Case(f"{IDLE} idle bots, submit to lease, p50", median(starts) * 1000, "ms", "lower"),
        Case(f"{IDLE} idle bots, submit to lease, longest", max(starts) * 1000, "ms", "lower", must=100),
        Case(f"{BUSY} busy bots, a renewal, p50", median(spans) * 1000, "ms", "lower"),
        Case(f"{BUSY} busy bots, a renewal, p99", quantiles(spans, n=100)[98] * 1000, "ms", "lower", must=150),
    ]


async def _idle(one: Cluster, count: int) -> tuple[float, list[float]]:
    bots = await _fleet(one, count)
    waiting = {asyncio.create_task(bot.poll(want=1, wait_ms=wire.WAIT_MAX_MS)): bot for bot in bots}
    await asyncio.sleep(2)
    memory = psutil.Process(one.server.pid).memory_info().rss
    starts = []
    for _ in range(20):
        began = time.perf_counter()
        submitting = asyncio.create_task(asyncio.to_thread(one.client.submit, _graph(1)))
        got = False
        while not got:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=30)
            assert done, "no bot got it"
            for task in done:
                bot = waiting.pop(task)
                got = got or bool(task.result().leases)
                waiting[asyncio.create_task(bot.poll(want=1, wait_ms=wire.WAIT_MAX_MS))] = bot
        starts.append(time.perf_counter() - began)
        await submitting
        await asyncio.sleep(0.05)
    for task in waiting:
        task.cancel()
    for bot in bots:
        bot.close()
    return memory, starts


async def _busy(one: Cluster, count: int) -> list[float]:
    bots = await _fleet(one, count)
    await asyncio.to_thread(one.client.submit, _graph(count))
    spans: list[float] = []

    async def work(bot: Bot, place: int) -> None:
        (lease,) = (await bot.poll(want=1, wait_ms=wire.WAIT_MAX_MS)).leases
        renewal = wire.Renewal(lease.task, lease.attempt, lease.fence)
        await asyncio.sleep(place / count)  # they do not all speak at once
        for _ in range(8):
            began = time.perf_counter()
            answer = await bot.poll(renewals=[renewal])
            spans.append(time.perf_counter() - began)
            assert not answer.refused, answer
            await asyncio.sleep(1)

    await asyncio.gather(*(work(bot, place) for place, bot in enumerate(bots)))
    for bot in bots:
        bot.close()
    return spans


async def _fleet(one: Cluster, count: int) -> list[Bot]:
    bots = [Bot(one, number) for number in range(count)]
    for first in range(0, count, GREETED):
        await asyncio.gather(*(bot.hello() for bot in bots[first : first + GREETED]))
    return bots


def _graph(count: int) -> dict[str, object]:
    return {"tasks": {f"t{number}": {"task": {"payload": {"command": ["true"]}}} for number in range(count)}}


if __name__ == "__main__":
    sys.exit(main("fleet", measure))
