"""Find the known name that a misspelt one probably meant.

The cost does not grow with the number of names: a few are compared one by one; among many, only the spellings that
are one typing slip away are looked up.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from string import ascii_letters, digits
from typing import Final

#: Names that are compared one by one; about a millisecond.
COMPARED_MAX = 256
#: How alike two names are, from 0 to 1, of which one may be meant for the other.
ALIKE: Final = 0.6
#: Longer names are not typed by hand, and have too many possible slips.
LENGTH_MAX = 64
#: The characters that a slip can put into a name.
_ALPHABET = ascii_letters + digits + "-_.:/ ,[]"


def closest(name: str, names: Collection[str], alike: float = ALIKE) -> str | None:
    """Find the one of `names` that is closest to `name`, or None; lookups in a large `names` should be quick."""
    if len(name) > LENGTH_MAX:
        return None
    if len(names) <= COMPARED_MAX:
        return _most_similar(name, names, alike)
    return next((slip for slip in _slips(name) if slip in names), None)


def _most_similar(name: str, names: Collection[str], alike: float) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - loaded only after a mistake

    folded = {other.casefold(): other for other in names}
    found = get_close_matches(name.casefold(), folded, n=1, cutoff=alike)
    return folded[found[0]] if found else None


def _slips(name: str) -> Iterator[str]:
    """Yield the spellings that are one slip away from `name`, the most likely first."""
    cuts = [(name[:at], name[at:]) for at in range(len(name) + 1)]
    return chain(
        (name.lower(), name.upper(), name.replace("_", "-"), name.replace("-", "_")),
        (head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1),
        (head + tail[1:] for head, tail in cuts if tail),
        (head + letter + tail for head, tail in cuts for letter in _ALPHABET),
        (head + letter + tail[1:] for head, tail in cuts if tail for letter in _ALPHABET),
    )
