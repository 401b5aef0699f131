"""The hypothesis state machine: people, bots, the clock and a dying server act on a real database and on the model.

After every step all of both is compared. There are few rules with many variants each, because an example leaves out
some rules altogether, and without working bots little happens.
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from taskyard.core.states import GraphState, Signal
from taskyard.lifecycle.admission.scheduler import Bounds
from taskyard.lifecycle.commands import Done
from taskyard.lifecycle.poll import PollOutcome
from taskyard.store.rows import TaskRecord
from tests.lifecycle.harness import START
from tests.model.entities import Task
from tests.model.harness import StoreContent
from tests.model.history import check_history, check_holders
from tests.model.requests import CAPACITY, POOL, TaskSpec, graphs, task_specs
from tests.model.steps import BOTS, OVER, Steps, report_of, some

#: The time of an example stays below ten minutes, after which a waiting task would reserve its pool.
TIME_MAX_MS = 550_000
GRAPHS_MAX = 3
#: The bots at the beginning.
FIRST_BOTS = [["ant"], ["ant", "bee"], ["bee"], ["cat"], ["ant", "bee", "cat"]]
COMMANDS = ["cancel task", "rerun task", "rerun graph", "cancel subtree", "cancel task", "cancel task", "cancel graph"]
#: What bots report of their attempts; `claim` means that it has begun, and None renews the lease.
REPORTS = [Signal.SUCCEED, Signal.FAIL, Signal.SUCCEED, Signal.FAIL, Signal.RETURN, Signal.CLAIM, None, None]
picks = st.integers(0, 60)


class LifecycleMachine(RuleBasedStateMachine):
    """A machine in which every step fits into one transaction, so the store always equals the model."""

    #: Create an empty database and return its URL; delete it.
    fresh: ClassVar[Callable[[], str]]
    drop: ClassVar[Callable[[str], None]]
    bounds: ClassVar[Bounds] = Bounds()
    #: How often each thing happened, over all examples.
    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self._handling = sys.exc_info()[1]
        self.url = type(self).fresh()
        self.steps = Steps(self.url, self.bounds, self.happened)
        self.harness, self.model = self.steps.harness, self.steps.model
        self.untils: dict[tuple[int, int], int] = {}

    @initialize(bots=st.sampled_from(FIRST_BOTS), tasks=graphs(), at_work=st.booleans())
    def begin(self, bots: list[str], tasks: dict[str, TaskSpec], at_work: bool) -> None:
        self.steps.pass_time(1, awake=False)
        for bot in bots:
            self.steps.hello(bot, anew=True)
        self.steps.submit(tasks)
        if at_work:
            self.serve(by_another=False)
            self.claim(want=2)

    def catch_up(self) -> None:
        """Copy into the model what it cannot predict, in the middle of a step."""

    # People.

    @rule(pick=picks, choices=st.data())
    def ask_for_more(self, pick: int, choices: st.DataObject) -> None:
        """Submit a graph while there are few, or extend one."""
        if len(self.model.graphs) < GRAPHS_MAX and pick % 2:
            self.steps.submit(choices.draw(graphs()))
        elif (
            graph := self.steps.some_graph(pick)
        ).id not in self.harness.loading():  # else the harness answers that it is loading
            labels = [f"x{next(self.steps.numbers)}" for _ in range(choices.draw(st.integers(1, 2)))]
            self.steps.extend(graph, {label: choices.draw(task_specs(list(graph.tasks))) for label in labels})

    @rule(what=st.sampled_from(COMMANDS), pick=picks)
    def cancel_or_rerun(self, what: str, pick: int) -> None:
        """Cancel or rerun something."""
        if what.endswith("graph"):
            act = self.steps.cancel_graph if what.startswith("cancel") else self.steps.rerun_graph
            act(self.steps.some_graph(pick))
        elif what == "rerun task":
            self.steps.rerun_task(self.steps.task_that_failed(pick))
        else:
            end = self.steps.cancel_task if what == "cancel task" else self.steps.cancel_subtree
            end(self.steps.task_under_way(pick))

    @rule(pick=picks, signal=st.sampled_from([Signal.SUCCEED, Signal.FAIL, Signal.LOSE]))
    def repeat(self, pick: int, signal: Signal) -> None:
        """Repeat an earlier step, which changes nothing."""
        steps = self.steps
        kinds: list[tuple[object, Callable[[int], None]]] = [
            (steps.given, lambda pick: steps.say_again(pick, signal)),
            (steps.polled, steps.poll_again),
            (steps.given, steps.speak_for_an_old_session),
            (steps.submissions, steps.submit_again),
            (steps.extensions, steps.extend_again),
            (steps.commands, steps.carry_out_again),
        ]
        some([act for known, act in kinds if known], pick)(pick // 6)

    # Bots.

    @rule(bot=st.sampled_from(sorted(BOTS)), how=st.sampled_from(["comes anew", "says hello", "leaves", "leaves last"]))
    def come_or_go(self, bot: str, how: str) -> None:
        if bot not in self.model.bots or not how.startswith("leaves"):
            self.steps.hello(bot, anew=how == "comes anew")
            return
        for one in sorted(self.model.bots) if how == "leaves last" else [bot]:
            self.steps.goodbye(one)
        self.steps.schedule()

    @precondition(lambda self: self.steps.able())
    @rule(want=st.integers(1, 3))
    def claim(self, want: int) -> None:
        """Let every bot claim something."""
        for bot in sorted(self.model.bots):
            self.catch_up()
            self.steps.take(bot, want)

    @precondition(lambda self: self.steps.able() or self.steps.leases())
    @rule(pick=picks, said=st.lists(st.sampled_from(REPORTS), min_size=1, max_size=3))
    def work(self, pick: int, said: list[Signal | None]) -> None:
        """Let bots end, begin, return or renew their attempts, and claim some when no bot has any."""
        for place, signal in enumerate(said):
            self.catch_up()
            if not self.steps.leases() and (able := self.steps.able()):
                self.steps.take(some(able, pick), 3)
            if (leases := self.steps.leases()) and signal is Signal.CLAIM:
                self.steps.begin(some(leases, pick + place))
            elif leases and signal is not None:
                self.steps.end(some(leases, pick + place), signal)
            elif leases:
                self.steps.renew(some(leases, pick + place))

    # Time and the server.

    @precondition(lambda self: self.harness.now - START < TIME_MAX_MS)
    @rule(ms=st.sampled_from([6_000, 21_000, 47_000, 66_000, 80_000]), how=st.sampled_from(["awake", "asleep", "down"]))
    def pass_time(self, ms: int, how: str) -> None:
        """Let time pass while bots renew their leases, while they are silent, or while no server runs."""
        if how == "down":
            self.steps.be_down(ms)
        else:
            self.steps.pass_time(ms, awake=how == "awake")

    @rule(by_another=st.booleans())
    def serve(self, by_another: bool) -> None:
        """Let the server do its background work, maybe a new server without memory."""
        if by_another:
            self.harness.forget()
        self.steps.schedule()
        self.steps.run_server_tasks()

    # After every step.

    @invariant()
    def agrees(self) -> None:
        """The store equals the model."""
        seen = self.harness.read_all()
        assert not seen.continuations, "everything fits"
        self.compare(seen)
        self.learn(seen)

    def compare(self, seen: StoreContent) -> None:
        """Compare every task and every graph with the model."""
        there = {id: _there(record) for id, record in seen.tasks.items()}
        expected = {id: _expected(task) for id, task in self.model.tasks.items()}
        differ = {
            id: (there.get(id), expected.get(id)) for id in {*there, *expected} if there.get(id) != expected.get(id)
        }
        assert not differ, {(id, self.label(id)): both for id, both in differ.items()}
        assert _states(seen.graphs) == _states(self.model.graphs)

    def learn(self, seen: StoreContent) -> None:
        """Remember what was read, and check what holds at any moment."""
        self.steps.graph_states = _states(seen.graphs)
        check_holders(list(seen.tasks.values()), self.model.tasks, POOL, CAPACITY)
        for id, record in seen.tasks.items():
            key, until = (id, record.life.attempt), record.lease_until_ms or 0
            assert not until or until >= self.untils.get(key, 0), "a lease was shortened"
            self.untils[key] = until

    def label(self, id: int) -> str:
        task = self.model.tasks.get(id)
        return next((label for label, one in task.graph.tasks.items() if one is task), "") if task else ""

    # In the end.

    def teardown(self) -> None:
        try:
            if sys.exc_info()[1] is self._handling:
                self.finish()
        finally:
            self.harness.close()
            type(self).drop(self.url)

    def finish(self) -> None:
        """Recount the store, run everything to its end, recount again, and check the history."""
        self.harness.run_continuations()
        self.harness.check_store()
        self.run_to_the_end()
        self.harness.check_store()
        with self.harness.store.read() as repo:
            self.happened.update(check_history(repo, self.model.tasks))

    def run_to_the_end(self) -> None:
        """Let everything succeed from here on: every graph has to end."""
        for bot in BOTS:
            self.harness.say_hello(bot, "last", BOTS[bot])
        for _ in range(100):
            for graph in self.harness.open_graphs():
                self.harness.rerun(graph=graph)
            for act in (self.harness.sweep, self.harness.schedule, self.harness.run_server_tasks):
                act()
                self.harness.run_continuations()
            for bot in BOTS:
                self.succeed(bot)
            if self.is_settled():
                return
            self.harness.advance(5_000)
        raise AssertionError("some graph never settles")

    def succeed(self, bot: str) -> None:
        """Let a bot run what it claims."""
        answer = self.harness.poll(bot, 9, "last")
        assert isinstance(answer, PollOutcome)
        self.harness.run_continuations()
        for lease in answer.leases:
            report = report_of(lease, Signal.SUCCEED)
            done = self.harness.poll(bot, 0, "last", reports=(report,))
            assert isinstance(done, PollOutcome)
            assert isinstance(done.reports[0], Done)
            self.harness.run_continuations()

    def is_settled(self) -> bool:
        """Whether every graph has ended, except those past a deadline, and nothing moves."""
        seen = self.harness.read_all()
        late = {one.graph for one in seen.tasks.values() if self.model.tasks[one.id].past(self.harness.now)}
        ended = all(one.state in OVER or one.id in late for one in seen.graphs.values())
        return ended and not any(one.tally.active for one in seen.graphs.values())


def _there(record: TaskRecord) -> tuple[object, ...]:
    life = record.life
    spent = (life.attempt, life.round, life.reruns_used, life.retries_used, life.slice_index)
    held = (record.bot, record.avoid_bot, record.lease_until_ms, life.not_before_ms, life.waits_since_ms)
    return str(life.state), record.reason, *spent, *held


def _expected(task: Task) -> tuple[object, ...]:
    spent = (task.attempt, task.round, task.reruns, task.retries, task.slice_index)
    held = (task.bot, task.avoid_bot, task.until_ms, task.not_before, task.waits_since)
    return str(task.state), str(task.reason), *spent, *held


def _states(graphs: object) -> dict[int, GraphState]:
    return {id: one.state for id, one in graphs.items()}  # type: ignore[attr-defined]
