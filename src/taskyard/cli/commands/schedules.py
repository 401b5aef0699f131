"""The commands `schedules` and `schedules next`."""

from dataclasses import asdict
from typing import Final

import click

from taskyard.cli.client import Server, connected, server_options
from taskyard.cli.options import Number, command, listing_options, output_option
from taskyard.cli.output import Column, Listing, format_fields, format_time, print_list, print_one
from taskyard.wire import api

EXAMPLES: Final = """\
Examples:

    taskyard schedules                  list schedules
    taskyard apply -f nightly.yaml      create one

A schedule is a document of the catalogue:

    {kind: schedule, name: nightly, template: release, cron: "30 2 * * *"}
"""
NEXT_EXAMPLES: Final = """\
Examples:

    taskyard schedules next nightly
    taskyard schedules next --cron '30 2 * * 1-5' --timezone Europe/Berlin
    taskyard schedules next --rrule FREQ=WEEKLY --start 2027-01-04T09:00:00Z
"""


def _next(one: api.ScheduleView) -> str:
    if not one.enabled:
        return "disabled"
    return "never" if one.next_ms is None else format_time(one.next_ms)


_COLUMNS: Final[list[Column]] = [
    ("name", lambda one: one.name),
    ("template", lambda one: one.template),
    ("when", lambda one: one.cron or one.rrule),
    ("zone", lambda one: one.timezone),
    ("next", _next),
    ("last", lambda one: format_time(one.last_ms) if one.last_ms is not None else ""),
    ("note", lambda one: one.note or ""),
]


@command("schedules", EXAMPLES)
@listing_options
@server_options
def schedules(listing: Listing, server: Server) -> int:
    """List schedules with their next and their last run."""
    with connected(server) as client:
        return print_list(client.schedules(), listing, _COLUMNS, lambda one: one.name)


@command("schedules next", NEXT_EXAMPLES)
@click.argument("name", required=False, metavar="[NAME]", help="Schedule name, from `schedules`.")
@click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month and weekday, instead of a name.")
@click.option("--rrule", metavar="RULE", help="Recurrence rule of iCalendar, instead of a name.")
@click.option("--timezone", metavar="ZONE", help="Time zone of the expression [default: UTC].")
@click.option("--start", metavar="TIME", help="RFC 3339 time from which the steps of a rule count.")
@click.option("-n", "--count", type=Number(1, 100), default=5, metavar="N", help="How many runs to list.")
@output_option("table")
@server_options
def next_runs(  # noqa: PLR0913, PLR0917 - each is an option
    name: str | None,
    cron: str | None,
    rrule: str | None,
    timezone: str | None,
    start: str | None,
    count: int,
    output: str,
    server: Server,
) -> int:
    """List the next runs of a schedule, or of an expression before you save it."""
    if (name is None) == (cron is None and rrule is None):
        raise click.UsageError("give either the NAME of a schedule, or --cron or --rrule")
    with connected(server) as client:
        if name is None:
            runs = client.preview_schedule(cron=cron, rrule=rrule, timezone=timezone, start=start, count=count)
            return print_one({"runs": runs}, output, lambda: _lines(runs), "")
        found = client.show_schedule(name, count=count)
        lines = [*format_fields(found, _COLUMNS), "", *_lines(found.runs)]
        return print_one(asdict(found), output, lambda: lines, found.name)


def _lines(runs: list[int]) -> list[str]:
    return [format_time(one) for one in runs] or ["no runs"]
