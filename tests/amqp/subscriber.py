"""A subscriber at a real broker, on a thread of its own: it keeps every message in the order in which it came."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from taskyard.wire import messages
from tests.cli.waiting import until

Found = TypeVar("Found")
#: Tests stop brokers; the library would log every attempt to connect again.
for _library in ("aiormq", "aio_pika"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Received:
    """A message as it came."""

    exchange: str
    routing_key: str
    id: str
    body: Any

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def place(self) -> tuple[str, int]:
        return self.body["graph_id"], self.body["number"]


class BrokerClient:
    """Runs coroutines with a channel of a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._connection = self.run(self._connect())
        self.channel = self.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, act: Coroutine[Any, Any, Found]) -> Found:
        """Run a coroutine on the thread of this client."""
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(60)

    async def _connect(self) -> aio_pika.abc.AbstractRobustConnection:
        return await aio_pika.connect_robust(self._url, reconnect_interval=0.2)

    async def _open(self) -> aio_pika.abc.AbstractChannel:
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=1_000)
        return channel


class Subscriber(BrokerClient):
    """Gets the events of an installation through a durable queue of its own."""

    def __init__(self, url: str, scheduler_id: str, binding: str = "#", queue: str = "") -> None:
        super().__init__(url)
        self.received: list[Received] = []
        self.on_message: Callable[[Received], object] = lambda _: None
        self._scheduler_id = scheduler_id
        self._binding = binding
        self._queue = queue or f"{scheduler_id}.subscriber"

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._subscribe())
        return self

    async def _subscribe(self) -> None:
        queue = await self.channel.declare_queue(self._queue, durable=True)
        for name in messages.exchanges(self._scheduler_id):
            exchange = await self.channel.declare_exchange(name, "topic", durable=True)
            await queue.bind(exchange, self._binding)
        await queue.consume(self._keep)

    async def _keep(self, message: AbstractIncomingMessage) -> None:
        exchange, key = message.exchange or "", message.routing_key or ""
        received = Received(exchange, key, message.message_id or "", json.loads(message.body))
        self.received.append(received)
        self.on_message(received)
        await message.ack()

    def until(self, holds: Callable[[list[Received]], bool], what: str = "messages") -> list[Received]:
        """Wait until the messages that have come are enough; return them."""
        until(lambda: holds(self.received), what)
        return list(self.received)

    def first_deliveries(self) -> list[Received]:
        """Every message once, in the order in which each came first."""
        found: dict[str, Received] = {}
        for one in self.received:
            found.setdefault(one.id, one)
        return list(found.values())


class ExternalWorker(BrokerClient):
    """A worker of an external pool: gets what is announced, and reports what a test says."""

    def __init__(self, url: str, scheduler_id: str, pool: str) -> None:
        super().__init__(url)
        self.announced: list[Any] = []
        self.messages: list[AbstractIncomingMessage] = []
        self.unreadable: list[tuple[str, bytes]] = []
        self._scheduler_id = scheduler_id
        self._pool = pool

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._consume())
        return self

    def next(self, count: int = 1) -> Any:
        """Wait until so many attempts were announced; return the last."""
        until(lambda: len(self.announced) >= count, f"{count} announcements")
        return self.announced[count - 1]

    def report(self, kind: str, announced: Any, **said: Any) -> None:
        """Send a report about an attempt."""
        same = {name: announced[name] for name in ("task", "attempt", "fence", "token")}
        self.send(json.dumps({"kind": kind, **same, **said}).encode())

    def send(self, body: bytes) -> None:
        """Send anything to the queue of reports; return once the broker has it."""
        message = aio_pika.Message(body, delivery_mode=2)
        self.run(self.channel.default_exchange.publish(message, messages.reports_queue(self._scheduler_id)))

    async def _consume(self) -> None:
        name = messages.pool_exchange(self._scheduler_id, self._pool)
        await (await self.channel.declare_queue(name, durable=True)).consume(self._keep)
        await self.channel.declare_queue(messages.reports_queue(self._scheduler_id), durable=True)
        dead = await self.channel.declare_queue(messages.unreadable_queue(self._scheduler_id), durable=True)
        await dead.consume(self._keep_unreadable)

    async def _keep(self, message: AbstractIncomingMessage) -> None:
        self.messages.append(message)
        self.announced.append(json.loads(message.body))
        await message.ack()

    async def _keep_unreadable(self, message: AbstractIncomingMessage) -> None:
        self.unreadable.append((str(message.headers["fault"]), message.body))
        await message.ack()


def in_order(received: list[Received]) -> bool:
    """Whether the messages of each graph are in order, without gaps from the first on."""
    numbers: dict[str, int] = {}
    for one in received:
        graph, number = one.place
        if number != numbers.get(graph, number - 1) + 1:
            return False
        numbers[graph] = number
    return True
