"""The engine as a whole: its threads, its file, and the faces it has."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from taskyard.core.matching import canonical
from taskyard.core.states import GraphState, Signal, State
from taskyard.engine.engine import AsyncEngine, Engine
from taskyard.engine.errors import InUse, Unavailable
from taskyard.engine.failpoints import VARIABLE
from taskyard.lifecycle.admission.writes import ENTRIES_MAX
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Goodbye, Hello, Poll, Refusal, Rerun
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import PAGE_MAX, Submitted
from taskyard.store.repo.admission import PoolRow
from tests.engine.harness import graph, noop, report, task, wait_until, wide
from tests.lifecycle.harness import without_counts

#: Submits a graph with a number of tasks, under a key.
SUBMITTER = """
import sys
from taskyard.engine.engine import Engine
document = {"tasks": {f"t{n}": {"task": {"payload": {"command": ["true"]}}} for n in range(int(sys.argv[2]))}}
with Engine.open(sys.argv[1]) as engine:
    print(engine.submit(document, key="mine"), flush=True)
"""
#: Submits a graph with a number of tasks, and sets the capacity of their pool when all of them wait for a bot.
LIMITER = """
import sys
from taskyard.engine.engine import Engine
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle.admission.pools import set_pool
from taskyard.store.repo.admission import PoolRow
node = {"task": {"payload": {"command": ["true"]}, "dimensions": {"pool": "default"}}}
document = {"tasks": {f"t{n}": node for n in range(int(sys.argv[2]))}}
with Engine.open(sys.argv[1]) as engine:
    made = engine.submit(document)
    while engine.graph(f"{made.graph:016x}").behind:
        engine.clock.pause(5)
    engine.background.stop()
    pool = PoolRow("default", 3, False)
    print(engine.transact(lambda transaction: set_pool(transaction, pool, "ann"), Boundary.OTHER), flush=True)
"""


def state_of(engine: Engine, graph_id: int) -> GraphState:
    with engine.store.read() as repo:
        return repo.graphs.peek([graph_id])[0].state


def test_an_engine_runs_by_itself(database_url: str) -> None:
    threads = set(threading.enumerate())
    with Engine.open(database_url) as engine:
        made = engine.submit(graph(a=noop(), b=noop("a"), c=task("b", mutexes=[{"key": "k"}]), d=noop("c")))
        assert isinstance(made, Submitted)
        engine.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default"})))
        answers: list[PollOutcome | Refusal] = []

        def came() -> bool:
            answers.append(engine.poll(Poll("b1", "s1", f"p{len(answers)}", want=1)))
            return bool(isinstance(answers[-1], PollOutcome) and answers[-1].leases)

        wait_until(came)
        assert isinstance(answers[-1], PollOutcome)
        engine.poll(Poll("b1", "s1", reports=(report(answers[-1].leases[0]),)))
        wait_until(lambda: state_of(engine, made.graph) is GraphState.FINISHED)
        engine.goodbye(Goodbye("b1", "s1"))
    assert set(threading.enumerate()) <= threads
    with pytest.raises(Unavailable):
        engine.poll(Poll("b1", "s1", "late", want=1))


def test_an_engine_that_never_started_can_be_stopped(sqlite_url: str) -> None:
    Engine.open(sqlite_url).stop()
    Engine.open(sqlite_url).stop()


def test_a_file_has_one_engine_at_a_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with Engine.open(url) as engine:
        with pytest.raises(InUse, match=r"new\.db is in use by another Taskyard"):
            Engine.open(url)
        assert isinstance(engine.submit(wide(1)), Submitted)
    Engine.open(url).stop()


def test_engines_share_a_server(postgres_url: str) -> None:
    with Engine.open(postgres_url) as one, Engine.open(postgres_url) as other:
        made = one.submit(graph(a=noop(), b=task("a", mutexes=[{"key": "k"}])), key="mine")
        assert isinstance(made, Submitted)
        assert other.submit(graph(a=noop(), b=task("a", mutexes=[{"key": "k"}])), key="mine") == Submitted(
            made.graph, echo=True
        )
        other.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default"})))
        polls: list[PollOutcome | Refusal] = []

        def came() -> bool:
            polls.append(other.poll(Poll("b1", "s1", f"p{len(polls)}", want=1)))
            return bool(isinstance(polls[-1], PollOutcome) and polls[-1].leases)

        wait_until(came)
        assert isinstance(polls[-1], PollOutcome)
        one.poll(Poll("b1", "s1", reports=(report(polls[-1].leases[0]),)))
        assert state_of(other, made.graph) is GraphState.FINISHED


def test_a_server_awaits_the_engine(database_url: str) -> None:
    async def serve(engine: Engine) -> None:
        face = AsyncEngine(engine)
        made = await face.submit(wide(20))
        assert isinstance(made, Submitted)
        text = f"{made.graph:016x}"
        assert await face.extend(text, graph(more=task())) == Submitted(made.graph)
        await face.hello(Hello("b1", "s1", canonical({"id": "b1", "pool": "default"}), 21))
        polled = await asyncio.gather(*(face.poll(Poll("b1", "s1", f"p{number}", want=1)) for number in range(21)))
        leases = [lease for one in polled if isinstance(one, PollOutcome) for lease in one.leases]
        assert len(leases) == 21
        await face.poll(Poll("b1", "s1", reports=tuple(report(lease, Signal.FAIL) for lease in leases)))
        assert without_counts(await face.rerun(Rerun(graph=made.graph))) == BulkOutcome(made.graph, 21)
        assert await face.cancel(Cancel(graph=made.graph)) == BulkOutcome(made.graph, 21)
        await face.goodbye(Goodbye("b1", "s1"))
        refused = await face.poll(Poll("nobody", "s1", want=1))
        assert isinstance(refused, Refusal)
        assert refused.code is Code.NOT_FOUND

    with Engine.open(database_url) as engine:
        asyncio.run(serve(engine))


def test_an_engine_to_be_awaited_has_every_method_of_an_engine() -> None:
    """Except those that start and stop the engine, and those for callers with futures of their own."""
    asked, awaited = methods(Engine), methods(AsyncEngine)
    assert asked.keys() - awaited.keys() == {"open", "start", "mark_serving", "allow_parking", "stop", "ask", "leave"}
    assert {name: asked[name] for name in awaited} == awaited
    assert all(inspect.iscoroutinefunction(getattr(AsyncEngine, name)) for name in awaited)


def methods(kind: type) -> dict[str, inspect.Signature]:
    """The public methods of a class, each with what it takes and gives."""
    return {
        name: inspect.signature(one)
        for name, one in inspect.getmembers(kind, inspect.isroutine)
        if not name.startswith("_")
    }


def test_the_async_engine_gives_the_answers_of_the_engine(sqlite_url: str) -> None:
    async def serve(engine: Engine) -> None:
        face = AsyncEngine(engine)
        made = await face.submit(graph(a=task()))
        assert isinstance(made, Submitted)
        assert await face.graph(f"{made.graph:016x}") == engine.graph(f"{made.graph:016x}")
        assert isinstance(await face.graph("nothing"), Refusal)
        assert (await face.schedule()).admitted == 0
        assert await face.transact(lambda transaction: len(transaction.repo.graphs.peek([made.graph]))) == 1

    with Engine.open(sqlite_url) as engine:
        asyncio.run(serve(engine))


def test_a_pool_whose_capacity_was_set_by_a_server_that_died_counts_every_task(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'yard.db'}"
    run = [sys.executable, "-c", LIMITER, url, str(ENTRIES_MAX + 5)]
    dying = os.environ | {VARIABLE: "other.after:exit@1"}
    killed = subprocess.run(run, env=dying, capture_output=True, text=True, check=False, timeout=60)
    assert (killed.returncode, killed.stdout) == (-9, ""), killed.stderr
    engine = Engine.open(url)
    with engine.store.read() as repo:  # before its first pass
        pools, left = repo.admission.pools(), repo.admission.tasks_without_admission("default", [State.WAITING], 9)
    assert (pools, len(left)) == ([PoolRow("default", 3, from_bots=False)], 5)
    with engine:

        def counted() -> bool:
            with engine.store.read() as repo:
                return not (
                    repo.admission.tasks_without_admission("default", [State.WAITING], 9) or repo.admission.dirty(0, 1)
                )

        wait_until(counted)


@pytest.mark.parametrize(
    ("place", "tasks", "survives"),
    [
        ("batch.before", 1, False),
        ("batch.after", 1, True),
        ("load.begin.after", PAGE_MAX + 1, False),
        ("load.page.after", PAGE_MAX + 1, False),
        ("load.open.before", PAGE_MAX + 1, False),
        ("load.open.after", PAGE_MAX + 1, True),
    ],
)
def test_a_server_that_is_killed_has_stored_all_or_nothing(
    tmp_path: Path, place: str, tasks: int, survives: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'yard.db'}"
    run = [sys.executable, "-c", SUBMITTER, url, str(tasks)]
    killed = subprocess.run(run, env={VARIABLE: f"{place}:exit@1"}, capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout) == (-9, "")
    again = subprocess.run(run, env={}, capture_output=True, text=True, check=True)
    assert f"echo={survives}" in again.stdout
