"""The room where graphs are born and grow.

A graph that fits one transaction is inserted by one. A larger one is begun, inserted in pages while nobody sees it, and
opened by one last commit; those of its tasks that wait for nobody are then released in pages. An extension that is
large is hidden in the same way while it is loaded, and its graph cannot finish meanwhile.

The same create repeated is an echo, at any later moment; so is the same extension. Another body is refused.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskyard.core.admission import rules
from taskyard.core.explain_text import counted
from taskyard.core.graph.errors import Fault
from taskyard.core.graph.model import GraphDefinition, Task
from taskyard.core.graph.state import changeable
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import DEFAULT_POOL, Dimensions
from taskyard.core.states import GraphState, Outcome, Signal, State, step
from taskyard.lifecycle import failure_handlers, propagate, queues, selection, subgraph
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.rows import DROP, LOAD, OPEN, SHOW, NewTasks, Rows, fitting
from taskyard.lifecycle.selection import Pages
from taskyard.lifecycle.subgraph import Inside
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import move_by
from taskyard.store.connection import Txn
from taskyard.store.repo.tasks import RerunRow
from taskyard.store.rows import GraphRecord, Note

# The room where a new graph takes over what an older one has done: its tasks succeed without having run.
#
# All that is taken over at once is moved before anybody hears of it; where it takes several transactions, dependents
# are moved before what they require. So nothing that is to be taken over is ever released by what it hangs on. Until
# all of it is, no task that waits for nobody is released either. Nothing here knows what the older graph was.


#: The note "these tasks are done because others were".
REUSE: Final = "reuse"
#: What the audit calls the wish to run something again.
RERUN: Final = "rerun"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a new graph runs again."""

    row: RerunRow
    told: str  # for people: from where on, and how much of it is taken over
    pages: Pages  # the tasks that are, dependents before what they require


def take_over(corridor: Transaction, ids: Collection[int]) -> None:
    """Let tasks succeed without having run, where they still can."""
    tasks = [task for task in corridor.look(ids).values() if step(task.state, Signal.REUSE).outcome is Outcome.MOVE]
    corridor.send([move_by(task, Signal.REUSE) for task in tasks])


def promise(corridor: Transaction, graph: int, origin: Origin, actor: str) -> None:
    """Leave notes to take over what a large graph is born with."""
    selection.promise(corridor, REUSE, graph, _filled(origin.pages), actor)


def reuse_page(corridor: Transaction, note: Note) -> bool:
    """Take over the tasks of a note; say that this was all."""
    if not corridor.canceled(note.graph):
        take_over(corridor, selection.promised(note))
    selection.keep_promise(corridor, note)
    return True


def _filled(pages: Pages) -> Sequence[Sequence[int]]:
    return [page for page in pages if page]


#: How many ordinary tasks one transaction inserts or releases; one with many edges weighs more.
PAGE_MAX: Final = 1_000
#: How many tasks one page looks through for those it releases.
SEEN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Submission:
    """A graph that passed validation, with the keys of its tasks."""

    graph: GraphDefinition
    brood: NewTasks
    definition: tuple[str, str, str, str, str, str]  # scheduler, name, routing, description, tags, digest
    loader: str  # who loads it: a fresh word for each try
    actor: str = ""
    inside: Inside | None = None  # the attempt that it is, if it is inside a task
    origin: Origin | None = None  # what it runs again


@dataclass(frozen=True, slots=True)
class Extension:
    """Tasks that are to be added to a graph, with their keys, checked against what the graph was."""

    brood: NewTasks
    extensions: int  # how often the graph had been extended when this was checked
    loader: str
    actor: str = ""
    key: str = ""  # what its sender calls it; empty if it is repeated without one
    digest: str = ""  # what is compared when the key comes again


@dataclass(frozen=True, slots=True)
class Submitted:
    """A graph is stored."""

    graph: int
    echo: bool = False
    names: Mapping[str, int] = field(default_factory=dict, compare=False)  # its tasks by label; none: look for them


@dataclass(frozen=True, slots=True)
class Loading:
    """A graph is begun: its pages can come, each slice with the queue it belongs to."""

    graph: int
    queues: dict[Dimensions, int]


@dataclass(frozen=True, slots=True)
class Changed:
    """The graph was extended by somebody else meanwhile: check again."""


def submit(corridor: Transaction, submissions: Sequence[Submission]) -> list[Submitted | Refusal]:
    """Store small graphs, each whole."""
    return [_submit(corridor, one) for one in submissions]


def begin(corridor: Transaction, one: Submission) -> Loading | Submitted | Refusal:
    """Begin a graph: nobody sees it yet. One that was begun and never opened has to be dropped first."""
    txn, brood = corridor.txn, one.brood
    refusal = _unborn(corridor, one) or impossible(txn, _asking(brood))
    if refusal is not None:
        return refusal
    around = _pools_around(corridor, one)
    if one.inside is not None and not brood.pools <= around:
        named = ", ".join(sorted(brood.pools - around))
        return Refusal(Code.INVALID, f"the graph inside names pools that the graph around it does not: {named}")
    if corridor.look([brood.graph_id]):
        return Refusal(Code.CONFLICT, f"{text_of(Key(brood.graph_id))} is the id of a task: take another one")
    inside = None if one.inside is None else (one.inside.task, one.inside.attempt)
    if not txn.graphs.add(brood.graph_id, GraphState.RUNNING.value, corridor.now, one.loader, inside):
        return _exists(corridor, one)
    txn.graphs.define(brood.graph_id, one.definition)
    txn.graphs.add_pools(brood.graph_id, brood.pools or around)
    if one.origin is not None:
        txn.reuses.begin(brood.graph_id, one.origin.row)
    return Loading(brood.graph_id, queues.ensure(txn, brood.dimensions))


def add_page(corridor: Transaction, graph: int, loader: str, rows: Rows) -> bool:
    """Insert a page of a graph that `loader` has begun; tell whether it still may."""
    found = corridor.txn.graphs.look([graph])
    if not found or found[0].loader != loader:
        return False
    _insert(corridor, rows)
    return True


def open_graph(corridor: Transaction, one: Submission) -> Submitted | Refusal:
    """Make a graph that was loaded in pages visible; its tasks are released by a note."""
    id = one.brood.graph_id
    found = corridor.txn.graphs.look([id])
    if not found or found[0].loader != one.loader:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} is being loaded by somebody else")
    refusal = _unborn(corridor, one)
    if refusal is not None:
        return refusal
    _born(corridor, one)
    if one.origin is not None:
        promise(corridor, id, one.origin, one.actor)
    corridor.txn.notes.add([(OPEN, id, None, None, None, "", "")])
    corridor.count(id, active=1)
    return Submitted(id)


def open_page(corridor: Transaction, note: Note) -> bool:
    """Release some of the tasks that wait for nobody; say whether that was all."""
    window = PAGE_MAX // 4 or 1
    most = 2 * window  # to release a task takes twice as long as to insert it
    page: list[int] = []
    last, seen, done = note.cursor, 0, False
    # Few of many tasks may wait for nobody, so a page ends with what was looked through, too.
    while not done and len(page) + window <= most and seen < SEEN_MAX:
        found = corridor.txn.tasks.roots(note.graph, State.UNSCHEDULED, last, window)
        page += [id for id, is_root in found if is_root]
        last, seen, done = found[-1][0] if found else last, seen + len(found), len(found) < window
    corridor.ask(corridor.look(page).values())
    return _turn_page(corridor, note, [last], done)


def extend(corridor: Transaction, extensions: Sequence[Extension]) -> list[Submitted | Changed | Refusal]:
    """Add small extensions, each whole."""
    return [_extend(corridor, one) for one in extensions]


def begin_extension(corridor: Transaction, one: Extension) -> Loading | Changed | Refusal:
    """Begin a large extension: until it is opened or dropped, its graph cannot finish."""
    graph = _extendable(corridor, one)
    if not isinstance(graph, GraphRecord):
        return graph
    if any(corridor.txn.notes.first(graph.id, kind) for kind in (LOAD, SHOW, DROP)):
        # Hidden tasks do not say which extension they belong to, so there is one at a time.
        return Refusal(Code.LOADING, f"graph {text_of(Key(graph.id))} is being extended")
    corridor.txn.notes.add([(LOAD, graph.id, None, one.loader, None, "", one.actor)])
    begun = _load_note(corridor, one)
    assert begun is not None
    corridor.txn.notes.advance(begun.id, corridor.now)  # since when it is being loaded
    corridor.txn.graphs.count_extension(graph.id, graph.extensions + 1)
    corridor.txn.graphs.add_pools(graph.id, one.brood.pools)
    corridor.count(graph.id, active=1)
    return Loading(graph.id, queues.ensure(corridor.txn, one.brood.dimensions))


def add_hidden_page(corridor: Transaction, one: Extension, rows: Rows) -> bool:
    """Insert a page of an extension; tell whether it still may."""
    if _load_note(corridor, one) is None:
        return False
    _insert(corridor, rows)
    _learn_edges(corridor, [row[0] for row in rows.tasks])
    return True


def open_extension(corridor: Transaction, one: Extension) -> Submitted | Refusal:
    """Show an extension that was loaded in pages: a note does it, page by page."""
    note, id = _load_note(corridor, one), one.brood.graph_id
    if note is None:
        return Refusal(
            Code.CONFLICT, f"the extension of graph {text_of(Key(id))} took too long to load and was dropped"
        )
    corridor.txn.notes.drop(note.id)
    corridor.txn.notes.add([(SHOW, id, None, None, None, "", one.actor)])
    corridor.audit(one.actor, "extend", id, counted(len(one.brood.tasks), "task"))
    return Submitted(id)


def show_page(corridor: Transaction, note: Note) -> bool:
    """Show some tasks of an extension and ask their gates; say whether that was all."""
    ids, done = _hidden_page(corridor, note.graph, note.cursor)
    corridor.txn.tasks.unhide(ids)
    tasks = corridor.look(ids)
    for task in tasks.values():
        task.hidden = False
    corridor.count(note.graph, behind=len(ids))
    corridor.ask(tasks.values())
    return _turn_page(corridor, note, ids, done)


def drop_page(corridor: Transaction, note: Note) -> bool:
    """Drop some tasks of an extension that never became whole; say whether that was all."""
    ids, done = _hidden_page(corridor, note.graph, -1)
    failure_handlers.forget_handlers(corridor, ids)
    corridor.send()
    corridor.txn.tasks.drop(ids)
    return _turn_page(corridor, note, ids, done)


def _submit(corridor: Transaction, one: Submission) -> Submitted | Refusal:
    begun = begin(corridor, one)
    if not isinstance(begun, Loading):
        return begun
    rows = one.brood.rows(slice(None), begun.queues, corridor.now)
    _insert(corridor, rows)
    _born(corridor, one)
    ids, reused = one.brood.ids, one.brood.reused
    if reused:
        take_over(corridor, [ids[label] for label in reused])
    roots = [ids[task.label] for task in one.brood.tasks if not task.requires and task.label not in reused]
    corridor.ask(corridor.look(roots).values())
    corridor.send()
    return Submitted(begun.graph)


def _unborn(corridor: Transaction, one: Submission) -> Refusal | None:
    """Refuse a graph whose task does not want it any more."""
    return None if one.inside is None else subgraph.closed(corridor, one.inside)


def _pools_around(corridor: Transaction, one: Submission) -> frozenset[str]:
    """Name the pools that a graph belongs to in which nothing names one.

    They are those of the graph that it is inside of, or that it runs again; else the default one.
    """
    if one.inside is not None:
        source = corridor.look([one.inside.task])[one.inside.task].graph
    elif one.origin is not None:
        source = one.origin.row.source
    else:
        return frozenset({DEFAULT_POOL})
    return corridor.txn.access.pools_of([source])[source]


def _born(corridor: Transaction, one: Submission) -> None:
    id = one.brood.graph_id
    if one.inside is not None:
        subgraph.begin(corridor, one.inside)
    corridor.txn.graphs.set_loader(id, None)
    corridor.txn.graphs.set_created(id, one.brood.created_ms)
    corridor.born(id)
    corridor.count(id, behind=len(one.brood.tasks))
    note = counted(len(one.brood.tasks), "task")
    if one.origin is not None:
        note += f", {one.origin.told}"
        corridor.audit(one.actor, RERUN, one.origin.row.source, f"{one.origin.told}, as graph {text_of(Key(id))}")
    corridor.audit(one.actor, "submit", id, note)


def _extend(corridor: Transaction, one: Extension) -> Submitted | Changed | Refusal:
    _look_at_prerequisites(corridor, one.brood)
    graph = _extendable(corridor, one)
    if not isinstance(graph, GraphRecord):
        return graph
    known = queues.ensure(corridor.txn, one.brood.dimensions)
    _insert(corridor, one.brood.rows(slice(None), known, corridor.now))
    ids = [one.brood.ids[task.label] for task in one.brood.tasks]
    _learn_edges(corridor, ids)
    corridor.txn.graphs.count_extension(graph.id, graph.extensions + 1)
    corridor.txn.graphs.add_pools(graph.id, one.brood.pools)
    corridor.count(graph.id, behind=len(ids))
    corridor.audit(one.actor, "extend", graph.id, counted(len(ids), "task"))
    corridor.ask(corridor.look(ids).values())
    corridor.send()
    return Submitted(graph.id)


def _look_at_prerequisites(corridor: Transaction, brood: NewTasks) -> None:
    """Look at what new tasks require before anybody looks at the graph: tasks are always locked before their graph."""
    new = {task.label for task in brood.tasks}
    corridor.look({brood.ids[edge.task] for task in brood.tasks for edge in task.requires if edge.task not in new})


def _extendable(corridor: Transaction, one: Extension) -> GraphRecord | Changed | Refusal:
    refusal = impossible(corridor.txn, _asking(one.brood))
    if refusal is not None:
        return refusal
    found = corridor.txn.graphs.look([one.brood.graph_id])
    if not found or found[0].loader is not None:
        return Refusal(Code.NOT_FOUND, f"there is no graph {text_of(Key(one.brood.graph_id))}")
    graph = found[0]
    if graph.extensions != one.extensions:
        return Changed()
    if not changeable(graph.state):
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(graph.id))} is {graph.state}: it takes no more tasks")
    return graph


def _exists(corridor: Transaction, one: Submission) -> Submitted | Refusal:
    id = one.brood.graph_id
    definition = corridor.txn.graphs.definition(id)
    if definition is None or definition[5] != one.definition[5]:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} exists, and was submitted with another body")
    if corridor.txn.graphs.peek([id])[0].loader is not None:
        return Refusal(Code.LOADING, f"graph {text_of(Key(id))} is being loaded")
    return Submitted(id, echo=True)


def _asking(brood: NewTasks) -> Iterable[Task]:
    """Name the tasks that are going to run: what is taken over from another graph asks for nothing."""
    return (task for task in brood.tasks if task.label not in brood.reused) if brood.reused else brood.tasks


def impossible(txn: Txn, tasks: Iterable[Task]) -> Refusal | None:
    """Refuse demands that no named limit can ever meet."""
    asking = [task for task in tasks if task.limits]
    totals = txn.passes.named_limits() if asking else {}
    faults = [
        Fault(f"tasks.{task.label}.task.limits.{name}", _limit_says(name, amount, totals.get(name)))
        for task in asking
        for name, amount in rules.impossible_demands(task.limits, totals)
    ]
    return Refusal(Code.INVALID, "some limits can never be met", tuple(faults)) if faults else None


def _limit_says(name: str, amount: int, total: int | None) -> str:
    if total is None:
        return f"there is no limit {name}; an admin makes it with: taskyard limits set {shlex.quote(name)} {amount}"
    return f"asks for {amount}; there are {total} in all"


def _insert(corridor: Transaction, rows: Rows) -> None:
    tasks = corridor.txn.tasks
    tasks.add(rows.tasks)
    tasks.add_definitions(rows.definitions)
    corridor.txn.edges.add(rows.edges)
    tasks.add_mutexes(rows.mutexes)
    tasks.add_limits(rows.limits)
    corridor.txn.reuses.add(rows.reuses)
    corridor.txn.reuses.copy_results(rows.copies)


def _learn_edges(corridor: Transaction, ids: Sequence[int]) -> None:
    """Count what the edges of new tasks know: some prerequisites may have ended already."""
    tasks = corridor.look(ids)
    for id, edges in propagate.edges_of(corridor, ids).items():
        if edges != tasks[id].edges:
            tasks[id].edges = edges
            corridor.change(tasks[id])
    failure_handlers.meet_handlers(corridor, [task.id for task in tasks.values() if task.handles])


def _load_note(corridor: Transaction, one: Extension) -> Note | None:
    notes = corridor.txn.notes.in_graph(one.brood.graph_id, LOAD)
    return next((note for note in notes if note.source == one.loader), None)


def _hidden_page(corridor: Transaction, graph: int, after: int) -> tuple[list[int], bool]:
    """Name tasks that are still hidden, as many as are a page with their edges; tell whether these are all."""
    found = corridor.txn.tasks.hidden(graph, after, PAGE_MAX)
    tasks = corridor.look(found)
    ids = found[: fitting([tasks[id].edges.count for id in found], PAGE_MAX)]
    return ids, len(ids) == len(found) < PAGE_MAX


def _turn_page(corridor: Transaction, note: Note, ids: Sequence[int], done: bool) -> bool:
    """Go on with the next page, or be done."""
    if done:
        corridor.txn.notes.drop(note.id)
        corridor.count(note.graph, active=-1)
    else:
        corridor.txn.notes.advance(note.id, ids[-1])
    return done
