"""Wishes that reach further than one transaction looks.

How far is found out by a look at the store, on the thread of whoever asks, while everybody else goes on; a transaction
of its own then does what fits, and promises the rest.
"""

from typing import Final, TypeAlias

from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.failpoints import Boundary
from taskyard.engine.writer import WriterThread
from taskyard.lifecycle import cancel, rerun
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Done, NeedsSearch, Refusal, Rerun
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.lifecycle.idempotency import carry_out_keyed
from taskyard.lifecycle.selection import SelectedPages
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Store

CommandOutcome: TypeAlias = Done | BulkOutcome | Refusal
#: How often a graph is looked at again that was extended meanwhile.
TRIES_MAX: Final = 5


class WideCommands:
    """Goes as far as a wish reaches."""

    def __init__(self, writer_thread: WriterThread, store: Store) -> None:
        self._writer_thread = writer_thread
        self._store = store

    def go(self, command: Cancel | Rerun) -> CommandOutcome:
        """Carry out a wish that was answered with `Far`."""
        for _ in range(TRIES_MAX):
            answer = self._try(command, self._find(command))
            if not isinstance(answer, NeedsSearch):
                return answer
        raise Unavailable(f"the graph was extended {TRIES_MAX} times while it was looked at")

    def _find(self, command: Cancel | Rerun) -> SelectedPages:
        with gc_paused():
            with outages(), self._store.read() as repo:
                seen = cancel.find(repo, command) if isinstance(command, Cancel) else rerun.find(repo, command)
            return seen.cut()

    def _try(self, command: Cancel | Rerun, found: SelectedPages) -> CommandOutcome | NeedsSearch:
        def act(transaction: Transaction) -> CommandOutcome | NeedsSearch:
            transaction.expect_continuations()
            if isinstance(command, Cancel):
                return carry_out_keyed(
                    transaction, [command], lambda transaction, ones: cancel.cancel(transaction, ones, found)
                )[0]
            return carry_out_keyed(
                transaction, [command], lambda transaction, ones: rerun.rerun(transaction, ones, found)
            )[0]

        return self._writer_thread.transact(act, Boundary.BATCH)
