"""What a caller sees of a scheduler: sets and mappings that cannot be changed and always show how things stand.

Nothing is copied to be looked at. A view may be walked while tasks are fetched, delivered and failed, by this thread
or another; whoever leaves before its turn is left out, and whoever enters meanwhile waits for the next walk.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from threading import Lock

from taskyard.local.roster import Roster
from taskyard.local.rules import AVAILABLE
from taskyard.local.wiring import Node, Wiring


class NodeSet(AbstractSet[Node]):
    """A set of nodes that compares and combines with any other set; the result is a plain one."""

    __slots__ = ()

    @classmethod
    def _from_iterable(cls, nodes: Iterable[Node]) -> set[Node]:  # type: ignore[override]
        return set(nodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({set(self) or '{}'})"


class AvailableTasks(NodeSet):
    """The tasks that are ready or fetched."""

    __slots__ = ("_codes", "_lock", "_roster", "_wiring")

    def __init__(self, wiring: Wiring, codes: bytearray, roster: Roster, lock: Lock) -> None:
        self._wiring = wiring
        self._codes = codes
        self._roster = roster
        self._lock = lock

    def __contains__(self, id: object) -> bool:
        number = self._wiring.number.get(id)
        return number is not None and AVAILABLE[self._codes[number]]

    def __len__(self) -> int:
        return len(self._roster)

    def __iter__(self) -> Iterator[Node]:
        with self._lock:
            self._roster.tidy()
            return map(self._wiring.nodes.__getitem__, self._roster.walk())


class FailedTasks(NodeSet):
    """The failed prerequisites of one task."""

    __slots__ = ("_numbers", "_wiring")

    def __init__(self, wiring: Wiring, numbers: set[int]) -> None:
        self._wiring = wiring
        self._numbers = numbers

    def __contains__(self, id: object) -> bool:
        return self._wiring.number.get(id) in self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Node]:
        return map(self._wiring.nodes.__getitem__, tuple(self._numbers))


class BlockedTasks(Mapping[Node, AbstractSet[Node]]):
    """The tasks with a failed prerequisite, each with all of those."""

    __slots__ = ("_blocked", "_wiring")

    def __init__(self, wiring: Wiring, blocked: Mapping[int, set[int]]) -> None:
        self._wiring = wiring
        self._blocked = blocked

    def __getitem__(self, id: Node) -> FailedTasks:
        return FailedTasks(self._wiring, self._blocked[self._wiring.number[id]])

    def __contains__(self, id: object) -> bool:
        return self._wiring.number.get(id) in self._blocked

    def __len__(self) -> int:
        return len(self._blocked)

    def __iter__(self) -> Iterator[Node]:
        return map(self._wiring.nodes.__getitem__, tuple(self._blocked))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {node: set(failed) for node, failed in self.items()} })"
