"""Spans and moments as people write them: `90s`, `1h30m`, `2031-05-01T08:00:00Z`.

A bare number is refused: nobody can see whether it means seconds or milliseconds. So is a moment without a zone.
"""

import re
from datetime import UTC, datetime

from taskyard.core.graph.errors import Faults, Path, shown
from taskyard.core.graph.model import (
    AHEAD_MAX_MS,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    YEAR_MAX,
    YEAR_MIN,
    Task,
    When,
)
from taskyard.core.graph.scalars import Reader
from taskyard.core.states import Millis

#: The units of a span, from the longest; each at most once, in this order.
UNITS = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}

_SPAN = re.compile("".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in UNITS))
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def span_ms(text: str) -> int | None:
    """Read a span such as `1h30m`; None when it is none."""
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        return None
    return sum(int(count) * unit_ms for count, unit_ms in zip(match.groups(), UNITS.values(), strict=True) if count)


def span_text(ms: int) -> str:
    """Write a span as people do: `90000` is `1m30s`."""
    parts = []
    for unit, unit_ms in UNITS.items():
        count, ms = divmod(ms, unit_ms)
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts) or "0s"


def moment_ms(text: str) -> int | None:
    """Read an RFC 3339 moment into milliseconds since 1970; None when it is none, or not of our time."""
    if _MOMENT.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(_six_digits(text.upper()))
    except ValueError:  # such as a 30th of February, or a leap second
        return None
    return round(moment.timestamp() * 1000) if YEAR_MIN <= moment.year <= YEAR_MAX else None


def moment_text(ms: int) -> str:
    """Write a moment as RFC 3339 does, to the second."""
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def span(low_ms: int, high_ms: int) -> Reader:
    """Read a span between two bounds into milliseconds."""
    takes = f"a duration from {span_text(low_ms)} to {span_text(high_ms)}, such as 90s or 1h30m"

    def read(value: object, at: Path, faults: Faults) -> int | None:
        ms = span_ms(value) if isinstance(value, str) else None
        if ms is None or not low_ms <= ms <= high_ms:
            faults.add(at, f"must be {takes}; {_instead(value)}")
            return None
        return ms

    return Reader(takes, read)


def when() -> Reader:
    """Read a time ahead: a span from the submission, or a moment."""
    takes = f"a duration up to {span_text(AHEAD_MAX_MS)}, such as 2h, or an RFC 3339 time with its zone"

    def read(value: object, at: Path, faults: Faults) -> When | None:
        if isinstance(value, str):
            if (ms := span_ms(value)) is not None and ms <= AHEAD_MAX_MS:
                return When(ms, fixed=False)
            if (ms := moment_ms(value)) is not None:
                return When(ms, fixed=True)
        faults.add(at, f"must be {takes}; {_instead(value)}")
        return None

    return Reader(takes, read)


def deadline_fault(task: Task, now: Millis | None) -> str | None:
    """Say why nothing can keep a task's deadline: it is over by `now`, if that is known, or before the start."""
    deadline, start = task.deadline, task.not_before
    submitted = Millis(0) if now is None else now
    if deadline is None:
        return None
    if now is not None and deadline.moment(now) <= now:
        return "is in the past; move it ahead"
    # Without a now, a moment and a span cannot be compared.
    comparable = start is not None and (now is not None or deadline.fixed is start.fixed)
    if start is not None and comparable and deadline.moment(submitted) <= start.moment(submitted):
        return "must be later than not_before"
    return None


def _six_digits(text: str) -> str:
    """Cut a fraction to the microseconds that Python reads."""
    return re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)


def _instead(value: object) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return f"write {shown(value)}s" if is_number else f"got {shown(value)}"
