"""`Dag`: a directed graph whose edge A -> B says that A depends on B.

It is edited node by node, or made in bulk with `Dag.from_edges`. It accepts cycles, as py3-sched does, and finds
them when asked; `Scheduler` refuses them. It has no lock: one thread builds a graph, then hands it over.
"""

import sys
from array import array
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count, product
from operator import itemgetter, not_
from typing import TYPE_CHECKING, Generic, Literal, TextIO, TypeAlias

# A graph at rest: its nodes numbered from 0, its edges as linked lists in flat arrays, and an order to run it in.
#
# A wiring never changes, so any number of schedulers share one; that makes a snapshot of a graph free. It
# keeps no object per node or edge beside the nodes themselves: a million small lists would cost more in garbage
# collection than all the work on them (`benchmarks.dag`).


Node: TypeAlias = Hashable
#: A dependent and its prerequisite.
Edge: TypeAlias = tuple[Node, Node]
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: What the nodes of one graph are: anything hashable, unless it is said, as in `Dag[str]`.
    NodeT = TypeVar("NodeT", bound=Hashable, default=Hashable)
else:
    from typing import TypeVar

    NodeT = TypeVar("NodeT", bound=Hashable)  # defaults are newer than Python 3.11
#: By number of a node: how many prerequisites it still waits for.
Left: TypeAlias = list[int] | bytearray
Column: TypeAlias = "array[int]"

#: Places in the table of edges are 32-bit integers, two for each edge: this halves what a walk brings into the cache.
EDGES_MAX = 2**30 - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """An order in which every task comes after its prerequisites, and how much of it is open at each moment.

    Once the first `n` tasks of `order` are delivered, and no others, exactly the first `opened[n]` of it have all
    their prerequisites delivered. Tasks that depend on a cycle are not in it.
    """

    order: list[int]
    opened: Column


class Wiring(Generic[NodeT]):
    """The nodes and edges of a graph, by number.

    An edge is an index into `links`, next to its dependent: the entry is the index of the next edge of the same
    prerequisite, and 0 after the last. The first index is 1, so 0 is no edge.
    """

    def __init__(self, nodes: Iterable[NodeT], edges: Sequence[tuple[NodeT, NodeT]]) -> None:
        """Number the nodes, then whatever else the edges name; a repeated edge is harmless, a self edge is left out."""
        self.number, dependents, prerequisites = _numbered(nodes, edges)
        self.nodes: list[NodeT] = list(self.number)
        self._needs = [0] * len(self.nodes)
        self.first = array("i", [0]) * len(self.nodes)
        self.links = array("i", [0]) * (2 * len(edges))
        self.links[::2] = dependents
        self._link(dependents, prerequisites)

    def dependents(self, number: int) -> Iterator[int]:
        """Return the dependents of `number`."""
        edge = self.first[number]
        while edge:
            yield self.links[edge - 1]
            edge = self.links[edge]

    def left(self) -> Left:
        """Count the prerequisites of every task."""
        # Counts that fit into a byte each stay in the cache, which spares the count-down a third of its time.
        return bytearray(self._needs) if max(self._needs, default=0) < 256 else self._needs.copy()

    def count_down(self, left: Left, delivered: Iterable[int], opened: list[int]) -> None:
        """Decrement `left` for the dependents of `delivered`; tasks that reach 0 are appended to `opened`."""
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
        # Opened tasks are appended to the order that is being walked: the walk ends when no task opens any more.
        self.count_down(self.left(), _noting(plan), order)
        return plan

    def cycle(self) -> list[NodeT]:
        """Find one whole cycle, each node depending on the next and the last on the first; empty if there is none."""
        stuck = set(range(len(self.nodes))).difference(self.plan.order)
        # Each stuck node has a stuck prerequisite, or it would have opened; so following prerequisites never ends.
        cause = {dependent: number for number in stuck for dependent in self.dependents(number)}
        trail: dict[int, None] = {}
        here = min(stuck, default=None)
        while here is not None and here not in trail:
            trail[here] = None
            here = cause[here]
        way = list(trail)
        return [self.nodes[number] for number in way[way.index(here) :]] if here is not None else []

    def sinks(self) -> list[NodeT]:
        """Return the nodes without a prerequisite."""
        return list(compress(self.nodes, map(not_, self._needs)))

    def sources(self) -> list[NodeT]:
        """Return the nodes without a dependent."""
        return list(compress(self.nodes, map(not_, self.first)))

    def _link(self, dependents: Column, prerequisites: Column) -> None:
        first, links, needs = self.first, self.links, self._needs
        for edge, dependent, prerequisite in zip(count(1, 2), dependents, prerequisites):
            if dependent != prerequisite:
                links[edge] = first[prerequisite]
                first[prerequisite] = edge
                needs[dependent] += 1


def _numbered(nodes: Iterable[NodeT], edges: Sequence[tuple[NodeT, NodeT]]) -> tuple[dict[NodeT, int], Column, Column]:
    """Number the nodes as they are met, and give the two columns of `edges` by number."""
    number: defaultdict[NodeT, int] = defaultdict()
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


_DUPS = ("error", "ignore", "overwrite")


class DagError(ValueError):
    """The graph cannot be changed like this, and was not."""


class UnknownNode(DagError, KeyError):
    """There is no such node."""

    def __init__(self, id: Node) -> None:
        super().__init__(f"there is no node {id!r}")

    __str__ = ValueError.__str__  # that of a KeyError adds quotes


class Dag(Generic[NodeT]):
    """Nodes, each with its data, and edges from a node to what it depends on. A node is anything hashable."""

    def __init__(self) -> None:
        self._data: dict[NodeT, object] = {}
        # A graph has two forms. Edits work on these tables of neighbours, which are empty until the first edit; reads
        # use the wiring, which is made when it is first needed and dropped by the next edit.
        self._prerequisites: dict[NodeT, dict[NodeT, None]] = {}
        self._dependents: dict[NodeT, dict[NodeT, None]] = {}
        self._wiring: Wiring[NodeT] | None = None
        self._unfolded = True

    @classmethod
    def from_edges(cls, edges: Iterable[tuple[NodeT, NodeT]], nodes: Iterable[NodeT] = ()) -> "Dag[NodeT]":
        """Make a graph of `edges`, pairs (dependent, prerequisite), and of `nodes` that may have no edge, in bulk.

        It is as if each node had been added with `dup='ignore'` and each edge with everything allowed: a node that an
        edge names need not be in `nodes`, an edge may be there twice, and one from a node to itself is ignored.
        """
        pairs = edges if isinstance(edges, Sequence) else list(edges)
        if len(pairs) > EDGES_MAX:
            raise DagError(f"{len(pairs)} edges are too many: a graph has at most {EDGES_MAX}")
        if not set(map(len, pairs)) <= {2}:
            raise DagError("an edge is a pair (dependent, prerequisite)")
        dag = cls()
        dag._wiring = Wiring(nodes, pairs)
        dag._unfolded = False
        return dag

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._known)

    def __repr__(self) -> str:
        return f"<Dag: {len(self)} node{'' if len(self) == 1 else 's'}>"

    def add_node(
        self, id: NodeT, data: object = None, *, dup: Literal["error", "ignore", "overwrite"] = "error"
    ) -> None:
        """Add a node. If it exists: refuse, keep it, or replace its data; its edges stay."""
        if dup not in _DUPS:
            raise DagError(f"dup is one of {', '.join(_DUPS)}, not {dup!r}")
        known = id in self
        if known and dup == "error":
            raise DagError(f"node {id!r} is there already; pass dup='ignore' or dup='overwrite' to allow it")
        if not known:
            self._edit()
            self._prerequisites[id] = {}
            self._dependents[id] = {}
        if not known or dup == "overwrite":
            self._data[id] = data

    def del_node(self, id: NodeT, noexist_ok: bool = False) -> None:
        """Remove a node and all its edges."""
        if id in self:
            self._edit()
            for prerequisite in self._prerequisites.pop(id):
                del self._dependents[prerequisite][id]
            for dependent in self._dependents.pop(id):
                del self._prerequisites[dependent][id]
            self._data.pop(id, None)
        elif not noexist_ok:
            raise UnknownNode(id)

    def add_edge(self, src: NodeT, dst: NodeT, *, exist_ok: bool = False, backedge_ok: bool = False) -> None:
        """Let `src` depend on `dst`; a node's edge to itself is ignored. Longer cycles than a pair are not noticed."""
        if src == dst:
            return
        for node in (src, dst):
            if node not in self:
                raise UnknownNode(node)
        self._edit()
        prerequisites, dependents = self._prerequisites[src], self._dependents[dst]
        if dst in prerequisites and not exist_ok:
            raise DagError(f"{src!r} depends on {dst!r} already; pass exist_ok=True to allow it")
        if src in self._prerequisites[dst] and not backedge_ok:
            raise DagError(f"{dst!r} depends on {src!r}; pass backedge_ok=True to allow the way back")
        prerequisites[dst] = None
        dependents[src] = None

    def add_edges(
        self, srcs: Iterable[NodeT], dsts: Iterable[NodeT], *, exist_ok: bool = False, backedge_ok: bool = False
    ) -> None:
        """Let each of `srcs` depend on each of `dsts`, one by one until one is refused."""
        for src, dst in product(srcs, dsts):
            self.add_edge(src, dst, exist_ok=exist_ok, backedge_ok=backedge_ok)

    def del_edge(self, src: NodeT, dst: NodeT, noexist_ok: bool = False) -> None:
        """Let `src` no longer depend on `dst`; without that edge, or those nodes, it is a KeyError."""
        self._edit()
        if dst in self._prerequisites.get(src, ()):
            del self._prerequisites[src][dst]
            del self._dependents[dst][src]
        elif not noexist_ok:
            raise KeyError(f"no edge from {src!r} to {dst!r}")

    def del_edges(self, srcs: Iterable[NodeT], dsts: Iterable[NodeT], noexist_ok: bool = False) -> None:
        """Let none of `srcs` depend on any of `dsts`, one by one until one is refused."""
        for src, dst in product(srcs, dsts):
            self.del_edge(src, dst, noexist_ok=noexist_ok)

    def clear(self) -> None:
        """Remove every node and edge."""
        self._edit()
        for table in (self._prerequisites, self._dependents, self._data):
            table.clear()

    def get_data(self, id: NodeT) -> object:
        """Return what a node was added with; a KeyError if there is no such node."""
        if id not in self:
            raise UnknownNode(id)
        return self._data.get(id)

    @property
    def sources(self) -> list[NodeT]:
        """The nodes without dependents."""
        return self.wiring.sources()

    @property
    def sinks(self) -> list[NodeT]:
        """The nodes without prerequisites, which can run first."""
        return self.wiring.sinks()

    @property
    def isolated_nodes(self) -> list[NodeT]:
        """The nodes without any edge."""
        sinks = set(self.sinks)
        return [node for node in self.sources if node in sinks]

    def check_acyclic(self) -> tuple[NodeT, NodeT] | None:
        """Return None, or an edge (u, v) of a cycle."""
        cycle = self.wiring.cycle()
        return (cycle[0], cycle[1]) if cycle else None

    def print_debug(self, fd: TextIO | None = None) -> None:
        """Write each node, its data and its prerequisites as a line to `fd`, by default the standard error."""
        wiring = self.wiring
        prerequisites: list[dict[NodeT, None]] = [{} for _ in wiring.nodes]
        for number, node in enumerate(wiring.nodes):
            for dependent in wiring.dependents(number):
                prerequisites[dependent][node] = None
        for node, needed in zip(wiring.nodes, prerequisites, strict=True):
            (fd or sys.stderr).write(f"{node!r} ({self.get_data(node)!r}) -> {list(needed)!r}\n")

    @property
    def wiring(self) -> Wiring[NodeT]:
        """The graph as it is now, in a form that never changes: what a scheduler keeps of it."""
        if self._wiring is None:
            edges = [(src, dst) for src, dsts in self._prerequisites.items() for dst in dsts]
            self._wiring = Wiring(self._prerequisites, edges)
        return self._wiring

    @property
    def _known(self) -> Collection[NodeT]:
        return self._prerequisites if self._wiring is None else self._wiring.number

    def _edit(self) -> None:
        """Prepare an edit: fill the tables and drop the wiring."""
        if not self._unfolded:
            self._unfold(self.wiring)
        self._wiring = None

    def _unfold(self, wiring: Wiring[NodeT]) -> None:
        self._prerequisites = {node: {} for node in wiring.nodes}
        self._dependents = {node: {} for node in wiring.nodes}
        for number, node in enumerate(wiring.nodes):
            for dependent in wiring.dependents(number):
                self._prerequisites[wiring.nodes[dependent]][node] = None
                self._dependents[node][wiring.nodes[dependent]] = None
        self._unfolded = True
