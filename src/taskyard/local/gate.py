"""Which tasks a delivery opens: those whose prerequisites are then all delivered.

As long as deliveries keep to the order in which the tasks opened, the plan that proved the graph free of cycles knows
the answer, and no edge is looked at twice. The first delivery out of that order ends this: the gate makes up for the
counting it was spared so far, and counts from then on. The answers are the same either way.
"""

from taskyard.local.wiring import Left, Wiring


class Gate:
    """What is delivered of a graph, and what that opens."""

    __slots__ = ("_delivered", "_first", "_left", "_links", "_open", "_opened", "_order", "_wiring")

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._first, self._links = wiring.first, wiring.links
        self._order, self._opened = wiring.plan.order, wiring.plan.opened
        self.restart()

    def restart(self) -> None:
        """Begin anew, with nothing delivered."""
        #: How much of the plan is delivered and how much of it is open, while it is kept to.
        self._delivered = 0
        self._open = self._opened[0]
        #: What is left to each task; None while the plan is kept to.
        self._left: Left | None = None

    def deliver(self, number: int) -> list[int]:
        """Note that it is delivered; name the tasks this opens."""
        if self._left is None and self._order[self._delivered] == number:
            return self._follow_plan(self._delivered + 1)
        opened: list[int] = []
        edge = self._first[number]
        # Who has no dependents opens nothing, in its turn or out of it: no reason to leave the plan.
        if edge:
            # `count_down` for one, written out: to set that up costs as much as the count (`benchmarks.dag`).
            left, links = self._left or self.left(), self._links
            while edge:
                dependent = links[edge - 1]
                left[dependent] = rest = left[dependent] - 1
                if not rest:
                    opened.append(dependent)
                edge = links[edge]
        return opened

    def deliver_all(self, numbers: list[int]) -> list[int]:
        """Note that these are delivered; name the tasks this opens."""
        end = self._delivered + len(numbers)
        if self._left is None and self._order[self._delivered : end] == numbers:
            return self._follow_plan(end)
        opened: list[int] = []
        self._wiring.count_down(self.left(), numbers, opened)
        return opened

    def left(self) -> Left:
        """Count the prerequisites that each task still waits for; this leaves the plan."""
        if self._left is None:
            self._left = self._wiring.left()
            self._wiring.count_down(self._left, self._order[: self._delivered], [])
        return self._left

    def _follow_plan(self, delivered: int) -> list[int]:
        before, self._open = self._open, self._opened[delivered]
        self._delivered = delivered
        return self._order[before : self._open]
