"""Schedules: when each launches next, and what became of its last run."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from taskyard.core.catalogue.model import DocumentKind, Schedule
from taskyard.core.catalogue.parse import stored_document
from taskyard.core.ids import Key, text_of
from taskyard.core.schedules import runs_after
from taskyard.core.states import Millis
from taskyard.store.connection import Repo
from taskyard.store.repo.catalogue import DocumentRow
from taskyard.store.repo.schedules import SchedulePlan
from taskyard.wire.api import ScheduleView

_KIND: Final = str(DocumentKind.SCHEDULE)
#: How many of the next runs of a schedule are listed.
RUNS_MAX: Final = 100


def schedules(
    repo: Repo, pools: frozenset[str] | None, after: str, count: int, now: Millis
) -> tuple[list[ScheduleView], str | None]:
    """Show schedules after a name; return where the next page begins, None at the end."""
    rows = repo.catalogue.page([_KIND], pools, (_KIND, after), count + 1)
    return _views(repo, rows[:count], now, 0), rows[count - 1].name if len(rows) > count else None


def schedule(repo: Repo, name: str, now: Millis, count: int) -> ScheduleView | None:
    """Show one schedule with its next runs; None if there is none of this name."""
    rows = repo.catalogue.read([(_KIND, name)])
    return next(iter(_views(repo, list(rows.values()), now, count)), None)


def next_runs(definition: Schedule, now: Millis, count: int) -> list[int]:
    """Return the next runs of a schedule; none if it is disabled."""
    return list(islice(runs_after(definition.recurrence, now), count)) if count and definition.enabled else []


def _views(repo: Repo, rows: Sequence[DocumentRow], now: Millis, runs: int) -> list[ScheduleView]:
    names = [row.name for row in rows]
    plans, graphs = repo.schedules.plans(names), repo.schedules.last_launches(names)
    return [
        _view(row, definition, plans.get(row.name), graphs.get(row.name), next_runs(definition, now, runs), now)
        for row in rows
        if (definition := _definition(row)) is not None
    ]


def _definition(row: DocumentRow) -> Schedule | None:
    document = stored_document(row.body)
    return document.definition if document is not None and isinstance(document.definition, Schedule) else None


def _view(
    row: DocumentRow, definition: Schedule, plan: SchedulePlan | None, graph: int | None, runs: list[int], now: Millis
) -> ScheduleView:
    if plan is not None and plan.version == row.version:
        next_ms = plan.next_ms
    else:  # it was applied just now, and no server has planned it yet
        runs_next = next_runs(definition, now, 1)
        next_ms = Millis(runs_next[0]) if runs_next else None
    return ScheduleView(
        name=row.name,
        pool=row.pool,
        version=row.version,
        template=definition.template,
        cron=definition.cron,
        rrule=definition.rrule,
        timezone=definition.timezone,
        missed=str(definition.missed),
        overlap=str(definition.overlap),
        enabled=definition.enabled,
        next_ms=next_ms,
        last_ms=None if plan is None else plan.last_ms,
        last_graph_id=None if graph is None else text_of(Key(graph)),
        note=None if plan is None else plan.note,
        runs=runs,
    )
