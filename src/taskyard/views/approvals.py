"""The approvals that wait for a decision."""

from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.graph.payload import question
from taskyard.core.ids import Key, text_of
from taskyard.core.states import Kind, Millis
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.server_attempts import SERVER
from taskyard.store.connection import Repo
from taskyard.store.rows import TaskRecord
from taskyard.views import tasks
from taskyard.wire.api import ApprovalView

_KIND: Final = Kind.APPROVAL.text


def approvals(
    repo: Repo, pools: frozenset[str] | None, after: int, count: int
) -> tuple[list[ApprovalView], int | None]:
    """Show the approvals that wait, after an id, in some pools or in all; return where the next page begins."""
    ids = repo.read.leased_of_kind(SERVER.bot, _KIND, pools, after, count + 1)
    page = ids[:count]
    texts = repo.tasks.definitions(page)
    records = repo.tasks.read(page)
    if pools is not None:  # these are in graphs of the pools, but an approval may name another pool of its graph
        records = [one for one in records if not pools.isdisjoint(tasks.pools(repo, one))]
    views = [_view(record, *texts[record.id]) for record in records]
    return views, page[-1] if len(ids) > count else None


def _view(record: TaskRecord, label: str, text: str) -> ApprovalView:
    asked, until = question(decoded(text).slices[0].payload), record.lease_until_ms
    return ApprovalView(
        task=text_of(Key(record.id)),
        graph_id=text_of(Key(record.graph)),
        label=label,
        message=asked.message,
        since_ms=record.moved_ms,
        until_ms=None if until is None else attempt_policy.given_again_at(Millis(until)),
        on_timeout=asked.on_timeout.value,
    )
