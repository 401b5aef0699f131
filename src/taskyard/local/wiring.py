"""A graph at rest: its nodes numbered from 0, its edges as linked lists in flat arrays, and an order to run it in.

A wiring never changes once it is made, so any number of schedulers share one; that is what makes a snapshot of a
graph free. It keeps no object per node or edge beside the nodes themselves: a million small lists would cost more in
garbage collection than all the work there is to do on them (`benchmarks.dag`).
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count
from operator import itemgetter, not_
from typing import TypeAlias

Node: TypeAlias = Hashable
#: Who depends, and on whom.
Edge: TypeAlias = tuple[Node, Node]
#: By number of a node: how many prerequisites it still waits for.
Left: TypeAlias = list[int] | bytearray
Column: TypeAlias = "array[int]"

#: Places in the table of edges are 32-bit integers, two for each edge: this halves what a walk brings into the cache.
EDGES_MAX = 2**30 - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """An order in which every task comes after its prerequisites, and how much of it is open at each moment.

    Once the first `n` tasks of `order` are delivered, and no others, exactly the first `opened[n]` of it have all
    their prerequisites delivered. Tasks that hang on a cycle are not in it.
    """

    order: list[int]
    opened: Column


class Wiring:
    """The nodes and edges of a graph, by number.

    An edge is a place in `links`, next to its dependent: there stands the place of the next edge that has the same
    prerequisite, and 0 after the last. Place 1 is the first there is, so 0 is no edge.
    """

    def __init__(self, nodes: Iterable[Node], edges: Sequence[Edge]) -> None:
        """Number the nodes, then whatever else the edges name; a repeated edge is harmless, a self edge is left out."""
        self.number, dependents, prerequisites = _numbered(nodes, edges)
        self.nodes: list[Node] = list(self.number)
        self._needs = [0] * len(self.nodes)
        self.first = array("i", [0]) * len(self.nodes)
        self.links = array("i", [0]) * (2 * len(edges))
        self.links[::2] = dependents
        self._link(dependents, prerequisites)

    def dependents(self, number: int) -> Iterator[int]:
        """Name those that depend on `number`."""
        edge = self.first[number]
        while edge:
            yield self.links[edge - 1]
            edge = self.links[edge]

    def left(self) -> Left:
        """Count the prerequisites of every task."""
        # Counts that fit into a byte each stay in the cache, which spares the count-down a third of its time.
        return bytearray(self._needs) if max(self._needs, default=0) < 256 else self._needs.copy()

    def count_down(self, left: Left, delivered: Iterable[int], opened: list[int]) -> None:
        """Take what is `delivered` off what is `left` to its dependents; who has nothing left joins `opened`."""
        first, links, join = self.first, self.links, opened.append
        for number in delivered:
            edge = first[number]
            while edge:
                dependent = links[edge - 1]
                left[dependent] = rest = left[dependent] - 1
                if not rest:
                    join(dependent)
                edge = links[edge]

    @cached_property
    def plan(self) -> Plan:
        """The plan that delivers everything in the order it opens."""
        order = list(compress(count(), map(not_, self._needs)))
        plan = Plan(order, array("i", [len(order)]))
        # What opens joins the order that is being walked: the walk ends when nothing opens any more.
        self.count_down(self.left(), _noting(plan), order)
        return plan

    def cycle(self) -> list[Node]:
        """Find one whole cycle, each node depending on the next and the last on the first; empty if there is none."""
        stuck = set(range(len(self.nodes))).difference(self.plan.order)
        # Each stuck node has a stuck prerequisite, or it would have opened; so the way from cause to cause never ends.
        cause = {dependent: number for number in stuck for dependent in self.dependents(number)}
        trail: dict[int, None] = {}
        here = min(stuck, default=None)
        while here is not None and here not in trail:
            trail[here] = None
            here = cause[here]
        way = list(trail)
        return [self.nodes[number] for number in way[way.index(here) :]] if here is not None else []

    def sinks(self) -> list[Node]:
        """Name the nodes without a prerequisite."""
        return list(compress(self.nodes, map(not_, self._needs)))

    def sources(self) -> list[Node]:
        """Name the nodes without a dependent."""
        return list(compress(self.nodes, map(not_, self.first)))

    def _link(self, dependents: Column, prerequisites: Column) -> None:
        first, links, needs = self.first, self.links, self._needs
        for edge, dependent, prerequisite in zip(count(1, 2), dependents, prerequisites):
            if dependent != prerequisite:
                links[edge] = first[prerequisite]
                first[prerequisite] = edge
                needs[dependent] += 1


def _numbered(nodes: Iterable[Node], edges: Sequence[Edge]) -> tuple[dict[Node, int], Column, Column]:
    """Number the nodes as they are met, and give the two columns of `edges` by number."""
    number: defaultdict[Node, int] = defaultdict()
    number.default_factory = number.__len__
    deque(map(number.__getitem__, nodes), maxlen=0)
    dependents, prerequisites = (array("i", map(number.__getitem__, map(itemgetter(side), edges))) for side in (0, 1))
    number.default_factory = None
    return number, dependents, prerequisites


def _noting(plan: Plan) -> Iterator[int]:
    """Walk the order of a plan while it grows, noting after each task how far it is open."""
    order, note = plan.order, plan.opened.append
    for number in order:
        yield number
        note(len(order))
