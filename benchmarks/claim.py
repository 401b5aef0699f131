"""How long a claim takes: with ever more tasks in the queue, with ever more queues, and with caches.

A claim is one poll that wants one task, carried out in a transaction of its own, commit included. It must not matter
how many tasks wait, nor how many queues there are that a bot does not serve, and little how many it serves. Nor may it
cost much that tasks compare dimensions and take resources of their bot; there, each poll also ends the task before.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median, quantiles
from typing import Final

from benchmarks.report import Case, main
from benchmarks.stores import DATABASES, SESSION, Open, WriterHarness, leases_of
from taskyard.core.caches import cache_key
from taskyard.core.matching import canonical
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.commands import Hello, Lease

CLAIMS: Final = 400
QUEUES: Final = 5_000
SERVED: Final = 16
#: A bot that serves very many queues.
SERVED_MANY: Final = 1_000
#: What tasks need and take, where they do; each is a queue.
NEEDS: Final = (
    {"dimensions": {"pool": "default", "os": "any", "cores": ">=4"}},
    {"dimensions": {"pool": "default", "os": "any", "memory_mb": [">=1024", "!=3000"]}},
    {"dimensions": {"pool": "default", "os": "any"}, "cpus": 2},
    {"dimensions": {"pool": "default", "os": "any"}, "cpus": 0.5, "memory": "512MiB"},
    {"dimensions": {"pool": "default", "os": "any"}, "slots": 2},
    {"dimensions": {"pool": "default", "os": "any"}, "gpus": 1},
)
_MACHINE: Final = {"cores": "16", "memory_mb": "65536", "gpus": "4"}


def measure(quick: bool) -> list[Case]:
    """Measure both databases."""
    sizes = (100, 1_000, 2_000) if quick else (1_000, 100_000, 1_000_000)
    count, many = (200, 50) if quick else (QUEUES, SERVED_MANY)
    return [
        case
        for name, database in DATABASES.items()
        for case in (
            *_with_more_waiting(name, database, sizes),
            *_with_more_queues(name, database, count, many),
            *_with_resources(name, database),
            *_with_caches(name, database),
        )
    ]


def _with_more_waiting(name: str, database: Open, sizes: Sequence[int]) -> Iterator[Case]:
    spans = [waiting(database, size) for size in sizes]
    for size, span in zip(sizes, spans, strict=True):
        yield from _cases(f"{name}, {size:,} waiting", span)
    least, most = spans[0], spans[-1]
    yield Case(f"{name}, p50, most waiting against least", _p50(most) / _p50(least), "times", "lower", 2)
    yield Case(f"{name}, p99, most waiting against least", _p99(most) / _p99(least), "times", "lower", 2)


def _with_more_queues(name: str, database: Open, count: int, served: int) -> Iterator[Case]:
    one, many, all_of_them = queues(database, 1, 1), queues(database, count, SERVED), queues(database, served, served)
    yield from _cases(f"{name}, one queue", one)
    yield from _cases(f"{name}, {count:,} queues, {SERVED} served", many)
    yield from _cases(f"{name}, {served:,} queues, all served", all_of_them)
    yield Case(f"{name}, p50, many queues against one", _p50(many) / _p50(one), "times", "lower", 2)
    yield Case(f"{name}, p50, {served:,} served queues against one", _p50(all_of_them) / _p50(one), "times", "lower", 2)


def _with_resources(name: str, database: Open) -> Iterator[Case]:
    plain, rich = resources(database)
    yield from _cases(f"{name}, {len(NEEDS)} plain queues", plain)
    yield from _cases(f"{name}, {len(NEEDS)} queues with comparisons and resources", rich)
    yield Case(
        f"{name}, p50, with comparisons and resources against without", _p50(rich) / _p50(plain), "times", "lower", 1.2
    )


def _with_caches(name: str, database: Open) -> Iterator[Case]:
    # Interleaved claims of one run: the machine is as noisy for the one bot as for the other.
    plain, holding = caches(database, 0)
    yield from _cases(f"{name}, a bot that holds caches", holding)
    yield Case(f"{name}, p50, holding caches against none", _p50(holding) / _p50(plain), "times", "lower", 1.2)
    plain, holding = caches(database, 10)
    yield from _cases(f"{name}, every tenth task uses a cache", holding)
    yield Case(f"{name}, p50, with caches against a bot without", _p50(holding) / _p50(plain), "times", "lower", 1.2)


def caches(database: Open, every: int) -> tuple[list[float], list[float]]:
    """Measure claims of a bot without caches, and of one that holds the cache that some tasks use."""
    with database() as store:
        harness = WriterHarness(store)
        using: dict[str, object] = {"command": ["true"], "caches": {"npm": ".npm"}}
        harness.submit(
            {
                "tasks": {
                    f"t{number}": _task() | ({"task": {"payload": using}} if every and number % every == 0 else {})
                    for number in range(4 * CLAIMS)
                }
            }
        )
        cold, warm = harness.hello(2, os="any")
        harness.do([struct_replace(harness.poll(warm), caches=(cache_key("npm", ""),))])
        spans: dict[str, list[float]] = {cold: [], warm: []}
        for _ in range(CLAIMS):
            for bot in (cold, warm):
                spans[bot].append(_claim_ms(harness, bot))
    return spans[cold], spans[warm]


def waiting(database: Open, count: int) -> list[float]:
    """Measure claims while `count` tasks wait in one queue."""
    with database() as store:
        harness = WriterHarness(store)
        harness.submit({"tasks": {f"t{number}": _task() for number in range(count)}})
        return _claims(harness, min(CLAIMS, count // 2))


def queues(database: Open, count: int, served: int) -> list[float]:
    """Measure claims while `count` queues have tasks, of which a bot serves `served`."""
    with database() as store:
        harness = WriterHarness(store)
        tasks = {}
        for number in range(max(count, CLAIMS)):
            os = f"os{number % served}" if number < CLAIMS else f"other{number % count}"
            tasks[f"t{number}"] = _task(os=os)
        harness.submit({"tasks": tasks})
        return _claims(harness, CLAIMS // 2, tuple(f"os{number}" for number in range(served)))


def resources(database: Open) -> tuple[list[float], list[float]]:
    """Measure claims of plain tasks and, in turn with them, of tasks that compare and take; each ends the last one."""
    with database() as store:
        harness = WriterHarness(store)
        plain = [{"dimensions": {"pool": "default", "os": "plain", "kind": str(kind)}} for kind in range(len(NEEDS))]
        command = {"payload": {"command": ["true"]}}
        harness.submit(
            {"tasks": {f"p{number}": {"task": command | plain[number % len(plain)]} for number in range(CLAIMS)}}
        )
        harness.submit(
            {"tasks": {f"r{number}": {"task": command | NEEDS[number % len(NEEDS)]} for number in range(CLAIMS)}}
        )
        kinds = tuple(map(str, range(len(NEEDS))))
        bots: dict[str, dict[str, str | tuple[str, ...]]] = {
            "plain": {"os": "plain", "kind": kinds},
            "rich": {"os": "any", **_MACHINE},
        }
        for bot, has in bots.items():
            harness.do([Hello(bot, SESSION, canonical({"id": bot, "pool": "default", **has}), 4)])
        spans: dict[str, list[float]] = {bot: [] for bot in bots}
        leases: dict[str, tuple[Lease, ...]] = dict.fromkeys(bots, ())
        for _ in range(CLAIMS // 2):
            for bot in bots:
                began = time.perf_counter()
                (answer,) = harness.do([harness.poll(bot, leases[bot], want=1)])
                spans[bot].append((time.perf_counter() - began) * 1_000)
                leases[bot] = leases_of(answer)
                assert len(leases[bot]) == 1
        return spans["plain"], spans["rich"]


def _task(**dimensions: str) -> dict[str, object]:
    return {"task": {"dimensions": {"pool": "default"} | dimensions, "payload": {"command": ["true"]}}}


def _claims(harness: WriterHarness, count: int, os: Sequence[str] = ("any",)) -> list[float]:
    (bot,) = harness.hello(1, os=tuple(os))
    return [_claim_ms(harness, bot) for _ in range(count)]


def _claim_ms(harness: WriterHarness, bot: str) -> float:
    began = time.perf_counter()
    (answer,) = harness.do([harness.poll(bot, want=1)])
    span = (time.perf_counter() - began) * 1_000
    assert len(leases_of(answer)) == 1
    return span


def _cases(name: str, spans: Sequence[float]) -> list[Case]:
    return [Case(f"{name}, p50", _p50(spans), "ms", "lower"), Case(f"{name}, p99", _p99(spans), "ms", "lower")]


def _p50(spans: Sequence[float]) -> float:
    return median(spans)


def _p99(spans: Sequence[float]) -> float:
    return quantiles(spans, n=100)[98]


if __name__ == "__main__":
    sys.exit(main("claim", measure))
