"""The workers of external pools, as far as a server speaks with them through a message broker.

The server that has the right to publish claims the tasks of such pools in the name of a bot for each, so that a broker
which is away costs nothing. A claim is an event, and the attempt is announced when that event is published: so it is
announced at least once, with the same id. What workers report is acknowledged once it is durable.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from taskyard.bus.messages import OutgoingMessage
from taskyard.core import fleet
from taskyard.core.fleet import external_bot, is_external
from taskyard.core.ids import Key, key_of, text_of
from taskyard.core.matching import ID, POOL, canonical
from taskyard.core.states import Signal
from taskyard.engine.errors import Failed, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.commands import Hello, Lease, Poll, Refusal, Renewal, Report
from taskyard.lifecycle.external import WorkerReport, announced, external_pools, take_reports
from taskyard.server.tokens import RunToken, RunTokenSigner
from taskyard.store.repo.events import EventRow
from taskyard.wire import messages
from taskyard.wire.bot_protocol import INPUTS_MAX, NOTHING, RESULT_MAX, SLOTS_MAX
from taskyard.wire.messages import Announcement, WorkerFailed, WorkerHeartbeat, WorkerMessage

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aio_pika.abc import AbstractIncomingMessage

    from taskyard.bus.amqp import Broker
    from taskyard.engine.engine import Engine

#: How often a server looks for pools that have become external.
LOOK_S: Final = 2.0
#: How long a poll in the name of a pool waits, and how many tasks one claims.
WAIT_S: Final = 15.0
CLAIMED_MAX: Final = 100
#: How many reports share a transaction.
BATCH_MAX: Final = 100
#: Announced, as far as the broker can see; the id is that of the attempt.
KIND: Final = "task.announced"

_LOG: Final = logging.getLogger("taskyard.amqp")
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(WorkerMessage)


class Unreadable(Exception):
    """A report that means nothing; the text says why."""


class ExternalWorkers:
    """Claims for external pools, announces what was claimed, and takes what workers report."""

    def __init__(self, engine: "Engine", signer: RunTokenSigner) -> None:
        self._engine = engine
        self._signer = signer
        # The same for all servers, so that none replaces the session of another, and known to none but them. With
        # another key it is another folder of the bot: then its attempts go on, too.
        self._session = f"{signer.derive('the bots of external pools').hex()}/external"
        self._declared: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reports: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()

    # Announcements.

    def announcements(self, events: Sequence[EventRow]) -> list[OutgoingMessage]:
        """Make the announcement of each external attempt that began with one of these events and still runs."""
        started = {
            (one.subject, one.attempt)
            for one in events
            if one.attempt is not None and one.signal == Signal.CLAIM.text and is_external(one.bot)
        }
        if not started:
            return []
        leases = self._engine.transact(lambda transaction: announced(transaction, started), Boundary.OTHER)
        pools = {one.subject: (one.bot or "").removeprefix(fleet.EXTERNAL) for one in events}
        return [self._announcement(lease, pools[lease.task]) for lease in leases]

    def _announcement(self, lease: Lease, pool: str) -> OutgoingMessage:
        definition = lease.definition
        assert definition is not None, "it was asked for"
        inputs = definition.inputs
        apart = inputs is not None and len(inputs) > INPUTS_MAX
        lasts_ms = max(1, lease.until_ms - self._engine.clock.now())
        task = text_of(Key(lease.task))
        message = Announcement(
            task, lease.attempt, lease.fence, self._signer.sign(lease.task, lease.attempt, lease.fence),
            text_of(Key(definition.graph)), definition.label, pool, lasts_ms, msgspec.Raw(definition.payload),
            msgspec.UNSET if inputs is None or apart else msgspec.Raw(inputs.encode()), apart, definition.checkpoint,
        )  # fmt: skip
        scheduler_id = self._engine.scheduler_id
        return OutgoingMessage(
            messages.pool_exchange(scheduler_id, pool),
            pool,
            f"{task}-{lease.attempt}",
            KIND,
            _ENCODER.encode(message),
            messages.reports_queue(scheduler_id),
            lasts_ms,  # after that the attempt is lost, and no worker must begin it
        )

    # Claims.

    async def serve(self, broker: "Broker") -> None:
        """Claim and take reports until the connection fails."""
        self._declared.clear()
        self._reports = asyncio.Queue()
        await broker.receive_reports(self._reports.put)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_for_pools(broker, group))
                group.create_task(self._take_reports(broker))
        finally:
            self._tasks.clear()

    async def declare_pools(self, broker: "Broker", pools: Collection[str]) -> None:
        """Declare what announcements to pools need, once for each connection."""
        for pool in sorted(set(pools) - self._declared):
            await broker.declare_pool(pool)
            self._declared.add(pool)

    async def _claim_for_pools(self, broker: "Broker", group: asyncio.TaskGroup) -> None:
        while True:
            broker.check()
            pools = await asyncio.to_thread(self._external_pools)
            await self.declare_pools(broker, pools)
            for pool in pools:
                if pool not in self._tasks:
                    self._tasks[pool] = group.create_task(self._claim_forever(pool))
            for pool in self._tasks.keys() - set(pools):
                self._tasks.pop(pool).cancel()
            await asyncio.sleep(LOOK_S)

    def _external_pools(self) -> list[str]:
        with outages(), self._engine.store.read() as repo:
            return external_pools(repo)

    async def _claim_forever(self, pool: str) -> None:
        bot = external_bot(pool)
        while True:
            refusal = await asyncio.to_thread(self._say_hello, pool)
            while refusal is None:
                poll = Poll(
                    bot,
                    self._session,
                    self._engine.clock.word(),
                    want=CLAIMED_MAX,
                    wait_ms=int(WAIT_S * 1_000),
                    begun=(),
                )
                answer = await self._wait(self._engine.ask(Poll, poll))
                refusal = answer if isinstance(answer, Refusal) else None
            _LOG.error("tasks of pool %s are not claimed: %s", pool, refusal.text)
            await asyncio.sleep(LOOK_S)

    def _say_hello(self, pool: str) -> Refusal | None:
        bot = external_bot(pool)
        dimensions = canonical({ID: [bot], POOL: [pool]})
        answer = self._engine.hello(Hello(bot, self._session, dimensions, SLOTS_MAX, external=True))
        return answer if isinstance(answer, Refusal) else None

    async def _wait(self, future: "Future[object]") -> object:
        timer = asyncio.get_running_loop().call_later(WAIT_S, self._engine.leave, future)
        try:
            return await asyncio.wrap_future(future)
        finally:
            timer.cancel()
            self._engine.leave(future)

    # Reports.

    async def _take_reports(self, broker: "Broker") -> None:
        while True:
            batch = [await self._reports.get()]
            while len(batch) < BATCH_MAX and not self._reports.empty():
                batch.append(self._reports.get_nowait())
            readable: list[tuple[AbstractIncomingMessage, WorkerReport]] = []
            for message in batch:
                try:
                    readable.append((message, self._read(message.body)))
                except Unreadable as fault:
                    await self._put_aside(broker, message, str(fault))
            if readable:
                await self._take(broker, readable)

    async def _take(self, broker: "Broker", readable: Sequence[tuple["AbstractIncomingMessage", WorkerReport]]) -> None:
        """Store reports and acknowledge them; put aside the one that cannot be stored."""
        try:
            await asyncio.to_thread(self._store, [report for _, report in readable])
        except Failed as fault:
            if len(readable) == 1:
                await self._put_aside(broker, readable[0][0], str(fault))
            else:
                for one in readable:
                    await self._take(broker, [one])
            return
        for message, _ in readable:  # only now: it is durable
            await message.ack()

    async def _put_aside(self, broker: "Broker", message: "AbstractIncomingMessage", fault: str) -> None:
        await broker.publish([_dead_letter(message, fault, self._engine.scheduler_id)])
        await message.ack()

    def _store(self, reports: Sequence[WorkerReport]) -> None:
        answers = self._engine.transact(lambda transaction: take_reports(transaction, reports), Boundary.OTHER)
        for answer in answers:
            if isinstance(answer, Refusal):
                _LOG.info("a report changes nothing: %s", answer.text)

    def _read(self, body: bytes) -> WorkerReport:
        if len(body) > messages.WORKER_MESSAGE_MAX:
            raise Unreadable(f"it has {len(body)} bytes, and may have {messages.WORKER_MESSAGE_MAX}")
        try:
            message = _DECODER.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise Unreadable(str(fault)) from fault
        task = int(key_of(message.task))
        if self._signer.verify(message.token) != RunToken(task, message.attempt, message.fence):
            raise Unreadable("its token is not the one that was announced for this task, attempt and fence")
        ref = (task, message.attempt, message.fence)
        if isinstance(message, WorkerHeartbeat):
            if "\0" in (message.progress or ""):
                raise Unreadable("its progress contains a NUL character")
            return WorkerReport(*ref, renewal=Renewal(*ref, progress=message.progress))
        result = NOTHING if message.result is msgspec.UNSET else message.result
        if len(bytes(result)) > RESULT_MAX:
            raise Unreadable(f"its result may have at most {RESULT_MAX} bytes")
        signal = Signal.FAIL if isinstance(message, WorkerFailed) else Signal.SUCCEED
        return WorkerReport(*ref, Report(*ref, signal, exit_code=message.exit_code, result=result))


def _dead_letter(message: "AbstractIncomingMessage", fault: str, scheduler_id: str) -> OutgoingMessage:
    """A report that cannot be read, with what is wrong about it; the queue is bound to the default exchange."""
    queue = messages.unreadable_queue(scheduler_id)
    return OutgoingMessage("", queue, message.message_id or "", "report.unreadable", message.body, fault=fault)
