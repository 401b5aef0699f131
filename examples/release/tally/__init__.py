"""Counts words, the way a person would."""

import re
from collections import Counter
from collections.abc import Iterable

__version__ = "1.2.0"

_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")


def words(text: str) -> list[str]:
    """Split `text` into words; an apostrophe or a hyphen inside a word belongs to it."""
    return [match.group().casefold() for match in _WORD.finditer(text)]


def tally(lines: Iterable[str]) -> Counter[str]:
    """Count the words of all lines."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(words(line))
    return counts


def top(counts: Counter[str], how_many: int) -> list[tuple[str, int]]:
    """Give the most frequent words, the more frequent first, equals by the alphabet."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:how_many]
