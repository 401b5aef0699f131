"""The task manager: how fast it starts many pending jobs of many templates, and how fast templates are launched.

The jobs have the mutexes of launches, over 200 templates, projects and inventories. *Cold* is the first pass over all
of them, when all can start; *draining* is when each end lets one more start, because a template runs one job at a time.
Starts are counted where a bot is given the job. The CPU of a start is that of the whole process, the played bots'
included.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.report import Case, main
from benchmarks.stores import DATABASES, SESSION, Open, leases_of, running
from taskyard.core.catalogue.launched import Wanted
from taskyard.core.graph.model import Mutex
from taskyard.core.launch import job_mutexes, project_update_mutexes
from taskyard.core.matching import canonical
from taskyard.core.states import Signal, State
from taskyard.engine.engine import Engine
from taskyard.engine.launch import TEMPLATE
from taskyard.lifecycle.catalogue import Applied
from taskyard.lifecycle.commands import Hello, Lease, Poll, Report
from taskyard.lifecycle.launch import LaunchStored
from taskyard.lifecycle.submit import Submitted

#: How many templates, projects and inventories the jobs are spread over.
TEMPLATES: Final = 200
PENDING: Final = (1_000, 10_000, 39_000)
BOTS: Final = 8
#: How many jobs are started while draining, at most.
STARTED: Final = 4_000
#: How many jobs wait for one update.
WAITING: Final = 5_000
LAUNCHES: Final = 1_000
#: How many callers launch at once.
CALLERS: Final = 16
MUST_STARTS: Final = 1_000.0
GOAL_STARTS: Final = 5_000.0
MUST_GROWTH: Final = 2.0
MUST_MS: Final = 100.0
MUST_LAUNCHES: Final = 200.0
#: How long one phase may take.
PHASE_MAX_S: Final = 300.0
#: One graph is one transaction of the set-up.
_GRAPH: Final = 1_000
_PAYLOAD: Final = {"command": ["true"]}


def measure(quick: bool) -> Sequence[Case]:
    """Measure both databases."""
    return [case for name, database in DATABASES.items() for case in _cases(name, database, quick)]


def _cases(name: str, database: Open, quick: bool) -> Iterator[Case]:
    cpu = {}
    for pending in (300, 600) if quick else PENDING:
        yield from _cold(name, database, pending)
        rate, cpu[pending] = _draining(database, pending)
        yield Case(f"{name}, draining {pending:,}", rate, "starts/s", "higher", MUST_STARTS, GOAL_STARTS)
        yield Case(f"{name}, draining {pending:,}, CPU", cpu[pending] * 1e6, "us/start", "lower")
    least, most = min(cpu), max(cpu)
    growth = cpu[most] / cpu[least]
    yield Case(f"{name}, CPU of a start, {most:,} against {least:,}", growth, "times", "lower", MUST_GROWTH)
    yield from _after_update(name, database, WAITING // 10 if quick else WAITING)
    yield from _launches(name, database, 50 if quick else LAUNCHES)


def _cold(name: str, database: Open, pending: int) -> Iterator[Case]:
    """Admit jobs that can all start, in the first pass of a server."""
    with database() as store:
        with running(store, events=False) as engine:
            _hello(engine)
            _submit(engine, pending, allow_simultaneous=True)
        with running(store, events=False) as engine:
            began = time.perf_counter()
            admitted = 0
            while (done := engine.schedule()).admitted or done.more:
                admitted += done.admitted
            span = time.perf_counter() - began
    assert admitted == pending, f"{admitted} of {pending} were admitted"
    yield Case(f"{name}, cold, first pass over {pending:,}", span, "s", "lower")
    yield Case(f"{name}, cold, {pending:,} admitted", pending / span, "starts/s", "higher", MUST_STARTS, GOAL_STARTS)


def _draining(database: Open, pending: int) -> tuple[float, float]:
    """End jobs one after the other, each of which lets one more start; return starts and CPU seconds of each."""
    with database() as store, running(store, ticks=True) as engine:
        _hello(engine)
        _submit(engine, pending, allow_simultaneous=False)
        while engine.schedule().more:
            pass
        bots = [_Bot(engine, number) for number in range(BOTS)]
        for bot in bots:
            bot.turn()
        wanted = min(STARTED, pending - TEMPLATES)
        before = sum(bot.started for bot in bots)
        began, cpu = time.perf_counter(), time.process_time()
        while (started := sum(bot.started for bot in bots) - before) < wanted:
            if not sum(bot.turn() for bot in bots):
                time.sleep(0.001)  # a pass is under way
            assert time.perf_counter() - began < PHASE_MAX_S, f"{started} of {wanted} started in {PHASE_MAX_S} s"
        return started / (time.perf_counter() - began), (time.process_time() - cpu) / started


def _after_update(name: str, database: Open, waiting: int) -> Iterator[Case]:
    """End the update of a project for which many jobs wait; measure until all of them are admitted."""
    with database() as store:
        with running(store, ticks=True) as engine:
            _hello(engine)
            _submit_tasks(engine, {"update": _task(project_update_mutexes("p"))})
            (update,) = _leases(engine, 1)
            for start in range(0, waiting, _GRAPH):
                jobs = range(start, min(waiting, start + _GRAPH))
                mutexes = job_mutexes("p", "i", "t", allow_simultaneous=True)
                _submit_tasks(engine, {f"job{number}": _task(mutexes) for number in jobs})
        with running(store, ticks=True) as engine:  # whose longest transaction is of what follows
            _wait_for_passes(engine, 0)
            began = time.perf_counter()
            _end(engine, "bot0", [update])
            _wait_for_passes(engine, waiting)
            span, longest = time.perf_counter() - began, float(engine.longest_ms)
    yield Case(f"{name}, from the end of an update until {waiting:,} jobs are admitted", span, "s", "lower")
    yield Case(f"{name}, longest transaction of that", longest, "ms", "lower", MUST_MS)


def _launches(name: str, database: Open, count: int) -> Iterator[Case]:
    """Launch templates whose projects are being updated, so that each launch joins an update."""
    with database() as store, running(store, ticks=True) as engine:
        documents: list[dict[str, object]] = []
        for number in range(TEMPLATES):
            project = {"kind": "project", "name": f"p{number}", "git": "/srv/p.git", "update_on_launch": True}
            job = {"kind": "job_template", "name": f"t{number}", "project": f"p{number}", "payload": _PAYLOAD}
            documents += [project, {**job, "allow_simultaneous": True}]
        applied = engine.catalogue.apply(documents, actor="benchmark")
        assert isinstance(applied, Applied), applied
        for number in range(TEMPLATES):
            _launch(engine, number)
        began = time.perf_counter()
        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(lambda number: _launch(engine, number), range(count)))
        span = time.perf_counter() - began
    yield Case(f"{name}, launches, each with a joined update", count / span, "/s", "higher", MUST_LAUNCHES)


class _Bot:
    """A bot that ends what it has at once, and asks for more in the same poll."""

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
        self._name = f"bot{number}"
        self._polls = 0
        self._leases: tuple[Lease, ...] = ()
        self.started = 0

    def turn(self) -> int:
        """Poll; return how many jobs it was given."""
        self._polls += 1
        reports = _reports(self._leases)
        command = Poll(self._name, SESSION, str(self._polls), reports, want=TEMPLATES // BOTS)
        self._leases = leases_of(self._engine.poll(command))
        self.started += len(self._leases)
        return len(self._leases)


def _hello(engine: Engine) -> None:
    for number in range(BOTS):
        name = f"bot{number}"
        engine.hello(Hello(name, SESSION, canonical({"id": name, "pool": "default"}), 100_000))


def _task(mutexes: Sequence[Mutex]) -> dict[str, object]:
    named = [{"key": one.key} | ({"party": one.party} if one.party else {}) for one in mutexes]
    return {"task": {"payload": _PAYLOAD, "mutexes": named}}


def _submit(engine: Engine, pending: int, *, allow_simultaneous: bool) -> None:
    """Submit jobs; those of a template follow each other at the distance of the number of templates."""
    for start in range(0, pending, _GRAPH):
        jobs = {}
        for number in range(start, min(pending, start + _GRAPH)):
            place = str(number % TEMPLATES)
            jobs[f"job{number}"] = _task(job_mutexes(place, place, place, allow_simultaneous))
        _submit_tasks(engine, jobs)


def _submit_tasks(engine: Engine, tasks: dict[str, dict[str, object]]) -> None:
    answer = engine.submit({"tasks": tasks})
    assert isinstance(answer, Submitted), answer


def _leases(engine: Engine, count: int) -> tuple[Lease, ...]:
    began = time.perf_counter()
    while time.perf_counter() - began < PHASE_MAX_S:
        if leases := leases_of(engine.poll(Poll("bot0", SESSION, want=count))):
            return leases
        time.sleep(0.002)
    raise AssertionError("nothing was admitted")


def _end(engine: Engine, bot: str, leases: Sequence[Lease]) -> None:
    engine.poll(Poll(bot, SESSION, reports=_reports(leases)))


def _reports(leases: Sequence[Lease]) -> tuple[Report, ...]:
    return tuple([Report(one.task, one.attempt, one.fence, Signal.SUCCEED) for one in leases])


def _wait_for_passes(engine: Engine, count: int) -> None:
    """Wait until passes have looked at everything and so many tasks are admitted."""
    began = time.perf_counter()
    while time.perf_counter() - began < PHASE_MAX_S:
        with engine.store.read() as repo:
            if not repo.admission.dirty(0, 1) and len(repo.admission.contenders(State.WAITING, 0, 1_000_000)) == count:
                return
        time.sleep(0.002)
    raise AssertionError(f"not {count} tasks are admitted")


def _launch(engine: Engine, number: int) -> None:
    answer = engine.launch(Wanted(TEMPLATE, f"t{number % TEMPLATES}"), actor="benchmark")
    assert isinstance(answer, LaunchStored), answer


if __name__ == "__main__":
    sys.exit(main("manager", measure))
