"""Webhooks as people set them: what is stored of each, and its place in the stream of events."""

from collections.abc import Collection
from typing import Final

from taskyard.bus.relay import add_target
from taskyard.lifecycle.commands import NO_SUBJECT, Code, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.repo.webhooks import WebhookRow

#: Each has a thread in the server that sends.
WEBHOOKS_MAX: Final = 50
#: The audit actions.
SET: Final = "set_webhook"
DELETE: Final = "delete_webhook"
SEND_AGAIN: Final = "resend_webhook"


def target_of(name: str) -> str:
    """Return the name of a webhook as a target of the stream."""
    return f"webhook {name}"


def find(transaction: Transaction, name: str) -> WebhookRow | None:
    """Return a webhook."""
    return next((one for one in transaction.repo.webhooks.all() if one.name == name), None)


def set_webhook(transaction: Transaction, row: WebhookRow) -> Refusal | None:
    """Store a webhook. A new one gets the events from now on; one that is changed goes on where it was."""
    known = transaction.repo.webhooks.all()
    if row.name not in {one.name for one in known} and len(known) >= WEBHOOKS_MAX:
        return Refusal(Code.INVALID, f"there are {len(known)} webhooks already: delete one first")
    transaction.repo.webhooks.save(row)
    add_target(transaction.repo, target_of(row.name), transaction.now)
    transaction.audit(row.changed_by, SET, NO_SUBJECT, row.name)
    return None


def delete_webhook(transaction: Transaction, name: str, actor: str) -> Refusal | None:
    """Delete a webhook with what was given up."""
    if not transaction.repo.webhooks.delete(name):
        return not_found(name)
    transaction.repo.targets.remove(target_of(name))
    transaction.audit(actor, DELETE, NO_SUBJECT, name)
    return None


def send_again(transaction: Transaction, name: str, ids: Collection[str], actor: str) -> int | Refusal:
    """Have deliveries sent again that were given up; return how many."""
    if find(transaction, name) is None:
        return not_found(name)
    count = transaction.repo.webhooks.send_again(name, ids)
    transaction.audit(actor, SEND_AGAIN, NO_SUBJECT, f"{name}: {count}")
    return count


def not_found(name: str) -> Refusal:
    """Refuse what concerns a webhook that does not exist."""
    return Refusal(Code.NOT_FOUND, f"there is no webhook {name}")
