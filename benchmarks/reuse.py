"""Idempotent tasks: how fast known results are reused, and what it costs to look for them where nothing is known.

A task with many dependents ends, and its dependents are released page by page. They find a result each, or one for all
of them, or none; or all but one wait for the first and are then served. The time counts until nothing is promised any
more. The cost of looking is the same release with and without `idempotent`, in turn, on one engine; so is that of
submitting them, and of releasing tasks that receive a result, whose keys are made by the release.
"""

import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

import msgspec

from benchmarks.report import Case, main
from benchmarks.stores import DATABASES, SESSION, Open, leases_of, running
from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import Hello, Lease, Poll, Report
from taskyard.lifecycle.submit import Submitted

#: How many results a second are reused at least.
MUST_PER_S: Final = 3_000.0
#: How many times longer a release may take if its tasks are idempotent and nothing is known.
MUST_RATIO: Final = 1.2
#: No write transaction may take longer, in milliseconds.
MUST_MS: Final = 100.0
#: How long everything that was promised may take to be kept.
KEPT_MAX_S: Final = 300.0
_TASKS: Final = 10_000
#: How often each kind of release is measured.
_ROUNDS: Final = 5

Payload = Callable[[int], str]


def measure(quick: bool) -> list[Case]:
    """Measure both databases."""
    return [case for name, database in DATABASES.items() for case in _cases(name, database, quick)]


def _cases(name: str, database: Open, quick: bool) -> Iterator[Case]:
    size, rounds = (1_000, 1) if quick else (_TASKS, _ROUNDS)
    for what, payload in (("one result", _alike), ("a result each", _different)):
        rate, longest = _hits(database, size, payload)
        yield Case(f"{name}, {size:,} hits, {what}", rate, "/s", "higher", MUST_PER_S)
        yield Case(f"{name}, {size:,} hits, {what}: longest transaction", longest, "ms", "lower", MUST_MS)
    rate, longest = _followers(database, size)
    yield Case(f"{name}, {size:,} that wait for an equal task", rate, "/s", "higher", MUST_PER_S)
    yield Case(f"{name}, {size:,} that wait: longest transaction", longest, "ms", "lower", MUST_MS)
    submit, release = _ratios(database, size, rounds)
    yield Case(f"{name}, release of {size:,} idempotent, to others", release, "times", "lower", MUST_RATIO)
    yield Case(f"{name}, submit of {size:,} idempotent, to others", submit, "times", "lower")
    _, release = _ratios(database, size, rounds, b'"result"')
    yield Case(f"{name}, release of {size:,} that receive a result, to others", release, "times", "lower")


def _alike(number: int) -> str:
    return "the same" if number >= 0 else ""


def _different_in(turn: int) -> Payload:
    return lambda number: f"{turn}: {number}"


def _different(number: int) -> str:
    return f"number {number}"


def _hits(database: Open, size: int, payload: Payload) -> tuple[float, float]:
    """Release tasks whose results are known; return how many a second, and the longest transaction."""
    with database() as store, running(store, ticks=True) as engine:
        _hello(engine)
        known = [payload(number) for number in range(size)]
        _submit(engine, {f"t{number}": _task(text) for number, text in enumerate(dict.fromkeys(known))})
        _work(engine, len(set(known)))
        hub = _star(engine, size, payload, idempotent=True)
        return size / _release(engine, hub), float(engine.longest_ms)


def _followers(database: Open, size: int) -> tuple[float, float]:
    """End a task that equal ones wait for; return how many a second are served, and the longest transaction."""
    with database() as store, running(store, ticks=True) as engine:
        _hello(engine)
        _submit(engine, {"leader": _task("the same")})
        _submit(engine, {f"t{number}": _task("the same") for number in range(size)})
        return size / _release(engine, _claim(engine, 1)[0]), float(engine.longest_ms)


def _ratios(database: Open, size: int, rounds: int, result: bytes = b"") -> tuple[float, float]:
    """Submit and release tasks of which nothing is known, idempotent or not; how many times longer the former takes."""
    with database() as store, running(store, ticks=True) as engine:
        _hello(engine)
        spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for turn in range(rounds + 1):
            for idempotent in (True, False):
                began = time.perf_counter()
                hub = _star(engine, size, _different_in(turn), idempotent)
                submitted = time.perf_counter() - began
                span = _release(engine, hub, result)
                _work(engine, size)
                if turn or not rounds - 1:  # the first turn warms up
                    spans[idempotent].append((submitted, span))
        (submit, release), (other_submit, other_release) = (
            map(median, zip(*spans[idempotent], strict=True)) for idempotent in (True, False)
        )
        return submit / other_submit, release / other_release


def _hello(engine: Engine) -> None:
    engine.hello(Hello("bot0", SESSION, canonical({"id": "bot0", "pool": "default"}), 100_000))


def _task(text: str, *requires: str, idempotent: bool = True) -> dict[str, object]:
    return {"requires": list(requires), "task": {"payload": {"command": ["echo", text]}, "idempotent": idempotent}}


def _star(engine: Engine, size: int, payload: Payload, idempotent: bool) -> Lease:
    """Submit a task with many dependents, and claim it."""
    tasks: dict[str, object] = {"hub": {"task": {"payload": {"command": ["hub"]}}}}
    tasks |= {f"t{number}": _task(payload(number), "hub", idempotent=idempotent) for number in range(size)}
    _submit(engine, tasks)
    return _claim(engine, 1)[0]


def _submit(engine: Engine, tasks: dict[str, object]) -> None:
    answer = engine.submit({"tasks": tasks})
    assert isinstance(answer, Submitted), answer
    _keep_promises(engine)


def _release(engine: Engine, lease: Lease, result: bytes = b"") -> float:
    """End a task; return how many seconds pass until all that follows is done."""
    began = time.perf_counter()
    _end(engine, [lease], result)
    _keep_promises(engine)
    return time.perf_counter() - began


def _work(engine: Engine, count: int) -> None:
    """Run so many tasks."""
    done = 0
    while done < count:
        leases = _claim(engine, min(256, count - done))
        _end(engine, leases)
        done += len(leases)


def _claim(engine: Engine, count: int) -> list[Lease]:
    leases = list(leases_of(engine.poll(Poll("bot0", SESSION, want=count))))
    assert leases, "nothing is ready"
    return leases


def _end(engine: Engine, leases: list[Lease], result: bytes = b"") -> None:
    body = msgspec.Raw(result)
    reports = tuple([Report(one.task, one.attempt, one.fence, Signal.SUCCEED, result=body) for one in leases])
    engine.poll(Poll("bot0", SESSION, reports=reports))


def _keep_promises(engine: Engine) -> None:
    until = time.monotonic() + KEPT_MAX_S
    while time.monotonic() < until:
        with engine.store.read() as repo:
            if not repo.continuations.after(0, 1):
                return
        time.sleep(0.002)
    raise AssertionError(f"promises were not kept within {KEPT_MAX_S} s")


if __name__ == "__main__":
    sys.exit(main("reuse", measure))
