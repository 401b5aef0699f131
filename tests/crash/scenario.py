"""A scenario with every kind of transaction, in one fixed order.

It runs with a journal: after a crash, the next run gets the answers from the journal, repeats the request that has no
answer, and goes on from there. Every request carries an id or key, so it can be repeated.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from taskyard.core.fleet import MISSING_WITHIN_MS, SWEEP_MS
from taskyard.core.matching import canonical
from taskyard.core.states import Signal
from taskyard.engine.bulk_load import LOAD_MAX_MS
from taskyard.engine.engine import Engine
from taskyard.lifecycle.commands import (
    Approve,
    Cancel,
    Code,
    Done,
    Goodbye,
    Hello,
    Lease,
    Poll,
    Refusal,
    Renewal,
    Report,
    Rerun,
)
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted
from taskyard.store.connection import Repo
from tests.crash.journal import Journal
from tests.engine.harness import TURNS_MAX, FakeClock, graph, noop, task

#: How many tasks one transaction takes here, and how many take several.
PAGE: Final = 5
LARGE: Final = 12
#: More events than the scenario has.
EVENTS_MAX: Final = 1_000_000
#: The longest time between two turns of background work.
STEP_MS: Final = 3 * SWEEP_MS
#: A scenario that has not ended after so many polls never will.
POLLS_MAX: Final = 60
#: A count that no row has.
WRONG: Final = 99
#: Stands for the answer of a load that was abandoned on purpose.
ABANDONED: Final = "abandoned"


class ScenarioClock(FakeClock):
    """A fake clock with random words, so that each process differs."""

    def word(self) -> str:
        return uuid4().hex


class LoadAbandoned(Exception):
    """Stops a load half-way."""


class ScenarioRunner:
    """Runs the steps of the scenario: people, bots, and background work in between."""

    def __init__(self, engine: Engine, clock: ScenarioClock, path: Path) -> None:
        self.engine = engine
        self.clock = clock
        self.journal = Journal(path)
        self.graphs: list[int] = []
        clock.ms = max(clock.ms, type(clock.ms)(self.journal.at_ms))

    def ask(self, call: str, act: Callable[[], object], **arguments: Any) -> Any:
        return self.journal.ask(call, arguments, act, self.clock.now)

    # Background work. While answers come from the journal, it has been done already.

    def settle(self) -> None:
        """Run background work until nothing is left to do."""
        for _ in range(TURNS_MAX if self.journal.is_live else 0):
            if not self.engine.background.run_once():
                return
        assert not self.journal.is_live, "background work is never done"

    def wait(self, ms: int) -> None:
        """Let time pass with sweeps, so that it is not taken for an outage."""
        for _ in range(0, ms if self.journal.is_live else 0, STEP_MS):
            self.clock.advance(STEP_MS)
            self.settle()

    def jump(self, ms: int) -> None:
        """Let time pass without a sweep."""
        self.clock.advance(ms if self.journal.is_live else 0)

    def relay(self) -> None:
        """Number all events for a follower; each is numbered once, whatever was numbered before a kill."""
        if self.journal.is_live:
            self.engine.relay.want()
            self.engine.relay.add_target("broker")
            self.engine.relay.run_once()
            with self.engine.store.read() as repo:
                numbers = [number for number, _ in repo.stream.page(0, EVENTS_MAX)[0]]
                last = repo.stream.read().last
            assert numbers == sorted(set(numbers)), "an event was numbered twice"
            self.engine.relay.advance("broker", last)
            with self.engine.store.read() as repo:
                assert [one.position for one in repo.targets.all()] == [last]

    def purge(self) -> None:
        """Look for what has been kept for its time, and delete it."""
        if self.journal.is_live:
            self.engine.retention.run_once()

    # People.

    def submit(self, document: dict[str, object], **named: str) -> str:
        answer = self.ask("submit", lambda: self._submitted(document, named), document=document, named=named)
        assert isinstance(answer, Submitted), answer
        self.graphs.append(answer.graph)
        return f"{answer.graph:016x}"

    def extend(self, graph_id: str, document: dict[str, object]) -> None:
        answer = self.ask("extend", lambda: self._extended(graph_id, document), graph=graph_id, document=document)
        assert isinstance(answer, Submitted), answer

    def abandon(self, document: dict[str, object], graph_id: str) -> None:
        self.ask("abandon", lambda: self._abandoned(lambda: self.engine.submit(document, graph_id=graph_id)))

    def abandon_extension(self, graph_id: str, document: dict[str, object]) -> None:
        self.ask("abandon", lambda: self._abandoned(lambda: self.engine.extend(graph_id, document)))

    def carry_out(self, command: Cancel | Rerun) -> None:
        act = self.engine.cancel if isinstance(command, Cancel) else self.engine.rerun
        answer = self.ask(type(command).__name__, lambda: act(command), command=command)  # type: ignore[arg-type]
        assert not isinstance(answer, Refusal), answer

    def approve(self, graph_id: str, label: str, approved: bool) -> None:
        with self.engine.store.read() as repo:
            id = repo.tasks.with_labels(int(graph_id, 16), [label])[label]
        command = Approve(id, approved, "so be it", "ann", f"{label} of {graph_id}")
        answer = self.ask("Approve", lambda: self.engine.approve(command), command=command)
        assert isinstance(answer, Done), answer

    def limit(self, pool: str, capacity: int | None) -> None:
        answer = self.ask("set_pool", lambda: self.engine.set_pool(pool, capacity, actor="ann"), pool=pool)
        assert answer is None, answer

    def corrupt_counts(self, graph_id: str) -> None:
        """Corrupt the stored counts of every task of a graph, of the graph, of a bot and of the service."""
        graph = int(graph_id, 16)
        with self.engine.store.read() as repo:
            tasks = sorted(id for id, *_ in repo.tasks.definitions_of(graph))
        self.ask(
            "corrupt_counts",
            lambda: self.engine.transact(lambda transaction: _corrupt_counts(transaction.repo, graph)),
            tasks=tasks,
            graph=graph,
        )

    def repair(self) -> None:
        self.ask("repair", lambda: self.engine.repair(self.engine.doctor(), "ann"))

    def labels(self) -> dict[int, str]:
        with self.engine.store.read() as repo:
            return {id: label for one in self.graphs for id, label, _, _ in repo.tasks.definitions_of(one)}

    def _submitted(self, document: object, named: dict[str, Any]) -> object:
        return self._when_loaded(lambda: self.engine.submit(document, actor="ann", **named))

    def _extended(self, graph_id: str, document: object) -> object:
        return self._when_loaded(lambda: self.engine.extend(graph_id, document, actor="ann"))

    def _when_loaded(self, act: Callable[[], object]) -> object:
        """Repeat until the unfinished load of an earlier run has been dropped."""
        for wait_ms in (0, LOAD_MAX_MS + 1, LOAD_MAX_MS + 1, LOAD_MAX_MS + 1):
            answer = act()
            if not isinstance(answer, Refusal) or answer.code is not Code.LOADING:
                return answer
            self.clock.advance(wait_ms)
            self.settle()
        return act()

    def _abandoned(self, act: Callable[[], object]) -> str:
        with self._stop_loading():
            try:
                act()
            except LoadAbandoned:
                return ABANDONED
        return ABANDONED

    @contextmanager
    def _stop_loading(self) -> Iterator[None]:
        for pages in (self.engine._submission._pages, self.engine._extension._pages):
            pages._rows = _first_page(pages._rows)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for pages in (self.engine._submission._pages, self.engine._extension._pages):
                pages.__dict__.pop("_rows", None)


def _corrupt_counts(repo: Repo, graph: int) -> None:
    (record,) = repo.graphs.read([graph])
    counts = (record.tally.active, WRONG, record.tally.unhandled, record.events)
    repo.graphs.write_states([(graph, str(record.state), *counts, 0)])
    tasks = repo.doctor.lock_tasks([id for id, *_ in repo.tasks.definitions_of(graph)])
    repo.doctor.repair_tasks([task._replace(open_continuations=WRONG) for task in tasks])
    repo.bots.count_events([("b1", WRONG)])
    repo.queues.add([], WRONG)


def _first_page(rows: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def some(*arguments: Any) -> Iterator[Any]:
        yield next(iter(rows(*arguments)))
        raise LoadAbandoned

    return some


class Bot:
    """A bot that ends its attempts at its next poll; some tasks fail, and some attempts it forgets."""

    def __init__(self, runner: ScenarioRunner, name: str) -> None:
        self.name = name
        self.session = "s1"
        self._runner = runner
        self._numbers = count(1)
        self._leases: list[Lease] = []

    def hello(self, session: str = "s1") -> None:
        self.session, self._leases = session, []
        command = Hello(self.name, session, canonical({"id": self.name, "pool": "default"}), 9)
        self._runner.ask("hello", lambda: self._runner.engine.hello(command), command=command)

    def goodbye(self) -> None:
        command = Goodbye(self.name, self.session)
        self._runner.ask("goodbye", lambda: self._runner.engine.goodbye(command), command=command)

    def poll(self, want: int) -> int:
        """Report the ends of attempts and claim more; return how many were ended or claimed."""
        labels = self._runner.labels()
        ends = {lease: signal_for(labels[lease.task], lease) for lease in self._leases}
        reports = [_report(lease, end) for lease, end in ends.items() if end]
        kept = [lease for lease, end in ends.items() if not end and labels[lease.task] == "slow"]
        renewals = [Renewal(lease.task, lease.attempt, lease.fence) for lease in kept]
        command = Poll(
            self.name, self.session, f"{self.name}-{next(self._numbers)}", tuple(reports), tuple(renewals), want
        )
        answer = self._runner.ask("poll", lambda: self._runner.engine.poll(command), command=command)
        assert isinstance(answer, PollOutcome), answer
        self._leases = [*answer.leases, *(lease for lease, end in ends.items() if not end)]
        return len(reports) + len(answer.leases)


def signal_for(label: str, lease: Lease) -> Signal | None:
    """How an attempt ends; None: not yet, or never."""
    first = lease.attempt == 1
    if label in {"lost", "slow"} and first:
        return None
    return Signal.FAIL if label in {"flaky", "bad"} and first else Signal.SUCCEED


def _report(lease: Lease, signal: Signal) -> Report:
    failed = signal is Signal.FAIL
    return Report(
        lease.task, lease.attempt, lease.fence, signal, exit_code=1 if failed else 0, result=msgspec.Raw(b'{"x":1}')
    )


def id_of(number: int) -> str:
    """A graph id chosen by the client."""
    return f"{0x6000000000000008 + 16 * number:016x}"


def held(key: str) -> dict[str, object]:
    return task(mutexes=[{"key": key}])


def run_scenario(runner: ScenarioRunner) -> None:
    """Run the scenario to its end."""
    one, two = Bot(runner, "b1"), Bot(runner, "b2")
    submit_and_extend(runner, one, two)
    repair_and_limit(runner, one, two)
    abandon_and_cancel(runner, one, two)
    rerun_and_lose(runner, one, two)
    approve_and_nest(runner)
    run_equal_tasks(runner, one)
    runner.relay()
    runner.purge()


def submit_and_extend(runner: ScenarioRunner, one: Bot, two: Bot) -> None:
    """Submit small and large graphs and extend them; then bots connect."""
    flaky = task("a") | {"reruns": 1}
    first = runner.submit(graph(a=task(), b=task("a"), c=task("b"), flaky=flaky, n=noop("c")), graph_id=id_of(1))
    runner.submit(graph(**{f"m{number}": held("device") for number in range(4)}), key="mutexes")
    rays = {f"r{number}": noop("hub") for number in range(LARGE)}
    runner.submit(graph(hub=task(), **rays, end=task(*rays)), graph_id=id_of(3))
    one.hello()
    two.hello()
    runner.settle()
    runner.extend(first, graph(x=task("b")))
    runner.extend(first, graph(**{f"y{number}": noop("a") for number in range(LARGE)}))


def repair_and_limit(runner: ScenarioRunner, one: Bot, two: Bot) -> None:
    """Corrupt and repair counts; limit a pool for a while; bots work until nothing is left."""
    runner.submit(graph(open=task(dimensions={"pool": "closed"})), graph_id=id_of(4))
    many = runner.submit(large(dimensions={"pool": "default"}), graph_id=id_of(9))
    runner.settle()
    runner.corrupt_counts(many)
    runner.repair()
    runner.limit("default", LARGE * LARGE)
    runner.limit("default", None)
    work(runner, one, two)


def abandon_and_cancel(runner: ScenarioRunner, one: Bot, two: Bot) -> None:
    """Abandon loads: one is begun again, the others are dropped. Then cancel graphs."""
    for number in (5, 6):
        runner.abandon(large(), id_of(number))
    runner.abandon_extension(id_of(4), graph(**{f"w{number}": noop() for number in range(LARGE)}))
    runner.jump(LOAD_MAX_MS + 1)
    runner.submit(large(), graph_id=id_of(5))
    runner.settle()
    work(runner, one, two)
    stopped = runner.submit(graph(s0=task(), s1=task("s0"), s2=held("device")), graph_id=id_of(7))
    one.poll(1)
    runner.carry_out(Cancel(graph=int(stopped, 16), actor="ann", key="cancel-one"))
    many = runner.submit(large(), graph_id=id_of(8))
    runner.carry_out(Cancel(graph=int(many, 16), actor="ann", key="cancel-many"))
    runner.carry_out(Cancel(graph=int(id_of(4), 16), actor="ann", key="cancel-rest"))
    runner.settle()
    one.poll(0)


def rerun_and_lose(runner: ScenarioRunner, one: Bot, two: Bot) -> None:
    """A failed task is rerun; a bot forgets an attempt, is silent for too long, and comes back."""
    only_two = {"dimensions": {"id": "b2", "pool": "default"}}
    nodes = {"bad": task(**only_two), "after": task("bad"), "lost": task(**only_two), "slow": task(**only_two)}
    last = runner.submit(graph(**nodes, **{f"q{number}": noop("bad") for number in range(LARGE // 2)}), key="last")
    runner.settle()
    two.poll(3)
    two.poll(0)  # one has failed, one is renewed, one is forgotten
    runner.carry_out(Rerun(graph=int(last, 16), actor="ann", key="rerun"))
    for _ in range(2):
        runner.wait(MISSING_WITHIN_MS // 2)
        one.poll(0)
    two.hello("s2")
    work(runner, one, two)
    two.goodbye()
    runner.settle()


def approve_and_nest(runner: ScenarioRunner) -> None:
    """Approvals, and graphs inside tasks: one ends by itself, one with the graph around it."""
    inner = graph(a=noop(), b=inside(graph(c=noop()), "a"))
    first = runner.submit(
        graph(ask=asking(), roll=inside(inner, "ask"), last=asking("roll", timeout="5s")), key="night"
    )
    runner.settle()
    runner.approve(first, "ask", approved=True)
    runner.settle()
    runner.wait(STEP_MS)
    second = runner.submit(graph(no=asking(), wait=inside(graph(ask=asking()))), key="stopped")
    runner.settle()
    runner.approve(second, "no", approved=False)
    runner.carry_out(Cancel(graph=int(second, 16), actor="ann", key="cancel-night"))
    runner.settle()


def run_equal_tasks(runner: ScenarioRunner, one: Bot) -> None:
    """Of equal tasks the first one fails, the next one leads, and the others reuse its result page by page."""
    one.hello("s3")
    runner.submit(graph(bad=task(idempotent=True)), key="leader")
    runner.submit(graph(**{f"e{number}": task(idempotent=True) for number in range(LARGE)}), key="followers")
    for _ in range(POLLS_MAX):
        runner.settle()
        if not one.poll(4):
            return
    raise AssertionError("the bot never runs out of work")


def asking(*requires: str, **fields: object) -> dict[str, object]:
    """An approval that is approved on time-out."""
    return task(*requires, payload={"approval": {"message": "Go?", "on_timeout": "approve"}} | fields)


def inside(document: dict[str, object], *requires: str) -> dict[str, object]:
    """A task with a graph inside."""
    return task(*requires, payload={"graph": document})


def large(**fields: object) -> dict[str, object]:
    return graph(**{f"l{number}": task(**fields) for number in range(LARGE)})


def work(runner: ScenarioRunner, one: Bot, two: Bot) -> None:
    """Let bots work until neither has anything to report or claim."""
    idle = 0
    for _ in range(POLLS_MAX):
        runner.settle()
        idle = 0 if one.poll(4) + two.poll(3) else idle + 1
        if idle == 2:
            return
    raise AssertionError("the bots never run out of work")
