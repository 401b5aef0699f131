"""The audit for admins: who requested what, and when."""

from collections.abc import Iterator
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.core.structs import value
from taskyard.store.connection import Repo
from taskyard.store.repo.events import AuditRow
from taskyard.wire.api import AuditView

#: How many rows one query reads, and how many one page looks through for those that are wanted.
ROWS_MAX: Final = 1_000
LOOKED_MAX: Final = 20_000
#: Beyond every row.
NEWEST: Final = 2**63 - 1


@value
class AuditFilter:
    """Which rows to show; an empty text matches all."""

    actor: str = ""  # as the audit names them, or only the name or the id of a token
    action: str = ""
    subject: int | None = None
    since_ms: int = 0
    until_ms: int = NEWEST


def audits(repo: Repo, wanted: AuditFilter, before: int, count: int) -> tuple[list[AuditView], int | None]:
    """Show a page of the audit; return where the next page begins, if there may be one. A page may be short."""
    found: list[AuditView] = []
    for id, row in _rows(repo, wanted, before):
        before = id
        if _is_wanted(row, wanted):
            found.append(_view(id, row))
        if len(found) == count:
            return found, id
    is_all = not repo.events.page_audits(wanted.subject, before, 1)
    return found, None if is_all else before


def _rows(repo: Repo, wanted: AuditFilter, before: int) -> Iterator[tuple[int, AuditRow]]:
    for _ in range(LOOKED_MAX // ROWS_MAX):
        page = repo.events.page_audits(wanted.subject, before, ROWS_MAX)
        yield from page
        if len(page) < ROWS_MAX:
            return
        before = page[-1][0]


def _is_wanted(row: AuditRow, wanted: AuditFilter) -> bool:
    name, _, id = row.actor.removesuffix(")").rpartition(" (")
    return (
        wanted.actor in ("", row.actor, name, id)
        and wanted.action in ("", row.action)
        and wanted.since_ms <= row.at_ms <= wanted.until_ms
    )


def _view(id: int, row: AuditRow) -> AuditView:
    subject = text_of(Key(row.subject)) if row.subject else None
    return AuditView(str(id), row.at_ms, row.actor, row.action, subject, row.note)
