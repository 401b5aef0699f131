"""The catalogue of one database: apply documents, say what would change, and delete one.

Documents are read, checked and compared with what is stored on the caller's thread. The transaction only writes, if the
catalogue has not changed meanwhile; else all of this is done again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from taskyard.core.catalogue.parse import Entry, Reading, digest_of, read_documents
from taskyard.core.catalogue.plan import Action, Change, Rights
from taskyard.engine.bulk_load import Transact
from taskyard.engine.errors import Unavailable, outages
from taskyard.engine.failpoints import Boundary
from taskyard.lifecycle import catalogue as steps
from taskyard.lifecycle.catalogue import FAULTY, Applied, Preview
from taskyard.lifecycle.commands import Code, Refusal
from taskyard.lifecycle.idempotency import run_once
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Store

#: Gets the documents of a request, and raises if the sender may not apply them.
CheckEntries: TypeAlias = Callable[[Sequence[Entry]], None]
ALL_RIGHTS: Final = Rights()
#: How often documents are compared anew that others change meanwhile.
TRIES_MAX: Final = 20


def allow_all(_: Sequence[Entry]) -> None:
    """Allow all documents: the engine itself checks no rights."""


class Catalogue:
    """The catalogue of one database, as one server can use it."""

    def __init__(self, store: Store, transact: Transact) -> None:
        self._store = store
        self._transact = transact

    def apply(
        self,
        documents: object,
        *,
        dry_run: bool = False,
        rights: Rights = ALL_RIGHTS,
        check: CheckEntries = allow_all,
        actor: str = "",
        key: str = "",
    ) -> Applied | Refusal:
        """Store documents, all or none; in a dry run only say what would change."""
        reading = read_documents(documents)
        check(reading.entries)
        for _ in range(TRIES_MAX):
            previewed = self._preview(reading, rights)
            if isinstance(previewed, Refusal):
                return previewed
            if dry_run:
                return Applied(previewed.plan.changes)
            said = ("apply_documents", digest_of(documents) if key else "")
            answer = self._write(previewed, said, key, actor)
            if answer is not None:
                return answer
        raise Unavailable(f"the catalogue was changed by others {TRIES_MAX} times in a row")

    def _preview(self, reading: Reading, rights: Rights) -> Preview | Refusal:
        """Say what would change. What is stored may show more that is wrong: all of it is listed at once."""
        with outages(), self._store.read() as repo:
            previewed = steps.preview(repo, reading.entries, rights)
        if faults := (*reading.faults, *previewed.plan.faults):
            return Refusal(Code.INVALID, FAULTY, faults)
        return previewed

    def _write(self, previewed: Preview, said: object, key: str, actor: str) -> Applied | Refusal | None:
        """Store what was planned, once for each key; None if the catalogue has changed since."""
        store = partial(steps.apply_documents, changes=previewed.plan.changes, actor=actor)
        again = partial(_as_it_is, changes=previewed.plan.changes)

        def act(transaction: Transaction) -> Applied | Refusal | None:
            known = bool(key) and key in transaction.repo.events.answers([key])
            if transaction.repo.catalogue.lock() != previewed.after and not known:
                return None
            return run_once(transaction, key, said, store, again)

        return self._transact(act, Boundary.OTHER)

    def delete(
        self, kind: str, name: str, *, rights: Rights = ALL_RIGHTS, actor: str = "", key: str = ""
    ) -> Refusal | None:
        """Delete a document, unless another one refers to it."""
        delete = partial(steps.delete_document, kind=kind, name=name, rights=rights, actor=actor)
        said = ("delete_document", kind, name)
        return self._transact(
            lambda transaction: run_once(transaction, key, said, delete, lambda _: None), Boundary.OTHER
        )


def _as_it_is(transaction: Transaction, changes: Sequence[Change]) -> Applied:
    """Answer a repeat: its documents were stored by the first request, and may have been changed since."""
    names = [(str(one.document.kind), one.document.name) for one in changes]
    rows = transaction.repo.catalogue.read(names)
    versions = [rows[name].version if name in rows else 0 for name in names]
    return Applied(
        tuple(Change(one.document, Action.UNCHANGED, version) for one, version in zip(changes, versions, strict=True))
    )
