"""A yard to try the life cycle in: a real store, a clock that only moves when told, and no engine.

Each call is one transaction. `audit` is what every test ends with: the store has to agree with itself.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from taskyard.core import ids
from taskyard.core.fleet import LEASE_MS
from taskyard.core.graph.parse import validate
from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Reason, Signal, State
from taskyard.lifecycle.bot_sessions import hello
from taskyard.lifecycle.commands import Done, Hello, Lease, Poll, Refusal, Renewal, Report
from taskyard.lifecycle.poll import PollOutcome, poll
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.submit import NewGraph, Submitted, submit
from taskyard.lifecycle.transaction import SINGLE_SERVER, Transaction
from taskyard.store.connection import Store, open_store
from taskyard.store.rows import GraphRecord, TaskRecord

Answer = TypeVar("Answer")
#: 2026-01-01, a moment that has a place in keys.
START = Millis(1_767_225_600_000)


class Yard:
    """A store with people and bots around it."""

    def __init__(self, url: str) -> None:
        self.store: Store = open_store(url)
        self.registry = Registry()
        self.now = START
        self.server, self.lease_ms = SINGLE_SERVER, LEASE_MS
        self._polls = count(1)
        self._chance = count(0)

    def close(self) -> None:
        self.store.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction."""
        try:
            with self.store.write() as repo:
                transaction = Transaction(repo, self.now, self.registry, self.lease_ms, self.server)
                yield transaction
                transaction.finish()
        except BaseException:
            self.registry.forget()
            raise

    def do(self, act: Callable[[Transaction], Answer]) -> Answer:
        with self.transaction() as transaction:
            return act(transaction)

    def later(self, ms: int) -> None:
        self.now = Millis(self.now + ms)

    # People.

    def prepared(self, document: object, actor: str = "ann") -> NewGraph:
        validation = validate(document, now=self.now)
        assert validation.graph is not None, validation.faults
        graph = validation.graph
        self.later(1)
        keys = ids.mint(self.now, len(graph.tasks) + 1, next(self._chance) % 60_000)
        labels = {label: int(key) for label, key in zip(graph.tasks, keys[1:], strict=True)}
        new_tasks = NewTasks(
            int(keys[0]), list(graph.tasks.values()), labels, self.now, substitutes="$subs" in str(document)
        )
        return NewGraph(graph, new_tasks, ("taskyard", graph.name, graph.routing, "", "[]", str(document)), "me", actor)

    def submit(self, document: object) -> "Labels":
        """Submit a graph; get its labels."""
        submission = self.prepared(document)
        answer = self.do(lambda transaction: submit(transaction, [submission]))[0]
        assert isinstance(answer, Submitted), answer
        return Labels(answer.graph, dict(submission.new_tasks.ids))

    # Bots.

    def hello(self, bot: str, session: str = "s1", slots: int = 4, **dimensions: str) -> None:
        asked = canonical({"id": bot, "pool": "default"} | dimensions)
        self.do(lambda transaction: hello(transaction, [Hello(bot, session, asked, slots)]))

    def poll(self, bot: str, want: int = 1, session: str = "s1", **said: object) -> PollOutcome | Refusal:
        said.setdefault("poll", f"p{next(self._polls)}")
        return self.do(lambda transaction: poll(transaction, [Poll(bot, session, want=want, **said)]))[0]  # type: ignore[arg-type]

    def claim(self, bot: str, want: int = 1, **said: object) -> tuple[Lease, ...]:
        answer = self.poll(bot, want, **said)  # type: ignore[arg-type]
        assert isinstance(answer, PollOutcome), answer
        return answer.leases

    def end(
        self,
        bot: str,
        lease: Lease,
        signal: Signal = Signal.SUCCEED,
        exit_code: int | None = None,
        reason: Reason | None = None,
    ) -> Done | Refusal:
        report = Report(lease.task, lease.attempt, lease.fence, signal, reason, exit_code)
        answer = self.poll(bot, 0, reports=(report,))
        assert isinstance(answer, PollOutcome), answer
        return answer.reports[0]

    def renew(self, bot: str, lease: Lease) -> object:
        answer = self.poll(bot, 0, renewals=(Renewal(lease.task, lease.attempt, lease.fence),))
        assert isinstance(answer, PollOutcome), answer
        return answer.renewals[0]

    # Looking.

    def task(self, id: int) -> TaskRecord:
        with self.store.read() as repo:
            return repo.tasks.read([id])[0]

    def states(self, labels: Mapping[str, int]) -> dict[str, State]:
        with self.store.read() as repo:
            found = {task.id: task.state for task in repo.tasks.read(list(labels.values()))}
        return {label: found[id] for label, id in labels.items()}

    def graph(self, id: int) -> GraphRecord:
        with self.store.read() as repo:
            return repo.graphs.peek([id])[0]


class Labels(dict[str, int]):
    """The ids of a graph's tasks by label, and the graph's own."""

    def __init__(self, graph: int, ids: Mapping[str, int]) -> None:
        super().__init__(ids)
        self.graph = graph


def chain(*labels: str, **task: object) -> dict[str, object]:
    """A graph whose tasks run one after the other."""
    tasks: dict[str, object] = {}
    for place, label in enumerate(labels):
        requires = [labels[place - 1]] if place else []
        tasks[label] = {"requires": requires, "task": {"payload": {"command": ["true"]}} | task}
    return {"tasks": tasks}
