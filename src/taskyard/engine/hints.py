"""Hints between the servers of one database: what a commit changed that another server may be waiting for.

A task made ready at one server is leased to a poll that is parked at another; requests that wait for a graph, an output
or an event are woken on every server. A hint has ids only and is sent after its commit, by a thread of its own: it
costs the commit nothing, and whoever gets it reads the database. All hints may be lost: whatever they speed up, sweeps
find within seconds. Nothing is sent while there is no other server, which each shows every few seconds.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final, Protocol

import msgspec

from taskyard.core.fleet import SWEEP_MS
from taskyard.engine.clock import Clock
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import HintChannel
from taskyard.store.queries import StoreUnavailable

#: The longest notification of PostgreSQL has 7 999 bytes.
TEXT_MAX: Final = 7_900
#: After a hint the next one waits this long, so that a busy server sends a few hundred in a second.
PAUSE_MS: Final = 5
#: How often a server shows that it is there, and after how long without a word the others forget it.
PRESENCE_MS: Final = SWEEP_MS
FORGOTTEN_MS: Final = 3 * PRESENCE_MS
#: How many ids of one kind are collected; with more, the other servers look at everything.
IDS_MAX: Final = 1_000
#: The first pause before a lost connection is opened again, and the longest.
RECONNECT_MS: Final = 100
RECONNECT_MAX_MS: Final = 5_000
#: How long a stop waits for the last hint.
STOP_MAX_S: Final = 10

_LOG = logging.getLogger(__name__)


class Hint(msgspec.Struct, omit_defaults=True):
    """What changed at a server. Queues are given with the number of tasks that were left in them."""

    server: str
    queues: dict[int, int] = {}
    stopping: tuple[int, ...] = ()  # tasks whose bots have to stop them
    bots: tuple[str, ...] = ()  # bots that changed: their parked polls are answered
    graphs: tuple[int, ...] = ()  # that changed their state or settled
    outputs: tuple[int, ...] = ()  # tasks that printed or ended, among those that are followed
    followed: tuple[int, ...] = ()  # tasks whose output is followed at this server
    events: bool = False  # events were numbered
    dirty: bool = False  # an admission pass has something to look at
    everything: bool = False  # more than a hint can have: look at everything
    leaves: bool = False  # the server stops


class HintedWork(Protocol):
    """What hints are handed to: the writer thread, which has the parked polls."""

    def offer(self, hint: Hint) -> None:
        """Serve parked polls with what another server left for them."""


@dataclass(slots=True)
class ChangeListeners:
    """What waits for changes, of this server or of another; called on any thread."""

    graphs: list[Callable[[Collection[int]], None]] = field(default_factory=list)
    outputs: list[Callable[[Collection[int]], None]] = field(default_factory=list)
    events: list[Callable[[], None]] = field(default_factory=list)
    dirty: list[Callable[[], None]] = field(default_factory=list)
    everything: list[Callable[[], None]] = field(default_factory=list)

    def tell(self, hint: Hint) -> None:
        """Tell everyone who waits for something in a hint."""
        told = ((hint.everything, self.everything), (hint.events, self.events), (hint.dirty, self.dirty))
        for look in [look for is_said, listeners in told if is_said for look in listeners]:
            look()
        for listener in self.graphs if hint.graphs else ():
            listener(hint.graphs)
        for listener in self.outputs if hint.outputs else ():
            listener(hint.outputs)


class FollowedOutputs:
    """The tasks whose output is followed: at this server, and at others until some seconds after they said so."""

    def __init__(self) -> None:
        self._here: Counter[int] = Counter()
        self._elsewhere: dict[int, int] = {}
        self._lock = Lock()
        self.on_follow: Callable[[], None] = lambda: None  # called when one more task is followed here

    def __bool__(self) -> bool:
        return bool(self._here or self._elsewhere)

    def follow(self, task: int) -> None:
        """Count one more follower of a task here."""
        with self._lock:
            self._here[task] += 1
        self.on_follow()

    def leave(self, task: int) -> None:
        """Count one follower less."""
        with self._lock:
            self._here[task] -= 1
            if not self._here[task]:
                del self._here[task]

    @property
    def here(self) -> tuple[int, ...]:
        """The tasks that are followed here."""
        with self._lock:
            return tuple(self._here)

    def learn(self, tasks: Iterable[int], now: int) -> None:
        """Note the tasks that another server follows, and forget what none has spoken of for long."""
        with self._lock:
            self._elsewhere |= dict.fromkeys(tasks, now + FORGOTTEN_MS)
            for task in [task for task, until in self._elsewhere.items() if until < now]:
                del self._elsewhere[task]

    def among(self, tasks: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return which of some tasks are followed here, and which elsewhere."""
        with self._lock:
            found = list(tasks)
            here = tuple(task for task in found if task in self._here)
            return here, tuple(task for task in found if task in self._elsewhere)


class _Pending:
    """What is collected for the next hint."""

    def __init__(self) -> None:
        self.queues: Counter[int] = Counter()
        self.stopping: set[int] = set()
        self.bots: set[str] = set()
        self.graphs: set[int] = set()
        self.outputs: set[int] = set()
        self.events = self.dirty = False

    def __bool__(self) -> bool:
        return self.events or self.dirty or any((self.queues, self.stopping, self.bots, self.graphs, self.outputs))

    def hint(self, server: str) -> Hint:
        """Make the hint; one that would be too long says only that everything may have changed."""
        kinds: Sequence[Collection[object]] = (self.queues, self.stopping, self.bots, self.graphs, self.outputs)
        if any(len(kind) > IDS_MAX for kind in kinds):
            return Hint(server, everything=True)
        return Hint(
            server,
            dict(self.queues),
            tuple(self.stopping),
            tuple(self.bots),
            tuple(self.graphs),
            tuple(self.outputs),
            events=self.events,
            dirty=self.dirty,
        )


class HintThread:
    """Sends the hints of one server, and hands those of others on."""

    def __init__(
        self,
        channel: HintChannel,
        clock: Clock,
        server: str,
        work: HintedWork,
        listeners: ChangeListeners,
        followed: FollowedOutputs,
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._server = server  # a word of its own for each start
        self._work = work
        self._listeners = listeners
        self._followed = followed
        self._lock = Lock()
        self._pending = _Pending()
        self._follows = False  # more outputs are followed here than the others know
        self._others: dict[str, int] = {}  # until when each other server counts as there
        self._presence_at = 0
        self._stopped = Event()
        self.connected = False
        self.sent = 0
        self.received = 0
        self._thread = Thread(target=self._run, name="taskyard-hints", daemon=True)
        followed.on_follow = self._follow

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the other servers that this one stops, and end."""
        self._stopped.set()
        self._channel.wake()
        if self._thread.ident is not None:
            self._thread.join(STOP_MAX_S)

    @property
    def is_heard(self) -> bool:
        """Whether other servers hear this one, and this one hears them, as far as it knows."""
        return self.connected and bool(self._others)

    @property
    def others(self) -> int:
        """How many other servers there are."""
        return len(self._others)

    def note(self, transaction: Transaction) -> None:
        """Collect what a commit changed, if there is another server. The writer thread calls this."""
        if not self.is_heard:
            return
        queues = transaction.left_in_queues()
        _, printed = self._followed.among(transaction.printed_tasks()) if self._followed else ((), ())
        stopping, bots, graphs = transaction.stopping, transaction.bots_elsewhere, transaction.changed_graphs
        if not any((queues, printed, stopping, bots, graphs, transaction.is_dirty)):
            return
        with self._lock:
            self._pending.dirty |= transaction.is_dirty
            self._pending.queues.update(queues)
            self._pending.stopping.update(task.id for task in stopping)
            self._pending.bots.update(bots)
            self._pending.graphs.update(graphs)
            self._pending.outputs.update(printed)
        self._channel.wake()

    def note_events(self) -> None:
        """Collect that events were numbered."""
        if self.is_heard:
            with self._lock:
                self._pending.events = True
            self._channel.wake()

    def _follow(self) -> None:
        if self._others:
            self._follows = True
            self._channel.wake()

    # The thread.

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                self._channel.open()
                if failures:  # what was sent meanwhile, in either direction, is lost
                    self._receive(Hint("", everything=True))
                    self._send(Hint(self._server, everything=True))
                failures, self.connected, self._presence_at = 0, True, 0
                while not self._stopped.is_set():
                    self._step()
                self._send(Hint(self._server, leaves=True))
            except StoreUnavailable as fault:
                if failures == 0:
                    _LOG.warning("hints of other servers are not heard, and sweeps find what they would: %s", fault)
                failures += 1
            except Exception:  # noqa: BLE001 - without hints everything goes on, more slowly
                _LOG.exception("hints begin anew")
                failures += 1
            finally:
                self.connected = False
                self._channel.close()
            if not self._stopped.is_set():
                self._clock.pause(min(RECONNECT_MS * 2 ** min(failures, 16), RECONNECT_MAX_MS))

    def _step(self) -> None:
        """Send what is collected, show that this server is there, and hand on what arrives."""
        now = self._clock.now()
        if now >= self._presence_at or self._follows:
            self._show_presence(now)
        pending = self._take()
        if pending:
            self._send(pending.hint(self._server))
            self._clock.pause(PAUSE_MS)
        for text in self._channel.receive(0.0 if self._pending else max(0, self._presence_at - now) / 1000):
            with suppress(msgspec.MsgspecError):  # another program used the channel
                self._receive(msgspec.json.decode(text, type=Hint))

    def _take(self) -> _Pending:
        with self._lock:
            pending, self._pending = self._pending, _Pending()
        return pending

    def _show_presence(self, now: int) -> None:
        self._presence_at, self._follows = now + PRESENCE_MS, False
        for server in [server for server, until in self._others.items() if until < now]:
            del self._others[server]
        self._send(Hint(self._server, followed=self._followed.here))

    def _send(self, hint: Hint) -> None:
        text = msgspec.json.encode(hint)
        if len(text) > TEXT_MAX:
            text = msgspec.json.encode(Hint(self._server, everything=True))
        self._channel.send(text.decode())
        self.sent += 1

    def _receive(self, hint: Hint) -> None:
        if hint.server:
            self.received += 1
            self._meet(hint)
        self._followed.learn(hint.followed, self._clock.now())
        self._listeners.tell(hint)
        if hint.queues or hint.stopping or hint.bots or hint.everything:
            self._work.offer(hint)

    def _meet(self, hint: Hint) -> None:
        """Note which servers there are; a new one learns at once of this one."""
        if hint.leaves:
            self._others.pop(hint.server, None)
            return
        if hint.server not in self._others:
            self._presence_at = 0
        self._others[hint.server] = self._clock.now() + FORGOTTEN_MS


def merged(hints: Sequence[Hint]) -> tuple[Mapping[int, int], set[int], bool]:
    """Return what several hints offer to parked polls: tasks by queue, tasks to stop, or whatever there is."""
    queues: Counter[int] = Counter()
    stopping: set[int] = set()
    for hint in hints:
        queues.update(hint.queues)
        stopping.update(hint.stopping)
    return queues, stopping, any(hint.everything for hint in hints)
