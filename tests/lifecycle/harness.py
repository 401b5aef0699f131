"""Harness for tests of the lifecycle package: a real store, a fake clock, and no engine.

Each call runs one lifecycle step in one transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from taskyard.core import ids
from taskyard.core.fleet import LEASE_MS, SWEEP_MS
from taskyard.core.graph.parse import validate
from taskyard.core.matching import canonical
from taskyard.core.states import Millis, Reason, Signal, State
from taskyard.core.structs import struct_replace
from taskyard.lifecycle import cancel as cancels
from taskyard.lifecycle import rerun as reruns
from taskyard.lifecycle.bot_sessions import goodbye, hello
from taskyard.lifecycle.commands import (
    BulkOutcome,
    Cancel,
    Done,
    Goodbye,
    Hello,
    Lease,
    NeedsSearch,
    Poll,
    Refusal,
    Renewal,
    Report,
    Rerun,
)
from taskyard.lifecycle.continuations import run_page
from taskyard.lifecycle.idempotency import carry_out_keyed
from taskyard.lifecycle.poll import PollOutcome, poll
from taskyard.lifecycle.queues import Registry
from taskyard.lifecycle.rows import NewTasks
from taskyard.lifecycle.selection import SelectedPages
from taskyard.lifecycle.server_tasks import run_server_tasks
from taskyard.lifecycle.submit import NewGraph, Submitted, submit
from taskyard.lifecycle.timeouts import apply_timeouts, heartbeat, mark_missing_bots
from taskyard.lifecycle.transaction import SINGLE_SERVER, Transaction
from taskyard.store.connection import Store, open_store
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

Answer = TypeVar("Answer")
#: 2026-01-01: a time that task ids can encode.
START = Millis(1_767_225_600_000)
#: A limit for reads that is higher than what any test stores.
ALL = 1_000_000


class Labels(dict[str, int]):
    """The ids of a graph's tasks by label, and the graph's own id."""

    def __init__(self, graph: int, ids: Mapping[str, int]) -> None:
        super().__init__(ids)
        self.graph = graph

    @property
    def text(self) -> str:
        """The graph's id as text."""
        return ids.text_of(ids.Key(self.graph))


class BaseHarness:
    """A store with a fake clock: submits graphs, and plays bots that poll and report."""

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

    def advance(self, ms: int) -> None:
        self.now = Millis(self.now + ms)

    # People.

    def new_graph(self, document: object, actor: str = "ann") -> NewGraph:
        validation = validate(document, now=self.now)
        assert validation.graph is not None, validation.faults
        graph = validation.graph
        self.advance(1)
        keys = ids.mint(self.now, len(graph.tasks) + 1, next(self._chance) % 60_000)
        labels = {label: int(key) for label, key in zip(graph.tasks, keys[1:], strict=True)}
        new_tasks = NewTasks(
            int(keys[0]), list(graph.tasks.values()), labels, self.now, substitutes="$subs" in str(document)
        )
        return NewGraph(graph, new_tasks, ("taskyard", graph.name, graph.routing, "", "[]", str(document)), "me", actor)

    def submit(self, document: object) -> "Labels":
        """Submit a graph; get its labels."""
        submission = self.new_graph(document)
        answer = self.do(lambda transaction: submit(transaction, [submission]))[0]
        assert isinstance(answer, Submitted), answer
        return Labels(answer.graph, dict(submission.new_tasks.ids))

    # Bots.

    def hello(self, bot: str, session: str = "s1", slots: int = 4, **dimensions: str | list[str]) -> None:
        dimensions_text = canonical({"id": bot, "pool": "default", **dimensions})
        self.do(lambda transaction: hello(transaction, [Hello(bot, session, dimensions_text, slots)]))

    def poll(self, bot: str, want: int = 1, session: str = "s1", **fields: object) -> PollOutcome | Refusal:
        fields.setdefault("poll", f"p{next(self._polls)}")
        return self.do(lambda transaction: poll(transaction, [Poll(bot, session, want=want, **fields)]))[0]  # type: ignore[arg-type]

    def claim(self, bot: str, want: int = 1, **fields: object) -> tuple[Lease, ...]:
        answer = self.poll(bot, want, **fields)  # type: ignore[arg-type]
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

    # Reads.

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


class LifecycleHarness(BaseHarness):
    """A harness that also cancels and reruns, runs continuations and applies timeouts."""

    # People.

    def cancel(
        self, task: int | None = None, graph: int | None = None, subtree: bool = False
    ) -> Done | Refusal | BulkOutcome:
        return self.carry_out(Cancel(task, graph, subtree, "ann"))

    def rerun(self, task: int | None = None, graph: int | None = None) -> Done | Refusal | BulkOutcome:
        return self.carry_out(Rerun(task, graph, "ann"))

    def carry_out(self, command: Cancel | Rerun) -> Done | Refusal | BulkOutcome:
        """Carry out a command; if it concerns too many tasks for one transaction, search for them first."""
        answer = self.carry_out_once(command)
        if isinstance(answer, NeedsSearch):
            with self.store.read() as repo:
                seen = cancels.find(repo, command) if isinstance(command, Cancel) else reruns.find(repo, command)
            answer = self.carry_out_once(command, seen.cut())
        assert not isinstance(answer, NeedsSearch), "nothing was changed since the search"
        return answer

    def carry_out_once(
        self, command: Cancel | Rerun, found: SelectedPages | None = None
    ) -> Done | Refusal | BulkOutcome | NeedsSearch:
        step: Any = cancels.cancel if isinstance(command, Cancel) else reruns.rerun
        answers = self.do(
            lambda transaction: carry_out_keyed(transaction, [command], lambda *arguments: step(*arguments, found))
        )
        return answers[0]

    def audits(self, subject: int) -> list[tuple[str, str, str]]:
        with self.store.read() as repo:
            return [(one.actor, one.action, one.note) for one in repo.events.audits_of(subject, ALL)]

    # Background work.

    def continuations(self) -> list[Continuation]:
        with self.store.read() as repo:
            return repo.continuations.after(-1, ALL)

    def run_continuation(self, continuation: Continuation) -> bool | None:
        return self.do(lambda transaction: run_page(transaction, continuation.id))

    def run_continuations(self) -> int:
        """Run continuations until none is left; return the number of pages."""
        pages = 0
        while found := self.continuations():
            for continuation in found:
                self.run_continuation(continuation)
                pages += 1
        return pages

    def sweep(self) -> int:
        """Apply timeouts once, as the engine does in each sweep."""
        self.do(heartbeat)
        timed_out = self.do(apply_timeouts)
        self.do(mark_missing_bots)
        return timed_out

    def wait(self, ms: int, awake: Iterable[str] = (), session: str = "s1") -> None:
        """Let time pass with all its sweeps, while the bots in `awake` keep polling."""
        until = self.now + ms
        while self.now < until:
            self.advance(min(SWEEP_MS, until - self.now))
            for bot in awake:
                self.poll(bot, 0, session)
            self.sweep()

    def run_server_tasks(self) -> int:
        return self.do(run_server_tasks)

    # Bots.

    def start(self, bot: str, labels: Mapping[str, int], count: int = 256) -> dict[str, Lease]:
        """Let a bot claim tasks; return its leases by label."""
        names = {id: label for label, id in labels.items()}
        return {names[lease.task]: lease for lease in self.claim(bot, count)}

    def fail(self, bot: str, lease: Lease) -> Done | Refusal:
        return self.end(bot, lease, Signal.FAIL, exit_code=1)

    def run(self, bot: str, labels: Mapping[str, int], *failing: str) -> list[str]:
        """Let a bot claim and end everything that is ready, once; return the labels."""
        leases = self.start(bot, labels)
        for label, lease in leases.items():
            assert isinstance(self.fail(bot, lease) if label in failing else self.end(bot, lease), Done)
        return sorted(leases)

    def goodbye(self, bot: str, session: str = "s1") -> None:
        self.do(lambda transaction: goodbye(transaction, [Goodbye(bot, session)]))

    def bot_events(self, bot: str) -> list[str]:
        """The kinds of a bot's events, in order."""
        return [kind for kind, _ in self.bot_events_with_notes(bot)]

    def bot_events_with_notes(self, bot: str) -> list[tuple[str, str]]:
        """The kinds and notes of a bot's events, in order."""
        with self.store.read() as repo:
            return [(row[3], row[6]) for row in reversed(repo.bots.events(bot, ALL))]

    # Reads.

    def state_names(self, labels: Mapping[str, int]) -> dict[str, str]:
        """The state of each task, as text."""
        return {label: str(state) for label, state in self.states(labels).items()}

    def why(self, id: int) -> tuple[State, Reason]:
        """The state of a task and its reason."""
        task = self.task(id)
        return task.state, Reason(task.reason)

    def count_states(self, labels: Mapping[str, int]) -> dict[str, int]:
        """The number of tasks in each state."""
        states = list(self.state_names(labels).values())
        return {state: states.count(state) for state in sorted(set(states))}

    def states_passed(self, id: int) -> list[str]:
        """The states that a task or a graph has entered, in order."""
        with self.store.read() as repo:
            return [event.target for event in repo.events.of(id, 0, ALL)]

    def graph_state(self, labels: Labels) -> str:
        return str(self.graph(labels.graph).state)


def without_counts(answer: object) -> object:
    """Clear the counts and task ids of a bulk outcome, for tests that do not check them."""
    return struct_replace(answer, total=0, unblocked=0, tasks=()) if isinstance(answer, BulkOutcome) else answer
