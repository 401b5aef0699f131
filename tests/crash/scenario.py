"""A busy day at a small server: everything that there is a kind of transaction for, in one fixed order.

It is played from a journal: whoever plays it after a crash is given the answers that came before, repeats the question
that has none, and goes on. All that is asked carries its own id or key, as everybody's questions should.
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
from tests.engine.rig import TURNS_MAX, FakeClock, graph, noop, task

#: How many tasks one transaction takes here, and how many are too many.
PAGE: Final = 5
LARGE: Final = 12
#: How long the ticker may sleep.
STEP_MS: Final = 3 * SWEEP_MS
#: A day that is not over after so many polls never will be.
POLLS_MAX: Final = 60
#: A number that nothing has.
WRONG: Final = 99
#: A word that is no answer: the load was left half-done on purpose.
ABANDONED: Final = "abandoned"


class DayClock(FakeClock):
    """A clock that only moves when told. Its words are its own, as those of every server are."""

    def word(self) -> str:
        return uuid4().hex


class Left(Exception):
    """Somebody stops loading half-way, and does not come back."""


class Player:
    """One who plays the day: people, bots, and the ticker's turns in between."""

    def __init__(self, engine: Engine, clock: DayClock, path: Path) -> None:
        self.engine = engine
        self.clock = clock
        self.journal = Journal(path)
        self.graphs: list[int] = []
        clock.ms = max(clock.ms, type(clock.ms)(self.journal.at_ms))

    def ask(self, call: str, act: Callable[[], object], **said: Any) -> Any:
        return self.journal.ask(call, said, act, self.clock.now)

    # What happens by itself: whatever the journal tells has happened already.

    def settle(self) -> None:
        """Give the ticker its turns."""
        for _ in range(TURNS_MAX if self.journal.is_live else 0):
            if not self.engine.background.run_once():
                return
        assert not self.journal.is_live, "the ticker is never done"

    def wait(self, ms: int) -> None:
        """Let time pass with sweeps in it, so that nobody takes it for an outage."""
        for _ in range(0, ms if self.journal.is_live else 0, STEP_MS):
            self.clock.later(STEP_MS)
            self.settle()

    def jump(self, ms: int) -> None:
        """Let time pass at once, and nobody notices."""
        self.clock.later(ms if self.journal.is_live else 0)

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

    def wish(self, command: Cancel | Rerun) -> None:
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

    def spoil(self, graph_id: str) -> None:
        """Make numbers wrong: of every task of a graph, of the graph itself, of a bot and of the service."""
        graph = int(graph_id, 16)
        with self.engine.store.read() as repo:
            tasks = sorted(id for id, *_ in repo.tasks.definitions_of(graph))
        self.ask(
            "spoil",
            lambda: self.engine.transact(lambda transaction: _spoil(transaction.repo, graph)),
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
        """Ask again until what somebody died at is swept away."""
        for wait_ms in (0, LOAD_MAX_MS + 1, LOAD_MAX_MS + 1, LOAD_MAX_MS + 1):
            answer = act()
            if not isinstance(answer, Refusal) or answer.code is not Code.LOADING:
                return answer
            self.clock.later(wait_ms)
            self.settle()
        return act()

    def _abandoned(self, act: Callable[[], object]) -> str:
        with self._leaving():
            try:
                act()
            except Left:
                return ABANDONED
        return ABANDONED

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        for pages in (self.engine._submission._pages, self.engine._extension._pages):
            pages._rows = _first_page(pages._rows)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for pages in (self.engine._submission._pages, self.engine._extension._pages):
                pages.__dict__.pop("_rows", None)


def _spoil(repo: Repo, graph: int) -> None:
    (record,) = repo.graphs.read([graph])
    counts = (record.tally.active, WRONG, record.tally.unhandled, record.events)
    repo.graphs.write_states([(graph, str(record.state), *counts, 0)])
    tasks = repo.doctor.lock_tasks([id for id, *_ in repo.tasks.definitions_of(graph)])
    repo.doctor.repair_tasks([task._replace(open_continuations=WRONG) for task in tasks])
    repo.bots.count_events([("b1", WRONG)])
    repo.queues.add([], WRONG)


def _first_page(rows: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def some(*said: Any) -> Iterator[Any]:
        yield next(iter(rows(*said)))
        raise Left

    return some


class Bot:
    """A bot, which ends what it has at its next poll. Some tasks make it fail, some it forgets."""

    def __init__(self, player: Player, name: str) -> None:
        self.name = name
        self.session = "s1"
        self._player = player
        self._numbers = count(1)
        self._leases: list[Lease] = []

    def hello(self, session: str = "s1") -> None:
        self.session, self._leases = session, []
        command = Hello(self.name, session, canonical({"id": self.name, "pool": "default"}), 9)
        self._player.ask("hello", lambda: self._player.engine.hello(command), command=command)

    def goodbye(self) -> None:
        command = Goodbye(self.name, self.session)
        self._player.ask("goodbye", lambda: self._player.engine.goodbye(command), command=command)

    def poll(self, want: int) -> int:
        """Say what became of the leases, and take more; tell how many were ended or taken."""
        labels = self._player.labels()
        ends = {lease: verdict(labels[lease.task], lease) for lease in self._leases}
        reports = [_report(lease, end) for lease, end in ends.items() if end]
        kept = [lease for lease, end in ends.items() if not end and labels[lease.task] == "slow"]
        renewals = [Renewal(lease.task, lease.attempt, lease.fence) for lease in kept]
        command = Poll(
            self.name, self.session, f"{self.name}-{next(self._numbers)}", tuple(reports), tuple(renewals), want
        )
        answer = self._player.ask("poll", lambda: self._player.engine.poll(command), command=command)
        assert isinstance(answer, PollOutcome), answer
        self._leases = [*answer.leases, *(lease for lease, end in ends.items() if not end)]
        return len(reports) + len(answer.leases)


def verdict(label: str, lease: Lease) -> Signal | None:
    """Say how a bot's attempt ends; None: not yet, or never."""
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
    """An id that a person chose."""
    return f"{0x6000000000000008 + 16 * number:016x}"


def held(key: str) -> dict[str, object]:
    return task(mutexes=[{"key": key}])


def play(player: Player) -> None:
    """The day."""
    one, two = Bot(player, "b1"), Bot(player, "b2")
    morning(player, one, two)
    noon(player, one, two)
    afternoon(player, one, two)
    evening(player, one, two)
    night(player)


def morning(player: Player, one: Bot, two: Bot) -> None:
    """Graphs come, small and large, and grow; then bots come."""
    flaky = task("a") | {"reruns": 1}
    first = player.submit(graph(a=task(), b=task("a"), c=task("b"), flaky=flaky, n=noop("c")), graph_id=id_of(1))
    player.submit(graph(**{f"m{number}": held("device") for number in range(4)}), key="mutexes")
    rays = {f"r{number}": noop("hub") for number in range(LARGE)}
    player.submit(graph(hub=task(), **rays, end=task(*rays)), graph_id=id_of(3))
    one.hello()
    two.hello()
    player.settle()
    player.extend(first, graph(x=task("b")))
    player.extend(first, graph(**{f"y{number}": noop("a") for number in range(LARGE)}))


def noon(player: Player, one: Bot, two: Bot) -> None:
    """Numbers go wrong and are mended; a pool is limited for a while; bots work until nothing is left for them."""
    player.submit(graph(open=task(dimensions={"pool": "closed"})), graph_id=id_of(4))
    many = player.submit(large(dimensions={"pool": "default"}), graph_id=id_of(9))
    player.settle()
    player.spoil(many)
    player.repair()
    player.limit("default", LARGE * LARGE)
    player.limit("default", None)
    work(player, one, two)


def afternoon(player: Player, one: Bot, two: Bot) -> None:
    """Loads are left half-done; one is begun again, the others are swept away. People cancel."""
    for number in (5, 6):
        player.abandon(large(), id_of(number))
    player.abandon_extension(id_of(4), graph(**{f"w{number}": noop() for number in range(LARGE)}))
    player.jump(LOAD_MAX_MS + 1)
    player.submit(large(), graph_id=id_of(5))
    player.settle()
    work(player, one, two)
    stopped = player.submit(graph(s0=task(), s1=task("s0"), s2=held("device")), graph_id=id_of(7))
    one.poll(1)
    player.wish(Cancel(graph=int(stopped, 16), actor="ann", key="cancel-one"))
    many = player.submit(large(), graph_id=id_of(8))
    player.wish(Cancel(graph=int(many, 16), actor="ann", key="cancel-many"))
    player.wish(Cancel(graph=int(id_of(4), 16), actor="ann", key="cancel-rest"))
    player.settle()
    one.poll(0)


def evening(player: Player, one: Bot, two: Bot) -> None:
    """A task fails and is rerun; a bot forgets what it has, is not heard of for too long, and comes back."""
    only_two = {"dimensions": {"id": "b2", "pool": "default"}}
    nodes = {"bad": task(**only_two), "after": task("bad"), "lost": task(**only_two), "slow": task(**only_two)}
    last = player.submit(graph(**nodes, **{f"q{number}": noop("bad") for number in range(LARGE // 2)}), key="last")
    player.settle()
    two.poll(3)
    two.poll(0)  # one has failed, one is renewed, one is forgotten
    player.wish(Rerun(graph=int(last, 16), actor="ann", key="rerun"))
    for _ in range(2):
        player.wait(MISSING_WITHIN_MS // 2)
        one.poll(0)
    two.hello("s2")
    work(player, one, two)
    two.goodbye()
    player.settle()


def night(player: Player) -> None:
    """People are asked, and graphs run inside tasks: one ends by itself, one with the graph around it."""
    inner = graph(a=noop(), b=inside(graph(c=noop()), "a"))
    first = player.submit(
        graph(ask=asking(), roll=inside(inner, "ask"), last=asking("roll", timeout="5s")), key="night"
    )
    player.settle()
    player.approve(first, "ask", approved=True)
    player.settle()
    player.wait(STEP_MS)
    second = player.submit(graph(no=asking(), wait=inside(graph(ask=asking()))), key="stopped")
    player.settle()
    player.approve(second, "no", approved=False)
    player.wish(Cancel(graph=int(second, 16), actor="ann", key="cancel-night"))
    player.settle()


def asking(*requires: str, **said: object) -> dict[str, object]:
    """A task that asks a person, for whom silence would be a yes."""
    return task(*requires, payload={"approval": {"message": "Go?", "on_timeout": "approve"}} | said)


def inside(document: dict[str, object], *requires: str) -> dict[str, object]:
    """A task with a graph inside."""
    return task(*requires, payload={"graph": document})


def large(**fields: object) -> dict[str, object]:
    return graph(**{f"l{number}": task(**fields) for number in range(LARGE)})


def work(player: Player, one: Bot, two: Bot) -> None:
    """Let bots work until neither has anything to say."""
    idle = 0
    for _ in range(POLLS_MAX):
        player.settle()
        idle = 0 if one.poll(4) + two.poll(3) else idle + 1
        if idle == 2:
            return
    raise AssertionError("there is no end to it")
