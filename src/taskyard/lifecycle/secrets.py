"""The steps of secrets in the database: store, delete, encrypt anew, and record each use. Values arrive encrypted.

Whether a task is held for lack of a secret is a matter of admission, which is notified of every change here.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from taskyard.core.close_match import closest
from taskyard.core.graph.errors import Fault, Path, path_text
from taskyard.core.graph.model import Task
from taskyard.core.graph.parse import tasks_with
from taskyard.core.graph.payload import SECRET_FIELDS, SERVER_KINDS, names_secrets, secrets_of
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import DEFAULT_POOL, pool_of
from taskyard.core.states import ENDED, State
from taskyard.core.structs import struct_replace
from taskyard.lifecycle.admission.writes import SECRETS_CHANGED
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.report import holds_lease
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.secrets import SecretRow, TaskSecret

#: How many keys one transaction encrypts anew: some 20 ms.
REWRAPPED_MAX: Final = 500
#: The audit actions.
SET: Final = "set_secret"
DELETE: Final = "delete_secret"
ROTATE: Final = "rotate_secrets"
USE: Final = "use_secret"
#: How many audit rows of a task are searched for an earlier record of the same use.
_AUDITS_MAX: Final = 1_000


def path_of(pool: str, name: str) -> str:
    """Name a secret to people: its pool and its name."""
    return f"{pool}/{name}"


def follows(stored: SecretRow | None, row: SecretRow) -> bool:
    """Tell whether a secret is what comes after the stored one, or was stored by a commit with an unknown outcome."""
    if stored is None:
        return row.version == 1
    return row.version == stored.version + 1 or row.sealed == stored.sealed


def set_secret(transaction: Transaction, stored: SecretRow | None, row: SecretRow) -> SecretRow:
    """Store a secret in place of the stored one, unless it is that."""
    if stored is not None and stored.sealed == row.sealed:
        return stored
    created = transaction.now if stored is None else stored.created_ms
    row = struct_replace(row, created_ms=created, changed_ms=transaction.now)
    transaction.repo.secrets.save(row)
    transaction.audit(row.changed_by, SET, NO_SUBJECT, f"{path_of(row.pool, row.name)}: version {row.version}")
    transaction.mark_dirty(SECRETS_CHANGED)
    return row


def delete_secret(transaction: Transaction, pool: str, name: str, actor: str) -> int | Refusal:
    """Delete a secret; return how many tasks that have not ended name it."""
    if not transaction.repo.secrets.delete(pool, name):
        return Refusal(Code.NOT_FOUND, f"pool {pool} has no secret {name}")
    transaction.audit(actor, DELETE, NO_SUBJECT, path_of(pool, name))
    return count_waiting(transaction, pool, name)


def count_waiting(transaction: Transaction, pool: str, name: str) -> int:
    """Count the tasks that name a secret and have not ended."""
    return transaction.repo.secrets.count_tasks(pool, name, frozenset(State) - ENDED)


def rewrap(transaction: Transaction, secrets: Sequence[Row], secret_bytes: Sequence[Row]) -> None:
    """Store keys as another key encrypts them."""
    transaction.repo.secrets.rewrap(secrets)
    transaction.repo.secrets.rewrap_bytes(secret_bytes)


def record_rotation(transaction: Transaction, actor: str, note: str) -> None:
    """Record a rotation, and have admission look again: the file of keys may have others."""
    transaction.audit(actor, ROTATE, NO_SUBJECT, note)
    transaction.mark_dirty(SECRETS_CHANGED)


def record_uses(
    transaction: Transaction, task: int, attempt: int, fence: int, used: Sequence[TaskSecret], actor: str
) -> Refusal | None:
    """Record that an attempt is given secrets, once for each version; refuse one that has ended."""
    if not holds_lease(transaction.lock_tasks([task]).get(task), None, attempt, fence):
        text = f"attempt {attempt} of task {text_of(Key(task))} has ended: it gets no secrets"
        return Refusal(Code.LEASE_LOST, text)
    known = {(one.action, one.note) for one in transaction.repo.events.audits_of(task, _AUDITS_MAX)}
    for one in used:
        note = f"{_description(one)} as {one.variable} in attempt {attempt}"
        if (USE, note) not in known:
            transaction.audit(actor, USE, task, note)
    return None


def refuse_unknown(repo: Repo, tasks: Iterable[Task]) -> Refusal | None:
    """Refuse tasks that name secrets that do not exist."""
    named = [(task, pool, name, at) for task in tasks_with(tasks, SECRET_FIELDS) for pool, name, at in _named(task)]
    if not named:
        return None
    known = repo.secrets.exist({(pool, name) for _, pool, name, _ in named})
    missing = [one for one in named if (one[1], one[2]) not in known]
    faults = tuple(
        Fault(path_text(("tasks", task.label, "task", "payload", *at)), _unknown_fault(repo, pool, name))
        for task, pool, name, at in missing
    )
    return Refusal(Code.INVALID, "some secrets do not exist", faults) if faults else None


def _named(task: Task) -> Iterable[tuple[str, str, Path]]:
    return (
        (pool_of(one.dimensions), secret.name, secret.at)
        for one in task.slices
        if one.kind not in SERVER_KINDS and names_secrets(one.payload)
        for secret in secrets_of(one.payload)
        if secret.name
    )


def _unknown_fault(repo: Repo, pool: str, name: str) -> str:
    names = [one.name for one in repo.secrets.page({pool}, (pool, ""), _AUDITS_MAX)]
    meant = closest(name, names)
    where = "" if pool == DEFAULT_POOL else f" --pool {pool}"
    hint = f"; did you mean {meant}?" if meant else f"; set it with: taskyard secret set {name}{where}"
    return f"pool {pool} has no secret {name}{hint}"


def _description(one: TaskSecret) -> str:
    return f"{path_of(one.pool, one.name)} version {one.version}" if one.name else "secret bytes of the request"
