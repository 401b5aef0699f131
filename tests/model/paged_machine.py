"""The state machine with small pages: nearly every step leaves continuations, and other steps come before they run.

Delayed propagation may reach tasks in another order, so the model cannot predict the outcome of a step. While
continuations are open, the doctor checks the store, and the model copies what is stored. When the last one is done,
every task must be where the model wants it, and from then on the model predicts again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.states import GraphState, Millis, On, Reason
from taskyard.lifecycle import continuations
from taskyard.lifecycle import submit as submit_step
from taskyard.lifecycle.admission.scheduler import Bounds
from taskyard.lifecycle.commands import Code
from taskyard.lifecycle.rows import OPEN, SHOW, Rows
from taskyard.lifecycle.submit import Extension, LoadStarted, NewGraph, Submitted
from tests.lifecycle.harness import START
from tests.model.harness import StoreContent
from tests.model.machine import GRAPHS_MAX, LifecycleMachine, picks
from tests.model.requests import TaskSpec, document, graphs, task_specs
from tests.model.steps import OVER, code

#: The sizes of pages; a task may have three edges to another one, which are propagated together.
PROPAGATED_MAX, PAGE_MAX, EDGES_MAX, LOOKED_MAX = 1, 2, 3, 4


class Load(NamedTuple):
    """A graph or extension that is being loaded page by page."""

    what: NewGraph | Extension
    tasks: dict[str, TaskSpec]
    text: object
    pages: Iterator[tuple[list[str], Rows]]


class PagedMachine(LifecycleMachine):
    """A machine in which little fits into one transaction."""

    bounds = Bounds(page_max=2)

    def __init__(self) -> None:
        super().__init__()
        self.follows_store = False  # whether the model only copies the store
        self.load: Load | None = None
        self.pages_run = 1_000
        self.late_until = START  # until then no sweep may have seen what was loaded

    @rule(pages=st.sampled_from([0, 1, 2, 1_000]))
    def be_busy(self, pages: int) -> None:
        """From now on run so many pages of continuations after each step."""
        self.pages_run = pages

    @precondition(lambda self: self.load is None and len(self.model.graphs) < GRAPHS_MAX)
    @rule(tasks=graphs())
    def begin_graph(self, tasks: dict[str, TaskSpec]) -> None:
        one = self.harness.new_graph(document(tasks))
        begun = self.harness.do(lambda transaction: submit_step.begin(transaction, one))
        self.load = Load(one, tasks, None, self.pages(one, begun, hidden=False))

    @precondition(lambda self: self.load is None)
    @rule(pick=picks, choices=st.data())
    def begin_extension(self, pick: int, choices: st.DataObject) -> None:
        graph = self.steps.some_graph(pick)
        if graph.id in self.harness.loading():
            return  # the harness answers that it is loading
        labels = [f"x{next(self.steps.numbers)}" for _ in range(3)]
        tasks: dict[str, TaskSpec] = {}
        for label in labels:
            tasks[label] = choices.draw(task_specs([*graph.tasks, *tasks]))
        one = self.harness.extension(graph.id, document(tasks))
        assert one is not None
        begun = self.harness.do(lambda transaction: submit_step.begin_extension(transaction, one))
        if self.steps.graph_states[graph.id] in OVER:
            assert code(begun) is Code.CONFLICT
        elif isinstance(begun, LoadStarted):
            self.load = Load(one, tasks, document(tasks), self.pages(one, begun, hidden=True))

    @precondition(lambda self: self.load is not None)
    @rule(dies=st.sampled_from([False, False, False, True]))
    def go_on_loading(self, dies: bool) -> None:
        """Load a page or open the whole; or abandon the load."""
        assert self.load is not None
        if dies:
            self.give_up()
            return
        load, page = self.load, next(self.load.pages, None)
        if page is None:
            self.load = None
            self.open(load)
        elif isinstance(load.what, NewGraph):
            one = load.what
            assert self.harness.do(
                lambda transaction: submit_step.add_page(transaction, one.new_tasks.graph_id, one.loader, page[1])
            )
        else:
            self.add_hidden(load.what, load.tasks, *page)

    def add_hidden(self, one: Extension, tasks: dict[str, TaskSpec], labels: list[str], rows: Rows) -> None:
        assert self.harness.do(lambda transaction: submit_step.add_hidden_page(transaction, one, rows))
        new_tasks, new = one.new_tasks, {label: tasks[label] for label in labels}
        self.steps.now().add(new_tasks.graph_id, new, new_tasks.ids, new_tasks.created_ms, hidden=True)

    def open(self, load: Load) -> None:
        one, new_tasks = load.what, load.what.new_tasks
        if isinstance(one, NewGraph):
            assert self.harness.do(lambda transaction: submit_step.open_graph(transaction, one)) == Submitted(
                new_tasks.graph_id
            )
            self.steps.submissions.append(one)
            self.steps.now().add(new_tasks.graph_id, load.tasks, new_tasks.ids, new_tasks.created_ms)
        else:
            assert self.harness.do(lambda transaction: submit_step.open_extension(transaction, one)) == Submitted(
                new_tasks.graph_id
            )
            self.steps.extensions.append((new_tasks.graph_id, load.text, one))
        self.steps.count("a load was opened")

    def give_up(self) -> None:
        """Abandon the load; the server drops it."""
        while self.harness.do(
            lambda transaction: continuations.drop_stale_loads(transaction, Millis(self.harness.now + 1), 2)
        ):
            pass
        self.load = None
        self.steps.count("a load was dropped")

    def pages(self, one: NewGraph | Extension, begun: object, hidden: bool) -> Iterator[tuple[list[str], Rows]]:
        assert isinstance(begun, LoadStarted), begun
        labels = [task.label for task in one.new_tasks.tasks]
        for first in range(0, len(labels), PAGE_MAX):
            page = slice(first, first + PAGE_MAX)
            yield labels[page], one.new_tasks.rows(page, begun.queues, self.harness.now, hidden=hidden)

    def catch_up(self) -> None:
        seen = self.harness.read_all()
        self.follows_store = self.follows_store or bool(seen.continuations)
        if self.follows_store:
            self.adopt(seen)

    # After every step.

    @invariant()
    def agrees(self) -> None:
        """The store is consistent, and equals the model as soon as everything is propagated."""
        seen = self.harness.read_all()
        if seen.continuations:
            self.follows_store = True
            if any(one.kind in {OPEN, SHOW} for one in seen.continuations):
                self.late_until = Millis(self.harness.now + SWEEP_MS)
            self.steps.count("a page was run", self.harness.run_some_continuations(self.pages_run))
            seen = self.harness.read_all()
        if self.follows_store:
            self.adopt(seen)
            self.harness.check_store()
            self.follows_store = bool(seen.continuations) or self.harness.now <= self.late_until
            for one in seen.continuations:
                self.steps.count(f"a continuation to {one.kind} was left open")
        if not seen.continuations:
            self.compare(seen)
            assert [step for task in self.model.tasks.values() if (step := self.model.step_of(task))] == []
        self.learn(seen)

    def adopt(self, seen: StoreContent) -> None:
        """Copy the store into the model."""
        for task in [task for task in self.model.tasks.values() if task.id not in seen.tasks]:
            assert task.hidden, "a visible task is never dropped"
            del task.graph.tasks[self.label(task.id)], self.model.tasks[task.id]
        for id, record in seen.tasks.items():
            task, life = self.model.tasks[id], record.life
            task.state, task.reason, task.hidden = life.state, Reason(record.reason), record.loading
            task.attempt, task.began_after, task.round = life.attempt, life.began_after, life.round
            task.reruns, task.retries, task.slice_index = life.reruns_used, life.retries_used, life.slice_index
            task.waits_since, task.not_before, task.said = life.waits_since_ms, life.not_before_ms, life.ended
            if life.ended is not None:
                task.ends[life.attempt] = life.ended
            task.bot, task.avoid_bot, task.until_ms = record.bot, record.avoid_bot, record.lease_until_ms
        self._adopt_spared()
        for edge in seen.edges:
            if edge.on is not On.SUCCESS and edge.handled_round is not None:
                self.model.tasks[edge.dependent].handled_round[edge.prerequisite] = edge.handled_round
        for id, graph in seen.graphs.items():
            self.model.graphs[id].canceled = graph.canceled_ms is not None
            assert (graph.state in {GraphState.CANCELING, GraphState.CANCELED}) is self.model.graphs[id].canceled

    def _adopt_spared(self) -> None:
        """Count the losses of this round that cost no retry."""
        with self.harness.store.read() as repo:
            for task in self.model.tasks.values():
                rows = [one for one in repo.attempts.of(task.id) if one.round == task.round]
                task.spared = sum((one.signal, one.reason) == ("lose", "returned") for one in rows)

    def finish(self) -> None:
        if self.load is not None:
            self.give_up()
        self.harness.run_continuations()
        self.adopt(self.harness.read_all())
        super().finish()
