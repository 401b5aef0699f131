"""Events to a real RabbitMQ: a server process, a durable queue with every event, persistent messages, confirms.

- events with confirms: a backlog of 10 000 no-ops, drained while the server has nothing else to do.
- lag: 500 no-ops a second for ten seconds; from the moment of an event until a subscriber has it.
- drain: from the end of a burst of 10 000 no-ops until the broker has confirmed its last event.
- endtoend: 10 000 functions on a bot, with the relay on against off, five times in turn; the median of the ratios.

`--verify` compares what a subscriber got with the log, while the broker is stopped and started in the middle: it exits
1 if anything is missing, out of order or not what was logged.
"""

import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.cluster import SOON_S, Cluster, cluster
from benchmarks.endtoend import NOOP, independent
from benchmarks.report import Case, main
from tests.amqp.subscriber import Received, Subscriber, in_order
from tests.brokers import RabbitMQ
from tests.debian import NotAvailable, find_program

#: The first word of all names at the broker.
SCHEDULER: str = "bench"
_STEADY_S = 10
_GRAPHS_PER_S = 10
_TASKS_PER_GRAPH = 50


def measure(quick: bool) -> Sequence[Case]:
    """Measure everything; `quick` only shows that it works."""
    part = 100 if quick else 1
    try:
        find_program(RabbitMQ.name)
    except NotAvailable as fault:
        print(f"NOT MEASURED: {fault}")
        return []
    with RabbitMQ() as broker:
        rate = _rate(broker, 10_000 // part)
        lag = _lag(broker, 1 if quick else _STEADY_S)
        drain = _drain(broker, 10_000 // part)
        ratio = _endtoend(broker, 10_000 // part, 1 if quick else 5)
    return [
        Case("events with confirms", rate, "events/s", "higher", must=None if quick else 3_000, goal=10_000),
        Case("lag at 500 tasks/s, p99", lag, "s", "lower", must=1),
        Case("drain after 10 000 no-ops", drain, "s", "lower"),
        Case("endtoend with the relay on against off", ratio, "times", "higher", must=None if quick else 0.9),
    ]


@dataclass(frozen=True)
class Position:
    """How far the target is, as the database has it."""

    file: Path

    @property
    def backlog(self) -> int:
        """How many events the broker has not confirmed; those without a number count as one."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as connection:
            (left,) = connection.execute(
                "SELECT s.last - t.position + EXISTS (SELECT 1 FROM graph WHERE events > events_published)"
                " FROM event_stream s, event_target t"
            ).fetchone() or (1,)
        return int(left)

    def until_drained(self) -> float:
        """Wait until the broker has everything; return the seconds that took."""
        began = time.perf_counter()
        while self.backlog:
            assert time.perf_counter() - began < 5 * SOON_S, "the backlog is never drained"
            time.sleep(0.02)
        return time.perf_counter() - began


@contextmanager
def publishing(broker: RabbitMQ) -> Iterator[tuple[Cluster, Position]]:
    """A cluster that publishes to a broker."""
    with cluster("sqlite", "--scheduler-id", SCHEDULER, TASKYARD_AMQP=broker.url) as one:
        yield one, Position(one.folder / "taskyard.db")


@contextmanager
def subscribed(broker: RabbitMQ) -> Iterator[Subscriber]:
    """A subscriber to every event, from now on."""
    with Subscriber(broker.url, SCHEDULER) as subscriber:
        yield subscriber


def noops(count: int) -> dict[str, object]:
    """Independent no-ops, which the server runs itself."""
    return {"tasks": {f"t{number}": {"task": {"payload": {"noop": True}}} for number in range(count)}}


def _rate(broker: RabbitMQ, count: int) -> float:
    with subscribed(broker):
        pass  # its queue stays, so that the broker stores every message
    broker.stop()
    with publishing(broker) as (one, position):
        one.run(noops(count))
        _until_numbered(position)
        events = position.backlog
        broker.start()
        while position.backlog == events:
            time.sleep(0.005)
        events, began = position.backlog, time.perf_counter()
        position.until_drained()
        return events / (time.perf_counter() - began)


def _until_numbered(position: Position) -> None:
    """Wait until every event has a number, so that only publishing is measured."""
    before, now = -1, position.backlog
    while before != now:
        time.sleep(0.5)
        before, now = now, position.backlog


def _lag(broker: RabbitMQ, seconds: int) -> float:
    lags: list[float] = []
    with publishing(broker) as (one, position), subscribed(broker) as subscriber:
        one.run(noops(_TASKS_PER_GRAPH))
        position.until_drained()
        _until_quiet(subscriber)  # the queue also has what earlier cases published
        subscriber.on_message = lambda received: lags.append(time.time() - received.body["at_ms"] / 1000)
        began = time.perf_counter()
        for number in range(seconds * _GRAPHS_PER_S):
            one.client.submit(noops(_TASKS_PER_GRAPH))
            time.sleep(max(0.0, began + (number + 1) / _GRAPHS_PER_S - time.perf_counter()))
        position.until_drained()
    return quantiles(lags, n=100)[98]


def _drain(broker: RabbitMQ, count: int) -> float:
    with publishing(broker) as (one, position):
        one.run(noops(10))
        position.until_drained()
        one.run(noops(count))
        return position.until_drained()


def _endtoend(broker: RabbitMQ, count: int, rounds: int) -> float:
    with publishing(broker) as (on, position), cluster("sqlite") as off:
        for one in (on, off):
            one.bot("b1", 2)
            one.run(independent(100, NOOP))
        ratios = []
        for _ in range(rounds):
            position.until_drained()
            without = off.run(independent(count, NOOP))
            ratios.append(without / on.run(independent(count, NOOP)))
        return median(ratios)


# What a subscriber got, against the log.


def verify() -> int:
    """Run graphs while the broker is stopped and started; say what is missing or out of order."""
    with RabbitMQ() as broker, publishing(broker) as (one, position), subscribed(broker) as subscriber:
        one.bot("b1", 2)
        graphs = [one.client.submit(independent(200, NOOP)).graph_id for _ in range(10)]
        broker.stop()
        graphs += [one.client.submit(noops(500)).graph_id for _ in range(5)]
        broker.start()
        graphs += [one.client.submit(independent(200, NOOP)).graph_id for _ in range(10)]
        for graph in graphs:
            one.client.wait(graph, SOON_S)
        position.until_drained()
        _until_quiet(subscriber)
        logged = {event.id: event for graph in graphs for event in one.client.events(graph)}
        faults = find_faults(list(logged), subscriber)
    got = len(subscriber.received)
    print(f"{len(logged)} events of {len(graphs)} graphs; a subscriber got {got} messages: {len(faults)} faults")
    for fault in faults[:20]:
        print(f"  {fault}")
    return int(bool(faults))


def find_faults(logged: Sequence[str], subscriber: Subscriber) -> list[str]:
    """Compare the ids of all logged events with what a subscriber got."""
    first = subscriber.first_deliveries()
    got = {one.id for one in first}
    faults = [f"{id} is missing" for id in logged if id not in got]
    faults += [f"{id} was never logged" for id in sorted(got - set(logged))]
    if not in_order(first):
        faults.append("the events of a graph are out of order")
    faults += [f"{one.id} says something else when it is repeated" for one in _changed(subscriber.received)]
    return faults


def _changed(received: Sequence[Received]) -> list[Received]:
    bodies: dict[str, object] = {}
    return [one for one in received if bodies.setdefault(one.id, one.body) != one.body]


def _until_quiet(subscriber: Subscriber) -> None:
    """Wait until nothing more comes: the broker has confirmed everything, and delivers what it has."""
    before = -1
    while before != len(subscriber.received):
        before = len(subscriber.received)
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(verify() if "--verify" in sys.argv else main("events", measure))
