"""Telling dependents how their prerequisites went on, and prerequisites how their handlers did.

A dependent that listens counts on its own row what its edges know; nobody ever counts the unfinished. Whoever has more
dependents than fit into one transaction leaves a note, and its dependents are told page by page, in the order of their
ids; while a note is open, later moves of the same task are told by notes too, one after the other. So a dependent has
always heard a first part of its prerequisite's moves, and `heard_by` says which.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskyard.core.graph.gate import LISTENING, Edges, EdgeState, known, shift
from taskyard.core.graph.verdict import Handler, Handlers, counted
from taskyard.core.machine import ENDED, UNSUCCESSFUL
from taskyard.core.words import On, State
from taskyard.store.records import Note, TaskRecord
from taskyard.store.verbs.work import EdgeRow, InEdge

if TYPE_CHECKING:
    from taskyard.lifecycle.moves import Corridor

#: The note "tell the dependents of this task".
TELL: Final = "tell"
#: How many edges one page tells.
PAGE_MAX: Final = 1_000


def tell(corridor: "Corridor") -> None:
    """Tell what the last moves ask to be told; what does not fit is left as notes."""
    _tell_prerequisites(corridor)
    _tell_dependents(corridor)
    _ask_afresh(corridor)


def page(corridor: "Corridor", note: Note) -> bool:
    """Tell one page of a note; say whether the note is done. The moves that follow are left to `corridor.send`."""
    assert note.task is not None
    assert note.source is not None
    assert note.target is not None
    task = corridor.look([note.task])[note.task]
    edges = corridor.txn.edges.page(task.id, note.cursor, PAGE_MAX + 1)
    done = len(edges) <= PAGE_MAX
    if not done:
        edges = _whole_dependents(edges)
    latest = corridor.txn.notes.about([task.id])[-1].id == note.id
    told = [(edge, State(note.source), State(note.target)) for edge in edges]
    _hear(corridor, {task.id: task} if latest else {}, told)
    if done:
        _close_note(corridor, task, note, latest)
    else:
        corridor.txn.notes.advance(note.id, edges[-1].dependent + 1)
    return done


def heard_by(dependent: int, state: State, notes: Iterable[Note]) -> State:
    """Say where `dependent` thinks its prerequisite is, which is in `state` and has these notes open, in order."""
    for note in notes:
        if note.source is not None and note.cursor <= dependent:
            return State(note.source)
    return state


def edges_of(corridor: "Corridor", dependents: Sequence[int]) -> dict[int, Edges]:
    """Count afresh what the edges of tasks know."""
    found = corridor.txn.edges.into(dependents)
    notes = _notes_by_task(corridor, {edge.prerequisite for edge in found if _is_telling(corridor, edge)})
    counts: dict[int, dict[EdgeState, int]] = defaultdict(lambda: dict.fromkeys(EdgeState, 0))
    for edge in found:
        prerequisite = corridor.known(edge.prerequisite)
        state = edge.state if prerequisite is None else prerequisite.state
        heard = heard_by(edge.dependent, state, notes.get(edge.prerequisite, ()))
        counts[edge.dependent][known(edge.on, heard)] += 1
    return {id: Edges(*counts[id].values()) if id in counts else Edges() for id in dependents}


def meet_handlers(corridor: "Corridor", handlers: Sequence[int]) -> None:
    """Count new tasks among those that deal with a failure, where it happened before they came."""
    for failed, adds in _dealing(corridor, handlers):
        corridor.handle(failed, _plus(failed.handlers, adds))


def forget_handlers(corridor: "Corridor", handlers: Sequence[int]) -> None:
    """Count tasks no more that are about to be dropped."""
    for failed, adds in _dealing(corridor, handlers):
        corridor.handle(failed, _minus(failed.handlers, adds))


def _dealing(corridor: "Corridor", handlers: Sequence[int]) -> Iterable[tuple[TaskRecord, Handlers]]:
    """Find the failures that tasks deal with and have heard of, and what each of them adds there."""
    edges = [edge for edge in corridor.txn.edges.into(handlers) if edge.on is not On.SUCCESS]
    tasks = corridor.look({edge.prerequisite for edge in edges} | {edge.dependent for edge in edges})
    notes = _notes_by_task(corridor, {edge.prerequisite for edge in edges if _is_telling(corridor, edge)})
    for edge in {(edge.prerequisite, edge.dependent): edge for edge in edges}.values():
        failed, handler = tasks[edge.prerequisite], tasks[edge.dependent]
        told = _has_heard(handler.id, notes.get(failed.id, ())) and not corridor.canceled(failed.graph)
        if failed.state in UNSUCCESSFUL and told:
            yield failed, counted(Handler(handler.state, edge.ran_for), failed.life.round)


def _tell_dependents(corridor: "Corridor") -> None:
    telling, corridor.to_tell = corridor.to_tell, []
    if not telling:
        return
    at_once = {task.id: (task, source, target) for task, source, target in telling if not task.telling}
    edges = corridor.txn.edges.out_of(at_once, corridor.untold + 1) if at_once else []
    if len(edges) > corridor.untold:
        # The last one may not be whole, and those behind it were not reached.
        reached = edges[-1].prerequisite
        edges = [edge for edge in edges if edge.prerequisite < reached]
        left = corridor.txn.edges.leading([id for id in at_once if id >= reached])
        at_once = {id: told for id, told in at_once.items() if id not in left}
    corridor.untold -= len(edges)
    told = [(edge, *at_once[edge.prerequisite][1:]) for edge in edges]
    _hear(corridor, {id: told[0] for id, told in at_once.items()}, told)
    _leave_notes(corridor, [each for each in telling if each[0].id not in at_once])


def _hear(
    corridor: "Corridor", failing: Mapping[int, TaskRecord], told: Sequence[tuple[EdgeRow, State, State]]
) -> None:
    """Let dependents hear; `failing` has the prerequisites whose handlers are counted, should they have failed."""
    dependents = corridor.look({edge.dependent for edge, _, _ in told})
    handlers: dict[tuple[int, int], EdgeRow] = {}
    heard: dict[int, TaskRecord] = {}
    for edge, source, target in told:
        dependent = dependents[edge.dependent]
        if edge.on is not On.SUCCESS and edge.prerequisite in failing and target in UNSUCCESSFUL:
            handlers[edge.prerequisite, edge.dependent] = edge
        if dependent.life.state in LISTENING:
            edges = shift(dependent.edges, edge.on, source, target)
            if edges is not dependent.edges:
                dependent.edges = edges
                heard[dependent.id] = dependent
    corridor.recount(heard.values())
    corridor.ask(heard.values())
    for edge in handlers.values():
        task, dependent = failing[edge.prerequisite], dependents[edge.dependent]
        if task.state in UNSUCCESSFUL:
            adds = counted(Handler(dependent.state, edge.ran_for), task.life.round)
            corridor.handle(task, _plus(task.handlers, adds))


def _leave_notes(corridor: "Corridor", left: Sequence[tuple[TaskRecord, State, State]]) -> None:
    """Promise to tell later. A note counts as active, and as hope that somebody will deal with a failure."""
    rows = [(TELL, task.graph, task.id, str(source), str(target), "", "") for task, source, target in left]
    corridor.txn.notes.add(rows)
    for task, _, target in left:
        task.telling += 1
        corridor.change(task)
        corridor.count(task.graph, active=1)
        if target in UNSUCCESSFUL:
            corridor.handle(task, _plus(task.handlers, Handlers(hoped=1)))


def _close_note(corridor: "Corridor", task: TaskRecord, note: Note, latest: bool) -> None:
    corridor.txn.notes.drop(note.id)
    task.telling -= 1
    corridor.change(task)
    corridor.count(task.graph, active=-1)
    if latest and note.target in UNSUCCESSFUL:
        corridor.handle(task, Handlers(task.handlers.ran, task.handlers.hoped - 1))


def _tell_prerequisites(corridor: "Corridor") -> None:
    """Move the counts of the failures that somebody who moved deals with."""
    moved, corridor.handlers_moved = corridor.handlers_moved, []
    # In a canceled graph nobody was told who deals with what, so there is nothing to take back.
    sources = {task.id: source for task, source in moved if not corridor.canceled(task.graph)}
    if not sources:
        return
    edges = [edge for edge in corridor.txn.edges.into(sorted(sources)) if edge.on is not On.SUCCESS]
    tasks = corridor.look({edge.prerequisite for edge in edges} | set(sources))
    notes = _notes_by_task(corridor, {edge.prerequisite for edge in edges if _is_telling(corridor, edge)})
    uncounted = {task.id for task, _, _ in corridor.to_tell}
    ran: list[tuple[int, int, str, int]] = []
    for edge in {(edge.prerequisite, edge.dependent): edge for edge in edges}.values():
        handler, failed = tasks[edge.dependent], tasks[edge.prerequisite]
        ran_for = failed.life.round if handler.life.ran and handler.state in ENDED else edge.ran_for
        is_counted = failed.id not in uncounted and _has_heard(handler.id, notes.get(failed.id, ()))
        if is_counted and failed.state in UNSUCCESSFUL:
            before = counted(Handler(sources[handler.id], edge.ran_for), failed.life.round)
            after = counted(Handler(handler.state, ran_for), failed.life.round)
            corridor.handle(failed, _plus(_minus(failed.handlers, before), after))
        if ran_for != edge.ran_for and ran_for is not None:
            ran += [(one.prerequisite, one.dependent, str(one.on), ran_for) for one in edges if _same(one, edge)]
    corridor.txn.edges.note_ran(ran)


def _ask_afresh(corridor: "Corridor") -> None:
    """Count the edges of tasks that a person reruns: they did not listen before."""
    rerun, corridor.rerun = corridor.rerun, {}
    for id, edges in edges_of(corridor, list(rerun)).items() if rerun else ():
        rerun[id].edges = edges
        corridor.recount([rerun[id]])


def _notes_by_task(corridor: "Corridor", tasks: Iterable[int]) -> dict[int, list[Note]]:
    found: dict[int, list[Note]] = defaultdict(list)
    for note in corridor.txn.notes.about(sorted(tasks)):
        if note.task is not None:
            found[note.task].append(note)
    return found


def _is_telling(corridor: "Corridor", edge: InEdge) -> bool:
    prerequisite = corridor.known(edge.prerequisite)
    return bool(edge.telling if prerequisite is None else prerequisite.telling)


def _has_heard(dependent: int, notes: Sequence[Note]) -> bool:
    """Tell whether a dependent has heard everything about a prerequisite with these notes."""
    return all(note.cursor > dependent for note in notes)


def _whole_dependents(edges: list[EdgeRow]) -> list[EdgeRow]:
    """Leave the last dependent to the next page, since not all of its edges may be here."""
    last = edges[-1].dependent
    whole = [edge for edge in edges if edge.dependent != last]
    assert whole, "one dependent has more edges to one task than there are kinds of edges"
    return whole


def _same(one: InEdge, other: InEdge) -> bool:
    return one.prerequisite == other.prerequisite and one.dependent == other.dependent


def _plus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran + other.ran, one.hoped + other.hoped)


def _minus(one: Handlers, other: Handlers) -> Handlers:
    return Handlers(one.ran - other.ran, one.hoped - other.hoped)
