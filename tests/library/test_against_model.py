"""Random calls in random order: the scheduler gives the answers of the model."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskyard.local import Dag, Scheduler, SchedulerError
from taskyard.local.dag import Node
from tests.effort import tries
from tests.library.model import Model, Refused

#: Labels that a careless test for truth, for type or for order would trip over.
LABELS: tuple[Node, ...] = (0, None, "", (), frozenset({1}), "task", 2.5, (1, "a"))
PLACES = st.integers(0, len(LABELS) - 1)
TASKS = st.sampled_from(LABELS)
ROWS = st.lists(TASKS, max_size=6)
FLAG = st.booleans()


class Calls(RuleBasedStateMachine):
    """Any calls, in any order, on any graph of these labels."""

    @initialize(pairs=st.lists(st.tuples(PLACES, PLACES), max_size=14), in_bulk=FLAG)
    def make_a_graph(self, pairs: list[tuple[int, int]], in_bulk: bool) -> None:
        # A dependent comes after its prerequisites in the row of labels, so there is no cycle.
        edges = [(LABELS[max(pair)], LABELS[min(pair)]) for pair in pairs if len(set(pair)) == 2]
        self.scheduler = Scheduler(Dag.from_edges(edges, LABELS) if in_bulk else step_by_step(edges))
        self.model = Model({task: {dst for src, dst in edges if src == task} for task in LABELS})

    @rule(task=TASKS, fetched_ok=FLAG, failed_ok=FLAG)
    def fetch(self, task: Node, fetched_ok: bool, failed_ok: bool) -> None:
        flags = {"fetched_ok": fetched_ok, "failed_ok": failed_ok}
        self.both(lambda: self.scheduler.fetch_task(task, **flags), lambda: self.model.fetch(task, **flags))

    @rule(task=TASKS, nofetch_ok=FLAG, delivered_ok=FLAG)
    def deliver(self, task: Node, nofetch_ok: bool, delivered_ok: bool) -> None:
        flags = {"nofetch_ok": nofetch_ok, "delivered_ok": delivered_ok}
        before = self.model.available
        opened = self.both(
            lambda: self.scheduler.deliver_task(task, **flags), lambda: self.model.deliver(task, **flags)
        )
        assert set(opened or ()) == self.model.available - before

    @rule(task=TASKS, nofetch_ok=FLAG, is_exception=FLAG)
    def fail(self, task: Node, nofetch_ok: bool, is_exception: bool) -> None:
        flags = {"nofetch_ok": nofetch_ok, "is_exception": is_exception}
        self.both(lambda: self.scheduler.fail_task(task, **flags), lambda: self.model.fail(task, **flags))

    @rule(tasks=ROWS, fetched_ok=FLAG, failed_ok=FLAG)
    def fetch_several(self, tasks: list[Node], fetched_ok: bool, failed_ok: bool) -> None:
        flags = {"fetched_ok": fetched_ok, "failed_ok": failed_ok}
        self.both(lambda: self.scheduler.fetch_tasks(tasks, **flags), lambda: self.each(self.model.fetch, tasks, flags))

    @rule(tasks=ROWS, nofetch_ok=FLAG, delivered_ok=FLAG)
    def deliver_several(self, tasks: list[Node], nofetch_ok: bool, delivered_ok: bool) -> None:
        flags = {"nofetch_ok": nofetch_ok, "delivered_ok": delivered_ok}
        before = self.model.available
        opened = self.both(
            lambda: self.scheduler.deliver_tasks(tasks, **flags), lambda: self.each(self.model.deliver, tasks, flags)
        )
        assert sorted(map(repr, opened or ())) == sorted(map(repr, self.model.available - before))

    @rule(tasks=ROWS, nofetch_ok=FLAG, is_exception=FLAG)
    def fail_several(self, tasks: list[Node], nofetch_ok: bool, is_exception: bool) -> None:
        flags = {"nofetch_ok": nofetch_ok, "is_exception": is_exception}
        self.both(lambda: self.scheduler.fail_tasks(tasks, **flags), lambda: self.each(self.model.fail, tasks, flags))

    @rule()
    def drain_a_wave(self) -> None:
        wave = list(self.scheduler.available_tasks)
        self.fetch_several(wave, fetched_ok=True, failed_ok=False)
        self.deliver_several(wave, nofetch_ok=False, delivered_ok=False)

    @rule()
    def reset(self) -> None:
        self.scheduler.reset()
        self.model.reset()

    @invariant()
    def the_views_tell_how_things_stand(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.scheduler.available_tasks == self.model.available
        assert sorted(map(repr, self.scheduler.available_tasks)) == sorted(map(repr, self.model.available))
        assert [task for task in LABELS if task in self.scheduler.available_tasks] == [
            task for task in LABELS if task in self.model.available
        ]
        assert self.scheduler.blocked_tasks == self.model.blocked
        assert set(self.scheduler.unknown_tasks) == self.model.unknown
        assert self.scheduler.stranded_tasks == self.model.stranded

    def both(self, call: Callable[[], list[Node] | None], rules: Callable[[], None]) -> list[Node] | None:
        """Do it on both sides: the scheduler refuses exactly what the model refuses."""
        try:
            rules()
        except Refused:
            with pytest.raises(SchedulerError):
                call()
            return None
        return call()

    def each(self, call: Callable[..., None], tasks: list[Node], flags: dict[str, bool]) -> None:
        """Call for one after the other; if one is refused, none has been called."""
        before = dict(self.model.status)
        try:
            for task in tasks:
                call(task, **flags)
        except Refused:
            self.model.status = before
            raise


def step_by_step(edges: list[tuple[Node, Node]]) -> Dag:
    dag = Dag()
    for task in LABELS:
        dag.add_node(task)
    for src, dst in edges:
        dag.add_edge(src, dst, exist_ok=True)
    return dag


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=tries(60), stateful_step_count=40)
