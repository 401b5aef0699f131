"""A connection to the broker for sending, and one for an inbox, each with its thread. Both come back by themselves."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from celery import Celery
from kombu import Connection, Consumer, Producer, Queue
from kombu.exceptions import OperationalError

#: How long to wait for a broker that cannot be reached before the next try.
PAUSE_SECONDS: Final = 0.5
#: How long the thread of an inbox waits before it looks whether it has to end.
LOOK_SECONDS: Final = 0.5
#: How long an end waits for what is still to be sent.
CLOSE_SECONDS: Final = 3.0
_LOG = logging.getLogger("taskyard.bot")

Job = Callable[[Any], object]  # with a producer of Kombu


class BrokerLink:
    """Sends jobs in order, and receives what comes to an inbox."""

    def __init__(self, app: Celery, inbox: str, on_message: Callable[[bytes], None]) -> None:
        self._app, self._on_message = app, on_message
        # Control commands go over the connection that is given with them: one of a pool may be to another broker, or to
        # one that was restarted since.
        app.control.mailbox.producer_pool = None
        # It ends with the connection that receives it: whatever was in it is said again.
        self._queue = Queue(inbox, exchange="", routing_key=inbox, durable=False, exclusive=True, auto_delete=True)
        self.inbox = inbox
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._is_closed = False
        self.is_receiving = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"taskyard-{name}", daemon=True)
            for name, target in (("sender", self._send), ("receiver", self._receive))
        ]
        for thread in self._threads:
            thread.start()

    def publish(self, inbox: str, body: bytes) -> None:
        """Send a message to an inbox."""
        self.do(
            lambda producer: producer.publish(
                body,
                routing_key=inbox,
                exchange="",
                delivery_mode="transient",
                content_type="application/json",
                content_encoding="binary",
            )
        )

    def do(self, job: Job) -> None:
        """Have a job done with a connection; one that fails because of the connection is done again."""
        self._jobs.put(job)

    def close(self) -> None:
        """Send what is left, if the broker is there, and end."""
        self._jobs.put(None)
        self._threads[0].join(CLOSE_SECONDS)
        self._is_closed = True
        for thread in self._threads:
            thread.join(CLOSE_SECONDS)

    def _send(self) -> None:
        connection: Connection | None = None
        producer: Producer | None = None
        while (job := self._jobs.get()) is not None:
            while not self._is_closed:
                try:
                    if connection is None or producer is None:
                        connection = self._app.connection_for_write()
                        producer = Producer(connection.default_channel)
                    job(producer)
                    break
                except _errors(connection) as error:
                    _LOG.warning("cannot send to the broker: %s", _shown(error))
                    _close(connection)
                    connection = producer = None
                    time.sleep(PAUSE_SECONDS)
        _close(connection)

    def _receive(self) -> None:
        while not self._is_closed:
            connection = self._app.connection_for_read()
            try:
                self._receive_from(connection)
            except _errors(connection) as error:
                _LOG.warning("the connection to the broker is lost: %s", _shown(error))
                time.sleep(PAUSE_SECONDS)
            finally:
                self.is_receiving.clear()
                _close(connection)

    def _receive_from(self, connection: Connection) -> None:
        with Consumer(connection, [self._queue], no_ack=True, on_message=self._on_delivery, accept=["json"]):
            self.is_receiving.set()
            while not self._is_closed:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=LOOK_SECONDS)

    def _on_delivery(self, message: Any) -> None:
        body = message.body
        self._on_message(body if isinstance(body, bytes) else body.encode())


def _errors(connection: Connection | None) -> tuple[type[BaseException], ...]:
    """Return what a transport raises for a broker that is away; Kombu raises another error after some tries."""
    if connection is None:
        return (OperationalError, OSError)
    return (*connection.connection_errors, *connection.channel_errors, OperationalError, OSError)


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(Exception):
            connection.release()


def _shown(error: BaseException) -> str:
    """Name an error without an address that may have a password."""
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or str(error).partition('@')[0][:200]}"
