"""Telling dependents how their prerequisites went on.

A dependent counts on its own row what its edges know, also while it is under way and when it has ended: a rerun finds
the counts as they should be, and nobody ever counts the unfinished. Whoever has more dependents than fit into one
transaction leaves a note, and its dependents are told page by page.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from taskyard.core.graph.gate import Edges, EdgeState, known, shift
from taskyard.core.graph.state import Handlers
from taskyard.core.states import UNSUCCESSFUL, On, State
from taskyard.lifecycle import failure_handlers
from taskyard.lifecycle.failure_handlers import PROPAGATE, TO_DEPENDENTS
from taskyard.store.repo.tasks import EdgeRow, InEdge
from taskyard.store.rows import Continuation, TaskRecord

if TYPE_CHECKING:
    from taskyard.lifecycle.transaction import Transaction

#: How many edges one page tells.
PAGE_MAX: Final = 1_000
#: By a name of its own: a word is slow to get at through its class.
_SUCCESS: Final = On.SUCCESS
#: A task, and from where to where it went.
_Told: TypeAlias = tuple[TaskRecord, State, State]


def to_dependents(transaction: "Transaction") -> None:
    """Tell what the last moves ask to be told; what does not fit is left as notes."""
    failure_handlers.to_failures(transaction)
    _tell_dependents(transaction)


def prefetch(transaction: "Transaction", tasks: Mapping[int, TaskRecord]) -> None:
    """Ask at once for what will be asked for when these tasks end, if nothing can change it until then."""
    transaction.repo.graphs.prefetch({task.graph for task in tasks.values()})
    if tasks and not any(task.is_handler or task.open_continuations for task in tasks.values()):
        transaction.repo.edges.prefetch(tasks, transaction.edge_budget + 1)


def run_page(transaction: "Transaction", note: Continuation) -> bool:
    """Tell one page of a note; say whether the note is done. The moves that follow are left to `transaction.apply`."""
    assert note.task is not None
    assert note.source is not None
    assert note.target is not None
    task = transaction.lock_tasks([note.task])[note.task]
    edges = transaction.repo.edges.page_out_of(task.id, note.cursor, PAGE_MAX + 1)
    done = len(edges) <= PAGE_MAX
    if not done:
        edges = failure_handlers.whole_groups(edges, lambda edge: edge.dependent)
    latest = failure_handlers.continuations_of(transaction, [task], TO_DEPENDENTS)[task.id][-1].id == note.id
    _hear(transaction, edges, {task.id: (task, State(note.source), State(note.target))}, latest)
    if done:
        _close_note(transaction, task, note, latest)
    else:
        transaction.repo.continuations.advance(note.id, edges[-1].dependent + 1)
    return done


def edges_of_new_tasks(transaction: "Transaction", dependents: Sequence[int]) -> dict[int, Edges]:
    """Count what the edges of new tasks know."""
    found = transaction.repo.edges.into(dependents)
    notes = failure_handlers.continuations_about(
        transaction, {edge.prerequisite for edge in found if _is_telling(transaction, edge)}, TO_DEPENDENTS
    )
    counts: dict[int, dict[EdgeState, int]] = defaultdict(lambda: dict.fromkeys(EdgeState, 0))
    for edge in found:
        prerequisite = transaction.known_task(edge.prerequisite)
        state = edge.state if prerequisite is None else prerequisite.state
        heard = failure_handlers.state_known_to(edge.dependent, state, notes.get(edge.prerequisite, ()))
        counts[edge.dependent][known(edge.on, heard)] += 1
    return {id: Edges(*counts[id].values()) if id in counts else Edges() for id in dependents}


def _tell_dependents(transaction: "Transaction") -> None:
    telling, transaction.to_tell = transaction.to_tell, []
    if not telling:
        return
    late = failure_handlers.continuations_of(transaction, [task for task, _, _ in telling], TO_DEPENDENTS)
    at_once = {task.id: (task, source, target) for task, source, target in telling if task.id not in late}
    edges = transaction.repo.edges.out_of(at_once, transaction.edge_budget + 1) if at_once else []
    if len(edges) > transaction.edge_budget:
        # The last one may not be whole, and those behind it were not reached.
        reached = edges[-1].prerequisite
        edges = [edge for edge in edges if edge.prerequisite < reached]
        left = transaction.repo.edges.with_dependents([id for id in at_once if id >= reached])
        at_once = {id: told for id, told in at_once.items() if id not in left}
    transaction.edge_budget -= len(edges)
    _hear(transaction, edges, at_once, True)
    if len(at_once) < len(telling):
        _leave_notes(transaction, [each for each in telling if each[0].id not in at_once])


def _hear(transaction: "Transaction", edges: Sequence[EdgeRow], told: Mapping[int, _Told], counts: bool) -> None:
    """Let dependents hear what is told of their prerequisites; say whether handlers of what has failed are counted."""
    if edges:
        transaction.repo.admission.prefetch_pools()  # whoever is released by this asks for them
    dependents = transaction.lock_tasks({edge.dependent for edge in edges})
    handlers: list[EdgeRow] = []
    heard: dict[int, TaskRecord] = {}
    for edge in edges:
        on, dependent = edge.on, dependents[edge.dependent]
        _, source, target = told[edge.prerequisite]
        if on is not _SUCCESS and counts and target in UNSUCCESSFUL:
            handlers.append(edge)
        known = dependent.edges
        knows = shift(known, on, source, target)
        if knows is not known:
            dependent.edges = knows
            heard[dependent.id] = dependent
    transaction.mark_edges_changed(heard)
    transaction.recheck_gates(heard.values())
    if handlers:
        failure_handlers.count_handlers(
            transaction, {id: task for id, (task, _, _) in told.items()}, handlers, dependents
        )


def _leave_notes(transaction: "Transaction", left: Sequence[tuple[TaskRecord, State, State]]) -> None:
    """Promise to tell later. A note is hope that somebody will deal with a failure."""
    failure_handlers.defer(transaction, [(PROPAGATE, *each) for each in left])
    for task, _, target in left:
        if target in UNSUCCESSFUL:
            transaction.set_handlers(task, Handlers(task.handlers.ran, task.handlers.hoped + 1))


def _close_note(transaction: "Transaction", task: TaskRecord, note: Continuation, latest: bool) -> None:
    failure_handlers.finish(transaction, task, note)
    if latest and note.target in UNSUCCESSFUL:
        transaction.set_handlers(task, Handlers(task.handlers.ran, task.handlers.hoped - 1))


def _is_telling(transaction: "Transaction", edge: InEdge) -> bool:
    prerequisite = transaction.known_task(edge.prerequisite)
    return bool(edge.open_continuations if prerequisite is None else prerequisite.open_continuations)
