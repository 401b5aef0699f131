"""One connection to a message broker that speaks AMQP 0-9-1, such as RabbitMQ.

Only one connection of an installation may publish. The right to publish is a queue that the broker gives to one
connection alone, and takes back when that connection ends or is silent for two heartbeats. A server that was frozen
meanwhile finds its connection closed, so it cannot publish beside its successor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Final, Self

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, ExchangeType
from aiormq.abc import ChannelFrame
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import marshal
from pamqp.header import ContentHeader
from yarl import URL

from taskyard.bus.messages import OutgoingMessage
from taskyard.wire import messages

#: The broker ends a connection that it has not heard of for two heartbeats.
HEARTBEAT_S: Final = 5
#: How long connecting may take.
CONNECT_S: Final = 15
#: How many messages are on their way before the broker has confirmed them.
BATCH_MAX: Final = 500
#: How many reports of workers are here at once.
RECEIVED_MAX: Final = 200
PERSISTENT: Final = 2
#: The library logs every failed attempt to connect; whoever connects says so once.
for _library in ("aiormq", "aio_pika"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)
_JSON: Final = "application/json"


class BrokerFailed(Exception):
    """The broker cannot be used, or did not take a message; the text says why. It has no password in it."""


class Broker:
    """A connection, which ends for good if anything goes wrong on it."""

    def __init__(self, connection: AbstractConnection, scheduler_id: str) -> None:
        self._connection = connection
        self._scheduler_id = scheduler_id
        self._channel: AbstractChannel | None = None
        self._publishing: Channel | None = None

    @classmethod
    async def connect(cls, url: str, scheduler_id: str) -> Self:
        """Connect to a broker."""
        connection = aio_pika.Connection(URL(url).update_query(heartbeat=HEARTBEAT_S))
        try:
            await connection.connect(timeout=CONNECT_S)
        except _FAULTS as fault:
            await connection.close()  # else it would close itself on whichever thread collects it
            raise BrokerFailed(_text(fault)) from fault
        return cls(connection, scheduler_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def take_right(self) -> bool:
        """Take the right to publish; return False if another connection has it."""
        try:
            channel = await self._connection.channel(publisher_confirms=False)
            await channel.declare_queue(messages.publisher_queue(self._scheduler_id), exclusive=True)
        except aiormq.exceptions.ChannelLockedResource:
            return False
        except _FAULTS as fault:
            raise BrokerFailed(_text(fault)) from fault
        return True

    def check(self) -> None:
        """Raise `BrokerFailed` if the connection has ended."""
        if self._connection.is_closed or self._publishing is None or self._publishing.is_closed:
            raise BrokerFailed("the connection to the broker has ended")

    async def declare(self) -> None:
        """Declare the exchanges of events."""
        try:
            self._channel = await self._connection.channel(publisher_confirms=True)
            underlay = await self._channel.get_underlay_channel()
            assert isinstance(underlay, Channel), "the library has another channel"
            self._publishing = underlay
            for name in messages.exchanges(self._scheduler_id):
                await self._channel.declare_exchange(name, ExchangeType.TOPIC, durable=True)
        except _FAULTS as fault:
            raise BrokerFailed(_text(fault)) from fault

    async def declare_pool(self, pool: str) -> None:
        """Declare the exchange to which tasks of an external pool are announced, and the queue that keeps them."""
        await self._keep_queue(messages.pool_exchange(self._scheduler_id, pool), pool)

    async def _keep_queue(self, name: str, key: str) -> None:
        assert self._channel is not None, "declare first"
        try:
            exchange = await self._channel.declare_exchange(name, ExchangeType.DIRECT, durable=True)
            queue = await self._channel.declare_queue(name, durable=True)
            await queue.bind(exchange, key)
        except _FAULTS as fault:
            raise BrokerFailed(_text(fault)) from fault

    async def receive_reports(self, take: Callable[[AbstractIncomingMessage], Awaitable[None]]) -> None:
        """Have a function called with each report of a worker; it has to acknowledge the report."""
        try:
            channel = await self._connection.channel(publisher_confirms=False)
            await channel.set_qos(prefetch_count=RECEIVED_MAX)
            await channel.declare_queue(messages.unreadable_queue(self._scheduler_id), durable=True)
            queue = await channel.declare_queue(messages.reports_queue(self._scheduler_id), durable=True)
            await queue.consume(take)
        except _FAULTS as fault:
            raise BrokerFailed(_text(fault)) from fault

    async def publish(self, found: Sequence[OutgoingMessage]) -> None:
        """Publish messages in their order; return once the broker has confirmed them all."""
        for start in range(0, len(found), BATCH_MAX):
            try:
                await self._publish_batch(found[start : start + BATCH_MAX])
            except (*_FAULTS, asyncio.CancelledError) as fault:
                if (task := asyncio.current_task()) and task.cancelling():
                    raise  # it is not the library that gives up a connection
                # What is on its way may arrive or not: nothing more may follow it on this connection.
                await self._connection.close()
                raise BrokerFailed(_text(fault)) from fault

    async def _publish_batch(self, found: Sequence[OutgoingMessage]) -> None:
        """Publish messages with one write, and wait until all are confirmed.

        `basic_publish` of the library takes a task, a lock, two futures and a system call for each message: three
        times as long (`benchmarks.events`, events with confirms).
        """
        channel = self._publishing
        assert channel is not None, "declare first"
        confirmed = channel.create_future()  # it fails if the channel is closed
        confirmation = _Confirmations(len(found), confirmed)
        async with channel.lock:
            for _ in found:
                channel.delivery_tag += 1
                channel.confirmations[channel.delivery_tag] = confirmation  # type: ignore[assignment]
            frames = b"".join(_frames(one, channel.number, channel.max_content_size) for one in found)
            await channel.write_queue.put(ChannelFrame(frames, should_close=False))
        await confirmed


class _Confirmations:
    """Stands for the confirmations of a batch of messages: all, or one that is refused."""

    def __init__(self, count: int, confirmed: "asyncio.Future[None]") -> None:
        self._left = count
        self._confirmed = confirmed

    def done(self) -> bool:
        """Return False: the library asks before it tells of the next one."""
        return False

    def set_result(self, _: object) -> None:
        """Count one as confirmed."""
        self._left -= 1
        if not self._left and not self._confirmed.done():
            self._confirmed.set_result(None)

    def set_exception(self, fault: BaseException) -> None:
        """Fail all: the broker has refused one."""
        if not self._confirmed.done():
            self._confirmed.set_exception(fault)


def _frames(one: OutgoingMessage, channel: int, size_max: int) -> bytes:
    """Write a message as frames."""
    properties = Basic.Properties(
        content_type=_JSON,
        delivery_mode=PERSISTENT,
        message_id=one.id,
        message_type=one.kind,
        reply_to=one.reply_to or None,
        expiration=str(one.expires_ms) if one.expires_ms else None,
        headers={"fault": one.fault} if one.fault else None,
    )
    header = marshal(ContentHeader(properties=properties, body_size=len(one.body)), channel)
    parts = [one.body[start : start + size_max] for start in range(0, len(one.body), size_max)]
    return b"".join(
        (_address(one.exchange, one.routing_key, channel), header, *(_part(part, channel) for part in parts))
    )


@lru_cache(maxsize=4_096)
def _address(exchange: str, routing_key: str, channel: int) -> bytes:
    """Write where a message goes; some thousand messages in a row go to few places."""
    return marshal(Basic.Publish(exchange=exchange, routing_key=routing_key), channel)


def _part(part: bytes, channel: int) -> bytes:
    return marshal(ContentBody(part), channel)


_FAULTS: Final = (aiormq.exceptions.AMQPError, aio_pika.exceptions.AMQPError, OSError, TimeoutError, ValueError)


def _text(fault: BaseException) -> str:
    return str(fault) or type(fault).__name__
