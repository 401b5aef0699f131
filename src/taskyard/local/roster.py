"""Who is available: the tasks that are ready or fetched, in the order they became so.

A roster decides nothing. It is told who enters and how many leave; the codes of the tasks say who those are.
"""

from collections.abc import Iterator, Mapping

from taskyard.local.rules import AVAILABLE

#: With fewer struck entries than this, to drop them would cost more than it saves.
_STRUCK_MIN = 32


class Roster:
    """The numbers of the available tasks. An entry that no longer counts stays until a reader has it dropped.

    So a delivery makes no search and a walk makes no copy; and to take the first one again and again stays linear,
    because `tidy` passes what is struck at the front for good, and drops the rest when it is the greater part.
    """

    __slots__ = ("_again", "_codes", "_first", "entries", "struck")

    def __init__(self, codes: bytearray) -> None:
        self._codes = codes
        self.restart([])

    def restart(self, entries: list[int]) -> None:
        """Begin anew with these."""
        self.entries = entries
        #: The place of the newest entry of each task that came back; its older entries do not count.
        self._again: dict[int, int] = {}
        self._first = 0
        self.struck = 0

    def come_back(self, number: int) -> None:
        """Add a task that was here before."""
        self._again[number] = len(self.entries)
        self.entries.append(number)

    def __len__(self) -> int:
        return len(self.entries) - self.struck

    def tidy(self) -> None:
        """Make the next walk short; what it costs, the deliveries since the last time have paid for."""
        if self.struck > len(self) + _STRUCK_MIN:
            self.restart(list(self.walk()))
        front = range(self._first, len(self.entries))
        self._first = next(_counting(self.entries, front, self._codes, self._again), len(self.entries))

    def walk(self) -> Iterator[int]:
        """Name those who are here now, but for those who have left when their turn comes."""
        entries = self.entries
        places = range(self._first, len(entries))
        return map(entries.__getitem__, _counting(entries, places, self._codes, self._again))


def _counting(entries: list[int], places: range, codes: bytearray, again: Mapping[int, int]) -> Iterator[int]:
    # All it needs was picked up when the walk began: a roster that is tidied meanwhile gets new lists.
    for place in places:
        number = entries[place]
        if AVAILABLE[codes[number]] and again.get(number, place) == place:
            yield place
