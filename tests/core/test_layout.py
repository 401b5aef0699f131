"""Layouts: layers follow edges, nothing lies on anything else, and groups of a graph are a graph again."""

from hypothesis import given
from hypothesis import strategies as st

from taskyard.core.layout import GROUPS_MAX, group, lay_out, layers_of


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(0, 40))
    pairs = [(source, target) for target in range(count) for source in range(target)]
    return count, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(graphs())
def test_a_task_is_in_the_layer_after_the_last_that_it_requires(made: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = made
    layers = layers_of(count, edges)
    for node in range(count):
        before = [layers[source] for source, target in edges if target == node]
        assert layers[node] == max(before, default=-1) + 1


@given(graphs())
def test_no_two_tasks_are_at_one_place_and_edges_lead_to_the_right(made: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = made
    found = lay_out(count, edges)
    assert len(set(zip(found.x, found.y, strict=True))) == count
    assert all(found.x[source] < found.x[target] for source, target in edges)


def test_few_edges_cross() -> None:
    # Two chains side by side, whose tasks come in an order that would cross at every step.
    edges = [(0, 3), (1, 2), (2, 5), (3, 4), (4, 7), (5, 6)]
    y = lay_out(8, edges).y
    assert all((y[a] < y[c]) == (y[b] < y[d]) for a, b in edges for c, d in edges if y[a] != y[c] and y[b] != y[d])


def test_a_wide_layer_continues_beside_itself() -> None:
    found = lay_out(500, [])
    assert max(found.y) - min(found.y) < 10_000
    assert len(set(found.x)) > 5


@given(graphs(), st.integers(1, 4))
def test_groups_have_all_tasks_and_no_cycle(made: tuple[int, list[tuple[int, int]]], names: int) -> None:
    count, edges = made
    labels = [f"part{node % names}-{node}" for node in range(count)]
    found = group(labels, layers_of(count, edges), edges)
    assert len(found.group_of) == count
    assert set(found.group_of) == set(range(len(found.names)))
    order = layers_of(len(found.names), found.edges)
    assert all(order[source] < order[target] for source, target in found.edges)


def test_labels_that_differ_in_numbers_are_one_group_and_there_are_never_too_many() -> None:
    found = group(["build", *(f"shard-{n}" for n in range(100))], [0, *[1] * 100], [(0, n) for n in range(1, 101)])
    assert found.names == ["build", "shard-*"]
    words = ["".join(chr(97 + int(digit)) for digit in str(n)) for n in range(1_000)]
    chain = group(words, list(range(1_000)), [(n, n + 1) for n in range(999)])
    assert len(chain.names) <= GROUPS_MAX
