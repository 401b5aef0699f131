"""How long a claim takes: with ever more tasks in the queue, and with ever more queues.

A claim is one poll that wants one task, carried out in a transaction of its own, commit included. It must not matter
how many tasks wait, nor how many queues there are that a bot does not serve.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median, quantiles
from typing import Final

from benchmarks.form import Case, main
from benchmarks.stores import DATABASES, Open, Yard, leases_of

CLAIMS: Final = 400
QUEUES: Final = 5_000
SERVED: Final = 16


def measure(quick: bool) -> list[Case]:
    """Measure both databases."""
    sizes = (100, 1_000, 2_000) if quick else (1_000, 100_000, 1_000_000)
    count = 200 if quick else QUEUES
    return [
        case
        for name, database in DATABASES.items()
        for case in (*_with_more_waiting(name, database, sizes), *_with_more_queues(name, database, count))
    ]


def _with_more_waiting(name: str, database: Open, sizes: Sequence[int]) -> Iterator[Case]:
    spans = [waiting(database, size) for size in sizes]
    for size, span in zip(sizes, spans, strict=True):
        yield from _cases(f"{name}, {size:,} waiting", span)
    least, most = spans[0], spans[-1]
    yield Case(f"{name}, p50, most waiting against least", _p50(most) / _p50(least), "times", "lower", 2)
    yield Case(f"{name}, p99, most waiting against least", _p99(most) / _p99(least), "times", "lower", 2)


def _with_more_queues(name: str, database: Open, count: int) -> Iterator[Case]:
    one, many = queues(database, 1, 1), queues(database, count, SERVED)
    yield from _cases(f"{name}, one queue", one)
    yield from _cases(f"{name}, {count:,} queues, {SERVED} served", many)
    yield Case(f"{name}, p50, many queues against one", _p50(many) / _p50(one), "times", "lower", 2)


def waiting(database: Open, count: int) -> list[float]:
    """Measure claims while `count` tasks wait in one queue."""
    with database() as store:
        yard = Yard(store)
        yard.submit({"tasks": {f"t{number}": _task() for number in range(count)}})
        return _claims(yard, min(CLAIMS, count // 2))


def queues(database: Open, count: int, served: int) -> list[float]:
    """Measure claims while `count` queues have tasks, of which a bot serves `served`."""
    with database() as store:
        yard = Yard(store)
        tasks = {}
        for number in range(max(count, CLAIMS)):
            os = f"os{number % served}" if number < CLAIMS else f"other{number % count}"
            tasks[f"t{number}"] = _task(os=os)
        yard.submit({"tasks": tasks})
        return _claims(yard, CLAIMS // 2, tuple(f"os{number}" for number in range(served)))


def _task(**dimensions: str) -> dict[str, object]:
    return {"task": {"dimensions": {"pool": "default"} | dimensions, "payload": {"command": ["true"]}}}


def _claims(yard: Yard, count: int, os: Sequence[str] = ("any",)) -> list[float]:
    (bot,) = yard.hello(1, os=tuple(os))
    spans = []
    for _ in range(count):
        began = time.perf_counter()
        (answer,) = yard.do([yard.poll(bot, want=1)])
        spans.append((time.perf_counter() - began) * 1_000)
        assert len(leases_of(answer)) == 1
    return spans


def _cases(name: str, spans: Sequence[float]) -> list[Case]:
    return [Case(f"{name}, p50", _p50(spans), "ms", "lower"), Case(f"{name}, p99", _p99(spans), "ms", "lower")]


def _p50(spans: Sequence[float]) -> float:
    return median(spans)


def _p99(spans: Sequence[float]) -> float:
    return quantiles(spans, n=100)[98]


if __name__ == "__main__":
    sys.exit(main("claim", measure))
