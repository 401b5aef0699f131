"""Telling failures how those who deal with them went on.

A task that ended badly counts on its own row how many handlers ran for it and how many still may. Of a handler's moves
only those are told that can change this: not that it was released, admitted or claimed. Whoever has more prerequisites
than fit into one transaction leaves a note, and they are told page by page; a failure is never forgotten meanwhile,
since until its page comes it counts the handler where it has heard it to be.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskyard.core.graph.verdict import Handler, Handlers, counted, matters
from taskyard.core.machine import ENDED, FINAL, UNSUCCESSFUL
from taskyard.core.values import value
from taskyard.core.words import On, State
from taskyard.lifecycle import hearing
from taskyard.lifecycle.hearing import DEAL, DEALING, RAN, TELLING
from taskyard.store.records import Note, TaskRecord
from taskyard.store.sessions import Busy
from taskyard.store.verbs.work import EdgeRow, InEdge

if TYPE_CHECKING:
    from taskyard.lifecycle.moves import Corridor

#: How many edges one page tells.
PAGE_MAX: Final = 1_000


@value
class _News:
    """How a handler went on."""

    source: State
    target: State
    ran: bool  # to its end


def tell_prerequisites(corridor: "Corridor") -> None:
    """Move the counts of the failures that somebody who moved deals with; what does not fit is left as notes."""
    moved, corridor.handlers_moved = corridor.handlers_moved, []
    # In a canceled graph nobody was told who deals with what, so there is nothing to take back.
    moved = [(task, source) for task, source in moved if matters(source, task.state)]
    moved = [(task, source) for task, source in moved if not corridor.canceled(task.graph)]
    if not moved:
        return
    telling = hearing.notes_of(corridor, [task for task, _ in moved], DEALING)
    at_once: dict[int, _News] = {}
    left: list[tuple[str, TaskRecord, State, State]] = []
    for task, source in moved:
        ran, edges = task.life.ran and task.state in ENDED, _in_edges(task)
        if task.id in telling or edges > corridor.untold:
            left.append((RAN if ran else DEAL, task, source, task.state))
        else:
            corridor.untold -= edges
            at_once[task.id] = _News(source, task.state, ran)
    _tell(corridor, corridor.txn.edges.dealt(at_once), at_once)
    hearing.leave(corridor, left)
    corridor.ran_untold |= {task.id for kind, task, _, _ in left if kind == RAN}


def check_rounds(corridor: "Corridor") -> None:
    """See that nobody's run is told late who ended before what was rerun here; the graphs have to be locked by now."""
    for graph in corridor.new_rounds:
        if corridor.txn.notes.first(graph, RAN, corridor.ran_untold) is not None:
            raise Busy("somebody ended meanwhile who may have dealt with what is rerun")


def page(corridor: "Corridor", note: Note) -> bool:
    """Tell one page of a note; say whether the note is done."""
    assert note.task is not None
    assert note.source is not None
    assert note.target is not None
    task = corridor.look([note.task])[note.task]
    edges = [] if corridor.canceled(task.graph) else corridor.txn.edges.page_into(task.id, note.cursor, PAGE_MAX + 1)
    done = len(edges) <= PAGE_MAX
    if not done:
        edges = hearing.whole(edges, lambda edge: edge.prerequisite)
        corridor.txn.notes.advance(note.id, edges[-1].prerequisite + 1)
    news = _News(State(note.source), State(note.target), note.kind == RAN)
    # What ended for good never fails, so nobody has to know who ran for it.
    dealt = [edge for edge in edges if edge.on is not On.SUCCESS and edge.state not in FINAL]
    _tell(corridor, dealt, {task.id: news})
    if done:
        hearing.close(corridor, task, note)
    return done


def count_handlers(
    corridor: "Corridor",
    failing: Mapping[int, TaskRecord],
    edges: Iterable[EdgeRow],
    dependents: Mapping[int, TaskRecord],
) -> None:
    """Count those who deal with what has just failed, each where its prerequisite has heard it to be."""
    pairs = {(edge.prerequisite, edge.dependent): edge for edge in edges}.values()
    notes = hearing.notes_of(corridor, [dependents[edge.dependent] for edge in pairs], DEALING)
    for edge in pairs:
        task, dependent = failing[edge.prerequisite], dependents[edge.dependent]
        if task.state in UNSUCCESSFUL:
            state = hearing.heard_by(task.id, dependent.state, notes.get(dependent.id, ()))
            adds = counted(Handler(state, edge.ran_for), task.life.round)
            corridor.handle(task, _plus(task.handlers, adds))


def meet_handlers(corridor: "Corridor", handlers: Sequence[int]) -> None:
    """Count new tasks among those that deal with a failure, where it happened before they came."""
    for failed, adds in _new(corridor, handlers):
        corridor.handle(failed, _plus(failed.handlers, adds))


def forget_handlers(corridor: "Corridor", handlers: Sequence[int]) -> None:
    """Count tasks no more that nobody ever saw, and that are about to be dropped."""
    for failed, adds in _new(corridor, handlers):
        corridor.handle(failed, _minus(failed.handlers, adds))


def _tell(corridor: "Corridor", edges: Sequence[InEdge], news: Mapping[int, _News]) -> None:
    """Tell prerequisites over these edges, and keep for which of their rounds a handler ran."""
    if not edges:
        return
    tasks = corridor.look({edge.prerequisite for edge in edges})
    notes = hearing.notes_of(corridor, tasks.values(), TELLING)
    uncounted = {task.id for task, _, _ in corridor.to_tell}
    pairs: dict[tuple[int, int], list[InEdge]] = defaultdict(list)
    for edge in edges:
        pairs[edge.prerequisite, edge.dependent].append(edge)
    ran: list[tuple[int, int, str, int]] = []
    for (prerequisite, handler), same in pairs.items():
        task, heard, ran_for = tasks[prerequisite], news[handler], same[0].ran_for
        # Whoever ends while there is no failure has dealt with none: not with one that is tried again, or yet to come.
        has_failed = task.state in UNSUCCESSFUL and prerequisite not in uncounted
        now_for = task.life.round if heard.ran and has_failed else ran_for
        is_counted = prerequisite not in uncounted and hearing.has_heard(handler, notes.get(prerequisite, ()))
        if is_counted and task.state in UNSUCCESSFUL:
            before = counted(Handler(heard.source, ran_for), task.life.round)
            after = counted(Handler(heard.target, now_for), task.life.round)
            corridor.handle(task, _plus(_minus(task.handlers, before), after))
        if now_for is not None and now_for != ran_for:
            ran += [(prerequisite, handler, str(edge.on), now_for) for edge in same]
    corridor.txn.edges.note_ran(ran)


def _new(corridor: "Corridor", handlers: Sequence[int]) -> Iterable[tuple[TaskRecord, Handlers]]:
    """Find the failures that tasks deal with and have heard of, and what each of them adds there."""
    edges = corridor.txn.edges.dealt(handlers)
    tasks = corridor.look({edge.prerequisite for edge in edges} | {edge.dependent for edge in edges})
    notes = hearing.notes_of(corridor, tasks.values(), TELLING)
    for edge in {(edge.prerequisite, edge.dependent): edge for edge in edges}.values():
        failed, handler = tasks[edge.prerequisite], tasks[edge.dependent]
        told = hearing.has_heard(handler.id, notes.get(failed.id, ())) and not corridor.canceled(failed.graph)
        if failed.state in UNSUCCESSFUL and told:
            yield failed, counted(Handler(handler.state, edge.ran_for), failed.life.round)


def _in_edges(task: TaskRecord) -> int:
    """Say how many in-edges a task has: it counts them all, whatever they know."""
    edges = task.edges
    return edges.awaited + edges.met + edges.broken + edges.impossible


def _plus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran + other.ran, one.hoped + other.hoped)


def _minus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran - other.ran, one.hoped - other.hoped)
