"""Big moves: however many tasks one wish reaches, no write transaction may take long.

Each case does one thing to a large graph and lets everything that was promised be kept. What is measured is the longest
write transaction of all: a renewal waits that long at worst. The floor is the commit of one row, in the same run.
"""

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Final

from benchmarks.form import Case, main
from benchmarks.stores import SESSION, leases_of, sqlite
from taskyard.core.matching import canonical
from taskyard.core.words import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Cancel, Hello, Poll, Report, Rerun
from taskyard.lifecycle.outcomes import Lease
from taskyard.lifecycle.submit import Submitted
from taskyard.store.opening import Store

#: No write transaction may take longer, in milliseconds.
MUST_MS: Final = 100.0
#: How long everything that was promised may take to be kept.
KEPT_MAX_S: Final = 300.0
_COMMAND: Final = {"payload": {"command": ["true"]}}


def measure(quick: bool) -> list[Case]:
    """Measure every move."""
    size = 2_000 if quick else 100_000
    few = 1_000 if quick else 20_000
    moves: list[tuple[str, Callable[[Engine], object]]] = [
        (f"submit {size:,} tasks", lambda engine: _submitted(engine, _chain_free(size))),
        (f"cancel a graph of {size:,}", lambda engine: _cancel_graph(engine, size)),
        (f"cancel a task and the {size:,} behind it", lambda engine: _cancel_subtree(engine, size)),
        (f"rerun {few:,} that failed", lambda engine: _rerun(engine, few)),
        (f"end a task that {few:,} wait for", lambda engine: _fan_out(engine, few)),
        (f"end {few:,} that one cleanup waits for, and it", lambda engine: _fan_in(engine, few)),
        ("restart a bot that has 4,000 tasks", lambda engine: _restart(engine, 400 if quick else 4_000)),
    ]
    floor = _commit_ms()
    longest = {name: _longest(move) for name, move in moves}
    return [Case(f"longest of: {name}", took, "ms", "lower", MUST_MS, floor=floor) for name, took in longest.items()]


def _longest(move: Callable[[Engine], object]) -> float:
    with sqlite() as store:
        engine = Engine(store)
        engine.start()
        engine.hello(Hello("bot0", SESSION, canonical({"id": "bot0", "pool": "default"}), 10_000))
        move(engine)
        _keep_promises(engine, store)
        longest = float(engine.longest_ms)
        engine.ticker.stop()
        engine.loop.stop()
        return longest


def _keep_promises(engine: Engine, store: Store) -> None:
    until = time.monotonic() + KEPT_MAX_S
    while time.monotonic() < until:
        with store.read() as txn:
            if not txn.notes.after(0, 1):
                return
        time.sleep(0.02)
    raise AssertionError(f"promises were not kept within {KEPT_MAX_S} s; the longest took {engine.longest_ms} ms")


def _submitted(engine: Engine, tasks: dict[str, object]) -> Submitted:
    answer = engine.submit({"tasks": tasks})
    assert isinstance(answer, Submitted), answer
    _keep_promises(engine, engine.store)
    return answer


def _chain_free(count: int) -> dict[str, object]:
    return {f"t{number}": {"task": _COMMAND} for number in range(count)}


def _star(count: int, **node: object) -> dict[str, object]:
    """One task, and many that wait for it."""
    return {"first": {"task": _COMMAND}} | {
        f"t{number}": {"requires": ["first"], "task": _COMMAND, **node} for number in range(count)
    }


def _cancel_graph(engine: Engine, count: int) -> None:
    graph = _submitted(engine, _chain_free(count)).graph
    engine.cancel(Cancel(graph=graph, actor="benchmark"))


def _cancel_subtree(engine: Engine, count: int) -> None:
    graph = _submitted(engine, _star(count)).graph
    engine.cancel(Cancel(task=_labels(engine, graph)["first"], subtree=True, actor="benchmark"))


def _rerun(engine: Engine, count: int) -> None:
    graph = _submitted(engine, _chain_free(count)).graph
    _work(engine, count, Signal.FAIL)
    engine.rerun(Rerun(graph=graph, actor="benchmark"))


def _fan_out(engine: Engine, count: int) -> None:
    _submitted(engine, _star(count))
    _work(engine, 1, Signal.SUCCEED)


def _fan_in(engine: Engine, count: int) -> None:
    names = list(_chain_free(count))
    cleanup = {"requires": [{"task": name, "on": "always"} for name in names], "task": _COMMAND}
    _submitted(engine, _chain_free(count) | {"cleanup": cleanup})
    _work(engine, count, Signal.FAIL)
    _keep_promises(engine, engine.store)
    _work(engine, 1, Signal.SUCCEED)


def _restart(engine: Engine, count: int) -> None:
    _submitted(engine, _chain_free(count))
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
    with engine.store.read() as txn:
        return txn.tasks.with_labels(graph, ["first"])


def _commit_ms() -> float:
    with sqlite() as store:
        connection = sqlite3.connect(store.url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY)")
        began = time.perf_counter()
        for number in range(100):
            connection.execute("INSERT INTO bare VALUES (?)", (number,))
        spent = time.perf_counter() - began
        connection.close()
        return spent * 10  # a hundred of them, in milliseconds


if __name__ == "__main__":
    sys.exit(main("moves", measure))
