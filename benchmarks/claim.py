"""How long a claim takes: with ever more tasks in the queue, and with ever more queues.

A claim is one poll that wants one task, carried out in a transaction of its own, commit included. It must not matter
how many tasks wait, nor how many queues there are that a bot does not serve.
"""

import sys
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final

from benchmarks.form import Case, main
from benchmarks.stores import Yard, leases_of, sqlite

CLAIMS: Final = 400
QUEUES: Final = 5_000
SERVED: Final = 16


def measure(quick: bool) -> list[Case]:
    """Measure claims."""
    sizes = (100, 1_000, 2_000) if quick else (1_000, 100_000, 1_000_000)
    spans = {size: waiting(size) for size in sizes}
    one, many = queues(1, 1), queues(*((200, 16) if quick else (QUEUES, SERVED)))
    cases = [case for size, span in spans.items() for case in _cases(f"{size:,} waiting", span)]
    return [
        *cases,
        Case("p50, most waiting against least", _p50(spans[sizes[-1]]) / _p50(spans[sizes[0]]), "times", "lower", 2),
        Case("p99, most waiting against least", _p99(spans[sizes[-1]]) / _p99(spans[sizes[0]]), "times", "lower", 2),
        *_cases("one queue", one),
        *_cases("5,000 queues, 16 served", many),
        Case("p50, many queues against one", _p50(many) / _p50(one), "times", "lower", 2),
    ]


def waiting(count: int) -> list[float]:
    """Measure claims while `count` tasks wait in one queue."""
    with sqlite() as store:
        yard = Yard(store)
        yard.submit({"tasks": {f"t{number}": _task() for number in range(count)}})
        return _claims(yard, min(CLAIMS, count // 2))


def queues(count: int, served: int) -> list[float]:
    """Measure claims while `count` queues have tasks, of which a bot serves `served`."""
    with sqlite() as store:
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
