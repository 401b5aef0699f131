"""Spans of time as a payload writes them: `90s`, `1h30m`. The server has checked them."""

import re

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPAN = re.compile("".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in _UNITS_S))


def span_s(text: str) -> float:
    """Read a span into seconds; ValueError when it is none."""
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is no duration")
    return sum(int(count) * unit_s for count, unit_s in zip(match.groups(), _UNITS_S.values(), strict=True) if count)
