"""Cancels and reruns that reach further than one transaction can search.

The caller's thread searches the store, while other commands go on; then a transaction does what fits and leaves the
rest as continuations.
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
#: How often a graph is searched again that was extended meanwhile.
TRIES_MAX: Final = 5


class WideCommands:
    """Runs the commands that were answered with `NeedsSearch`."""

    def __init__(self, writer_thread: WriterThread, store: Store) -> None:
        self._writer_thread = writer_thread
        self._store = store

    def go(self, command: Cancel | Rerun) -> CommandOutcome:
        """Search for everything that a command reaches, and run it."""
        for _ in range(TRIES_MAX):
            answer = self._try(command, self._find(command))
            if not isinstance(answer, NeedsSearch):
                return answer
        raise Unavailable(f"the graph was extended {TRIES_MAX} times while it was searched")

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
