"""Spans of time as people write them: `90s`, `5m`, `1h`, `30d`. A number alone is seconds."""

import re
from typing import Final

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"([0-9]{1,9})\s*([smhdw]?)")


def seconds_of(written: str) -> int:
    """Read a span; raise `ValueError` for what is none."""
    match = _SPAN.fullmatch(written.strip())
    if match is None:
        raise ValueError(f"{written!r} is no span of time: it looks like 90s, 5m, 1h or 30d.")
    return int(match[1]) * _UNITS[match[2]]


def check(_: object, written: str | None) -> None:
    """Refuse a command line with a span that is none."""
    if written is not None:
        seconds_of(written)
