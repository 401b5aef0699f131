"""Run continuations: what did not fit into one transaction goes on here, a page at a time.

Transitions of a task are propagated in the order in which they happened, and the pages of one command are run in the
order in which they were left: if an earlier continuation is open, it is run first. Before tasks are rerun, every
transition in their graph is propagated; before the tasks of a new graph are released, all results that it reuses are
copied.
"""

from collections.abc import Callable, Mapping
from typing import Final

from taskyard.core.states import Millis
from taskyard.lifecycle import cancel, failure_handlers, links, propagate, rerun, reuse, rows, subgraph, submit
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import TransactionConflict
from taskyard.store.rows import Continuation

#: No loader has this name, so a loader whose graph is being dropped cannot go on.
DROPPED: Final = ""


def run_page(transaction: Transaction, id: int) -> bool | None:
    """Run a page of a continuation; return whether the continuation is done, or None if there is none of this id."""
    wanted = transaction.repo.continuations.read(id)
    if wanted is None:
        return None
    first = _first(transaction, wanted)
    run = _PAGES.get(first.kind)
    if run is None:
        return False  # a loader is still at work
    done = run(transaction, first)
    transaction.apply()
    return done and first.id == id


def drop_stale_loads(transaction: Transaction, before_ms: Millis, count: int) -> int:
    """Drop graphs and extensions whose loading began before a moment and never ended; return how many there were.

    At most `count` tasks of a graph are dropped at once: the next call continues. An extension is dropped by a
    continuation.
    """
    graphs = transaction.repo.graphs.loading(before_ms, 1)
    for id, _ in graphs:
        _drop_graph(transaction, id, count)
    loads = transaction.repo.continuations.older_than(rows.LOAD, before_ms, count)
    for load in loads:
        transaction.repo.continuations.delete(load.id)
        # The extension was counted when it began, so the audit has to explain the gap.
        transaction.audit(load.actor, rows.DROP, load.graph, "an extension that was never completely loaded")
        transaction.defer(rows.DROP, load.graph, actor=load.actor, counted=False)
    return len(graphs) + len(loads)


def _first(transaction: Transaction, continuation: Continuation) -> Continuation:
    """Return the continuation that has to be run before this one, or this one."""
    before = _before(transaction, continuation)
    if before is None or before.id == continuation.id:
        return continuation
    found = transaction.repo.continuations.read(before.id)
    if found is None:
        raise TransactionConflict("an earlier continuation was completed meanwhile")
    return _first(transaction, found)


def _before(transaction: Transaction, continuation: Continuation) -> Continuation | None:
    """Return the earliest of the same kind, or one of a kind that comes before it.

    A transaction that has locked one of these never waits for a later one, so there is no deadlock.
    """
    repo = transaction.repo
    if continuation.task is not None:
        return failure_handlers.first_of(repo, continuation)
    kinds = (*_EARLIER.get(continuation.kind, ()), continuation.kind)
    return next((first for kind in kinds if (first := repo.continuations.first(continuation.graph, kind))), None)


def _show(transaction: Transaction, continuation: Continuation) -> bool:
    """Make a page of an extension visible. If its graph was canceled while it was loaded, it is canceled too."""
    done = submit.show_page(transaction, continuation)
    if done and transaction.is_canceled(continuation.graph):
        cancel.defer_whole_graph(transaction, continuation.graph, continuation.actor)
    return done


def _drop_graph(transaction: Transaction, id: int, count: int) -> None:
    found = transaction.repo.graphs.read([id])
    if found and found[0].loader is not None:  # else it has just been opened
        transaction.repo.graphs.set_loader(id, DROPPED)
        transaction.repo.graphs.delete_page(id, count)


#: Which kinds of continuations of a graph are run before those of a kind.
_EARLIER: Mapping[str, tuple[str, ...]] = {
    rerun.RERUN: (*failure_handlers.TO_DEPENDENTS, *failure_handlers.TO_FAILURES),
    rows.OPEN: (submit.REUSE,),
}
_PAGES: Mapping[str, Callable[[Transaction, Continuation], bool]] = {
    failure_handlers.PROPAGATE: propagate.run_page,
    failure_handlers.REPORT_TO_FAILURES: failure_handlers.run_page,
    failure_handlers.REPORT_RUN: failure_handlers.run_page,
    submit.REUSE: submit.reuse_page,
    rows.OPEN: submit.open_page,
    rows.SHOW: _show,
    rows.DROP: submit.drop_page,
    rows.SETTLED: subgraph.deliver_settlement,
    rows.STOP: cancel.stop_page,
    rows.RELEASE_UPDATE: cancel.release_update_page,
    links.END: links.end_page,
    cancel.CANCEL: cancel.cancel_page,
    rerun.RERUN: rerun.rerun_page,
    reuse.SERVE: reuse.serve_page,
}
