"""The mint: makes the keys of what this engine creates. It never makes one twice; other engines have mints too."""

from dataclasses import dataclass
from threading import Lock

from taskyard.core import ids
from taskyard.core.ids import Key
from taskyard.core.words import Millis
from taskyard.engine.clock import Clock


@dataclass(frozen=True, slots=True)
class Minted:
    """Keys for a graph and for tasks, and the moment of their birth, which no other birth shares."""

    graph: Key
    tasks: list[Key]  # in the order in which they shall sort
    created_ms: Millis


class Mint:
    """Makes keys."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._newest: Key | None = None

    def fresh(self, tasks: int) -> Minted:
        """Make the keys of a graph and of its tasks."""
        with self._lock:
            created = self._clock.tick()
            chance = self._clock.chance()
            graph = ids.mint(created, 1, chance, self._newest)[0]
            keys = ids.mint(created, tasks, chance, graph)
            self._newest = keys[0] if keys else graph
            return Minted(graph, keys, created)
