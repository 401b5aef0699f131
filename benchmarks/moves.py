"""Big moves: however many tasks a command concerns, no write transaction may take long.

Each case carries out one command on a large graph and runs all continuations. It measures the longest write
transaction, which is how long a renewal waits at worst. The floor is the commit of one row, in the same run.
"""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

import psycopg

from benchmarks.report import Case, main
from benchmarks.stores import DATABASES, SESSION, Open, leases_of, running
from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Cancel, Hello, Lease, Poll, Report, Rerun
from taskyard.lifecycle.submit import Submitted
from taskyard.store.connection import Store

#: No write transaction may take longer, in milliseconds.
MUST_MS: Final = 100.0
#: The limit for running all continuations.
CONTINUATIONS_MAX_S: Final = 300.0
_COMMAND: Final = {"payload": {"command": ["true"]}}


def measure(quick: bool) -> list[Case]:
    """Measure both databases."""
    return [case for name, database in DATABASES.items() for case in _longest_of_each(name, database, quick)]


def _longest_of_each(name: str, database: Open, quick: bool) -> Iterator[Case]:
    floor = _commit_ms(database)
    for move, act in _moves(quick):
        longest = _longest(database, act)
        yield Case(f"{name}, longest of: {move}", longest, "ms", "lower", MUST_MS, floor=floor)


def _moves(quick: bool) -> list[tuple[str, Callable[[Engine], object]]]:
    size = 2_000 if quick else 100_000
    few = 1_000 if quick else 20_000
    held = 400 if quick else 4_000
    return [
        (f"submit {size:,} tasks", lambda engine: _submitted(engine, _independent(size))),
        (f"cancel a graph of {size:,}", lambda engine: _cancel_graph(engine, size)),
        (f"cancel a task and the {size:,} behind it", lambda engine: _cancel_subtree(engine, size)),
        (f"rerun {few:,} that failed", lambda engine: _rerun(engine, few)),
        (f"end a task that {few:,} wait for", lambda engine: _fan_out(engine, few)),
        (f"end {few:,} that one cleanup waits for, and it", lambda engine: _fan_in(engine, few)),
        (f"restart a bot that has {held:,} tasks", lambda engine: _restart(engine, held)),
    ]


def _longest(database: Open, move: Callable[[Engine], object]) -> float:
    with database() as store, running(store, ticks=True) as engine:
        engine.hello(Hello("bot0", SESSION, canonical({"id": "bot0", "pool": "default"}), 10_000))
        move(engine)
        _finish_continuations(engine, store)
        return float(engine.longest_ms)


def _finish_continuations(engine: Engine, store: Store) -> None:
    until = time.monotonic() + CONTINUATIONS_MAX_S
    while time.monotonic() < until:
        with store.read() as repo:
            if not repo.continuations.after(0, 1):
                return
        time.sleep(0.02)
    raise AssertionError(
        f"continuations were not finished within {CONTINUATIONS_MAX_S} s; the longest took {engine.longest_ms} ms"
    )


def _submitted(engine: Engine, tasks: dict[str, object]) -> Submitted:
    answer = engine.submit({"tasks": tasks})
    assert isinstance(answer, Submitted), answer
    _finish_continuations(engine, engine.store)
    return answer


def _independent(count: int) -> dict[str, object]:
    return {f"t{number}": {"task": _COMMAND} for number in range(count)}


def _star(count: int, **node: object) -> dict[str, object]:
    """One task, and many that wait for it."""
    return {"first": {"task": _COMMAND}} | {
        f"t{number}": {"requires": ["first"], "task": _COMMAND, **node} for number in range(count)
    }


def _cancel_graph(engine: Engine, count: int) -> None:
    graph = _submitted(engine, _independent(count)).graph
    engine.cancel(Cancel(graph=graph, actor="benchmark"))


def _cancel_subtree(engine: Engine, count: int) -> None:
    graph = _submitted(engine, _star(count)).graph
    engine.cancel(Cancel(task=_labels(engine, graph)["first"], subtree=True, actor="benchmark"))


def _rerun(engine: Engine, count: int) -> None:
    graph = _submitted(engine, _independent(count)).graph
    _work(engine, count, Signal.FAIL)
    engine.rerun(Rerun(graph=graph, actor="benchmark"))


def _fan_out(engine: Engine, count: int) -> None:
    _submitted(engine, _star(count))
    _work(engine, 1, Signal.SUCCEED)


def _fan_in(engine: Engine, count: int) -> None:
    names = list(_independent(count))
    cleanup = {"requires": [{"task": name, "on": "always"} for name in names], "task": _COMMAND}
    _submitted(engine, _independent(count) | {"cleanup": cleanup})
    _work(engine, count, Signal.FAIL)
    _finish_continuations(engine, engine.store)
    _work(engine, 1, Signal.SUCCEED)


def _restart(engine: Engine, count: int) -> None:
    _submitted(engine, _independent(count))
    _claim(engine, count)
    engine.hello(Hello("bot0", "another", canonical({"id": "bot0", "pool": "default"}), 10_000))


def _work(engine: Engine, count: int, signal: Signal) -> None:
    """Run tasks, and have all of them end in one way."""
    ended = 0
    while ended < count:
        leases = _claim(engine, min(256, count - ended))
        exit_code = 1 if signal is Signal.FAIL else None
        reports = tuple(Report(one.task, one.attempt, one.fence, signal, exit_code=exit_code) for one in leases)
        engine.poll(Poll("bot0", SESSION, reports=reports))
        ended += len(leases)


def _claim(engine: Engine, count: int) -> list[Lease]:
    leases: list[Lease] = []
    while len(leases) < count:
        leases += leases_of(engine.poll(Poll("bot0", SESSION, want=min(256, count - len(leases)))))
    return leases


def _labels(engine: Engine, graph: int) -> dict[str, int]:
    with engine.store.read() as repo:
        return repo.tasks.with_labels(graph, ["first"])


def _commit_ms(database: Open) -> float:
    with database() as store, closing(_connect(store.url)) as connection:
        connection.execute("CREATE TABLE bare (number INTEGER DEFAULT 0)")
        began = time.perf_counter()
        for _ in range(100):
            connection.execute("INSERT INTO bare DEFAULT VALUES")
        return (time.perf_counter() - began) * 10  # a hundred of them, in milliseconds


def _connect(url: str) -> "sqlite3.Connection | psycopg.Connection":
    """A connection without the store, on which every statement is a durable transaction."""
    if not url.startswith("sqlite:"):
        return psycopg.connect(url, autocommit=True)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


if __name__ == "__main__":
    sys.exit(main("moves", measure))
