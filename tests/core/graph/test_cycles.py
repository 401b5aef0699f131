"""Cycles."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.graph.model import Edge
from taskyard.core.graph.parse import cycle_text, cycles, validate
from tests.core.graph.documents import faults_of, graph, node


def requires(**labels: str) -> dict[str, tuple[Edge, ...]]:
    return {label: tuple(Edge(other) for other in others.split()) for label, others in labels.items()}


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        (requires(a="", b="a", c="a b"), []),
        (requires(a="b", b="a"), [("a", "b")]),
        (requires(a="c", b="a", c="b"), [("a", "c", "b")]),
        (requires(z="a", a="b", b="a", y="z"), [("a", "b")]),
        (requires(a="old", b="a old"), []),
        (requires(a="b", b="a", c="d", d="c"), [("a", "b"), ("c", "d")]),
        (requires(a="b c", b="a", c="a"), [("a", "b")]),
        (requires(d="c", c="d a", a="b", b="a"), [("d", "c"), ("a", "b")]),
    ],
)
def test_cycles_are_found(edges: dict[str, tuple[Edge, ...]], found: list[tuple[str, ...]]) -> None:
    assert list(cycles(edges)) == found


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_a_cycle_is_found_exactly_when_there_is_one(pairs: list[tuple[int, int]]) -> None:
    edges = {str(label): tuple(Edge(str(other)) for one, other in pairs if one == label) for label in range(10)}
    found = list(cycles(edges))
    assert bool(found) == any(_reaches(edges, label, label) for label in edges)
    for cycle in found:
        assert all(Edge(after) in edges[before] for before, after in pairwise((*cycle, cycle[0])))
    members = [label for cycle in found for label in cycle]
    assert len(members) == len(set(members))


def _reaches(edges: dict[str, tuple[Edge, ...]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    todo = [edge.task for edge in edges[start]]
    while todo:
        label = todo.pop()
        if label not in seen:
            seen.add(label)
            todo.extend(edge.task for edge in edges[label])
    return goal in seen


def test_a_cycle_of_a_hundred_thousand_is_shown_by_its_ends() -> None:
    count = 100_000
    edges = {f"t{index}": (Edge(f"t{(index + 1) % count}"),) for index in range(count)}
    [cycle] = cycles(edges)
    assert len(cycle) == count
    head, tail = " -> ".join(f"t{n}" for n in range(20)), " -> ".join(f"t{n}" for n in range(99_991, 100_000))
    assert cycle_text(cycle) == f"{head} -> (99971 more) -> {tail} -> t0"


def test_a_short_cycle_is_shown_whole() -> None:
    assert cycle_text(("a", "b c")) == 'a -> "b c" -> a'
    assert cycle_text(tuple("abcdefgh")) == "a -> b -> c -> d -> e -> f -> g -> h -> a"
    whole = tuple(f"n{number}" for number in range(30))
    assert cycle_text(whole) == " -> ".join([*whole, "n0"])


def test_the_fault_of_a_cycle_has_all_of_it() -> None:
    nodes = {f"n{n}": {"requires": [f"n{(n + 1) % 50}"], "task": {"payload": {"noop": True}}} for n in range(50)}
    (fault,) = validate({"tasks": nodes}).faults
    assert fault.labels == tuple(f"n{n}" for n in range(50))


def test_a_cycle_is_found_beside_other_faults() -> None:
    document = graph(a={"requires": ["b"]}, b=node(requires=["a", "zzz"]))
    assert faults_of(document) == [
        ("tasks.a", 'needs the field "task"'),
        ("tasks.b.requires[1]", 'unknown label "zzz"; no task of the graph has it'),
        ("tasks.a.requires", "is a cycle, each requiring the next: a -> b -> a; remove one edge"),
    ]


def test_edges_of_every_kind_close_a_cycle() -> None:
    document = graph(
        a=node(requires=[{"task": "b", "on": "failure"}]), b=node(requires=[{"task": "a", "on": "always"}])
    )
    assert len(faults_of(document)) == 1


def test_many_cycles_are_shown_up_to_what_is_listed() -> None:
    edges = {f"t{index}": (Edge(f"t{index ^ 1}"),) for index in range(1_000)}
    assert len(list(cycles(edges))) == 100
