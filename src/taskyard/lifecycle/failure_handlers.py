"""Telling failures how those who deal with them went on.

A task that ended badly counts on its own row how many handlers ran for it and how many still may. Of a handler's moves
only those are told that can change this: not that it was released, admitted or claimed. Whoever has more prerequisites
than fit into one transaction leaves a note, and they are told page by page; a failure is never forgotten meanwhile,
since until its page comes it counts the handler where it has heard it to be.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from taskyard.core.graph.state import Handler, Handlers, counted, matters
from taskyard.core.states import ENDED, FINAL, UNSUCCESSFUL, On, State
from taskyard.core.structs import value
from taskyard.store.connection import Repo
from taskyard.store.queries import TransactionConflict
from taskyard.store.repo.tasks import EdgeRow, InEdge
from taskyard.store.rows import Continuation, TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction


# Who has heard what: a task that has more to tell than fits into one transaction leaves a note.
#
# Whoever a note is for is told page by page, in the order of their ids; while it is open, later moves of the same task
# are told them by notes too, one after the other. So everybody has always heard a first part of a task's moves, and
# `heard_by` says which. What dependents hear and what prerequisites hear does not wait for each other. A note counts
# as active, so its graph cannot finish meanwhile. Nothing here tells anything.


#: The note "tell the dependents of this task".
PROPAGATE: Final = "tell"
#: The note "tell the prerequisites of this task, for it may deal with their failures now, or no more".
REPORT_TO_FAILURES: Final = "deal"
#: The same of a task that ran to its end. Until it is done nobody in the graph is rerun: else the run would count for
#: a failure that came after it.
REPORT_RUN: Final = "ran"
#: The notes that dependents wait for, and those that prerequisites wait for.
TO_DEPENDENTS: Final = frozenset({PROPAGATE})
TO_FAILURES: Final = frozenset({REPORT_TO_FAILURES, REPORT_RUN})

Edge = TypeVar("Edge")


def state_known_to(listener: int, state: State, notes: Iterable[Continuation]) -> State:
    """Say where `listener` thinks a task is that is in `state` and has these notes open for it, in order."""
    for note in notes:
        if note.source is not None and note.cursor <= listener:
            return State(note.source)
    return state


def is_up_to_date(listener: int, notes: Iterable[Continuation]) -> bool:
    """Tell whether a listener has heard everything about a task with these notes."""
    return all(note.cursor > listener for note in notes)


def continuations_of(
    transaction: "Transaction", tasks: Iterable[TaskRecord], kinds: frozenset[str]
) -> dict[int, list[Continuation]]:
    """Read what tasks have still to tell, in order; whoever is missing has told everything."""
    return continuations_about(transaction, {task.id for task in tasks if task.open_continuations}, kinds)


def continuations_about(
    transaction: "Transaction", ids: Iterable[int], kinds: frozenset[str]
) -> dict[int, list[Continuation]]:
    """Read what the tasks with these ids have still to tell."""
    found: dict[int, list[Continuation]] = defaultdict(list)
    for note in transaction.repo.continuations.of_tasks(sorted(ids)):
        if note.task is not None and note.kind in kinds:
            found[note.task].append(note)
    return found


def first_of(repo: Repo, note: Continuation) -> Continuation:
    """Find the note that those who wait for a note of a task have to hear first."""
    assert note.task is not None
    kinds = TO_FAILURES if note.kind in TO_FAILURES else TO_DEPENDENTS
    return next(one for one in repo.continuations.of_tasks([note.task]) if one.kind in kinds)


def defer(transaction: "Transaction", left: Sequence[tuple[str, TaskRecord, State, State]]) -> None:
    """Promise to tell later: a kind of note, a task, and from where to where it went."""
    rows = [(kind, task.graph, task.id, str(source), str(target), "", "") for kind, task, source, target in left]
    transaction.repo.continuations.add(rows)
    for _, task, _, _ in left:
        task.open_continuations += 1
        transaction.mark_changed(task)
        transaction.adjust_counts(task.graph, active=1)


def finish(transaction: "Transaction", task: TaskRecord, note: Continuation) -> None:
    """A note of a task is done."""
    transaction.repo.continuations.delete(note.id)
    task.open_continuations -= 1
    transaction.mark_changed(task)
    transaction.adjust_counts(task.graph, active=-1)


def whole_groups(edges: list[Edge], listener: Callable[[Edge], int]) -> list[Edge]:
    """Leave the last listener of a page to the next one, since not all of its edges may be here."""
    last = listener(edges[-1])
    found = [edge for edge in edges if listener(edge) != last]
    assert found, "there are more edges between two tasks than there are kinds of edges"
    return found


#: How many edges one page tells.
PAGE_MAX: Final = 1_000


@value
class _News:
    """How a handler went on."""

    source: State
    target: State
    ran: bool  # to its end


def to_failures(transaction: "Transaction") -> None:
    """Move the counts of the failures that somebody who moved deals with; what does not fit is left as notes."""
    moved, transaction.handlers_moved = transaction.handlers_moved, []
    # In a canceled graph nobody was told who deals with what, so there is nothing to take back.
    moved = [(task, source) for task, source in moved if matters(source, task.state)]
    moved = [(task, source) for task, source in moved if not transaction.is_canceled(task.graph)]
    if not moved:
        return
    telling = continuations_of(transaction, [task for task, _ in moved], TO_FAILURES)
    at_once: dict[int, _News] = {}
    left: list[tuple[str, TaskRecord, State, State]] = []
    for task, source in moved:
        ran, edges = task.life.ran and task.state in ENDED, _in_edges(task)
        if task.id in telling or edges > transaction.edge_budget:
            left.append((REPORT_RUN if ran else REPORT_TO_FAILURES, task, source, task.state))
        else:
            transaction.edge_budget -= edges
            at_once[task.id] = _News(source, task.state, ran)
    _tell(transaction, transaction.repo.edges.into_handlers(at_once), at_once)
    defer(transaction, left)
    transaction.ran_untold |= {task.id for kind, task, _, _ in left if kind == REPORT_RUN}


def check_rounds(transaction: "Transaction") -> None:
    """See that nobody's run is told late who ended before what was rerun here; the graphs have to be locked by now."""
    for graph in transaction.new_rounds:
        if transaction.repo.continuations.first(graph, REPORT_RUN, transaction.ran_untold) is not None:
            raise TransactionConflict("somebody ended meanwhile who may have dealt with what is rerun")


def run_page(transaction: "Transaction", note: Continuation) -> bool:
    """Tell one page of a note; say whether the note is done."""
    assert note.task is not None
    assert note.source is not None
    assert note.target is not None
    task = transaction.lock_tasks([note.task])[note.task]
    edges = (
        []
        if transaction.is_canceled(task.graph)
        else transaction.repo.edges.page_into(task.id, note.cursor, PAGE_MAX + 1)
    )
    done = len(edges) <= PAGE_MAX
    if not done:
        edges = whole_groups(edges, lambda edge: edge.prerequisite)
        transaction.repo.continuations.advance(note.id, edges[-1].prerequisite + 1)
    news = _News(State(note.source), State(note.target), note.kind == REPORT_RUN)
    # What ended for good never fails, so nobody has to know who ran for it.
    dealt = [edge for edge in edges if edge.on is not On.SUCCESS and edge.state not in FINAL]
    _tell(transaction, dealt, {task.id: news})
    if done:
        finish(transaction, task, note)
    return done


def count_handlers(
    transaction: "Transaction",
    failing: Mapping[int, TaskRecord],
    edges: Iterable[EdgeRow],
    dependents: Mapping[int, TaskRecord],
) -> None:
    """Count those who deal with what has just failed, each where its prerequisite has heard it to be."""
    pairs = {(edge.prerequisite, edge.dependent): edge for edge in edges}.values()
    notes = continuations_of(transaction, [dependents[edge.dependent] for edge in pairs], TO_FAILURES)
    for edge in pairs:
        task, dependent = failing[edge.prerequisite], dependents[edge.dependent]
        if task.state in UNSUCCESSFUL:
            state = state_known_to(task.id, dependent.state, notes.get(dependent.id, ()))
            adds = counted(Handler(state, edge.handled_round), task.life.round)
            transaction.set_handlers(task, _plus(task.handlers, adds))


def add_new_handlers(transaction: "Transaction", handlers: Sequence[int]) -> None:
    """Count new tasks among those that deal with a failure, where it happened before they came."""
    for failed, adds in _new(transaction, handlers):
        transaction.set_handlers(failed, _plus(failed.handlers, adds))


def remove_new_handlers(transaction: "Transaction", handlers: Sequence[int]) -> None:
    """Count tasks no more that nobody ever saw, and that are about to be dropped."""
    for failed, adds in _new(transaction, handlers):
        transaction.set_handlers(failed, _minus(failed.handlers, adds))


def _tell(transaction: "Transaction", edges: Sequence[InEdge], news: Mapping[int, _News]) -> None:
    """Tell prerequisites over these edges, and keep for which of their rounds a handler ran."""
    if not edges:
        return
    tasks = transaction.lock_tasks({edge.prerequisite for edge in edges})
    notes = continuations_of(transaction, tasks.values(), TO_DEPENDENTS)
    uncounted = {task.id for task, _, _ in transaction.to_tell}
    pairs: dict[tuple[int, int], list[InEdge]] = defaultdict(list)
    for edge in edges:
        pairs[edge.prerequisite, edge.dependent].append(edge)
    ran: list[tuple[int, int, str, int]] = []
    for (prerequisite, handler), same in pairs.items():
        task, heard, handled_round = tasks[prerequisite], news[handler], same[0].handled_round
        # Whoever ends while there is no failure has dealt with none: not with one that is tried again, or yet to come.
        has_failed = task.state in UNSUCCESSFUL and prerequisite not in uncounted
        now_for = task.life.round if heard.ran and has_failed else handled_round
        is_counted = prerequisite not in uncounted and is_up_to_date(handler, notes.get(prerequisite, ()))
        if is_counted and task.state in UNSUCCESSFUL:
            before = counted(Handler(heard.source, handled_round), task.life.round)
            after = counted(Handler(heard.target, now_for), task.life.round)
            transaction.set_handlers(task, _plus(_minus(task.handlers, before), after))
        if now_for is not None and now_for != handled_round:
            ran += [(prerequisite, handler, str(edge.on), now_for) for edge in same]
    transaction.repo.edges.set_handled_rounds(ran)


def _new(transaction: "Transaction", handlers: Sequence[int]) -> Iterable[tuple[TaskRecord, Handlers]]:
    """Find the failures that tasks deal with and have heard of, and what each of them adds there."""
    edges = transaction.repo.edges.into_handlers(handlers)
    tasks = transaction.lock_tasks({edge.prerequisite for edge in edges} | {edge.dependent for edge in edges})
    notes = continuations_of(transaction, tasks.values(), TO_DEPENDENTS)
    for edge in {(edge.prerequisite, edge.dependent): edge for edge in edges}.values():
        failed, handler = tasks[edge.prerequisite], tasks[edge.dependent]
        told = is_up_to_date(handler.id, notes.get(failed.id, ())) and not transaction.is_canceled(failed.graph)
        if failed.state in UNSUCCESSFUL and told:
            yield failed, counted(Handler(handler.state, edge.handled_round), failed.life.round)


def _in_edges(task: TaskRecord) -> int:
    """Say how many in-edges a task has: it counts them all, whatever they know."""
    edges = task.edges
    return edges.awaited + edges.met + edges.broken + edges.impossible


def _plus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran + other.ran, one.hoped + other.hoped)


def _minus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran - other.ran, one.hoped - other.hoped)
