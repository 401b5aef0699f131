"""A graph is edited node by node or made in bulk, and finds its shape and its cycles."""

import io
import pickle
import weakref
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard import Dag, DagError
from taskyard.local.dag import Edge, Node

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


def dag_of(*edges: Edge, nodes: tuple[Node, ...] = ()) -> Dag:
    """Build it the slow way."""
    dag = Dag()
    for node in (*nodes, *(node for edge in edges for node in edge)):
        dag.add_node(node, dup="ignore")
    for src, dst in edges:
        dag.add_edge(src, dst, exist_ok=True, backedge_ok=True)
    return dag


def edges_of(dag: Dag[Any]) -> set[Edge]:
    wiring = dag.wiring
    return {(wiring.nodes[src], dst) for n, dst in enumerate(wiring.nodes) for src in wiring.dependents(n)}


# Nodes


def test_a_graph_says_how_many_nodes_it_has() -> None:
    dag = Dag[str]()
    assert (len(dag), repr(dag)) == (0, "<Dag: 0 nodes>")
    dag.add_node("a")
    assert (len(dag), repr(dag)) == (1, "<Dag: 1 node>")
    assert repr(Dag.from_edges([("a", "b"), ("b", "c")])) == "<Dag: 3 nodes>"


@pytest.mark.parametrize("is_read", [True, False])
def test_a_graph_is_pickled_with_its_nodes_data_and_edges(is_read: bool) -> None:
    dag = dag_of(("a", "b"), ("b", "c"))
    dag.add_node("a", data={"mine": 1}, dup="overwrite")
    if is_read:
        assert dag.check_acyclic() is None
    copy = pickle.loads(pickle.dumps(dag))  # noqa: S301 - our own
    assert (edges_of(copy), copy.get_data("a"), len(copy)) == (edges_of(dag), {"mine": 1}, 3)
    copy.add_node("d")
    assert "d" not in dag


def test_an_edge_of_an_unknown_node_is_refused_and_changes_nothing() -> None:
    dag = dag_of(nodes=("a",))
    for edge in (("a", "x"), ("x", "a")):
        with pytest.raises(DagError, match=r"^there is no node 'x'$") as refusal:
            dag.add_edge(*edge)
        assert isinstance(refusal.value, KeyError)
    assert (edges_of(dag), len(dag)) == (set(), 1)


@pytest.mark.parametrize("node", [0, "", None, (), (1, "a"), frozenset({1}), 2.5, False])
def test_anything_hashable_is_a_node(node: Node) -> None:
    dag = Dag()
    dag.add_node(node, data="mine")
    assert (node in dag, dag.get_data(node), dag.isolated_nodes) == (True, "mine", [node])


@pytest.mark.parametrize(("dup", "kept"), [("ignore", "old"), ("overwrite", "new")])
def test_a_node_added_again_keeps_its_edges_and_its_data_only_if_so_asked(dup: str, kept: str) -> None:
    dag = Dag()
    dag.add_node("a", "old")
    dag.add_node("b")
    dag.add_edge("a", "b")
    dag.add_node("a", "new", dup=dup)  # type: ignore[arg-type]
    assert (dag.get_data("a"), edges_of(dag)) == (kept, {("a", "b")})


def test_a_node_is_not_added_twice_by_mistake() -> None:
    dag = Dag()
    dag.add_node("a", "old")
    with pytest.raises(DagError, match="node 'a' is there already; pass dup='ignore'"):
        dag.add_node("a", "new")
    assert dag.get_data("a") == "old"


@pytest.mark.parametrize("node", ["known", "new"])
def test_an_unknown_way_to_treat_a_double_is_refused_even_if_there_is_none(node: str) -> None:
    dag = dag_of(nodes=("known",))
    with pytest.raises(DagError, match="dup is one of error, ignore, overwrite, not 'replace'"):
        dag.add_node(node, dup="replace")  # type: ignore[arg-type]
    assert "new" not in dag


def test_a_deleted_node_takes_all_its_edges_along() -> None:
    dag = dag_of(("a", "b"), ("b", "c"))
    dag.del_node("b")
    assert sorted(map(str, dag.isolated_nodes)) == ["a", "c"]
    dag.add_node("b")
    assert sorted(map(str, dag.isolated_nodes)) == ["a", "b", "c"]
    dag.add_edge("c", "b")


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_nodes_and_edges_are_deleted_in_any_order(order: str) -> None:
    dag = dag_of(("a", "b"), ("b", "c"), ("a", "c"))
    dag.del_edge("a", "c")
    for node in order:
        dag.del_node(node)
    assert (dag.sources, dag.sinks) == ([], [])


@pytest.mark.parametrize("forget", [lambda dag: dag.del_node("a"), Dag.clear], ids=["del_node", "clear"])
def test_a_deleted_node_lets_go_of_its_data(forget: Callable[[Dag], None]) -> None:
    dag, cargo = Dag(), Cargo()
    dag.add_node("a", cargo)
    held = weakref.ref(cargo)
    del cargo
    assert dag.get_data("a") is held()
    forget(dag)
    assert held() is None


class Cargo:
    """Something whose end can be seen."""


def test_a_node_that_is_not_there_is_not_deleted() -> None:
    dag = dag_of(nodes=("a",))
    with pytest.raises(DagError, match="there is no node 'b'"):
        dag.del_node("b")
    dag.del_node("b", noexist_ok=True)
    assert dag.sinks == ["a"]


def test_data_of_an_unknown_node_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Dag().get_data("a")


# Edges


def test_an_edge_to_itself_is_ignored() -> None:
    dag = dag_of(nodes=("a",))
    dag.add_edge("a", "a")
    assert (dag.isolated_nodes, dag.check_acyclic()) == (["a"], None)


def test_an_edge_is_not_added_twice_by_mistake() -> None:
    dag = dag_of(("a", "b"))
    with pytest.raises(DagError, match="'a' depends on 'b' already; pass exist_ok=True"):
        dag.add_edge("a", "b")
    dag.add_edge("a", "b", exist_ok=True)
    assert edges_of(dag) == {("a", "b")}


def test_a_way_back_is_not_added_by_mistake() -> None:
    dag = dag_of(("a", "b"))
    with pytest.raises(DagError, match="'a' depends on 'b'; pass backedge_ok=True"):
        dag.add_edge("b", "a")
    assert edges_of(dag) == {("a", "b")}
    dag.add_edge("b", "a", backedge_ok=True)
    assert edges_of(dag) == {("a", "b"), ("b", "a")}


@pytest.mark.parametrize("edge", [("a", "x"), ("x", "a")])
def test_an_edge_needs_both_its_nodes(edge: Edge) -> None:
    dag = dag_of(nodes=("a",))
    with pytest.raises(KeyError):
        dag.add_edge(*edge)
    assert edges_of(dag) == set()


def test_edges_are_added_and_deleted_as_a_cross_product() -> None:
    dag = dag_of(nodes=("a", "b", "c", "d"))
    dag.add_edges(iter("ab"), iter("cd"))
    assert edges_of(dag) == {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")}
    dag.del_edges(iter("ab"), iter("c"))
    assert edges_of(dag) == {("a", "d"), ("b", "d")}
    dag.add_edges("ab", "cd", exist_ok=True)
    dag.add_edges("cd", "ab", backedge_ok=True)
    dag.del_edges("abcd", "abcd", noexist_ok=True)
    assert edges_of(dag) == set()


@pytest.mark.parametrize("edge", [("b", "a"), ("a", "x"), ("x", "a")])
def test_an_edge_that_is_not_there_is_a_key_error(edge: Edge) -> None:
    dag = dag_of(("a", "b"))
    with pytest.raises(KeyError):
        dag.del_edge(*edge)
    dag.del_edge(*edge, noexist_ok=True)
    assert edges_of(dag) == {("a", "b")}


def test_a_deleted_edge_is_gone_from_both_ends() -> None:
    dag = dag_of(("a", "b"))
    dag.del_edge("a", "b")
    assert dag.isolated_nodes == ["a", "b"]
    dag.add_edge("b", "a")


# Shape


def test_sources_have_no_dependent_sinks_no_prerequisite_and_isolated_nodes_neither() -> None:
    dag = dag_of(("a", "b"), ("b", "c"), nodes=("z",))
    assert (set(dag.sources), set(dag.sinks), dag.isolated_nodes) == ({"a", "z"}, {"c", "z"}, ["z"])


def test_a_cleared_graph_is_empty() -> None:
    dag = Dag.from_edges([("a", "b")])
    dag.clear()
    assert (dag.sources, dag.sinks, "a" in dag) == ([], [], False)
    dag.add_node("a")
    assert (dag.isolated_nodes, dag.get_data("a")) == (["a"], None)


def test_the_debug_print_has_a_line_for_each_node() -> None:
    dag = dag_of(("a", "b"), ("a", "c"))
    dag.add_node("b", 7, dup="overwrite")
    out = io.StringIO()
    dag.print_debug(out)
    assert out.getvalue() == "'a' (None) -> ['b', 'c']\n'b' (7) -> []\n'c' (None) -> []\n"


# Cycles


def test_the_reference_graph_and_its_way_back() -> None:
    dag = dag_of((0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4), (1, 2))
    assert (dag.sources, dag.sinks) == ([0], [4])
    dag.add_edge(3, 2, backedge_ok=True)
    assert set(dag.check_acyclic() or ()) == {3, 2}
    dag.del_edge(3, 2)
    assert dag.check_acyclic() is None


def test_two_ways_to_one_node_are_no_cycle() -> None:
    assert dag_of((0, 1), (0, 2), (2, 1)).check_acyclic() is None


def test_a_cycle_without_a_source_is_found() -> None:
    assert dag_of((0, 1), (1, 2), (2, 0)).check_acyclic() in {(0, 1), (1, 2), (2, 0)}


def test_a_cycle_of_a_hundred_thousand_nodes_is_found_whole() -> None:
    length = 100_000
    ring = [(node, (node + 1) % length) for node in range(length)]
    dag = Dag.from_edges([*ring, ("behind", 5), (5, "before")])
    cycle = dag.wiring.cycle()
    assert dag.check_acyclic() in set(ring)
    assert sorted(node for node in cycle if isinstance(node, int)) == list(range(length))
    assert set(zip(cycle, [*cycle[1:], cycle[0]], strict=True)) == set(ring)


@given(PAIRS)
def test_a_cycle_is_found_exactly_if_there_is_one_and_it_is_one(pairs: list[Edge]) -> None:
    dag = Dag.from_edges(pairs)
    edges = {(src, dst) for src, dst in pairs if src != dst}
    cycle = dag.wiring.cycle()
    assert set(zip(cycle, cycle[1:] + cycle[:1], strict=True)) <= edges
    assert len(set(cycle)) == len(cycle)
    assert bool(cycle) == has_cycle(edges)


def has_cycle(edges: set[Edge]) -> bool:
    graph: dict[Node, set[Node]] = {}
    for src, dst in edges:
        graph.setdefault(src, set()).add(dst)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


# In bulk


@given(PAIRS, st.lists(st.integers(0, 9), max_size=4))
def test_a_graph_in_bulk_is_the_graph_made_step_by_step(pairs: list[Edge], nodes: list[Node]) -> None:
    bulk, steps = Dag.from_edges(iter(pairs), iter(nodes)), dag_of(*pairs, nodes=tuple(nodes))
    assert shape_of(bulk) == shape_of(steps)
    bulk.add_node("new")
    steps.add_node("new")
    assert shape_of(bulk) == shape_of(steps)


def shape_of(dag: Dag) -> list[set[Node]]:
    nodes, edges = set(dag.wiring.nodes), set[Node](edges_of(dag))
    return [nodes, edges, set(dag.sources), set(dag.sinks), set(dag.isolated_nodes)]


def test_nodes_in_bulk_are_numbered_as_they_are_given() -> None:
    assert Dag.from_edges([("a", "b")], ["c", "b", "c"]).wiring.nodes == ["c", "b", "a"]


def test_a_node_in_bulk_has_no_data_until_it_gets_some() -> None:
    dag = Dag.from_edges([("a", "b")])
    assert dag.get_data("a") is None
    dag.add_node("a", 7, dup="overwrite")
    assert (dag.get_data("a"), edges_of(dag)) == (7, {("a", "b")})
    with pytest.raises(DagError):
        dag.add_node("b")


def test_a_repeated_edge_in_bulk_is_deleted_at_once() -> None:
    dag = Dag.from_edges([("a", "b"), ("a", "b")])
    dag.del_edge("a", "b")
    assert edges_of(dag) == set()


@pytest.mark.parametrize("edge", [("a",), ("a", "b", "c"), ()])
def test_an_edge_in_bulk_is_a_pair(edge: tuple[Node, ...]) -> None:
    with pytest.raises(DagError, match="an edge is a pair"):
        Dag.from_edges([("a", "b"), edge])  # type: ignore[list-item]


def test_looking_for_a_node_does_not_make_it() -> None:
    dag = Dag.from_edges([("a", "b")])
    assert "c" not in dag
    with pytest.raises(KeyError):
        dag.get_data("c")
    assert dag.wiring.nodes == ["a", "b"]
