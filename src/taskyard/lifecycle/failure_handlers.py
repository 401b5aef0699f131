"""Keep the handler counts of failed tasks up to date.

A failed task counts on its own row how many handlers (dependents on failure, or on any end) ran for it and how many
still may. Only those transitions of a handler are reported that can change this: not a release, an admission or a
claim. If a handler has more prerequisites than fit into one transaction, a continuation is left, and they are updated
page by page. Until then a failure counts the handler in the state of which it knows, so it never counts as unhandled
too early.

Continuations about a task are run in the order in which they were left, and each page by page in the order of ids.
While one is open, later transitions of the same task are deferred too. So a neighbour always knows a first part of the
transitions of a task, and `state_known_to` says which. What dependents learn and what prerequisites learn are
independent of each other. An open continuation counts as active, so the graph cannot finish.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from taskyard.core.graph.state import Handler, Handlers, counted, matters
from taskyard.core.states import ENDED, FINAL, UNSUCCESSFUL, On, Reason, State
from taskyard.core.structs import value
from taskyard.lifecycle.transition import StateChange
from taskyard.store.connection import Repo
from taskyard.store.queries import TransactionConflict
from taskyard.store.repo.tasks import EdgeRow, InEdge
from taskyard.store.rows import Continuation, TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: The continuation "propagate a transition of this task to its dependents".
PROPAGATE: Final = "propagate"
#: The continuation "report a transition of this handler to the failures it may handle".
REPORT_TO_FAILURES: Final = "report_to_failures"
#: The same for a handler that ran to its end. Until it is done no task of the graph is rerun: else the run would count
#: for a failure that came after it.
REPORT_RUN: Final = "report_run"
#: The continuations by which dependents learn of transitions, and those by which prerequisites do.
TO_DEPENDENTS: Final = frozenset({PROPAGATE})
TO_FAILURES: Final = frozenset({REPORT_TO_FAILURES, REPORT_RUN})
#: Along how many edges one page reports.
PAGE_MAX: Final = 1_000

Edge = TypeVar("Edge")


@value
class _HandlerChange:
    """A transition of a handler."""

    source: State
    target: State
    ran: bool  # to its end


def to_failures(
    transaction: "Transaction",
    handlers: Sequence[tuple[TaskRecord, State]],
    changes: Sequence[StateChange],
    edges_max: int,
) -> tuple[int, set[int]]:
    """Update the failures that handlers may handle, along `edges_max` edges at most.

    `handlers` have come from the state given with each; `changes` are still to be propagated to dependents. Return the
    number of edges, and the handlers that ran to their end and were left as continuations.
    """
    # In a canceled graph handlers were not counted, so there is nothing to update.
    moved = [(task, source) for task, source in handlers if matters(source, task.state)]
    moved = [(task, source) for task, source in moved if not transaction.is_canceled(task.graph)]
    if not moved:
        return 0, set()
    waiting = continuations_of(transaction, [task for task, _ in moved], TO_FAILURES)
    used = 0
    now: dict[int, _HandlerChange] = {}
    left: list[tuple[str, TaskRecord, State, State]] = []
    for task, source in moved:
        # An equal task ran in place of one that reuses its result.
        ran, edges = task.state in ENDED and (task.life.ran or task.reason == Reason.REUSED), task.edges.count
        if task.id in waiting or edges > edges_max - used:
            left.append((REPORT_RUN if ran else REPORT_TO_FAILURES, task, source, task.state))
        else:
            used += edges
            now[task.id] = _HandlerChange(source, task.state, ran)
    uncounted = {task.id for task, _, _ in changes}
    _update(transaction, transaction.repo.edges.into_handlers(now), now, uncounted)
    defer(transaction, left)
    return used, {task.id for kind, task, _, _ in left if kind == REPORT_RUN}


def run_page(transaction: "Transaction", continuation: Continuation) -> bool:
    """Update one page of failures; return whether the continuation is done."""
    assert continuation.task is not None
    assert continuation.source is not None
    assert continuation.target is not None
    task = transaction.lock_tasks([continuation.task])[continuation.task]
    edges: list[InEdge] = []
    if not transaction.is_canceled(task.graph):
        edges = transaction.repo.edges.page_into(task.id, continuation.cursor, PAGE_MAX + 1)
    done = len(edges) <= PAGE_MAX
    if not done:
        edges = whole_groups(edges, lambda edge: edge.prerequisite)
        transaction.repo.continuations.advance(continuation.id, edges[-1].prerequisite + 1)
    change = _HandlerChange(State(continuation.source), State(continuation.target), continuation.kind == REPORT_RUN)
    # A task in a final state never fails, so it needs not know which handlers ran.
    edges = [edge for edge in edges if edge.on is not On.SUCCESS and edge.state not in FINAL]
    _update(transaction, edges, {task.id: change}, frozenset())
    if done:
        complete(transaction, task, continuation)
    return done


def check_reruns(repo: Repo, rerun_graphs: Iterable[int], deferred_runs: set[int]) -> None:
    """See that no run of a handler is reported late that ended before a rerun of this transaction.

    The graphs have to be locked. `deferred_runs` are the runs that ended in this transaction.
    """
    for graph in rerun_graphs:
        if repo.continuations.first(graph, REPORT_RUN, deferred_runs) is not None:
            raise TransactionConflict("lost a race: a failure handler finished during the rerun; try again")


def count_handlers(
    transaction: "Transaction",
    failed: Mapping[int, TaskRecord],
    edges: Iterable[EdgeRow],
    dependents: Mapping[int, TaskRecord],
) -> None:
    """Count the handlers of tasks that have just failed, each in the state of which its prerequisite knows."""
    pairs = {(edge.prerequisite, edge.dependent): edge for edge in edges}.values()
    continuations = continuations_of(transaction, [dependents[edge.dependent] for edge in pairs], TO_FAILURES)
    for edge in pairs:
        task, dependent = failed[edge.prerequisite], dependents[edge.dependent]
        if task.state in UNSUCCESSFUL:
            state = state_known_to(task.id, dependent.state, continuations.get(dependent.id, ()))
            adds = counted(Handler(state, edge.handled_round), task.life.round)
            transaction.set_handlers(task, _plus(task.handlers, adds))


def add_new_handlers(transaction: "Transaction", handlers: Sequence[int]) -> None:
    """Count new tasks as handlers of the failures that happened before they were added."""
    for failed, adds in _failures_of_new(transaction, handlers):
        transaction.set_handlers(failed, _plus(failed.handlers, adds))


def remove_new_handlers(transaction: "Transaction", handlers: Sequence[int]) -> None:
    """Stop counting tasks that are about to be dropped before they became visible."""
    for failed, adds in _failures_of_new(transaction, handlers):
        transaction.set_handlers(failed, _minus(failed.handlers, adds))


def _update(
    transaction: "Transaction",
    edges: Sequence[InEdge],
    changes: Mapping[int, _HandlerChange],
    uncounted: set[int] | frozenset[int],
) -> None:
    """Update the failures over these edges, and store for which of their rounds a handler ran.

    `uncounted` are tasks whose latest transition is not propagated yet: the propagation counts their handlers.
    """
    if not edges:
        return
    tasks = transaction.lock_tasks({edge.prerequisite for edge in edges})
    continuations = continuations_of(transaction, tasks.values(), TO_DEPENDENTS)
    pairs: dict[tuple[int, int], list[InEdge]] = defaultdict(list)
    for edge in edges:
        pairs[edge.prerequisite, edge.dependent].append(edge)
    ran: list[tuple[int, int, str, int]] = []
    for (prerequisite, handler), same in pairs.items():
        task, change, old_round = tasks[prerequisite], changes[handler], same[0].handled_round
        # A handler that ends while there is no failure has handled none: not one that is retried or comes later.
        has_failed = task.state in UNSUCCESSFUL and prerequisite not in uncounted
        new_round = task.life.round if change.ran and has_failed else old_round
        if has_failed and is_up_to_date(handler, continuations.get(prerequisite, ())):
            before = counted(Handler(change.source, old_round), task.life.round)
            after = counted(Handler(change.target, new_round), task.life.round)
            transaction.set_handlers(task, _plus(_minus(task.handlers, before), after))
        if new_round is not None and new_round != old_round:
            ran += [(prerequisite, handler, str(edge.on), new_round) for edge in same]
    transaction.repo.edges.set_handled_rounds(ran)


def _failures_of_new(transaction: "Transaction", handlers: Sequence[int]) -> Iterable[tuple[TaskRecord, Handlers]]:
    """Find the failures that new tasks may handle and know of, and what each of the tasks adds to the counts there."""
    edges = transaction.repo.edges.into_handlers(handlers)
    tasks = transaction.lock_tasks({edge.prerequisite for edge in edges} | {edge.dependent for edge in edges})
    continuations = continuations_of(transaction, tasks.values(), TO_DEPENDENTS)
    for edge in {(edge.prerequisite, edge.dependent): edge for edge in edges}.values():
        failed, handler = tasks[edge.prerequisite], tasks[edge.dependent]
        knows = is_up_to_date(handler.id, continuations.get(failed.id, ()))
        if failed.state in UNSUCCESSFUL and knows and not transaction.is_canceled(failed.graph):
            yield failed, counted(Handler(handler.state, edge.handled_round), failed.life.round)


def _plus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran + other.ran, one.open + other.open)


def _minus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran - other.ran, one.open - other.open)


# Continuations about a task: what its neighbours do not know yet.


def state_known_to(neighbour: int, state: State, continuations: Iterable[Continuation]) -> State:
    """Return the state in which `neighbour` knows a task that is in `state` and has these open continuations for it."""
    for continuation in continuations:
        if continuation.source is not None and continuation.cursor <= neighbour:
            return State(continuation.source)
    return state


def is_up_to_date(neighbour: int, continuations: Iterable[Continuation]) -> bool:
    """Whether a neighbour knows every transition of a task with these open continuations."""
    return all(continuation.cursor > neighbour for continuation in continuations)


def continuations_of(
    transaction: "Transaction", tasks: Iterable[TaskRecord], kinds: frozenset[str]
) -> dict[int, list[Continuation]]:
    """Read the open continuations about tasks, in order; tasks that have none are left out."""
    return continuations_about(transaction, {task.id for task in tasks if task.open_continuations}, kinds)


def continuations_about(
    transaction: "Transaction", ids: Iterable[int], kinds: frozenset[str]
) -> dict[int, list[Continuation]]:
    """Read the open continuations about the tasks with these ids."""
    found: dict[int, list[Continuation]] = defaultdict(list)
    for continuation in transaction.repo.continuations.of_tasks(sorted(ids)):
        if continuation.task is not None and continuation.kind in kinds:
            found[continuation.task].append(continuation)
    return found


def first_of(repo: Repo, continuation: Continuation) -> Continuation:
    """Return the continuation about the same task that has to be run before this one, or this one."""
    assert continuation.task is not None
    kinds = TO_FAILURES if continuation.kind in TO_FAILURES else TO_DEPENDENTS
    return next(one for one in repo.continuations.of_tasks([continuation.task]) if one.kind in kinds)


def defer(transaction: "Transaction", left: Sequence[tuple[str, TaskRecord, State, State]]) -> None:
    """Leave continuations: of a kind, about a task that went from a state to another."""
    rows = [(kind, task.graph, task.id, str(source), str(target), "", "") for kind, task, source, target in left]
    transaction.repo.continuations.add(rows)
    for _, task, _, _ in left:
        task.open_continuations += 1
        transaction.mark_changed(task)
        transaction.adjust_counts(task.graph, active=1)


def complete(transaction: "Transaction", task: TaskRecord, continuation: Continuation) -> None:
    """Delete a continuation about a task that is done."""
    transaction.complete(continuation)
    task.open_continuations -= 1
    transaction.mark_changed(task)


def whole_groups(edges: list[Edge], neighbour: Callable[[Edge], int]) -> list[Edge]:
    """Leave the last neighbour of a page to the next page: some of its edges may not be in this one."""
    last = neighbour(edges[-1])
    found = [edge for edge in edges if neighbour(edge) != last]
    assert found, "there are more edges between two tasks than there are kinds of edges"
    return found
