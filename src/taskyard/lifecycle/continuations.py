"""The room where promises are kept: what did not fit into one transaction goes on here, a page at a time.

What a task has to tell is told in the order in which it happened, and the pages of one wish are taken in the order in
which they were promised: whoever takes up a later note is given the earlier one first. Before anything is rerun,
everything in its graph has been told; before a new graph is opened, everything is taken over that it is born with.
"""

from collections.abc import Callable, Mapping
from typing import Final

from taskyard.core.states import Millis
from taskyard.lifecycle import cancel, failure_handlers, propagate, rerun, rows, subgraph, submit
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.queries import TransactionConflict
from taskyard.store.rows import Continuation

#: A word that no loader uses: whoever still loads a graph that is being dropped is turned away.
DROPPED: Final = ""


def run_page(transaction: Transaction, note_id: int) -> bool | None:
    """Carry out a page of a note; say whether the note is done, or None if it is gone."""
    wanted = transaction.repo.continuations.read(note_id)
    if wanted is None:
        return None
    note = _first(transaction, wanted)
    page = _PAGES.get(note.kind)
    if page is None:
        return False  # somebody is still loading
    done = page(transaction, note)
    transaction.apply()
    return done and note.id == note_id


def drop_stale_loads(transaction: Transaction, before_ms: Millis, count: int) -> int:
    """Drop what began to load before a moment and never became whole; say how many such loads there were.

    Of a graph at most `count` tasks are dropped at once, so it comes again until it is gone. An extension is dropped by
    a note.
    """
    graphs = transaction.repo.graphs.loading(before_ms, 1)
    for id, _ in graphs:
        _drop_graph(transaction, id, count)
    notes = transaction.repo.continuations.older_than(rows.LOAD, before_ms, count)
    for note in notes:
        transaction.repo.continuations.delete(note.id)
        # It was counted when it was begun, and from here on nothing else tells of it.
        transaction.audit(note.actor, rows.DROP, note.graph, "an extension that never became whole")
    transaction.repo.continuations.add([(rows.DROP, note.graph, None, None, None, "", note.actor) for note in notes])
    return len(graphs) + len(notes)


def _first(transaction: Transaction, note: Continuation) -> Continuation:
    """Find the note that has to be done before this one, or this one."""
    before = _before(transaction, note)
    if before is None or before.id == note.id:
        return note
    found = transaction.repo.continuations.read(before.id)
    if found is None:
        raise TransactionConflict("an earlier note was done meanwhile")
    return _first(transaction, found)


def _before(transaction: Transaction, note: Continuation) -> Continuation | None:
    """Find what comes first: the earliest of its kind, and before any rerun whatever is still to be told.

    Nobody who holds one of these waits for a later one, so nobody waits in a circle.
    """
    notes = transaction.repo.continuations
    if note.task is not None:
        return failure_handlers.first_of(transaction.repo, note)
    kinds = (*_EARLIER.get(note.kind, ()), note.kind)
    return next((first for kind in kinds if (first := notes.first(note.graph, kind))), None)


def _show(transaction: Transaction, note: Continuation) -> bool:
    """Show a page of an extension. What was loaded while its graph was canceled is canceled with it."""
    done = submit.show_page(transaction, note)
    if done and transaction.is_canceled(note.graph):
        cancel.defer_whole_graph(transaction, note.graph, note.actor)
    return done


def _drop_graph(transaction: Transaction, id: int, count: int) -> None:
    found = transaction.repo.graphs.read([id])
    if found and found[0].loader is not None:  # else it was opened just now
        transaction.repo.graphs.set_loader(id, DROPPED)
        transaction.repo.graphs.delete_page(id, count)


#: Which kinds of notes about a graph are done before those of another.
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
    cancel.CANCEL: cancel.cancel_page,
    rerun.RERUN: rerun.rerun_page,
}
