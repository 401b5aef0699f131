"""The thread that carries events to a message broker: connect, take the right to publish, publish, advance.

Each server with a broker has one; the one whose connection has the right publishes, the others wait for it. The
position of the target is read after the right was taken, and moves only over what the broker has confirmed. So events
come at least once, and in the order of each graph as far as their first delivery goes.

Tasks come first: while the rest of the process is busy, the thread rests most of the time, and events come later.
"""

import asyncio
import logging
import time
from enum import StrEnum, unique
from threading import Thread
from typing import TYPE_CHECKING, Final

from taskyard.bus.messages import MessageBuilder, OutgoingMessage
from taskyard.engine.errors import EngineError, outages
from taskyard.server.external_workers import ExternalWorkers
from taskyard.server.settings import Settings
from taskyard.server.tokens import RunTokenSigner
from taskyard.store.queries import StoreUnavailable, TransactionConflict

if TYPE_CHECKING:
    from taskyard.bus.amqp import Broker
    from taskyard.engine.engine import Engine

#: The name of the target in the stream of events.
TARGET: Final = "amqp"
#: How many rows of events are read at once.
PAGE_MAX: Final = 500
#: How often the thread looks for new events, and for the right to publish.
LOOK_S: Final = 0.1
RIGHT_S: Final = 1.0
#: The first pause before it connects again,
RETRY_MIN_S: Final = 0.5
#: and the longest: each attempt costs the broker something.
RETRY_MAX_S: Final = 5.0
#: How long a stop waits for the batch that is on its way.
STOP_MAX_S: Final = 10

_LOG: Final = logging.getLogger("taskyard.amqp")


@unique
class Link(StrEnum):
    """How this server and the broker stand."""

    DOWN = "down"  # no connection
    STANDBY = "standby"  # another connection has the right to publish
    PUBLISHING = "publishing"


class AmqpThread:
    """Publishes the events of the stream to the broker of the settings."""

    def __init__(self, engine: "Engine", settings: Settings, signer: RunTokenSigner) -> None:
        self.link = Link.DOWN
        self.fault = "it has not connected yet"
        self.published = 0
        self._engine = engine
        self._url = settings.amqp
        self._builder = MessageBuilder(engine.scheduler_id)
        self._workers = ExternalWorkers(engine, signer)
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, name="taskyard-amqp", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is not confirmed yet is published again at the next start."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(STOP_MAX_S)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._main = self._loop.create_task(self._connect_forever())
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _connect_forever(self) -> None:
        from taskyard.bus.amqp import BrokerFailed  # noqa: PLC0415 - servers without a broker do not load its client

        pause = RETRY_MIN_S
        while True:
            try:
                await self._serve()
            except (BrokerFailed, EngineError, TransactionConflict, StoreUnavailable) as fault:
                if self.fault != str(fault):  # it is said once, not at every attempt
                    _LOG.warning("events are published later: %s", fault)
                pause = RETRY_MIN_S if self.link is Link.PUBLISHING else min(2 * pause, RETRY_MAX_S)
                self.link, self.fault = Link.DOWN, str(fault)
            except Exception as fault:  # noqa: BLE001 - a bug here must not end the thread
                _LOG.exception("events are published later")
                self.link, self.fault = Link.DOWN, repr(fault)
            await asyncio.sleep(pause)

    async def _serve(self) -> None:
        """Use one connection until it fails."""
        from taskyard.bus.amqp import Broker  # noqa: PLC0415

        await asyncio.to_thread(self._add_target)  # what happens while the broker is away is for it, too
        async with await Broker.connect(self._url, self._engine.scheduler_id) as broker:
            await self._wait_for_right(broker)
            await broker.declare()
            _LOG.info("this server publishes events")
            self.link, self.fault = Link.PUBLISHING, ""
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._publish_forever(broker))
                    group.create_task(self._workers.serve(broker))
            except BaseExceptionGroup as faults:
                raise _first(faults) from faults

    async def _publish_forever(self, broker: "Broker") -> None:
        while True:
            if not await self._publish_page(broker):
                broker.check()
                await asyncio.sleep(LOOK_S)

    async def _wait_for_right(self, broker: "Broker") -> None:
        while not await broker.take_right():
            if self.link is not Link.STANDBY:
                _LOG.info("another server publishes events")
            self.link, self.fault = Link.STANDBY, ""
            await asyncio.sleep(RIGHT_S)

    async def _publish_page(self, broker: "Broker") -> bool:
        """Publish the next events; return whether there were any."""
        began, used = time.monotonic(), time.thread_time()
        found, started, last = await asyncio.to_thread(self._read_page)
        if last is None:
            return False
        if started:
            await self._workers.declare_pools(broker, {one.routing_key for one in started})
        await broker.publish([*found, *started])
        self.published += len(found)
        await asyncio.to_thread(self._advance, last)
        pace = self._engine.pace
        pace.count(time.thread_time() - used)  # all that this thread does
        await asyncio.sleep(pace.rest_s(time.monotonic() - began))
        return True

    def _add_target(self) -> None:
        self._engine.relay.add_target(TARGET)

    def _read_page(self) -> tuple[list[OutgoingMessage], list[OutgoingMessage], int | None]:
        """Make messages of the next events, and of the attempts that external workers have to begin with them.

        Return the number of the last one, too; None if there are none.
        """
        with self._engine.pace.work(), outages(), self._engine.store.read() as repo:
            position = next((one.position for one in repo.targets.all() if one.name == TARGET), None)
            if position is None:
                raise TargetRemoved
            numbered, last = repo.stream.page(position, PAGE_MAX)
            events = [one for _, one in numbered]
            found = self._builder.build(repo, events)
        return found, self._workers.announcements(events), None if last == position else last

    def _advance(self, position: int) -> None:
        self._engine.relay.advance(TARGET, position)


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the fault that ended a group of tasks."""
    first = faults.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


class TargetRemoved(EngineError):
    """A person removed the target; the next connection adds it again."""

    def __init__(self) -> None:
        super().__init__("the target was removed, and begins anew")
