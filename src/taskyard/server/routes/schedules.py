"""Routes of schedules: what they launch next, and when something would run. They are stored with the catalogue."""

from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.catalogue.model import NAME_MAX
from taskyard.core.durations import moment_ms
from taskyard.core.schedules import (
    EXPRESSION_MAX,
    ZONE_MAX,
    Recurrence,
    cron_fault,
    rrule_fault,
    runs_after,
    zone_fault,
)
from taskyard.core.states import Millis
from taskyard.server import requests
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import not_found
from taskyard.server.requests import Fields
from taskyard.server.responses import Page, body, reply
from taskyard.server.tokens import READ
from taskyard.store.repo.read import FIRST_NAME
from taskyard.views import schedules as views
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["schedules"])
#: How many of the next runs are listed unless the request says otherwise.
RUNS: Final = 5
Count = Annotated[int, Query(ge=1, le=views.RUNS_MAX, description="How many of the next runs to list.")]
_RECURRENCE: Final = body(
    "A cron expression or a recurrence rule, and the time zone of its times.",
    {
        "type": "object",
        "properties": {
            "cron": {"type": "string", "maxLength": EXPRESSION_MAX},
            "rrule": {"type": "string", "maxLength": EXPRESSION_MAX},
            "timezone": {"type": "string", "maxLength": ZONE_MAX, "default": "UTC"},
            "start": {"type": "string", "format": "date-time"},
        },
        "additionalProperties": False,
    },
    example={"cron": "30 2 * * 1-5", "timezone": "Europe/Berlin"},
)


@routes.get("/schedules", response_model=api.Schedules)
async def list_schedules(context: Context, caller: CurrentCaller, page: Page) -> Response:
    """List schedules with their next and their last run."""
    pools = context.readable_pools(caller, READ, "list schedules")
    after = requests.cursor_name(page.cursor, FIRST_NAME)
    now = context.engine.clock.now()
    found, last = await context.read(lambda repo: views.schedules(repo, pools, after, page.limit, now))
    return reply(api.Schedules(found, requests.encode_cursor(last)))


@routes.post("/schedules/preview", response_model=api.ScheduleRuns, openapi_extra=_RECURRENCE)
async def preview_schedule(request: Request, context: Context, caller: CurrentCaller, count: Count = RUNS) -> Response:
    """List when something would run, without storing anything. Needs `read` in some pool."""
    context.readable_pools(caller, READ, "preview a schedule")
    recurrence = _read(Fields(await requests.read_object(request)))
    return reply(api.ScheduleRuns(list(islice(runs_after(recurrence, context.engine.clock.now()), count))))


@routes.get("/schedules/{name}", response_model=api.ScheduleView)
async def show_schedule(name: str, context: Context, caller: CurrentCaller, count: Count = RUNS) -> Response:
    """Show one schedule with its next runs."""
    mine = context.readable_pools(caller, READ, f"show schedule {name}")
    now, found = context.engine.clock.now(), None
    if len(name) <= NAME_MAX and "\0" not in name:
        found = await context.read(lambda repo: views.schedule(repo, name, now, count))
    if found is None or (mine is not None and found.pool not in mine):
        raise not_found("schedule", name)
    return reply(found)


def _read(fields: Fields) -> Recurrence:
    """Read when something is to happen."""
    cron, rrule = fields.text("cron", None, EXPRESSION_MAX), fields.text("rrule", None, EXPRESSION_MAX)
    zone, start = fields.text("timezone", "UTC", ZONE_MAX), fields.text("start", None, NAME_MAX)
    start_ms = 0 if start is None else moment_ms(start)
    if (cron is None) == (rrule is None):
        fields.add_fault("", 'needs either "cron" or "rrule"')
    found = {
        "cron": cron and cron_fault(cron),
        "rrule": rrule and rrule_fault(rrule),
        "timezone": zone and zone_fault(zone),
        "start": "must be an RFC 3339 time with its zone" if start_ms is None else None,
    }
    if rrule is not None and start is None:
        found["rrule"] = 'needs "start": its steps and its time of day count from there'
    for name, fault in found.items():
        if fault:
            fields.add_fault(name, fault)
    fields.check()
    return Recurrence(cron or "", rrule or "", zone or "UTC", Millis(start_ms or 0))
