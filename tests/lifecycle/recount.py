"""Recounts a whole store: every stored count must be what the rows add up to.

It uses only the core, nothing of the lifecycle package. While continuations are open, some transitions are not
propagated yet, so it compares only counts that do not depend on them. In a canceled graph nothing is propagated.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from taskyard.core.graph.gate import LISTENING, Edges, EdgeState, gate, known, signals
from taskyard.core.graph.state import Handler, Handlers, Member, handlers_of, tally, verdict
from taskyard.core.states import LEASED, UNSUCCESSFUL, On, State
from taskyard.store.connection import Repo
from taskyard.store.repo.tasks import InEdge
from taskyard.store.rows import Continuation, GraphRecord, TaskRecord

MANY = 1_000_000


def recount(repo: Repo) -> None:
    """Check the stored counts of every graph and its tasks."""
    for graph in repo.doctor.graphs(-1, MANY):
        if graph.loader is None:
            recount_graph(repo, graph)


def recount_graph(repo: Repo, graph: GraphRecord) -> None:
    """Check the stored counts of one graph and its tasks."""
    ids = repo.tasks.page(graph.id, State, -1, MANY)
    tasks = {task.id: task for task in repo.tasks.read(ids)}
    continuations = [one for one in repo.continuations.after(-1, MANY) if one.graph == graph.id]
    edges = repo.edges.into(ids)
    check_tasks(tasks.values(), continuations)
    check_tally(graph, tasks, edges, continuations)
    if not continuations and graph.canceled_ms is None:
        check_edges(tasks, edges)
        check_handlers(tasks, edges)
    check_events(repo, graph, tasks)
    check_attempts(repo, tasks)


def check_tasks(tasks: Iterable[TaskRecord], continuations: list[Continuation]) -> None:
    """A task has a bot exactly if it is leased, and each task counts the continuations about it."""
    open_continuations: dict[int, int] = defaultdict(int)
    for one in continuations:
        if one.task is not None:
            open_continuations[one.task] += 1
    for task in tasks:
        assert (task.bot is not None) == (task.state in LEASED), task
        assert task.open_continuations == open_continuations[task.id], task


def check_tally(
    graph: GraphRecord, tasks: dict[int, TaskRecord], edges: list[InEdge], continuations: list[Continuation]
) -> None:
    """The graph counts its visible tasks and its continuations, and its state follows from that."""
    visible = {str(id): Member(task.state, task.life.round) for id, task in tasks.items() if not task.loading}
    counted, kept = tally(visible, {str(id): who for id, who in handlers(tasks, edges).items()}), graph.tally
    assert (kept.active, kept.behind) == (counted.active + len(continuations), counted.behind)
    assert kept.unhandled == counted.unhandled or continuations or graph.canceled_ms is not None
    assert graph.state is verdict(graph.tally, graph.canceled_ms is not None)


def check_edges(tasks: dict[int, TaskRecord], edges: list[InEdge]) -> None:
    """The edge counts of each task are right, and each task that its gate can still move is where its gate wants it."""
    counts: dict[int, dict[EdgeState, int]] = {id: dict.fromkeys(EdgeState, 0) for id in tasks}
    for edge in edges:
        counts[edge.dependent][known(edge.on, tasks[edge.prerequisite].state)] += 1
    for task in tasks.values():
        assert task.edges == Edges(*counts[task.id].values()), task
        if task.state in LISTENING and not task.loading:
            wanted = gate(task.edges, task.join, task.on_impossible)
            assert signals(task.state, wanted) == (), task


def check_handlers(tasks: dict[int, TaskRecord], edges: list[InEdge]) -> None:
    """The handler counts of each failed task are right."""
    found = handlers(tasks, edges)
    for task in tasks.values():
        if task.state in UNSUCCESSFUL:
            counted = handlers_of(Member(task.state, task.life.round), found.get(task.id, ()))
            assert task.handlers == counted, task
        assert min(task.handlers.ran, task.handlers.open) >= 0, task
        assert isinstance(task.handlers, Handlers)


def handlers(tasks: dict[int, TaskRecord], edges: list[InEdge]) -> dict[int, list[Handler]]:
    """The failure handlers of each task, each once."""
    found = {
        (edge.prerequisite, edge.dependent): Handler(tasks[edge.dependent].state, edge.handled_round)
        for edge in edges
        if edge.on is not On.SUCCESS
    }
    by_task: dict[int, list[Handler]] = defaultdict(list)
    for (prerequisite, _), handler in found.items():
        by_task[prerequisite].append(handler)
    return by_task


def check_events(repo: Repo, graph: GraphRecord, tasks: dict[int, TaskRecord]) -> None:
    """Events are numbered without a gap, and the last event of each graph and task has its state."""
    found = {id: repo.events.of(id, 0, MANY) for id in [graph.id, *tasks]}
    numbers = sorted(event.number for events in found.values() for event in events)
    assert numbers == list(range(1, graph.events + 1))
    assert found[graph.id][-1].target == graph.state
    for id, task in tasks.items():
        steps = [(event.source, event.target) for event in found[id]]
        assert [source for source, _ in steps[1:]] == [target for _, target in steps[:-1]], steps
        assert (steps[-1][1] if steps else "unscheduled") == task.state, steps


def check_attempts(repo: Repo, tasks: dict[int, TaskRecord]) -> None:
    """Attempts are numbered from 1, do not overlap, and only the last of a leased task is open; fences rise."""
    for task in tasks.values():
        attempts = repo.attempts.of(task.id) if task.life.attempt else []
        assert [one.number for one in attempts] == list(range(1, task.life.attempt + 1))
        assert [one.ended_ms is None for one in attempts] == [
            one.number == task.life.attempt and task.state in LEASED for one in attempts
        ]
        fences = [one.fence for one in attempts]
        assert fences == sorted(set(fences))
        for one, following in pairwise(attempts):
            assert one.ended_ms is not None
            assert one.ended_ms <= following.claimed_ms
