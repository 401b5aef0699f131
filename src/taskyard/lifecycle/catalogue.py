"""The steps of the catalogue: apply documents, all or none, and delete one. Both lock the catalogue first.

Pools and named limits are documents, too, but their settings are stored with admission, which they steer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from taskyard.core.catalogue.model import (
    SETTINGS,
    VERSIONS_MAX,
    Document,
    DocumentKind,
    LimitSettings,
    PoolSettings,
)
from taskyard.core.catalogue.parse import Entry, settings_document
from taskyard.core.catalogue.plan import Action, Change, Facts, Plan, Rights, Stored, names_of, plan
from taskyard.core.fleet import CapacityUnit
from taskyard.core.structs import value
from taskyard.lifecycle.admission.pools import set_limit, set_pools
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.reuse import reuse_policy, set_policy
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo
from taskyard.store.repo.admission import PoolRow
from taskyard.store.repo.catalogue import DocumentRow, Name
from taskyard.store.repo.tasks import ReusePolicyRow

#: The audit actions.
APPLY: Final = "apply_document"
DELETE: Final = "delete_document"
FAULTY: Final = "the documents have faults; nothing is changed"
#: How many documents a refusal names that refer to one.
NAMED_MAX: Final = 20
#: How many referrers are read to name them, and to count the others.
_REFERRERS_MAX: Final = 1_000
#: The kinds that have rows: settings have none.
STORED_KINDS: Final = tuple(str(kind) for kind in DocumentKind if kind not in SETTINGS)


@value
class Applied:
    """What applying did to each document, or would do."""

    changes: tuple[Change, ...]


@value
class Preview:
    """What applying documents would change, as the catalogue was after a number of changes."""

    plan: Plan
    after: int


def preview(repo: Repo, entries: Sequence[Entry], rights: Rights) -> Preview:
    """Say what applying documents would change."""
    after = repo.catalogue.changes()
    wanted = names_of(entries)
    rows = repo.catalogue.read([name for name in wanted if name[0] in STORED_KINDS])
    stored = {name: Stored(row.pool, row.version, row.body) for name, row in rows.items()}
    settings = _settings(repo, {name for name in wanted if name[0] not in STORED_KINDS})
    applied = {(str(entry.document.kind), entry.document.name) for entry in entries}
    last = repo.catalogue.last_versions(applied - stored.keys())
    launches = any(entry.document.kind is DocumentKind.WORKFLOW_TEMPLATE for entry in entries)
    nested = repo.catalogue.references_among(str(DocumentKind.WORKFLOW_TEMPLATE)) if launches else []
    return Preview(plan(entries, Facts({**stored, **settings}, last, nested), rights), after)


def apply_documents(transaction: Transaction, changes: tuple[Change, ...], actor: str) -> Applied:
    """Store documents as was planned. The catalogue is locked, and has not changed since."""
    changed = [one for one in changes if one.action is not Action.UNCHANGED]
    rows = [_row(transaction, one, actor) for one in changed if one.document.kind not in SETTINGS]
    if rows:
        _save(transaction, rows, changed)
    for one in changed:
        _set(transaction, one, actor)
    return Applied(changes)


def delete_document(transaction: Transaction, kind: str, name: str, rights: Rights, actor: str) -> Refusal | None:
    """Delete a document, unless another one refers to it."""
    transaction.repo.catalogue.lock()
    row = transaction.repo.catalogue.lock_documents([(kind, name)]).get((kind, name))
    if row is None or not rights.may_read(row.pool):
        return Refusal(Code.NOT_FOUND, f"there is no {kind} {name}")
    if not rights.may_change(row.pool):
        return Refusal(Code.FORBIDDEN, f"{kind} {name} belongs to pool {row.pool}, whose documents you may not change")
    if refusal := _refuse_referred(transaction.repo, kind, name, rights):
        return refusal
    deleted = DocumentRow(kind, name, row.pool, row.version + 1, row.body, transaction.now, actor)
    transaction.repo.catalogue.delete(deleted, VERSIONS_MAX)
    transaction.audit(actor, DELETE, NO_SUBJECT, f"{kind} {name}: version {deleted.version}")
    return None


def _refuse_referred(repo: Repo, kind: str, name: str, rights: Rights) -> Refusal | None:
    found = repo.catalogue.referrers(kind, name, _REFERRERS_MAX)
    if not found:
        return None
    known = [f"{its_kind} {its_name}" for its_kind, its_name, pool in found if rights.may_read(pool)]
    named, more = known[:NAMED_MAX], len(found) - min(len(known), NAMED_MAX)
    others = [f"{more} {'other' if more == 1 else 'others'}"] if more else []
    return Refusal(Code.CONFLICT, f"cannot delete {kind} {name}: {', '.join([*named, *others])} would lack it")


def _row(transaction: Transaction, change: Change, actor: str) -> DocumentRow:
    one = change.document
    return DocumentRow(str(one.kind), one.name, one.pool, change.version, one.body, transaction.now, actor)


def _save(transaction: Transaction, rows: Sequence[DocumentRow], changed: Iterable[Change]) -> None:
    # Launches lock the documents that they use; all who lock several do so in one order.
    transaction.repo.catalogue.lock_documents([(row.kind, row.name) for row in rows])
    named: list[tuple[Name, Name]] = [
        ((str(one.document.kind), one.document.name), other) for one in changed for other in one.refers_to
    ]
    transaction.repo.catalogue.save(rows, named, VERSIONS_MAX)
    notes = [f"{row.kind} {row.name}: version {row.version}" for row in rows]
    transaction.audit_each(rows[0].changed_by, APPLY, NO_SUBJECT, notes)


# Settings as documents.


def _set(transaction: Transaction, change: Change, actor: str) -> None:
    """Store the settings that a document describes, if it does."""
    name, definition = change.document.name, change.document.definition
    if isinstance(definition, PoolSettings):
        unit = str(definition.unit)
        external = definition.external
        row = PoolRow(name, definition.capacity, definition.from_bots, unit, definition.adjustment, external)
        if row not in transaction.repo.admission.pools():
            set_pools(transaction, [row], actor)
        set_policy(transaction, name, definition.reuse_window_ms, definition.reuse_shared, actor)
    elif isinstance(definition, LimitSettings):
        set_limit(transaction, name, definition.total, actor)


def settings_documents(repo: Repo) -> list[Document]:
    """Return all pools and named limits as documents."""
    pools = {one.name: one for one in repo.admission.pools()}
    policies = {one.pool: one for one in repo.reuse.policies()}
    found = [
        settings_document(name, _pool(pools.get(name), policies.get(name))) for name in sorted(pools.keys() | policies)
    ]
    limits = sorted(repo.admission.named_limits().items())
    return found + [settings_document(name, LimitSettings(total)) for name, total in limits]


def _settings(repo: Repo, wanted: Collection[Name]) -> Mapping[Name, Stored]:
    found = settings_documents(repo) if wanted else []
    return {(str(one.kind), one.name): Stored(one.pool, 0, one.body) for one in found}


def _pool(row: PoolRow | None, policy_row: ReusePolicyRow | None) -> PoolSettings:
    policy = reuse_policy(policy_row)
    if row is None:
        return PoolSettings(reuse_window_ms=policy.window_ms, reuse_shared=policy.shared)
    unit = CapacityUnit(row.unit)
    return PoolSettings(
        row.capacity, row.from_bots, unit, row.adjustment, policy.window_ms, policy.shared, row.external
    )
