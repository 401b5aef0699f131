"""Metrics for Prometheus, in a registry for each app."""

import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from taskyard.bus.relay import Backlog, read_backlogs
from taskyard.core.fleet import Condition
from taskyard.core.states import State
from taskyard.engine.engine import Engine
from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.hints import HintThread
from taskyard.server.amqp import AmqpThread, Link
from taskyard.store.connection import Repo
from taskyard.views import bots
from taskyard.views.demand import wanted_by_queue

#: How long a count of all tasks is reused: at least this long, and this many times longer than it took, so that
#: counting takes at most a twentieth of the database's time.
COUNTED_S: Final = 5.0
COUNTED_SHARE: Final = 20
#: The most sets of dimensions that the demand is exported for: each is a series of its own.
DEMAND_SERIES: Final = 200
What = TypeVar("What")
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ServerMetrics:
    """Counts requests; reads everything else from the engine."""

    def __init__(self, engine: Engine, amqp: AmqpThread | None = None) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route")
        self._requests = Counter(
            "taskyard_requests", "Requests that were answered.", (*labels, "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "taskyard_request_seconds", "How long requests took.", labels, registry=self._registry, buckets=_BUCKETS
        )
        self._of_bots: dict[tuple[str, int], Counter] = {}
        self._registry.register(_OfEngine(engine))
        self._registry.register(_OfTargets(engine, amqp))
        self._demand = CollectorRegistry()
        self._demand.register(_Demand(engine))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def count_bot(self, route: str, status: int) -> None:
        """Count a request of a bot. There are thousands a second, so the labelled counter is looked up only once."""
        known = self._of_bots.get((route, status))
        if known is None:
            known = self._of_bots[route, status] = self._requests.labels("POST", route, status)
        known.inc()

    def text(self, with_demand: bool = False) -> bytes:
        """Return all metrics in the text format of Prometheus; the demand names pools. It reads the database."""
        return generate_latest(self._registry) + (generate_latest(self._demand) if with_demand else b"")


T = TypeVar("T")


class _Counted(Generic[T]):
    """A count of the whole database, which is reused for a while; while there is no database, the last one."""

    def __init__(self, engine: Engine, count: Callable[[Repo], T], first: T) -> None:
        self._engine = engine
        self._count = count
        self._last = first
        self._until = 0.0

    def get(self) -> T:
        """Return the count, which may be a few seconds old."""
        now = time.monotonic()
        if now >= self._until:
            try:
                with outages(), self._engine.store.read() as repo:
                    self._last = self._count(repo)
            except Unavailable:
                return self._last
            took = time.monotonic() - now
            self._until = now + max(COUNTED_S, took * COUNTED_SHARE)
        return self._last


class _OfEngine:
    """Metrics that the engine knows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks = _Counted[dict[str, int]](engine, _tasks_by_state, {})
        self._bots = _Counted[dict[Condition, int]](engine, bots.states, {})

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        tasks = GaugeMetricFamily("taskyard_tasks", "Tasks in each state, counted every few seconds.", labels=["state"])
        for state, count in self._tasks.get().items():
            tasks.add_metric([state], count)
        yield tasks
        fleet = GaugeMetricFamily("taskyard_bots", "Bots in each state, counted every few seconds.", labels=["state"])
        for word, count in self._bots.get().items():
            fleet.add_metric([word], count)
        yield fleet
        yield CounterMetricFamily("taskyard_commits", "Transactions that this server has committed.", engine.commits)
        yield GaugeMetricFamily(
            "taskyard_queue_length", "Commands that wait to be carried out.", engine.writer_thread.waiting
        )
        yield GaugeMetricFamily(
            "taskyard_longest_transaction_seconds",
            "The longest transaction since the server was started.",
            engine.longest_ms / 1000,
        )
        yield from _of_hints(engine.hints)

    def describe(self) -> list[Metric]:
        """Describe nothing in advance: else the registry would read the database at once."""
        return []


def _of_hints(hints: HintThread | None) -> Iterator[Metric]:
    """What a server of a shared database knows of the others; the only server of a file has no hints."""
    others, connected = (hints.others, hints.connected) if hints else (0, False)
    sent, received = (hints.sent, hints.received) if hints else (0, 0)
    yield GaugeMetricFamily("taskyard_other_servers", "Other servers of the database that were heard.", others)
    yield GaugeMetricFamily("taskyard_hints_connected", "1 while hints of other servers can be heard.", connected)
    yield CounterMetricFamily("taskyard_hints_sent", "Hints that this server has sent to others.", sent)
    yield CounterMetricFamily("taskyard_hints_received", "Hints that this server has got from others.", received)


class _OfTargets:
    """How far behind the targets of events are."""

    def __init__(self, engine: Engine, amqp: AmqpThread | None) -> None:
        self._amqp = amqp
        self._backlogs: _Counted[list[Backlog]] = _Counted(
            engine, lambda repo: read_backlogs(repo, engine.clock.now()), []
        )

    def collect(self) -> Iterator[Metric]:
        backlog = GaugeMetricFamily(
            "taskyard_event_backlog", "Events that a target has not got, every few seconds.", labels=["target"]
        )
        age = GaugeMetricFamily(
            "taskyard_event_backlog_seconds",
            "How old the oldest event is that a target has not got.",
            labels=["target"],
        )
        for one in self._backlogs.get():
            backlog.add_metric([one.target], one.events)
            age.add_metric([one.target], one.age_ms / 1_000)
        yield backlog
        yield age
        link = GaugeMetricFamily(
            "taskyard_amqp_link", "1 for how this server and the message broker stand.", labels=["link"]
        )
        for word in Link if self._amqp is not None else ():
            link.add_metric([word], float(self._amqp is not None and self._amqp.link is word))
        yield link
        yield CounterMetricFamily(
            "taskyard_amqp_published",
            "Events that this server published to the message broker.",
            0 if self._amqp is None else self._amqp.published,
        )

    def describe(self) -> list[Metric]:
        """Describe nothing in advance, as above."""
        return []


class _Demand:
    """The demand of all pools."""

    def __init__(self, engine: Engine) -> None:
        self._counted: _Counted[list[tuple[str, str, int]]] = _Counted(
            engine, lambda repo: wanted_by_queue(repo, DEMAND_SERIES), []
        )

    def collect(self) -> Iterator[Metric]:
        demand = GaugeMetricFamily(
            "taskyard_demand",
            f"Tasks that want a bot, by what it must have, every few seconds; the {DEMAND_SERIES} largest numbers.",
            labels=["pool", "dimensions"],
        )
        for pool, dimensions, count in self._counted.get():
            demand.add_metric([pool, dimensions], count)
        yield demand

    def describe(self) -> list[Metric]:
        """Describe nothing in advance, as above."""
        return []


def _tasks_by_state(repo: Repo) -> dict[str, int]:
    found = repo.read.totals()
    return {state.text: found.get(state.text, 0) for state in State}
