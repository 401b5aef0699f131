"""`doctor` recounts every stored count and checks the invariants; it only reads.

Give it one consistent snapshot (`store.read()`); others may go on writing meanwhile. It reads in pages, so that a store
of any size fits into memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from taskyard.core.states import Millis
from taskyard.lifecycle.doctor import fleet
from taskyard.lifecycle.doctor.finding import Finding
from taskyard.lifecycle.doctor.invariants import check_graph, check_task, settled_unnoticed, task_rows, unasked_gate
from taskyard.lifecycle.doctor.recount import (
    GraphCounts,
    GraphFacts,
    GraphSum,
    graph_differences,
    graph_facts,
    recount_graph,
    recount_task,
    task_differences,
    task_facts,
)
from taskyard.store.connection import Repo
from taskyard.store.repo.doctor import TaskRow
from taskyard.store.repo.tasks import PURGED
from taskyard.store.rows import GraphRecord

#: A limit for one list: repair what is found, and check again.
FINDINGS_MAX: Final = 10_000
#: How many graphs are summed up at once, and how many tasks are in memory.
GRAPHS_MAX: Final = 500
TASKS_MAX: Final = 500


def doctor(repo: Repo, now: Millis) -> list[Finding]:
    """Report every stored value that does not follow from the rest, at most `FINDINGS_MAX` of them."""
    return list(islice(_findings(repo, now), FINDINGS_MAX))


def _findings(repo: Repo, now: Millis) -> Iterator[Finding]:
    after = -1
    while page := repo.doctor.graphs(after, GRAPHS_MAX):
        # Of a graph that is being deleted, some rows are there and others are not.
        if kept := {graph.id: graph for graph in page if graph.loader != PURGED}:
            graphs = GraphPage(repo, kept, now)
            yield from graphs.check_tasks()
            yield from graphs.check_graphs()
        after = page[-1].id
    yield from fleet.findings(repo)


@dataclass(slots=True)
class GraphPage:
    """Some graphs with all of their tasks. `check_tasks` sums up the tasks, so it has to be exhausted first."""

    repo: Repo
    records: Mapping[int, GraphRecord]  # all graphs between the first and the last of them
    now: Millis
    facts: Mapping[int, GraphFacts] = field(init=False)
    _sums: Mapping[int, GraphSum] = field(init=False)

    def __post_init__(self) -> None:
        self.facts = graph_facts(self.repo, list(self.records.values()))
        self._sums = {id: GraphSum() for id in self.records}

    def check_tasks(self) -> Iterator[Finding]:
        """Report what is wrong with the tasks."""
        graph, after, last = min(self.records), -1, max(self.records)
        while page := self.repo.doctor.tasks(graph, after, last, TASKS_MAX):
            yield from self._check_page([task for task in page if task.graph_id in self.records])
            graph, after = page[-1].graph_id, page[-1].id

    def recounted(self) -> Iterator[tuple[GraphFacts, GraphCounts]]:
        """Return each graph with its counts as they should be."""
        for id, graph in self.facts.items():
            yield graph, recount_graph(graph, self._sums[id])

    def check_graphs(self) -> Iterator[Finding]:
        """Report what is wrong with the graphs."""
        for graph, wanted in self.recounted():
            yield from graph_differences(graph, wanted)
            yield from check_graph(graph, self._sums[graph.record.id], wanted)
        for id in self.repo.doctor.settled_inner([id for id, one in self.records.items() if one.parent is not None]):
            yield settled_unnoticed(id)

    def _check_page(self, tasks: list[TaskRow]) -> Iterator[Finding]:
        facts, rows = task_facts(self.repo, tasks, self.facts), task_rows(self.repo, [task.id for task in tasks])
        for task in tasks:
            graph = self.facts[task.graph_id]
            wanted = recount_task(task, facts, graph, self.now)
            self._sums[task.graph_id].add(wanted, rows.replays[task.id], graph.counts(task))
            yield from task_differences(task, wanted)
            yield from check_task(task, rows, facts, graph)
            yield from unasked_gate(wanted, graph)
