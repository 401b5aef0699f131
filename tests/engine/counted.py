"""A rig whose writer's store counts the rows of every statement, for each transaction."""

from tests.engine.rig import Rig
from tests.lifecycle.tallied import Tallied


class Counted(Tallied):
    """The store of a rig; it counts what the writer does."""

    @classmethod
    def under(cls, rig: Rig) -> "Counted":
        """Count what the writer of a rig does from now on."""
        counted = cls(rig.store)
        rig.engine._writer._store = counted
        return counted

    def each(self, *statements: str) -> list[int]:
        """Say of each transaction how many rows it has had to do with by these statements, if any."""
        sums = [sum(one[name] for name in statements) for one in self.written]
        return [count for count in sums if count]
