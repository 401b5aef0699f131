"""Repository of schedules: when each launches next."""

from collections.abc import Collection

from taskyard.core.catalogue.model import DocumentKind
from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Session

_KIND = str(DocumentKind.SCHEDULE)


@value
class ScheduleRow:
    """The document of a schedule."""

    name: str
    pool: str
    version: int
    body: str
    changed_ms: Millis
    changed_by: str


@value
class DueSchedule:
    """A schedule with a run that is due."""

    schedule: ScheduleRow
    planned: Millis


@value
class SchedulePlan:
    """What is planned of a schedule."""

    name: str
    version: int  # of its document
    next_ms: Millis | None  # None: it never launches again
    last_ms: Millis | None = None  # its last run
    note: str | None = None  # why nothing was launched then


class ScheduleRepo:
    """The table `schedule_plan`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def unplanned(self, count: int) -> list[ScheduleRow]:
        """Return schedules that have changed since they were planned, or never were."""
        return [ScheduleRow(*row) for row in self._session.fetch("select_unplanned_schedules", _KIND, count)]

    def lost(self, count: int) -> list[str]:
        """Return schedules that are planned, and whose documents are deleted."""
        return [row[0] for row in self._session.fetch("select_lost_schedules", _KIND, count)]

    def due(self, now: Millis, count: int) -> list[DueSchedule]:
        """Return schedules with a run that is due."""
        found = self._session.fetch("select_due_schedules", _KIND, now, count)
        return [DueSchedule(ScheduleRow(*row[:6]), row[6]) for row in found]

    def next_due(self) -> Millis | None:
        """Return when the next run of any schedule is due."""
        found = self._session.fetch("select_next_schedule")
        return None if found[0][0] is None else Millis(found[0][0])

    def plans(self, names: Collection[str]) -> dict[str, SchedulePlan]:
        """Return what is planned of schedules; others are left out."""
        found = self._session.fetch("select_schedule_plans", sorted(names)) if names else []
        return {row[0]: SchedulePlan(*row) for row in found}

    def lock(self, name: str) -> SchedulePlan | None:
        """Return what is planned of a schedule, and lock it."""
        found = self._session.fetch("lock_schedule_plan", name)
        return SchedulePlan(*found[0]) if found else None

    def save(self, plan: SchedulePlan) -> None:
        """Store what is planned of a schedule."""
        self._session.execute("upsert_schedule_plan", plan.name, plan.version, plan.next_ms, plan.last_ms, plan.note)

    def forget(self, names: Collection[str]) -> None:
        """Delete what is planned of schedules."""
        self._session.execute("delete_schedule_plans", sorted(names))

    def is_earlier_launch_active(self, name: str, before: Millis) -> bool:
        """Whether anything can still move of the newest launch of a schedule before one of its runs."""
        found = self._session.fetch("select_earlier_launch", name, before)
        return bool(found) and found[0][1] > 0

    def last_launches(self, names: Collection[str]) -> dict[str, int]:
        """Return the graph of the newest launch of each schedule that has one."""
        found = self._session.fetch("select_last_launches", sorted(names)) if names else []
        return {row[0]: row[1] for row in found}
