"""What the two forms of a document share: the limits, and how numbers and places are read."""

import math
from typing import Final

from taskyard.wire.faults import Findings

#: A graph of 100 000 small tasks fits; a client's memory is safe from what is bigger.
DOCUMENT_BYTES_MAX: Final = 10 * 1024 * 1024
#: People nest graphs in graphs a few times, at five levels each; Python's own stack ends near 1 000.
DEPTH_MAX: Final = 100
#: What a signed 64-bit column and every other JSON reader can hold.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
#: As long as the longest of these with its sign: a longer one is refused unread, for reading it is slow.
INTEGER_DIGITS_MAX: Final = 20

#: Keys and indexes from the root of a document to a value in it.
Path = tuple[str | int, ...]


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Give the line and column, from 1, of a character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def read_integer(digits: str, findings: Findings, line: int | None = None, column: int | None = None) -> int:
    """Read an integer, if 64 bits hold it."""
    value = int(digits) if len(digits) <= INTEGER_DIGITS_MAX else INTEGER_MAX + 1
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        findings.add(f"the integer {shortened(digits)} does not fit in 64 bits", line, column)
    return value


def read_float(digits: str, findings: Findings, line: int | None = None, column: int | None = None) -> float:
    """Read a float, if it is finite."""
    value = float(digits)
    if math.isinf(value):
        findings.add(f"the number {shortened(digits)} is too large", line, column)
    return value


def shortened(text: str, length_max: int = 40) -> str:
    """Cut what a hostile document could make long, for a message."""
    return text if len(text) <= length_max else f"{text[:length_max]}..."
