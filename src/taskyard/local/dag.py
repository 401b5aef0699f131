"""`Dag`: a directed graph whose edge A -> B says that A depends on B.

It is edited node by node, or made in bulk with `Dag.from_edges`. It accepts cycles, as py3-sched does, and finds
them when asked; `Scheduler` refuses them. It has no lock: one thread builds a graph, then hands it over.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal, TextIO

from taskyard.local.wiring import EDGES_MAX, Edge, Node, Wiring

_DUPS = ("error", "ignore", "overwrite")


class DagError(ValueError):
    """The graph cannot be changed like this, and was not."""


class Dag:
    """Nodes, each with its data, and edges from a node to what it depends on. A node is anything hashable."""

    def __init__(self) -> None:
        self._data: dict[Node, object] = {}
        # A graph has two forms. Edits work on these tables of neighbours, which are empty until somebody edits; all
        # that only reads uses the wiring, which is made when first asked for and dropped by the next edit.
        self._prerequisites: dict[Node, dict[Node, None]] = {}
        self._dependents: dict[Node, dict[Node, None]] = {}
        self._wiring: Wiring | None = None
        self._unfolded = True

    @classmethod
    def from_edges(cls, edges: Iterable[Edge], nodes: Iterable[Node] = ()) -> "Dag":
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

    def __contains__(self, id: Node) -> bool:
        return id in (self._prerequisites if self._wiring is None else self._wiring.number)

    def add_node(
        self, id: Node, data: object = None, *, dup: Literal["error", "ignore", "overwrite"] = "error"
    ) -> None:
        """Add a node. If it is there: refuse, leave it as it is, or give it the new data; its edges stay its own."""
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

    def del_node(self, id: Node, noexist_ok: bool = False) -> None:
        """Remove a node and all its edges."""
        if id in self:
            self._edit()
            for prerequisite in self._prerequisites.pop(id):
                del self._dependents[prerequisite][id]
            for dependent in self._dependents.pop(id):
                del self._prerequisites[dependent][id]
            self._data.pop(id, None)
        elif not noexist_ok:
            raise DagError(f"there is no node {id!r}")

    def add_edge(self, src: Node, dst: Node, *, exist_ok: bool = False, backedge_ok: bool = False) -> None:
        """Let `src` depend on `dst`; a node's edge to itself is ignored. Longer cycles than a pair are not noticed."""
        if src == dst:
            return
        self._edit()
        prerequisites, dependents = self._prerequisites[src], self._dependents[dst]
        if dst in prerequisites and not exist_ok:
            raise DagError(f"{src!r} depends on {dst!r} already; pass exist_ok=True to allow it")
        if src in self._prerequisites[dst] and not backedge_ok:
            raise DagError(f"{dst!r} depends on {src!r}; pass backedge_ok=True to allow the way back")
        prerequisites[dst] = None
        dependents[src] = None

    def add_edges(
        self, srcs: Iterable[Node], dsts: Iterable[Node], *, exist_ok: bool = False, backedge_ok: bool = False
    ) -> None:
        """Let each of `srcs` depend on each of `dsts`, one by one until one is refused."""
        for src, dst in product(srcs, dsts):
            self.add_edge(src, dst, exist_ok=exist_ok, backedge_ok=backedge_ok)

    def del_edge(self, src: Node, dst: Node, noexist_ok: bool = False) -> None:
        """Let `src` no longer depend on `dst`; without that edge, or those nodes, it is a KeyError."""
        self._edit()
        if dst in self._prerequisites.get(src, ()):
            del self._prerequisites[src][dst]
            del self._dependents[dst][src]
        elif not noexist_ok:
            raise KeyError(f"no edge from {src!r} to {dst!r}")

    def del_edges(self, srcs: Iterable[Node], dsts: Iterable[Node], noexist_ok: bool = False) -> None:
        """Let none of `srcs` depend on any of `dsts`, one by one until one is refused."""
        for src, dst in product(srcs, dsts):
            self.del_edge(src, dst, noexist_ok=noexist_ok)

    def clear(self) -> None:
        """Remove every node and edge."""
        self._edit()
        for table in (self._prerequisites, self._dependents, self._data):
            table.clear()

    def get_data(self, id: Node) -> object:
        """Return what a node was added with; a KeyError if there is no such node."""
        if id not in self:
            raise KeyError(id)
        return self._data.get(id)

    @property
    def sources(self) -> list[Node]:
        """The nodes nobody depends on."""
        return self.wiring.sources()

    @property
    def sinks(self) -> list[Node]:
        """The nodes that depend on nobody: the ones that can run first."""
        return self.wiring.sinks()

    @property
    def isolated_nodes(self) -> list[Node]:
        """The nodes without any edge."""
        sinks = set(self.sinks)
        return [node for node in self.sources if node in sinks]

    def check_acyclic(self) -> Edge | None:
        """Return None, or an edge (u, v) of a cycle."""
        cycle = self.wiring.cycle()
        return (cycle[0], cycle[1]) if cycle else None

    def print_debug(self, fd: TextIO | None = None) -> None:
        """Write each node, its data and its prerequisites as a line to `fd`, by default the standard error."""
        wiring = self.wiring
        prerequisites: list[dict[Node, None]] = [{} for _ in wiring.nodes]
        for number, node in enumerate(wiring.nodes):
            for dependent in wiring.dependents(number):
                prerequisites[dependent][node] = None
        for node, needed in zip(wiring.nodes, prerequisites, strict=True):
            (fd or sys.stderr).write(f"{node!r} ({self.get_data(node)!r}) -> {list(needed)!r}\n")

    @property
    def wiring(self) -> Wiring:
        """The graph as it is now, in a form that never changes: what a scheduler keeps of it."""
        if self._wiring is None:
            edges = [(src, dst) for src, dsts in self._prerequisites.items() for dst in dsts]
            self._wiring = Wiring(self._prerequisites, edges)
        return self._wiring

    def _edit(self) -> None:
        """Make ready for a change: the tables are filled, and the wiring is of the past."""
        if not self._unfolded:
            self._unfold(self.wiring)
        self._wiring = None

    def _unfold(self, wiring: Wiring) -> None:
        self._prerequisites = {node: {} for node in wiring.nodes}
        self._dependents = {node: {} for node in wiring.nodes}
        for number, node in enumerate(wiring.nodes):
            for dependent in wiring.dependents(number):
                self._prerequisites[wiring.nodes[dependent]][node] = None
                self._dependents[node][wiring.nodes[dependent]] = None
        self._unfolded = True
