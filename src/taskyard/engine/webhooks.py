"""Webhooks of one database: set, list and try them, and the threads that send events to them.

Of all servers of a database one sends: it holds a row for some seconds and renews it. Each webhook has a thread there,
so a receiver that is slow or dead holds up no other. A thread reads the stream of events behind the position of its
webhook, sends one event after the other, and stores its position now and then: after a crash some events are sent
again, with the same id. What the receiver does not take is tried again (`core/webhooks.py`), and at last put aside.
"""

import http.client
import logging
import ssl
from collections.abc import Callable, Collection, Sequence
from threading import Event, Thread
from typing import Final, TypeVar

import msgspec

from taskyard.bus import webhooks as http_side
from taskyard.bus.webhooks import ForbiddenAddress, Network, Receiver
from taskyard.core.ids import Key, text_of
from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace, value
from taskyard.core.webhooks import PAUSE_MAX_MS, Failure, failure_of, pause_after
from taskyard.engine.bulk_load import Transact
from taskyard.engine.clock import Clock
from taskyard.engine.errors import EngineError, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.secrets import SERVER_POOL, Secrets
from taskyard.lifecycle import webhooks as steps
from taskyard.lifecycle.commands import Refusal
from taskyard.lifecycle.idempotency import run_once
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.webhooks import target_of
from taskyard.store.connection import Repo, Store
from taskyard.store.queries import StoreUnavailable, TransactionConflict
from taskyard.store.repo.events import EventRow
from taskyard.store.repo.webhooks import WebhookRow
from taskyard.views.events import event_views
from taskyard.wire.api import EventView

#: How long a server holds the right to send without renewing it, and how often it renews it, or asks for it.
HELD_MS: Final = 15_000
RENEW_MS: Final = 5_000
#: How often it looks for webhooks that are new or have changed.
LOOK_S: Final = 1.0
#: How often a thread looks for events when there were none.
IDLE_S: Final = 0.25
#: How many rows of events are read at once.
PAGE_MAX: Final = 100
#: How long events that were delivered may wait until that is stored.
STORED_MS: Final = 1_000
#: How many deliveries of a webhook may have been given up; then it waits for a person.
DEAD_MAX: Final = 10_000
#: How long a stop waits for the requests that are under way; then it cuts them off, and they are sent again.
FINISH_S: Final = 0.5
STOP_MAX_S: Final = 10
ERROR_MAX: Final = 300
#: What a try sends: an event of a graph that does not exist.
TRY_ID: Final = "0000000000000000-0"
Answer = TypeVar("Answer")
_LOG = logging.getLogger("taskyard.webhooks")
_FAULTS: Final = (EngineError, TransactionConflict, StoreUnavailable)


@value
class WebhookSpec:
    """A webhook as a person sets it."""

    name: str
    url: str
    pool: str | None = None
    graph: int | None = None
    kinds: tuple[str, ...] = ()
    paused: bool = False
    secret: str | None = None  # None: as it was


@value
class Tried:
    """The answer to one delivery."""

    status: int | None  # None: there was no answer
    error: str  # empty: it was delivered


class Webhooks:
    """The webhooks of one database, as one server can use them."""

    def __init__(
        self,
        store: Store,
        transact: Transact,
        clock: Clock,
        secrets: Secrets,
        networks: Sequence[Network] = (),
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.store = store
        self.transact = transact
        self.clock = clock
        self.networks = networks
        self.context = context  # of TLS; None: that of this machine
        self._secrets = secrets

    def save(self, spec: WebhookSpec, *, actor: str, key: str = "") -> Refusal | None:
        """Store a webhook. Its secret is stored first: a crash in between leaves a secret that the repeat replaces."""
        if spec.secret is not None:
            stored = self._secrets.save(SERVER_POOL, _secret_name(spec.name), spec.secret.encode(), actor=actor)
            if isinstance(stored, Refusal):
                return stored
        row = WebhookRow(
            spec.name,
            spec.pool,
            spec.graph,
            "\n".join(spec.kinds),
            spec.url,
            int(spec.paused),
            0,
            0,
            actor,
            None,
            None,
            0,
        )
        said = ("set_webhook", struct_replace(spec, secret=None))

        def act(transaction: Transaction) -> Refusal | None:
            now = struct_replace(row, changed_ms=transaction.now)
            return run_once(transaction, key, said, lambda _: steps.set_webhook(transaction, now), lambda _: None)

        return self.transact(act, Boundary.OTHER)

    def delete(self, name: str, *, actor: str, key: str = "") -> Refusal | None:
        """Delete a webhook."""

        def act(transaction: Transaction) -> Refusal | None:
            said = ("delete_webhook", name)
            return run_once(
                transaction, key, said, lambda _: steps.delete_webhook(transaction, name, actor), lambda _: None
            )

        refusal = self.transact(act, Boundary.OTHER)
        if refusal is None:
            self._secrets.delete(SERVER_POOL, _secret_name(name), actor=actor)
        return refusal

    def send_again(self, name: str, ids: Collection[str], *, actor: str) -> int | Refusal:
        """Have deliveries sent again that were given up: those with some ids, or all."""
        return self.transact(lambda transaction: steps.send_again(transaction, name, ids, actor), Boundary.OTHER)

    def try_out(self, name: str) -> Tried | Refusal:
        """Send an event that never was, once."""
        row = next((one for one in self.read(lambda repo: repo.webhooks.all()) if one.name == name), None)
        if row is None:
            return steps.not_found(name)
        graph = text_of(Key(0))
        event = EventView(
            TRY_ID, 0, "graph.running", self.clock.now(), graph, None, None, None, "running", None, None, None, None
        )
        receiver = Receiver(row.url, self.networks, self.context)
        try:
            return self.deliver(receiver, row.name, TRY_ID, msgspec.json.encode(event))
        finally:
            receiver.close()

    def deliver(self, receiver: Receiver, name: str, id: str, body: bytes) -> Tried:
        """Send a body once."""
        secret = self._secrets.own(_secret_name(name))
        if isinstance(secret, Refusal):
            return Tried(None, secret.text[:ERROR_MAX])
        headers = http_side.signed_headers(secret.decode(), id, self.clock.now() // 1_000, body)
        try:
            status = receiver.post(body, headers)
        except ForbiddenAddress as error:
            return Tried(None, str(error)[:ERROR_MAX])
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Tried(None, f"no answer: {str(error) or type(error).__name__}"[:ERROR_MAX])
        return Tried(status, "" if failure_of(status) is None else f"the receiver answered {status}")

    def read(self, look: Callable[[Repo], Answer]) -> Answer:
        """Read from the database."""
        with outages(), self.store.read() as repo:
            return look(repo)


class WebhookThread:
    """Sends to all webhooks while this server is the one that sends."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        self._holder = webhooks.clock.word()
        self._until = Millis(0)
        self._asked_ms = Millis(0)
        self._stopped = Event()
        self._senders: dict[tuple[str, int], _Sender] = {}
        self._thread = Thread(target=self._run, name="taskyard-webhooks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the requests that are under way, and let another server send."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    def may_send(self) -> bool:
        """Whether this server is still the one that sends: one that was frozen is not."""
        return not self._stopped.is_set() and self._webhooks.clock.now() < self._until

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
            except _FAULTS as fault:
                _LOG.warning("webhooks wait: %s", fault)
            except Exception:  # noqa: BLE001 - a bug here must not end the thread
                _LOG.exception("webhooks wait")
            self._stopped.wait(LOOK_S)
        self._end(list(self._senders))
        try:
            if self._until:
                self._webhooks.transact(
                    lambda transaction: transaction.repo.webhooks.release_sender(self._holder), Boundary.OTHER
                )
        except _FAULTS:
            pass  # its time ends

    def _look(self) -> None:
        """Have one thread for each webhook that is not paused, if this server is the one that sends."""
        wanted = {(one.name, one.version): one for one in self._rows() if not one.paused}
        now = self._webhooks.clock.now()
        if wanted and now - self._asked_ms >= RENEW_MS:
            self._until, self._asked_ms = self._held_until(now), now
        if not self.may_send():
            wanted = {}
        self._end([key for key, sender in self._senders.items() if key not in wanted or not sender.is_alive()])
        for key in wanted.keys() - self._senders.keys():
            self._senders[key] = _Sender(self._webhooks, wanted[key], self.may_send)
            self._senders[key].start()

    def _rows(self) -> list[WebhookRow]:
        return self._webhooks.read(lambda repo: repo.webhooks.all())

    def _held_until(self, now: Millis) -> Millis:
        """Become the server that sends, or stay it; return until when."""
        until = Millis(now + HELD_MS)
        taken = self._webhooks.transact(
            lambda transaction: transaction.repo.webhooks.take_sender(self._holder, transaction.now, until),
            Boundary.OTHER,
        )
        return until if taken else Millis(0)

    def _end(self, keys: Collection[tuple[str, int]]) -> None:
        ended = [self._senders.pop(key) for key in keys]
        for one in ended:
            one.stop()
        for one in ended:
            one.join(FINISH_S)
        for one in ended:
            one.cut()
            one.join(STOP_MAX_S)


class _Sender(Thread):
    """Sends to one webhook, as it is now."""

    def __init__(self, webhooks: Webhooks, row: WebhookRow, may_send: Callable[[], bool]) -> None:
        super().__init__(name=f"taskyard-webhook-{row.name}", daemon=True)
        self._webhooks = webhooks
        self._row = row
        self._may_send = may_send
        self._stopped = Event()
        self._kinds = frozenset(row.kinds.split("\n")) if row.kinds else frozenset()
        self._receiver = Receiver(row.url, webhooks.networks, webhooks.context)
        self._delivered = 0  # up to which number everything is delivered,
        self._stored = 0  # and stored as that,
        self._stored_ms = Millis(0)  # at this time
        self._is_failing = row.failing_since_ms is not None

    def stop(self) -> None:
        """End after the request that is under way."""
        self._stopped.set()

    def cut(self) -> None:
        """End the request that is under way."""
        self._receiver.cut()

    def run(self) -> None:
        """Send until the webhook changes, or another server sends."""
        try:
            while self._goes_on():
                try:
                    if not self._send_page():
                        self._stopped.wait(IDLE_S)
                except _FAULTS as fault:
                    _LOG.warning("webhook %s waits: %s", self._row.name, fault)
                    self._stopped.wait(1)
            self._store_position()
        except _FAULTS as fault:
            _LOG.warning("webhook %s: its last deliveries will be repeated: %s", self._row.name, fault)
        finally:
            self._receiver.close()

    def _goes_on(self) -> bool:
        return not self._stopped.is_set() and self._may_send()

    def _send_page(self) -> bool:
        """Send what is to be sent again, and a page of events; return whether there was anything."""
        again = self._webhooks.read(lambda repo: repo.webhooks.to_send_again(self._row.name, PAGE_MAX))
        for id, body in again:
            if self._goes_on():
                self._send_again(id, body)
        page, last = self._webhooks.read(self._read_page)
        for number, event in page:
            if not self._goes_on() or not self._send(event):
                return True
            self._delivered = number
            if self._webhooks.clock.now() - self._stored_ms >= STORED_MS:
                self._store_position()
        self._delivered = max(self._delivered, last)
        if self._webhooks.clock.now() - self._stored_ms >= STORED_MS:
            self._store_position()
        return bool(page or again)

    def _read_page(self, repo: Repo) -> tuple[list[tuple[int, EventView]], int]:
        """Return the next events that are wanted, with their numbers, and the last number that was looked at."""
        position = next((one.position for one in repo.targets.all() if one.name == target_of(self._row.name)), None)
        if position is None:
            self._stopped.set()  # it was deleted
            return [], 0
        self._stored = position
        found, last = repo.stream.page(max(position, self._delivered), PAGE_MAX)
        chosen = [(number, event) for number, event in found if self._row.graph in (None, event.graph)]
        if self._row.pool is not None:
            chosen = _in_pool(repo, chosen, self._row.pool)
        views = event_views(repo, [event for _, event in chosen])
        shown = zip((number for number, _ in chosen), views, strict=True)
        return [(number, view) for number, view in shown if not self._kinds or view.kind in self._kinds], last

    def _send(self, event: EventView) -> bool:
        """Send an event until it is delivered or given up; return False if this thread has to end before."""
        body, tries, first = msgspec.json.encode(event), 0, self._webhooks.clock.now()
        while self._goes_on():
            tried = self._webhooks.deliver(self._receiver, self._row.name, event.id, body)
            if not tried.error:
                self._note(None)
                return True
            if not self._goes_on():
                return False  # it was cut off
            self._note(tried.error)
            tries += 1
            now = self._webhooks.clock.now()
            failure = Failure.UNREACHABLE if tried.status is None else failure_of(tried.status)
            assert failure is not None, "an answer of success is no error"
            pause = pause_after(failure, tries, first, event.at_ms, now, self._webhooks.clock.chance())
            if pause is None and self._give_up(event.id, body, tried.error):
                return True
            self._stopped.wait((PAUSE_MAX_MS if pause is None else pause) / 1_000)
        return False

    def _send_again(self, id: str, body: str) -> None:
        """Send once what was given up, and put it aside again if it fails."""
        tried = self._webhooks.deliver(self._receiver, self._row.name, id, body.encode())
        if tried.error and not self._goes_on():
            return  # it was cut off

        def act(transaction: Transaction) -> None:
            if tried.error:
                transaction.repo.webhooks.add_dead(self._row.name, id, body, transaction.now, tried.error)
            else:
                transaction.repo.webhooks.delete_dead(self._row.name, id)

        self._webhooks.transact(act, Boundary.OTHER)

    def _give_up(self, id: str, body: bytes, error: str) -> bool:
        """Put a delivery aside; return False if too many are already."""
        name = self._row.name

        def act(transaction: Transaction) -> bool:
            row = steps.find(transaction, name)
            if row is None or row.dead > DEAD_MAX:
                return False
            transaction.repo.webhooks.add_dead(name, id, body.decode(), transaction.now, error)
            return True

        return self._webhooks.transact(act, Boundary.OTHER)

    def _note(self, error: str | None) -> None:
        """Store that deliveries fail, or succeed again, once each."""
        if (error is not None) == self._is_failing:
            return
        self._is_failing = error is not None

        def act(transaction: Transaction) -> None:
            since = None if error is None else transaction.now
            transaction.repo.webhooks.set_outcome(self._row.name, self._row.version, since, error)

        self._webhooks.transact(act, Boundary.OTHER)

    def _store_position(self) -> None:
        self._stored_ms = self._webhooks.clock.now()
        if self._delivered > self._stored:
            name, position = target_of(self._row.name), self._delivered
            self._webhooks.transact(
                lambda transaction: transaction.repo.targets.advance(name, position, transaction.now), Boundary.RELAY
            )
            self._stored = position


def _in_pool(repo: Repo, events: list[tuple[int, EventRow]], pool: str) -> list[tuple[int, EventRow]]:
    """Return the events of graphs with tasks of a pool."""
    pools = repo.graphs.pools_of(sorted({event.graph for _, event in events}))
    return [(number, event) for number, event in events if pool in pools[event.graph]]


def _secret_name(webhook: str) -> str:
    return f"webhook {webhook}"
