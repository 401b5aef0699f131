"""Durations and times as people write them: `90s`, `1h30m`, `2031-05-01T08:00:00Z`.

The one parser of both: documents, the API, the command line and bots use it. A number without a unit is refused: it
could mean seconds or milliseconds. A time without a zone is refused, too.
"""

import re
from datetime import UTC, datetime

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
#: Times outside these years are typing errors.
YEAR_MIN = 2000
YEAR_MAX = 2199

#: The units of a duration, from the longest; each at most once, in this order.
UNITS = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}

_SPAN = re.compile("".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in UNITS))
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def span_ms(text: str) -> int | None:
    """Read a duration such as `1h30m`; None if the text is not a duration."""
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        return None
    return sum(int(count) * unit_ms for count, unit_ms in zip(match.groups(), UNITS.values(), strict=True) if count)


def span_text(ms: int) -> str:
    """Write a duration as people do: 90000 is `1m30s`."""
    parts = []
    for unit, unit_ms in UNITS.items():
        count, ms = divmod(ms, unit_ms)
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts) or "0s"


def moment_ms(text: str) -> int | None:
    """Read an RFC 3339 time into milliseconds since 1970; None if the text is not one, or its year is out of bounds."""
    if _MOMENT.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(_six_digits(text.upper()))
    except ValueError:  # such as a 30th of February, or a leap second
        return None
    return round(moment.timestamp() * 1000) if YEAR_MIN <= moment.year <= YEAR_MAX else None


def moment_text(ms: int) -> str:
    """Write a time as RFC 3339 does, to the second."""
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def _six_digits(text: str) -> str:
    """Cut a fraction to the microseconds that Python reads."""
    return re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)
