"""When a schedule launches its template: cron expressions and recurrence rules (RFC 5545), in a time zone.

A run is a moment, so every run happens once, also when clocks are changed. A cron expression that names a time which a
clock change skips runs right after the change, and one that names a time which occurs twice runs at the first of them;
an expression for every hour, or for every few minutes, runs in each hour that passes. A recurrence rule leaves skipped
times out, as RFC 5545 says; its hourly and minutely rules run in both of two equal hours.

`due` says which runs are to be made now, after servers were away, too.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum, unique
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from dateutil import tz
from dateutil.rrule import rrulestr

from taskyard.core.states import Millis
from taskyard.core.structs import value

#: Longer texts are no expressions that people write.
EXPRESSION_MAX: Final = 512
#: The longest name of a time zone is half as long.
ZONE_MAX: Final = 64
#: A run that is later than this was missed: servers were away.
ON_TIME_MS: Final = 60_000
#: How many missed runs of one schedule are made; older ones are dropped.
CAUGHT_UP_MAX: Final = 100
#: How far ahead the next run is looked for. A schedule that has none by then is over.
AHEAD_DAYS: Final = 366 * 10
#: AWX's limit: a rule that is counted is evaluated from its start.
COUNT_MAX: Final = 999
#: Missed runs are looked for in this time first. Only a schedule without any in it can have older ones that count.
LOOKED_BACK_MS: Final = 7 * 86_400_000

#: The parts of a rule that each frequency takes, beside those that all do. Others could search for centuries.
_COMMON: Final = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMINUTE", "BYHOUR", "BYDAY"})
_CALENDAR: Final = _COMMON | {"BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYSETPOS"}
_PARTS: Final = {
    "YEARLY": _CALENDAR,
    "MONTHLY": _CALENDAR,
    "WEEKLY": _COMMON | {"BYMONTH"},
    "DAILY": _COMMON | {"BYMONTH"},
    "HOURLY": _COMMON,
    "MINUTELY": _COMMON,
}
_UNTIL: Final = re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?")
#: How long one step of a rule is, where that is the same for all of its steps.
_STEPS: Final = {
    "WEEKLY": timedelta(weeks=1),
    "DAILY": timedelta(days=1),
    "HOURLY": timedelta(hours=1),
    "MINUTELY": timedelta(minutes=1),
}


@unique
class Missed(StrEnum):
    """What becomes of runs that no server was there for."""

    SKIP = "skip"
    ONE = "one"  # the newest of them is made
    ALL = "all"


@unique
class Overlap(StrEnum):
    """What becomes of a run while the last one is not over."""

    ALLOW = "allow"
    SKIP = "skip"


@value
class Recurrence:
    """When something is to happen: a cron expression or a rule, the other is empty."""

    cron: str = ""
    rrule: str = ""
    timezone: str = "UTC"
    start_ms: Millis = Millis(0)  # nothing happens before; the steps of a rule count from here


@value
class Due:
    """What a schedule has to do now."""

    runs: tuple[Millis, ...] = ()  # to be made, in this order
    dropped: int = 0  # how many of the last days are not made because they were missed
    next_ms: Millis | None = None  # None: the schedule is over


# Faults.


def zone_fault(name: str) -> str | None:
    """Say what is wrong with the name of a time zone."""
    try:
        _zone(name)
    except ValueError:
        return f"{name[:ZONE_MAX]!r} is no time zone; use a name such as Europe/Berlin or UTC"
    return None


def cron_fault(text: str) -> str | None:
    """Say what is wrong with a cron expression."""
    fields = text.split()
    if len(fields) != 5:
        return f"has {len(fields)} fields; a cron expression has 5: minute, hour, day of month, month, day of week"
    try:
        CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return f"{error}: a cron expression has minute, hour, day of month, month, day of week, such as 30 2 * * 1-5"
    return None


def rrule_fault(text: str) -> str | None:
    """Say what is wrong with a recurrence rule."""
    parts: dict[str, str] = {}
    if "\n" in text or "\r" in text:
        return "must be one rule on one line, such as FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9;BYMINUTE=0"
    for part in _bare(text).split(";"):
        name, is_there, said = part.partition("=")
        if not is_there or not said or name in parts:
            return f"{part!r} is no part of a rule such as FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9;BYMINUTE=0"
        parts[name] = said
    return _parts_fault(parts) or _evaluation_fault(text)


def _parts_fault(parts: dict[str, str]) -> str | None:
    frequency = parts.get("FREQ", "")
    if frequency not in _PARTS:
        return f"FREQ must be one of {', '.join(_PARTS)}"
    if unknown := sorted(parts.keys() - _PARTS[frequency]):
        return f"{unknown[0]} cannot be used with FREQ={frequency}"
    if "COUNT" in parts and "UNTIL" in parts:
        return "COUNT and UNTIL exclude each other"
    if "UNTIL" in parts and _UNTIL.fullmatch(parts["UNTIL"]) is None:
        return "UNTIL must be written like 20270131T235900 (in the time zone) or 20270131T225900Z"
    for name, most in (("COUNT", COUNT_MAX), ("INTERVAL", 10_000)):
        if name in parts and not (parts[name].isascii() and parts[name].isdigit() and 1 <= int(parts[name]) <= most):
            return f"{name} must be a number from 1 to {most}"
    return None


def _evaluation_fault(text: str) -> str | None:
    try:
        first = next(_rule(Recurrence(rrule=text), datetime(2000, 1, 1, tzinfo=UTC)), None)
    except (ValueError, TypeError, OverflowError) as error:
        return f"is no recurrence rule: {error}"
    has_end = "UNTIL=" in text
    return None if first is not None or has_end else "can never be met"


# Runs.


def runs_after(recurrence: Recurrence, after: Millis) -> Iterator[Millis]:
    """Yield the runs after a moment, until ten years after it."""
    horizon = _moment(after) + timedelta(days=AHEAD_DAYS)
    least = max(after, recurrence.start_ms - 1)
    found = _cron_runs(recurrence, least) if recurrence.cron else _rule_runs(recurrence, least)
    return (_millis(one) for one in takewhile(lambda one: one <= horizon, found))


def first_run(recurrence: Recurrence, after: Millis) -> Millis | None:
    """Return the first run after a moment; None if there is none."""
    return next(runs_after(recurrence, after), None)


def due(recurrence: Recurrence, planned: Millis, now: Millis, missed: Missed) -> Due:
    """Say which runs are to be made now, given the first that was not made yet."""
    if planned > now:
        return Due(next_ms=planned)
    recent = Millis(max(planned, now - LOOKED_BACK_MS))
    passed = _runs_between(recurrence, recent, now) or _runs_between(recurrence, planned, now)
    late = [one for one in passed if now - one > ON_TIME_MS]
    on_time = passed[len(late) :]
    made = {Missed.SKIP: [], Missed.ONE: late[-1:], Missed.ALL: late[-CAUGHT_UP_MAX:]}[missed]
    if missed is Missed.ONE and on_time:
        made = []  # the run that is on time is the one
    return Due((*made, *on_time), len(late) - len(made), first_run(recurrence, now))


def _runs_between(recurrence: Recurrence, first: Millis, last: Millis) -> list[Millis]:
    return list(takewhile(lambda one: one <= last, runs_after(recurrence, Millis(first - 1))))


def _cron_runs(recurrence: Recurrence, after: int) -> Iterator[datetime]:
    return CronSim(recurrence.cron, _moment(after).astimezone(_zone(recurrence.timezone)))


def _rule_runs(recurrence: Recurrence, after: int) -> Iterator[datetime]:
    """Yield the runs of a rule: the rule speaks of what clocks show, which may occur twice or never."""
    zone, least = _zone(recurrence.timezone), _moment(after)
    is_elapsing = _frequency(recurrence.rrule) in {"HOURLY", "MINUTELY"}
    again: list[datetime] = []  # the second occurrences of times, which come later than the first ones behind them
    for shown in _rule(recurrence, least.astimezone(zone) - timedelta(days=1)):
        local = shown.replace(tzinfo=zone)
        if not tz.datetime_exists(local):
            continue
        while again and again[0] < local.astimezone(UTC):
            yield again.pop(0)
        if local.astimezone(UTC) > least:
            yield local.astimezone(UTC)
        if is_elapsing and tz.datetime_ambiguous(local) and (second := local.replace(fold=1).astimezone(UTC)) > least:
            again.append(second)
    yield from again


def _rule(recurrence: Recurrence, around: datetime) -> Iterator[datetime]:
    """Yield what clocks show at the runs of a rule, without a time zone; the first lie shortly before `around`.

    A rule ends some years later: one that never has a run would be searched for up to the year 9999.
    """
    zone, parts = _zone(recurrence.timezone), dict(part.split("=", 1) for part in _bare(recurrence.rrule).split(";"))
    start = _moment(recurrence.start_ms).astimezone(zone).replace(tzinfo=None, second=0, microsecond=0)
    count = parts.pop("COUNT", None)
    begin = start if count else _moved_on(start, parts, around.replace(tzinfo=None))
    horizon = max(begin, around.replace(tzinfo=None) if not count else begin) + timedelta(days=AHEAD_DAYS)
    end = min(_local_end(parts.get("UNTIL"), zone) or horizon, horizon)
    parts["UNTIL"] = f"{end:%Y%m%dT%H%M%S}"
    found = rrulestr(";".join(f"{name}={said}" for name, said in parts.items()), dtstart=begin)
    return islice(found, None if count is None else int(count))


def _moved_on(start: datetime, parts: Mapping[str, str], around: datetime) -> datetime:
    """Move the start of a rule on by whole steps: rules are evaluated from their start."""
    step = _STEPS.get(parts["FREQ"])
    if step is None or around <= start:
        return start
    step *= int(parts.get("INTERVAL", "1"))
    return start + (around - start) // step * step


def _local_end(text: str | None, zone: ZoneInfo) -> datetime | None:
    """Read the end of a rule, as clocks of a zone show it."""
    if text is None:
        return None
    end = datetime.strptime(text.rstrip("Z"), "%Y%m%dT%H%M%S" if "T" in text else "%Y%m%d")  # noqa: DTZ007 - local
    return end.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None) if text.endswith("Z") else end


def _frequency(text: str) -> str:
    return _bare(text).partition("FREQ=")[2].partition(";")[0]


def _bare(text: str) -> str:
    return text.removeprefix("RRULE:")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"there is no time zone {name}") from error


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _millis(moment: datetime) -> Millis:
    return Millis((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
