"""Ranges of bytes as HTTP asks for them (RFC 9110): one range; what is malformed counts as not asked for."""

import re
from dataclasses import dataclass
from typing import Final

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """From a byte, up to but not including another."""

    start: int
    until: int


def asked(header: str | None, size: int) -> Span | None:
    """Give the range that is asked for, cut to what there is: None for all of it, an empty one if nothing is there."""
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return Span(max(0, size - int(found[2])), size) if int(found[2]) else Span(size, size)
    start = int(found[1])
    until = int(found[2]) + 1 if found[2] else size
    if until <= start and found[2]:
        return None
    return Span(start, max(start, min(until, size)))
