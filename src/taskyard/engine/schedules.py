"""Launch templates by their schedules: each run once, with several servers and after any crash.

A run is a moment, and the launch for it has a key that is made of the schedule and the moment. Every server launches
what is due and then moves the schedule on to its next run; if one dies in between, or two do so at once, the second
launch with the key is an echo. A sweep plans schedules that were applied or changed.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from taskyard.core.catalogue.launched import Wanted
from taskyard.core.catalogue.model import Schedule
from taskyard.core.catalogue.parse import stored_document
from taskyard.core.explain_text import counted
from taskyard.core.launch import LaunchType
from taskyard.core.schedules import Overlap, due, first_run
from taskyard.core.states import Millis
from taskyard.engine.clock import Clock
from taskyard.engine.errors import EngineError
from taskyard.engine.launch import TEMPLATE, LaunchAnswer, Origin
from taskyard.lifecycle.commands import NO_SUBJECT, Refusal
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Store
from taskyard.store.repo.schedules import DueSchedule, SchedulePlan, ScheduleRow

#: How many schedules are planned, or looked at because a run is due, before the other jobs have a turn.
SCHEDULES_MAX: Final = 20
#: The longest text about runs that launched nothing.
NOTE_MAX: Final = 1_000
#: The audit action of a run that launched nothing.
SKIPPED: Final = "skip_scheduled_launch"

_LOG = logging.getLogger(__name__)


class LaunchFunction(Protocol):
    """Launches a template; see `Engine.launch`."""

    def __call__(
        self, wanted: Wanted, *, key: str, actor: str, submitter: str, user: str, origin: Origin
    ) -> LaunchAnswer: ...


class Transact(Protocol):
    """Runs `act` as one write transaction."""

    def __call__(self, act: Callable[[Transaction], None], /) -> None: ...


class ScheduleRunner:
    """Launches what schedules ask for."""

    def __init__(self, launch: LaunchFunction, store: Store, transact: Transact, clock: Clock) -> None:
        self._launch = launch
        self._store = store
        self._transact = transact
        self._clock = clock
        #: When the next run is due, as far as this server knows.
        self.next_moment: Millis | None = None

    def next(self) -> bool:
        """Plan some schedules and make some runs; return whether there may be more."""
        with self._store.read() as repo:
            unplanned, lost = repo.schedules.unplanned(SCHEDULES_MAX), repo.schedules.lost(SCHEDULES_MAX)
        if unplanned or lost:
            self._plan(unplanned, lost)
        with self._store.read() as repo:
            found = repo.schedules.due(self._clock.now(), SCHEDULES_MAX)
        for one in found:
            self._run_safely(one)
        with self._store.read() as repo:
            self.next_moment = repo.schedules.next_due()
        return max(len(unplanned), len(lost)) == SCHEDULES_MAX or len(found) == SCHEDULES_MAX

    def _plan(self, unplanned: list[ScheduleRow], lost: list[str]) -> None:
        plans = [SchedulePlan(row.name, row.version, _first(row)) for row in unplanned]

        def act(transaction: Transaction) -> None:
            transaction.repo.schedules.forget(lost)
            for plan in plans:
                known = transaction.repo.schedules.lock(plan.name)
                if known is None or known.version < plan.version:
                    transaction.repo.schedules.save(plan)

        self._transact(act)

    def _run_safely(self, one: DueSchedule) -> None:
        """Make the runs of one schedule that are due; an error with it delays no other."""
        try:
            self._run(one)
        except EngineError as trouble:
            _LOG.warning("schedule %s is left for the next sweep: %s", one.schedule.name, trouble)
        except Exception:  # noqa: BLE001 - a bug with this one must not stop the others
            _LOG.exception("schedule %s is left for the next sweep", one.schedule.name)

    def _run(self, one: DueSchedule) -> None:
        schedule = _definition(one.schedule)
        assert schedule is not None, "a schedule that cannot be read is never planned"
        found = due(schedule.recurrence, one.planned, self._clock.now(), schedule.missed)
        notes = [f"{counted(found.dropped, 'missed run')} left out"] if found.dropped else []
        notes += [note for moment in found.runs if (note := self._run_at(one.schedule, schedule, moment))]
        last, note = max(found.runs, default=one.planned), "; ".join(notes)[:NOTE_MAX] or None
        self._advance(one, SchedulePlan(one.schedule.name, one.schedule.version, found.next_ms, last, note))

    def _run_at(self, row: ScheduleRow, schedule: Schedule, moment: Millis) -> str | None:
        """Launch the template for one run; return why nothing was launched, if so."""
        if schedule.overlap is Overlap.SKIP:
            with self._store.read() as repo:
                if repo.schedules.is_earlier_launch_active(row.name, moment):
                    return "its last launch has not ended"
        name = f"schedule {row.name}"
        answer = self._launch(
            Wanted(TEMPLATE, schedule.template, schedule.variables),
            key=f"{name} {moment}",
            actor=name,
            submitter=name,
            user=row.changed_by,
            origin=Origin(LaunchType.SCHEDULED, schedule=row.name, due_ms=moment),
        )
        return _refused(answer) if isinstance(answer, Refusal) else None

    def _advance(self, one: DueSchedule, plan: SchedulePlan) -> None:
        """Move a schedule on to its next run, unless another server has, or it was changed."""

        def act(transaction: Transaction) -> None:
            known = transaction.repo.schedules.lock(plan.name)
            if known is not None and (known.version, known.next_ms) == (plan.version, one.planned):
                transaction.repo.schedules.save(plan)
                if plan.note is not None:
                    transaction.audit(f"schedule {plan.name}", SKIPPED, NO_SUBJECT, plan.note)

        self._transact(act)
        if plan.note is not None:
            _LOG.warning("schedule %s: %s", plan.name, plan.note)


def _first(row: ScheduleRow) -> Millis | None:
    """Return the first run of a schedule after it was applied."""
    schedule = _definition(row)
    return first_run(schedule.recurrence, row.changed_ms) if schedule is not None and schedule.enabled else None


def _definition(row: ScheduleRow) -> Schedule | None:
    """Read the document of a schedule; None if this version of the program cannot."""
    with suppress(ValueError):
        document = stored_document(row.body)
        if document is not None and isinstance(document.definition, Schedule):
            return document.definition
    return None


def _refused(refusal: Refusal) -> str:
    faults = "; ".join(f"{fault.path}: {fault.message}" for fault in refusal.faults)
    return f"{refusal.text}{': ' if faults else ''}{faults}"
