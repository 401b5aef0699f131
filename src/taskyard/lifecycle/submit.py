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
from taskyard.lifecycle.rows import DROP, LOAD, OPEN, SHOW, NewTasks, Rows, count_fitting
from taskyard.lifecycle.selection import Pages
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import transition_by
from taskyard.store.connection import Repo
from taskyard.store.repo.tasks import RerunRow
from taskyard.store.rows import Continuation, GraphRecord

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
class RerunOrigin:
    """What a new graph runs again."""

    row: RerunRow
    told: str  # for people: from where on, and how much of it is taken over
    pages: Pages  # the tasks that are, dependents before what they require


def reuse_tasks(transaction: Transaction, ids: Collection[int]) -> None:
    """Let tasks succeed without having run, where they still can."""
    tasks = [
        task for task in transaction.lock_tasks(ids).values() if step(task.state, Signal.REUSE).outcome is Outcome.MOVE
    ]
    transaction.apply([transition_by(task, Signal.REUSE) for task in tasks])


def defer_reuse(transaction: Transaction, graph: int, origin: RerunOrigin, actor: str) -> None:
    """Leave notes to take over what a large graph is born with."""
    selection.defer(transaction, REUSE, graph, _filled(origin.pages), actor)


def reuse_page(transaction: Transaction, note: Continuation) -> bool:
    """Take over the tasks of a note; say that this was all."""
    if not transaction.is_canceled(note.graph):
        reuse_tasks(transaction, selection.task_ids_of(note))
    selection.finish(transaction, note)
    return True


def _filled(pages: Pages) -> Sequence[Sequence[int]]:
    return [page for page in pages if page]


#: How many ordinary tasks one transaction inserts or releases; one with many edges weighs more.
PAGE_MAX: Final = 1_000
#: How many tasks one page looks through for those it releases.
SEEN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class NewGraph:
    """A graph that passed validation, with the keys of its tasks."""

    graph: GraphDefinition
    brood: NewTasks
    definition: tuple[str, str, str, str, str, str]  # scheduler, name, routing, description, tags, digest
    loader: str  # who loads it: a fresh word for each try
    actor: str = ""
    inside: ParentAttempt | None = None  # the attempt that it is, if it is inside a task
    origin: RerunOrigin | None = None  # what it runs again


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
class LoadStarted:
    """A graph is begun: its pages can come, each slice with the queue it belongs to."""

    graph: int
    queues: dict[Dimensions, int]


@dataclass(frozen=True, slots=True)
class GraphChanged:
    """The graph was extended by somebody else meanwhile: check again."""


def submit(transaction: Transaction, submissions: Sequence[NewGraph]) -> list[Submitted | Refusal]:
    """Store small graphs, each whole."""
    return [_submit(transaction, one) for one in submissions]


def begin(transaction: Transaction, one: NewGraph) -> LoadStarted | Submitted | Refusal:
    """Begin a graph: nobody sees it yet. One that was begun and never opened has to be dropped first."""
    repo, brood = transaction.repo, one.brood
    refusal = _unborn(transaction, one) or refuse_impossible_limits(repo, _asking(brood))
    if refusal is not None:
        return refusal
    around = _pools_around(transaction, one)
    if one.inside is not None and not brood.pools <= around:
        named = ", ".join(sorted(brood.pools - around))
        return Refusal(Code.INVALID, f"the graph inside names pools that the graph around it does not: {named}")
    if transaction.lock_tasks([brood.graph_id]):
        return Refusal(Code.CONFLICT, f"{text_of(Key(brood.graph_id))} is the id of a task: take another one")
    inside = None if one.inside is None else (one.inside.task, one.inside.attempt)
    if not repo.graphs.add(brood.graph_id, GraphState.RUNNING.value, transaction.now, one.loader, inside):
        return _exists(transaction, one)
    repo.graphs.add_definition(brood.graph_id, one.definition)
    repo.graphs.add_pools(brood.graph_id, brood.pools or around)
    if one.origin is not None:
        repo.reuse.add_rerun(brood.graph_id, one.origin.row)
    return LoadStarted(brood.graph_id, queues.ensure(repo, brood.dimensions))


def add_page(transaction: Transaction, graph: int, loader: str, rows: Rows) -> bool:
    """Insert a page of a graph that `loader` has begun; tell whether it still may."""
    found = transaction.repo.graphs.read([graph])
    if not found or found[0].loader != loader:
        return False
    _insert(transaction, rows)
    return True


def open_graph(transaction: Transaction, one: NewGraph) -> Submitted | Refusal:
    """Make a graph that was loaded in pages visible; its tasks are released by a note."""
    id = one.brood.graph_id
    found = transaction.repo.graphs.read([id])
    if not found or found[0].loader != one.loader:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} is being loaded by somebody else")
    refusal = _unborn(transaction, one)
    if refusal is not None:
        return refusal
    _born(transaction, one)
    if one.origin is not None:
        defer_reuse(transaction, id, one.origin, one.actor)
    transaction.repo.continuations.add([(OPEN, id, None, None, None, "", "")])
    transaction.adjust_counts(id, active=1)
    return Submitted(id)


def open_page(transaction: Transaction, note: Continuation) -> bool:
    """Release some of the tasks that wait for nobody; say whether that was all."""
    window = PAGE_MAX // 4 or 1
    most = 2 * window  # to release a task takes twice as long as to insert it
    page: list[int] = []
    last, seen, done = note.cursor, 0, False
    # Few of many tasks may wait for nobody, so a page ends with what was looked through, too.
    while not done and len(page) + window <= most and seen < SEEN_MAX:
        found = transaction.repo.tasks.roots(note.graph, State.UNSCHEDULED, last, window)
        page += [id for id, is_root in found if is_root]
        last, seen, done = found[-1][0] if found else last, seen + len(found), len(found) < window
    transaction.recheck_gates(transaction.lock_tasks(page).values())
    return _turn_page(transaction, note, [last], done)


def extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[Submitted | GraphChanged | Refusal]:
    """Add small extensions, each whole."""
    return [_extend(transaction, one) for one in extensions]


def begin_extension(transaction: Transaction, one: Extension) -> LoadStarted | GraphChanged | Refusal:
    """Begin a large extension: until it is opened or dropped, its graph cannot finish."""
    graph = _extendable(transaction, one)
    if not isinstance(graph, GraphRecord):
        return graph
    if any(transaction.repo.continuations.first(graph.id, kind) for kind in (LOAD, SHOW, DROP)):
        # Hidden tasks do not say which extension they belong to, so there is one at a time.
        return Refusal(Code.LOADING, f"graph {text_of(Key(graph.id))} is being extended")
    transaction.repo.continuations.add([(LOAD, graph.id, None, one.loader, None, "", one.actor)])
    begun = _load_note(transaction, one)
    assert begun is not None
    transaction.repo.continuations.advance(begun.id, transaction.now)  # since when it is being loaded
    transaction.repo.graphs.count_extension(graph.id, graph.extensions + 1)
    transaction.repo.graphs.add_pools(graph.id, one.brood.pools)
    transaction.adjust_counts(graph.id, active=1)
    return LoadStarted(graph.id, queues.ensure(transaction.repo, one.brood.dimensions))


def add_hidden_page(transaction: Transaction, one: Extension, rows: Rows) -> bool:
    """Insert a page of an extension; tell whether it still may."""
    if _load_note(transaction, one) is None:
        return False
    _insert(transaction, rows)
    _learn_edges(transaction, [row[0] for row in rows.tasks])
    return True


def open_extension(transaction: Transaction, one: Extension) -> Submitted | Refusal:
    """Show an extension that was loaded in pages: a note does it, page by page."""
    note, id = _load_note(transaction, one), one.brood.graph_id
    if note is None:
        return Refusal(
            Code.CONFLICT, f"the extension of graph {text_of(Key(id))} took too long to load and was dropped"
        )
    transaction.repo.continuations.delete(note.id)
    transaction.repo.continuations.add([(SHOW, id, None, None, None, "", one.actor)])
    transaction.audit(one.actor, "extend", id, counted(len(one.brood.tasks), "task"))
    return Submitted(id)


def show_page(transaction: Transaction, note: Continuation) -> bool:
    """Show some tasks of an extension and ask their gates; say whether that was all."""
    ids, done = _hidden_page(transaction, note.graph, note.cursor)
    transaction.repo.tasks.mark_loaded(ids)
    tasks = transaction.lock_tasks(ids)
    for task in tasks.values():
        task.loading = False
    transaction.adjust_counts(note.graph, behind=len(ids))
    transaction.recheck_gates(tasks.values())
    return _turn_page(transaction, note, ids, done)


def drop_page(transaction: Transaction, note: Continuation) -> bool:
    """Drop some tasks of an extension that never became whole; say whether that was all."""
    ids, done = _hidden_page(transaction, note.graph, -1)
    failure_handlers.remove_new_handlers(transaction, ids)
    transaction.apply()
    transaction.repo.tasks.delete(ids)
    return _turn_page(transaction, note, ids, done)


def _submit(transaction: Transaction, one: NewGraph) -> Submitted | Refusal:
    begun = begin(transaction, one)
    if not isinstance(begun, LoadStarted):
        return begun
    rows = one.brood.rows(slice(None), begun.queues, transaction.now)
    _insert(transaction, rows)
    _born(transaction, one)
    ids, reused = one.brood.ids, one.brood.reused
    if reused:
        reuse_tasks(transaction, [ids[label] for label in reused])
    roots = [ids[task.label] for task in one.brood.tasks if not task.requires and task.label not in reused]
    transaction.recheck_gates(transaction.lock_tasks(roots).values())
    transaction.apply()
    return Submitted(begun.graph)


def _unborn(transaction: Transaction, one: NewGraph) -> Refusal | None:
    """Refuse a graph whose task does not want it any more."""
    return None if one.inside is None else subgraph.refuse_attempt(transaction, one.inside)


def _pools_around(transaction: Transaction, one: NewGraph) -> frozenset[str]:
    """Name the pools that a graph belongs to in which nothing names one.

    They are those of the graph that it is inside of, or that it runs again; else the default one.
    """
    if one.inside is not None:
        source = transaction.lock_tasks([one.inside.task])[one.inside.task].graph
    elif one.origin is not None:
        source = one.origin.row.source
    else:
        return frozenset({DEFAULT_POOL})
    return transaction.repo.graphs.pools_of([source])[source]


def _born(transaction: Transaction, one: NewGraph) -> None:
    id = one.brood.graph_id
    if one.inside is not None:
        subgraph.begin(transaction, one.inside)
    transaction.repo.graphs.set_loader(id, None)
    transaction.repo.graphs.set_created(id, one.brood.created_ms)
    transaction.record_created(id)
    transaction.adjust_counts(id, behind=len(one.brood.tasks))
    note = counted(len(one.brood.tasks), "task")
    if one.origin is not None:
        note += f", {one.origin.told}"
        transaction.audit(one.actor, RERUN, one.origin.row.source, f"{one.origin.told}, as graph {text_of(Key(id))}")
    transaction.audit(one.actor, "submit", id, note)


def _extend(transaction: Transaction, one: Extension) -> Submitted | GraphChanged | Refusal:
    _look_at_prerequisites(transaction, one.brood)
    graph = _extendable(transaction, one)
    if not isinstance(graph, GraphRecord):
        return graph
    known = queues.ensure(transaction.repo, one.brood.dimensions)
    _insert(transaction, one.brood.rows(slice(None), known, transaction.now))
    ids = [one.brood.ids[task.label] for task in one.brood.tasks]
    _learn_edges(transaction, ids)
    transaction.repo.graphs.count_extension(graph.id, graph.extensions + 1)
    transaction.repo.graphs.add_pools(graph.id, one.brood.pools)
    transaction.adjust_counts(graph.id, behind=len(ids))
    transaction.audit(one.actor, "extend", graph.id, counted(len(ids), "task"))
    transaction.recheck_gates(transaction.lock_tasks(ids).values())
    transaction.apply()
    return Submitted(graph.id)


def _look_at_prerequisites(transaction: Transaction, brood: NewTasks) -> None:
    """Look at what new tasks require before anybody looks at the graph: tasks are always locked before their graph."""
    new = {task.label for task in brood.tasks}
    transaction.lock_tasks(
        {brood.ids[edge.task] for task in brood.tasks for edge in task.requires if edge.task not in new}
    )


def _extendable(transaction: Transaction, one: Extension) -> GraphRecord | GraphChanged | Refusal:
    refusal = refuse_impossible_limits(transaction.repo, _asking(one.brood))
    if refusal is not None:
        return refusal
    found = transaction.repo.graphs.read([one.brood.graph_id])
    if not found or found[0].loader is not None:
        return Refusal(Code.NOT_FOUND, f"there is no graph {text_of(Key(one.brood.graph_id))}")
    graph = found[0]
    if graph.extensions != one.extensions:
        return GraphChanged()
    if not changeable(graph.state):
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(graph.id))} is {graph.state}: it takes no more tasks")
    return graph


def _exists(transaction: Transaction, one: NewGraph) -> Submitted | Refusal:
    id = one.brood.graph_id
    definition = transaction.repo.graphs.definition(id)
    if definition is None or definition[5] != one.definition[5]:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} exists, and was submitted with another body")
    if transaction.repo.graphs.peek([id])[0].loader is not None:
        return Refusal(Code.LOADING, f"graph {text_of(Key(id))} is being loaded")
    return Submitted(id, echo=True)


def _asking(brood: NewTasks) -> Iterable[Task]:
    """Name the tasks that are going to run: what is taken over from another graph asks for nothing."""
    return (task for task in brood.tasks if task.label not in brood.reused) if brood.reused else brood.tasks


def refuse_impossible_limits(repo: Repo, tasks: Iterable[Task]) -> Refusal | None:
    """Refuse demands that no named limit can ever meet."""
    asking = [task for task in tasks if task.limits]
    totals = repo.admission.named_limits() if asking else {}
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


def _insert(transaction: Transaction, rows: Rows) -> None:
    tasks = transaction.repo.tasks
    tasks.add(rows.tasks)
    tasks.add_definitions(rows.definitions)
    transaction.repo.edges.add(rows.edges)
    tasks.add_mutexes(rows.mutexes)
    tasks.add_limits(rows.limits)
    transaction.repo.reuse.add(rows.reuses)
    transaction.repo.reuse.copy_results(rows.copies)


def _learn_edges(transaction: Transaction, ids: Sequence[int]) -> None:
    """Count what the edges of new tasks know: some prerequisites may have ended already."""
    tasks = transaction.lock_tasks(ids)
    for id, edges in propagate.edges_of_new_tasks(transaction, ids).items():
        if edges != tasks[id].edges:
            tasks[id].edges = edges
            transaction.mark_changed(tasks[id])
    failure_handlers.add_new_handlers(transaction, [task.id for task in tasks.values() if task.is_handler])


def _load_note(transaction: Transaction, one: Extension) -> Continuation | None:
    notes = transaction.repo.continuations.in_graph(one.brood.graph_id, LOAD)
    return next((note for note in notes if note.source == one.loader), None)


def _hidden_page(transaction: Transaction, graph: int, after: int) -> tuple[list[int], bool]:
    """Name tasks that are still hidden, as many as are a page with their edges; tell whether these are all."""
    found = transaction.repo.tasks.loading(graph, after, PAGE_MAX)
    tasks = transaction.lock_tasks(found)
    ids = found[: count_fitting([tasks[id].edges.count for id in found], PAGE_MAX)]
    return ids, len(ids) == len(found) < PAGE_MAX


def _turn_page(transaction: Transaction, note: Continuation, ids: Sequence[int], done: bool) -> bool:
    """Go on with the next page, or be done."""
    if done:
        transaction.repo.continuations.delete(note.id)
        transaction.adjust_counts(note.graph, active=-1)
    else:
        transaction.repo.continuations.advance(note.id, ids[-1])
    return done
