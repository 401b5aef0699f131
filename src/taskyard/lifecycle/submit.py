"""Store new graphs and extensions of graphs.

One transaction inserts a graph that fits. A larger one is begun, inserted in hidden pages, and opened by a last commit;
its root tasks are then released in pages. A large extension is hidden in the same way while it is loaded, and its graph
cannot finish meanwhile.

The same submission repeated is an echo, at any later time; so is the same extension. Another body is refused.
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
from taskyard.lifecycle import (
    children,
    external,
    failure_handlers,
    propagate,
    queues,
    reuse,
    secrets,
    selection,
    subgraph,
)
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.rows import DROP, LOAD, OPEN, SHOW, NewTasks, Rows, count_fitting
from taskyard.lifecycle.selection import Pages
from taskyard.lifecycle.subgraph import ParentAttempt
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo
from taskyard.store.repo.tasks import PURGED, RerunRow
from taskyard.store.rows import Continuation, GraphRecord

#: How many ordinary tasks one transaction inserts or releases; a task with many edges weighs more.
PAGE_MAX: Final = 1_000
#: How many tasks one page reads to find those that it releases.
SEEN_MAX: Final = 10_000


#: The continuation "these tasks succeed without running".
REUSE: Final = "reuse"
#: The audit action of a rerun.
RERUN: Final = "rerun"


@dataclass(frozen=True, slots=True)
class RerunOrigin:
    """The graph of which a new graph is a rerun."""

    row: RerunRow
    description: str  # for people: from which label on, and how many tasks are reused
    pages: Pages  # the reused tasks, dependents before their prerequisites


@dataclass(frozen=True, slots=True)
class NewGraph:
    """A graph that passed validation, with the keys of its tasks."""

    graph: GraphDefinition
    new_tasks: NewTasks
    definition: tuple[str, str, str, str, str, str]  # scheduler, name, routing, description, tags, digest
    loader: str  # who loads it: another word for each try
    actor: str = ""
    parent: ParentAttempt | None = None  # the attempt that it is, if it is inside a task
    origin: RerunOrigin | None = None  # if it is a rerun of another graph
    child_of: children.ChildOf | None = None  # if it ends with a task


@dataclass(frozen=True, slots=True)
class Extension:
    """Tasks to be added to a graph, with their keys, validated against the graph as it was."""

    new_tasks: NewTasks
    extensions: int  # how often the graph had been extended then
    loader: str
    actor: str = ""
    key: str = ""  # idempotency key; empty if there is none
    digest: str = ""  # compared when the key is used again


@dataclass(frozen=True, slots=True)
class Submitted:
    """A graph is stored."""

    graph: int
    echo: bool = False
    names: Mapping[str, int] = field(default_factory=dict, compare=False)  # its tasks by label; empty: read them


@dataclass(frozen=True, slots=True)
class LoadStarted:
    """Loading has started: pages can be added. Each slice has the queue given here."""

    graph: int
    queues: dict[Dimensions, int]


@dataclass(frozen=True, slots=True)
class GraphChanged:
    """The graph has been extended since validation: validate again."""


def submit(transaction: Transaction, submissions: Sequence[NewGraph]) -> list[Submitted | Refusal]:
    """Store graphs that fit into one transaction."""
    return [_submit(transaction, one) for one in submissions]


def begin(transaction: Transaction, one: NewGraph) -> LoadStarted | Submitted | Refusal:
    """Begin a graph, hidden until it is opened. One that was begun before and never opened has to be dropped first."""
    repo, new_tasks = transaction.repo, one.new_tasks
    refusal = refuse(transaction, one)
    if refusal is not None:
        return refusal
    inherited = _inherited_pools(transaction, one)
    attempt = None if one.child_of is None else children.attempt_of(transaction, one.child_of, new_tasks.graph_id)
    if isinstance(attempt, Refusal):
        return attempt
    if transaction.lock_tasks([new_tasks.graph_id]):
        return Refusal(Code.CONFLICT, f"{text_of(Key(new_tasks.graph_id))} is the id of a task: take another one")
    parent = None if one.parent is None else (one.parent.task, one.parent.attempt)
    if not repo.graphs.add(new_tasks.graph_id, GraphState.RUNNING.value, transaction.now, one.loader, parent):
        return _exists(transaction, one)
    repo.graphs.add_definition(new_tasks.graph_id, one.definition)
    repo.graphs.add_pools(new_tasks.graph_id, new_tasks.pools or inherited)
    if attempt is not None:
        repo.task_list.add_child(new_tasks.graph_id, *attempt)
        transaction.note_child()
    if one.origin is not None:
        repo.reuse.add_rerun(new_tasks.graph_id, one.origin.row)
    return LoadStarted(new_tasks.graph_id, queues.ensure(repo, new_tasks.dimensions, transaction.now))


def refuse(transaction: Transaction, one: NewGraph) -> Refusal | None:
    """Return why a graph cannot be stored, as far as that is known before anything is written."""
    refusal = _refuse_parent(transaction, one) or refuse_unmet(transaction.repo, _tasks_to_run(one.new_tasks))
    if refusal is not None or one.parent is None:
        return refusal
    around = _inherited_pools(transaction, one)
    if one.new_tasks.pools <= around:
        return None
    named = ", ".join(sorted(one.new_tasks.pools - around))
    return Refusal(Code.INVALID, f"the graph inside names pools that the graph around it does not: {named}")


def add_page(transaction: Transaction, graph: int, loader: str, rows: Rows) -> bool:
    """Insert a page of a graph that `loader` has begun; return False if the load was dropped."""
    found = transaction.repo.graphs.read([graph])
    if not found or found[0].loader != loader:
        return False
    _insert(transaction, rows)
    return True


def open_graph(transaction: Transaction, one: NewGraph) -> Submitted | Refusal:
    """Make a graph that was loaded in pages visible; a continuation releases its root tasks."""
    id = one.new_tasks.graph_id
    found = transaction.repo.graphs.read([id])
    if not found or found[0].loader != one.loader:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} is being loaded by another request")
    refusal = _refuse_parent(transaction, one)
    if refusal is not None:
        return refusal
    _record_created(transaction, one)
    if one.origin is not None:
        selection.defer(transaction, REUSE, id, [page for page in one.origin.pages if page], one.actor)
    transaction.defer(OPEN, id)
    return Submitted(id)


def open_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Release some of the root tasks; return whether the continuation is done."""
    window = PAGE_MAX // 4 or 1
    most = 2 * window  # to release a task takes twice as long as to insert it
    page: list[int] = []
    last, seen, done = continuation.cursor, 0, False
    # There may be few roots among many tasks, so the number of tasks that are read limits a page, too.
    while not done and len(page) + window <= most and seen < SEEN_MAX:
        found = transaction.repo.tasks.roots(continuation.graph, State.UNSCHEDULED, last, window)
        page += [id for id, is_root in found if is_root]
        last, seen, done = found[-1][0] if found else last, seen + len(found), len(found) < window
    transaction.recheck_gates(transaction.lock_tasks(page).values())
    return _next_page(transaction, continuation, [last], done)


def extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[Submitted | GraphChanged | Refusal]:
    """Store extensions that fit into one transaction."""
    return [_extend(transaction, one) for one in extensions]


def begin_extension(transaction: Transaction, one: Extension) -> LoadStarted | GraphChanged | Refusal:
    """Begin a large extension. Its graph cannot finish until the extension is opened or dropped."""
    graph = _extendable(transaction, one)
    if not isinstance(graph, GraphRecord):
        return graph
    if any(transaction.repo.continuations.first(graph.id, kind) for kind in (LOAD, SHOW, DROP)):
        # Hidden tasks do not say to which extension they belong, so there is one at a time.
        return Refusal(Code.LOADING, f"graph {text_of(Key(graph.id))} is being extended")
    transaction.repo.continuations.add([(LOAD, graph.id, None, one.loader, None, "", one.actor)])
    load = _load_of(transaction, one)
    assert load is not None
    transaction.repo.continuations.advance(load.id, transaction.now)  # since when it is being loaded
    transaction.repo.graphs.count_extension(graph.id, graph.extensions + 1)
    transaction.repo.graphs.add_pools(graph.id, one.new_tasks.pools)
    transaction.adjust_counts(graph.id, active=1)
    return LoadStarted(graph.id, queues.ensure(transaction.repo, one.new_tasks.dimensions, transaction.now))


def add_hidden_page(transaction: Transaction, one: Extension, rows: Rows) -> bool:
    """Insert a page of an extension; return False if the load was dropped."""
    if _load_of(transaction, one) is None:
        return False
    _insert(transaction, rows)
    _count_edges(transaction, [row[0] for row in rows.tasks])
    return True


def open_extension(transaction: Transaction, one: Extension) -> Submitted | Refusal:
    """Open an extension that was loaded in pages: a continuation makes it visible, page by page."""
    load, id = _load_of(transaction, one), one.new_tasks.graph_id
    if load is None:
        return Refusal(
            Code.CONFLICT, f"the extension of graph {text_of(Key(id))} took too long to load and was dropped"
        )
    transaction.repo.continuations.delete(load.id)
    transaction.defer(SHOW, id, actor=one.actor, counted=False)
    transaction.record_extended(transaction.repo.graphs.read([id])[0])
    transaction.audit(one.actor, "extend", id, counted(len(one.new_tasks.tasks), "task"))
    return Submitted(id)


def show_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Make some tasks of an extension visible; return whether the continuation is done."""
    ids, done = _hidden_page(transaction, continuation.graph, continuation.cursor)
    transaction.repo.tasks.mark_loaded(ids)
    tasks = transaction.lock_tasks(ids)
    for task in tasks.values():
        task.loading = False
    transaction.adjust_counts(continuation.graph, behind=len(ids))
    transaction.recheck_gates(tasks.values())
    return _next_page(transaction, continuation, ids, done)


def drop_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Drop some tasks of an extension that was never completely loaded; return whether the continuation is done."""
    ids, done = _hidden_page(transaction, continuation.graph, -1)
    failure_handlers.remove_new_handlers(transaction, ids)
    transaction.apply()
    transaction.repo.tasks.delete(ids)
    return _next_page(transaction, continuation, ids, done)


def _submit(transaction: Transaction, one: NewGraph) -> Submitted | Refusal:
    begun = begin(transaction, one)
    if not isinstance(begun, LoadStarted):
        return begun
    rows = one.new_tasks.rows(slice(None), begun.queues, transaction.now)
    _insert(transaction, rows)
    _record_created(transaction, one)
    ids, reused = one.new_tasks.ids, one.new_tasks.reused
    if reused:
        reuse_tasks(transaction, [ids[label] for label in reused])
    roots = [ids[task.label] for task in one.new_tasks.tasks if not task.requires and task.label not in reused]
    transaction.recheck_gates(transaction.lock_tasks(roots).values())
    transaction.apply()
    return Submitted(begun.graph)


def _refuse_parent(transaction: Transaction, one: NewGraph) -> Refusal | None:
    """Refuse a graph if the task around it cannot begin the attempt that it is."""
    return None if one.parent is None else subgraph.refuse_attempt(transaction, one.parent)


def _inherited_pools(transaction: Transaction, one: NewGraph) -> frozenset[str]:
    """Return the pools of a graph whose tasks name none.

    They are those of the graph around it, or of the graph of which it is a rerun; else the default pool.
    """
    if one.parent is not None:
        source = transaction.lock_tasks([one.parent.task])[one.parent.task].graph
    elif one.origin is not None:
        source = one.origin.row.source
    else:
        return frozenset({DEFAULT_POOL})
    return transaction.repo.graphs.pools_of([source])[source]


def _record_created(transaction: Transaction, one: NewGraph) -> None:
    id = one.new_tasks.graph_id
    if one.parent is not None:
        subgraph.begin(transaction, one.parent)
    transaction.repo.graphs.set_loader(id, None)
    transaction.repo.graphs.set_created(id, one.new_tasks.created_ms)
    transaction.record_created(id)
    transaction.adjust_counts(id, behind=len(one.new_tasks.tasks))
    note = counted(len(one.new_tasks.tasks), "task")
    if one.origin is not None:
        note += f", {one.origin.description}"
        transaction.audit(
            one.actor, RERUN, one.origin.row.source, f"{one.origin.description}, as graph {text_of(Key(id))}"
        )
    transaction.audit(one.actor, "submit", id, note)


def _extend(transaction: Transaction, one: Extension) -> Submitted | GraphChanged | Refusal:
    _lock_prerequisites(transaction, one.new_tasks)
    graph = _extendable(transaction, one)
    if not isinstance(graph, GraphRecord):
        return graph
    known = queues.ensure(transaction.repo, one.new_tasks.dimensions, transaction.now)
    _insert(transaction, one.new_tasks.rows(slice(None), known, transaction.now))
    ids = [one.new_tasks.ids[task.label] for task in one.new_tasks.tasks]
    _count_edges(transaction, ids)
    transaction.repo.graphs.count_extension(graph.id, graph.extensions + 1)
    transaction.repo.graphs.add_pools(graph.id, one.new_tasks.pools)
    transaction.adjust_counts(graph.id, behind=len(ids))
    transaction.record_extended(graph)
    transaction.audit(one.actor, "extend", graph.id, counted(len(ids), "task"))
    transaction.recheck_gates(transaction.lock_tasks(ids).values())
    transaction.apply()
    return Submitted(graph.id)


def _lock_prerequisites(transaction: Transaction, new_tasks: NewTasks) -> None:
    """Lock the prerequisites of new tasks: tasks are always locked before their graph."""
    new = {task.label for task in new_tasks.tasks}
    transaction.lock_tasks(
        {new_tasks.ids[edge.task] for task in new_tasks.tasks for edge in task.requires if edge.task not in new}
    )


def _extendable(transaction: Transaction, one: Extension) -> GraphRecord | GraphChanged | Refusal:
    refusal = refuse_unmet(transaction.repo, _tasks_to_run(one.new_tasks))
    if refusal is not None:
        return refusal
    found = transaction.repo.graphs.read([one.new_tasks.graph_id])
    if not found or found[0].loader is not None:
        return Refusal(Code.NOT_FOUND, f"there is no graph {text_of(Key(one.new_tasks.graph_id))}")
    graph = found[0]
    if graph.extensions != one.extensions:
        return GraphChanged()
    if not changeable(graph.state):
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(graph.id))} is {graph.state}: it takes no more tasks")
    return graph


def _exists(transaction: Transaction, one: NewGraph) -> Submitted | Refusal:
    id = one.new_tasks.graph_id
    if transaction.repo.graphs.peek([id])[0].loader == PURGED:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} is being deleted: take another id")
    definition = transaction.repo.graphs.definition(id)
    if definition is None or definition[5] != one.definition[5]:
        return Refusal(Code.CONFLICT, f"graph {text_of(Key(id))} exists, and was submitted with another body")
    if transaction.repo.graphs.peek([id])[0].loader is not None:
        return Refusal(Code.LOADING, f"graph {text_of(Key(id))} is being loaded")
    return Submitted(id, echo=True)


def _tasks_to_run(new_tasks: NewTasks) -> Iterable[Task]:
    """Return the tasks that will run; those that are reused need no limits."""
    return (
        (task for task in new_tasks.tasks if task.label not in new_tasks.reused)
        if new_tasks.reused
        else new_tasks.tasks
    )


def refuse_unmet(repo: Repo, tasks: Iterable[Task]) -> Refusal | None:
    """Refuse tasks that need more of a limit than there is, an unknown secret, or do not fit an external pool."""
    listed = list(tasks)
    checks = (refuse_impossible_limits, secrets.refuse_unknown, external.refuse_unfit)
    refusals = [refusal for check in checks if (refusal := check(repo, listed)) is not None]
    if len(refusals) < 2:
        return refusals[0] if refusals else None
    faults = tuple(fault for one in refusals for fault in one.faults)
    return Refusal(Code.INVALID, ", and ".join(one.text for one in refusals), faults)


def refuse_impossible_limits(repo: Repo, tasks: Iterable[Task]) -> Refusal | None:
    """Refuse tasks that need more of a named limit than there is."""
    limited = [task for task in tasks if task.limits]
    totals = repo.admission.named_limits() if limited else {}
    faults = [
        Fault(f"tasks.{task.label}.task.limits.{name}", _limit_fault(name, amount, totals.get(name)))
        for task in limited
        for name, amount in rules.impossible_demands(task.limits, totals)
    ]
    return Refusal(Code.INVALID, "some limits can never be met", tuple(faults)) if faults else None


def _limit_fault(name: str, amount: int, total: int | None) -> str:
    if total is None:
        return f"there is no limit {name}; an admin makes it with: taskyard limits set {shlex.quote(name)} {amount}"
    return f"asks for {amount}; there are {total} in all"


def _insert(transaction: Transaction, rows: Rows) -> None:
    tasks = transaction.repo.tasks
    tasks.add(rows.tasks)
    transaction.inserted.append(rows.tasks)
    tasks.add_definitions(rows.definitions)
    transaction.repo.edges.add(rows.edges)
    tasks.add_mutexes(rows.mutexes)
    tasks.add_limits(rows.limits)
    tasks.add_tags(rows.tags)
    transaction.repo.secrets.add_uses(rows.secrets)
    transaction.repo.secrets.add_bytes(rows.secret_bytes)
    transaction.repo.secrets.copy_bytes(rows.secret_copies)
    transaction.repo.reuse.add(rows.reuses)
    transaction.repo.reuse.copy_results(rows.copies)
    transaction.repo.reuse.reserve(rows.reserved)
    transaction.repo.files.copy([row[0] for row in rows.reuses])
    transaction.repo.files.add_input_trees(rows.input_trees)
    transaction.repo.launches.add_updates(rows.updates)
    transaction.repo.launches.copy_links(rows.link_copies)


def _count_edges(transaction: Transaction, ids: Sequence[int]) -> None:
    """Count what the edges of new tasks know: some prerequisites may have ended already."""
    tasks = transaction.lock_tasks(ids)
    for id, edges in propagate.edges_of_new_tasks(transaction, ids).items():
        if edges != tasks[id].edges:
            tasks[id].edges = edges
            transaction.mark_changed(tasks[id])
    failure_handlers.add_new_handlers(transaction, [task.id for task in tasks.values() if task.is_handler])


def _load_of(transaction: Transaction, one: Extension) -> Continuation | None:
    loads = transaction.repo.continuations.in_graph(one.new_tasks.graph_id, LOAD)
    return next((load for load in loads if load.source == one.loader), None)


def _hidden_page(transaction: Transaction, graph: int, after: int) -> tuple[list[int], bool]:
    """Return a page of hidden tasks, counted with their edges, and whether these are all."""
    found = transaction.repo.tasks.loading(graph, after, PAGE_MAX)
    tasks = transaction.lock_tasks(found)
    ids = found[: count_fitting([tasks[id].edges.count for id in found], PAGE_MAX)]
    return ids, len(ids) == len(found) < PAGE_MAX


def _next_page(transaction: Transaction, continuation: Continuation, ids: Sequence[int], done: bool) -> bool:
    """Advance a continuation to the next page, or complete it."""
    if done:
        transaction.complete(continuation)
    else:
        transaction.repo.continuations.advance(continuation.id, ids[-1])
    return done


# Reuse: a rerun from a label on creates a new graph that takes results from the old one, and those tasks succeed
# without running. All that one transaction reuses is moved before anything is propagated; if several are needed,
# dependents are moved before their prerequisites. So no task that is to be reused is ever released by a prerequisite.
# Until all are moved, no root task is released either.


def reuse_tasks(transaction: Transaction, ids: Collection[int]) -> None:
    """Let tasks succeed without having run, if their state allows it."""
    tasks = transaction.lock_tasks(ids).values()
    reusable = [task for task in tasks if step(task.state, Signal.REUSE).outcome is Outcome.MOVE]
    transaction.apply([reuse.reused(task) for task in reusable])


def reuse_page(transaction: Transaction, continuation: Continuation) -> bool:
    """Reuse the tasks of a continuation; it is done then."""
    if not transaction.is_canceled(continuation.graph):
        reuse_tasks(transaction, selection.task_ids_of(continuation))
    transaction.complete(continuation)
    return True
