"""The same life in small pages: nearly every move leaves notes, and others go on before they are taken up.

What is told late may find others in another order, so nobody can say beforehand how a step ends. While notes are open
the store has to agree with itself, which the doctor sees to, and the model follows what is there. When the last note is
gone everybody has to be where the model wants them, and from there the model says again what comes next.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from taskyard.core.fleet import SWEEP_MS
from taskyard.core.states import GraphState, Millis, On, Reason
from taskyard.lifecycle import continuations
from taskyard.lifecycle import submit as births
from taskyard.lifecycle.admission.scheduler import Bounds
from taskyard.lifecycle.commands import Code
from taskyard.lifecycle.rows import OPEN, SHOW, Rows
from taskyard.lifecycle.submit import Extension, LoadStarted, NewGraph, Submitted
from tests.lifecycle.yard import START
from tests.model.asked import Wanted, document, graphs, wanted
from tests.model.machine import GRAPHS_MAX, Lives, picks
from tests.model.premises import Seen
from tests.model.steps import OVER, code

#: How small pages are; a task may have three edges to another one, which are told together.
TOLD_MAX, PAGE_MAX, EDGES_MAX, LOOKED_MAX = 1, 2, 3, 4


class Load(NamedTuple):
    """Something that is being loaded page by page."""

    what: NewGraph | Extension
    tasks: dict[str, Wanted]
    text: object
    pages: Iterator[tuple[list[str], Rows]]


class PagedLives(Lives):
    """A life in which little fits into one transaction."""

    bounds = Bounds(page_max=2)

    def __init__(self) -> None:
        super().__init__()
        self.adrift = False  # whether the model only follows
        self.load: Load | None = None
        self.pages_kept = 1_000
        self.late_until = START  # until then the clock may not have looked at what was loaded

    @rule(pages=st.sampled_from([0, 1, 2, 1_000]))
    def be_busy(self, pages: int) -> None:
        """From now on take up so many pages after each step."""
        self.pages_kept = pages

    @precondition(lambda self: self.load is None and len(self.model.graphs) < GRAPHS_MAX)
    @rule(tasks=graphs())
    def begin_graph(self, tasks: dict[str, Wanted]) -> None:
        one = self.yard.prepared(document(tasks))
        begun = self.yard.do(lambda transaction: births.begin(transaction, one))
        self.load = Load(one, tasks, None, self.pages(one, begun, hidden=False))

    @precondition(lambda self: self.load is None)
    @rule(pick=picks, choices=st.data())
    def begin_extension(self, pick: int, choices: st.DataObject) -> None:
        graph = self.steps.some_graph(pick)
        if graph.id in self.yard.loading():
            return  # who looks is told to wait
        labels = [f"x{next(self.steps.numbers)}" for _ in range(3)]
        tasks: dict[str, Wanted] = {}
        for label in labels:
            tasks[label] = choices.draw(wanted([*graph.tasks, *tasks]))
        one = self.yard.extension(graph.id, document(tasks))
        assert one is not None
        begun = self.yard.do(lambda transaction: births.begin_extension(transaction, one))
        if self.steps.verdicts[graph.id] in OVER:
            assert code(begun) is Code.CONFLICT
        elif isinstance(begun, LoadStarted):
            self.load = Load(one, tasks, document(tasks), self.pages(one, begun, hidden=True))

    @precondition(lambda self: self.load is not None)
    @rule(dies=st.sampled_from([False, False, False, True]))
    def go_on_loading(self, dies: bool) -> None:
        """Load a page, or show all of it; or never come back."""
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
            assert self.yard.do(
                lambda transaction: births.add_page(transaction, one.new_tasks.graph_id, one.loader, page[1])
            )
        else:
            self.add_hidden(load.what, load.tasks, *page)

    def add_hidden(self, one: Extension, tasks: dict[str, Wanted], labels: list[str], rows: Rows) -> None:
        assert self.yard.do(lambda transaction: births.add_hidden_page(transaction, one, rows))
        new_tasks, new = one.new_tasks, {label: tasks[label] for label in labels}
        self.steps.now().add(new_tasks.graph_id, new, new_tasks.ids, new_tasks.created_ms, hidden=True)

    def open(self, load: Load) -> None:
        one, new_tasks = load.what, load.what.new_tasks
        if isinstance(one, NewGraph):
            assert self.yard.do(lambda transaction: births.open_graph(transaction, one)) == Submitted(
                new_tasks.graph_id
            )
            self.steps.submissions.append(one)
            self.steps.now().add(new_tasks.graph_id, load.tasks, new_tasks.ids, new_tasks.created_ms)
        else:
            assert self.yard.do(lambda transaction: births.open_extension(transaction, one)) == Submitted(
                new_tasks.graph_id
            )
            self.steps.extensions.append((new_tasks.graph_id, load.text, one))
        self.steps.count("a load was opened")

    def give_up(self) -> None:
        """Whoever loads dies, and that is noticed."""
        while self.yard.do(
            lambda transaction: continuations.drop_stale_loads(transaction, Millis(self.yard.now + 1), 2)
        ):
            pass
        self.load = None
        self.steps.count("a load was dropped")

    def pages(self, one: NewGraph | Extension, begun: object, hidden: bool) -> Iterator[tuple[list[str], Rows]]:
        assert isinstance(begun, LoadStarted), begun
        labels = [task.label for task in one.new_tasks.tasks]
        for first in range(0, len(labels), PAGE_MAX):
            page = slice(first, first + PAGE_MAX)
            yield labels[page], one.new_tasks.rows(page, begun.queues, self.yard.now, hidden=hidden)

    def catch_up(self) -> None:
        seen = self.yard.look()
        self.adrift = self.adrift or bool(seen.notes)
        if self.adrift:
            self.adopt(seen)

    # After every step.

    @invariant()
    def agrees(self) -> None:
        """The store agrees with itself, and with the model as soon as everything is told."""
        seen = self.yard.look()
        if seen.notes:
            self.adrift = True
            if any(note.kind in {OPEN, SHOW} for note in seen.notes):
                self.late_until = Millis(self.yard.now + SWEEP_MS)
            self.steps.count("a page was taken up", self.yard.keep_some(self.pages_kept))
            seen = self.yard.look()
        if self.adrift:
            self.adopt(seen)
            self.yard.consult()
            self.adrift = bool(seen.notes) or self.yard.now <= self.late_until
            for note in seen.notes:
                self.steps.count(f"a note to {note.kind} was left open")
        if not seen.notes:
            self.compare(seen)
            assert [step for task in self.model.tasks.values() if (step := self.model.wish(task))] == []
        self.learn(seen)

    def adopt(self, seen: Seen) -> None:
        """Have the model follow what is there."""
        for task in [task for task in self.model.tasks.values() if task.id not in seen.tasks]:
            assert task.hidden, "what people have seen is not dropped"
            del task.graph.tasks[self.label(task.id)], self.model.tasks[task.id]
        for id, record in seen.tasks.items():
            task, life = self.model.tasks[id], record.life
            task.state, task.reason, task.hidden = life.state, Reason(record.reason), record.loading
            task.attempt, task.began_after, task.round = life.attempt, life.began_after, life.round
            task.reruns, task.retries, task.way = life.reruns_used, life.retries_used, life.slice_index
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
        with self.yard.store.read() as repo:
            for task in self.model.tasks.values():
                rows = [one for one in repo.attempts.of(task.id) if one.round == task.round]
                task.spared = sum((one.signal, one.reason) == ("lose", "returned") for one in rows)

    def finish(self) -> None:
        if self.load is not None:
            self.give_up()
        self.yard.run_continuations()
        self.adopt(self.yard.look())
        super().finish()
